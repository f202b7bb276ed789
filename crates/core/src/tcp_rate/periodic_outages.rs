//! When outages come again.

use core::time::Duration;

use crate::units::Time;

/// Two outages announce a third one, as long after the second as that came after the first:
/// antennas turn, satellites are handed over by the clock, drones fly in circles.
#[derive(Clone, Debug, Default)]
pub(super) struct PeriodicOutages {
    /// When the last outage began, and until when another one would belong to it.
    last: Option<(Time, Time)>,
    /// When another one is due, and how far off that may be.
    next: Option<(Time, Duration)>,
}

impl PeriodicOutages {
    /// An outage began at `onset`, give or take a `step`. One that begins before `repaired` is no other
    /// one: a time-out in the repair, with which the same trouble goes on.
    pub(super) fn beat(&mut self, onset: Time, step: Duration, repaired: Time) {
        if self.last.is_some_and(|(_, repaired)| onset < repaired) {
            return;
        }
        self.next = self.last.map(|(last, _)| {
            let period = onset.since(last);
            (onset + period, period / PRECISION + step)
        });
        self.last = Some((onset, repaired));
    }

    /// Whether an outage may come while what leaves now is on its way, which takes `flight`.
    pub(super) fn is_due(&self, now: Time, flight: Duration) -> bool {
        self.next
            .is_some_and(|(next, off)| now + flight + off >= next && now <= next + off)
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

    const STEP: Duration = Duration::from_millis(50);

    fn announced(onsets: &[u64], asked: [u64; 4]) -> [bool; 4] {
        let mut rhythm = PeriodicOutages::default();
        for onset in onsets {
            rhythm.beat(at(*onset), STEP, at(*onset + 3_000));
        }
        asked.map(|ms| rhythm.is_due(at(ms), FLIGHT))
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
    fn a_time_out_in_a_repair_is_no_other_outage() {
        assert_eq!(
            announced(
                &[10_000, 12_900, 26_000, 28_000, 20_000],
                [15_800, 30_000, 42_000, 58_000]
            ),
            [false, false, true, false]
        );
    }
}
