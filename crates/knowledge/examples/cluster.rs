//! Prints the time and memory of clustering many clouds, and the Rand index of groups against single
//! clouds on subsets: `cargo run --release -p tidegate-knowledge --example cluster`.

use std::fs;
use std::time::Instant;

use tidegate_core::random::Seed;
use tidegate_knowledge::cluster::{ClusterConfig, cluster, rand_index};
use tidegate_knowledge::synthetic::clouds;

fn main() {
    let config = ClusterConfig::default();
    // Subsets with the ratio of clouds to representatives of the large set.
    for (seed, missing) in [(1, 0.3), (2, 0.6), (3, 0.9)] {
        let (subset, kinds) = clouds(Seed(seed), 5_000, missing);
        let exact = cluster(&subset, config);
        let few = ClusterConfig {
            representatives: 250,
            ..config
        };
        let grouped = cluster(&subset, few);
        println!(
            "5000 clouds, {:.0} % of bins missing: {} clusters exactly, {} from 250 groups; Rand index \
             {:.4}, with the true kinds {:.4}",
            100.0 * missing,
            exact.centroids.len(),
            grouped.centroids.len(),
            rand_index(&exact.members, &grouped.members),
            rand_index(&grouped.members, &kinds),
        );
    }
    let (all, _) = clouds(Seed(4), 100_000, 0.3);
    let began = Instant::now();
    let found = cluster(&all, config);
    println!(
        "100000 clouds of 288 bins, 30 % missing: {} groups, {} clusters, {:.1} % explained, {:.1} s, \
         peak memory {}",
        found.representatives,
        found.centroids.len(),
        100.0 * found.explained,
        began.elapsed().as_secs_f64(),
        peak_memory(),
    );
}

fn peak_memory() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}
