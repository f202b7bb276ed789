//! The rows of a run folder's tables.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_core::control::Kind;
use tidegate_core::media::Quality;
use tidegate_core::trace::{DropCause, Event};
use tidegate_core::units::{Bytes, Time};

use crate::cells::{causes, maybe_seconds, quality, seconds};
use crate::counts::{Bin, Totals};

/// One line of `events.jsonl`.
#[derive(Clone, Debug, PartialEq)]
pub struct EventRow {
    /// Time since the start of the run.
    pub at: Time,
    /// Flow that the event concerns.
    pub flow: String,
    /// Origin of the event.
    pub side: Side,
    /// The event.
    pub event: Event,
}

/// Origin of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// A link, a queue or an aggregation point.
    Network,
    /// The receiving endpoint.
    Receiver,
    /// The sending endpoint.
    Sender,
}

/// A row of `frames-sent.csv`: one captured frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SentFrame {
    /// Number of the frame, from zero at the first capture; skipped frames count.
    pub frame: u64,
    /// RTP timestamp on the wire.
    pub rtp_timestamp: u32,
    /// Time of capture.
    #[serde(with = "seconds")]
    pub captured: Time,
    /// Coding of the frame.
    pub kind: FrameKind,
    /// Bit budget that the encoder was given.
    pub target_bits: u64,
    /// Size of the access unit, without packet headers.
    pub bits: u64,
    /// Time at which its last packet was first sent; `None` if not all of it was sent.
    #[serde(with = "maybe_seconds")]
    pub left: Option<Time>,
    /// Reason for which the sender dropped it, if any.
    pub dropped: Option<DropCause>,
    /// Quality of the encoder's reconstruction relative to the original.
    #[serde(with = "quality")]
    pub quality: Option<Quality>,
}

/// Coding of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrameKind {
    /// Predicted from other frames.
    Delta,
    /// Intra-coded.
    Key,
    /// Not encoded.
    Skipped,
}

/// A row of `frames-received.csv`: one frame of which at least one packet arrived.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceivedFrame {
    /// As in [`SentFrame`].
    pub frame: u64,
    /// RTP timestamp on the wire.
    pub rtp_timestamp: u32,
    /// Arrival of its first packet.
    #[serde(with = "seconds")]
    pub first: Time,
    /// Time at which all of its packets had arrived; `None` if it stayed incomplete.
    #[serde(with = "maybe_seconds")]
    pub complete: Option<Time>,
    /// Coding of the frame, as far as the receiver knows it.
    pub kind: FrameKind,
    /// Received bits of the access unit.
    pub bits: u64,
    /// Whether it was complete and all of its references were decodable.
    pub decodable: bool,
    /// Quality of the decoded picture relative to the original.
    #[serde(with = "quality")]
    pub quality: Option<Quality>,
}

/// A row of `shown.csv`: the picture on display when this frame was due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShownFrame {
    /// The frame that was due.
    pub frame: u64,
    /// The frame on display; `None` before the first one.
    pub shown_frame: Option<u64>,
    /// Whether the two are the same.
    pub on_time: bool,
    /// Quality of the displayed picture relative to the original of `frame`.
    #[serde(with = "quality")]
    pub quality: Option<Quality>,
}

/// A row of `packets.csv`: one packet on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketRow {
    /// Number of the packet in order of sending.
    pub seq: u64,
    /// Kind of payload.
    pub kind: Kind,
    /// Size on the wire, with all headers.
    pub size: Bytes,
    /// Time of sending.
    #[serde(with = "seconds")]
    pub sent: Time,
    /// Time of arrival, on the receiver's clock if there are two.
    #[serde(with = "maybe_seconds")]
    pub arrived: Option<Time>,
    /// Outcome of the packet.
    pub outcome: PacketOutcome,
}

/// Outcome of a packet, as far as the run knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PacketOutcome {
    /// It did not arrive.
    Lost,
    /// It arrived.
    Received,
    /// The run ended first, or no feedback covered the packet.
    Unknown,
}

/// A row of `savable.csv`: result of the offline optimum for one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavableRow {
    /// As in [`SentFrame`].
    pub frame: u64,
    /// Whether a sender with full knowledge of the path could have delivered the frame on time.
    pub savable: bool,
}

/// A row of `links.csv`: state of a link at one time. Counters start at zero with the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSample {
    /// Time of the sample.
    #[serde(with = "seconds")]
    pub at: Time,
    /// The flow in whose run the link was sampled: compared flows run one by one.
    /// Flows that share the link share the name of the first of them.
    pub run: Arc<str>,
    /// Name of the link.
    pub link: Arc<str>,
    /// Bytes in the queue.
    pub queue: Bytes,
    /// Packets dropped so far, by the queue, by random loss or in outages.
    pub drops: u64,
    /// Packets marked so far.
    pub marks: u64,
    /// Bytes delivered at the far end so far.
    pub delivered: Bytes,
    /// Causes of the drops, if recorded.
    #[serde(with = "causes")]
    pub causes: Option<DropCauses>,
}

impl LinkSample {
    /// Number of packets dropped so far by the queue, at arrival or later; `None` if causes are not
    /// recorded.
    pub fn queue_drops(&self) -> Option<u64> {
        let DropCauses { random, outage } = self.causes?;
        Some(self.drops.saturating_sub(random).saturating_sub(outage))
    }
}

/// Packets dropped so far for reasons other than the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCauses {
    /// Random loss.
    pub random: u64,
    /// Outages.
    pub outage: u64,
}

/// A row of `bins.csv`: counters of one flow over a short interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BinRow {
    /// Start of the interval.
    #[serde(with = "seconds")]
    pub at: Time,
    /// Name of the flow.
    pub flow: String,
    /// Counters.
    pub bin: Bin,
}

/// A row of `totals.csv`: counters of one flow over the measured interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TotalsRow {
    /// Name of the flow.
    pub flow: String,
    /// Counters.
    pub totals: Totals,
}
