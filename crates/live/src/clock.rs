//! Clock of this host, with the [`Time`] of the core.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidegate_core::units::{Time, nanos};

/// `CLOCK_MONOTONIC`, relative to an origin.
///
/// A copy has the same origin, so the times of all copies in a run are comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// `CLOCK_MONOTONIC` at time zero, in ns.
    origin: u64,
}

impl Clock {
    /// Creates a clock whose zero is now.
    pub fn start() -> Self {
        Self {
            origin: monotonic_nanos(),
        }
    }

    /// Current time.
    pub fn now(self) -> Time {
        Time::from_nanos(monotonic_nanos().saturating_sub(self.origin))
    }

    /// Time from now to `at`; zero if `at` is past.
    pub fn until(self, at: Time) -> Duration {
        at.since(self.now())
    }

    /// Converts `at` to `CLOCK_MONOTONIC`, for absolute timers.
    pub fn to_monotonic(self, at: Time) -> Duration {
        Duration::from_nanos(at.as_nanos().saturating_add(self.origin))
    }

    /// Converts a time of `CLOCK_MONOTONIC`. Times before the origin become zero.
    pub fn from_monotonic(self, since_boot: Duration) -> Time {
        Time::from_nanos(nanos(since_boot).saturating_sub(self.origin))
    }
}

fn monotonic_nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_starts_at_zero_and_converts_both_ways() {
        let before = monotonic_nanos();
        let clock = Clock::start();
        assert!((before..=monotonic_nanos()).contains(&clock.origin));
        let now = clock.now();
        assert!(clock.now() >= now);
        assert_eq!(clock.from_monotonic(clock.to_monotonic(now)), now);
        assert_eq!(clock.from_monotonic(Duration::ZERO), Time::ZERO);
        assert_eq!(clock.until(now), Duration::ZERO);
    }
}
