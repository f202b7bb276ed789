//! Tide: a short queue where the path allows it, a fair share where others fill the queue, and the
//! full rate where a link loses packets.
//!
//! `docs/tide.md` describes the law, its parts, and what they gain.

mod competition;
mod config;
mod delay_law;
mod sparse_reports;

use core::time::Duration;

use crate::control::{
    Change, Context, Demand, Outcome, RateController, Report, Sent, Spacing, Start, Summary,
    Target, TimerReason, sooner,
};
use crate::path::{Bottleneck, News, Path, Queue};
use crate::trace::Event;
use crate::units::{Bytes, Rate, Time};
use competition::{Competition, Limits};
pub use config::{Friend, TideConfig};
use delay_law::DelayLaw;

/// One path under tide. Rates are in bytes per second, times in seconds.
#[derive(Debug)]
struct Tide {
    config: TideConfig,
    law: DelayLaw,
    competition: Competition,
    silence: Silence,
    rate: f64,
    demand: Demand,
    /// Whether packets wait for longer than [`FLOODED`], and whether they have shown that the path carries
    /// less than the floor of the demand.
    is_flooded: bool,
    is_below_floor: bool,
    /// Packet size of the path, and time of its first use.
    size: Bytes,
    /// Times of the last report, of the last update and of the last update between reports.
    reported: Time,
    /// Since when packets are in flight.
    waits_since: Time,
    updated: Time,
    adjusted: Time,
    interval: Duration,
    totals: Summary,
    /// Time of the last event about the path.
    traced: Time,
}

/// Silence of the path: no report although packets are in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    is_on: bool,
    /// Rate before, and the time of its end.
    rate: f64,
    ended: Option<f64>,
}

impl Tide {
    fn new(config: &TideConfig, start: &Start) -> Self {
        let mut tide = Self {
            config: config.clone(),
            law: DelayLaw::new(),
            competition: Competition::new(config.friend),
            silence: Silence::default(),
            rate: 0.0,
            demand: start.demand,
            is_flooded: false,
            is_below_floor: false,
            size: start.packet_size,
            reported: start.now,
            waits_since: start.now,
            updated: start.now,
            adjusted: start.now,
            interval: Duration::ZERO,
            totals: Summary::default(),
            traced: start.now,
        };
        tide.begin(start.now);
        tide
    }

    /// Begins with an unknown path. What a [`Prior`](crate::control::Prior) allows is probed around the
    /// controller, see [`careful_resume`](crate::controller::careful_resume).
    fn begin(&mut self, now: Time) {
        self.law = DelayLaw::new();
        self.competition = Competition::new(self.config.friend);
        self.silence = Silence::default();
        self.rate = START_PACKETS * self.size.get().max(1) as f64;
        (self.is_flooded, self.is_below_floor) = (false, false);
        (self.reported, self.updated, self.adjusted) = (now, now, now);
        self.waits_since = now;
    }

    /// Processes the measurements since the last update.
    fn update(&mut self, cx: &mut Context<'_>, path: &mut Path, fall: Option<f64>) {
        let span = cx.now.since(self.updated).as_secs_f64().min(LONGEST_SPAN);
        let Some(queue) = path.delays().take(span) else {
            return;
        };
        (self.updated, self.adjusted) = (cx.now, cx.now);
        self.is_flooded = queue.now > FLOODED;
        let (rtt, size, now) = (path.rtt(), path.size(), path.seconds(cx.now));
        path.delivery().set_span(rtt, size);
        if self.holds(path, now, queue) {
            return;
        }
        let delivered = path.rate().max(size);
        self.competition.on_rate(delivered, rtt, span);
        if let Some(rate) = fall {
            self.on_fall(cx, path, rate);
        }
        let input = delay_law::Input {
            now,
            span,
            queue,
            age: path.age(cx.now),
            is_congested: self.competition.is_congested(now, 2.0 * rtt),
        };
        let (is_start, is_on) = (self.law.is_start, self.competition.is_on);
        let wanted = self.law.update(path, input);
        let (limits, overflow) = self.competition.update(
            path,
            competition::Input {
                now,
                span,
                queue,
                target: self.law.target,
                full_target: self.law.full_target,
                is_start: self.law.is_start,
                least_rate: self.least(path),
            },
        );
        if let Some(overflow) = overflow {
            self.law
                .on_overflow(now, overflow.queue, overflow.is_strong);
        }
        let mut rate = wanted;
        if let Some(limits) = limits {
            rate = rate.min(limits.most).max(limits.least);
        }
        if !self.law.is_start {
            rate = rate.min(path.delivery().ceiling());
        }
        // Losses that have ended must not hold the rate down.
        let losses = path.losses();
        if losses.fraction() > HEAVY_LOSS && losses.go_on(rtt + RECENTLY) {
            rate = rate.min(0.85 * delivered);
            self.law.is_start = false;
        }
        self.rate = rate.max(self.least(path));
        let is_below = 8.0 * self.rate < self.demand.floor.as_f64();
        self.is_below_floor = is_below && (self.is_below_floor || self.is_flooded);
        self.trace(cx, path, limits, (is_start, is_on));
    }

    /// The path became slower suddenly.
    fn on_fall(&mut self, cx: &mut Context<'_>, path: &mut Path, rate: f64) {
        let (from, to) = (self.path_rate(), Rate::from_f64(8.0 * rate));
        cx.trace.record(cx.now, Event::PathFell { from, to });
        path.on_fall(rate);
        let now = path.seconds(cx.now);
        let (in_flight, rtt) = (path.in_flight(), path.rtt());
        let drains = self.law.on_fall(now, in_flight, rate, rtt);
        self.competition.on_fall(rate, drains);
    }

    /// Records the decisions of an update. `before`: whether the start and the competition went on
    /// until then.
    fn trace(
        &mut self,
        cx: &mut Context<'_>,
        path: &Path,
        limits: Option<Limits>,
        before: (bool, bool),
    ) {
        let (is_start, is_on) = (self.law.is_start, self.competition.is_on);
        let now = cx.now;
        if before.0 && !is_start {
            let rate = self.path_rate();
            cx.trace.record(now, Event::SlowStartEnded { rate });
        }
        if before.1 != is_on {
            let event = if is_on {
                Event::QueueContested
            } else {
                Event::QueueSettled
            };
            cx.trace.record(now, event);
        }
        if before != (is_start, is_on) || now.since(self.traced) >= TRACED {
            self.traced = now;
            let rate = |rate| Rate::from_f64(8.0 * rate);
            let losses = path.losses();
            let event = Event::PathEstimated {
                capacity: self.path_rate(),
                share: path.share(),
                loss: losses.fraction(),
                congestion: losses.congestion_share(),
                least: limits.map(|l| rate(l.least)),
                most: limits.map(|l| rate(l.most)),
            };
            cx.trace.record(now, event);
        }
    }

    /// Rate that the path carries.
    fn path_rate(&self) -> Rate {
        Rate::from_f64(8.0 * self.rate.max(self.law.path_rate))
    }

    /// For a round trip after a silence, the rate is that before it, until there are measurements.
    fn holds(&mut self, path: &mut Path, now: f64, queue: Queue) -> bool {
        let Some(ended) = self.silence.ended else {
            return false;
        };
        let (rtt, span) = (path.rtt(), path.delivery().span());
        let is_over = now - ended >= rtt + span || (now - ended >= rtt && queue.now >= 0.05);
        if is_over {
            self.silence.ended = None;
        } else {
            self.rate = self.silence.rate;
        }
        !is_over
    }

    /// Feedback after a silence: the path carries the rate of before, or it held the packets back.
    fn resume(&mut self, cx: &mut Context<'_>, path: &mut Path) {
        let now = path.seconds(cx.now);
        self.silence.is_on = false;
        (self.updated, self.adjusted) = (cx.now, cx.now);
        let queue = path.delays().take(0.0).unwrap_or_default();
        if queue.mean > 0.1 + self.law.target {
            self.rate = (0.5 * self.silence.rate).max(self.least(path));
            self.law.is_start = false;
            self.silence.ended = None;
        } else {
            self.rate = self.silence.rate;
            self.silence.ended = Some(now);
        }
        path.delivery().set_rate(self.rate);
    }

    /// The path carried `rate`, which was probed instead of this controller's own.
    fn on_validated(&mut self, path: &mut Path, rate: Rate) {
        let rate = rate.as_f64() / 8.0;
        if rate > self.rate && self.law.is_start {
            self.rate = rate;
            path.delivery().set_rate(rate);
        }
    }

    /// Lowest rate of the law.
    fn least(&self, path: &Path) -> f64 {
        let packets = if self.is_flooded {
            FLOODED_PACKETS
        } else {
            MIN_PACKETS
        };
        packets * path.size()
    }

    /// Rate that is allowed: at least the floor of the demand, unless the path is known to carry less or
    /// is silent.
    fn allowed(&self) -> f64 {
        if self.silence.is_on || self.is_below_floor {
            self.rate
        } else {
            self.rate.max(self.demand.floor.as_f64() / 8.0)
        }
    }

    /// Time at which the path counts as silent.
    fn silent_at(&self, path: &Path) -> Option<Time> {
        let waits = !self.silence.is_on && path.in_flight() > 0.0 && path.rtt() > 0.0;
        let patience = self.interval.mul_f64(2.5).max(SILENCE);
        let rtt = Duration::from_secs_f64(path.rtt());
        // The report about the first packet after a pause takes a round trip.
        waits.then(|| self.reported.max(self.waits_since + rtt) + patience + rtt / 4)
    }

    /// Time of the next update between two reports.
    fn adjusts_at(&self) -> Option<Time> {
        let holds = self.silence.is_on || self.silence.ended.is_some();
        (self.interval > BETWEEN && !holds).then(|| self.adjusted + ADJUSTMENT)
    }

    /// Reacts to a report.
    fn follow(&mut self, cx: &mut Context<'_>, path: &mut Path, news: News) {
        if let Some(loss) = news.congestion {
            self.competition.on_congestion(loss);
        }
        if news.received == 0 {
            return;
        }
        // Flows that fill the queue make it longer all the time.
        let is_own = !self.competition.is_on && !self.law.is_start;
        let fall = news.fall.filter(|_| is_own);
        self.reported = cx.now;
        if self.silence.is_on {
            self.resume(cx, path);
        } else if fall.is_some() || cx.now.since(self.updated) >= PERIOD {
            self.update(cx, path, fall);
        }
    }

    /// Publishes what is known about the bottleneck.
    fn publish(&self, path: &mut Path) {
        path.set_bottleneck(Bottleneck {
            available: Some(self.path_rate()),
            is_contested: self.competition.is_on,
        });
    }

    fn count(&mut self, report: &Report<'_>) {
        for packet in report.packets {
            match packet.outcome {
                Outcome::Lost => self.totals.lost += 1,
                Outcome::Received { .. } => self.totals.delivered += packet.size,
            }
        }
    }
}

impl RateController for Tide {
    fn on_sent(&mut self, cx: &mut Context<'_>, packet: &Sent, path: &mut Path) {
        if path.in_flight() <= 0.0 {
            self.waits_since = cx.now;
        }
        path.on_sent(cx.now, packet, self.allowed());
    }

    fn on_report(&mut self, cx: &mut Context<'_>, report: &Report<'_>, path: &mut Path) {
        self.count(report);
        let is_restored = self.silence.is_on;
        let news = path.on_report(cx.now, cx.rng, report, is_restored, self.law.target);
        self.follow(cx, path, news);
        self.publish(path);
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>, path: &mut Path) {
        if self.silent_at(path).is_some_and(|at| at <= cx.now) {
            let rate = self.rate.min(1.1 * self.competition.slow_rate);
            self.silence = Silence {
                is_on: true,
                rate: rate.max(self.least(path)),
                ended: None,
            };
            let between = (path.rtt() / 4.0).max(PROBES);
            self.rate = path.size() / between;
            let rate = Rate::from_f64(8.0 * self.rate);
            cx.trace.record(cx.now, Event::NoFeedback { rate });
        }
        if self.adjusts_at().is_some_and(|at| at <= cx.now) {
            self.adjusted = cx.now;
            let age = path.age(cx.now);
            if let Some(rate) = self.law.between(path, age)
                && !self.competition.is_on
            {
                self.rate = rate.max(self.least(path));
            }
        }
        self.publish(path);
    }

    fn on_change(&mut self, cx: &mut Context<'_>, change: &Change, path: &mut Path) {
        match *change {
            Change::Demand(demand) => self.demand = demand,
            Change::Path { packet_size, .. } => {
                self.size = packet_size;
                self.begin(cx.now);
            }
            Change::Reports { interval } => self.interval = interval,
            Change::Validated { rate } => self.on_validated(path, rate),
            Change::LowerEffort(_) => {}
        }
        self.publish(path);
    }

    fn target(&self) -> Target {
        // Headers, repairs and a backlog come on top of the encoder's rate.
        let send = Rate::from_f64(8.0 * self.allowed());
        let mut target = Target::of(send).media(self.demand.ceiling);
        if !self.silence.is_on {
            target.spacing = Spacing::Dithered;
        }
        if self.law.is_start {
            target.burst = delay_law::TRAIN;
        }
        target
    }

    fn next_timeout(&self, path: &Path) -> Option<(Time, TimerReason)> {
        let silent = self.silent_at(path).map(|at| (at, TimerReason::Silence));
        let adjusts = self.adjusts_at().map(|at| (at, TimerReason::Increase));
        sooner(silent, adjusts)
    }

    fn summary(&self, path: &Path) -> Summary {
        let rtt = path.recent_min_rtt();
        Summary {
            rate: Rate::from_f64(8.0 * self.competition.slow_rate),
            min_rtt: (rtt > 0.0).then(|| Duration::from_secs_f64(rtt)),
            loss_event_rate: path.losses().all().event_rate(),
            ..self.totals
        }
    }

    fn reads_path(&self) -> bool {
        true
    }
}

/// Packets per second at the start.
const START_PACKETS: f64 = 30.0;
/// Packets per second that the law never goes below, and those while packets wait for long: ten of 1,200
/// bytes are 96 kb/s, which some paths do not have. Without a queue, jitter would hold a lower rate for
/// long.
const MIN_PACKETS: f64 = 10.0;
const FLOODED_PACKETS: f64 = 2.0;
/// A queue of this delay in seconds shows that the path carries less than the floor of the demand, if the
/// law asks for less. An error of the base delay, or a busy host, delays packets by less.
const FLOODED: f64 = 0.3;
/// Shortest time between two updates.
const PERIOD: Duration = Duration::from_millis(40);
/// Longest time that an update accounts for, in seconds.
const LONGEST_SPAN: f64 = 0.25;
/// Fraction of losses from which on the rate is below what arrives, and time since the last one, beyond a
/// round trip and in seconds, after which it no longer is: two reports.
const HEAVY_LOSS: f64 = 0.15;
const RECENTLY: f64 = 0.1;
/// Time without a report, beyond a quarter of a round trip, after which the path is silent.
const SILENCE: Duration = Duration::from_millis(200);
/// Reports that are further apart need updates in between, at this distance.
const BETWEEN: Duration = Duration::from_millis(60);
const ADJUSTMENT: Duration = Duration::from_millis(50);
/// Shortest time between two probes of a silent path, in seconds.
const PROBES: f64 = 0.02;
/// Time between two events about the path.
const TRACED: Duration = Duration::from_secs(1);
