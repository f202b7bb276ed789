//! What a rate controller is told, and what it answers.

use core::fmt::Debug;
use core::time::Duration;

use rand_core::Rng;

use crate::trace::Trace;
use crate::units::{Bytes, Rate, RemoteTime, Time};

/// Decides how fast one path may be used.
///
/// A controller does no I/O, reads no clock and owns no source of randomness; all three come
/// in through [`Cx`]. It keeps no queue of outputs either: after any `on_*` call the driver
/// reads [`target`](Self::target) and [`next_timeout`](Self::next_timeout) again.
///
/// The caller promises that
/// - `cx.now` never goes back between two calls;
/// - each packet given to `on_sent` has at most one [`Fate`] in the later reports;
/// - `on_timeout` is called at `next_timeout` or later. Earlier is harmless.
///
/// One controller may serve one flow or many. It sees the union of the flows' packets, each
/// with its [`FlowId`].
pub trait RateController: Debug + Send {
    /// The driver put a packet on the wire.
    fn on_sent(&mut self, _cx: &mut Cx<'_>, _packet: &Sent) {}

    /// News about packets sent earlier, from whichever wire format carried it.
    fn on_report(&mut self, cx: &mut Cx<'_>, report: &Report<'_>);

    /// The deadline of [`next_timeout`](Self::next_timeout) has passed.
    fn on_timeout(&mut self, _cx: &mut Cx<'_>) {}

    /// Something outside the feedback loop changed.
    fn on_change(&mut self, cx: &mut Cx<'_>, change: &Change);

    /// What the path may carry from now on.
    fn target(&self) -> Target;

    /// When to call [`on_timeout`](Self::on_timeout), and why; `None` while nothing is pending.
    fn next_timeout(&self) -> Option<(Time, Why)> {
        None
    }

    /// What this session learnt about the path, for a later session's [`Prior`].
    fn summary(&self) -> Summary;
}

impl<C: RateController + ?Sized> RateController for Box<C> {
    fn on_sent(&mut self, cx: &mut Cx<'_>, packet: &Sent) {
        (**self).on_sent(cx, packet);
    }
    fn on_report(&mut self, cx: &mut Cx<'_>, report: &Report<'_>) {
        (**self).on_report(cx, report);
    }
    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        (**self).on_timeout(cx);
    }
    fn on_change(&mut self, cx: &mut Cx<'_>, change: &Change) {
        (**self).on_change(cx, change);
    }
    fn target(&self) -> Target {
        (**self).target()
    }
    fn next_timeout(&self) -> Option<(Time, Why)> {
        (**self).next_timeout()
    }
    fn summary(&self) -> Summary {
        (**self).summary()
    }
}

/// Builds controllers. Implemented by each algorithm's configuration.
pub trait Algorithm: Debug + Send + Sync {
    /// A controller for a path that starts now.
    fn start(&self, start: &Start) -> Box<dyn RateController>;
}

/// Everything a controller is told at birth.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Start {
    /// The moment of birth.
    pub now: Time,
    /// Size of a full packet on the wire, every header included.
    pub packet_size: Bytes,
    /// What the application wants.
    pub demand: Demand,
    /// What earlier sessions learnt about this path. A hint: a controller may use it to search
    /// from a better place, never to skip the search.
    pub prior: Option<Prior>,
}

impl Start {
    /// A start without a prior.
    pub fn new(now: Time, packet_size: Bytes, demand: Demand) -> Self {
        Self {
            now,
            packet_size,
            demand,
            prior: None,
        }
    }

    /// The same with a prior.
    pub fn prior(mut self, prior: Prior) -> Self {
        self.prior = Some(prior);
        self
    }
}

/// The world, as seen during one call.
pub struct Cx<'a> {
    /// The present moment.
    pub now: Time,
    /// The callee's own random stream.
    pub rng: &'a mut dyn Rng,
    /// Where it says what happened.
    pub trace: &'a mut dyn Trace,
}

impl Debug for Cx<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Cx")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// Why something wants to be woken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Why {
    /// The media circuit breaker judges (RFC 8083).
    Breaker,
    /// The next frame is captured.
    Capture,
    /// A frame passes its deadline.
    Deadline,
    /// A feedback packet or a report is due.
    Feedback,
    /// The rate grows if nothing was lost.
    Increase,
    /// A packet may be presumed lost.
    Loss,
    /// The pacer may release a packet.
    Pacing,
    /// A frame leaves the jitter buffer.
    Playout,
    /// A keep-alive looks whether the path is back.
    Probe,
    /// No feedback came for too long.
    Silence,
    /// A flow starts or stops.
    Schedule,
}

/// The earlier of two optional deadlines; the first wins a tie.
pub fn sooner(a: Option<(Time, Why)>, b: Option<(Time, Why)>) -> Option<(Time, Why)> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.0 < a.0 { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// Names one flow of a bundle.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct FlowId(pub u32);

/// A packet that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Whose it is.
    pub flow: FlowId,
    /// Number in order of sending on this path: never wraps, never skips.
    pub seq: u64,
    /// On the wire, every header included.
    pub size: Bytes,
    /// What it carries.
    pub kind: Kind,
    /// The application had nothing more to send when this packet left, so the rate that it
    /// shows is the application's and not the path's (RFC 5348 section 8.2.1).
    pub app_limited: bool,
}

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Kind {
    /// Low-priority filler that a congested router drops first.
    Dummy,
    /// New media.
    Media,
    /// A keep-alive or a probe.
    Probe,
    /// A retransmission.
    Repair,
}

/// What became of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// As in [`Sent`].
    pub flow: FlowId,
    /// As in [`Sent`].
    pub seq: u64,
    /// As in [`Sent`].
    pub size: Bytes,
    /// When it left.
    pub sent: Time,
    /// Received or lost.
    pub outcome: Outcome,
}

/// The end of a packet's journey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is not expected any more.
    Lost,
    /// It arrived.
    Received {
        /// By the receiver's clock.
        at: RemoteTime,
        /// As it arrived.
        ecn: Ecn,
    },
}

/// The ECN field of the IP header (RFC 3168; ECT(1) as in RFC 9331).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Ecn {
    /// The transport does not take part.
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

    /// Whether a router may mark rather than drop.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Self::NotEct)
    }
}

/// Feedback, stripped of its wire format.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Report<'a> {
    /// Per-packet news, in sending order. Empty when only a summary came.
    pub fates: &'a [Fate],
    /// A fresh round-trip sample, the receiver's holding time taken off.
    pub rtt: Option<Duration>,
    /// What a receiver (TFRC, RTCP receiver report) or an aggregation point measured by itself.
    pub measured: Option<Measured>,
}

impl<'a> Report<'a> {
    /// Per-packet news only.
    pub fn new(fates: &'a [Fate]) -> Self {
        Self {
            fates,
            ..Self::default()
        }
    }

    /// The same with a round-trip sample.
    pub fn rtt(mut self, rtt: Duration) -> Self {
        self.rtt = Some(rtt);
        self
    }

    /// The same with the observer's own measurement.
    pub fn measured(mut self, measured: Measured) -> Self {
        self.measured = Some(measured);
        self
    }
}

/// What somebody else on the path measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Who.
    pub by: Observer,
    /// Over the last round trip or the last report interval.
    pub receive_rate: Rate,
    /// Loss event rate in 0..=1, as RFC 5348 section 5 defines it.
    pub loss_event_rate: f64,
}

/// Who measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observer {
    /// A box of the sending or the receiving site.
    AggregationPoint,
    /// The receiver of the stream.
    Receiver,
}

/// News from outside the feedback loop.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// The flows on this path, together, want this.
    Demand(Demand),
    /// The route is new: what was learnt no longer holds.
    Path {
        /// Size of a full packet on the wire.
        packet_size: Bytes,
        /// What is known of the new route.
        prior: Option<Prior>,
    },
}

/// What the application wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// It cannot use less.
    pub floor: Rate,
    /// It cannot use more.
    pub ceiling: Rate,
    /// How many well-behaved flows this one stands for.
    pub shares: u32,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Target {
    /// What may go on the wire, every header included.
    pub send: Rate,
    /// What the encoders should produce, payload only.
    pub media: Rate,
    /// How much of `send` to fill with probes or dummies when media leaves room.
    pub filler: Rate,
    /// Ceiling on unreported bytes, for algorithms that have one.
    pub in_flight: Option<Bytes>,
}

impl Target {
    /// Everything for media.
    pub fn of(send: Rate) -> Self {
        Self {
            send,
            media: send,
            filler: Rate::ZERO,
            in_flight: None,
        }
    }

    /// The same with less for media.
    pub fn media(mut self, media: Rate) -> Self {
        self.media = media.min(self.send);
        self
    }
}

/// Knowledge carried into a session.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Prior {
    /// What the path carried.
    pub rate: Rate,
    /// Its round-trip time without queueing.
    pub rtt: Duration,
    /// How much to believe it, in 0..=1; the store has already discounted for age.
    pub confidence: f64,
}

/// Knowledge carried out of one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Summary {
    /// The rate in equilibrium.
    pub rate: Rate,
    /// The smallest round-trip time seen.
    pub min_rtt: Option<Duration>,
    /// Bytes known to have arrived.
    pub delivered: Bytes,
    /// Packets known to be lost.
    pub lost: u64,
    /// The loss event rate at the end, in 0..=1; zero before the first loss.
    pub loss_event_rate: f64,
}

impl Summary {
    /// A summary that knows only a rate.
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            ..Self::default()
        }
    }
}
