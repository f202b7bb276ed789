//! Streams without congestion control: constant, Poisson and on/off sources, and their sink.

use core::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::control::{Ecn, TimerReason};
use tidegate_core::random::unit;
use tidegate_core::units::{Bytes, Rate, Time, nanos};

use super::distribution::exponential;
use super::{Distribution, DistributionFault, Schedule, ScheduleFault, Spans, secs};
use crate::packet_agent::{Agent, AgentCx, Arrival, Body};

/// Parameters of a [`Source`].
#[derive(Clone, Debug, PartialEq)]
pub struct SourceConfig {
    /// Rate on the wire, all headers included. With [`Spacing::OnOff`], the rate while on, as in
    /// ns-2.
    pub rate: Schedule,
    /// Packet size on the wire, all headers included, up to 65,535.
    pub packet: Bytes,
    /// Spacing of the packets.
    pub spacing: Spacing,
    /// ECN field of the packets.
    pub ecn: Ecn,
}

/// Spacing of packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spacing {
    /// Constant, to the nanosecond and without drift.
    Constant {
        /// Relative jitter in 0..=1: each gap is uniform within this share around its nominal
        /// length. The `random_` of ns-2 is 0.5.
        jitter: f64,
    },
    /// Constant while on, silent while off. The rest of a gap at the end of a burst carries over to
    /// the next burst, so that rounding does not reduce the rate. The source starts in steady
    /// state: on with the probability of the means, in the middle of a period.
    OnOff {
        /// Mean on time.
        on: Duration,
        /// Mean off time.
        off: Duration,
        /// Pareto index of the on and off times, above 1. Without an index, the times are
        /// exponential.
        shape: Option<f64>,
    },
    /// Exponential gaps.
    Poisson,
}

impl Default for SourceConfig {
    /// Constant 1 Mb/s in packets of 1000 bytes.
    fn default() -> Self {
        Self {
            rate: Rate::kbps(1_000).into(),
            packet: Bytes(1_000),
            spacing: Spacing::Constant { jitter: 0.0 },
            ecn: Ecn::NotEct,
        }
    }
}

impl SourceConfig {
    /// Validates the parameters.
    ///
    /// # Errors
    /// The first invalid parameter.
    pub fn check(&self) -> Result<(), SourceFault> {
        self.rate.check().map_err(SourceFault::Rate)?;
        if !(Bytes(1)..=Bytes(65_535)).contains(&self.packet) {
            return Err(SourceFault::Packet(self.packet));
        }
        let most = self.rate.most();
        if u128::from(most.as_bps()) > self.packet_work() as u128 {
            return Err(SourceFault::TooFast(most));
        }
        match self.spacing {
            Spacing::Constant { jitter } if !(0.0..=1.0).contains(&jitter) => {
                Err(SourceFault::Jitter(jitter))
            }
            Spacing::Constant { .. } | Spacing::Poisson => Ok(()),
            Spacing::OnOff { .. } => {
                let mut times = self.times().into_iter().flatten();
                times.try_for_each(|time| time.check().map_err(SourceFault::Times))
            }
        }
    }

    /// Mean share of the on time, in 0..=1.
    pub fn duty(&self) -> f64 {
        match self.spacing {
            Spacing::OnOff { on, off, .. } => on.as_secs_f64() / (on + off).as_secs_f64(),
            Spacing::Constant { .. } | Spacing::Poisson => 1.0,
        }
    }

    /// Size of a packet in billionths of a bit: bits per second times nanoseconds.
    fn packet_work(&self) -> i128 {
        i128::from(self.packet.bits()) * 1_000_000_000
    }

    /// Distributions of on and off times, in seconds.
    fn times(&self) -> Option<[Distribution; 2]> {
        let Spacing::OnOff { on, off, shape } = self.spacing else {
            return None;
        };
        Some([on, off].map(|mean| match shape {
            Some(shape) => Distribution::pareto(shape, mean.as_secs_f64()),
            None => Distribution::Exponential {
                mean: mean.as_secs_f64(),
            },
        }))
    }
}

/// Sends [`Body::Data`] at a configured rate from the start of its node to its stop, or [up
/// to](Self::until) an earlier time.
#[derive(Clone, Debug)]
pub struct Source {
    config: SourceConfig,
    /// Time up to which `left` is updated.
    since: Time,
    speed: Rate,
    /// Work left until the next packet, in billionths of a bit.
    left: i128,
    /// Time of the next step of the schedule.
    step: Time,
    gate: Gate,
    next: Time,
    begun: bool,
    sent: u64,
}

/// State of an on/off source, and the time of its end.
#[derive(Clone, Copy, Debug)]
struct Gate {
    open: bool,
    until: Time,
}

impl Source {
    /// A source that starts with its node.
    ///
    /// # Errors
    /// As [`SourceConfig::check`].
    pub fn new(config: SourceConfig) -> Result<Self, SourceFault> {
        config.check()?;
        Ok(Self {
            since: Time::ZERO,
            speed: Rate::ZERO,
            left: 0,
            step: Time::FAR,
            gate: Gate {
                open: true,
                until: Time::FAR,
            },
            next: Time::ZERO,
            begun: false,
            sent: 0,
            config,
        })
    }

    /// Stops sending at `stop`.
    #[must_use]
    pub fn until(mut self, stop: Time) -> Self {
        self.config.rate = self.config.rate.until(stop);
        self
    }

    /// Number of packets sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    fn begin(&mut self, now: Time, rng: &mut Pcg64Mcg) {
        self.begun = true;
        self.since = now;
        self.step = self.config.rate.next_after(now);
        if let Some([on, off]) = self.config.times() {
            self.gate.open = unit(rng) < self.config.duty();
            let rest = if self.gate.open { on } else { off };
            self.gate.until = now + secs(rest.draw_rest(rng));
        }
        self.left = match self.config.spacing {
            Spacing::Constant { .. } => 0,
            // In steady state, the start falls into the middle of a gap.
            Spacing::OnOff { .. } => (unit(rng) * self.gap(rng) as f64) as i128,
            Spacing::Poisson => self.gap(rng),
        };
        self.set_speed(now);
    }

    /// Switches between on and off.
    fn turn(&mut self, at: Time, rng: &mut Pcg64Mcg) {
        let Some([on, off]) = self.config.times() else {
            return;
        };
        self.gate.open = !self.gate.open;
        let stay = if self.gate.open { on } else { off };
        self.gate.until = at + secs(stay.draw(rng));
    }

    fn set_speed(&mut self, at: Time) {
        self.speed = if self.gate.open {
            self.config.rate.at(at)
        } else {
            Rate::ZERO
        };
    }

    fn gap(&self, rng: &mut Pcg64Mcg) -> i128 {
        let even = self.config.packet_work();
        match self.config.spacing {
            Spacing::Constant { jitter } if jitter > 0.0 => {
                (even as f64 * (1.0 + jitter * (2.0 * unit(rng) - 1.0))) as i128
            }
            Spacing::Constant { .. } | Spacing::OnOff { .. } => even,
            Spacing::Poisson => exponential(even as f64, rng) as i128,
        }
    }

    /// Time of the next packet at the present rate.
    fn due(&self) -> Time {
        if self.left <= 0 {
            return self.since;
        }
        match self.speed.as_bps() {
            0 => Time::FAR,
            speed => {
                let wait = (self.left as u128).div_ceil(u128::from(speed));
                self.since + Duration::from_nanos(wait.min(u128::from(u64::MAX)) as u64)
            }
        }
    }

    /// Cannot overflow: [`SourceConfig::check`] keeps rates below 2^49 b/s, and time is below 2^64
    /// ns.
    fn go_to(&mut self, at: Time) {
        self.left -= i128::from(self.speed.as_bps()) * i128::from(nanos(at.since(self.since)));
        self.since = at;
    }

    fn send(&mut self, cx: &mut AgentCx<'_>) {
        let body = Body::Data {
            seq: self.sent,
            sent: cx.now,
            rtt: 0,
            open: 0,
            is_dummy: false,
        };
        cx.send(self.config.packet, self.config.ecn, body);
        self.sent += 1;
        self.left += self.gap(cx.rng);
    }
}

impl Agent for Source {
    fn on_packet(&mut self, _: &mut AgentCx<'_>, _: &Arrival, _: &mut Body) {}

    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        if !self.begun {
            self.begin(cx.now, cx.rng);
        }
        loop {
            let (due, change) = (self.due(), self.step.min(self.gate.until));
            self.next = due.min(change);
            if self.next > cx.now || self.next == Time::FAR {
                return;
            }
            self.go_to(self.next);
            if due <= change {
                self.send(cx);
                continue;
            }
            if self.gate.until == change {
                self.turn(change, cx.rng);
            }
            self.step = self.config.rate.next_after(change);
            self.set_speed(change);
        }
    }

    fn next_timer(&self) -> Time {
        self.next
    }

    fn why(&self) -> Option<TimerReason> {
        let pacing = self.next < self.step.min(self.gate.until);
        Some(if pacing {
            TimerReason::Pacing
        } else {
            TimerReason::Schedule
        })
    }

    fn is_done(&self) -> bool {
        self.begun && self.step == Time::FAR && self.config.rate.at(self.since) == Rate::ZERO
    }
}

/// Counts the arriving [`Body::Data`] and sends nothing.
#[derive(Clone, Debug, Default)]
pub struct Sink {
    received: u64,
    bytes: Bytes,
    marked: u64,
    /// One more than the highest sequence number received.
    end: u64,
    delays: Spans,
}

impl Sink {
    /// Number of packets received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Bytes received, on the wire.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Number of packets received with CE.
    pub fn marked(&self) -> u64 {
        self.marked
    }

    /// Number of missing sequence numbers so far. Losses after the last arrival are not included;
    /// compare [`received`](Self::received) with the packets sent for those.
    pub fn lost(&self) -> u64 {
        self.end.saturating_sub(self.received)
    }

    /// One-way delays.
    pub fn delays(&self) -> &Spans {
        &self.delays
    }
}

impl Agent for Sink {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: &mut Body) {
        let Body::Data { seq, sent, .. } = body else {
            return;
        };
        self.received += 1;
        self.bytes += Bytes(u64::from(arrival.size));
        self.marked += u64::from(arrival.ecn == Ecn::Ce);
        self.end = self.end.max(*seq + 1);
        self.delays.add(cx.now.since(*sent));
    }

    fn on_timer(&mut self, _: &mut AgentCx<'_>) {}

    fn next_timer(&self) -> Time {
        Time::FAR
    }

    fn is_done(&self) -> bool {
        true
    }
}

/// Invalid parameters of a source.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceFault {
    /// The jitter is outside of 0..=1.
    #[error("a jitter of {0} is not in 0..=1, a share of the gap")]
    Jitter(f64),
    /// Invalid packet size.
    #[error("a packet of {} B is not possible: write a size from 1 to 65535", .0.0)]
    Packet(Bytes),
    /// Invalid rate.
    #[error("{0}")]
    Rate(ScheduleFault),
    /// Invalid on or off times.
    #[error("on and off times: {0}")]
    Times(DistributionFault),
    /// The rate exceeds one packet per nanosecond.
    #[error(
        "at {0} more than one packet would leave in a nanosecond: lower the rate or use larger packets"
    )]
    TooFast(Rate),
}

#[cfg(test)]
mod tests;
