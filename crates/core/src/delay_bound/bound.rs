//! Lowers the media rate of a rate control to meet a delay bound.

use core::time::Duration;

use super::competing_flows::{CompetingFlows, QueueState, Transition};
use super::meter::{PathMeter, Reading};
use super::planner::{Decision, PlanInput, Planner, PlannerConfig, QueueOwner};
use crate::control::{Change, Context, Kind, Report, Sent, Target};
use crate::path::Path;
use crate::trace::Event;
use crate::units::{Bytes, Rate, Time};

/// Lowers the media rate of a [`RateControl`](crate::control::RateControl) so that no frame is late.
/// All other parts of the target remain.
///
/// While there is a queue, the capacity of the path is measured from the reports; without one, the
/// rate of the controller is the forecast. A controller that reads the estimates of the path publishes
/// them instead. The driver sets its own state with [`set_backlog`](Self::set_backlog),
/// [`set_budget`](Self::set_budget), [`set_next_frame`](Self::set_next_frame) and
/// [`set_stall`](Self::set_stall).
///
/// While reports are more than 200 ms apart ([`Change::Reports`]), it has no effect: a queue would be
/// known too late, and the rate of the forecast grows per report.
#[derive(Debug)]
pub struct DelayBound {
    meter: PathMeter,
    competing: CompetingFlows,
    planner: Planner,
    budget: Duration,
    repair_reserve: Duration,
    /// Bytes queued in the sender, headers included.
    backlog: Bytes,
    next_frame: Option<Time>,
    /// Duration of a stall that starts at the next plan.
    stall: Option<Duration>,
    decision: Option<Decision>,
    /// Reports are too far apart to measure a queue in time.
    suspended: bool,
}

impl DelayBound {
    /// `budget` is the bound minus propagation, receiver and encoder delay.
    pub(crate) fn new(config: PlannerConfig, budget: Duration) -> Self {
        Self {
            meter: PathMeter::new(),
            competing: CompetingFlows::default(),
            planner: Planner::new(config),
            budget,
            repair_reserve: Duration::ZERO,
            backlog: Bytes::ZERO,
            next_frame: None,
            stall: None,
            decision: None,
            suspended: false,
        }
    }

    /// Sets the bytes queued in the sender, headers included, for the next plan.
    pub fn set_backlog(&mut self, backlog: Bytes) {
        self.backlog = backlog;
    }

    /// Sets the budget, e.g. when a better estimate of the encoder or propagation delay is
    /// available, and the part of the bound reserved for repairs.
    pub fn set_budget(&mut self, budget: Duration, kept_back: Duration) {
        self.budget = budget;
        self.repair_reserve = kept_back;
    }

    /// Sets the time of the next frame; `None` (the initial value) means now.
    pub fn set_next_frame(&mut self, at: Option<Time>) {
        self.next_frame = at;
    }

    /// Sets the expected remaining duration of an outage, counted from the next plan; `None`: the
    /// path works.
    pub fn set_stall(&mut self, stall: Option<Duration>) {
        self.stall = stall;
        self.planner.set_stall(None);
    }

    /// A packet was sent.
    pub(crate) fn on_sent(&mut self, now: Time, packet: &Sent) {
        if !self.suspended && packet.kind != Kind::Dummy {
            self.meter.on_sent(now, packet);
        }
    }

    /// Feedback. `data` is the rate that the controller allows now.
    pub(crate) fn on_report(
        &mut self,
        cx: &mut Context<'_>,
        report: &Report<'_>,
        path: &Path,
        data: Rate,
    ) {
        self.planner.set_upper(upper(path, data));
        if self.suspended {
            return;
        }
        let reading = self.meter.on_report(cx.now, report);
        if path.is_measured() {
            self.planner.set_headroom(path.repeated_falls());
        } else if let Some(reading) = reading {
            self.update(cx, report, &reading);
        }
        self.replan(cx, path, data);
    }

    /// Demand, path or interval of the reports changed.
    pub(crate) fn on_change(&mut self, change: &Change) {
        let mut config = *self.planner.config();
        match change {
            Change::Demand(demand) => {
                config.floor = demand.floor;
                config.ceiling = demand.ceiling;
            }
            Change::Path { packet_size, .. } => {
                config.packet_size = *packet_size;
                self.meter = PathMeter::new();
                self.competing = CompetingFlows::default();
                self.planner.forget_path();
            }
            Change::Reports { interval } => {
                let suspended = *interval > MAX_INTERVAL;
                if suspended != self.suspended {
                    // The meter expects outcomes of all packets.
                    self.meter = PathMeter::new();
                    self.decision = None;
                    self.suspended = suspended;
                }
            }
            Change::LowerEffort(_) | Change::Validated { .. } => {}
        }
        self.planner.reconfigure(config);
    }

    /// The target with a media rate that meets the bound.
    pub(crate) fn limit(&self, target: Target) -> Target {
        let most = self.planner.config().payload(target.data());
        let most = most.min(target.media);
        target.media(self.decision.map_or(most, |d| d.media.min(most)))
    }

    /// Plans with the current state and records the plan in the trace.
    pub(crate) fn replan(&mut self, cx: &mut Context<'_>, path: &Path, data: Rate) -> Decision {
        if let Some(stall) = self.stall.take() {
            self.planner.set_stall(Some(cx.now + stall));
        }
        self.planner.set_upper(upper(path, data));
        let capacity = self.planner.capacity();
        let situation = self.situation(cx.now, capacity, path);
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
        self.decision = Some(decision).filter(|_| !self.suspended);
        decision
    }

    /// Queueing delay of the newest packet known to have arrived, in this sender's own queue.
    pub fn queueing(&self) -> Duration {
        self.meter.queueing()
    }

    /// Delay above the minimum of the last minute that lower sending rates do not reduce.
    pub fn standing(&self, now: Time) -> Duration {
        self.meter.standing(now)
    }

    /// Queueing delay of a packet sent at `now` behind this sender's earlier packets.
    pub fn wait(&self, now: Time) -> Duration {
        self.meter.queueing_delay(now, self.planner.capacity())
    }

    /// Estimated capacity of the path, on the wire.
    pub fn capacity(&self) -> Rate {
        self.planner.capacity()
    }

    /// The last plan; `None` before the first report or plan for a frame.
    pub fn plan(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    fn situation(&self, now: Time, capacity: Rate, path: &Path) -> PlanInput {
        let (queue, network, needed) = if path.is_measured() {
            if path.is_contested() {
                let needed = self.meter.recent_max_delay();
                (QueueOwner::Competing { part: 1.0 }, Bytes::ZERO, needed)
            } else {
                let network = self.meter.in_network(now, capacity);
                (QueueOwner::Own, network, self.meter.jitter_bound())
            }
        } else if self.competing.is_detected() {
            let needed = self.meter.recent_max_delay();
            let part = if self.competing.is_testing(now) {
                TEST_FRACTION
            } else if self.meter.is_nearly_full() {
                OVERFLOW_FRACTION
            } else {
                1.0
            };
            (QueueOwner::Competing { part }, Bytes::ZERO, needed)
        } else {
            let network = self.meter.in_network(now, capacity);
            let needed = self.meter.standing(now) + self.meter.jitter_bound();
            (QueueOwner::Own, network, needed)
        };
        PlanInput {
            backlog: self.backlog + network,
            //= itcp-4.4-budget
            budget: self.budget.saturating_sub(needed),
            repair_reserve: self.repair_reserve,
            next_frame: self.next_frame.map_or(Duration::ZERO, |at| at.since(now)),
            queue,
        }
    }

    fn update(&mut self, cx: &mut Context<'_>, report: &Report<'_>, reading: &Reading) {
        if !self.planner.config().yields {
            self.detect_competing_flows(cx, report, reading);
        }
        if self.competing.is_detected() && self.meter.level() < TOLERATED_NANOS {
            self.planner.observe_idle(cx.now, reading.delivered);
        } else {
            self.observe(cx.now, reading);
        }
    }

    fn detect_competing_flows(
        &mut self,
        cx: &mut Context<'_>,
        report: &Report<'_>,
        reading: &Reading,
    ) {
        let floor = self.planner.config().floor;
        let state = QueueState {
            level: self.meter.level_of_all(),
            deviation: self.meter.deviation(),
            grew: reading.grew,
            at_floor: self
                .decision
                .is_some_and(|d| d.media <= floor.scale(11, 10)),
        };
        let transition = self.competing.on_report(cx.now, report, state);
        match transition {
            Some(Transition::Unresponsive | Transition::Persistent) => {
                self.meter.begin_contention(cx.now);
                if transition == Some(Transition::Unresponsive) {
                    self.planner.restore(cx.now);
                }
                cx.trace.record(cx.now, Event::QueueContested);
            }
            Some(Transition::Settled) => {
                self.meter.end_contention();
                cx.trace.record(cx.now, Event::QueueSettled);
            }
            None => {}
        }
    }

    /// Whether less than one packet of this sender is in the queue, so that the queue is due to
    /// flows with a larger part of it. Those flows have to yield, and this one does not, until each
    /// has the same number of packets in the queue and with it the same rate at any round-trip
    /// time. This is the law of TCP Vegas (Brakmo and Peterson, "TCP Vegas: End to End Congestion
    /// Avoidance on a Global Internet", 1995) and its equilibrium (Low, Peterson and Wang,
    /// "Understanding TCP Vegas: A Duality Model", 2002). Without it a low-rate stream reacts to
    /// every variation of a queue of other flows and stays at its floor.
    fn has_less_than_a_packet_queued(&self) -> bool {
        let level = self.meter.level();
        let config = self.planner.config();
        let sent = self
            .decision
            .map_or(self.planner.capacity(), |d| config.wire(d.media));
        let part = sent * Duration::from_nanos(level.max(0) as u64);
        level < TOLERATED_NANOS && part < config.packet_size
    }

    fn observe(&mut self, now: Time, reading: &Reading) {
        // With `yields` set, the sender reacts to every queue.
        let yields = self.planner.config().yields;
        if !yields && !reading.grew && self.has_less_than_a_packet_queued() {
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
        } else if self
            .planner
            .measured()
            .is_none_or(|c| sample.lower_bound >= c)
        {
            self.planner.observe_capacity(now, sample.lower_bound);
        } else {
            self.planner.observe_steady(now, sample.rate);
        }
    }
}

/// Upper limit of the capacity, for a controller that allows `data`.
fn upper(path: &Path, data: Rate) -> Rate {
    path.available_rate().unwrap_or(data)
}

/// Four feedback intervals of the slowest per-packet feedback, 50 ms.
const MAX_INTERVAL: Duration = Duration::from_millis(200);
/// Growth of the queue, in ns, that is tolerated next to competing flows: two frames, as their
/// queue grows as well. At rates below one packet in that time (160 kb/s) the sender cannot cause
/// more.
const TOLERATED_NANOS: i64 = 60_000_000;
/// Fraction of the share used while testing the owner of the queue: low enough for a verdict in
/// half a second.
const TEST_FRACTION: f64 = 0.7;
/// Fraction of the share used when the queue is about to overflow. It reduces the loss of packets
/// that could not be retransmitted in time. Of the frames next to Reno 2.1 % are lost instead of
/// 2.8 % (RFC 8867 section 5.6, ten seeds). A third would give 1.0 %, but leaves no rate next to
/// CUBIC, whose queue is that high for longer.
const OVERFLOW_FRACTION: f64 = 0.7;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{
        Demand, Ecn, FlowId, Outcome, PacketOutcome, RateControl, RateController, Start, Summary,
        TimerReason,
    };
    use crate::random::Seed;
    use crate::units::RemoteTime;

    #[derive(Debug)]
    struct Fixed;

    impl RateController for Fixed {
        fn on_report(&mut self, _: &mut Context<'_>, _: &Report<'_>, _: &mut Path) {}
        fn on_change(&mut self, _: &mut Context<'_>, _: &Change, _: &mut Path) {}
        fn target(&self) -> Target {
            let mut target = Target::of(Rate::kbps(2_007)).media(Rate::kbps(2_000));
            target.filler = Rate::kbps(7);
            target.in_flight = Some(Bytes(9));
            target
        }
        fn next_timeout(&self, _: &Path) -> Option<(Time, TimerReason)> {
            Some((Time::from_secs(3), TimerReason::Silence))
        }
        fn summary(&self, _: &Path) -> Summary {
            Summary::new(Rate::kbps(2_000))
        }
    }

    /// A rate control with and without a bound of 400 ms.
    fn controls() -> (RateControl, RateControl) {
        let (floor, ceiling) = (Rate::kbps(150), Rate::kbps(4_000));
        let demand = Demand {
            floor,
            ceiling,
            shares: 1,
        };
        let start = Start::new(Time::ZERO, Bytes(1_200), demand);
        let free = || RateControl::new(Fixed, &start);
        let config = PlannerConfig::new(floor, ceiling);
        (
            free().with_bound(config, Duration::from_millis(400)),
            free(),
        )
    }

    fn bounded() -> RateControl {
        controls().0
    }

    fn limit(control: &mut RateControl) -> &mut DelayBound {
        control.bound_mut().unwrap()
    }

    fn capacity(control: &RateControl) -> Rate {
        control.bound().unwrap().capacity()
    }

    fn replan(control: &mut RateControl, cx: &mut Context<'_>) -> Decision {
        control.replan(cx).unwrap()
    }

    fn with<T>(ms: u64, f: impl FnOnce(&mut Context<'_>) -> T) -> (T, Vec<(Time, Event)>) {
        let (mut rng, mut events) = (Seed(1).stream("test"), Vec::new());
        let mut cx = Context {
            now: Time::from_millis(ms),
            rng: &mut rng,
            trace: &mut events,
        };
        (f(&mut cx), events)
    }

    #[test]
    fn only_media_is_lowered() {
        let (mut p, free) = controls();
        with(0, |cx| replan(&mut p, cx));
        let (ours, theirs) = (*p.target(), *free.target());
        assert!(ours.media < theirs.media && ours.media > Rate::kbps(1_000));
        assert_eq!(
            Target {
                media: theirs.media,
                ..ours
            },
            theirs
        );
        assert_eq!(p.next_timeout(), free.next_timeout());
        assert_eq!(p.summary(), free.summary());
    }

    #[test]
    fn every_plan_is_traced() {
        let mut p = bounded();
        limit(&mut p).set_backlog(Bytes(12_500));
        let (decision, events) = with(5, |cx| replan(&mut p, cx));
        let plan = Event::Plan {
            media: decision.media,
            capacity: Rate::kbps(2_000),
            backlog: Bytes(12_500),
            budget: Duration::from_millis(400),
            feasible: true,
        };
        assert_eq!(events, vec![(Time::from_millis(5), plan)]);
        assert_eq!(
            p.bound().unwrap().plan().map(|d| d.media),
            Some(decision.media)
        );
    }

    #[test]
    fn a_backlog_and_a_stall_lower_the_rate() {
        let mut p = bounded();
        let (free, _) = with(0, |cx| replan(&mut p, cx));
        limit(&mut p).set_backlog(Bytes(60_000));
        let (loaded, _) = with(10, |cx| replan(&mut p, cx));
        assert!(loaded.media < free.media.scale(3, 4), "{loaded:?}");
        limit(&mut p).set_backlog(Bytes::ZERO);
        limit(&mut p).set_stall(Some(Duration::from_secs(1)));
        assert!(!with(20, |cx| replan(&mut p, cx)).0.feasible());
        // The stall counts from the first plan after `set_stall`, not from each plan.
        assert!(with(900, |cx| replan(&mut p, cx)).0.feasible());
        limit(&mut p).set_stall(Some(Duration::from_secs(1)));
        limit(&mut p).set_stall(None);
        assert!(with(910, |cx| replan(&mut p, cx)).0.feasible());
    }

    #[test]
    fn reports_of_a_growing_queue_lower_the_rate_at_once() {
        let mut p = bounded();
        let fate = |n: u64, arrived: u64| PacketOutcome {
            flow: FlowId(0),
            seq: n,
            size: Bytes(1_250),
            sent: Time::from_millis(n * 5),
            outcome: Outcome::Received {
                at: RemoteTime(arrived * 1_000_000),
                ecn: Ecn::NotEct,
            },
        };
        // Without queueing, then one packet per 20 ms: 500 kb/s.
        let quiet: Vec<_> = (0..10).map(|n| fate(n, n * 5 + 20)).collect();
        with(75, |cx| p.on_report(cx, &Report::new(&quiet)));
        assert_eq!(
            (capacity(&p), p.queueing()),
            (Rate::kbps(2_000), Duration::ZERO)
        );
        let slow: Vec<_> = (0..10).map(|n| fate(10 + n, 70 + n * 20)).collect();
        with(275, |cx| p.on_report(cx, &Report::new(&slow)));
        assert!(
            capacity(&p) < Rate::kbps(520) && capacity(&p) > Rate::kbps(480),
            "{:?}",
            capacity(&p)
        );
        assert_eq!(p.queueing(), Duration::from_millis(135));
        assert!(p.target().media < Rate::kbps(450));
    }

    /// The estimate after 1.25 s with 7 ms of queue, starting from `capacity`.
    fn after_a_short_queue(capacity: Rate) -> Rate {
        let mut p = bounded();
        limit(&mut p).planner.observe_drop(Time::ZERO, capacity);
        with(0, |cx| replan(&mut p, cx));
        for n in (0..60).step_by(2) {
            let queue = if n < 10 { 0 } else { 7 };
            let fates = [n, n + 1].map(|seq| PacketOutcome {
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
        limit(&mut p).planner.measured().unwrap()
    }

    /// In 7 ms, 1.4 Mb/s are a packet of 1,200 bytes and 0.3 Mb/s a fifth of one.
    #[test]
    fn a_short_queue_lowers_a_high_rate_but_not_a_low_rate() {
        let (thick, thin) = (Rate::kbps(2_000), Rate::kbps(400));
        assert!(after_a_short_queue(thick) < thick);
        assert!(after_a_short_queue(thin) > thin.scale(11, 10));
    }

    #[test]
    fn a_change_of_demand_or_path_takes_effect() {
        let mut p = bounded();
        let demand = Demand {
            floor: Rate::kbps(150),
            ceiling: Rate::kbps(300),
            shares: 1,
        };
        with(0, |cx| p.on_change(cx, &Change::Demand(demand)));
        with(0, |cx| replan(&mut p, cx));
        assert_eq!(p.target().media, Rate::kbps(300));
        limit(&mut p)
            .planner
            .observe_capacity(Time::ZERO, Rate::kbps(200));
        assert_eq!(capacity(&p), Rate::kbps(200));
        let path = Change::Path {
            packet_size: Bytes(600),
            prior: None,
        };
        with(1, |cx| p.on_change(cx, &path));
        assert_eq!(capacity(&p), Rate::kbps(2_000));
        assert_eq!(limit(&mut p).planner.config().packet_size, Bytes(600));
    }
}
