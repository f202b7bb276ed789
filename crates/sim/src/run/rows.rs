//! The rows of a run folder's tables.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_core::control::Kind;
use tidegate_core::media::Quality;
use tidegate_core::trace::{DropCause, Event};
use tidegate_core::units::{Bytes, Time};

use crate::meter::{Bin, Totals};

/// One line of `events.jsonl`.
#[derive(Clone, Debug, PartialEq)]
pub struct EventRow {
    /// When, counted from the start of the run.
    pub at: Time,
    /// The flow that it concerns.
    pub flow: String,
    /// Who says so.
    pub side: Side,
    /// What happened.
    pub event: Event,
}

/// Who an event comes from.
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
#[derive(Clone, Debug, PartialEq)]
pub struct SentFrame {
    /// Its number, from zero at the first capture; frames that were skipped count.
    pub frame: u64,
    /// As on the wire.
    pub rtp_timestamp: u32,
    /// When it was captured.
    pub captured: Time,
    /// What the encoder made of it.
    pub kind: FrameKind,
    /// Its budget.
    pub target_bits: u64,
    /// What it became: the access unit, without packet headers.
    pub bits: u64,
    /// When its last packet left for the first time; none if not all of it was sent.
    pub left: Option<Time>,
    /// Why it was given up, if it was.
    pub dropped: Option<DropCause>,
    /// The encoder's reconstruction against the original.
    pub quality: Option<Quality>,
}

/// How a frame was coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrameKind {
    /// From other frames.
    Delta,
    /// Alone.
    Key,
    /// Not at all.
    Skipped,
}

/// A row of `frames-received.csv`: one frame of which at least a packet arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedFrame {
    /// As in [`SentFrame`].
    pub frame: u64,
    /// As on the wire.
    pub rtp_timestamp: u32,
    /// When its first packet arrived.
    pub first: Time,
    /// When all of it was there; none if that never happened.
    pub complete: Option<Time>,
    /// How it was coded, as far as the receiver can tell.
    pub kind: FrameKind,
    /// What arrived of the access unit.
    pub bits: u64,
    /// Whether it was whole and all that it refers to was decodable.
    pub decodable: bool,
    /// The decoded picture against the original.
    pub quality: Option<Quality>,
}

/// A row of `shown.csv`: what a viewer saw when this frame was due.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownFrame {
    /// The frame whose turn it was.
    pub frame: u64,
    /// The frame that was on the screen; none before the first one.
    pub shown_frame: Option<u64>,
    /// Whether the two are the same.
    pub on_time: bool,
    /// The picture on the screen against the original of `frame`.
    pub quality: Option<Quality>,
}

/// A row of `packets.csv`: one packet on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketRow {
    /// Its number in order of sending.
    pub seq: u64,
    /// What it carried.
    pub kind: Kind,
    /// On the wire, every header included.
    pub size: Bytes,
    /// When it left.
    pub sent: Time,
    /// When it arrived; on the receiver's clock where there are two.
    pub arrived: Option<Time>,
    /// What became of it.
    pub outcome: PacketOutcome,
}

/// The end of a packet's journey, as far as the run knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PacketOutcome {
    /// It did not arrive.
    Lost,
    /// It arrived.
    Received,
    /// The run ended first, or nobody told.
    Unknown,
}

/// A row of `savable.csv`: what the oracle says of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavableRow {
    /// As in [`SentFrame`].
    pub frame: u64,
    /// Whether a sender that knew the path could have delivered it in time.
    pub savable: bool,
}

/// A row of `links.csv`: the state of a link at one moment. Counters grow from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSample {
    /// When.
    pub at: Time,
    /// The flow in whose run the link was sampled: flows that are compared run one by one.
    /// Flows that share the link share the name of the first of them.
    pub run: Arc<str>,
    /// Name of the link.
    pub link: Arc<str>,
    /// What waits in its queue.
    pub queue: Bytes,
    /// Packets dropped so far, by the queue or by loss.
    pub drops: u64,
    /// Packets marked so far.
    pub marks: u64,
    /// What came out of the far end so far.
    pub delivered: Bytes,
    /// Why they were dropped, if the run tells.
    pub causes: Option<DropCauses>,
}

impl LinkSample {
    /// Of the packets dropped so far, those that the queue did not take, or dropped later; none if
    /// the run does not tell causes.
    pub fn queue_drops(&self) -> Option<u64> {
        let DropCauses { random, outage } = self.causes?;
        Some(self.drops.saturating_sub(random).saturating_sub(outage))
    }
}

/// Packets dropped so far that did not fall to the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCauses {
    /// Lost at random.
    pub random: u64,
    /// Lost in outages.
    pub outage: u64,
}

/// A row of `bins.csv`: what one flow did in a short span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinRow {
    /// When the span began.
    pub at: Time,
    /// Name of the flow.
    pub flow: String,
    /// What it did.
    pub bin: Bin,
}

/// A row of `totals.csv`: what one flow did while it was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TotalsRow {
    /// Name of the flow.
    pub flow: String,
    /// What it did.
    pub totals: Totals,
}
