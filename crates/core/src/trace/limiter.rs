//! Limit of records whose number a stranger decides.

use crate::units::Time;

/// Passes at most [`PER_SECOND`] records in each second of the clock and counts the rest, so that
/// packets of strangers fill neither a disk nor a terminal.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordLimiter {
    /// Second of the clock, and the records passed in it.
    second: u64,
    passed: u32,
    omitted: u64,
}

impl RecordLimiter {
    /// Whether to keep a record of the time `at`. If so, returns the number of records that were
    /// omitted since the last one that was kept.
    pub fn admit(&mut self, at: Time) -> Option<u64> {
        let second = at.as_nanos() / 1_000_000_000;
        if second != self.second {
            (self.second, self.passed) = (second, 0);
        }
        if self.passed == PER_SECOND {
            self.omitted += 1;
            return None;
        }
        self.passed += 1;
        Some(self.take_omitted())
    }

    /// Takes the number of records that were omitted since the last one that was kept.
    pub fn take_omitted(&mut self) -> u64 {
        core::mem::take(&mut self.omitted)
    }
}

/// Records per second: enough to see that and how an attack goes on.
pub const PER_SECOND: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_leaves_a_few_records_and_their_number() {
        let mut limiter = RecordLimiter::default();
        let (mut kept, mut omitted) = (0, 0);
        // 100,000 records in ten seconds.
        for record in 0..100_000_u64 {
            if let Some(before) = limiter.admit(Time::from_nanos(record * 100_000)) {
                kept += 1;
                omitted += before;
            }
        }
        omitted += limiter.take_omitted();
        assert_eq!((kept, omitted), (40, 99_960));
        assert_eq!(limiter.take_omitted(), 0);
    }

    #[test]
    fn occasional_records_are_all_kept() {
        let mut limiter = RecordLimiter::default();
        for record in 0..100 {
            assert_eq!(limiter.admit(Time::from_millis(record * 300)), Some(0));
        }
    }
}
