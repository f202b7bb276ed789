//! Clusters of clouds whose bandwidth over the day is alike.
//!
//! Agglomerative clustering of 24-hour trajectories by Ward's criterion: the two clusters are merged
//! whose merger increases the sum of squared distances to the centroids least (Ward 1963). Missing
//! bins are interpolated between their neighbours. Of more
//! clouds than [`ClusterConfig::representatives`], groups of similar clouds are formed first, and
//! their means are merged.

mod distance;
mod partition;
mod ward;

use crate::group_series::MAX_APART;
use crate::robust::median;
use crate::trajectory::{BINS, Trajectory};

use distance::Points;
use ward::Merge;

/// Settings of [`cluster`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Maximum number of trajectories that are merged exactly [default: 5,000]. Memory is
    /// proportional to its square: 100 MB.
    pub representatives: usize,
    /// Maximum number of clusters that the criterion may choose [default: 64].
    pub most_clusters: usize,
    /// Number of clusters [default: by the criterion].
    pub clusters: Option<usize>,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            representatives: 5_000,
            most_clusters: 64,
            clusters: None,
        }
    }
}

/// Result of [`cluster`].
#[derive(Clone, Debug, PartialEq)]
pub struct Clustering {
    /// Mean of the members of each cluster, the slowest cluster first. The value of a member in a bin is
    /// limited to [`MAX_APART`] from the median of the members.
    pub centroids: Vec<Trajectory>,
    /// Index in `centroids` of the cluster of each trajectory.
    pub members: Vec<usize>,
    /// Share of the sum of squares that lies between clusters, 0..=1.
    pub explained: f64,
    /// Number of trajectories or groups that were merged exactly.
    pub representatives: usize,
}

impl Clustering {
    /// Index of the cluster whose centroid is nearest to a trajectory; `None` without clusters
    /// or bins.
    pub fn nearest(&self, trajectory: &Trajectory) -> Option<usize> {
        nearest(&self.centroids, trajectory)
    }
}

/// Index of the centroid that is nearest to a trajectory; `None` without centroids or
/// bins.
pub fn nearest(centroids: &[Trajectory], trajectory: &Trajectory) -> Option<usize> {
    let own = trajectory.filled()?;
    let apart = |centroid: &Trajectory| {
        let filled = centroid.filled();
        filled.map_or(f32::INFINITY, |filled| {
            distance::squared(filled.bins(), own.bins())
        })
    };
    let nearest = centroids.iter().map(apart).enumerate();
    let nearest = nearest.min_by(|a, b| a.1.total_cmp(&b.1));
    nearest.map(|(index, _)| index)
}

/// Clusters trajectories, each of which has at least one bin.
///
/// The number of clusters is the one of highest Calinski-Harabasz index (Calinski and Harabasz 1974),
/// the ratio of the variance between clusters to that within. It is one if two or more clusters
/// explain less than [`MIN_EXPLAINED`] of the variance.
pub fn cluster(trajectories: &[Trajectory], config: ClusterConfig) -> Clustering {
    let points = Points::of(trajectories);
    let groups = partition::partition(points, config.representatives.max(1));
    let points = &groups.means;
    let merges = ward::merge(points);
    let count = config
        .clusters
        .unwrap_or_else(|| choose(&merges, trajectories.len(), groups.within, config))
        .clamp(1, points.len().max(1));
    let labels = ward::cut(&merges, points.len(), count);
    let members: Vec<usize> = groups.of.iter().map(|group| labels[*group]).collect();
    let total = groups.within + merges.iter().map(|m| m.increase).sum::<f64>();
    let explained = merges.iter().rev().take(count.saturating_sub(1));
    let between = explained.map(|m| m.increase).sum::<f64>();
    let (centroids, members) = centroids(trajectories, &members, count);
    Clustering {
        centroids,
        members,
        explained: if total > 0.0 { between / total } else { 0.0 },
        representatives: points.len(),
    }
}

/// Number of clusters by the Calinski-Harabasz index. `within` is the sum of squares in groups.
fn choose(merges: &[Merge], clouds: usize, within: f64, config: ClusterConfig) -> usize {
    let total = within + merges.iter().map(|m| m.increase).sum::<f64>();
    let mut best = (0.0, 1);
    let mut between = 0.0;
    let most = config.most_clusters.min(merges.len()).min(clouds / 2);
    for (clusters, merge) in (2..=most).zip(merges.iter().rev()) {
        between += merge.increase;
        let inside = total - between;
        let degrees = (clouds - clusters) as f64 / (clusters - 1) as f64;
        // Equal trajectories: the fewest clusters that leave nothing inside.
        let index = between / inside.max(1e-9 * total) * degrees;
        if between >= MIN_EXPLAINED * total && index > best.0 {
            best = (index, clusters);
        }
    }
    best.1
}

/// Means of the present bins of members, each limited to [`MAX_APART`] from their median; clusters in
/// order of their mean.
fn centroids(
    trajectories: &[Trajectory],
    members: &[usize],
    count: usize,
) -> (Vec<Trajectory>, Vec<usize>) {
    let mut unordered = vec![Trajectory::missing(); count];
    let mut values: Vec<Vec<f64>> = vec![Vec::new(); count];
    for bin in 0..BINS {
        for (trajectory, cluster) in trajectories.iter().zip(members) {
            values[*cluster].extend(trajectory.get(bin).map(f64::from));
        }
        for (centroid, values) in unordered.iter_mut().zip(&mut values) {
            if !values.is_empty() {
                centroid.set(bin, limited_mean(values) as f32);
            }
            values.clear();
        }
    }
    let level = |i: &usize| unordered[*i].mean().unwrap_or(f32::MAX);
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|a, b| level(a).total_cmp(&level(b)));
    let mut rank = vec![0; count];
    for (place, cluster) in order.iter().enumerate() {
        rank[*cluster] = place;
    }
    let ordered = order.iter().map(|i| unordered[*i].clone()).collect();
    (ordered, members.iter().map(|of| rank[*of]).collect())
}

/// Mean of values, each limited to [`MAX_APART`] from their median. So one of `n` values, `n` at least
/// three, moves it at most `MAX_APART / n` out of the range of the others. The values are reordered.
fn limited_mean(values: &mut [f64]) -> f64 {
    let middle = median(values);
    let limited = |value: &f64| value.clamp(middle - MAX_APART, middle + MAX_APART);
    values.iter().map(limited).sum::<f64>() / values.len() as f64
}

/// Share of pairs of trajectories that two clusterings treat alike, together or apart (Rand 1971):
/// 0..=1.
pub fn rand_index(a: &[usize], b: &[usize]) -> f64 {
    let mut alike = 0_u64;
    let mut pairs = 0_u64;
    for i in 0..a.len().min(b.len()) {
        for j in 0..i {
            alike += u64::from((a[i] == a[j]) == (b[i] == b[j]));
            pairs += 1;
        }
    }
    alike as f64 / pairs.max(1) as f64
}

/// Least share of the variance that more than one cluster must explain.
pub const MIN_EXPLAINED: f64 = 0.1;

#[cfg(test)]
mod tests;
