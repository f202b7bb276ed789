//! The series of a group of clouds from the samples of their sessions.
//!
//! A client may report anything, so the series limits what one client can do: each client has one value
//! per slot, limited to [`MAX_APART`] from the expected rate, and the value of a slot is the median
//! over the clients. With three or more clients in each slot, one client cannot move a value out of the
//! range of the others'.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::robust::median;
use crate::trajectory::log2;
use crate::wall_time::WallTime;

/// A sample with what is expected of its cloud.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupSample {
    /// Row number of the client.
    pub client: i64,
    /// End of its averaging interval.
    pub at: WallTime,
    /// Rate.
    pub rate: tidegate_core::units::Rate,
    /// By how many octaves the cloud of the client is faster than the group.
    pub offset: f64,
    /// Rate expected of the group at that time of the day, a base-two logarithm; `None` if the group has
    /// no trajectory.
    pub expected: Option<f64>,
}

/// Series of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupSeries {
    /// Value of each slot with samples, base-two logarithms of rates in b/s, the newest last.
    pub values: Vec<f64>,
    /// Number of samples.
    pub samples: usize,
    /// Number of clients.
    pub clients: usize,
    /// Least number of clients in a slot.
    pub fewest_clients: usize,
}

impl GroupSeries {
    /// From samples in any order.
    pub fn of(samples: impl IntoIterator<Item = GroupSample>) -> Self {
        let mut slots: BTreeMap<u64, BTreeMap<i64, (f64, u32)>> = BTreeMap::new();
        let mut clients = BTreeSet::new();
        let mut count = 0;
        for sample in samples {
            let slot = sample.at.as_millis() / (SLOT.as_millis() as u64);
            let value = log2(sample.rate) - sample.offset;
            let value = sample.expected.map_or(value, |expected| {
                value.clamp(expected - MAX_APART, expected + MAX_APART)
            });
            let sum = slots
                .entry(slot)
                .or_default()
                .entry(sample.client)
                .or_default();
            *sum = (sum.0 + value, sum.1 + 1);
            clients.insert(sample.client);
            count += 1;
        }
        let fewest = slots.values().map(BTreeMap::len).min().unwrap_or(0);
        let value = |slot: BTreeMap<i64, (f64, u32)>| {
            let means = slot.into_values().map(|(sum, n)| sum / f64::from(n));
            median(&mut means.collect::<Vec<_>>())
        };
        Self {
            values: slots.into_values().map(value).collect(),
            samples: count,
            clients: clients.len(),
            fewest_clients: fewest,
        }
    }
}

/// Length of a slot.
pub const SLOT: Duration = Duration::from_secs(10);

/// Maximum distance of a client's value from the expected rate: two octaves, a factor of four.
pub const MAX_APART: f64 = 2.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_core::units::Rate;

    use super::*;
    use crate::predict::{Method, forecast};

    fn sample(client: i64, slot: u64, kbps: u64) -> GroupSample {
        let at = WallTime::of_day(20_000).after(SLOT * slot as u32);
        GroupSample {
            client,
            at,
            rate: Rate::kbps(kbps),
            offset: 0.0,
            expected: Some(log2(Rate::kbps(2_000))),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The forecast with a client that reports anything, as often as it likes, stays within the
        /// range of the values of the others.
        #[test]
        fn one_client_cannot_leave_the_range_of_the_others(
            poison in prop::collection::vec((0_u64..40, 1_u64..1_000_000_000), 1..400),
        ) {
            let honest = (0..40).flat_map(|slot| {
                (0..4).map(move |client| sample(client, slot, 1_500 + 250 * client as u64))
            });
            let attack = poison.iter().map(|(slot, kbps)| sample(9, *slot, *kbps));
            let series = GroupSeries::of(honest.chain(attack));
            prop_assert!(series.fewest_clients >= 4);
            let (low, high) = (log2(Rate::kbps(1_500)), log2(Rate::kbps(2_250)));
            for method in Method::ALL {
                for quantile in forecast(method, &series.values).expect("a series").quantiles {
                    prop_assert!((low..=high).contains(&quantile), "{method:?}: {quantile}");
                }
            }
        }

        /// Alone, it stays within the limit around the trajectory, plus the spread of an unknown series.
        #[test]
        fn a_lone_client_stays_near_the_trajectory(kbps in prop::collection::vec(1_u64..1_000_000_000, 8..40)) {
            let samples = kbps.iter().zip(0..).map(|(kbps, slot)| sample(1, slot, *kbps));
            let series = GroupSeries::of(samples);
            let expected = log2(Rate::kbps(2_000));
            for quantile in forecast(Method::Mixture, &series.values).expect("a series").quantiles {
                prop_assert!((quantile - expected).abs() <= MAX_APART + 1e-9);
            }
        }
    }

    #[test]
    fn a_client_counts_once_per_slot() {
        let many = (0..100).map(|_| sample(1, 0, 8_000));
        let few = [
            sample(2, 0, 2_000),
            sample(3, 0, 2_000),
            sample(2, 1, 1_000),
        ];
        let series = GroupSeries::of(many.chain(few));
        assert_eq!((series.samples, series.clients), (103, 3));
        let expected = [2_000, 1_000].map(|kbps| log2(Rate::kbps(kbps)));
        assert_eq!(series.values, expected);
    }
}
