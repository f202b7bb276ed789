//! Recomputes the media rate while the capacity changes.

use core::time::Duration;

use super::curve::ServiceCurve;
use super::exact::{Burst, Frames, Plan, PlanProblem, Skip, plan};
use crate::units::{Bytes, Rate, Time};

/// Parameters of the planner. [`PlannerConfig::new`] has the defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannerConfig {
    /// The encoder's lowest rate, payload only.
    pub floor: Rate,
    /// The encoder's highest rate, payload only.
    pub ceiling: Rate,
    /// Frame interval.
    pub frame_interval: Duration,
    /// A full packet on the wire, every header included.
    pub packet_size: Bytes,
    /// Size of the headers in such a packet.
    pub overhead: Bytes,
    /// Fraction of the forecast to use, in 0..=1. Default 0.95: at less than the capacity a queue
    /// drains, and the measured capacity may be wrong by a few percent.
    pub margin: f64,
    /// Fraction of the capacity that remains after a sudden drop, in 0..=1. Default 0.25: a modem
    /// changes its coding, or one to three flows start.
    pub worst_drop: f64,
    /// Time from such a drop to the first frame encoded for it. Default 120 ms: report interval
    /// (50 ms), return path (30 ms), half a frame interval and the encoder (together 40 ms).
    pub reaction: Duration,
    /// Largest cost of headroom against such a drop, as a fraction of the capacity in 0..=0.3.
    /// Larger values count as 0.3: at less than two thirds of the forecast the sender no longer
    /// tests it, and the estimate drifts above the capacity. Budgets of about 3 × `reaction` or
    /// more need no headroom; at 150 ms full headroom would cost more than half of the rate.
    /// Default 0.25: a few late frames per drop cost less than more headroom.
    pub headroom: f64,
    /// Queueing delay that is not drained, in addition to one frame and one packet. Default 10 ms:
    /// jitter causes such readings.
    pub reserve: Duration,
    /// Time in which to drain a queue above the reserve. Default 250 ms, about two control loops: a
    /// shorter time would drain the same excess twice.
    pub drain: Duration,
    /// Lifetime of a capacity sample. Default 1 s, about twenty samples.
    pub memory: Duration,
    /// Quantile of the samples that is the forecast, in 0..=1. Default: the lower quartile.
    pub quantile: f64,
    /// Time without a queue after which the forecast grows. Default 1 s.
    pub hold: Duration,
    /// Acceleration of the growth, as a fraction of the forecast per s². Growth starts slowly, as
    /// the capacity has most likely not changed. Default 0.5: the forecast reaches four times the
    /// capacity in 2.4 s after `hold`.
    pub acceleration: f64,
    /// Fastest growth, as a fraction of the forecast per second. Default 1: the overshoot in
    /// `reaction` is 12 %, or 13 ms of queue.
    pub growth: f64,
    /// Time in which the media rate may rise from zero to the capacity. Default 500 ms. Decreases
    /// are not limited.
    pub rise: Duration,
    /// Relative changes up to this are not applied, so that noise does not reconfigure the encoder.
    /// Must be less than 1 − `margin`, as the rate may exceed the law by that much. Default 0.02.
    pub dead_band: f64,
    /// Whether to keep to a low rate next to competing flows that hold the queue, instead of taking
    /// a share. Default off: a share loses a few percent of the frames when the queue overflows,
    /// but the floor rate costs picture quality.
    pub yields: bool,
}

/// Input of one planning step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanInput {
    /// Bytes queued in the sender and in the network, headers included.
    pub backlog: Bytes,
    /// Bound minus propagation, receiver and encoder delay.
    pub budget: Duration,
    /// Part of the bound reserved for repairs. It is not included in the budget. The law does not
    /// use it, but the headroom does: a capacity drop is too rare to coincide with repairs.
    pub repair_reserve: Duration,
    /// Time until the next frame.
    pub next_frame: Duration,
    /// Owner of the queue of the path.
    pub queue: QueueOwner,
}

/// Owner of the queue of the path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum QueueOwner {
    /// This sender: the queue is part of the backlog and shrinks when less is sent.
    #[default]
    Own,
    /// A competing loss-based flow. The queueing delay is subtracted from the budget. The estimated
    /// capacity is this sender's share, and no part of it is reserved to drain a queue or as
    /// headroom.
    Competing {
        /// Fraction of the share to use, in 0..=1.
        part: f64,
    },
}

/// Result of one planning step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Rate for the encoder, payload only, within floor and ceiling.
    pub media: Rate,
    /// Capacity used for the plan, on the wire.
    pub capacity: Rate,
    /// Input of the step.
    pub situation: PlanInput,
    /// Result of the law without headroom, rates on the wire.
    pub plan: Plan,
}

/// A receding-horizon planner: the plan has no end and is recomputed at every report and event.
///
/// The media rate is the minimum of
/// - the law on the forecast: `margin` of the capacity;
/// - the rate that drains the queue to the reserve within `drain`;
/// - the rate with headroom: the law on a forecast that drops to `worst_drop` of the capacity for
///   one `reaction`, and the rate at which bytes encoded before the reaction still leave in time if
///   such a drop lasts; at least `margin − headroom` of the capacity;
/// - the ceiling.
#[derive(Clone, Debug)]
pub struct Planner {
    config: PlannerConfig,
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
            headroom: HEADROOM,
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

    /// Fraction of the capacity that remains at the largest cost of headroom.
    pub(super) fn least(&self) -> f64 {
        (self.margin - self.headroom.clamp(0.0, MAX_HEADROOM)).max(0.0)
    }

    /// Payload rate of the rate `wire`.
    pub fn payload(&self, wire: Rate) -> Rate {
        wire.scale(
            self.packet_size.saturating_sub(self.overhead).get(),
            self.packet_size.get(),
        )
    }

    /// Rate on the wire of the rate `payload`, rounded up.
    pub fn wire(&self, payload: Rate) -> Rate {
        let room = self.packet_size.saturating_sub(self.overhead).get().max(1);
        payload.scale(self.packet_size.get(), room) + Rate::bps(u64::from(payload > Rate::ZERO))
    }
}

impl Planner {
    /// A planner without a plan.
    pub fn new(config: PlannerConfig) -> Self {
        Self {
            config,
            stall_until: None,
            last: None,
        }
    }

    /// Current parameters.
    pub fn config(&self) -> &PlannerConfig {
        &self.config
    }

    /// Changes the parameters.
    pub fn reconfigure(&mut self, config: PlannerConfig) {
        self.config = config;
    }

    /// The capacity is that of a controller which measures the path and keeps its queue short. The plan uses all
    /// of it from now on, without headroom.
    pub fn trust_capacity(&mut self) {
        self.config.margin = KNOWN_MARGIN;
        self.config.headroom = 0.0;
    }

    /// Sets the end of an outage; `None` if the path works.
    pub fn set_stall(&mut self, until: Option<Time>) {
        self.stall_until = until;
    }

    /// Computes a plan for a path that carries `capacity` on the wire.
    pub fn plan(&mut self, now: Time, situation: PlanInput, capacity: Rate) -> Decision {
        let part = match situation.queue {
            QueueOwner::Own => self.config.margin,
            QueueOwner::Competing { part } => self.config.margin * part,
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

    /// Computes a plan from an external forecast, e.g. of a kernel's TCP. `capacity` is its present
    /// rate.
    pub fn plan_on(
        &mut self,
        now: Time,
        situation: PlanInput,
        curve: &ServiceCurve,
        capacity: Rate,
    ) -> Decision {
        let plan = self.law(curve, situation);
        let floor = self.config.wire(self.config.floor);
        let wire = match plan.rate() {
            None => floor,
            Some(law) if situation.queue != QueueOwner::Own => {
                self.smooth(now, law.max(floor), law, capacity)
            }
            Some(law) => {
                let wanted = law
                    .min(self.drains(capacity, situation.backlog))
                    .min(self.with_headroom(capacity, situation))
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

    /// The law as of the next frame; no bytes are made before it.
    fn law(&self, curve: &ServiceCurve, situation: PlanInput) -> Plan {
        let next = situation.next_frame;
        let carried = Bytes(curve.at(next) as u64 / 8);
        let later = curve.from(next);
        plan(&PlanProblem {
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

    /// The rate that survives a sudden drop, within the allowed cost of headroom.
    fn with_headroom(&self, capacity: Rate, situation: PlanInput) -> Rate {
        let c = &self.config;
        let situation = PlanInput {
            budget: situation.budget + situation.repair_reserve,
            ..situation
        };
        let worst_drop = c.worst_drop.min(c.margin);
        let dip = ServiceCurve::steps(&[
            (c.reaction, share(capacity, worst_drop)),
            (Duration::ZERO, share(capacity, c.margin)),
        ]);
        let dips = self.law(&dip, situation).rate().unwrap_or(Rate::ZERO);
        // Q + b + h·r ≤ worst_drop·C·(r + d): the last byte made before the reaction leaves in
        // time.
        let reach = share(capacity, worst_drop) * (c.reaction + situation.budget);
        let room = reach - situation.backlog - c.packet_size;
        let lasts = room / (c.reaction + c.frame_interval);
        dips.min(lasts).max(share(capacity, c.least()))
    }

    /// Rate at which the queue is down to the reserve after `drain`.
    fn drains(&self, capacity: Rate, backlog: Bytes) -> Rate {
        let c = &self.config;
        let leave = capacity * (c.reserve + c.frame_interval) + c.packet_size;
        share(capacity, c.margin) - (backlog - leave) / c.drain
    }

    /// Applies decreases at once, limits increases and ignores changes within the dead band.
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

    /// Whether some rate meets the bound.
    pub fn feasible(&self) -> bool {
        self.plan.rate().is_some()
    }
}

pub(super) fn share(rate: Rate, share: f64) -> Rate {
    Rate::from_f64(rate.as_f64() * share.clamp(0.0, 1.0))
}

/// Margin for a rate that the controller keeps to itself: frames vary by a few percent.
const KNOWN_MARGIN: f64 = 0.98;
/// Default of [`PlannerConfig::headroom`].
const HEADROOM: f64 = 0.25;
/// See [`PlannerConfig::headroom`].
const MAX_HEADROOM: f64 = 0.3;

#[cfg(test)]
mod tests;
