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

/// A store in memory with ten slow and ten fast clouds, a day of minutes each.
fn two_kinds() -> Store {
    let mut store = Store::in_memory();
    let mut samples = Vec::new();
    for cloud in 0..20_u64 {
        let kbps = if cloud < 10 { 1_000 } else { 8_000 };
        let address = format!("192.0.{cloud}.7");
        for bin in 0..BINS as u64 {
            let at = noon().before(DAY).after(Duration::from_secs(300 * bin));
            samples.push(sample(&address, at, Scale::Minute, kbps + 10 * cloud));
        }
    }
    store.ingest(&samples).expect("written");
    let config = ClusterConfig {
        clusters: Some(2),
        ..ClusterConfig::default()
    };
    let done = recluster(&mut store, config, noon()).expect("clustered");
    assert_eq!((done.clouds, done.clusters), (20, 2));
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
    let mut store = two_kinds();
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
