use tidegate_core::random::Seed;

use super::*;
use crate::synthetic::{KINDS, clouds};

#[test]
fn the_kinds_of_synthetic_clouds_are_found() {
    let (trajectories, kinds) = clouds(Seed(1), 240, 0.5);
    let found = cluster(&trajectories, ClusterConfig::default());
    assert_eq!(found.centroids.len(), KINDS.len());
    let index = rand_index(&found.members, &kinds);
    assert!(index > 0.99, "{index}");
    assert!(found.explained > 0.8, "{}", found.explained);
    // Clusters are in order of their rate.
    let levels: Vec<f32> = found
        .centroids
        .iter()
        .filter_map(Trajectory::mean)
        .collect();
    assert!(levels.is_sorted(), "{levels:?}");
    // Ward's hierarchy need not put each cloud into the cluster of the nearest centroid.
    let is_nearest =
        |(trajectory, of): &(&Trajectory, &usize)| found.nearest(trajectory) == Some(**of);
    let pairs = trajectories.iter().zip(&found.members);
    let nearest = pairs.filter(is_nearest).count();
    assert!(nearest >= 230, "{nearest} of 240");
}

/// The merger of two sets of points increases the sum of squares by the distance of their means,
/// weighted: the hierarchy must be the one of a direct search.
#[test]
fn the_hierarchy_is_that_of_a_direct_search() {
    let (trajectories, _) = clouds(Seed(2), 24, 0.0);
    for count in 1..24 {
        let config = ClusterConfig {
            clusters: Some(count),
            ..ClusterConfig::default()
        };
        let found = cluster(&trajectories, config);
        let direct = direct(&trajectories, count);
        let index = rand_index(&found.members, &direct);
        assert!((index - 1.0).abs() < 1e-12, "{count}: {index}");
    }
}

fn direct(trajectories: &[Trajectory], count: usize) -> Vec<usize> {
    let mut sets: Vec<Vec<usize>> = (0..trajectories.len()).map(|i| vec![i]).collect();
    let mean = |set: &[usize], bin: usize| {
        let sum = set.iter().map(|i| f64::from(trajectories[*i].bins()[bin]));
        sum.sum::<f64>() / set.len() as f64
    };
    while sets.len() > count {
        let increase = |a: &[usize], b: &[usize]| {
            let [n, m] = [a, b].map(|set| set.len() as f64);
            let squared = (0..BINS).map(|bin| (mean(a, bin) - mean(b, bin)).powi(2));
            n * m / (n + m) * squared.sum::<f64>()
        };
        let pairs = (0..sets.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
        let nearest = pairs.min_by(|x, y| {
            let [x, y] = [x, y].map(|(i, j)| increase(&sets[*i], &sets[*j]));
            x.total_cmp(&y)
        });
        let (i, j) = nearest.expect("two sets");
        let joined = sets.swap_remove(i);
        sets[j].extend(joined);
    }
    let mut labels = vec![0; trajectories.len()];
    for (label, set) in sets.iter().enumerate() {
        for i in set {
            labels[*i] = label;
        }
    }
    labels
}

#[test]
fn groups_of_clouds_give_the_clusters_of_single_clouds() {
    for (seed, missing) in [(1, 0.0), (2, 0.5), (3, 0.9)] {
        let (trajectories, _) = clouds(Seed(seed), 400, missing);
        let exact = cluster(&trajectories, ClusterConfig::default());
        assert_eq!(exact.representatives, 400);
        let config = ClusterConfig {
            representatives: 40,
            ..ClusterConfig::default()
        };
        let grouped = cluster(&trajectories, config);
        assert_eq!(grouped.representatives, 40);
        let index = rand_index(&exact.members, &grouped.members);
        assert!(index >= 0.95, "{missing}: {index}");
    }
}

#[test]
fn alike_clouds_are_one_cluster_and_few_clouds_are_no_error() {
    let config = ClusterConfig::default();
    assert!(cluster(&[], config).members.is_empty());
    let mut one = Trajectory::missing();
    one.set(7, 21.0);
    let found = cluster(&[one.clone()], config);
    assert_eq!(found.members, [0]);
    assert_eq!(found.centroids, [one.clone()]);
    let found = cluster(&vec![one; 30], config);
    assert_eq!((found.centroids.len(), found.members), (1, vec![0; 30]));
}

#[test]
fn clouds_without_a_common_bin_are_compared_by_their_means() {
    let at = |bin: usize, value: f32| {
        let mut trajectory = Trajectory::missing();
        trajectory.set(bin, value);
        trajectory
    };
    let slow = (0..20).map(|bin| at(bin, 20.0 + 0.01 * bin as f32));
    let fast = (20..40).map(|bin| at(bin, 25.0 + 0.01 * bin as f32));
    let all: Vec<Trajectory> = slow.chain(fast).collect();
    let config = ClusterConfig {
        clusters: Some(2),
        ..ClusterConfig::default()
    };
    let members = cluster(&all, config).members;
    assert_eq!(members[..20], [0; 20]);
    assert_eq!(members[20..], [1; 20]);
}

#[test]
fn one_cloud_moves_a_bin_of_its_cluster_within_a_bound() {
    for poison in [10.0, 23.0, 40.0] {
        let mut clouds = vec![Trajectory::missing(); 3];
        for (cloud, value) in clouds.iter_mut().zip([20.0, 21.0, poison]) {
            cloud.set(7, value);
        }
        let config = ClusterConfig {
            clusters: Some(1),
            ..ClusterConfig::default()
        };
        let centroid = &cluster(&clouds, config).centroids[0];
        let value = f64::from(centroid.get(7).expect("a bin"));
        let mean = [20.0, 21.0, f64::from(poison).clamp(18.0, 23.0)];
        assert!((value - mean.iter().sum::<f64>() / 3.0).abs() < 1e-6);
        let room = MAX_APART / 3.0 + 1e-6;
        assert!((20.0 - room..=21.0 + room).contains(&value), "{value}");
    }
}
