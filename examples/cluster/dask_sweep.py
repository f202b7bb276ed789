#!/usr/bin/env python3
"""A sweep on the workers of a Dask cluster that share a folder.

    dask_sweep.py SCHEDULER SCENARIO SHARDS
    dask_sweep.py tcp://192.0.2.1:8786 grid.toml 12

A shard whose worker is killed runs again on another one, which continues it.
"""

import os
import subprocess
import sys

from dask.distributed import Client, as_completed


def shard(folder, scenario, index, count):
    """Runs one shard in `folder`. Returns its index."""
    command = ["tidegate", "sim", "sweep", scenario, "--jobs", "1", "--shard", f"{index}/{count}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"shard {index}/{count}: {done.stderr}")
    return index


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    scheduler, scenario, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with Client(scheduler, timeout=60) as client:
        tasks = [
            client.submit(shard, os.getcwd(), scenario, index, count, pure=False, retries=3)
            for index in range(count)
        ]
        for done, task in enumerate(as_completed(tasks), 1):
            print(f"shard {task.result()} is complete ({done} of {count})", flush=True)
    sys.exit(subprocess.call(["tidegate", "sim", "merge", scenario, "--verify", "3"]))


if __name__ == "__main__":
    main()
