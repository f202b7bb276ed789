//! Rate control of a sender: the controller, with or without a delay bound.

use core::time::Duration;

use crate::control::{Change, Context, RateController, Report, Sent, Summary, Target, TimerReason};
use crate::delay_bound::{DelayBound, PlannerConfig};
use crate::session::config::SenderConfig;
use crate::session::path::PathView;
use crate::units::{Bytes, Time};

/// Controller, optionally limited by a delay bound.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one per session")]
pub(super) enum Control {
    Plain(Box<dyn RateController>),
    Bounded {
        limiter: DelayBound<Box<dyn RateController>>,
        bound: Duration,
        /// Duration of a block of media packets with parity packets; `None` if a retransmission is
        /// in time, or nothing is.
        protected: Option<Duration>,
    },
}

impl Control {
    /// Adds the delay bound if the configuration has both a bound and a planner.
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
        Self::Bounded {
            limiter: DelayBound::new(controller, planner, bound),
            bound,
            protected: None,
        }
    }

    /// Duration of a block of media packets with parity packets; `None` if they are of no use.
    pub(super) fn protected(&self) -> Option<Duration> {
        match self {
            Self::Plain(_) => None,
            Self::Bounded { protected, .. } => *protected,
        }
    }

    /// Updates the plan before a frame is ordered. `encoder` is its delay; `parity` permits parity
    /// packets.
    pub(super) fn replan(
        &mut self,
        cx: &mut Context<'_>,
        backlog: Bytes,
        path: &PathView,
        (encoder, parity): (Duration, bool),
    ) {
        if let Self::Bounded {
            limiter,
            bound,
            protected,
        } = self
        {
            limiter.set_backlog(backlog);
            // Loss detection, request and retransmission must complete within the bound. If that is
            // impossible or uncertain even with an empty queue, parity packets repair, if `parity`
            // permits. If a queue is the cause, the plan reserves no time for repairs.
            let repaired = path.srtt() + REPAIR;
            let standing = limiter.standing(cx.now);
            let arrival = path.one_way() + standing;
            *protected = None;
            // A third of the delay more for a queue and for a report that is lost.
            let late = path.one_way() * 10 / 3 + REPAIR;
            let is_long = path.has_rtt() && late > *bound;
            let repair = if arrival + repaired <= *bound && !(parity && is_long) {
                repaired.min(*bound / 3)
            } else if parity && is_long {
                let rest = bound.saturating_sub(arrival + encoder);
                *protected = Some(rest * 2 / 5).filter(|span| *span >= SHORTEST_BLOCK);
                // The parity packets of a block take part of its duration again.
                protected.map_or(Duration::ZERO, |span| span * 5 / 4)
            } else {
                Duration::ZERO
            };
            let spent = path.one_way() + encoder + repair;
            limiter.set_budget(bound.saturating_sub(spent), repair);
            limiter.replan(cx);
        }
    }

    /// Self-induced queueing delay of the newest packet that has arrived.
    pub(super) fn queueing(&self) -> Duration {
        match self {
            Self::Plain(_) => Duration::ZERO,
            Self::Bounded { limiter, .. } => limiter.queueing(),
        }
    }

    /// Expected self-induced queueing delay of a packet that leaves at `now`.
    pub(super) fn wait(&self, now: Time) -> Duration {
        match self {
            Self::Plain(_) => Duration::ZERO,
            Self::Bounded { limiter, .. } => limiter.wait(now),
        }
    }

    /// Resets all path estimates.
    pub(super) fn restart(&mut self, cx: &mut Context<'_>, packet_size: Bytes) {
        let change = Change::Path {
            packet_size,
            prior: None,
        };
        self.inner_mut().on_change(cx, &change);
    }

    /// The maximum interval between two reports has changed; zero for per-packet feedback.
    pub(super) fn on_interval(&mut self, cx: &mut Context<'_>, interval: Duration) {
        let change = Change::Reports { interval };
        self.inner_mut().on_change(cx, &change);
    }

    pub(super) fn on_change(&mut self, cx: &mut Context<'_>, change: &Change) {
        self.inner_mut().on_change(cx, change);
    }

    /// Whether the controller uses dummy packets.
    pub(super) fn uses_dummies(&self) -> bool {
        self.inner().uses_dummies()
    }

    pub(super) fn target(&self) -> Target {
        self.inner().target()
    }

    /// Part of the recent losses that congestion caused, as far as the controller can tell.
    pub(super) fn congestion_share(&self) -> f64 {
        self.inner()
            .path_state()
            .map_or(1.0, |path| path.congestion)
    }

    pub(super) fn summary(&self) -> Summary {
        self.inner().summary()
    }

    pub(super) fn next_timeout(&self) -> Option<(Time, TimerReason)> {
        self.inner().next_timeout()
    }

    pub(super) fn on_sent(&mut self, cx: &mut Context<'_>, sent: &Sent) {
        self.inner_mut().on_sent(cx, sent);
    }

    pub(super) fn on_report(&mut self, cx: &mut Context<'_>, report: &Report<'_>) {
        self.inner_mut().on_report(cx, report);
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.inner_mut().on_timeout(cx);
    }

    fn inner(&self) -> &dyn RateController {
        match self {
            Self::Plain(controller) => &**controller,
            Self::Bounded { limiter, .. } => limiter,
        }
    }

    fn inner_mut(&mut self) -> &mut dyn RateController {
        match self {
            Self::Plain(controller) => &mut **controller,
            Self::Bounded { limiter, .. } => limiter,
        }
    }
}

/// Duration of a repair in addition to the round-trip time: one feedback interval, the gap to the
/// packets that prove the loss, and the timers of both endpoints.
const REPAIR: Duration = Duration::from_millis(50);
/// Shorter blocks than a frame interval at 60 frames per second need a parity packet per frame.
const SHORTEST_BLOCK: Duration = Duration::from_millis(15);
