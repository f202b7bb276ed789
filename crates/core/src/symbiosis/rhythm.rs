//! When outages come again.

use core::time::Duration;

use crate::units::{Rate, Time};

/// Two outages announce a third one, as long after the second as that came after the first:
/// antennas turn, satellites are handed over by the clock, drones fly in circles.
///
/// Frames that are to survive an outage have to be small before anybody can know of it. That is
/// worth its bits only about the moment at which one is expected, and so little is lost if it does
/// not come.
#[derive(Clone, Debug, Default)]
pub(super) struct Rhythm {
    /// When the last outage began.
    last: Option<Time>,
    /// When another one is expected, and how far off that may be.
    next: Option<(Time, Duration)>,
    /// Frames of this rate survive one like the last, and larger ones do not.
    endures: Option<Rate>,
}

impl Rhythm {
    /// An outage began at `onset`, give or take a `step`. Frames of a rate of `endures` that leave just
    /// before such a one are in time; none if there is no such rate, or no need of one.
    pub(super) fn beat(&mut self, onset: Time, step: Duration, endures: Option<Rate>) {
        self.next = self.last.map(|last| {
            let period = onset.since(last);
            (onset + period, period / PRECISION + step)
        });
        self.last = Some(onset);
        self.endures = endures;
    }

    /// What frames that leave now are to be made at, if an outage is so close that it may come while
    /// they are on their way, which takes `flight`.
    pub(super) fn limit(&self, now: Time, flight: Duration) -> Option<Rate> {
        let (next, off) = self.next?;
        let is_close = now + flight + off >= next && now <= next + off;
        self.endures.filter(|_| is_close)
    }
}

/// An outage comes within this part of the time between the last two, sooner or later.
const PRECISION: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    const FLIGHT: Duration = Duration::from_millis(100);
    const SMALL: Option<Rate> = Some(Rate::kbps(500));

    const STEP: Duration = Duration::from_millis(50);

    fn announced(onsets: &[u64], asked: [u64; 4]) -> [bool; 4] {
        let mut rhythm = Rhythm::default();
        for onset in onsets {
            rhythm.beat(at(*onset), STEP, SMALL);
        }
        asked.map(|ms| rhythm.limit(at(ms), FLIGHT) == SMALL)
    }

    #[test]
    fn two_outages_announce_a_third() {
        assert_eq!(
            announced(&[10_000], [10_000, 15_000, 20_000, 30_000]),
            [false; 4]
        );
        // At 42 s, 300 ms sooner or later: a 64th of the sixteen seconds, and a frame.
        assert_eq!(
            announced(&[10_000, 26_000], [41_599, 41_600, 42_300, 42_301]),
            [false, true, true, false]
        );
        // It came a little later.
        assert_eq!(
            announced(&[10_000, 26_000, 42_200], [41_900, 58_200, 58_400, 74_400]),
            [false, true, true, false]
        );
    }

    #[test]
    fn the_last_two_count() {
        assert_eq!(
            announced(&[10_000, 26_000, 30_000], [34_000, 42_000, 46_000, 50_000]),
            [true, false, false, false]
        );
    }

    #[test]
    fn the_last_outage_says_how_large_frames_may_be() {
        let mut rhythm = Rhythm::default();
        rhythm.beat(at(10_000), STEP, SMALL);
        rhythm.beat(at(26_000), STEP, None);
        assert_eq!(rhythm.limit(at(42_000), FLIGHT), None);
    }
}
