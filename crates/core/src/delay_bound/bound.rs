//! Lowers the media rate of a rate control to meet a delay bound.

use core::time::Duration;

use super::blind::{BlindPath, Limits};
use super::planner::{Decision, PlanInput, Planner, PlannerConfig, QueueOwner};
use crate::control::{Change, Context, Kind, Report, Sent, Target};
use crate::path::Path;
use crate::trace::Event;
use crate::units::{Bytes, Rate, Time};

/// Lowers the media rate of a [`RateControl`](crate::control::RateControl) so that no frame is late.
/// All other parts of the target remain.
///
/// Queue, jitter and capacity are the estimates of the [`Path`]. For a controller that reads none, it
/// measures the path itself: while there is a queue, the capacity is measured from the reports; without
/// one, the rate of the controller is the forecast. The driver sets its own state with
/// [`set_backlog`](Self::set_backlog), [`set_budget`](Self::set_budget),
/// [`set_next_frame`](Self::set_next_frame) and [`set_stall`](Self::set_stall).
///
/// While reports are more than 200 ms apart ([`Change::Reports`]), it has no effect: a queue would be
/// known too late, and the rate of the forecast grows per report.
#[derive(Debug)]
pub struct DelayBound {
    planner: Planner,
    /// `None` for an algorithm with estimates of the path.
    blind: Option<BlindPath>,
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

/// What is known about the path for a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook {
    /// Capacity on the wire.
    pub(super) capacity: Rate,
    pub(super) queue: QueueOwner,
    /// Bytes of this sender in the network.
    pub(super) network: Bytes,
    /// Delay that lower rates do not reduce.
    pub(super) needed: Duration,
}

impl DelayBound {
    /// `budget` is the bound minus propagation, receiver and encoder delay. `is_measured`: there are
    /// estimates of the path.
    pub(crate) fn new(config: PlannerConfig, budget: Duration, is_measured: bool) -> Self {
        Self {
            planner: Planner::new(config),
            blind: (!is_measured).then(BlindPath::default),
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

    /// The last plan; `None` before the first report or
    /// [`RateControl::replan`](crate::control::RateControl::replan).
    pub fn plan(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// A packet was sent.
    pub(crate) fn on_sent(&mut self, now: Time, packet: &Sent) {
        if let Some(blind) = &mut self.blind
            && !self.suspended
            && packet.kind != Kind::Dummy
        {
            blind.on_sent(now, packet);
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
        if self.suspended {
            return;
        }
        match &mut self.blind {
            Some(blind) => {
                blind.set_upper(data);
                let limits = Limits {
                    config: self.planner.config(),
                    decision: self.decision.as_ref(),
                };
                blind.on_report(cx, report, limits);
            }
            None => self.planner.trust_capacity(),
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
                if let Some(blind) = &mut self.blind {
                    blind.restart();
                }
            }
            Change::Reports { interval } => {
                let suspended = *interval > MAX_INTERVAL;
                if suspended != self.suspended {
                    if let Some(blind) = &mut self.blind {
                        blind.forget_packets();
                    }
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
        let outlook = match &mut self.blind {
            Some(blind) => {
                blind.set_upper(data);
                blind.outlook(cx.now)
            }
            None => Outlook::of(path, cx.now, data),
        };
        let capacity = outlook.capacity;
        let next_frame = self.next_frame;
        let situation = PlanInput {
            backlog: self.backlog + outlook.network,
            //= itcp-4.4-budget
            budget: self.budget.saturating_sub(outlook.needed),
            repair_reserve: self.repair_reserve,
            next_frame: next_frame.map_or(Duration::ZERO, |at| at.since(cx.now)),
            queue: outlook.queue,
        };
        let decision = self.planner.plan(cx.now, situation, capacity);
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
    pub(crate) fn queueing_delay(&self, path: &Path) -> Duration {
        match &self.blind {
            Some(blind) => blind.queueing_delay(),
            None if self.suspended => Duration::ZERO,
            None => path.queueing_delay(),
        }
    }

    /// Queueing delay of a packet sent at `now` behind this sender's earlier packets. `data` is the rate
    /// that the controller allows now.
    pub(crate) fn queueing_delay_at(&self, path: &Path, now: Time, data: Rate) -> Duration {
        match &self.blind {
            Some(blind) => blind.queueing_delay_at(now),
            None if self.suspended => Duration::ZERO,
            None => path.queueing_delay_at(now, path.available_rate().unwrap_or(data)),
        }
    }

    /// Delay above the minimum that lower sending rates do not reduce.
    pub(crate) fn standing_delay(&self, path: &Path, now: Time) -> Duration {
        match &self.blind {
            Some(blind) => blind.standing_delay(now),
            None if self.suspended => Duration::ZERO,
            None => path.standing_delay(now),
        }
    }
}

impl Outlook {
    /// The estimates of a path whose controller allows `data`.
    fn of(path: &Path, now: Time, data: Rate) -> Self {
        let capacity = path.available_rate().unwrap_or(data);
        let (queue, network, needed) = if path.is_contested() {
            let needed = path.max_queueing_delay();
            (QueueOwner::Competing { part: 1.0 }, Bytes::ZERO, needed)
        } else {
            let network = path.bytes_queued(now, capacity);
            (QueueOwner::Own, network, path.jitter_bound())
        };
        Self {
            capacity,
            queue,
            network,
            needed,
        }
    }
}

/// Four feedback intervals of the slowest per-packet feedback, 50 ms.
const MAX_INTERVAL: Duration = Duration::from_millis(200);

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
        control.bound().unwrap().plan().unwrap().capacity
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
            (capacity(&p), p.queueing_delay()),
            (Rate::kbps(2_000), Duration::ZERO)
        );
        let slow: Vec<_> = (0..10).map(|n| fate(10 + n, 70 + n * 20)).collect();
        with(275, |cx| p.on_report(cx, &Report::new(&slow)));
        assert!(
            capacity(&p) < Rate::kbps(520) && capacity(&p) > Rate::kbps(480),
            "{:?}",
            capacity(&p)
        );
        assert_eq!(p.queueing_delay(), Duration::from_millis(135));
        assert!(p.target().media < Rate::kbps(450));
        let path = Change::Path {
            packet_size: Bytes(1_200),
            prior: None,
        };
        with(300, |cx| p.on_change(cx, &path));
        assert_eq!(
            with(300, |cx| replan(&mut p, cx)).0.capacity,
            Rate::kbps(2_000)
        );
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
        let path = Change::Path {
            packet_size: Bytes(600),
            prior: None,
        };
        with(1, |cx| p.on_change(cx, &path));
        assert_eq!(limit(&mut p).planner.config().packet_size, Bytes(600));
    }
}
