//! Tide where reports are frequent, and TFRC where they are not.
//!
//! Tide needs the outcome of each packet, several times per second. Receivers that send only the
//! reports of RFC 3550 count packets, every few seconds; the throughput equation (RFC 5348) needs no
//! more.

use core::time::Duration;

use super::Tide;
use super::config::TideConfig;
use crate::control::{
    Algorithm, Change, Context, Demand, PathState, RateController, Report, Sent, Start, Summary,
    Target, TimerReason,
};
use crate::controller::tfrc::TfrcConfig;
use crate::units::{Bytes, Time};

impl Algorithm for TideConfig {
    fn start(&self, start: &Start) -> Box<dyn RateController> {
        Box::new(ByReports {
            config: self.clone(),
            packet_size: start.packet_size,
            demand: start.demand,
            rtt: None,
            controller: Law::Tide(Box::new(Tide::new(self, start))),
        })
    }
}

/// The controller for the present interval of reports.
#[derive(Debug)]
struct ByReports {
    config: TideConfig,
    packet_size: Bytes,
    demand: Demand,
    /// Last sample of the round-trip time: with sparse reports, the next one is seconds away.
    rtt: Option<Duration>,
    controller: Law,
}

#[derive(Debug)]
enum Law {
    Tide(Box<Tide>),
    Equation(Box<dyn RateController>),
}

impl ByReports {
    fn controller(&self) -> &dyn RateController {
        match &self.controller {
            Law::Tide(tide) => tide.as_ref(),
            Law::Equation(tfrc) => tfrc.as_ref(),
        }
    }

    fn controller_mut(&mut self) -> &mut dyn RateController {
        match &mut self.controller {
            Law::Tide(tide) => tide.as_mut(),
            Law::Equation(tfrc) => tfrc.as_mut(),
        }
    }

    /// Selects the controller for reports that are at most `interval` apart. It starts again, so an
    /// interval between the two limits changes nothing.
    fn select(&mut self, cx: &mut Context<'_>, interval: Duration) {
        let start = Start::new(cx.now, self.packet_size, self.demand);
        match self.controller {
            Law::Tide(_) if interval > SPARSE => {
                self.controller = Law::Equation(TfrcConfig::default().start(&start));
            }
            Law::Equation(_) if interval <= FREQUENT => {
                self.controller = Law::Tide(Box::new(Tide::new(&self.config, &start)));
            }
            _ => return,
        }
        if let Some(rtt) = self.rtt {
            self.controller_mut()
                .on_report(cx, &Report::default().rtt(rtt));
        }
    }
}

impl RateController for ByReports {
    fn on_sent(&mut self, cx: &mut Context<'_>, packet: &Sent) {
        self.controller_mut().on_sent(cx, packet);
    }

    fn on_report(&mut self, cx: &mut Context<'_>, report: &Report<'_>) {
        self.rtt = report.rtt.or(self.rtt);
        self.controller_mut().on_report(cx, report);
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.controller_mut().on_timeout(cx);
    }

    fn on_change(&mut self, cx: &mut Context<'_>, change: &Change) {
        match *change {
            Change::Demand(demand) => self.demand = demand,
            Change::Path { packet_size, .. } => self.packet_size = packet_size,
            Change::Reports { interval } => self.select(cx, interval),
            Change::LowerEffort(_) | Change::Validated { .. } => {}
        }
        self.controller_mut().on_change(cx, change);
    }

    fn target(&self) -> Target {
        self.controller().target()
    }

    fn next_timeout(&self) -> Option<(Time, TimerReason)> {
        self.controller().next_timeout()
    }

    fn path_state(&self) -> Option<PathState> {
        self.controller().path_state()
    }

    fn summary(&self) -> Summary {
        self.controller().summary()
    }
}

/// Reports that are further apart are too few for tide, and those that are not are enough. Browsers
/// send transport-wide feedback every 50 to 250 ms, `GStreamer` with its RTCP.
const SPARSE: Duration = Duration::from_millis(300);
const FREQUENT: Duration = Duration::from_millis(120);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;
    use crate::units::Rate;

    #[test]
    fn reports_that_are_seconds_apart_need_the_equation() {
        let demand = Demand {
            floor: Rate::kbps(150),
            ceiling: Rate::kbps(4_000),
            shares: 1,
        };
        let start = Start::new(Time::ZERO, Bytes(1_200), demand);
        let mut controller = TideConfig::default().start(&start);
        assert!(controller.path_state().is_some());
        let mut rng = Seed(1).stream("tide");
        for (millis, is_tide) in [(200, true), (5_000, false), (200, false), (0, true)] {
            let mut cx = Context {
                now: Time::from_nanos(1_000_000_000),
                rng: &mut rng,
                trace: &mut (),
            };
            let interval = Duration::from_millis(millis);
            controller.on_change(&mut cx, &Change::Reports { interval });
            assert_eq!(controller.path_state().is_some(), is_tide, "{millis} ms");
            assert!(controller.target().send > Rate::ZERO);
        }
    }
}
