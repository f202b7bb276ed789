//! Events as data: logs, plots, metrics and replay read these events only.

mod limiter;

use core::time::Duration;

pub use limiter::{PER_SECOND, RecordLimiter};

use crate::control::LowerEffort;
use crate::tcp_rate::TcpEvent;
use crate::units::{Bytes, Rate, Time};

/// Receives the events of state machines. Events are structured, so that plots need not parse log
/// lines.
pub trait Trace {
    /// Records `event` at the time `at`.
    fn record(&mut self, at: Time, event: Event);
}

impl Trace for () {
    fn record(&mut self, _: Time, _: Event) {}
}

impl Trace for Vec<(Time, Event)> {
    fn record(&mut self, at: Time, event: Event) {
        self.push((at, event));
    }
}

/// An event. In files it is a JSON object with `kind` and the fields. Rates are in bits per second,
/// durations in milliseconds, sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Event {
    /// No feedback for too long: media is held back and keep-alives probe the path.
    BlackoutBegan,
    /// Feedback arrived again after a blackout.
    BlackoutEnded {
        /// Time without feedback.
        #[cfg_attr(feature = "serde", serde(rename = "lasted_ms", with = "ms"))]
        lasted: Duration,
    },
    /// The media circuit breaker stopped the stream (RFC 8083).
    BreakerTripped {
        /// Condition that stopped it.
        cause: BreakerCause,
    },
    /// The stream resumes after the circuit breaker stopped it.
    BreakerResumed,
    /// A feedback packet, or a part of one, was rejected as invalid.
    FeedbackRejected {
        /// Reason of the rejection.
        cause: FeedbackFault,
    },
    /// A frame was dropped.
    FrameDropped {
        /// Frame number, from zero at the first capture.
        frame: u64,
        /// Reason of the drop.
        cause: DropCause,
    },
    /// The sender requested a key frame from the encoder.
    KeyFrameOrdered {
        /// Frame number.
        frame: u64,
        /// Reason of the request.
        cause: KeyCause,
    },
    /// The loss event rate of the controller rose.
    LossEvent {
        /// New loss event rate, in 0..=1.
        loss_event_rate: f64,
    },
    /// A test has found another treatment of packets of lower effort.
    LowerEffortTested {
        /// The treatment.
        treatment: LowerEffort,
        /// DSCP with which they arrive, if the receiver has reported it.
        dscp: Option<u8>,
    },
    /// The controller's no-feedback timer expired.
    NoFeedback {
        /// Allowed sending rate after the expiry.
        #[cfg_attr(feature = "serde", serde(rename = "rate_bps"))]
        rate: Rate,
    },
    /// Estimates of the path, once per second and when competition begins or ends.
    PathEstimated {
        /// Rate that the path carries for this sender.
        #[cfg_attr(feature = "serde", serde(rename = "capacity_bps"))]
        capacity: Rate,
        /// Own share of the bottleneck, in 0..=1, once it is known.
        share: Option<f64>,
        /// Fraction of packets lost, in 0..=1.
        loss: f64,
        /// Share of the losses that may be congestion, in 0..=1.
        congestion: f64,
        /// Lower and upper limit of the rate in competition.
        #[cfg_attr(feature = "serde", serde(rename = "least_bps"))]
        least: Option<Rate>,
        /// See `least`.
        #[cfg_attr(feature = "serde", serde(rename = "most_bps"))]
        most: Option<Rate>,
    },
    /// The maximum size of packets changed: larger ones are lost, or arrive again.
    PacketSizeChanged {
        /// Maximum IP packet length from now on.
        #[cfg_attr(feature = "serde", serde(rename = "size_bytes"))]
        size: Bytes,
    },
    /// The path became slower suddenly: packet after packet waited longer.
    PathFell {
        /// Rate before.
        #[cfg_attr(feature = "serde", serde(rename = "from_bps"))]
        from: Rate,
        /// Rate at which the queue was served.
        #[cfg_attr(feature = "serde", serde(rename = "to_bps"))]
        to: Rate,
    },
    /// The receiver sends receiver reports only, so the sender uses a conservative rate.
    PeerReportsOnly,
    /// The media rate for the delay bound was recomputed.
    Plan {
        /// Highest media rate that meets the bound.
        #[cfg_attr(feature = "serde", serde(rename = "media_bps"))]
        media: Rate,
        /// Estimated capacity of the path.
        #[cfg_attr(feature = "serde", serde(rename = "capacity_bps"))]
        capacity: Rate,
        /// Bytes queued in the sender and in the network.
        #[cfg_attr(feature = "serde", serde(rename = "backlog_bytes"))]
        backlog: Bytes,
        /// Delay budget of a byte that is encoded now.
        #[cfg_attr(feature = "serde", serde(rename = "budget_ms", with = "ms"))]
        budget: Duration,
        /// Whether some rate meets the bound.
        feasible: bool,
    },
    /// A prior did not fit the path.
    PriorRejected,
    /// Competing flows hold the queue of the path: it did not shrink when less was sent.
    QueueContested,
    /// The queue of the path follows the sending rate again, or is empty.
    QueueSettled,
    /// The sending rate changed.
    RateChanged {
        /// Previous rate.
        #[cfg_attr(feature = "serde", serde(rename = "from_bps"))]
        from: Rate,
        /// New rate.
        #[cfg_attr(feature = "serde", serde(rename = "to_bps"))]
        to: Rate,
    },
    /// The encoder finished the first frame at the rate chosen after an event of the transport. The
    /// fields are the parts of τ in the paper's equation (13a).
    Reacted {
        /// Event of the transport.
        event: TcpEvent,
        /// From the event in the transport to its notification at the sender.
        #[cfg_attr(feature = "serde", serde(rename = "signal_ms", with = "ms"))]
        signal: Duration,
        /// From the notification to the time at which the encoder can use the new rate.
        #[cfg_attr(feature = "serde", serde(rename = "answer_ms", with = "ms"))]
        answer: Duration,
        /// Encoding time from then until the frame is complete.
        #[cfg_attr(feature = "serde", serde(rename = "encoder_ms", with = "ms"))]
        encoder: Duration,
        /// τ, the sum of the three parts. The wait for the next picture is not included.
        #[cfg_attr(feature = "serde", serde(rename = "reaction_ms", with = "ms"))]
        reaction: Duration,
    },
    /// Rejected feedback that is counted here instead of having an event each: the recorder keeps
    /// [`PER_SECOND`] of them.
    RejectedOmitted {
        /// Number of [`FeedbackRejected`](Self::FeedbackRejected) since the last one on record.
        count: u64,
    },
    /// Reports contradicted each other, and no longer do: the sender begins again without state about the
    /// path.
    ReportsContradicted,
    /// A lost packet was retransmitted.
    Retransmitted {
        /// Extended sequence number of the original.
        seq: u64,
    },
    /// The controller is in another state.
    StateChanged {
        /// The state.
        state: ControllerState,
        /// Data rate in it.
        #[cfg_attr(feature = "serde", serde(rename = "rate_bps"))]
        rate: Rate,
        /// Number of dummy packets whose reports do not raise the rate; negative: none does.
        reserve: i64,
    },
    /// State of the sender, once per report.
    Sample {
        /// Smoothed round-trip time.
        #[cfg_attr(feature = "serde", serde(rename = "rtt_ms", with = "ms"))]
        rtt: Duration,
        /// One-way delay above the smallest observed.
        #[cfg_attr(feature = "serde", serde(rename = "queue_ms", with = "ms"))]
        queue: Duration,
        /// Smoothed fraction of packets lost, in 0..=1.
        loss: f64,
        /// The controller's loss event rate, in 0..=1; zero before the first loss.
        loss_event_rate: f64,
        /// Rate that the controller allows on the wire.
        #[cfg_attr(feature = "serde", serde(rename = "send_bps"))]
        send: Rate,
        /// Rate given to the encoder.
        #[cfg_attr(feature = "serde", serde(rename = "media_bps"))]
        media: Rate,
        /// Receive rate according to the reports.
        #[cfg_attr(feature = "serde", serde(rename = "receive_bps"))]
        receive: Rate,
    },
    /// The controller left slow start.
    SlowStartEnded {
        /// Rate at the end of slow start.
        #[cfg_attr(feature = "serde", serde(rename = "rate_bps"))]
        rate: Rate,
    },
    /// The transport reported an event.
    Transport {
        /// Event of the transport.
        event: TcpEvent,
    },
}

impl Event {
    /// Whether the number of such events depends on packets of strangers.
    pub const fn is_of_strangers(&self) -> bool {
        matches!(self, Self::FeedbackRejected { .. })
    }
}

/// State of a controller that has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ControllerState {
    /// Dummy packets search for the first rate.
    Initial,
    /// The rate grows.
    Steady,
    /// A packet was lost, and dummy packets search for the cause.
    Detected,
    /// Nothing is reported: the rate stays as it is.
    Backoff,
}

/// Reason that stopped a stream: a condition of RFC 8083, or the receiver left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum BreakerCause {
    /// Section 4.3: the rate is far above that of TCP at this loss.
    Congestion,
    /// RFC 3550 section 6.6: the receiver sent a BYE.
    Goodbye,
    /// Section 4.2: packets are sent, but none is reported as received.
    MediaTimeout,
    /// Section 4.1: no RTCP arrives.
    RtcpTimeout,
}

/// Reason to reject feedback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum FeedbackFault {
    /// Not parsable as RTCP.
    Malformed,
    /// Refers to packets that were never sent.
    NeverSent,
    /// Reports no arrival of a recent packet.
    NoArrival,
    /// Older than feedback already processed.
    Stale,
    /// The clock of the receiver was stepped, and no second report has confirmed it.
    TimeTravel,
    /// A packet that was sent as Not-ECT is reported with a CE mark.
    EcnMangled,
    /// Comes from, or refers to, a source outside of this session.
    UnknownSource,
}

/// Reason to drop a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum DropCause {
    /// The deadline passed, or will pass before the frame can arrive.
    Late,
    /// A reference frame is missing.
    Reference,
    /// Not encoded: the plan had no room for the frame.
    Skipped,
    /// The stream ended before the frame was sent.
    Ended,
    /// The buffer behind the encoder was full.
    Overflow,
}

/// Reason of a key frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum KeyCause {
    /// First frame.
    First,
    /// Regular interval between key frames.
    Periodic,
    /// The receiver requested it (RFC 4585, picture loss indication).
    Requested,
    /// A dropped or lost frame broke the reference chain.
    Repair,
    /// The encoder was restarted with other parameters.
    Restarted,
}

#[cfg(feature = "serde")]
pub(crate) mod ms {
    use core::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(d.as_nanos() as f64 / 1e6)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        let ms = f64::deserialize(d)?;
        Duration::try_from_secs_f64(ms / 1e3).map_err(serde::de::Error::custom)
    }
}
