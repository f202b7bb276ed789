//! Extrema over a sliding window of time.

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

/// Largest value of a sliding window, in two halves: of the last one to two spans.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowMax {
    span: f64,
    began: f64,
    halves: [Option<f64>; 2],
}

impl WindowMax {
    /// A window of `span` to twice `span` seconds.
    pub(crate) fn new(span: f64) -> Self {
        Self {
            span,
            began: 0.0,
            halves: [None; 2],
        }
    }

    /// A value at `now` seconds.
    pub(crate) fn add(&mut self, now: f64, value: f64) {
        if now > self.began + self.span {
            self.halves = [None, self.halves[0]];
            self.began = now;
        }
        let largest = &mut self.halves[0];
        *largest = Some(largest.map_or(value, |most| most.max(value)));
    }

    /// The largest value.
    pub(crate) fn get(&self) -> Option<f64> {
        match self.halves {
            [Some(a), Some(b)] => Some(a.max(b)),
            [a, b] => a.or(b),
        }
    }
}

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
