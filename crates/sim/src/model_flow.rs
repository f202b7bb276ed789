//! Modelled rate-controlled flows: TFRC, RAP or any other controller.
//!
//! A [`Sender`] numbers its packets and sends them at the controller's interval. A [`Receiver`]
//! reports arrivals per packet or once per round trip. Because reports may be lost, each repeats
//! earlier arrivals as runs of consecutive packets. One run covers a period without losses,
//! regardless of the number of lost reports. `docs/model-flows.md` describes the rules and their
//! cost.

mod receiver;
mod samples;
mod window;
mod workload;

use core::mem;
use core::time::Duration;

use tidegate_core::control::{
    self, Context, Ecn, FlowId, Kind, Outcome, PacketOutcome, RateControl, Report, Sent, Summary,
};
use tidegate_core::controller::{Feedback, Properties, Rescheduling};
use tidegate_core::random::unit;
use tidegate_core::units::{Bytes, Rate, RemoteTime, Time, nanos};

use crate::packet_agent::{Agent, AgentCx, Arrival, Body, ReceivedRun};
pub use receiver::{Receiver, ReceiverConfig, Reporting};
use samples::Samples;
use window::Window;
pub use workload::{Application, Workload};
use workload::{Backlog, Supply};

/// Configuration of a [`Sender`].
#[derive(Clone, Debug, PartialEq)]
pub struct SenderConfig {
    /// Flow id in the events for the controller.
    pub flow: FlowId,
    /// Packet size on the wire, all headers included. At most 4 GB.
    pub size: Bytes,
    /// The ECN field of every packet.
    pub ecn: Ecn,
    /// Departure of the first packet.
    pub start: Time,
    /// No packets leave from this time on.
    pub stop: Time,
    /// Data to send.
    pub workload: Workload,
    /// Effect of a rate change on the packet already scheduled.
    pub spacing: Rescheduling,
    /// Upper bound of a random delay of each packet, as in the operating system of a sender. At a
    /// shared tail-drop queue it decides which flows lose packets. The schedule and the mean rate
    /// are unaffected. It is `overhead_` of ns-2's TCP.
    pub overhead: Duration,
    /// A packet is lost once a packet sent this many later has arrived: 3 in RAP and RFC 5348, 1 in
    /// ns-2's TFRC. At least 1.
    pub reordering: u32,
    /// Whether to record an [`Event::Sample`](tidegate_core::trace::Event::Sample) on reports, at
    /// most every 25 ms.
    pub samples: bool,
    /// Weight of the past in the round-trip time sent to the receiver, in 0..=1: 0.9 in RFC 5348,
    /// 0.95 in ns-2.
    pub rtt_memory: f64,
}

impl SenderConfig {
    /// A greedy sender of packets of this size, with the values of RFC 5348.
    pub fn new(size: Bytes) -> Self {
        Self {
            flow: FlowId(0),
            size,
            ecn: Ecn::NotEct,
            start: Time::ZERO,
            stop: Time::FAR,
            workload: Workload::Greedy,
            spacing: Rescheduling::Reactive,
            overhead: Duration::ZERO,
            reordering: 3,
            samples: false,
            rtt_memory: 0.9,
        }
    }
}

/// Sender and receiver of a flow of packets of this size, as in the specification of its controller. The
/// controller is started with a [`report_interval`](control::Start) of zero.
pub fn ends(properties: Properties, size: Bytes) -> (SenderConfig, ReceiverConfig) {
    let receiver = match properties.feedback {
        Feedback::EachPacket => ReceiverConfig::rap(),
        Feedback::EachRoundTrip => ReceiverConfig::tfrc(),
        Feedback::OnArrival => ReceiverConfig::ns2_tfrc(),
        Feedback::Times => ReceiverConfig::ccfb(),
    };
    let standard = SenderConfig::new(size);
    let sender = SenderConfig {
        spacing: properties.rescheduling,
        reordering: receiver.reordering,
        rtt_memory: match properties.feedback {
            Feedback::OnArrival => NS2_RTT_MEMORY,
            _ => standard.rtt_memory,
        },
        ..standard
    };
    (sender, receiver)
}

/// Sends packets at the rate of its controller.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    controller: RateControl,
    window: Window,
    backlog: Backlog,
    /// Rate of the controller, its part for dummy packets, and the resulting packet interval in ns.
    rate: Rate,
    filler: Rate,
    interval: u64,
    spacing: control::Spacing,
    /// Dummy packets are due at multiples of `rate`. Grows by `filler` with each packet.
    credit: u64,
    /// Due time of the latest packet. `None` before the first.
    last: Option<Time>,
    /// Due time of the next packet, and its random delay in ns.
    due: Time,
    held: u64,
    /// Round-trip time in seconds; zero before the first sample. Also in ns, as sent to the
    /// receiver.
    rtt: f64,
    rtt_nanos: u64,
    /// Time at which the controller's timeout is due.
    timeout: Time,
    wake: Time,
    stopped: bool,
    /// Buffers for the outcomes of one report: of data packets and of dummy packets.
    outcomes: Vec<PacketOutcome>,
    dummies: Vec<PacketOutcome>,
    samples: Option<Samples>,
}

impl Sender {
    /// A sender with `controller`, which was started at `config.start`.
    pub fn new(config: SenderConfig, controller: RateControl) -> Self {
        Self {
            window: Window::new(),
            backlog: Backlog::new(&config.workload, config.start, config.size),
            rate: Rate::ZERO,
            filler: Rate::ZERO,
            interval: u64::MAX,
            spacing: control::Spacing::Even,
            credit: 0,
            last: None,
            due: config.start,
            held: 0,
            rtt: 0.0,
            rtt_nanos: 0,
            timeout: timeout(&controller),
            wake: config.start,
            stopped: false,
            outcomes: Vec::new(),
            dummies: Vec::new(),
            samples: config.samples.then(Samples::default),
            controller,
            config,
        }
    }

    /// Number of packets sent.
    pub fn packets(&self) -> u64 {
        self.window.next()
    }

    /// Statistics of the controller.
    pub fn summary(&self) -> Summary {
        self.controller.summary()
    }

    /// Rate allowed by the controller.
    pub fn rate(&self) -> Rate {
        self.controller.target().send
    }

    fn send(&mut self, cx: &mut AgentCx<'_>) {
        let is_dummy = self.next_is_dummy();
        let seq = self.window.push(cx.now, is_dummy);
        let open = u32::try_from(seq - self.window.base()).unwrap_or(u32::MAX);
        let app_limited = !is_dummy && self.backlog.take(cx.now) == Supply::Empty;
        let body = Body::Data {
            seq,
            sent: cx.now,
            rtt: self.rtt_nanos,
            open,
            is_dummy,
        };
        if is_dummy {
            cx.send_low(self.config.size, self.config.ecn, body);
        } else {
            cx.send(self.config.size, self.config.ecn, body);
        }
        let packet = Sent {
            flow: self.config.flow,
            seq,
            size: self.config.size,
            kind: if is_dummy { Kind::Dummy } else { Kind::Media },
            app_limited,
        };
        self.controller.on_sent(&mut inner(cx), &packet);
        self.rate_changed();
        self.last = Some(self.due);
        let mut wait = self.interval;
        if self.spacing == control::Spacing::Dithered {
            wait = (wait as f64 * (0.5 + unit(cx.rng))) as u64;
        }
        self.due = later(self.due, wait);
        if !self.config.overhead.is_zero() {
            let share = unit(cx.rng) * nanos(self.config.overhead) as f64;
            self.held = share as u64;
        }
    }

    /// Whether the next packet is a dummy packet. They are spread evenly among the others, which are
    /// the first after a change of the rates.
    #[inline]
    fn next_is_dummy(&mut self) -> bool {
        if self.filler == Rate::ZERO {
            return false;
        }
        self.credit += self.filler.as_bps();
        let is_due = self.credit >= self.rate.as_bps();
        if is_due {
            self.credit -= self.rate.as_bps();
        }
        is_due
    }

    /// Reads the rate again. Returns whether it has changed.
    fn rate_changed(&mut self) -> bool {
        let target = self.controller.target();
        let rate = target.send;
        if rate == self.rate {
            return false;
        }
        (self.rate, self.filler, self.credit) = (rate, target.filler, 0);
        self.spacing = target.spacing;
        self.interval = interval(self.config.size, rate);
        true
    }

    /// Updates the due time of the next packet after an event of the controller.
    fn retime(&mut self, now: Time, prompt: bool) {
        let changed = self.rate_changed();
        match (self.config.spacing, self.last) {
            (Rescheduling::Reactive, Some(last)) if changed => {
                self.due = later(last, self.interval).max(now);
            }
            (Rescheduling::Prompt, Some(_)) if prompt => {
                self.due = now;
                self.held = 0;
            }
            _ => {}
        }
    }

    /// Sends due packets, and computes the next wake-up time.
    fn proceed(&mut self, cx: &mut AgentCx<'_>) {
        self.stopped |= cx.now >= self.config.stop;
        if self.stopped {
            self.wake = Time::FAR;
            return;
        }
        let mut next = self.next_packet(cx.now);
        if next <= cx.now {
            if self.is_overdue(cx) {
                self.due = later(cx.now, self.interval);
            } else {
                self.send(cx);
            }
            next = self.next_packet(cx.now);
        }
        self.timeout = timeout(&self.controller);
        self.wake = next.min(self.timeout).min(self.config.stop);
    }

    /// Whether the controller lowers its rate, so that the next packet is skipped.
    fn is_overdue(&mut self, cx: &mut AgentCx<'_>) -> bool {
        if self.config.spacing != Rescheduling::Steady {
            return false;
        }
        let before = self.rate;
        self.controller.on_timeout(&mut inner(cx));
        self.rate_changed() && self.rate < before
    }

    /// Departure of the next packet. A packet that its application generates later is due later.
    #[inline]
    fn next_packet(&mut self, now: Time) -> Time {
        if self.filler > Rate::ZERO {
            return later(self.due, self.held);
        }
        let Some(ready) = self.backlog.ready(now) else {
            return Time::FAR;
        };
        self.due = self.due.max(ready);
        later(self.due, self.held)
    }

    /// Converts a report to outcomes, in `self.outcomes` and `self.dummies`, and a round-trip sample.
    fn read(&mut self, now: Time, sent: Time, seen: &[ReceivedRun]) -> Option<Duration> {
        self.outcomes.clear();
        self.dummies.clear();
        let last = seen.last().filter(|last| last.seq < self.window.next())?;
        let left = self.window.sent(last.seq);
        let mut runs = seen.iter();
        let mut run = runs.next()?;
        let (config, outcomes, dummies) = (&self.config, &mut self.outcomes, &mut self.dummies);
        // A router may delay a dummy packet behind others, by up to its queue.
        let patience = Duration::from_nanos(self.rtt_nanos);
        self.window.review(last.seq, |seq, sent, is_dummy| {
            while run.seq < seq
                && let Some(next) = runs.next()
            {
                run = next;
            }
            let outcome = if seq + u64::from(run.run) > run.seq {
                Outcome::Received {
                    at: RemoteTime(run.at.as_nanos()),
                    ecn: run.ecn,
                }
            } else if is_dummy {
                if now < sent + 2 * patience {
                    return false;
                }
                Outcome::Lost
            } else if seq + u64::from(config.reordering) <= last.seq {
                Outcome::Lost
            } else {
                return false;
            };
            let kind = if is_dummy {
                &mut *dummies
            } else {
                &mut *outcomes
            };
            kind.push(PacketOutcome {
                flow: config.flow,
                seq,
                size: config.size,
                sent,
                outcome,
            });
            true
        });
        // Only for a newly reported packet: a repetition would include the delay of the report.
        left.map(|left| now.since(left).saturating_sub(sent.since(last.at)))
    }
}

impl Agent for Sender {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, _: &Arrival, body: &mut Body) {
        let Body::Report { sent, seen } = body else {
            return;
        };
        let rtt = self.read(cx.now, *sent, seen);
        let seen_last = seen.last().map(|last| last.seq);
        cx.recycle(mem::take(seen));
        if self.outcomes.is_empty() && self.dummies.is_empty() {
            return;
        }
        let mut report = Report::new(&self.outcomes).dummies(&self.dummies);
        let first = self.rtt_nanos == 0;
        let is_newest = |dummy: &PacketOutcome| seen_last == Some(dummy.seq);
        let is_of_dummy = self.dummies.last().is_some_and(is_newest);
        if let Some(sample) = rtt {
            report.rtt = (!is_of_dummy).then_some(sample);
            let (sample, memory) = (nanos(sample) as f64 / 1e9, self.config.rtt_memory);
            self.rtt = if self.rtt > 0.0 {
                memory * self.rtt + (1.0 - memory) * sample
            } else {
                sample
            };
            self.rtt_nanos = (self.rtt * 1e9) as u64;
        }
        self.controller.on_report(&mut inner(cx), &report);
        if let Some(samples) = &mut self.samples
            && let rtt = Duration::from_nanos(self.rtt_nanos)
            && let Some(sample) = samples.add(cx.now, &self.outcomes, rtt, &self.controller)
        {
            cx.record(sample);
        }
        let unhurt = first || self.controller.summary().loss_event_rate <= 0.0;
        let prompt = self.config.spacing == Rescheduling::Prompt && unhurt;
        self.retime(cx.now, prompt);
        self.proceed(cx);
    }

    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        if cx.now < self.config.start {
            return;
        }
        if self.timeout <= cx.now {
            self.controller.on_timeout(&mut inner(cx));
            self.retime(cx.now, true);
        }
        self.proceed(cx);
    }

    fn next_timer(&self) -> Time {
        self.wake
    }

    fn is_done(&self) -> bool {
        self.stopped || self.backlog.is_over()
    }
}

/// Context for calls of the controller.
fn inner<'a>(cx: &'a mut AgentCx<'_>) -> Context<'a> {
    Context {
        now: cx.now,
        rng: cx.rng,
        trace: cx.trace,
    }
}

/// Time of the controller's next timeout.
fn timeout(controller: &RateControl) -> Time {
    controller.next_timeout().map_or(Time::FAR, |(at, _)| at)
}

/// Adds nanoseconds to a time, saturating. Intervals in this file are 64-bit integers, because
/// adding a [`Duration`] to a [`Time`] costs a division.
#[inline]
fn later(at: Time, nanos: u64) -> Time {
    Time::from_nanos(at.as_nanos().saturating_add(nanos))
}

/// Packet interval in ns, rounded to the nearest; unlimited at a rate of zero. At least 1, so that
/// simulation time advances between packets.
fn interval(size: Bytes, rate: Rate) -> u64 {
    // 4 GB are 3.4e10 bits, exact in an f64. Values above 584 years saturate.
    let span = size.bits() as f64 * 1e9 / rate.as_f64();
    ((span + 0.5) as u64).max(1)
}

/// Weight of the past in the round-trip time that ns-2's TFRC sends to its receiver.
const NS2_RTT_MEMORY: f64 = 0.95;

#[cfg(test)]
mod tests;
