//! Encoder rate adaptation over TCP: computes a target rate from events and state of a connection.
//!
//! [`TcpRateAdapter`] is the interface between transport and transcoder of the paper (Khan and
//! Zaghal, section 5), in all its modes. It does no I/O: the simulator drives it with the events of
//! a TCP model, and a service for kernel sockets with those of a kernel's TCP. A driver
//!
//! 1. calls [`on_event`](TcpRateAdapter::on_event) for each event of the connection; events without
//!    a subscription are ignored;
//! 2. calls [`on_view`](TcpRateAdapter::on_view) with the state of the connection, after each
//!    acknowledgement and each write, or whenever the state is available;
//! 3. calls [`on_timer`](TcpRateAdapter::on_timer) at [`next_timer`](TcpRateAdapter::next_timer);
//! 4. calls [`on_encoded`](TcpRateAdapter::on_encoded) for each frame, which measures the response
//!    latency;
//! 5. reads the encoder rate from [`target`](TcpRateAdapter::target). If frames wait as pictures
//!    until the connection has room, it calls [`admit`](TcpRateAdapter::admit) for the oldest frame
//!    instead.

mod capacity;
mod event;
mod mode;
mod outage_margin;
mod path_history;
mod periodic_outages;
mod published_law;
mod response_latency;
mod view;

#[cfg(test)]
mod tests;

use core::time::Duration;

pub use event::{EventNotification, Subscription, TcpEvent};
pub use mode::{Backoff, Flags, Mode};
pub use published_law::{
    CongestionEvent, Law, Response, backlog_of_reaction, reaction_delay, satisfied_rate,
};
pub use response_latency::ResponseLatency;
pub use view::{CongestionControl, TcpView};

use self::path_history::PathHistory;
use self::response_latency::ResponseLatencyEstimator;
use crate::delay_bound::{Burst, Frames, Plan, PlanProblem, ServiceCurve, plan};
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
    pub encoder_delay: Duration,
    /// τ of (13a) for the printed laws until it is measured; after that they use the largest of the
    /// last eight measurements.
    pub default_response_latency: Duration,
    /// Fraction of the forecast that the exact law uses, in 0..=1.
    pub margin: f64,
    /// Time within which the exact law drains the backlog. Without it the law would use the whole
    /// bound all the time, and no budget would be left when the capacity drops. Backlog that would
    /// survive the worst recent outage may stay.
    pub drain: Duration,
}

impl TcpRateConfig {
    /// Default [`margin`](Self::margin): frame sizes deviate from their budget by a few percent,
    /// and round trips grow with the queues.
    pub const MARGIN: f64 = 0.9;
    /// Default [`drain`](Self::drain) for this `bound`: three fifths of it, and at least three
    /// seconds. A longer bound leaves more budget for the next capacity drop.
    pub fn drain_within(bound: Duration) -> Duration {
        (bound * 3 / 5).max(Duration::from_secs(3))
    }
}

/// Decision on the oldest waiting frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameDecision {
    /// Encode it at this rate and write it.
    Encode(Rate),
    /// Skip it: it would be late, or it would make later frames late.
    Skip,
    /// The connection has no room. Call again after an acknowledgement or a timer.
    Wait,
}

/// Rate reduction in response to an event: a row of the paper's Table 6.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateReduction {
    /// Time of the notification.
    pub at: Time,
    /// Event that caused the reduction.
    pub event: TcpEvent,
    /// Highest encoder rate from then on (`h_best`).
    pub rate: Rate,
    /// Duration of the reduction (`T_recovery`); `None` if the law has no such time or the plan is
    /// recomputed continuously.
    pub lasts: Option<Duration>,
    /// Whether the bound holds according to the law.
    pub feasible: bool,
    /// Backlog Q used by the law.
    pub backlog: Bytes,
}

/// State machine of the encoder rate over one TCP connection.
#[derive(Clone, Debug)]
pub struct TcpRateAdapter {
    config: TcpRateConfig,
    start: Time,
    target: Rate,
    /// Next target and its time, after the delay of the encoder.
    pending: Option<(Time, Rate)>,
    /// End of the reduced rate.
    until: Option<Time>,
    /// Time of the last increase by [`Backoff::Additive`].
    grown: Time,
    past: PathHistory,
    reactions: ResponseLatencyEstimator,
    counts: [u64; 6],
    answers: Vec<RateReduction>,
}

impl TcpRateAdapter {
    /// Creates the state machine of a video that starts at `start`.
    pub fn new(config: TcpRateConfig, start: Time) -> Self {
        Self {
            config,
            start,
            target: config.ceiling,
            pending: None,
            until: None,
            grown: start,
            past: PathHistory::new(),
            reactions: ResponseLatencyEstimator::default(),
            counts: [0; 6],
            answers: Vec::new(),
        }
    }

    /// Configuration of the adapter.
    pub fn config(&self) -> &TcpRateConfig {
        &self.config
    }

    /// Events of which the driver must notify the adapter: none in [`Mode::Classic`].
    pub fn subscribed(&self) -> Subscription {
        if self.config.mode == Mode::Classic {
            Subscription::NONE
        } else {
            self.config.subscribed
        }
    }

    /// Number of notifications of `event`.
    pub fn count(&self, event: TcpEvent) -> u64 {
        self.counts[event as usize]
    }

    /// Highest rate of the encoder: the content of the paper's `rate.par`.
    pub fn target(&self) -> Rate {
        self.target
    }

    /// Takes the responses to events since the last call.
    pub fn take_rate_reductions(&mut self) -> Vec<RateReduction> {
        core::mem::take(&mut self.answers)
    }

    /// Processes an event of the connection; `view` is the state after it.
    pub fn on_event(&mut self, now: Time, notification: EventNotification, view: &TcpView) {
        let event = notification.event;
        self.past.on_view(now, view, &self.config);
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
            Mode::Iexp(backoff) if reduces => self.step_back(now, notification, backoff),
            Mode::Iopt(Law::Exact) => {
                let plan = self.replan(now, view, now);
                if reduces {
                    self.reactions.begin(now, notification);
                    self.reactions.rate_available(now);
                    self.answers.push(RateReduction {
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
            Mode::Iopt(law) if reduces => self.throttle(now, notification, law, view),
            Mode::Classic | Mode::Ioff | Mode::Iexp(_) | Mode::Iopt(_) => {}
        }
    }

    /// Processes the state of the connection: updates the path history (round trips, capacity,
    /// outages).
    pub fn on_view(&mut self, now: Time, view: &TcpView) {
        self.past.on_view(now, view, &self.config);
    }

    /// Records that a frame ordered at `ordered` is encoded. If it is the first frame at the rate
    /// of a response, returns the latency of the response.
    pub fn on_encoded(&mut self, now: Time, ordered: Time) -> Option<ResponseLatency> {
        self.reactions.encoded(now, ordered)
    }

    /// Processes expired timers. A call before [`next_timer`](Self::next_timer) has no effect.
    pub fn on_timer(&mut self, now: Time) {
        if let Some((_, rate)) = self.pending.take_if(|(at, _)| *at <= now) {
            self.target = rate;
            self.reactions.rate_available(now);
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
            // Increases of less than one bit per second are deferred to the next call.
            if more >= 1.0 || self.target == self.config.ceiling {
                self.target = (self.target + Rate::from_f64(more)).min(self.config.ceiling);
                self.grown = now;
            }
        }
    }

    /// Next time to call [`on_timer`](Self::on_timer); [`Time::FAR`] if no timer is set.
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

    /// Whether a frame captured at `captured` and not yet written would be late even if it was sent
    /// now without queueing in the sender.
    pub fn is_hopeless(&self, now: Time, captured: Time, view: &TcpView) -> bool {
        now + self.past.one_way(now, view) > captured + self.config.bound
    }

    /// Decides on the oldest waiting frame, captured at `captured`, if frames wait as pictures.
    /// Except in mode iOPT with the exact law, it is encoded at the [`target`](Self::target) as
    /// soon as the connection has room, unless it is hopeless.
    pub fn admit(&mut self, now: Time, captured: Time, view: &TcpView) -> FrameDecision {
        self.past.on_view(now, view, &self.config);
        //= itcp-4.4-late
        if self.is_hopeless(now, captured, view) {
            return FrameDecision::Skip;
        }
        self.past.frame_waits(now, captured, view, &self.config);
        if !view.has_room(now) {
            return FrameDecision::Wait;
        }
        if !self.config.mode.is_exact() {
            return FrameDecision::Encode(self.target);
        }
        if self.past.is_full(view, &self.config) {
            return FrameDecision::Wait;
        }
        if let Plan::Feasible { .. } = self.replan(now, view, captured) {
            self.past.on_feasible_plan();
            return FrameDecision::Encode(self.target);
        }
        // If the forecast with margins has no feasible plan, the forecast without margins decides
        // on skipping. A late frame at the floor costs later frames less than a skipped one that
        // would have been in time.
        // After an outage the frame is always sent at the floor: acknowledgements of the flight
        // arrive in bursts, so a frame sent with one may be in time although the mean rate is too
        // low. On a path below the floor rate this rule would make all frames late.
        if self.past.is_blind(now) {
            return FrameDecision::Encode(self.config.floor);
        }
        match self.law(now, view, captured, SafetyMargins::Bare) {
            Plan::Infeasible { skip, .. } if skip.late.contains(0) || skip.skip.contains(0) => {
                FrameDecision::Skip
            }
            Plan::Feasible { .. } | Plan::Infeasible { .. } => {
                FrameDecision::Encode(self.config.floor)
            }
        }
    }

    /// Recomputes the plan and sets the target.
    fn replan(&mut self, now: Time, view: &TcpView, oldest: Time) -> Plan {
        let answer = self.law(now, view, oldest, SafetyMargins::Full);
        let c = &self.config;
        let open = self.past.forecast(now, view, c.drain);
        let open = open.scaled(c.margin);
        let drains = open.at(c.drain) - view.bytes_ahead().bits() as f64;
        let span =
            (now.since(oldest) + c.drain + c.interval).saturating_sub(self.past.tolerable_delay());
        let drains = Rate::from_f64(drains / span.as_secs_f64().max(1e-3));
        let small = self.past.limit(now, view).unwrap_or(c.ceiling);
        self.target = match answer {
            Plan::Feasible { rate, .. } => rate.min(drains).min(small).max(c.floor),
            Plan::Infeasible { .. } => c.floor,
        };
        answer
    }

    /// Applies the exact law to the frames captured since `oldest` that are not yet encoded: the
    /// source starts at `oldest`, and the connection carries nothing until now.
    fn law(&self, now: Time, view: &TcpView, oldest: Time, caution: SafetyMargins) -> Plan {
        let c = &self.config;
        let budget = c.bound.saturating_sub(self.past.one_way(now, view));
        let (margin, burst, guard) = match caution {
            // Acknowledgements arrive in bursts. Within a round trip the forecast may be wrong by
            // half a round trip.
            SafetyMargins::Full => (c.margin, Burst::frame(c.interval, view.mss), view.srtt / 2),
            SafetyMargins::Bare => {
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
        plan(&PlanProblem {
            curve: &curve,
            backlog: view.bytes_ahead(),
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

    fn step_back(&mut self, now: Time, notification: EventNotification, backoff: Backoff) {
        //= itcp-6.3-iexp
        let (Backoff::Fixed { ratio, .. } | Backoff::Additive { ratio, .. }) = backoff;
        let present = self.pending.map_or(self.target, |(_, rate)| rate);
        let rate = Rate::from_f64(present.as_f64() * ratio).max(self.config.floor);
        let lasts = match backoff {
            Backoff::Fixed { hold, .. } => Some(hold),
            Backoff::Additive { .. } => None,
        };
        self.grown = now + self.config.encoder_delay;
        self.retract(now, notification, rate, lasts);
        self.answers.push(RateReduction {
            at: now,
            event: notification.event,
            rate,
            lasts,
            feasible: true,
            backlog: Bytes::ZERO,
        });
    }

    fn throttle(&mut self, now: Time, notification: EventNotification, law: Law, view: &TcpView) {
        //= itcp-4.4-symbiosis
        let c = &self.config;
        let answer: Response = law.respond(&CongestionEvent {
            path: view.path(),
            normal: satisfied_rate(view.sent, self.start, now),
            reaction: self
                .reactions
                .expected()
                .unwrap_or(c.default_response_latency),
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
        self.retract(now, notification, answer.rate, answer.duration);
        self.answers.push(RateReduction {
            at: now,
            event: notification.event,
            rate: answer.rate,
            lasts: answer.duration,
            feasible: answer.feasible,
            backlog: answer.backlog,
        });
    }

    /// Sets `rate` after the delay of the encoder, for the duration `lasts`.
    fn retract(
        &mut self,
        now: Time,
        notification: EventNotification,
        rate: Rate,
        lasts: Option<Duration>,
    ) {
        self.reactions.begin(now, notification);
        let obeys = now + self.config.encoder_delay;
        self.pending = Some((obeys, rate));
        self.until = lasts.map(|lasts| obeys + lasts);
        self.on_timer(now);
    }
}

/// Safety margins of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SafetyMargins {
    /// No margins: the whole forecast.
    Bare,
    /// Margins for forecast errors, packet granularity and bursts of acknowledgements.
    Full,
}
