use tidegate_core::units::Rate;

use super::*;
use crate::Client;
use crate::cluster::ClusterConfig;
use crate::recluster::recluster;
use crate::sample::{Measurement, Sample, Scale};
use crate::trajectory::log2;

/// 2024-10-04 12:00 UTC.
fn noon() -> WallTime {
    WallTime::of_day(20_000).after(DAY / 2)
}

fn sample(address: &str, at: WallTime, scale: Scale, kbps: u64) -> Sample {
    Sample {
        cloud: address.parse().expect("an address"),
        client: Client::new(address).expect("a name"),
        measurement: Measurement {
            at,
            scale,
            rate: Rate::kbps(kbps),
            rtt: Some(Duration::from_millis(30)),
            loss: None,
        },
        tag: None,
    }
}

fn predict(store: &Store, address: &str, now: WallTime) -> Option<Prediction> {
    let table = StartTable::build(store, now).expect("built");
    table.predict(address.parse().expect("an address"))
}

/// A store in memory with ten slow and ten fast clouds of `clients` clients, a day of minutes each, and
/// samples of others.
fn two_kinds(clients: u64, others: Vec<Sample>, clusters: Option<usize>) -> Store {
    let mut store = Store::in_memory();
    let mut samples = others;
    for cloud in 0..20_u64 {
        let kbps = if cloud < 10 { 1_000 } else { 8_000 };
        for (client, bin) in (0..clients).flat_map(|n| (0..BINS as u64).map(move |bin| (n, bin))) {
            let address = format!("192.0.{cloud}.{}", 7 + client);
            let at = noon().before(DAY).after(Duration::from_secs(300 * bin));
            samples.push(sample(&address, at, Scale::Minute, kbps + 10 * cloud));
        }
    }
    store.ingest(&samples).expect("written");
    let config = ClusterConfig {
        clusters,
        ..ClusterConfig::default()
    };
    recluster(&mut store, config, noon()).expect("clustered");
    store
}

#[test]
fn an_unknown_cloud_has_no_prediction() {
    let mut store = Store::in_memory();
    assert_eq!(predict(&store, "192.0.2.7", noon()), None);
    // A minute-scale sample alone predicts nothing before the clouds are clustered.
    let minute = sample("192.0.2.7", noon(), Scale::Minute, 500);
    store.ingest(&[minute]).expect("written");
    assert_eq!(predict(&store, "192.0.2.7", noon()), None);
}

#[test]
fn a_cloud_without_a_cluster_is_predicted_from_its_own_samples() {
    let mut store = Store::in_memory();
    let samples: Vec<Sample> = (0..60)
        .map(|i| noon().before(Duration::from_secs(10 * i)))
        .map(|at| sample("192.0.2.7", at, Scale::RoundTrip, 3_000))
        .collect();
    store.ingest(&samples).expect("written");
    let found = predict(&store, "192.0.2.200", noon()).expect("known");
    assert_eq!(
        (found.basis, found.samples, found.clients),
        (Basis::Cloud, 60, 1)
    );
    let prior = found.prior().expect("a round-trip time");
    assert_eq!(prior.rtt, Duration::from_millis(30));
    assert!(
        (log2(prior.rate) - log2(Rate::kbps(3_000))).abs() < 0.1,
        "{prior:?}"
    );
    assert!(prior.confidence > 0.8, "{prior:?}");
    // Samples of later times, from a clock that was wrong, are ignored.
    let early = predict(&store, "192.0.2.200", noon().before(DAY));
    assert_eq!(early, None);
    assert_eq!(predict(&store, "192.0.2.200", noon().after(SPAN * 2)), None);
}

#[test]
fn clouds_of_a_cluster_share_their_samples() {
    let mut store = two_kinds(1, Vec::new(), Some(2));
    // Without recent samples, the trajectory is the prediction.
    let found = predict(&store, "192.0.3.9", noon()).expect("known");
    assert_eq!(found.basis, Basis::Trajectory);
    let expected = log2(Rate::kbps(1_030));
    assert!(
        (found.forecast.quantiles[MEDIAN] - expected).abs() < 0.05,
        "{found:?}"
    );
    // The slow clouds are half as fast as usual; only others than the asked one have sessions.
    let recent: Vec<Sample> = (0..200_u64)
        .map(|i| {
            let address = format!("192.0.{}.7", 4 + i % 5);
            let at = noon().before(Duration::from_secs(5 * i));
            sample(&address, at, Scale::RoundTrip, 500 + 5 * (4 + i % 5))
        })
        .collect();
    store.ingest(&recent).expect("written");
    let found = predict(&store, "192.0.3.9", noon()).expect("known");
    assert_eq!(
        (found.basis, found.samples, found.clients),
        (Basis::Cluster, 200, 5)
    );
    let expected = log2(Rate::kbps(515));
    assert!(
        (found.forecast.quantiles[MEDIAN] - expected).abs() < 0.1,
        "{found:?}"
    );
    let fast = predict(&store, "192.0.15.9", noon()).expect("known");
    assert_eq!(fast.basis, Basis::Trajectory);
    assert!(fast.rates()[MEDIAN] > Rate::kbps(7_000), "{fast:?}");
}

/// One client that reports anything, at any times, before and after the clouds are clustered, in a cloud
/// of its own or in one with three others.
#[test]
fn one_client_moves_a_prediction_within_a_bound() {
    for clusters in [None, Some(2)] {
        let honest = two_kinds(3, Vec::new(), clusters);
        for attack in attacks() {
            let mut store = two_kinds(3, attack.samples(Scale::Minute), clusters);
            for recent in [Vec::new(), attack.samples(Scale::RoundTrip)] {
                store.ingest(&recent).expect("written");
                for victim in ["192.0.3.9", "192.0.15.9"] {
                    let of = |store| {
                        let found = predict(store, victim, noon()).expect("known");
                        found.forecast.quantiles[MEDIAN]
                    };
                    let moved = of(&store) - of(&honest);
                    assert!(
                        moved.abs() <= MAX_MOVED,
                        "{attack:?} moves {victim} by {moved} octaves"
                    );
                }
            }
        }
    }
}

/// One client's samples: a rate in kb/s in the first bins of the day and each slot before now.
#[derive(Clone, Copy, Debug)]
struct Attack {
    address: &'static str,
    kbps: u64,
    bins: u64,
}

impl Attack {
    fn samples(self, scale: Scale) -> Vec<Sample> {
        let at = |i: u64| match scale {
            Scale::Minute => noon().before(DAY).after(Duration::from_secs(300 * i)),
            Scale::RoundTrip => noon().before(Duration::from_secs(10 * i)),
        };
        let count = match scale {
            Scale::Minute => self.bins,
            Scale::RoundTrip => 180,
        };
        let one = |i| sample(self.address, at(i), scale, self.kbps);
        (0..count).map(one).collect()
    }
}

fn attacks() -> Vec<Attack> {
    let mut all = Vec::new();
    for address in ["198.51.100.7", "192.0.3.66"] {
        for kbps in [1, 4_000, 1_000_000_000] {
            for bins in [0, 4, 288] {
                all.push(Attack {
                    address,
                    kbps,
                    bins,
                });
            }
        }
    }
    all
}

/// In octaves: two octaves of recent samples around the trajectory of the cluster, and two thirds of an
/// octave of the trajectory.
const MAX_MOVED: f64 = 2.67;
