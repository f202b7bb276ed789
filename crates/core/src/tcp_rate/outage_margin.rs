//! Delay and rate margins that let a video survive an outage.

use core::time::Duration;

use super::TcpRateConfig;
use crate::delay_bound::ServiceCurve;
use crate::units::Rate;

/// An outage, and the state of the video at its start.
///
/// Frames in flight at the start, and frames written before the outage is detected, can be neither
/// dropped nor reduced any more. The margins are such that all of these frames arrive in time.
pub(super) struct OutageMargin<'a> {
    pub(super) config: &'a TcpRateConfig,
    /// Time from the last acknowledgement before the outage to the first one after it.
    pub(super) silence: Duration,
    pub(super) round_trip: Duration,
    /// Video rate, limited by encoder and path.
    pub(super) rate: Rate,
    /// Forecast of the connection from the end of the silence.
    pub(super) restart: &'a ServiceCurve,
}

impl OutageMargin<'_> {
    /// Maximum delay of the video at the start of the outage. If the silence alone exceeds the
    /// bound, the result is the whole bound, because no reserve would help.
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

    /// Maximum rate of the video at the start of the outage, without any delay. The result is the
    /// ceiling if the present rate is low enough. It is the floor if no rate is low enough, which
    /// saves frames that are small by chance and later frames. `None` if the silence alone exceeds
    /// the bound.
    pub(super) fn safe_rate(&self) -> Option<Rate> {
        self.left()?;
        let c = self.config;
        let most = Rate::from_f64(self.passes(Duration::ZERO) * c.margin);
        // The present capacity does not limit the rate at the next outage.
        Some(if most >= self.rate {
            c.ceiling
        } else {
            most.max(c.floor)
        })
    }

    /// Part of the bound that is left after the silence; `None` if there is none.
    fn left(&self) -> Option<Duration> {
        let budget = self.config.bound.checked_sub(self.round_trip / 2)?;
        budget
            .checked_sub(self.silence)
            .filter(|left| !left.is_zero())
    }

    /// Highest rate in b/s at which all frames are in time, if the video is late by `late` at the
    /// start of the outage.
    fn passes(&self, late: Duration) -> f64 {
        let interval = self.config.interval.max(Duration::from_millis(1));
        let undetected = late + self.round_trip + interval;
        let frames = undetected.as_nanos().div_ceil(interval.as_nanos()) as u32;
        let left = self.left().unwrap_or_default();
        let sizes = (0..frames).map(|n| {
            let left = (left + interval * n).saturating_sub(late);
            self.restart.at(left) / f64::from(n + 1)
        });
        sizes.fold(f64::INFINITY, f64::min) / interval.as_secs_f64()
    }
}

/// Resolution of the tolerable delay, as a divisor of the rest of the bound.
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

    /// Margins on a path of 2 Mb/s and 166 ms. The window restarts at two segments and grows by one
    /// per round trip.
    fn margin<T>(bound: f64, silence: f64, ask: impl Fn(OutageMargin<'_>) -> T) -> T {
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
    fn safe_rate_decreases_with_the_length_of_the_outage() {
        // Three frames are in flight. In 0.717, 0.817 and 0.917 s the connection carries 210, 256
        // and 307 kb: 210, 128 and 102 for each of one, two and three; nine tenths of that.
        let safe_rate = margin(4.0, 3.2, |it| it.safe_rate()).expect("smaller frames");
        assert!((safe_rate.as_f64() - 922e3).abs() < 10e3, "{safe_rate}");
        // With less time left the frames have to be smaller, down to the floor.
        let less = margin(4.0, 3.4, |it| it.safe_rate()).expect("a rate");
        assert!(less > Rate::kbps(150) && less < safe_rate, "{less}");
        assert_eq!(
            margin(4.0, 3.85, |it| it.safe_rate()),
            Some(Rate::kbps(150))
        );
        // An outage longer than the bound, and one so short that frames of any size are in time.
        assert_eq!(margin(2.0, 3.2, |it| it.safe_rate()), None);
        assert_eq!(
            margin(6.0, 3.2, |it| it.safe_rate()),
            Some(Rate::kbps(2_000))
        );
    }

    #[test]
    fn present_capacity_does_not_limit_the_safe_rate() {
        let safe_rate = on_a_path_of(Rate::kbps(300), 4.0, 2.5, |it| it.safe_rate());
        assert_eq!(safe_rate, Some(Rate::kbps(2_000)));
    }

    #[test]
    fn no_delay_is_tolerable_if_the_rate_has_to_be_reduced() {
        assert_eq!(margin(4.0, 3.2, |it| it.tolerable_delay()), Duration::ZERO);
        assert!(margin(6.0, 3.2, |it| it.tolerable_delay()) > Duration::ZERO);
        assert_eq!(margin(2.0, 3.2, |it| it.tolerable_delay()), secs(2.0));
    }
}
