//! The delay promise around any controller.

use core::time::Duration;

use super::competing_flows::{CompetingFlows, Heard, Turn};
use super::meter::{PathMeter, Reading};
use super::planner::{Decision, Planner, PlannerConfig, QueueOwner, Situation};
use crate::control::{Change, Cx, RateController, Report, Sent, Summary, Target, Why};
use crate::trace::Event;
use crate::units::{Bytes, Rate, Time};

/// Lowers the media rate of `inner` so that nothing is late; everything else passes through.
///
/// The path's capacity is measured from the reports while there is a queue; without one, what
/// the inner controller would send is the forecast. The driver tells what only it knows with
/// [`set_backlog`](Self::set_backlog), [`set_budget`](Self::set_budget),
/// [`set_next_frame`](Self::set_next_frame) and [`set_stall`](Self::set_stall), then calls
/// [`replan`](Self::replan) when it wants an answer before the next report, as before a frame.
#[derive(Debug)]
pub struct DelayBound<C> {
    inner: C,
    meter: PathMeter,
    contest: CompetingFlows,
    planner: Planner,
    budget: Duration,
    kept_back: Duration,
    /// In the sender, headers included.
    backlog: Bytes,
    next_frame: Option<Time>,
    /// Told, but not yet counted from a known moment.
    stall: Option<Duration>,
    decision: Option<Decision>,
}

impl<C: RateController> DelayBound<C> {
    /// `budget`: the bound minus propagation, receiver and encoder lag.
    pub fn new(inner: C, config: PlannerConfig, budget: Duration) -> Self {
        Self {
            inner,
            meter: PathMeter::new(),
            contest: CompetingFlows::default(),
            planner: Planner::new(config),
            budget,
            kept_back: Duration::ZERO,
            backlog: Bytes::ZERO,
            next_frame: None,
            stall: None,
            decision: None,
        }
    }

    /// What waits in the sender, headers included, as of the next plan.
    pub fn set_backlog(&mut self, backlog: Bytes) {
        self.backlog = backlog;
    }

    /// Another budget, e.g. when the encoder's lag or the propagation delay is better known, and
    /// what is kept back beside it for repairs.
    pub fn set_budget(&mut self, budget: Duration, kept_back: Duration) {
        self.budget = budget;
        self.kept_back = kept_back;
    }

    /// When the next frame is made; unless told, now.
    pub fn set_next_frame(&mut self, at: Option<Time>) {
        self.next_frame = at;
    }

    /// The path is down and is expected to be so for this long from the next plan on; `None`: it is up.
    pub fn set_stall(&mut self, stall: Option<Duration>) {
        self.stall = stall;
        self.planner.set_stall(None);
    }

    /// Plans with what is known now.
    pub fn replan(&mut self, cx: &mut Cx<'_>) -> Decision {
        if let Some(stall) = self.stall.take() {
            self.planner.set_stall(Some(cx.now + stall));
        }
        self.planner.set_upper(self.inner.target().send);
        let capacity = self.planner.capacity();
        let situation = self.situation(cx.now, capacity);
        let decision = self.planner.plan(cx.now, situation);
        cx.trace.record(
            cx.now,
            Event::Plan {
                media: decision.media,
                capacity,
                backlog: situation.backlog,
                budget: situation.budget,
                feasible: decision.feasible(),
            },
        );
        self.decision = Some(decision);
        decision
    }

    /// How long the newest packet that is known to have arrived waited in a queue of ours.
    pub fn queueing(&self) -> Duration {
        self.meter.queueing()
    }

    /// Delay of the path that nothing we do would lower, above the least of the last minute.
    pub fn standing(&self, now: Time) -> Duration {
        self.meter.standing(now)
    }

    /// How long a packet that leaves at `now` waits in a queue of ours behind what left before it.
    pub fn wait(&self, now: Time) -> Duration {
        self.meter.wait(now, self.planner.capacity())
    }

    /// What the path is believed to carry, on the wire.
    pub fn capacity(&self) -> Rate {
        self.planner.capacity()
    }

    /// The last plan; `None` before the first report or [`replan`](Self::replan).
    pub fn plan(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// The controller inside.
    pub fn inner(&self) -> &C {
        &self.inner
    }

    fn situation(&self, now: Time, capacity: Rate) -> Situation {
        let (queue, network, needed) = if self.contest.is_on() {
            let needed = self.meter.height();
            let part = if self.contest.is_tried(now) {
                TRIED
            } else if self.meter.is_brim_full() {
                NEAR_OVERFLOW
            } else {
                1.0
            };
            (QueueOwner::Others { part }, Bytes::ZERO, needed)
        } else {
            let network = self.meter.in_network(now, capacity);
            let needed = self.meter.standing(now) + self.meter.wobble();
            (QueueOwner::Us, network, needed)
        };
        Situation {
            backlog: self.backlog + network,
            //= itcp-4.4-budget
            budget: self.budget.saturating_sub(needed),
            kept_back: self.kept_back,
            next_frame: self.next_frame.map_or(Duration::ZERO, |at| at.since(now)),
            queue,
        }
    }

    fn learn(&mut self, cx: &mut Cx<'_>, report: &Report<'_>, reading: &Reading) {
        if !self.planner.config().yields {
            self.contend(cx, report, reading);
        }
        if self.contest.is_on() && self.meter.level() < TOLERATED {
            self.planner.observe_idle(cx.now, reading.delivered);
        } else {
            self.observe(cx.now, reading);
        }
    }

    fn contend(&mut self, cx: &mut Cx<'_>, report: &Report<'_>, reading: &Reading) {
        let floor = self.planner.config().floor;
        let heard = Heard {
            level: self.meter.level_of_all(),
            deviation: self.meter.deviation(),
            grew: reading.grew,
            at_floor: self
                .decision
                .is_some_and(|d| d.media <= floor.scale(11, 10)),
        };
        let turn = self.contest.hear(cx.now, report, heard);
        match turn {
            Some(Turn::Lost | Turn::GivenUp) => {
                self.meter.disown(cx.now);
                if turn == Some(Turn::Lost) {
                    self.planner.restore(cx.now);
                }
                cx.trace.record(cx.now, Event::QueueContested);
            }
            Some(Turn::Settled) => {
                self.meter.settle();
                cx.trace.record(cx.now, Event::QueueSettled);
            }
            None => {}
        }
    }

    /// Whether less than a packet of ours waits in the queue, so that it is the doing of those who
    /// have more. They yield to it and we need not, until each has as many packets in it and with
    /// them the same rate, whatever the round trips: the law of TCP Vegas (Brakmo and Peterson, "TCP
    /// Vegas: End to End Congestion Avoidance on a Global Internet", 1995), and its equilibrium (Low,
    /// Peterson and Wang, "Understanding TCP Vegas: A Duality Model", 2002). Without this a thin
    /// stream heeds every swing of the others' queue, and never gets from its floor.
    fn has_no_part(&self) -> bool {
        let level = self.meter.level();
        let config = self.planner.config();
        let sent = self
            .decision
            .map_or(self.planner.capacity(), |d| config.wire(d.media));
        let part = sent * Duration::from_nanos(level.max(0) as u64);
        level < TOLERATED && part < config.packet_size
    }

    fn observe(&mut self, now: Time, reading: &Reading) {
        // Who yields heeds every queue.
        let yields = self.planner.config().yields;
        if !yields && !reading.grew && self.has_no_part() {
            self.planner.observe_idle(now, reading.delivered);
            return;
        }
        let Some(sample) = reading.capacity else {
            if let Some(hint) = reading.hint {
                self.planner.observe_hint(hint);
            } else if reading.queued {
                self.planner.observe_steady(now, reading.delivered);
            } else if !reading.grew {
                self.planner.observe_idle(now, reading.delivered);
            }
            return;
        };
        if reading.grew {
            self.planner.observe_drop(now, sample.rate);
        } else if self.planner.measured().is_none_or(|c| sample.surely >= c) {
            self.planner.observe_capacity(now, sample.surely);
        } else {
            self.planner.observe_steady(now, sample.rate);
        }
    }
}

/// Beside a queue of others ours may grow by this much before it is one, ns: two frames, since theirs
/// grows, too. As much is nobody's who sends less than a packet in that time, 160 kb/s.
const TOLERATED: i64 = 60_000_000;
/// What is used of a share to see whose queue it is: enough less for a verdict in half of a second.
const TRIED: f64 = 0.7;
/// What is used of it where the queue is about to overflow, so that fewer of ours are lost, which could
/// not be sent again in time. Of frames beside Reno 2.1 % are lost rather than 2.8 % (RFC 8867 section 5.6, ten
/// seeds), and 1.0 % with a third, which CUBIC, whose queue is that high for longer, leaves nothing of.
const NEAR_OVERFLOW: f64 = 0.7;

impl<C: RateController> RateController for DelayBound<C> {
    fn on_sent(&mut self, cx: &mut Cx<'_>, packet: &Sent) {
        self.meter.on_sent(cx.now, packet);
        self.inner.on_sent(cx, packet);
    }

    fn on_report(&mut self, cx: &mut Cx<'_>, report: &Report<'_>) {
        self.inner.on_report(cx, report);
        self.planner.set_upper(self.inner.target().send);
        if let Some(reading) = self.meter.on_report(cx.now, report) {
            self.learn(cx, report, &reading);
        }
        self.replan(cx);
    }

    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        self.inner.on_timeout(cx);
    }

    fn on_change(&mut self, cx: &mut Cx<'_>, change: &Change) {
        self.inner.on_change(cx, change);
        let mut config = *self.planner.config();
        match change {
            Change::Demand(demand) => {
                config.floor = demand.floor;
                config.ceiling = demand.ceiling;
            }
            Change::Path { packet_size, .. } => {
                config.packet_size = *packet_size;
                self.meter = PathMeter::new();
                self.contest = CompetingFlows::default();
                self.planner.forget_path();
            }
        }
        self.planner.reconfigure(config);
    }

    fn target(&self) -> Target {
        let target = self.inner.target();
        let most = self.planner.config().payload(target.send).min(target.media);
        target.media(self.decision.map_or(most, |d| d.media.min(most)))
    }

    fn next_timeout(&self) -> Option<(Time, Why)> {
        self.inner.next_timeout()
    }

    fn summary(&self) -> Summary {
        self.inner.summary()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Demand, Ecn, Fate, FlowId, Outcome};
    use crate::random::Seed;
    use crate::units::RemoteTime;

    #[derive(Debug)]
    struct Fixed;

    impl RateController for Fixed {
        fn on_report(&mut self, _: &mut Cx<'_>, _: &Report<'_>) {}
        fn on_change(&mut self, _: &mut Cx<'_>, _: &Change) {}
        fn target(&self) -> Target {
            let mut target = Target::of(Rate::kbps(2_000));
            target.filler = Rate::kbps(7);
            target.in_flight = Some(Bytes(9));
            target
        }
        fn next_timeout(&self) -> Option<(Time, Why)> {
            Some((Time::from_secs(3), Why::Silence))
        }
        fn summary(&self) -> Summary {
            Summary::new(Rate::kbps(2_000))
        }
    }

    fn promise() -> DelayBound<Fixed> {
        let config = PlannerConfig::new(Rate::kbps(150), Rate::kbps(4_000));
        DelayBound::new(Fixed, config, Duration::from_millis(400))
    }

    fn with<T>(ms: u64, f: impl FnOnce(&mut Cx<'_>) -> T) -> (T, Vec<(Time, Event)>) {
        let (mut rng, mut events) = (Seed(1).stream("test"), Vec::new());
        let mut cx = Cx {
            now: Time::from_millis(ms),
            rng: &mut rng,
            trace: &mut events,
        };
        (f(&mut cx), events)
    }

    #[test]
    fn only_media_is_lowered() {
        let mut p = promise();
        with(0, |cx| p.replan(cx));
        let (ours, theirs) = (p.target(), Fixed.target());
        assert!(ours.media < theirs.media && ours.media > Rate::kbps(1_000));
        assert_eq!(
            Target {
                media: theirs.media,
                ..ours
            },
            theirs
        );
        assert_eq!(p.next_timeout(), Fixed.next_timeout());
        assert_eq!(p.summary(), Fixed.summary());
    }

    #[test]
    fn every_plan_is_traced() {
        let mut p = promise();
        p.set_backlog(Bytes(12_500));
        let (decision, events) = with(5, |cx| p.replan(cx));
        let plan = Event::Plan {
            media: decision.media,
            capacity: Rate::kbps(2_000),
            backlog: Bytes(12_500),
            budget: Duration::from_millis(400),
            feasible: true,
        };
        assert_eq!(events, vec![(Time::from_millis(5), plan)]);
        assert_eq!(p.plan().map(|d| d.media), Some(decision.media));
    }

    #[test]
    fn a_backlog_and_a_stall_lower_the_rate() {
        let mut p = promise();
        let (free, _) = with(0, |cx| p.replan(cx));
        p.set_backlog(Bytes(60_000));
        let (loaded, _) = with(10, |cx| p.replan(cx));
        assert!(loaded.media < free.media.scale(3, 4), "{loaded:?}");
        p.set_backlog(Bytes::ZERO);
        p.set_stall(Some(Duration::from_secs(1)));
        assert!(!with(20, |cx| p.replan(cx)).0.feasible());
        // Counted from that plan, not from each.
        assert!(with(900, |cx| p.replan(cx)).0.feasible());
        p.set_stall(Some(Duration::from_secs(1)));
        p.set_stall(None);
        assert!(with(910, |cx| p.replan(cx)).0.feasible());
    }

    #[test]
    fn reports_of_a_growing_queue_lower_the_rate_at_once() {
        let mut p = promise();
        let fate = |n: u64, arrived: u64| Fate {
            flow: FlowId(0),
            seq: n,
            size: Bytes(1_250),
            sent: Time::from_millis(n * 5),
            outcome: Outcome::Received {
                at: RemoteTime(arrived * 1_000_000),
                ecn: Ecn::NotEct,
            },
        };
        // On time, then at 20 ms each: 500 kb/s.
        let quiet: Vec<_> = (0..10).map(|n| fate(n, n * 5 + 20)).collect();
        with(75, |cx| p.on_report(cx, &Report::new(&quiet)));
        assert_eq!(
            (p.capacity(), p.queueing()),
            (Rate::kbps(2_000), Duration::ZERO)
        );
        let slow: Vec<_> = (0..10).map(|n| fate(10 + n, 70 + n * 20)).collect();
        with(275, |cx| p.on_report(cx, &Report::new(&slow)));
        assert!(
            p.capacity() < Rate::kbps(520) && p.capacity() > Rate::kbps(480),
            "{:?}",
            p.capacity()
        );
        assert_eq!(p.queueing(), Duration::from_millis(135));
        assert!(p.target().media < Rate::kbps(450));
    }

    /// What is known of the path after 1.25 s with 7 ms of queue, before which it was `capacity`.
    fn after_a_short_queue(capacity: Rate) -> Rate {
        let mut p = promise();
        p.planner.observe_drop(Time::ZERO, capacity);
        with(0, |cx| p.replan(cx));
        for n in (0..60).step_by(2) {
            let queue = if n < 10 { 0 } else { 7 };
            let fates = [n, n + 1].map(|seq| Fate {
                flow: FlowId(0),
                seq,
                size: Bytes(1_250),
                sent: Time::from_millis(seq * 25),
                outcome: Outcome::Received {
                    at: RemoteTime((seq * 25 + 20 + queue) * 1_000_000),
                    ecn: Ecn::NotEct,
                },
            });
            with(n * 25 + 75, |cx| p.on_report(cx, &Report::new(&fates)));
        }
        p.planner.measured().unwrap()
    }

    /// 1.4 Mb/s are a packet of 1,200 bytes in 7 ms, and 0.3 Mb/s a fifth of one.
    #[test]
    fn a_thick_stream_heeds_a_short_queue_and_a_thin_one_grows() {
        let (thick, thin) = (Rate::kbps(2_000), Rate::kbps(400));
        assert!(after_a_short_queue(thick) < thick);
        assert!(after_a_short_queue(thin) > thin.scale(11, 10));
    }

    #[test]
    fn a_new_demand_and_a_new_path_are_taken_over() {
        let mut p = promise();
        let demand = Demand {
            floor: Rate::kbps(150),
            ceiling: Rate::kbps(300),
            shares: 1,
        };
        with(0, |cx| p.on_change(cx, &Change::Demand(demand)));
        with(0, |cx| p.replan(cx));
        assert_eq!(p.target().media, Rate::kbps(300));
        p.planner.observe_capacity(Time::ZERO, Rate::kbps(200));
        assert_eq!(p.capacity(), Rate::kbps(200));
        let path = Change::Path {
            packet_size: Bytes(600),
            prior: None,
        };
        with(1, |cx| p.on_change(cx, &path));
        assert_eq!(p.capacity(), Rate::kbps(2_000));
        assert_eq!(p.planner.config().packet_size, Bytes(600));
    }
}
