//! Rows of a run folder from the records of a session's endpoints.

use tidegate_core::control::Outcome;
use tidegate_core::session::{history, jitter_buffer, sender};
use tidegate_core::units::Time;

use crate::rows::{FrameKind, PacketOutcome, PacketRow, ReceivedFrame, SentFrame};

/// A sent frame as a row of the run folder.
pub fn sent_row(f: &sender::SentFrame) -> SentFrame {
    SentFrame {
        frame: f.frame,
        rtp_timestamp: f.timestamp,
        captured: f.captured,
        kind: match (f.skipped, f.key) {
            (true, _) => FrameKind::Skipped,
            (false, true) => FrameKind::Key,
            (false, false) => FrameKind::Delta,
        },
        target_bits: f.target_bits,
        bits: f.bits,
        left: f.left,
        dropped: f.dropped,
        quality: f.quality,
    }
}

/// The received frame number `frame` as a row of the run folder.
pub fn received_row(f: &jitter_buffer::ReceivedFrame, frame: u64) -> ReceivedFrame {
    ReceivedFrame {
        frame,
        rtp_timestamp: f.timestamp as u32,
        first: f.first,
        complete: f.complete,
        kind: if f.key {
            FrameKind::Key
        } else {
            FrameKind::Delta
        },
        bits: f.bytes * 8,
        decodable: f.complete.is_some(),
        quality: None,
    }
}

/// A packet as a row of the run folder.
pub fn packet_row(p: &history::PacketRow) -> PacketRow {
    let (arrived, outcome) = match p.outcome {
        Some(Outcome::Received { at, .. }) => {
            (Some(Time::from_nanos(at.0)), PacketOutcome::Received)
        }
        Some(Outcome::Lost) => (None, PacketOutcome::Lost),
        None => (None, PacketOutcome::Unknown),
    };
    PacketRow {
        seq: p.seq,
        kind: p.kind,
        size: p.size,
        sent: p.sent,
        arrived,
        outcome,
    }
}
