//! Rate control of one path: the contract of a controller, and what a sender holds.

mod rate_control;

use core::fmt::Debug;
use core::time::Duration;

use rand_core::Rng;

use crate::path::Path;
use crate::trace::Trace;
use crate::units::{Bytes, Rate, RemoteTime, Time};
pub use rate_control::RateControl;
pub(crate) use rate_control::{Fallback, Handover};

/// Algorithm that controls the sending rate of one path. A sender holds it in a [`RateControl`], which
/// owns the estimator of the path and calls the algorithm.
///
/// A controller does no I/O, reads no clock and owns no source of randomness; [`Context`] supplies the
/// time, the random stream and the trace. Outputs are not queued: after each `on_*` call
/// [`target`](Self::target) and [`next_timeout`](Self::next_timeout) may differ.
///
/// The caller guarantees that
/// - `cx.now` never goes back between two calls;
/// - each packet given to `on_sent` has at most one [`PacketOutcome`] in the later reports, and one
///   more in [`Report::spurious`] if it was reported lost and has arrived after all;
/// - `on_timeout` is called at `next_timeout` or later. Earlier is harmless;
/// - `path` is the same in all calls. It is new after [`Change::Path`].
///
/// One controller may serve one flow or many. It sees the union of the flows' packets, each
/// with its [`FlowId`].
pub trait RateController: Debug + Send {
    /// The driver put a packet on the wire.
    fn on_sent(&mut self, _cx: &mut Context<'_>, _packet: &Sent, _path: &mut Path) {}

    /// Feedback about packets sent earlier, independent of the wire format.
    fn on_report(&mut self, cx: &mut Context<'_>, report: &Report<'_>, path: &mut Path);

    /// The deadline of [`next_timeout`](Self::next_timeout) has passed.
    fn on_timeout(&mut self, _cx: &mut Context<'_>, _path: &mut Path) {}

    /// Demand or path changed outside of the feedback loop.
    fn on_change(&mut self, cx: &mut Context<'_>, change: &Change, path: &mut Path);

    /// Current limits for the path.
    fn target(&self) -> Target;

    /// Next call of [`on_timeout`](Self::on_timeout) and its reason; `None` while no timer is
    /// pending.
    fn next_timeout(&self, _path: &Path) -> Option<(Time, TimerReason)> {
        None
    }

    /// What the session learnt about the path, as the [`Prior`] of a later session.
    fn summary(&self, path: &Path) -> Summary;

    /// Whether the controller reads the estimates of the path. Without a reader there are none.
    fn reads_path(&self) -> bool {
        false
    }
}

/// Builds controllers. Implemented by each algorithm's configuration.
pub trait Algorithm: Debug + Send + Sync {
    /// Starts the control of a path whose use begins now.
    fn start(&self, start: &Start) -> RateControl;
}

/// Initial parameters of a controller.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Start {
    /// Time of creation.
    pub now: Time,
    /// Size of a full packet on the wire, every header included.
    pub packet_size: Bytes,
    /// Rates that the application asks for.
    pub demand: Demand,
    /// What earlier sessions learnt about this path. A hint: a controller may start its search from
    /// it, but must not skip the search.
    pub prior: Option<Prior>,
    /// Maximum interval between two reports in normal operation, instead of that of the
    /// configuration. Zero: the receiver reports as in the specification of the algorithm.
    pub report_interval: Option<Duration>,
}

impl Start {
    /// A start without a prior.
    pub fn new(now: Time, packet_size: Bytes, demand: Demand) -> Self {
        Self {
            now,
            packet_size,
            demand,
            prior: None,
            report_interval: None,
        }
    }

    /// The same with a prior.
    pub fn prior(mut self, prior: Prior) -> Self {
        self.prior = Some(prior);
        self
    }
}

/// Context of one call: time, random stream and trace.
pub struct Context<'a> {
    /// Current time.
    pub now: Time,
    /// Random stream of the callee.
    pub rng: &'a mut dyn Rng,
    /// Receives the callee's events.
    pub trace: &'a mut dyn Trace,
}

impl Debug for Context<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Cx")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// Reason of a timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum TimerReason {
    /// The media circuit breaker evaluates its conditions (RFC 8083).
    Breaker,
    /// The next frame is captured.
    Capture,
    /// A frame passes its deadline.
    Deadline,
    /// A feedback packet or a report is due.
    Feedback,
    /// A message of the key handshake is sent again, or the handshake is given up.
    Handshake,
    /// The rate grows unless a packet was lost.
    Increase,
    /// A packet may be presumed lost.
    Loss,
    /// The pacer may release a packet.
    Pacing,
    /// A frame leaves the jitter buffer.
    Playout,
    /// A keep-alive tests whether the path works again.
    Probe,
    /// No feedback arrived for too long.
    Silence,
    /// A flow starts or stops.
    Schedule,
}

/// The earlier of two optional deadlines; the first wins a tie.
pub fn sooner(
    a: Option<(Time, TimerReason)>,
    b: Option<(Time, TimerReason)>,
) -> Option<(Time, TimerReason)> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.0 < a.0 { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// Identifier of one flow of a bundle.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct FlowId(pub u32);

/// A packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Flow of the packet.
    pub flow: FlowId,
    /// Sequence number in order of sending on this path: never wraps, never skips. Dummy packets may
    /// have numbers of their own.
    pub seq: u64,
    /// Size on the wire, all headers included.
    pub size: Bytes,
    /// Content of the packet.
    pub kind: Kind,
    /// The application had nothing more to send when this packet left. The measured rate is then
    /// the application's and not the path's (RFC 5348 section 8.2.1).
    pub app_limited: bool,
}

/// Content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Kind {
    /// Low-priority filler that a congested router drops first.
    Dummy,
    /// New media.
    Media,
    /// Forward error correction.
    Parity,
    /// A keep-alive or a probe.
    Probe,
    /// A retransmission.
    Repair,
}

/// Outcome of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketOutcome {
    /// As in [`Sent`].
    pub flow: FlowId,
    /// As in [`Sent`].
    pub seq: u64,
    /// As in [`Sent`].
    pub size: Bytes,
    /// Time of sending.
    pub sent: Time,
    /// Received or lost.
    pub outcome: Outcome,
}

/// Whether a packet was received or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not expected any more.
    Lost,
    /// Received.
    Received {
        /// Arrival time by the receiver's clock.
        at: RemoteTime,
        /// ECN field on arrival.
        ecn: Ecn,
    },
}

impl Outcome {
    /// Whether the packet was received.
    pub const fn is_received(self) -> bool {
        matches!(self, Self::Received { .. })
    }
}

/// The ECN field of the IP header (RFC 3168; ECT(1) as in RFC 9331).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Ecn {
    /// Not ECN-capable transport.
    #[default]
    NotEct,
    /// ECT(0).
    Ect0,
    /// ECT(1).
    Ect1,
    /// Congestion experienced.
    Ce,
}

impl Ecn {
    /// The two bits of the header.
    pub const fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0b00,
            Self::Ect1 => 0b01,
            Self::Ect0 => 0b10,
            Self::Ce => 0b11,
        }
    }

    /// From the two low bits of the traffic class octet.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0b00 => Self::NotEct,
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// Whether a router may mark the packet instead of dropping it.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Self::NotEct)
    }
}

/// Feedback, independent of its wire format.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Report<'a> {
    /// Outcomes of packets, except for dummy packets, in sending order. Empty if the feedback is only
    /// a summary.
    pub packets: &'a [PacketOutcome],
    /// Outcomes of dummy packets, in sending order. A lost one need not have an outcome.
    pub dummies: &'a [PacketOutcome],
    /// Packets that have arrived after an earlier report had called them lost, in sending order.
    pub spurious: &'a [PacketOutcome],
    /// New round-trip sample, less the receiver's holding time. Not of a dummy packet: those wait
    /// behind others.
    pub rtt: Option<Duration>,
    /// Measurement made by a receiver (TFRC, RTCP receiver report) or an aggregation point.
    pub measured: Option<Measured>,
}

impl<'a> Report<'a> {
    /// A report of outcomes of packets only.
    pub fn new(outcomes: &'a [PacketOutcome]) -> Self {
        Self {
            packets: outcomes,
            ..Self::default()
        }
    }

    /// Adds outcomes of dummy packets.
    pub fn dummies(mut self, dummies: &'a [PacketOutcome]) -> Self {
        self.dummies = dummies;
        self
    }

    /// Adds spurious losses.
    pub fn spurious(mut self, arrived: &'a [PacketOutcome]) -> Self {
        self.spurious = arrived;
        self
    }

    /// Adds a round-trip sample.
    pub fn rtt(mut self, rtt: Duration) -> Self {
        self.rtt = Some(rtt);
        self
    }

    /// Adds the observer's measurement.
    pub fn measured(mut self, measured: Measured) -> Self {
        self.measured = Some(measured);
        self
    }
}

/// Measurement made by another node on the path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Node that measured.
    pub by: Observer,
    /// Receive rate over the last round trip or the last report interval.
    pub receive_rate: Rate,
    /// Loss event rate in 0..=1, as RFC 5348 section 5 defines it.
    pub loss_event_rate: f64,
}

/// Kind of the node that measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observer {
    /// Middlebox of the sending or the receiving site.
    AggregationPoint,
    /// Receiver of the stream.
    Receiver,
}

/// Change outside of the feedback loop.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// New total demand of the flows on this path.
    Demand(Demand),
    /// Result of a test of how the path treats packets of lower effort. Without one, a controller
    /// assumes that they are honoured.
    LowerEffort(LowerEffort),
    /// New route: earlier measurements no longer apply.
    Path {
        /// Size of a full packet on the wire, all headers included.
        packet_size: Bytes,
        /// What is known about the new route.
        prior: Option<Prior>,
    },
    /// Maximum interval between two reports in normal operation. It replaces that of the
    /// controller's configuration if it is longer.
    Reports {
        /// Zero restores the configured interval.
        interval: Duration,
    },
    /// The path delivered this rate during a round trip without congestion, although the
    /// controller's own target was lower: a careful resume has probed it. The search for the rate may
    /// continue from there.
    Validated {
        /// Rate that was delivered, all headers included.
        rate: Rate,
    },
}

/// Treatment of packets of lower effort (DSCP LE, RFC 8622) on a path, as found by a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum LowerEffort {
    /// Unknown so far: no queue has formed that could show it.
    Untested,
    /// A queue delays or drops them before others.
    Honoured,
    /// A queue treats them as others.
    Ignored,
    /// They arrive with another DSCP.
    Remarked,
    /// They vanish, and others arrive.
    Dropped,
    /// No report on a probe arrives.
    Unanswered,
}

/// Rates that the application asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Lowest rate that the application can use.
    pub floor: Rate,
    /// Highest rate that the application can use.
    pub ceiling: Rate,
    /// Number of TCP-friendly flows that this flow counts as.
    pub shares: u32,
}

/// Output of a rate controller.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Target {
    /// Allowed sending rate, all headers included.
    pub send: Rate,
    /// Rate for the encoders, payload only.
    pub media: Rate,
    /// Part of `send` to fill with probes or dummy packets when media leaves room.
    pub filler: Rate,
    /// Limit on bytes without a report, for algorithms that have one.
    pub in_flight: Option<Bytes>,
    /// Spacing of packets at `send`.
    pub spacing: Spacing,
    /// The packets of a frame may leave at so many times `send`, if the mean over frames is `send`:
    /// short trains measure the capacity of a path before `send` reaches it. At least 1.
    pub burst: f64,
}

/// Spacing of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spacing {
    /// Each interval is a random multiple of the mean one, uniform in 0.5..1.5: packets at random
    /// distances measure the share of the bottleneck.
    Dithered,
    /// At equal intervals.
    #[default]
    Even,
}

impl Target {
    /// A target that gives the whole of `send` to media.
    pub fn of(send: Rate) -> Self {
        Self {
            send,
            media: send,
            filler: Rate::ZERO,
            in_flight: None,
            spacing: Spacing::Even,
            burst: 1.0,
        }
    }

    /// Limits the media rate; it is at most `send`.
    pub fn media(mut self, media: Rate) -> Self {
        self.media = media.min(self.send);
        self
    }

    /// Part of `send` for packets other than dummy packets.
    pub fn data(&self) -> Rate {
        self.send - self.filler
    }
}

/// What is known about a path when a session starts.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Prior {
    /// Rate that the path carried.
    pub rate: Rate,
    /// Round-trip time without queueing.
    pub rtt: Duration,
    /// Confidence in 0..=1; the store has already discounted it for age.
    pub confidence: f64,
}

impl Prior {
    /// The rate as the initial window of a TCP-like sender: packets of this size, headers included, that
    /// the rate has in a round trip. At least one.
    pub fn window(&self, packet_size: Bytes) -> f64 {
        let packets =
            self.rate.as_f64() * self.rtt.as_secs_f64() / packet_size.bits().max(1) as f64;
        packets.max(1.0)
    }
}

/// What is known about a path when a session ends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Summary {
    /// Sending rate in equilibrium.
    pub rate: Rate,
    /// Smallest round-trip time observed.
    pub min_rtt: Option<Duration>,
    /// Bytes reported as received.
    pub delivered: Bytes,
    /// Packets reported as lost.
    pub lost: u64,
    /// Loss event rate at the end, in 0..=1; zero before the first loss.
    pub loss_event_rate: f64,
}

impl Summary {
    /// A summary with a rate only.
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            ..Self::default()
        }
    }
}
