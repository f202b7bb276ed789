//! Simulated moments as the `Instant`s that libraries want.

use core::time::Duration;
use std::sync::LazyLock;
use std::time::Instant;

use tidegate_core::units::Time;

/// From moments of a world to those of a library and back.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    zero: Instant,
}

impl Clock {
    /// The clock of a run.
    pub fn run() -> Self {
        Self::ahead(Time::ZERO, Duration::ZERO)
    }

    /// The clock of a world of its own that begins `lead` before `start` of the run; `lead` is at
    /// most 10 s.
    pub fn ahead(start: Time, lead: Duration) -> Self {
        let start = LEAD + start.since(Time::ZERO);
        Self {
            zero: *EPOCH + start.saturating_sub(lead),
        }
    }

    /// The `Instant` of a simulated moment.
    pub fn instant(self, time: Time) -> Instant {
        self.zero + Duration::from_nanos(time.as_nanos())
    }

    /// The simulated moment of an `Instant`, zero for those before.
    pub fn time(self, instant: Instant) -> Time {
        Time::ZERO + instant.saturating_duration_since(self.zero)
    }
}

/// An `Instant` can only be had from a clock; of no import, as libraries look at differences.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
/// What may lie before the start of a run.
const LEAD: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_survive_the_way_there_and_back() {
        let clock = Clock::run();
        for moment in [Time::ZERO, Time::from_nanos(1), Time::from_secs(86_400)] {
            assert_eq!(clock.time(clock.instant(moment)), moment);
        }
    }

    #[test]
    fn what_is_before_a_run_joins_it() {
        let before = Clock::ahead(Time::from_secs(1), Duration::from_secs(2));
        let meets = before.instant(Time::from_secs(2));
        assert_eq!(Clock::run().time(meets), Time::from_secs(1));
        assert_eq!(Clock::run().time(before.instant(Time::ZERO)), Time::ZERO);
    }
}
