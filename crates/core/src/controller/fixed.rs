//! Constant rate, for streams without rate control.

use core::time::Duration;

use super::{Configuration, Properties};
use crate::control::{
    Algorithm, Change, Context, Outcome, RateControl, RateController, Report, Start, Summary,
    Target,
};
use crate::path::Path;
use crate::units::{Bytes, Rate};

/// Configuration of a constant rate, as a baseline. In files the rate, as `"2Mb/s"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct FixedConfig {
    /// Rate on the wire, all headers included.
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "super::settings::positive_rate")
    )]
    pub rate: Rate,
}

impl Algorithm for FixedConfig {
    fn start(&self, start: &Start) -> RateControl {
        RateControl::new(Fixed::new(self.rate), start)
    }
}

impl Configuration for FixedConfig {
    const NAME: &'static str = "fixed";
    const ABOUT: &'static str = "constant rate, without rate control";
    const EXAMPLE: Option<&'static str> = Some("2Mb/s");

    fn properties(&self) -> Properties {
        Properties {
            fixed_rate: Some(self.rate),
            resumes: false,
            ..Properties::default()
        }
    }
}

/// Controller with a constant rate. Feedback is only counted.
#[derive(Clone, Debug)]
pub struct Fixed {
    rate: Rate,
    min_rtt: Option<Duration>,
    delivered: Bytes,
    lost: u64,
}

impl Fixed {
    /// Creates a controller with the constant rate `rate`, all headers included.
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            min_rtt: None,
            delivered: Bytes::ZERO,
            lost: 0,
        }
    }
}

impl From<Fixed> for RateControl {
    fn from(fixed: Fixed) -> Self {
        Self::without_estimates(fixed)
    }
}

impl RateController for Fixed {
    fn on_report(&mut self, _cx: &mut Context<'_>, report: &Report<'_>, _: &mut Path) {
        if let Some(rtt) = report.rtt {
            self.min_rtt = Some(self.min_rtt.map_or(rtt, |least| least.min(rtt)));
        }
        for fate in report.packets {
            match fate.outcome {
                Outcome::Lost => self.lost = self.lost.saturating_add(1),
                Outcome::Received { .. } => self.delivered += fate.size,
            }
        }
    }

    fn on_change(&mut self, _cx: &mut Context<'_>, change: &Change, _: &mut Path) {
        if let Change::Path { .. } = change {
            *self = Self::new(self.rate);
        }
    }

    fn target(&self) -> Target {
        Target::of(self.rate)
    }

    fn summary(&self, _: &Path) -> Summary {
        Summary {
            min_rtt: self.min_rtt,
            delivered: self.delivered,
            lost: self.lost,
            ..Summary::new(self.rate)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Ecn, FlowId, PacketOutcome};
    use crate::random::Seed;
    use crate::units::{RemoteTime, Time};

    #[test]
    fn losses_are_counted_without_a_rate_change() {
        let mut fixed = Fixed::new(Rate::kbps(700));
        let mut rng = Seed(1).stream("fixed");
        let mut cx = Context {
            now: Time::ZERO,
            rng: &mut rng,
            trace: &mut (),
        };
        let fate = |seq, outcome| PacketOutcome {
            flow: FlowId(0),
            seq,
            size: Bytes(1_000),
            sent: Time::ZERO,
            outcome,
        };
        let arrived = Outcome::Received {
            at: RemoteTime(7),
            ecn: Ecn::Ce,
        };
        let outcomes = [fate(0, Outcome::Lost), fate(1, arrived)];
        let path = &mut Path::unmeasured();
        let report = Report::new(&outcomes).rtt(Duration::from_millis(30));
        fixed.on_report(&mut cx, &report, path);
        assert_eq!(fixed.target(), Target::of(Rate::kbps(700)));
        let summary = fixed.summary(path);
        assert_eq!((summary.lost, summary.delivered), (1, Bytes(1_000)));
        assert_eq!(summary.min_rtt, Some(Duration::from_millis(30)));
    }
}
