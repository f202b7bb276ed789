//! Gaps of a received stream, as while its camera reboots.

use std::time::Duration;

use tidegate_core::units::Time;

/// Times without whole frames. A sender whose source stalls repeats the last picture once a second, so
/// that consecutive pauses are one gap.
#[derive(Debug)]
pub(super) struct Gaps {
    /// Pauses from this length on are gaps.
    least: Duration,
    last: Option<Time>,
    /// Length of the present gap; zero outside of one.
    open: Duration,
    count: u64,
    total: Duration,
}

impl Gaps {
    /// Of a stream with this time between two frames.
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            least: SHORTEST.max(interval * 3),
            last: None,
            open: Duration::ZERO,
            count: 0,
            total: Duration::ZERO,
        }
    }

    /// A whole frame has arrived.
    pub(super) fn on_frame(&mut self, at: Time) {
        let pause = self.last.map_or(Duration::ZERO, |last| at.since(last));
        self.last = self.last.max(Some(at));
        if pause < self.least {
            self.open = Duration::ZERO;
            return;
        }
        self.count += u64::from(self.open.is_zero());
        self.open += pause;
        self.total += pause;
    }

    /// For the final message; empty without a gap.
    pub(super) fn text(&self) -> String {
        let total = self.total.as_secs_f64();
        match self.count {
            0 => String::new(),
            1 => format!(", with a gap of {total:.1} s"),
            many => format!(", with {many} gaps of {total:.1} s in all"),
        }
    }
}

/// Less than the second after which a sender repeats a picture.
const SHORTEST: Duration = Duration::from_millis(800);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_repeated_pictures_are_one_gap() {
        let text = |interval: u64, times: &[u64]| {
            let mut gaps = Gaps::new(Duration::from_millis(interval));
            let times = times.iter().map(|ms| Time::from_millis(*ms));
            times.for_each(|at| gaps.on_frame(at));
            gaps.text()
        };
        assert_eq!(text(33, &[0, 33, 66, 800]), "");
        let stalled = [0, 33, 1_033, 2_033, 3_033, 3_066];
        assert_eq!(text(33, &stalled), ", with a gap of 3.0 s");
        let twice = [0, 1_000, 1_033, 1_066, 3_066];
        assert_eq!(text(33, &twice), ", with 2 gaps of 3.0 s in all");
        // A stream of one picture a second.
        assert_eq!(text(1_000, &[0, 1_000, 2_000, 4_900]), "");
    }
}
