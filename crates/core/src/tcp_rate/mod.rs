//! An application in symbiosis with its TCP: events and state of the connection in, a target rate
//! for the encoder out.
//!
//! [`TcpRateAdapter`] is the paper's glue between transport and transcoder (Khan and Zaghal, section 5)
//! in all its running modes. It does no I/O: the simulator drives it with the events of a TCP
//! model, a service for kernel sockets with those of a real one. A driver
//!
//! 1. calls [`on_event`](TcpRateAdapter::on_event) for what the connection does; what is not subscribed
//!    to is passed over;
//! 2. calls [`on_view`](TcpRateAdapter::on_view) with how it stands, after each acknowledgement and each
//!    write, or as often as it learns of it;
//! 3. calls [`on_timer`](TcpRateAdapter::on_timer) at [`next_timer`](TcpRateAdapter::next_timer);
//! 4. calls [`on_encoded`](TcpRateAdapter::on_encoded) for each frame, from which it learns how long an
//!    answer takes to have an effect;
//! 5. asks [`target`](TcpRateAdapter::target) what the encoder may make, or, if frames wait as pictures
//!    until the connection has room, [`admit`](TcpRateAdapter::admit) what to do with the oldest.

mod capacity;
mod event;
mod linear;
mod mode;
mod outage_margin;
mod path_history;
mod periodic_outages;
mod response_latency;
mod view;

#[cfg(test)]
mod tests;

use core::time::Duration;

pub use event::{Subscription, TcpEvent, Told};
pub use linear::{LINEAR_LATER, LINEAR_LEAST, LINEAR_RETRIES, linear_timeout};
pub use mode::{Backoff, Flags, Mode};
pub use response_latency::ResponseLatency;
pub use view::{CongestionControl, TcpView};

use self::path_history::PathHistory;
use self::response_latency::ResponseLatencies;
use crate::delay_bound::{
    Burst, Case, Congested, Frames, Law, Plan, Response, ServiceCurve, plan, satisfied_rate,
};
use crate::units::{Bytes, Rate, Time};

/// Configuration of a [`TcpRateAdapter`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TcpRateConfig {
    /// Reaction to events.
    pub mode: Mode,
    /// Events to be notified of.
    pub subscribed: Subscription,
    /// Lowest rate of the encoder.
    pub floor: Rate,
    /// Normal rate of the encoder, without congestion.
    pub ceiling: Rate,
    /// Delay bound, from the capture of a frame to its arrival.
    pub bound: Duration,
    /// Frame interval.
    pub interval: Duration,
    /// Simulated delay from an event until the encoder has its new rate; zero for a real encoder.
    pub obeys_after: Duration,
    /// τ of (13a) for the printed laws until it is measured; after that they use the largest of the
    /// last eight measurements.
    pub reaction: Duration,
    /// Fraction of the forecast that the exact law uses, in 0..=1.
    pub margin: f64,
    /// Time within which the exact law drains the backlog. Without it the law would use the whole
    /// bound all the time, and no budget would be left when the capacity drops. Backlog that would
    /// survive the worst recent outage may stay.
    pub drain: Duration,
}

impl TcpRateConfig {
    /// Nine tenths of the forecast: frames scatter about their budget by some percent, and round
    /// trips grow by what stands in queues.
    pub const MARGIN: f64 = 0.9;
    /// A [`drain`](Self::drain) that has proved itself for this `bound`: three fifths of it, and three
    /// seconds at least. The longer the bound, the more of it is left for the next cut.
    pub fn drain_within(bound: Duration) -> Duration {
        (bound * 3 / 5).max(Duration::from_secs(3))
    }
}

/// What to do with the oldest frame that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// Encode it at this rate and write it.
    Make(Rate),
    /// It will not be in time, or others would not because of it: leave it out.
    Skip,
    /// The connection has no room: ask again when something was acknowledged, or when the timer
    /// says so.
    Wait,
}

/// An answer to an event: a row of the paper's Table 6.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retraction {
    /// When the event came.
    pub at: Time,
    /// Which.
    pub event: TcpEvent,
    /// Make no more than this from then on (`h_best`).
    pub rate: Rate,
    /// For so long (`T_recovery`); none if the law knows no end, or plans anew all the time.
    pub lasts: Option<Duration>,
    /// Whether the law says that the bound holds.
    pub feasible: bool,
    /// The Q that it took.
    pub backlog: Bytes,
}

/// The state machine.
#[derive(Clone, Debug)]
pub struct TcpRateAdapter {
    config: TcpRateConfig,
    start: Time,
    target: Rate,
    /// The target from then on, because the encoder does not obey at once.
    pending: Option<(Time, Rate)>,
    /// When the reduced rate is over.
    until: Option<Time>,
    /// When [`Backoff::Additive`] last added.
    grown: Time,
    past: PathHistory,
    reactions: ResponseLatencies,
    counts: [u64; 6],
    answers: Vec<Retraction>,
}

impl TcpRateAdapter {
    /// A machine for a video that begins at `start`.
    pub fn new(config: TcpRateConfig, start: Time) -> Self {
        Self {
            config,
            start,
            target: config.ceiling,
            pending: None,
            until: None,
            grown: start,
            past: PathHistory::new(),
            reactions: ResponseLatencies::default(),
            counts: [0; 6],
            answers: Vec::new(),
        }
    }

    /// What it was made from.
    pub fn config(&self) -> &TcpRateConfig {
        &self.config
    }

    /// What the driver has to tell: nothing in the mode Classic.
    pub fn subscribed(&self) -> Subscription {
        if self.config.mode == Mode::Classic {
            Subscription::NONE
        } else {
            self.config.subscribed
        }
    }

    /// How often `event` was told.
    pub fn count(&self, event: TcpEvent) -> u64 {
        self.counts[event as usize]
    }

    /// What the encoder may make: the content of the paper's `rate.par`.
    pub fn target(&self) -> Rate {
        self.target
    }

    /// The answers to events since the last call of this.
    pub fn take_answers(&mut self) -> Vec<Retraction> {
        core::mem::take(&mut self.answers)
    }

    /// The connection did this, and stands so.
    pub fn on_event(&mut self, now: Time, told: Told, view: &TcpView) {
        let event = told.event;
        self.past.look(now, view, &self.config);
        //= itcp-3.1-subscribe
        if !self.subscribed().contains(event) {
            return;
        }
        self.counts[event as usize] += 1;
        if event == TcpEvent::ThirdDuplicate {
            self.past.lost(view, &self.config);
        }
        let reduces = matches!(event, TcpEvent::TimedOut | TcpEvent::ThirdDuplicate);
        match self.config.mode {
            Mode::Iexp(backoff) if reduces => self.step_back(now, told, backoff),
            Mode::Iopt(Law::Exact) => {
                let plan = self.replan(now, view, now);
                if reduces {
                    self.reactions.begin(now, told);
                    self.reactions.answered(now);
                    self.answers.push(Retraction {
                        at: now,
                        event,
                        rate: self.target,
                        lasts: match plan {
                            Plan::Feasible { recovery, .. } => recovery,
                            Plan::Infeasible { .. } => None,
                        },
                        feasible: plan.rate().is_some(),
                        backlog: view.backlog(),
                    });
                }
            }
            Mode::Iopt(law) if reduces => self.throttle(now, told, law, view),
            Mode::Classic | Mode::Ioff | Mode::Iexp(_) | Mode::Iopt(_) => {}
        }
    }

    /// The connection stands so. What it did meanwhile, and how long its round trips are, is learned from
    /// this.
    pub fn on_view(&mut self, now: Time, view: &TcpView) {
        self.past.look(now, view, &self.config);
    }

    /// A frame is encoded that was ordered at `ordered`. If it is the first at the rate with which an
    /// event was answered, how long that took.
    pub fn on_encoded(&mut self, now: Time, ordered: Time) -> Option<ResponseLatency> {
        self.reactions.encoded(now, ordered)
    }

    /// The moment of [`next_timer`](Self::next_timer) has come. Earlier is harmless.
    pub fn on_timer(&mut self, now: Time) {
        if let Some((_, rate)) = self.pending.take_if(|(at, _)| *at <= now) {
            self.target = rate;
            self.reactions.answered(now);
        }
        if self.until.take_if(|until| *until <= now).is_some() {
            //= itcp-5.2-recovery-timer
            self.pending = None;
            self.target = self.config.ceiling;
        }
        if let Mode::Iexp(Backoff::Additive { step, .. }) = self.config.mode
            && self.pending.is_none()
        {
            let passed = now.since(self.grown).as_secs_f64();
            let more = self.config.ceiling.as_f64() * step * passed;
            // Less than a bit is left for the next time.
            if more >= 1.0 || self.target == self.config.ceiling {
                self.target = (self.target + Rate::from_f64(more)).min(self.config.ceiling);
                self.grown = now;
            }
        }
    }

    /// When to call [`on_timer`](Self::on_timer); [`Time::FAR`] while nothing is pending.
    pub fn next_timer(&self) -> Time {
        let pending = self.pending.map_or(Time::FAR, |(at, _)| at);
        let until = self.until.unwrap_or(Time::FAR);
        let grows = match self.config.mode {
            Mode::Iexp(Backoff::Additive { .. }) if self.target < self.config.ceiling => {
                self.grown + self.config.interval
            }
            _ => Time::FAR,
        };
        pending.min(until).min(grows)
    }

    /// Whether a frame that was captured at `captured` and is not written yet can still arrive in
    /// time, if the path lets anything through at all.
    pub fn is_hopeless(&self, now: Time, captured: Time, view: &TcpView) -> bool {
        now + self.past.one_way(now, view) > captured + self.config.bound
    }

    /// What to do with the oldest frame that waits, which was captured at `captured`, if frames
    /// wait as pictures. In any mode but iOPT with the exact law the answer is to make it at the
    /// [`target`](Self::target) as soon as there is room.
    pub fn admit(&mut self, now: Time, captured: Time, view: &TcpView) -> Admit {
        self.past.look(now, view, &self.config);
        //= itcp-4.4-late
        if self.is_hopeless(now, captured, view) {
            return Admit::Skip;
        }
        self.past.frame_waits(now, captured, view, &self.config);
        if !view.has_room(now) {
            return Admit::Wait;
        }
        if !self.config.mode.is_exact() {
            return Admit::Make(self.target);
        }
        if self.past.is_full(view, &self.config) {
            return Admit::Wait;
        }
        if let Plan::Feasible { .. } = self.replan(now, view, captured) {
            self.past.found_a_way();
            return Admit::Make(self.target);
        }
        // Where the cautious forecast sees no way, the bare one decides what to leave out: a frame
        // that is tried at the floor and fails costs the next ones less than one that is not tried.
        // Behind an outage it is always tried: acknowledgements of what was in flight come in
        // lumps, and a frame that leaves with one can be in time when the mean rate says that it is
        // not. Where the path lacks the rate for the floor, that would make all frames late.
        if self.past.is_blind(now) {
            return Admit::Make(self.config.floor);
        }
        match self.law(now, view, captured, Caution::Bare) {
            Plan::Infeasible { skip, .. } if skip.hopeless.contains(0) || skip.skip.contains(0) => {
                Admit::Skip
            }
            Plan::Feasible { .. } | Plan::Infeasible { .. } => Admit::Make(self.config.floor),
        }
    }

    /// Plans anew, and sets the target.
    fn replan(&mut self, now: Time, view: &TcpView, oldest: Time) -> Plan {
        let answer = self.law(now, view, oldest, Caution::Full);
        let c = &self.config;
        let open = self.past.forecast(now, view, c.drain);
        let open = open.scaled(c.margin);
        let drains = open.at(c.drain) - view.ahead().bits() as f64;
        let span = (now.since(oldest) + c.drain + c.interval).saturating_sub(self.past.arrears());
        let drains = Rate::from_f64(drains / span.as_secs_f64().max(1e-3));
        let small = self.past.limit(now, view).unwrap_or(c.ceiling);
        self.target = match answer {
            Plan::Feasible { rate, .. } => rate.min(drains).min(small).max(c.floor),
            Plan::Infeasible { .. } => c.floor,
        };
        answer
    }

    /// The exact law, for frames that were captured from `oldest` on and are not made yet: as if
    /// the source had begun then, and the connection had carried nothing until now.
    fn law(&self, now: Time, view: &TcpView, oldest: Time, caution: Caution) -> Plan {
        let c = &self.config;
        let budget = c.bound.saturating_sub(self.past.one_way(now, view));
        let (margin, burst, guard) = match caution {
            // Acknowledgements come in lumps: within a round trip the forecast may be wrong by
            // half of one.
            Caution::Full => (c.margin, Burst::frame(c.interval, view.mss), view.srtt / 2),
            Caution::Bare => {
                let whole_frame = Burst {
                    fixed: Bytes::ZERO,
                    span: c.interval,
                };
                (1.0, whole_frame, Duration::ZERO)
            }
        };
        let open = self.past.forecast(now, view, c.bound.saturating_mul(2));
        let open = open.scaled(margin);
        let curve = ServiceCurve::stall_then(now.since(oldest), &open);
        plan(&Case {
            curve: &curve,
            backlog: view.ahead(),
            budget: budget.saturating_sub(guard),
            burst,
            floor: c.floor,
            ceiling: c.ceiling,
            frames: Frames {
                next: Duration::ZERO,
                interval: c.interval,
            },
        })
    }

    fn step_back(&mut self, now: Time, told: Told, backoff: Backoff) {
        //= itcp-6.3-iexp
        let (Backoff::Fixed { ratio, .. } | Backoff::Additive { ratio, .. }) = backoff;
        let present = self.pending.map_or(self.target, |(_, rate)| rate);
        let rate = Rate::from_f64(present.as_f64() * ratio).max(self.config.floor);
        let lasts = match backoff {
            Backoff::Fixed { hold, .. } => Some(hold),
            Backoff::Additive { .. } => None,
        };
        self.grown = now + self.config.obeys_after;
        self.retract(now, told, rate, lasts);
        self.answers.push(Retraction {
            at: now,
            event: told.event,
            rate,
            lasts,
            feasible: true,
            backlog: Bytes::ZERO,
        });
    }

    fn throttle(&mut self, now: Time, told: Told, law: Law, view: &TcpView) {
        //= itcp-4.4-symbiosis
        let c = &self.config;
        let answer: Response = law.respond(&Congested {
            path: view.path(),
            normal: satisfied_rate(view.sent, self.start, now),
            reaction: self.reactions.expected().unwrap_or(c.reaction),
            backlog: None,
            budget: c.bound.saturating_sub(view.srtt / 2),
            burst: Burst::default(),
            floor: c.floor,
            ceiling: c.ceiling,
            curve: None,
            frames: Frames {
                next: Duration::ZERO,
                interval: c.interval,
            },
        });
        self.retract(now, told, answer.rate, answer.duration);
        self.answers.push(Retraction {
            at: now,
            event: told.event,
            rate: answer.rate,
            lasts: answer.duration,
            feasible: answer.feasible,
            backlog: answer.backlog,
        });
    }

    /// Goes to `rate` once the encoder has reacted, and stays there for `lasts`.
    fn retract(&mut self, now: Time, told: Told, rate: Rate, lasts: Option<Duration>) {
        self.reactions.begin(now, told);
        let obeys = now + self.config.obeys_after;
        self.pending = Some((obeys, rate));
        self.until = lasts.map(|lasts| obeys + lasts);
        self.on_timer(now);
    }
}

/// How much of the forecast is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caution {
    /// All of it.
    Bare,
    /// Its margin, whole packets, lumps.
    Full,
}
