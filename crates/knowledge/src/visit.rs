//! Visits: what a client got within five minutes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::robust::median;
use crate::wall_time::WallTime;

/// The rate of the sessions of one client within [`VISIT`]. However often a client reports, it has one
/// value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Visit {
    /// Number of the client.
    pub client: i64,
    /// Number of its cloud.
    pub cloud: i64,
    /// Begin of the five minutes.
    pub at: WallTime,
    /// Base-two logarithm of the rate in b/s: the median of the samples.
    pub value: f64,
    /// All samples were limited by the application, so that the path may carry more.
    pub is_bound: bool,
}

/// A sample for [`visits`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VisitSample {
    /// Number of the client.
    pub client: i64,
    /// Number of its cloud.
    pub cloud: i64,
    /// End of the averaging interval.
    pub at: WallTime,
    /// Base-two logarithm of the rate in b/s.
    pub value: f64,
    /// The application limited the rate.
    pub is_limited: bool,
}

/// The visits of these samples, in order of time. Of a visit with limited samples and others, only the
/// others count.
pub fn visits(samples: impl IntoIterator<Item = VisitSample>) -> Vec<Visit> {
    let mut groups: BTreeMap<(u64, i64), Group> = BTreeMap::new();
    for sample in samples {
        let bin = sample.at.as_millis() / VISIT.as_millis() as u64;
        let group = groups.entry((bin, sample.client)).or_default();
        group.cloud = sample.cloud;
        group.values[usize::from(sample.is_limited)].push(sample.value);
    }
    let visit = |((bin, client), group): ((u64, i64), Group)| {
        let [mut free, mut limited] = group.values;
        let is_bound = free.is_empty();
        Visit {
            client,
            cloud: group.cloud,
            at: WallTime::since_1970(Duration::from_millis(bin * VISIT.as_millis() as u64)),
            value: median(if is_bound { &mut limited } else { &mut free }),
            is_bound,
        }
    };
    groups.into_iter().map(visit).collect()
}

#[derive(Default)]
struct Group {
    cloud: i64,
    /// Of free and of limited samples.
    values: [Vec<f64>; 2],
}

/// Length of a visit: a bin of a trajectory.
pub const VISIT: Duration = Duration::from_mins(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_counts_once_in_five_minutes() {
        let sample = |client, second, value, is_limited| VisitSample {
            client,
            cloud: 1,
            at: WallTime::of_day(20_000).after(Duration::from_secs(second)),
            value,
            is_limited,
        };
        let all = visits([
            sample(1, 10, 20.0, false),
            sample(1, 20, 21.0, false),
            sample(1, 30, 30.0, false),
            sample(1, 40, 10.0, true),
            sample(2, 50, 18.0, true),
            sample(1, 299, 21.0, false),
            sample(1, 300, 22.0, false),
        ]);
        let found: Vec<_> = all
            .iter()
            .map(|v| (v.client, v.value, v.is_bound))
            .collect();
        assert_eq!(found, [(1, 21.0, false), (2, 18.0, true), (1, 22.0, false)]);
    }
}
