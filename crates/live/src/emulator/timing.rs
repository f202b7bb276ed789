//! How late packets were written.

use std::time::Duration;

use tidegate_core::units::nanos;

/// A histogram of durations with buckets that are at most 1/32 wide.
#[derive(Debug)]
pub(super) struct Lateness {
    counts: Vec<u64>,
    total: u64,
    worst: Duration,
}

impl Lateness {
    pub(super) fn new() -> Self {
        Self {
            counts: vec![0; bucket(u64::MAX) + 1],
            total: 0,
            worst: Duration::ZERO,
        }
    }

    pub(super) fn add(&mut self, late: Duration) {
        self.counts[bucket(nanos(late))] += 1;
        self.total += 1;
        self.worst = self.worst.max(late);
    }

    pub(super) fn worst(&self) -> Duration {
        self.worst
    }

    /// What `percent` of 100 stay below, rounded up to the end of a bucket; zero if there is
    /// nothing.
    pub(super) fn percentile(&self, percent: u64) -> Duration {
        let rank = (self.total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        let end = found.map_or(0, bucket_end);
        Duration::from_nanos(end).min(self.worst)
    }
}

/// Below 64 every number has a bucket; above, each power of two has 32.
fn bucket(value: u64) -> usize {
    let shift = value.max(32).ilog2() - 5;
    (u64::from(shift) * 32 + (value >> shift)) as usize
}

/// The last value of a bucket.
fn bucket_end(bucket: usize) -> u64 {
    let shift = (bucket / 32).saturating_sub(1) as u32;
    let first = bucket as u64 - u64::from(shift) * 32;
    ((first + 1) << shift).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn buckets_are_narrow_and_in_order(value: u64) {
            let end = bucket_end(bucket(value));
            prop_assert!(end >= value && end - value <= value / 32);
            prop_assert!(end == u64::MAX || bucket(end + 1) == bucket(value) + 1);
        }
    }

    #[test]
    fn percentiles() {
        let mut lateness = Lateness::new();
        assert_eq!(lateness.percentile(99), Duration::ZERO);
        (1..=1_000).for_each(|us| lateness.add(Duration::from_micros(us)));
        let within = |percent, us: u64| {
            let got = lateness.percentile(percent);
            let exact = Duration::from_micros(us);
            got >= exact && got <= exact + exact / 32
        };
        assert!(within(50, 500) && within(99, 990));
        assert_eq!(lateness.percentile(100), Duration::from_millis(1));
        assert_eq!(lateness.worst(), Duration::from_millis(1));
    }
}
