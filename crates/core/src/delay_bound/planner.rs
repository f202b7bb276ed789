//! Plans again and again while the forecast changes.

use core::time::Duration;
use std::collections::VecDeque;

use super::curve::ServiceCurve;
use super::exact::{Burst, Case, Frames, Plan, Skip, plan};
use crate::units::{Bytes, Rate, Time};

/// What the planner assumes. `PlannerConfig::new` has the defaults and their reasons.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannerConfig {
    /// The encoder's lowest rate, payload only.
    pub floor: Rate,
    /// Its highest.
    pub ceiling: Rate,
    /// From one frame to the next.
    pub frame_interval: Duration,
    /// A full packet on the wire, every header included.
    pub packet_size: Bytes,
    /// How much of it is headers.
    pub overhead: Bytes,
    /// Share of the forecast that is used, in 0..=1. 0.95: with less than the whole a queue
    /// drains by itself, and the measured capacity may be a few percent wrong.
    pub margin: f64,
    /// How much capacity may be left after a sudden drop, as a share, in 0..=1. A quarter: a
    /// modem that changes its coding, a second flow or three that start.
    pub worst_drop: f64,
    /// From such a drop to the first frame that is made for it: a report interval (50 ms), the way
    /// back (30 ms), half a frame interval and the encoder (30 ms).
    pub reaction: Duration,
    /// The most that headroom against such a drop may cost, as a share of the capacity, in
    /// 0..=0.3; more counts as 0.3, because a forecast that is used by less than two thirds is no
    /// longer tested by what is sent, and floats above the capacity.
    /// With budgets of about 3 × `reaction` or more it costs nothing; with 150 ms full headroom
    /// would cost more than half. A quarter: past that, a few late frames per drop are the lesser evil.
    pub headroom: f64,
    /// Queue that is left alone, above one frame and one packet: jitter makes such readings.
    pub reserve: Duration,
    /// Time in which to drain what is above the reserve. About two loops of report and
    /// reaction: faster, and the same excess is drained twice.
    pub drain: Duration,
    /// How long a capacity sample counts. A second holds about twenty samples.
    pub memory: Duration,
    /// Which quantile of the samples is the forecast, in 0..=1. The lower quartile.
    pub quantile: f64,
    /// How long after the last sign of a queue the forecast stays before it grows.
    pub hold: Duration,
    /// How fast the growth itself grows, as a share of the forecast per s². Slow at first, as the
    /// capacity is most likely what it was; a half finds four times the capacity in 2.4 s.
    pub acceleration: f64,
    /// The fastest growth, as a share of the forecast per second. One overshoots by 12 % in
    /// `reaction`, which is 13 ms of queue.
    pub growth: f64,
    /// Time in which the media rate may rise from nothing to the capacity. Falls are not limited.
    pub rise: Duration,
    /// Changes smaller than this share are not made, so that the encoder is not kept busy by
    /// noise. Less than `margin` leaves, as the rate may be that much above the law.
    pub dead_band: f64,
    /// Beside others who hold the queue, as TCP transfers, stay thin rather than take a share. Not
    /// so: a share costs a few frames in a hundred, which are lost where the queue overflows, and
    /// the floor costs the picture.
    pub yields: bool,
}

/// What the planner is told at every turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Situation {
    /// What waits in the sender and in the network, headers included.
    pub backlog: Bytes,
    /// Bound minus propagation, receiver and encoder lag.
    pub budget: Duration,
    /// What the caller has kept back of the bound beside the budget, for repairs. Insurance may
    /// count on it: a drop of the capacity is too rare to be insured against losses as well.
    pub kept_back: Duration,
    /// From now to the next frame.
    pub next_frame: Duration,
    /// Who holds the queue of the path.
    pub queue: QueueOwner,
}

/// Who holds the queue of the path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum QueueOwner {
    /// We do: it is part of the backlog, and shrinks when less is sent.
    #[default]
    Us,
    /// Somebody who does not give way, as a TCP transfer. It is taken from the budget, and what
    /// the path is believed to carry is a share of it that nothing is kept back of, neither to
    /// drain a queue nor as headroom.
    Others {
        /// How much of the share is used, in 0..=1.
        part: f64,
    },
}

/// What it answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// For the encoder, payload only, within floor and ceiling.
    pub media: Rate,
    /// The capacity that was planned with, on the wire.
    pub capacity: Rate,
    /// As told.
    pub situation: Situation,
    /// The law's own answer to the forecast without headroom, rates on the wire.
    pub plan: Plan,
}

/// A receding horizon: a plan for ever, made anew at every report and event.
///
/// The media rate is the lowest of
/// - the law on the forecast: `margin` of the capacity, for ever;
/// - what drains the queue to the reserve within `drain`;
/// - the insured rate: the law again on a forecast with only `worst_drop` of the capacity for one
///   `reaction`, and what survives a drop to `worst_drop` that lasts, so that bytes made before the
///   reaction still leave in time; but never less than `margin − headroom` of the capacity;
/// - the ceiling.
#[derive(Clone, Debug)]
pub struct Planner {
    config: PlannerConfig,
    forecast: Forecast,
    /// A first idea of a capacity that has just fallen.
    hint: Option<Rate>,
    /// Nobody offers more than this: the inner controller's own limit.
    upper: Rate,
    stall_until: Option<Time>,
    last: Option<(Time, Rate)>,
}

impl PlannerConfig {
    /// The defaults, for 30 frames per second and packets of 1,200 bytes.
    pub fn new(floor: Rate, ceiling: Rate) -> Self {
        Self {
            floor,
            ceiling,
            frame_interval: Duration::from_nanos(33_333_333),
            packet_size: Bytes(1_200),
            overhead: Bytes(40),
            margin: 0.95,
            worst_drop: 0.25,
            reaction: Duration::from_millis(120),
            headroom: 0.25,
            reserve: Duration::from_millis(10),
            drain: Duration::from_millis(250),
            memory: Duration::from_secs(1),
            quantile: 0.25,
            hold: Duration::from_secs(1),
            acceleration: 0.5,
            growth: 1.0,
            rise: Duration::from_millis(500),
            dead_band: 0.02,
            yields: false,
        }
    }

    /// The share of the capacity that is left when the headroom costs the most that it may.
    fn least(&self) -> f64 {
        (self.margin - self.headroom.clamp(0.0, MOST_INSURANCE)).max(0.0)
    }

    /// Payload in `wire`.
    pub fn payload(&self, wire: Rate) -> Rate {
        wire.scale(
            self.packet_size.saturating_sub(self.overhead).get(),
            self.packet_size.get(),
        )
    }

    /// What `payload` becomes on the wire, rounded up.
    pub fn wire(&self, payload: Rate) -> Rate {
        let room = self.packet_size.saturating_sub(self.overhead).get().max(1);
        payload.scale(self.packet_size.get(), room) + Rate::bps(u64::from(payload > Rate::ZERO))
    }
}

impl Planner {
    /// A planner that has seen nothing: it plans with [`set_upper`](Self::set_upper).
    pub fn new(config: PlannerConfig) -> Self {
        Self {
            config,
            forecast: Forecast::default(),
            hint: None,
            upper: Rate::MAX,
            stall_until: None,
            last: None,
        }
    }

    /// What it assumes.
    pub fn config(&self) -> &PlannerConfig {
        &self.config
    }

    /// Other limits of the encoder, other packets; what was learnt of the path stays.
    pub fn reconfigure(&mut self, config: PlannerConfig) {
        self.config = config;
    }

    /// The path is a new one.
    pub fn forget_path(&mut self) {
        self.forecast = Forecast::default();
        self.hint = None;
    }

    /// The path delivered `rate` while it had a queue of ours.
    pub fn observe_capacity(&mut self, now: Time, rate: Rate) {
        self.hint = None;
        self.forecast.observe(now, rate.as_f64(), &self.config);
    }

    /// The same, and the queue grew: an estimate above it is wrong as of now, whatever the
    /// samples before said.
    pub fn observe_drop(&mut self, now: Time, rate: Rate) {
        self.hint = None;
        self.forecast.drop_to(now, rate.as_f64(), &self.config);
    }

    /// The queue grew, and this is a first idea of what the path carries, wrong by a third perhaps.
    /// If it is further than that below the estimate, it lowers the plan until there is a sample
    /// or no queue; the estimate itself waits for the sample.
    pub fn observe_hint(&mut self, rate: Rate) {
        let known = self.measured().map_or(self.upper, |c| c.min(self.upper));
        self.hint = Some(rate).filter(|hint| *hint < share(known, BELOW_DOUBT));
    }

    /// There is a queue that neither grows nor shrinks while the path delivers `rate`: either
    /// that is the capacity, or the delay is not ours. The estimate goes there slowly.
    pub fn observe_steady(&mut self, now: Time, rate: Rate) {
        self.forecast.lean(now, rate.as_f64());
    }

    /// The path carried `rate` and no queue formed: it may carry more.
    pub fn observe_idle(&mut self, now: Time, rate: Rate) {
        self.hint = None;
        self.forecast
            .grow(now, rate.as_f64(), self.upper.as_f64(), &self.config);
    }

    /// The queue of late is not ours, so what was carried meanwhile was what was sent: the path
    /// carries what was believed before.
    pub fn restore(&mut self, now: Time) {
        self.hint = None;
        self.forecast.restore(now);
    }

    /// Nobody offers more than this.
    pub fn set_upper(&mut self, upper: Rate) {
        self.upper = upper;
    }

    /// The path carries nothing until then; `None` takes it back.
    pub fn set_stall(&mut self, until: Option<Time>) {
        self.stall_until = until;
    }

    /// What the path is believed to carry on the wire: measured, or else the upper limit.
    pub fn capacity(&self) -> Rate {
        let known = self.measured().map_or(self.upper, |c| c.min(self.upper));
        self.hint.map_or(known, |hint| hint.min(known))
    }

    /// What was measured; `None` before the first queue.
    pub fn measured(&self) -> Option<Rate> {
        self.forecast.estimate.map(Rate::from_f64)
    }

    /// Plans on what was observed.
    pub fn plan(&mut self, now: Time, situation: Situation) -> Decision {
        let capacity = self.capacity();
        let part = match situation.queue {
            QueueOwner::Us => self.config.margin,
            QueueOwner::Others { part } => self.config.margin * part,
        };
        let after = ServiceCurve::constant(share(capacity, part));
        let stall = self
            .stall_until
            .map_or(Duration::ZERO, |until| until.since(now));
        if stall.is_zero() {
            self.plan_on(now, situation, &after, capacity)
        } else {
            let curve = ServiceCurve::stall_then(stall, &after);
            self.plan_on(now, situation, &curve, capacity)
        }
    }

    /// Plans on a forecast from elsewhere, e.g. of a kernel's TCP. `capacity` is what it carries
    /// at present.
    pub fn plan_on(
        &mut self,
        now: Time,
        situation: Situation,
        curve: &ServiceCurve,
        capacity: Rate,
    ) -> Decision {
        let plan = self.law(curve, situation);
        let floor = self.config.wire(self.config.floor);
        let wire = match plan.rate() {
            None => floor,
            Some(law) if situation.queue != QueueOwner::Us => {
                self.smooth(now, law.max(floor), law, capacity)
            }
            Some(law) => {
                let wanted = law
                    .min(self.drains(capacity, situation.backlog))
                    .min(self.insured(capacity, situation))
                    .max(floor);
                self.smooth(now, wanted, law, capacity)
            }
        };
        self.last = Some((now, wire));
        let payload = self.config.payload(wire);
        let media = payload.min(self.config.ceiling).max(self.config.floor);
        Decision {
            media,
            capacity,
            situation,
            plan,
        }
    }

    /// The law as of the next frame, since nothing is made before it.
    fn law(&self, curve: &ServiceCurve, situation: Situation) -> Plan {
        let next = situation.next_frame;
        let carried = Bytes(curve.at(next) as u64 / 8);
        let later = curve.from(next);
        plan(&Case {
            curve: &later,
            backlog: situation.backlog - carried,
            budget: situation.budget,
            burst: Burst::frame(self.config.frame_interval, self.config.packet_size),
            floor: self.config.wire(self.config.floor),
            ceiling: self.config.wire(self.config.ceiling),
            frames: Frames {
                next: Duration::ZERO,
                interval: self.config.frame_interval,
            },
        })
    }

    /// The rate that stands a sudden drop, as far as the headroom pays.
    fn insured(&self, capacity: Rate, situation: Situation) -> Rate {
        let c = &self.config;
        let situation = Situation {
            budget: situation.budget + situation.kept_back,
            ..situation
        };
        let worst_drop = c.worst_drop.min(c.margin);
        let dip = ServiceCurve::steps(&[
            (c.reaction, share(capacity, worst_drop)),
            (Duration::ZERO, share(capacity, c.margin)),
        ]);
        let dips = self.law(&dip, situation).rate().unwrap_or(Rate::ZERO);
        // Q + b + h·r ≤ worst_drop·C·(r + d): the last byte made before the reaction leaves in time.
        let reach = share(capacity, worst_drop) * (c.reaction + situation.budget);
        let room = reach - situation.backlog - c.packet_size;
        let lasts = room / (c.reaction + c.frame_interval);
        dips.min(lasts).max(share(capacity, c.least()))
    }

    /// The rate at which the queue is down to the reserve after `drain`.
    fn drains(&self, capacity: Rate, backlog: Bytes) -> Rate {
        let c = &self.config;
        let leave = capacity * (c.reserve + c.frame_interval) + c.packet_size;
        share(capacity, c.margin) - (backlog - leave) / c.drain
    }

    /// Falls at once, rises in steps, and stays where a change is too small to matter.
    fn smooth(&self, now: Time, wanted: Rate, law: Rate, capacity: Rate) -> Rate {
        let Some((then, old)) = self.last else {
            return wanted;
        };
        let near = old.as_f64() * self.config.dead_band;
        // Above the law by less than the band is within `margin`.
        let kept = (wanted.as_f64() - old.as_f64()).abs() <= near;
        if kept && old.as_f64() - law.as_f64() <= near {
            return old;
        }
        let rise = (capacity * now.since(then)) / self.config.rise;
        wanted.min(old + rise)
    }
}

impl Decision {
    /// Which frames to skip; `None` when the plan is feasible.
    pub fn skip(&self) -> Option<Skip> {
        match self.plan {
            Plan::Feasible { .. } => None,
            Plan::Infeasible { skip, .. } => Some(skip),
        }
    }

    /// Whether some rate keeps the promise.
    pub fn feasible(&self) -> bool {
        self.plan.rate().is_some()
    }
}

/// A low quantile of recent samples; it grows when there is no queue to measure by.
#[derive(Clone, Debug, Default)]
struct Forecast {
    samples: VecDeque<(Time, f64)>,
    estimate: Option<f64>,
    /// When there last was a queue.
    queue_at: Time,
    /// When [`grow`](Self::grow) was last called.
    grown_at: Time,
    /// What the estimate was then.
    free: f64,
}

impl Forecast {
    fn observe(&mut self, now: Time, rate: f64, config: &PlannerConfig) {
        self.samples.push_back((now, rate));
        while self
            .samples
            .front()
            .is_some_and(|(at, _)| now.since(*at) > config.memory)
        {
            self.samples.pop_front();
        }
        let mut sorted: Vec<f64> = self.samples.iter().map(|(_, r)| *r).collect();
        sorted.sort_by(f64::total_cmp);
        let rank = (sorted.len() - 1) as f64 * config.quantile.clamp(0.0, 1.0);
        self.estimate = Some(sorted[rank as usize]);
        self.queue_at = now;
    }

    fn drop_to(&mut self, now: Time, rate: f64, config: &PlannerConfig) {
        if self.estimate.is_none_or(|e| rate < e) {
            self.samples.clear();
        }
        self.observe(now, rate, config);
    }

    fn lean(&mut self, now: Time, rate: f64) {
        let dt = now.since(self.queue_at.max(self.grown_at)).as_secs_f64();
        if let Some(estimate) = &mut self.estimate
            && *estimate > rate
        {
            *estimate = rate.max(*estimate * (1.0 - LEAN * dt.min(1.0)));
        }
        self.queue_at = now;
    }

    fn grow(&mut self, now: Time, carried: f64, upper: f64, config: &PlannerConfig) {
        let dt = now.since(self.grown_at.max(self.queue_at)).as_secs_f64();
        self.grown_at = now;
        let Some(estimate) = self.estimate else {
            return;
        };
        let mut next = estimate.max(carried.min(estimate * BELIEVED));
        // A source that does not use what it may has shown nothing.
        let used = carried >= USED * config.least() * estimate;
        let quiet = now
            .since(self.queue_at)
            .saturating_sub(config.hold)
            .as_secs_f64();
        if used {
            // A packet per frame beside what is in proportion: who has little gains more by it than
            // who has much, so that streams on one path come to equal shares.
            let step = (config.packet_size / config.frame_interval).as_f64();
            next += (next + step) * (config.acceleration * quiet).min(config.growth) * dt.min(0.2);
        }
        let next = next.min(estimate.max(upper));
        (self.estimate, self.free) = (Some(next), next);
    }

    fn restore(&mut self, now: Time) {
        self.samples.clear();
        if let Some(estimate) = &mut self.estimate
            && now.since(self.grown_at) < REMEMBERED
        {
            *estimate = estimate.max(self.free);
        }
    }
}

fn share(rate: Rate, share: f64) -> Rate {
    Rate::from_f64(rate.as_f64() * share.clamp(0.0, 1.0))
}

/// See [`PlannerConfig::headroom`].
const MOST_INSURANCE: f64 = 0.3;
/// Per second. A queue of ours that stands is gone in a second or two; a delay that is not ours
/// costs a quarter of the rate in the three seconds until it is known as such.
const LEAN: f64 = 0.1;
/// What a path carried this long ago without a queue says nothing of what it carries now.
const REMEMBERED: Duration = Duration::from_secs(5);
/// A hint is made of two gaps or more, so that one more packet of another flow in one of them makes
/// it a third too low.
const BELOW_DOUBT: f64 = 2.0 / 3.0;
/// A report of 50 ms has one frame or two of 30 in a second, and two are a third more than the mean. With
/// all of it believed, a thin stream whose packets jitter had brought together took twice or thrice
/// its capacity for real, and made a queue of 200 ms of it.
const BELIEVED: f64 = 4.0 / 3.0;
/// Frames differ in size, and a rate over one report of 50 ms sees one or two of them.
const USED: f64 = 0.8;

#[cfg(test)]
mod tests;
