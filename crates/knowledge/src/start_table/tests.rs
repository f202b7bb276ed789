use tidegate_core::units::Rate;

use super::*;
use crate::Client;
use crate::client::AddressPolicy;
use crate::cluster::ClusterConfig;
use crate::recluster::recluster;
use crate::sample::{Measurement, Sample, Scale};
use crate::trajectory::{BINS, log2};

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
            is_limited: false,
        },
        tag: None,
    }
}

fn predict(store: &Store, address: &str, now: WallTime) -> Option<Prediction> {
    let table = StartTable::build(store, &AddressPolicy::Plain, now).expect("built");
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
fn an_empty_store_predicts_nothing() {
    let mut store = Store::in_memory();
    assert_eq!(predict(&store, "192.0.2.7", noon()), None);
    // Samples of later times, from a clock that was wrong, are ignored.
    let later = noon().after(Duration::from_secs(1));
    let one = sample("192.0.2.7", later, Scale::Minute, 500);
    store.ingest(&[one]).expect("written");
    assert_eq!(predict(&store, "192.0.2.7", noon()), None);
}

/// Two hours of visits each quarter of an hour.
fn visits_of(address: &str, kbps: u64) -> Vec<Sample> {
    let at = |i: u64| noon().before(Duration::from_mins(15 * i));
    (0..8)
        .map(|i| sample(address, at(i), Scale::RoundTrip, kbps))
        .collect()
}

#[test]
fn a_client_is_predicted_from_its_own_visits() {
    let mut store = Store::in_memory();
    let all = [
        visits_of("192.0.2.7", 3_000),
        visits_of("192.0.2.8", 20_000),
        visits_of("192.0.2.9", 20_000),
    ];
    store.ingest(&all.concat()).expect("written");
    let octaves = |found: &Prediction| found.expectation.quantiles[MEDIAN];
    let own = predict(&store, "192.0.2.7", noon()).expect("known");
    assert!(
        (octaves(&own) - log2(Rate::kbps(3_000))).abs() < 0.2,
        "{own:?}"
    );
    assert!(own.is_of_its_own() && own.is_known());
    let prior = own.prior().expect("a round-trip time");
    assert_eq!(prior.rtt, Duration::from_millis(30));
    assert!(prior.confidence > 0.5, "{prior:?}");
    // A new client of the network may have either rate.
    let new = predict(&store, "192.0.2.200", noon()).expect("known");
    let [low, high] = [0, 6].map(|i| new.expectation.quantiles[i]);
    assert!(
        low < log2(Rate::kbps(3_500)) && high > log2(Rate::kbps(15_000)),
        "{new:?}"
    );
    assert!(new.expectation.confidence < own.expectation.confidence);
    // Of another network nothing is known but these clients.
    let other = predict(&store, "198.51.100.1", noon()).expect("others are known");
    assert!(!other.is_known() && !other.is_of_its_own());
    assert_eq!(other.prior(), None);
    // After a week all is forgotten.
    assert_eq!(
        predict(&store, "192.0.2.7", noon().after(HISTORY * 2)),
        None
    );
}

/// Ten clients of a network measure a quarter of what the others of its cluster have.
#[test]
fn a_network_that_changes_is_predicted_from_its_clients() {
    let mut store = two_kinds(1, Vec::new(), Some(2));
    let recent = |address: &str, kbps| {
        let at = |i: u64| noon().before(Duration::from_secs(60 * i));
        let one = |i| sample(address, at(i), Scale::RoundTrip, kbps);
        (0..10).map(one).collect::<Vec<_>>()
    };
    let slow = (20..30).map(|client| recent(&format!("192.0.3.{client}"), 250));
    let others = (4..10).map(|cloud| recent(&format!("192.0.{cloud}.7"), 1_000));
    let all: Vec<Sample> = slow.chain(others).flatten().collect();
    store.ingest(&all).expect("written");
    let found = predict(&store, "192.0.3.99", noon()).expect("known");
    let [half, _, _, median, ..] = found.rates();
    assert!(median < Rate::kbps(400), "{found:?}");
    assert!(half < Rate::kbps(300), "{found:?}");
    assert!(found.is_of_its_own(), "{found:?}");
    let other = predict(&store, "192.0.5.99", noon()).expect("known");
    assert!(other.rates()[MEDIAN] > Rate::kbps(700), "{other:?}");
}

/// One stream of 300 kb/s does not show that the path has no more.
#[test]
fn a_limited_stream_is_a_lower_bound() {
    let mut store = Store::in_memory();
    let limited = visits_of("192.0.2.7", 300).into_iter().map(|mut sample| {
        sample.measurement.is_limited = true;
        sample
    });
    let others = (1..9).flat_map(|cloud| visits_of(&format!("198.51.{cloud}.7"), 4_000));
    store
        .ingest(&limited.chain(others).collect::<Vec<_>>())
        .expect("written");
    let found = predict(&store, "192.0.2.7", noon()).expect("known");
    assert!(found.rates()[MEDIAN] > Rate::kbps(2_000), "{found:?}");
    assert!(found.rates()[0] >= Rate::kbps(290), "{found:?}");
    // A session starts from what was carried.
    let prior = found.prior().expect("a round-trip time");
    assert!(prior.rate < Rate::kbps(400), "{prior:?}");
}

#[test]
fn networks_of_a_cluster_share_what_they_see() {
    let mut store = two_kinds(1, Vec::new(), Some(2));
    // Without recent samples, the trajectory is the prediction.
    let found = predict(&store, "192.0.3.9", noon()).expect("known");
    let expected = log2(Rate::kbps(1_030));
    let median = found.expectation.quantiles[MEDIAN];
    assert!((median - expected).abs() < 0.1, "{found:?}");
    // An hour later the slow clouds are half as fast as usual; only others than the asked one have sessions.
    let one = noon().after(Duration::from_hours(1));
    let recent: Vec<Sample> = (0..200_u64)
        .map(|i| {
            let address = format!("192.0.{}.7", 4 + i % 5);
            let at = one.before(Duration::from_secs(5 * i));
            sample(&address, at, Scale::RoundTrip, 500 + 5 * (4 + i % 5))
        })
        .collect();
    store.ingest(&recent).expect("written");
    let found = predict(&store, "192.0.3.9", one).expect("known");
    let moved = found.expectation.quantiles[MEDIAN] - expected;
    assert!((-1.2..-0.5).contains(&moved), "{moved}: {found:?}");
    let fast = predict(&store, "192.0.15.9", one).expect("known");
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
                        found.expectation.quantiles[MEDIAN]
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
