//! State of a sender: its phase, its progress, and the lengths of its queues.

use core::time::Duration;

use crate::control::{LowerEffort, Target};
use crate::trace::BreakerCause;
use crate::units::{Bytes, Rate, Time};

/// State of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Before the first timeout.
    New,
    /// Handshake: sender reports request a first round-trip sample. Without one, the first frame
    /// would be paced at one packet per second (RFC 5348 section 4.2).
    Greeting { since: Time },
    /// Media is sent.
    Open,
    /// No feedback: frames wait before the encoder, and sender reports probe the path.
    Blackout {
        since: Time,
        no_rtcp: bool,
        /// Since when the path is another one.
        moved: Option<Time>,
    },
    /// The circuit breaker has tripped, or the receiver has left.
    Stopped,
    /// Everything was sent, and the BYE was queued.
    Closed(Option<SenderFailure>),
}

/// Snapshot of a sender's state.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags")]
pub struct Status {
    /// Target rates of the controller, limited by the delay bound.
    pub target: Target,
    /// Smoothed loss fraction, in 0..=1.
    pub loss: f64,
    /// Smoothed round-trip time; `None` before the first sample.
    pub rtt: Option<Duration>,
    /// One-way delay above its minimum.
    pub queueing: Duration,
    /// Receive rate according to the feedback.
    pub receive_rate: Rate,
    /// Packets whose arrival the receiver has reported, since the start.
    pub reported: u64,
    /// A blackout is in progress.
    pub blackout: bool,
    /// Stopped by the circuit breaker, or because the receiver has left.
    pub stopped: bool,
    /// The receiver has sent a BYE, and no other receiver has answered since.
    pub left: bool,
    /// The peer sends receiver reports only.
    pub reports_only: bool,
    /// The peer has answered at least once.
    pub has_answered: bool,
    /// Number of frames captured so far.
    pub frames: u64,
    /// Number of changes of the own address.
    pub path_changes: u32,
    /// How the path treats packets of lower effort; `None` if the controller sends none.
    pub lower_effort: Option<LowerEffort>,
    /// Maximum IP packet length on a path that loses larger packets than this one; `None` while all
    /// arrive, and during the search for it.
    pub packet_size: Option<Bytes>,
}

/// Reason why the session ended before the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SenderFailure {
    /// The circuit breaker stopped the stream, or the receiver sent a BYE, and no answer arrived
    /// within [`SenderConfig::patience`](crate::session::config::SenderConfig::patience).
    ReceiverGone(BreakerCause),
}

/// Lengths of all queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLengths {
    /// Packets in the history.
    pub packets: usize,
    /// Bytes of these without an outcome.
    pub in_flight: Bytes,
    /// Frames kept for retransmission.
    pub kept: usize,
    /// Wire bytes that wait for their first transmission.
    pub backlog: Bytes,
    /// Queued retransmissions.
    pub repairs: usize,
    /// Captured frames that wait for the encoder.
    pub captures: usize,
    /// Probes in the window.
    pub probes: usize,
    /// Queued reports.
    pub datagrams: usize,
}
