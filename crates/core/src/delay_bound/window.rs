//! Minimum over a sliding window of time.

use core::time::Duration;

use crate::units::{Time, nanos};

/// Minimum of the values of the last five to six time buckets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowMin {
    bucket: u64,
    /// Number of the bucket and its minimum.
    minima: [(u64, i64); BUCKETS],
}

impl WindowMin {
    /// Six buckets of this length.
    pub(crate) fn new(bucket: Duration) -> Self {
        Self {
            bucket: nanos(bucket).max(1),
            minima: [(0, i64::MAX); BUCKETS],
        }
    }

    /// Adds a value observed at `now`.
    pub(crate) fn insert(&mut self, now: Time, value: i64) {
        let number = now.as_nanos() / self.bucket;
        for slot in &mut self.minima {
            if slot.0 + BUCKETS as u64 <= number {
                *slot = (number, i64::MAX);
            }
        }
        let slot = &mut self.minima[(number % BUCKETS as u64) as usize];
        let kept = if slot.0 == number { slot.1 } else { i64::MAX };
        *slot = (number, kept.min(value));
    }

    /// Minimum of the most recent buckets that have values; `None` before the first value.
    pub(crate) fn min(&self) -> Option<i64> {
        let low = self.minima.iter().map(|(_, v)| *v).min()?;
        (low < i64::MAX).then_some(low)
    }

    /// Difference between this window's minimum and that of a longer window; `None` if there was no
    /// value in the last buckets before `now`.
    pub(crate) fn above(&self, longer: &Self, now: Time) -> Option<u64> {
        let oldest = (now.as_nanos() / self.bucket).saturating_sub(BUCKETS as u64 - 1);
        let fresh = self.minima.iter().filter(|(n, _)| *n >= oldest);
        let low = fresh.map(|(_, v)| *v).min().filter(|v| *v < i64::MAX)?;
        Some(low.saturating_sub(longer.min()?).max(0) as u64)
    }
}

const BUCKETS: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn values_older_than_the_window_are_dropped() {
        let mut w = WindowMin::new(ms(10));
        w.insert(Time::from_millis(1), 5);
        w.insert(Time::from_millis(30), 8);
        assert_eq!(w.min(), Some(5));
        w.insert(Time::from_millis(61), 9);
        assert_eq!(w.min(), Some(8));
        w.insert(Time::from_millis(500), 11);
        assert_eq!(w.min(), Some(11));
    }
}
