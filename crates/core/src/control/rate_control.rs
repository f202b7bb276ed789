//! Rate control as a sender holds it: estimator, controller, careful resume and delay bound.

use core::fmt::Debug;
use core::time::Duration;

use super::{
    Change, Context, Kind, RateController, Report, Sent, Start, Summary, Target, TimerReason,
    sooner,
};
use crate::controller::careful_resume::CarefulResume;
use crate::delay_bound::{Decision, DelayBound, PlannerConfig};
use crate::path::Path;
use crate::units::{Bytes, Rate, Time};

/// Controls the sending rate of one path.
///
/// It owns the estimator of the path, the controller and the parts that limit it. Each input updates
/// [`target`](Self::target) once, so that reading it costs nothing. After each input the driver reads
/// [`next_timeout`](Self::next_timeout) again.
#[derive(Debug)]
pub struct RateControl {
    controller: Box<dyn RateController>,
    switch: Option<Switch>,
    resume: Option<CarefulResume>,
    bound: Option<Box<DelayBound>>,
    path: Box<Path>,
    target: Target,
    uses_dummies: bool,
}

/// Replaces the controller where the path does not suit it.
pub(crate) trait Fallback: Debug + Send {
    /// The controller from now on; `None` keeps the present one. If the controllers differ in
    /// [`RateController::reads_path`], it restarts `path`.
    fn select(
        &mut self,
        cx: &mut Context<'_>,
        change: &Change,
        from: &Handover<'_>,
        path: &mut Path,
    ) -> Option<Box<dyn RateController>>;
}

/// State of a control whose controller is being replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handover<'a> {
    /// Parameters of the control, with the present time, demand and packet size.
    pub(crate) start: &'a Start,
    /// Number of the next packet.
    pub(crate) next: u64,
    /// Last round-trip sample.
    pub(crate) rtt: Option<Duration>,
    /// Last [`Change::Reports`].
    pub(crate) interval: Option<Duration>,
    /// Rate that the present controller allows, and its statistics with those of earlier ones.
    pub(crate) rate: Rate,
    pub(crate) summary: Summary,
}

/// A fallback, and what it hands over.
#[derive(Debug)]
struct Switch {
    fallback: Box<dyn Fallback>,
    start: Start,
    next: u64,
    rtt: Option<Duration>,
    interval: Option<Duration>,
    /// Statistics of controllers that were replaced.
    before: Summary,
}

impl RateControl {
    /// A control by `controller`, which was started with `start`.
    pub fn new(controller: impl RateController + 'static, start: &Start) -> Self {
        let path = if controller.reads_path() {
            Path::new(start.now, start.packet_size)
        } else {
            Path::unmeasured()
        };
        Self::with_path(controller, path)
    }

    /// A control by a controller that reads no estimates of the path.
    pub(crate) fn without_estimates(controller: impl RateController + 'static) -> Self {
        Self::with_path(controller, Path::unmeasured())
    }

    fn with_path(controller: impl RateController + 'static, path: Path) -> Self {
        Self {
            target: controller.target(),
            controller: Box::new(controller),
            switch: None,
            resume: None,
            bound: None,
            path: Box::new(path),
            uses_dummies: false,
        }
    }

    /// The same with another algorithm for paths that do not suit the first one.
    pub(crate) fn with_fallback(
        mut self,
        fallback: impl Fallback + 'static,
        start: &Start,
    ) -> Self {
        self.switch = Some(Switch {
            fallback: Box::new(fallback),
            start: start.clone(),
            next: 0,
            rtt: None,
            interval: None,
            before: Summary::default(),
        });
        self
    }

    /// The same for a controller that uses dummy packets on paths that honour lower effort. A session
    /// then tests the path, and reports the result as [`Change::LowerEffort`].
    #[must_use]
    pub fn with_dummies(mut self) -> Self {
        self.uses_dummies = true;
        self
    }

    /// The same with a careful resume (RFC 9959) from the prior of `start`, or of a later
    /// [`Change::Path`].
    #[must_use]
    pub fn with_resume(mut self, start: &Start) -> Self {
        let (size, prior) = (start.packet_size, start.prior);
        self.resume = Some(CarefulResume::new(size, prior, self.target.send));
        self
    }

    /// The same with a limit of the media rate so that no frame is late. `budget` is the bound minus
    /// propagation, receiver and encoder delay.
    #[must_use]
    pub fn with_bound(mut self, config: PlannerConfig, budget: Duration) -> Self {
        let is_measured = self.path.is_measured();
        self.bound = Some(Box::new(DelayBound::new(config, budget, is_measured)));
        self.publish(self.target);
        self
    }

    /// The same with the statistics of the reports: round-trip time, loss and receive rate of the
    /// [`path`](Self::path).
    #[must_use]
    pub fn with_statistics(mut self) -> Self {
        self.path.collect_statistics();
        self
    }

    /// The driver put a packet on the wire.
    pub fn on_sent(&mut self, cx: &mut Context<'_>, packet: &Sent) {
        if let Some(bound) = &mut self.bound {
            bound.on_sent(cx.now, packet);
        }
        if let Some(switch) = &mut self.switch
            && packet.kind != Kind::Dummy
        {
            switch.next = packet.seq.saturating_add(1);
        }
        self.call(cx, |controller, cx, path| {
            controller.on_sent(cx, packet, path);
        });
        let own = self.controller.target();
        if let Some(resume) = &mut self.resume {
            resume.on_sent(cx, packet, &own);
        }
        self.publish(own);
    }

    /// Feedback about packets sent earlier, independent of the wire format.
    pub fn on_report(&mut self, cx: &mut Context<'_>, report: &Report<'_>) {
        if let Some(switch) = &mut self.switch {
            switch.rtt = report.rtt.or(switch.rtt);
        }
        if let Some(statistics) = self.path.statistics_mut() {
            statistics.on_report(cx.now, report);
        }
        self.call(cx, |controller, cx, path| {
            controller.on_report(cx, report, path);
        });
        let mut own = self.controller.target();
        if let Some(resume) = self.resume.as_mut().filter(|resume| resume.is_on()) {
            if let Some(validated) = resume.on_report(cx.now, report, own.send) {
                self.call(cx, |controller, cx, path| {
                    controller.on_change(cx, &validated, path);
                });
                own = self.controller.target();
            }
            if let Some(resume) = &mut self.resume {
                resume.record(cx, &own);
            }
        }
        let data = self.resumed(own).data();
        if let Some(bound) = &mut self.bound {
            bound.on_report(cx, report, &self.path, data);
        }
        self.publish(own);
    }

    /// A round-trip sample that no report carries.
    pub fn on_rtt(&mut self, now: Time, sample: Duration) {
        if let Some(statistics) = self.path.statistics_mut() {
            statistics.on_rtt(now, sample);
        }
    }

    /// The path is restored after an outage, whose losses do not describe it.
    pub fn on_restored(&mut self) {
        if let Some(statistics) = self.path.statistics_mut() {
            statistics.forget_rates();
        }
    }

    /// The deadline of [`next_timeout`](Self::next_timeout) has passed.
    pub fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.call(cx, |controller, cx, path| controller.on_timeout(cx, path));
        let own = self.controller.target();
        if let Some(resume) = &mut self.resume {
            resume.on_timeout(cx, &own);
        }
        self.publish(own);
    }

    /// Demand or path changed outside of the feedback loop.
    pub fn on_change(&mut self, cx: &mut Context<'_>, change: &Change) {
        if let Change::Path { packet_size, .. } = *change {
            let is_measured = self.controller.reads_path();
            self.path.restart(cx.now, packet_size, is_measured);
            self.path.forget_statistics();
        }
        self.select(cx, change);
        self.controller.on_change(cx, change, &mut self.path);
        if let Some(resume) = &mut self.resume {
            resume.on_change(change, self.controller.target().send);
        }
        if let Some(bound) = &mut self.bound {
            bound.on_change(change);
        }
        self.publish(self.controller.target());
    }

    /// Current limits for the path.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Next call of [`on_timeout`](Self::on_timeout) and its reason; `None` while no timer is
    /// pending.
    pub fn next_timeout(&self) -> Option<(Time, TimerReason)> {
        let next = self.controller.next_timeout(&self.path);
        match &self.resume {
            Some(resume) => sooner(next, resume.next_timeout()),
            None => next,
        }
    }

    /// Estimates of the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The delay bound, if there is one.
    pub fn bound(&self) -> Option<&DelayBound> {
        self.bound.as_deref()
    }

    /// The delay bound, if there is one, for the state of the driver. It has effect from the next
    /// report or [`replan`](Self::replan) on.
    pub fn bound_mut(&mut self) -> Option<&mut DelayBound> {
        self.bound.as_deref_mut()
    }

    /// Plans between two reports, e.g. before a frame; `None` without a delay bound.
    pub fn replan(&mut self, cx: &mut Context<'_>) -> Option<Decision> {
        let own = self.controller.target();
        let data = self.resumed(own).data();
        let decision = self.bound.as_mut()?.replan(cx, &self.path, data);
        self.publish(own);
        Some(decision)
    }

    /// Queueing delay of the newest packet that has arrived, in this sender's own queue; zero without
    /// a delay bound.
    pub fn queueing_delay(&self) -> Duration {
        let bound = self.bound();
        bound.map_or(Duration::ZERO, |bound| bound.queueing_delay(&self.path))
    }

    /// Expected queueing delay of a packet that leaves at `now`; zero without a delay bound.
    pub fn queueing_delay_at(&self, now: Time) -> Duration {
        let (bound, data) = (self.bound(), self.target.data());
        bound.map_or(Duration::ZERO, |bound| {
            bound.queueing_delay_at(&self.path, now, data)
        })
    }

    /// Delay above the smallest that lower rates do not reduce; zero without a delay bound.
    pub fn standing_delay(&self, now: Time) -> Duration {
        let bound = self.bound();
        bound.map_or(Duration::ZERO, |bound| {
            bound.standing_delay(&self.path, now)
        })
    }

    /// Whether the controller uses dummy packets.
    pub fn uses_dummies(&self) -> bool {
        self.uses_dummies
    }

    /// What the session learnt about the path, as the [`Prior`](super::Prior) of a later session.
    pub fn summary(&self) -> Summary {
        let summary = self.controller.summary(&self.path);
        match &self.switch {
            Some(switch) => summary.after(&switch.before),
            None => summary,
        }
    }

    /// Calls the controller. While a resume is in force, the controller's rate is not, so that its
    /// changes are not recorded; see [`CarefulResume::record`].
    fn call(
        &mut self,
        cx: &mut Context<'_>,
        call: impl FnOnce(&mut dyn RateController, &mut Context<'_>, &mut Path),
    ) {
        let controller = &mut *self.controller;
        match &self.resume {
            Some(resume) => resume.without_rates(cx, |cx| call(controller, cx, &mut self.path)),
            None => call(controller, cx, &mut self.path),
        }
    }

    /// Replaces the controller if the fallback of the algorithm asks for it.
    fn select(&mut self, cx: &mut Context<'_>, change: &Change) {
        if self.switch.is_none() {
            return;
        }
        let (summary, rate) = (self.summary(), self.controller.target().send);
        let Some(switch) = &mut self.switch else {
            return;
        };
        switch.start.now = cx.now;
        match *change {
            Change::Demand(demand) => switch.start.demand = demand,
            Change::Path { packet_size, prior } => {
                switch.start.packet_size = packet_size;
                switch.start.prior = prior;
            }
            Change::Reports { interval } => switch.interval = Some(interval),
            Change::LowerEffort(_) | Change::Validated { .. } => {}
        }
        let from = Handover {
            start: &switch.start,
            next: switch.next,
            rtt: switch.rtt,
            interval: switch.interval,
            rate,
            summary,
        };
        let next = switch.fallback.select(cx, change, &from, &mut self.path);
        if let Some(controller) = next {
            switch.before = summary;
            self.controller = controller;
        }
    }

    /// The controller's target, or the one of a careful resume.
    fn resumed(&self, own: Target) -> Target {
        self.resume.as_ref().map_or(own, |resume| resume.limit(own))
    }

    /// Publishes the target for the controller's own one.
    fn publish(&mut self, own: Target) {
        let target = self.resumed(own);
        self.target = match &self.bound {
            Some(bound) => bound.limit(target),
            None => target,
        };
    }
}

impl Summary {
    /// The summary of a control whose earlier controllers had `before`.
    fn after(self, before: &Self) -> Self {
        let min_rtt = match (self.min_rtt, before.min_rtt) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self {
            min_rtt,
            delivered: Bytes(self.delivered.get().saturating_add(before.delivered.get())),
            lost: self.lost.saturating_add(before.lost),
            ..self
        }
    }
}
