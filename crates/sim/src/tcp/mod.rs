//! TCP models: one-way senders of numbered segments and the sink that acknowledges them.
//!
//! [`classic`] models the senders of ns-2.35, [`modern`] those of Linux. All senders exchange
//! [`Segment`](crate::packet_agent::Segment) and [`Ack`](crate::packet_agent::Ack) with the same
//! [`Sink`], read data from a [`Source`] and report [`State`] and [`Counters`]. There is no
//! separate handshake: as in ns-2, segment 0 stands for the SYN, is as small as an acknowledgement,
//! and its acknowledgement opens the initial window.

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

/// State of a sender, for planners and plots.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct State {
    /// Congestion window in segments, with fraction.
    pub cwnd: f64,
    /// Slow start threshold, in segments.
    pub ssthresh: f64,
    /// Current retransmission timeout, back-off included.
    pub rto: Duration,
    /// Smoothed round-trip time; none before the first sample, or after so many timeouts that the
    /// sender discarded it.
    pub srtt: Option<Duration>,
    /// Segments in flight, by the sender's estimate.
    pub in_flight: u32,
    /// Whether the sender is in loss recovery without a timeout.
    pub recovering: bool,
}

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments sent, including retransmissions.
    pub sent: u64,
    /// Retransmitted segments.
    pub repeated: u64,
    /// Acknowledgements received.
    pub acks: u64,
    /// Segments acknowledged cumulatively.
    pub acked: u32,
    /// Retransmission timeouts with data in flight.
    pub timeouts: u64,
    /// Losses detected by duplicate acknowledgements.
    pub fast_retransmits: u64,
    /// Window reductions due to ECN marks.
    pub ecn_responses: u64,
}

/// The initial window, in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialWindow {
    /// This many segments (ns-2's `windowInit_` with `windowInitOption_` 1).
    Segments(u32),
    /// 2 to 4, depending on the packet size (RFC 3390; ns-2's `windowInitOption_` 2).
    Rfc3390,
    /// Ten, fewer for packets of more than 1460 bytes (RFC 6928).
    Rfc6928,
}

impl InitialWindow {
    /// The initial window for packets of `size` bytes.
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

/// Size of an IPv4 and TCP header without options; the size of a SYN and of an acknowledgement in
/// ns-2.
pub const HEADER: u32 = 40;
