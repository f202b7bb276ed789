#!/bin/bash
# A sweep as an array job of Slurm. In a folder that all nodes share:
#
#   sbatch --array=0-11 slurm.sh grid.toml
#   tidegate sim merge grid.toml --verify 3      when the tasks are done
#
# A task that is killed with its node is queued again and continues its shard.
#SBATCH --requeue
#SBATCH --ntasks=1
#SBATCH --output=shard-%a.log
set -euo pipefail
exec tidegate sim sweep "$1" --jobs "${SLURM_CPUS_PER_TASK:-1}" \
    --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
