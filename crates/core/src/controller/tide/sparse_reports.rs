//! Tide where reports are frequent, and TFRC where they are not.
//!
//! Tide needs the outcome of each packet, several times per second. Receivers that send only the
//! reports of RFC 3550 count packets, every few seconds; the throughput equation (RFC 5348) needs no
//! more.

use core::time::Duration;

use super::Tide;
use super::config::TideConfig;
use crate::control::{
    Algorithm, Change, Context, Fallback, Handover, RateControl, RateController, Report, Start,
};
use crate::controller::tfrc::{Tfrc, TfrcConfig};
use crate::path::Path;

impl Algorithm for TideConfig {
    fn start(&self, start: &Start) -> RateControl {
        let fallback = SparseReports {
            config: self.clone(),
            is_sparse: false,
        };
        RateControl::new(Tide::new(self, start), start).with_fallback(fallback, start)
    }
}

/// Selects the controller for the interval of the reports. Each starts again, so an interval between the
/// two limits changes nothing.
#[derive(Debug)]
struct SparseReports {
    config: TideConfig,
    is_sparse: bool,
}

impl Fallback for SparseReports {
    fn select(
        &mut self,
        cx: &mut Context<'_>,
        change: &Change,
        from: &Handover<'_>,
        path: &mut Path,
    ) -> Option<Box<dyn RateController>> {
        let Change::Reports { interval } = *change else {
            return None;
        };
        let limit = if self.is_sparse { FREQUENT } else { SPARSE };
        if (interval > limit) == self.is_sparse {
            return None;
        }
        self.is_sparse = !self.is_sparse;
        let start = from.start;
        path.restart(start.now, start.packet_size, !self.is_sparse);
        let mut controller: Box<dyn RateController> = if self.is_sparse {
            Box::new(Tfrc::new(
                &TfrcConfig::default(),
                start.now,
                start.packet_size,
            ))
        } else {
            Box::new(Tide::new(&self.config, start))
        };
        // With sparse reports, the next sample is seconds away.
        if let Some(rtt) = from.rtt {
            controller.on_report(cx, &Report::default().rtt(rtt), path);
        }
        Some(controller)
    }
}

/// Reports that are further apart are too few for tide, and those that are not are enough. Browsers
/// send transport-wide feedback every 50 to 250 ms, `GStreamer` with its RTCP.
const SPARSE: Duration = Duration::from_millis(300);
const FREQUENT: Duration = Duration::from_millis(120);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Demand;
    use crate::random::Seed;
    use crate::units::{Bytes, Rate, Time};

    #[test]
    fn reports_that_are_seconds_apart_need_the_equation() {
        let demand = Demand {
            floor: Rate::kbps(150),
            ceiling: Rate::kbps(4_000),
            shares: 1,
        };
        let start = Start::new(Time::ZERO, Bytes(1_200), demand);
        let mut controller = TideConfig::default().start(&start);
        assert!(controller.path().is_measured());
        let mut rng = Seed(1).stream("tide");
        for (millis, is_tide) in [(200, true), (5_000, false), (200, false), (0, true)] {
            let mut cx = Context {
                now: Time::from_nanos(1_000_000_000),
                rng: &mut rng,
                trace: &mut (),
            };
            let interval = Duration::from_millis(millis);
            controller.on_change(&mut cx, &Change::Reports { interval });
            assert_eq!(controller.path().is_measured(), is_tide, "{millis} ms");
            assert!(controller.target().send > Rate::ZERO);
        }
    }
}
