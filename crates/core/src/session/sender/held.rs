//! Queue lengths of a sender, for tests of memory bounds.

use super::MediaSender;
use crate::session::probes::ProbeStream;
use crate::units::Bytes;

/// Lengths of all queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLengths {
    /// Packets in the history.
    pub packets: usize,
    /// Bytes of these without a fate.
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

impl MediaSender {
    /// Queue lengths, for tests of memory bounds.
    pub fn held(&self) -> QueueLengths {
        QueueLengths {
            packets: self.history.len(),
            in_flight: self.history.in_flight(),
            kept: self.frames.kept(),
            backlog: self.frames.backlog(),
            repairs: self.repairs.len(),
            captures: self.capture.waiting(),
            probes: self.probes.as_ref().map_or(0, ProbeStream::len),
            datagrams: self.outgoing.len(),
        }
    }
}
