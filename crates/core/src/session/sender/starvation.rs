//! A rate too low for any frame, although the path is free.

use core::time::Duration;

use crate::units::Time;

/// A rate may be the result of an outage or of forged packets, and then no frame is in time at it: only
/// probes leave, which are too few for the rate to recover. If they arrive without loss and queue, the
/// sender forgets the path and begins again, each time after a longer pause.
#[derive(Clone, Copy, Debug)]
pub(super) struct Starvation {
    /// Last beginning, and the shortest time from it to the next one.
    last: Option<Time>,
    pause: Duration,
}

impl Starvation {
    /// Whether the sender begins again now, after so many consecutive frames that were probes.
    pub(super) fn ends(&mut self, now: Time, probes: u32) -> bool {
        let since = self.last.map_or(Duration::MAX, |last| now.since(last));
        if probes < PROBES || since < self.pause {
            return false;
        }
        self.pause = if since < self.pause * 4 {
            (self.pause * 2).min(LONGEST)
        } else {
            SHORTEST
        };
        self.last = Some(now);
        true
    }
}

impl Default for Starvation {
    fn default() -> Self {
        Self {
            last: None,
            pause: SHORTEST,
        }
    }
}

/// Two frames, each half a second and a round trip after the packet before.
const PROBES: u32 = 2;
/// A path on which the rate is as low again soon does not carry the stream.
const SHORTEST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_grows_while_the_rate_falls_again() {
        let mut starvation = Starvation::default();
        assert!(!starvation.ends(Time::from_secs(1), 1));
        let begins: Vec<_> = (1..300)
            .filter(|&second| starvation.ends(Time::from_secs(second), 2))
            .collect();
        assert_eq!(begins, [1, 3, 7, 15, 31, 63, 123, 183, 243]);
        // Three minutes at a usual rate.
        assert!(starvation.ends(Time::from_secs(500), 2));
        assert!(!starvation.ends(Time::from_secs(501), 2));
        assert!(starvation.ends(Time::from_secs(502), 2));
    }
}
