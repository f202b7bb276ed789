//! `CLOCK_MONOTONIC` as the core's [`Time`].

use std::time::Duration;

use tidegate_core::units::{Time, nanos};

/// `CLOCK_MONOTONIC`, counted from an origin.
///
/// A copy has the same origin, so times of all endpoints with copies are comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Nanoseconds of `CLOCK_MONOTONIC` at time zero.
    origin: u64,
}

impl Clock {
    /// Starts a clock at zero.
    pub fn start() -> Self {
        Self {
            origin: monotonic_nanos(),
        }
    }

    /// The current time.
    pub fn now(self) -> Time {
        Time::from_nanos(monotonic_nanos().saturating_sub(self.origin))
    }

    /// Duration from now to `at`; zero if `at` is in the past.
    pub fn until(self, at: Time) -> Duration {
        at.since(self.now())
    }

    /// `at` as a time of `CLOCK_MONOTONIC`, for absolute timers.
    pub fn to_monotonic(self, at: Time) -> Duration {
        Duration::from_nanos(at.as_nanos().saturating_add(self.origin))
    }

    /// Converts a time of `CLOCK_MONOTONIC`; times before the origin become zero.
    pub fn from_monotonic(self, since_boot: Duration) -> Time {
        Time::from_nanos(nanos(since_boot).saturating_sub(self.origin))
    }
}

fn monotonic_nanos() -> u64 {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `ts` is a valid place for the answer. The call fails for unknown clocks only, and
    // this one exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_at_zero_and_converts_both_ways() {
        let clock = Clock::start();
        let now = clock.now();
        // One minute: the host may suspend a test machine for seconds.
        assert!(now < Time::from_secs(60) && clock.now() >= now);
        assert_eq!(clock.from_monotonic(clock.to_monotonic(now)), now);
        assert_eq!(clock.from_monotonic(Duration::ZERO), Time::ZERO);
        assert_eq!(clock.until(now), Duration::ZERO);
    }
}
