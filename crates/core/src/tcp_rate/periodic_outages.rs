//! Predicts periodic outages.

use core::time::Duration;

use crate::units::Time;

/// Predicts the next outage from the interval between the last two. Rotating antennas, scheduled
/// satellite handovers and drones on circular paths cause periodic outages.
#[derive(Clone, Debug, Default)]
pub(super) struct PeriodicOutages {
    /// Start of the last outage, and the time until which another one counts as part of it.
    last: Option<(Time, Time)>,
    /// Predicted start of the next outage, and the tolerance.
    next: Option<(Time, Duration)>,
}

impl PeriodicOutages {
    /// Records an outage that began at `onset`, within ± `step`. An outage that begins before
    /// `repaired` of the last one is a timeout during its loss recovery and is ignored.
    pub(super) fn on_outage(&mut self, onset: Time, step: Duration, repaired: Time) {
        if self.last.is_some_and(|(_, repaired)| onset < repaired) {
            return;
        }
        self.next = self.last.map(|(last, _)| {
            let period = onset.since(last);
            (onset + period, period / PRECISION + step)
        });
        self.last = Some((onset, repaired));
    }

    /// Whether an outage may begin while a packet sent now is in flight, which takes `flight`.
    pub(super) fn is_due(&self, now: Time, flight: Duration) -> bool {
        self.next
            .is_some_and(|(next, off)| now + flight + off >= next && now <= next + off)
    }
}

/// Tolerance of the prediction, as a divisor of the period.
const PRECISION: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    const FLIGHT: Duration = Duration::from_millis(100);

    const STEP: Duration = Duration::from_millis(50);

    fn predicted(onsets: &[u64], asked: [u64; 4]) -> [bool; 4] {
        let mut rhythm = PeriodicOutages::default();
        for onset in onsets {
            rhythm.on_outage(at(*onset), STEP, at(*onset + 3_000));
        }
        asked.map(|ms| rhythm.is_due(at(ms), FLIGHT))
    }

    #[test]
    fn two_outages_predict_a_third() {
        assert_eq!(
            predicted(&[10_000], [10_000, 15_000, 20_000, 30_000]),
            [false; 4]
        );
        // At 42 s ± 300 ms: a 64th of the 16 s, and a frame.
        assert_eq!(
            predicted(&[10_000, 26_000], [41_599, 41_600, 42_300, 42_301]),
            [false, true, true, false]
        );
        // The third outage is a little late.
        assert_eq!(
            predicted(&[10_000, 26_000, 42_200], [41_900, 58_200, 58_400, 74_400]),
            [false, true, true, false]
        );
    }

    #[test]
    fn prediction_uses_the_last_two_outages() {
        assert_eq!(
            predicted(&[10_000, 26_000, 30_000], [34_000, 42_000, 46_000, 50_000]),
            [true, false, false, false]
        );
    }

    #[test]
    fn timeout_in_loss_recovery_is_not_another_outage() {
        assert_eq!(
            predicted(
                &[10_000, 12_900, 26_000, 28_000, 20_000],
                [15_800, 30_000, 42_000, 58_000]
            ),
            [false, false, true, false]
        );
    }
}
