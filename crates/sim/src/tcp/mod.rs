//! TCP models: one-way senders of numbered segments and the sink that acknowledges them.
//!
//! [`classic`] behaves as the senders of ns-2.35 do. All senders speak
//! [`Segment`](crate::packet_agent::Segment) and [`Ack`](crate::packet_agent::Ack) with the same [`Sink`], take
//! their data from a [`Source`] and tell their [`State`] and [`Counters`]. The model has no
//! handshake of its own: as in ns-2, segment 0 stands for the SYN, is as small as an
//! acknowledgement, and its acknowledgement opens the initial window.

use core::time::Duration;

pub mod classic;
pub mod modern;
mod ranges;
pub mod rto;
pub mod sink;
pub mod source;
mod writer;

pub use ranges::Ranges;
pub use rto::{Rto, RtoConfig};
pub use sink::{Sink, SinkConfig};
pub use source::{Source, SourceConfig, SourceKind, Stream, Written};
pub use writer::{Model, Writer, WriterConfig};

/// What a sender believes at this moment, for planners and plots.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct State {
    /// Congestion window, in segments, with its fraction.
    pub cwnd: f64,
    /// Where slow start ends, in segments.
    pub ssthresh: f64,
    /// What the retransmission timer would be set to now, back-off included.
    pub rto: Duration,
    /// Smoothed round-trip time; none before the first sample, or after so many timeouts that
    /// the sender gave it up.
    pub srtt: Option<Duration>,
    /// Segments that were sent and are not acknowledged, as the sender counts them.
    pub in_flight: u32,
    /// Whether a loss is being repaired without a timeout.
    pub recovering: bool,
}

/// What a sender counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments sent, repeated ones included.
    pub sent: u64,
    /// Of these, sent before.
    pub repeated: u64,
    /// Acknowledgements that came.
    pub acks: u64,
    /// Segments that are acknowledged in sequence.
    pub acked: u32,
    /// Expiries of the retransmission timer while something was out.
    pub timeouts: u64,
    /// Losses found by duplicate acknowledgements.
    pub fast_retransmits: u64,
    /// Reductions because of ECN marks.
    pub ecn_responses: u64,
}

/// The initial window, in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialWindow {
    /// This many (ns-2's `windowInit_` with `windowInitOption_` 1).
    Segments(u32),
    /// By packet size, 2 to 4 (RFC 3390; ns-2's `windowInitOption_` 2).
    Rfc3390,
    /// Ten, fewer for packets of more than 1460 bytes (RFC 6928).
    Rfc6928,
}

impl InitialWindow {
    /// For packets of `size` bytes.
    pub fn segments(self, size: u32) -> u32 {
        match self {
            Self::Segments(n) => n.max(1),
            Self::Rfc3390 if size <= 1_095 => 4,
            Self::Rfc3390 if size < 2_190 => 3,
            Self::Rfc3390 => 2,
            // min(10 MSS, max(2 MSS, 14600)) in whole segments.
            Self::Rfc6928 => (14_600 / size.max(1)).clamp(2, 10),
        }
    }
}

/// Of a header of IPv4 and TCP without options, so of a SYN and an acknowledgement as ns-2 counts
/// them.
pub const HEADER: u32 = 40;
