//! What happened, as data. Logs, plots, metrics and replay read these events and nothing else.

use core::time::Duration;

use crate::tcp_rate::TcpEvent;
use crate::units::{Bytes, Rate, Time};

/// Where state machines say what they did. Structured, so a plot never parses a log line.
pub trait Trace {
    /// `event` happened at `at`.
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

/// One happening. In files each is a JSON object with `kind` and the fields; rates are in bits
/// per second, durations in milliseconds, sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Event {
    /// The path seems dead: no feedback for too long. Media waits, keep-alives probe.
    BlackoutBegan,
    /// Feedback is back after a blackout.
    BlackoutEnded {
        /// How long there was none.
        #[cfg_attr(feature = "serde", serde(rename = "lasted_ms", with = "ms"))]
        lasted: Duration,
    },
    /// The media circuit breaker stopped the stream (RFC 8083).
    BreakerTripped {
        /// Which of its conditions.
        cause: BreakerCause,
    },
    /// The stream goes on after the circuit breaker stopped it.
    BreakerResumed,
    /// A feedback packet, or a part of one, was not believed.
    FeedbackRejected {
        /// What was wrong with it.
        cause: FeedbackFault,
    },
    /// A frame was given up.
    FrameDropped {
        /// Its number, from zero at the first capture.
        frame: u64,
        /// Why.
        cause: DropCause,
    },
    /// The encoder was told to make a key frame.
    KeyFrameOrdered {
        /// Its number.
        frame: u64,
        /// Why.
        cause: KeyCause,
    },
    /// The loss event rate of the controller changed for the worse.
    LossEvent {
        /// In 0..=1.
        loss_event_rate: f64,
    },
    /// The controller's no-feedback timer expired.
    NoFeedback {
        /// What it may send from now on.
        #[cfg_attr(feature = "serde", serde(rename = "rate_bps"))]
        rate: Rate,
    },
    /// The receiver sends receiver reports only; it is served at a conservative rate.
    PeerReportsOnly,
    /// The delay promise was planned anew.
    Plan {
        /// The highest media rate that keeps it.
        #[cfg_attr(feature = "serde", serde(rename = "media_bps"))]
        media: Rate,
        /// What the path is believed to carry.
        #[cfg_attr(feature = "serde", serde(rename = "capacity_bps"))]
        capacity: Rate,
        /// What waits in the sender and in the network.
        #[cfg_attr(feature = "serde", serde(rename = "backlog_bytes"))]
        backlog: Bytes,
        /// The budget of a byte that is made now.
        #[cfg_attr(feature = "serde", serde(rename = "budget_ms", with = "ms"))]
        budget: Duration,
        /// Whether any rate keeps the promise.
        feasible: bool,
    },
    /// A prior did not fit the path.
    PriorRejected,
    /// Others hold the queue of the path: it did not shrink when less was sent.
    QueueContested,
    /// The queue of the path answers again to what is sent, or is gone.
    QueueSettled,
    /// The sending rate changed.
    RateChanged {
        /// Before.
        #[cfg_attr(feature = "serde", serde(rename = "from_bps"))]
        from: Rate,
        /// After.
        #[cfg_attr(feature = "serde", serde(rename = "to_bps"))]
        to: Rate,
    },
    /// A frame was made at the rate with which an event of the transport was answered: what it took
    /// until then, τ of the paper's equation (13a).
    Reacted {
        /// The event.
        event: TcpEvent,
        /// From the event in the transport until the sender was told.
        #[cfg_attr(feature = "serde", serde(rename = "signal_ms", with = "ms"))]
        signal: Duration,
        /// From then until the encoder could know the new rate.
        #[cfg_attr(feature = "serde", serde(rename = "answer_ms", with = "ms"))]
        answer: Duration,
        /// How long the encoder was at work from then on, until that frame was there.
        #[cfg_attr(feature = "serde", serde(rename = "encoder_ms", with = "ms"))]
        encoder: Duration,
        /// τ, the sum of these. The wait for the picture is no part of it.
        #[cfg_attr(feature = "serde", serde(rename = "reaction_ms", with = "ms"))]
        reaction: Duration,
    },
    /// A lost packet was sent again.
    Retransmitted {
        /// Extended sequence number of the original.
        seq: u64,
    },
    /// What the sender knows, once per report.
    Sample {
        /// Smoothed round-trip time.
        #[cfg_attr(feature = "serde", serde(rename = "rtt_ms", with = "ms"))]
        rtt: Duration,
        /// One-way delay above the smallest seen.
        #[cfg_attr(feature = "serde", serde(rename = "queue_ms", with = "ms"))]
        queue: Duration,
        /// Share of packets lost, smoothed, in 0..=1.
        loss: f64,
        /// The controller's loss event rate, in 0..=1; zero before the first loss.
        loss_event_rate: f64,
        /// What the controller allows on the wire.
        #[cfg_attr(feature = "serde", serde(rename = "send_bps"))]
        send: Rate,
        /// What the encoder is told.
        #[cfg_attr(feature = "serde", serde(rename = "media_bps"))]
        media: Rate,
        /// What arrived, by the reports.
        #[cfg_attr(feature = "serde", serde(rename = "receive_bps"))]
        receive: Rate,
    },
    /// The controller left slow start.
    SlowStartEnded {
        /// At this rate.
        #[cfg_attr(feature = "serde", serde(rename = "rate_bps"))]
        rate: Rate,
    },
    /// The transport told of what happened in it.
    Transport {
        /// What.
        event: TcpEvent,
    },
}

/// What stops a stream: the conditions of RFC 8083, and a receiver that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum BreakerCause {
    /// Section 4.3: the rate is far above what TCP would get at this loss.
    Congestion,
    /// RFC 3550 section 6.6: the receiver said goodbye.
    Goodbye,
    /// Section 4.2: packets leave, none is reported to arrive.
    MediaTimeout,
    /// Section 4.1: no RTCP comes back.
    RtcpTimeout,
}

/// Why feedback was not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum FeedbackFault {
    /// The bytes are no RTCP that we know.
    Malformed,
    /// It speaks of packets that were never sent.
    NeverSent,
    /// It is older than feedback that was seen already.
    Stale,
    /// Its arrival times go back or lie in the future.
    TimeTravel,
    /// It comes from, or speaks of, a source that has no part in this session.
    UnknownSource,
}

/// Why a frame was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum DropCause {
    /// Its deadline passed, or will before it can arrive.
    Late,
    /// A frame that it refers to is missing.
    Reference,
    /// It was never encoded: the plan had no room for it.
    Skipped,
    /// The stream ended first.
    Ended,
}

/// Why a key frame was ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum KeyCause {
    /// The first frame.
    First,
    /// The regular distance between key frames.
    Periodic,
    /// The receiver asked (RFC 4585, picture loss indication).
    Requested,
    /// A dropped or lost frame broke the reference chain.
    Repair,
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
