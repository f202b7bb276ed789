//! Streams without congestion control: constant, Poisson, on and off; and where they end.

use core::fmt;
use core::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::control::{Ecn, Why};
use tidegate_core::random::unit;
use tidegate_core::units::{Bytes, Rate, Time, nanos};

use super::distribution::exponential;
use super::{Distribution, DistributionFault, Schedule, ScheduleFault, Spans, secs};
use crate::packet_agent::{Agent, AgentCx, Arrival, Body};

/// Parameters of a [`Source`].
#[derive(Clone, Debug, PartialEq)]
pub struct SourceConfig {
    /// On the wire, every header included; with [`Spacing::OnOff`] while it is on, as in ns-2.
    pub rate: Schedule,
    /// Of one packet on the wire, every header included; up to 65,535.
    pub packet: Bytes,
    /// How packets follow each other.
    pub spacing: Spacing,
    /// Of its packets.
    pub ecn: Ecn,
}

/// How packets follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spacing {
    /// Evenly, to the nanosecond and without drift.
    Constant {
        /// Each gap is drawn evenly from this share of the even gap around it, in 0..=1. ns-2's
        /// `random_` is 0.5.
        jitter: f64,
    },
    /// Evenly while on, not at all while off. What a gap had left when a burst ended is left when
    /// the next begins, so that no rate is lost to rounding. It starts as if it had run for ever:
    /// on or off in proportion to the means, and somewhere in the middle.
    OnOff {
        /// Mean time on.
        on: Duration,
        /// Mean time off.
        off: Duration,
        /// Index of Pareto times, above 1; exponential times if there is none.
        shape: Option<f64>,
    },
    /// With exponential gaps.
    Poisson,
}

impl Default for SourceConfig {
    /// 1 Mb/s in even packets of 1000 bytes.
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
    /// Looks at the parameters.
    ///
    /// # Errors
    /// The first that does not stand.
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

    /// The share of the rate that is sent on average.
    pub fn duty(&self) -> f64 {
        match self.spacing {
            Spacing::OnOff { on, off, .. } => on.as_secs_f64() / (on + off).as_secs_f64(),
            Spacing::Constant { .. } | Spacing::Poisson => 1.0,
        }
    }

    /// A packet in billionths of a bit: bits per second times nanoseconds.
    fn packet_work(&self) -> i128 {
        i128::from(self.packet.bits()) * 1_000_000_000
    }

    /// Of on and off times, in seconds.
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

/// Sends [`Body::Data`] at a rate of its own. Starts with its party, and stops with it or
/// [before](Self::until).
#[derive(Clone, Debug)]
pub struct Source {
    config: SourceConfig,
    /// What is accounted for.
    since: Time,
    speed: Rate,
    /// What has to pass at `speed` until the next packet leaves, in billionths of a bit.
    left: i128,
    /// When the schedule changes.
    step: Time,
    gate: Gate,
    next: Time,
    begun: bool,
    sent: u64,
}

/// Whether an on/off source is on, and until when.
#[derive(Clone, Copy, Debug)]
struct Gate {
    open: bool,
    until: Time,
}

impl Source {
    /// A source that starts with its party.
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

    /// The same, but nothing leaves from `stop` on.
    #[must_use]
    pub fn until(mut self, stop: Time) -> Self {
        self.config.rate = self.config.rate.until(stop);
        self
    }

    /// Packets sent so far.
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
            // In the middle of a gap, as of a burst.
            Spacing::OnOff { .. } => (unit(rng) * self.gap(rng) as f64) as i128,
            Spacing::Poisson => self.gap(rng),
        };
        self.set_speed(now);
    }

    /// From on to off, or back.
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

    /// When the next packet leaves if nothing changes before.
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

    /// Cannot overflow: [`SourceConfig::check`] keeps rates below 2^49 b/s, and time is below 2^64.
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

    fn why(&self) -> Option<Why> {
        let pacing = self.next < self.step.min(self.gate.until);
        Some(if pacing { Why::Pacing } else { Why::Schedule })
    }

    fn is_done(&self) -> bool {
        self.begun && self.step == Time::FAR && self.config.rate.at(self.since) == Rate::ZERO
    }
}

/// Counts what arrives of [`Body::Data`]; answers nothing.
#[derive(Clone, Debug, Default)]
pub struct Sink {
    received: u64,
    bytes: Bytes,
    marked: u64,
    /// One after the highest number that arrived.
    end: u64,
    delays: Spans,
}

impl Sink {
    /// Packets that arrived.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Their bytes on the wire.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// How many of them carried a congestion mark.
    pub fn marked(&self) -> u64 {
        self.marked
    }

    /// Gaps in the numbers so far. What was lost after the last arrival does not show: for that,
    /// compare [`received`](Self::received) with what the source sent.
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

/// Why a source cannot be built.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum SourceFault {
    /// The jitter is not in 0..=1.
    Jitter(f64),
    /// Packets of this size are not possible.
    Packet(Bytes),
    /// The rate does not stand.
    Rate(ScheduleFault),
    /// On or off times cannot be drawn.
    Times(DistributionFault),
    /// More than a packet per nanosecond.
    TooFast(Rate),
}

impl fmt::Display for SourceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jitter(jitter) => {
                write!(
                    f,
                    "a jitter of {jitter} is not in 0..=1, a share of the gap"
                )
            }
            Self::Packet(size) => write!(
                f,
                "a packet of {} B is not possible: write a size from 1 to 65535",
                size.0
            ),
            Self::Rate(fault) => fault.fmt(f),
            Self::Times(fault) => write!(f, "on and off times: {fault}"),
            Self::TooFast(rate) => write!(
                f,
                "at {rate} more than one packet would leave in a nanosecond: \
                 lower the rate or use larger packets"
            ),
        }
    }
}

impl core::error::Error for SourceFault {}

#[cfg(test)]
mod tests;
