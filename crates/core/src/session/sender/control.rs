//! The controller, with or without a delay promise around it.

use core::time::Duration;

use crate::control::{Change, Cx, RateController, Report, Sent, Summary, Target, Why};
use crate::delay_bound::{DelayBound, PlannerConfig};
use crate::session::config::SenderConfig;
use crate::session::path::PathView;
use crate::units::{Bytes, Time};

/// What decides about the rates of a sender.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one per session")]
pub(super) enum Control {
    Plain(Box<dyn RateController>),
    Promised {
        promise: DelayBound<Box<dyn RateController>>,
        bound: Duration,
    },
}

impl Control {
    /// With a promise when there is a bound to keep and a planner to keep it.
    pub(super) fn new(
        controller: Box<dyn RateController>,
        planner: Option<PlannerConfig>,
        config: &SenderConfig,
    ) -> Self {
        let (Some(planner), Some(bound)) = (planner, config.delay_bound) else {
            return Self::Plain(controller);
        };
        let planner = PlannerConfig {
            floor: config.rates.0,
            ceiling: config.rates.1,
            frame_interval: config.frame_rate.interval(),
            packet_size: config.packet_size,
            ..planner
        };
        Self::Promised {
            promise: DelayBound::new(controller, planner, bound),
            bound,
        }
    }

    /// Before a frame is ordered: the plan as of now.
    pub(super) fn replan(
        &mut self,
        cx: &mut Cx<'_>,
        backlog: Bytes,
        path: &PathView,
        encoder: Duration,
    ) {
        if let Self::Promised { promise, bound, .. } = self {
            promise.set_backlog(backlog);
            // What is lost has to be missed, asked for and sent again within the bound. Where that
            // takes too long even with no queue of ours, nothing is kept back for it.
            let repaired = path.srtt() + REPAIR;
            let standing = promise.standing(cx.now);
            let repair = if path.one_way() + standing + repaired > *bound {
                Duration::ZERO
            } else {
                repaired.min(*bound / 3)
            };
            let spent = path.one_way() + encoder + repair;
            promise.set_budget(bound.saturating_sub(spent), repair);
            promise.replan(cx);
        }
    }

    /// How long the newest packet that arrived waited in a queue of ours.
    pub(super) fn queueing(&self) -> Duration {
        match self {
            Self::Plain(_) => Duration::ZERO,
            Self::Promised { promise, .. } => promise.queueing(),
        }
    }

    /// How long a packet that leaves at `now` waits in a queue of ours.
    pub(super) fn wait(&self, now: Time) -> Duration {
        match self {
            Self::Plain(_) => Duration::ZERO,
            Self::Promised { promise, .. } => promise.wait(now),
        }
    }

    /// Nothing that was learnt of the path holds any more.
    pub(super) fn restart(&mut self, cx: &mut Cx<'_>, packet_size: Bytes) {
        let change = Change::Path {
            packet_size,
            prior: None,
        };
        self.inner_mut().on_change(cx, &change);
    }

    pub(super) fn target(&self) -> Target {
        self.inner().target()
    }

    pub(super) fn summary(&self) -> Summary {
        self.inner().summary()
    }

    pub(super) fn next_timeout(&self) -> Option<(Time, Why)> {
        self.inner().next_timeout()
    }

    pub(super) fn on_sent(&mut self, cx: &mut Cx<'_>, sent: &Sent) {
        self.inner_mut().on_sent(cx, sent);
    }

    pub(super) fn on_report(&mut self, cx: &mut Cx<'_>, report: &Report<'_>) {
        self.inner_mut().on_report(cx, report);
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        self.inner_mut().on_timeout(cx);
    }

    fn inner(&self) -> &dyn RateController {
        match self {
            Self::Plain(controller) => &**controller,
            Self::Promised { promise, .. } => promise,
        }
    }

    fn inner_mut(&mut self) -> &mut dyn RateController {
        match self {
            Self::Plain(controller) => &mut **controller,
            Self::Promised { promise, .. } => promise,
        }
    }
}

/// From a loss to its report and from its repair to the decoder, beside the round trip: one
/// feedback interval, the gap to the packets that prove it, and the timers of both ends.
const REPAIR: Duration = Duration::from_millis(50);
