//! Clusters the clouds of a store from its trajectories.

use crate::cluster::{ClusterConfig, cluster};
use crate::store::{Member, Store, StoreError};
use crate::trajectory::{BINS, Trajectory};
use crate::wall_time::WallTime;

/// Result of [`recluster`].
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Reclustered {
    /// Days whose trajectories were computed.
    pub days: usize,
    /// Clouds with a trajectory.
    pub clouds: usize,
    /// Clusters.
    pub clusters: usize,
    /// Share of the variance that lies between clusters, 0..=1.
    pub explained: f64,
}

/// Computes the trajectories of days with new samples, and the clusters of all clouds.
///
/// # Errors
/// The disk is full, the store is locked or damaged.
pub fn recluster(
    store: &mut Store,
    config: ClusterConfig,
    now: WallTime,
) -> Result<Reclustered, StoreError> {
    let days = store.update_trajectories()?;
    let (ids, trajectories): (Vec<i64>, Vec<Trajectory>) = store
        .trajectories()?
        .into_iter()
        .map(|one| (one.cloud, one.trajectory))
        .unzip();
    let found = cluster(&trajectories, config);
    let member = |(index, cloud): (usize, &i64)| {
        let cluster = found.members[index];
        Member {
            cloud: *cloud,
            cluster,
            offset: offset(&trajectories[index], &found.centroids[cluster]),
        }
    };
    let members: Vec<Member> = ids.iter().enumerate().map(member).collect();
    let centroids = if ids.is_empty() {
        &[][..]
    } else {
        &found.centroids
    };
    store.set_clusters(centroids, &members, now)?;
    Ok(Reclustered {
        days,
        clouds: ids.len(),
        clusters: centroids.len(),
        explained: found.explained,
    })
}

/// By how many octaves a cloud is faster than its cluster, over their common bins. Few bins count less:
/// those of one hour half.
pub(crate) fn offset(trajectory: &Trajectory, centroid: &Trajectory) -> f64 {
    let apart = |bin: usize| Some(f64::from(trajectory.get(bin)? - centroid.get(bin)?));
    let (mut sum, mut count) = (0.0, 0.0);
    for apart in (0..BINS).filter_map(apart) {
        sum += apart;
        count += 1.0;
    }
    let hour = BINS as f64 / 24.0;
    (sum / (count + hour)).clamp(-MAX_OFFSET, MAX_OFFSET)
}

/// Largest offset in octaves.
const MAX_OFFSET: f64 = 2.0;
