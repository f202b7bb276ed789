//! RCS on paths that honour dummy packets, and RAP on others.

use crate::control::{Change, Context, Fallback, Handover, LowerEffort, RateController};
use crate::controller::rap::{Rap, RapConfig};
use crate::path::Path;
use crate::trace::Event;

use super::{Rcs, RcsConfig};

/// RCS, until a test shows that the path does not honour dummy packets. They would harm others then,
/// and their reports would prove nothing. RAP has the same increase and decrease without them.
#[derive(Debug)]
pub(super) struct Treatment {
    config: RcsConfig,
    is_honoured: bool,
}

impl Treatment {
    pub(super) fn new(config: &RcsConfig) -> Self {
        Self {
            config: config.clone(),
            is_honoured: true,
        }
    }

    fn rcs(&self, cx: &mut Context<'_>, from: &Handover<'_>) -> Rcs {
        let mut rcs = Rcs::new(&self.config, from.start);
        rcs.skip_to(from.next);
        if let Some(rtt) = from.summary.min_rtt {
            rcs.on_rtt(cx, rtt);
        }
        rcs
    }
}

impl Fallback for Treatment {
    fn select(
        &mut self,
        cx: &mut Context<'_>,
        change: &Change,
        from: &Handover<'_>,
        path: &mut Path,
    ) -> Option<Box<dyn RateController>> {
        let Change::LowerEffort(treatment) = *change else {
            return None;
        };
        let is_honoured = treatment == LowerEffort::Honoured;
        if is_honoured == self.is_honoured {
            return None;
        }
        self.is_honoured = is_honoured;
        let mut controller: Box<dyn RateController> = if is_honoured {
            Box::new(self.rcs(cx, from))
        } else {
            let mut rap = Rap::new(&RapConfig::default(), from.start.packet_size);
            let (rate, rtt) = (from.summary.rate, from.summary.min_rtt);
            if let Some(rtt) = rtt.filter(|_| rate.as_bps() > 0) {
                rap.continue_at(rate, rtt);
            }
            Box::new(rap)
        };
        if let Some(interval) = from.interval {
            controller.on_change(cx, &Change::Reports { interval }, path);
        }
        let (from, to) = (from.rate, controller.target().send);
        if from != to {
            cx.trace.record(cx.now, Event::RateChanged { from, to });
        }
        Some(controller)
    }
}
