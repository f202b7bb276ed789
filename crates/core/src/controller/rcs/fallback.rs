//! RCS on paths that honour dummy packets, and RAP on others.

use crate::control::{
    Change, Context, Kind, LowerEffort, RateController, Report, Sent, Start, Summary, Target,
    TimerReason,
};
use crate::controller::rap::{Rap, RapConfig};
use crate::trace::Event;
use crate::units::{Bytes, Time};

use super::{Rcs, RcsConfig};

/// RCS, until a test shows that the path does not honour dummy packets. They would harm others then,
/// and their reports would prove nothing. RAP has the same increase and decrease without them.
#[derive(Debug)]
pub(super) struct RcsOrRap {
    config: RcsConfig,
    start: Start,
    active: Active,
    /// Number of the next data packet.
    next: u64,
    /// Maximum interval between two reports.
    reports: Option<Change>,
    /// Statistics of controllers that were replaced.
    before: Summary,
}

#[derive(Debug)]
enum Active {
    Rcs(Rcs),
    Rap(Rap),
}

impl RcsOrRap {
    pub(super) fn new(config: &RcsConfig, start: &Start) -> Self {
        Self {
            config: config.clone(),
            start: start.clone(),
            active: Active::Rcs(Rcs::new(config, start)),
            next: 0,
            reports: None,
            before: Summary::default(),
        }
    }

    fn inner(&self) -> &dyn RateController {
        match &self.active {
            Active::Rcs(rcs) => rcs,
            Active::Rap(rap) => rap,
        }
    }

    fn inner_mut(&mut self) -> &mut dyn RateController {
        match &mut self.active {
            Active::Rcs(rcs) => rcs,
            Active::Rap(rap) => rap,
        }
    }

    fn on_lower_effort(&mut self, cx: &mut Context<'_>, treatment: LowerEffort) {
        let is_honoured = treatment == LowerEffort::Honoured;
        if is_honoured == matches!(self.active, Active::Rcs(_)) {
            return;
        }
        let from = self.target().send;
        self.before = self.summary();
        let rtt = self.before.min_rtt;
        self.active = if is_honoured {
            let start = Start {
                now: cx.now,
                ..self.start.clone()
            };
            let mut rcs = Rcs::new(&self.config, &start);
            rcs.skip_to(self.next);
            if let Some(rtt) = rtt {
                rcs.on_rtt(cx, rtt);
            }
            Active::Rcs(rcs)
        } else {
            let mut rap = Rap::new(&RapConfig::default(), self.start.packet_size);
            let rate = self.before.rate;
            if let Some(rtt) = rtt.filter(|_| rate.as_bps() > 0) {
                rap.continue_at(rate, rtt);
            }
            Active::Rap(rap)
        };
        if let Some(reports) = self.reports {
            self.inner_mut().on_change(cx, &reports);
        }
        let to = self.target().send;
        if from != to {
            cx.trace.record(cx.now, Event::RateChanged { from, to });
        }
    }
}

impl RateController for RcsOrRap {
    fn on_sent(&mut self, cx: &mut Context<'_>, packet: &Sent) {
        let is_dummy = packet.kind == Kind::Dummy;
        if !is_dummy {
            self.next = packet.seq.saturating_add(1);
        }
        if !(is_dummy && matches!(self.active, Active::Rap(_))) {
            self.inner_mut().on_sent(cx, packet);
        }
    }

    fn on_report(&mut self, cx: &mut Context<'_>, report: &Report<'_>) {
        self.inner_mut().on_report(cx, report);
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.inner_mut().on_timeout(cx);
    }

    fn on_change(&mut self, cx: &mut Context<'_>, change: &Change) {
        match change {
            Change::LowerEffort(treatment) => return self.on_lower_effort(cx, *treatment),
            Change::Demand(demand) => self.start.demand = *demand,
            Change::Path { packet_size, prior } => {
                self.start.packet_size = *packet_size;
                self.start.prior = *prior;
            }
            Change::Reports { .. } => self.reports = Some(*change),
            Change::Validated { .. } => {}
        }
        self.inner_mut().on_change(cx, change);
    }

    fn target(&self) -> Target {
        self.inner().target()
    }

    fn next_timeout(&self) -> Option<(Time, TimerReason)> {
        self.inner().next_timeout()
    }

    fn uses_dummies(&self) -> bool {
        true
    }

    fn summary(&self) -> Summary {
        let (now, before) = (self.inner().summary(), self.before);
        let min_rtt = match (now.min_rtt, before.min_rtt) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Summary {
            min_rtt,
            delivered: Bytes(now.delivered.get().saturating_add(before.delivered.get())),
            lost: now.lost.saturating_add(before.lost),
            ..now
        }
    }
}
