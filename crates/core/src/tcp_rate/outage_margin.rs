//! Delay and rate margins that let a video survive an outage.

use core::time::Duration;

use super::TcpRateConfig;
use crate::delay_bound::ServiceCurve;
use crate::units::Rate;

/// An outage, and the video that it comes upon. What is in flight when it begins, or is written before
/// it is noticed, can be neither dropped nor made smaller any more; all of that should be in time.
pub(super) struct OutageMargin<'a> {
    pub(super) config: &'a TcpRateConfig,
    /// From the last acknowledgement before the outage to the first one after it.
    pub(super) silence: Duration,
    pub(super) round_trip: Duration,
    /// Video rate, limited by encoder and path.
    pub(super) rate: Rate,
    /// Forecast of the connection from the end of the silence.
    pub(super) restart: &'a ServiceCurve,
}

impl OutageMargin<'_> {
    /// By how much the video may be late when the outage begins. The whole bound if the silence alone
    /// breaks it: then nothing that is held in reserve would help.
    pub(super) fn tolerable_delay(&self) -> Duration {
        let Some(left) = self.left() else {
            return self.config.bound;
        };
        let rate = self.rate.as_f64();
        let steps = (0..=STEPS).map(|n| left * n / STEPS);
        steps
            .take_while(|late| self.passes(*late) >= rate)
            .last()
            .unwrap_or_default()
    }

    /// The rate that the video may have when the outage begins, if it is not late at all by then: the
    /// ceiling where its full rate is little enough, and the floor where nothing is, which saves what
    /// is small by chance and what comes behind. None if the silence alone breaks the bound.
    pub(super) fn safe_rate(&self) -> Option<Rate> {
        self.left()?;
        let c = self.config;
        let most = Rate::from_f64(self.passes(Duration::ZERO) * c.margin);
        // What the path carries now says nothing of what it carries when the next one comes.
        Some(if most >= self.rate {
            c.ceiling
        } else {
            most.max(c.floor)
        })
    }

    /// Of the bound, behind the silence; none if that alone breaks it.
    fn left(&self) -> Option<Duration> {
        let budget = self.config.bound.checked_sub(self.round_trip / 2)?;
        budget
            .checked_sub(self.silence)
            .filter(|left| !left.is_zero())
    }

    /// The largest rate at which all is in time, in b/s, if the video is late by `late` when the
    /// outage begins.
    fn passes(&self, late: Duration) -> f64 {
        let interval = self.config.interval.max(Duration::from_millis(1));
        let unnoticed = late + self.round_trip + interval;
        let frames = unnoticed.as_nanos().div_ceil(interval.as_nanos()) as u32;
        let left = self.left().unwrap_or_default();
        let sizes = (0..frames).map(|n| {
            let left = (left + interval * n).saturating_sub(late);
            self.restart.at(left) / f64::from(n + 1)
        });
        sizes.fold(f64::INFINITY, f64::min) / interval.as_secs_f64()
    }
}

/// What may be owed is found to a 256th of what is left of the bound.
const STEPS: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delay_bound::TcpPath;
    use crate::tcp_rate::{Mode, tests};
    use crate::units::Bytes;

    fn secs(n: f64) -> Duration {
        Duration::from_secs_f64(n)
    }

    /// Of a path of 166 ms, whose window starts again at two segments and grows by one per round trip.
    fn ordeal<T>(bound: f64, silence: f64, ask: impl Fn(OutageMargin<'_>) -> T) -> T {
        on_a_path_of(Rate::kbps(2_000), bound, silence, ask)
    }

    fn on_a_path_of<T>(
        rate: Rate,
        bound: f64,
        silence: f64,
        ask: impl Fn(OutageMargin<'_>) -> T,
    ) -> T {
        let config = TcpRateConfig {
            bound: secs(bound),
            ..tests::config(Mode::Classic)
        };
        let path = TcpPath {
            mss: Bytes(1_460),
            rtt: secs(0.166),
            limit: Some(rate),
        };
        ask(OutageMargin {
            config: &config,
            silence: secs(silence),
            round_trip: path.rtt,
            rate,
            restart: &path.reno_from(Bytes(2_920), Bytes(2_920)),
        })
    }

    #[test]
    fn small_frames_endure_what_large_ones_do_not() {
        // Three frames are out. In 0.717, 0.817 and 0.917 s the connection carries 210, 256 and 307
        // kb: 210, 128 and 102 for each of one, two and three; nine tenths of that.
        let safe_rate = ordeal(4.0, 3.2, |it| it.safe_rate()).expect("smaller frames");
        assert!((safe_rate.as_f64() - 922e3).abs() < 10e3, "{safe_rate}");
        // The less is left, the smaller they have to be, down to the floor.
        let less = ordeal(4.0, 3.4, |it| it.safe_rate()).expect("a rate");
        assert!(less > Rate::kbps(150) && less < safe_rate, "{less}");
        assert_eq!(
            ordeal(4.0, 3.85, |it| it.safe_rate()),
            Some(Rate::kbps(150))
        );
        // Silent for longer than the bound, or so short that frames of any size are in time.
        assert_eq!(ordeal(2.0, 3.2, |it| it.safe_rate()), None);
        assert_eq!(
            ordeal(6.0, 3.2, |it| it.safe_rate()),
            Some(Rate::kbps(2_000))
        );
    }

    #[test]
    fn a_path_that_is_narrow_now_limits_nothing_later() {
        let safe_rate = on_a_path_of(Rate::kbps(300), 4.0, 2.5, |it| it.safe_rate());
        assert_eq!(safe_rate, Some(Rate::kbps(2_000)));
    }

    #[test]
    fn a_video_that_has_to_be_smaller_must_not_be_late() {
        assert_eq!(ordeal(4.0, 3.2, |it| it.tolerable_delay()), Duration::ZERO);
        assert!(ordeal(6.0, 3.2, |it| it.tolerable_delay()) > Duration::ZERO);
        assert_eq!(ordeal(2.0, 3.2, |it| it.tolerable_delay()), secs(2.0));
    }
}
