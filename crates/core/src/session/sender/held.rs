//! Queue lengths of a sender, for tests of memory bounds.

use super::MediaSender;
use crate::units::Bytes;

/// Lengths of all queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) struct Held {
    /// Packets in the history.
    pub(in crate::session) packets: usize,
    /// Bytes of these without a fate.
    pub(in crate::session) in_flight: Bytes,
    /// Frames kept for retransmission.
    pub(in crate::session) kept: usize,
    /// Wire bytes that wait for their first transmission.
    pub(in crate::session) backlog: Bytes,
    /// Queued retransmissions.
    pub(in crate::session) repairs: usize,
    /// Captured frames that wait for the encoder.
    pub(in crate::session) captures: usize,
    /// Queued reports.
    pub(in crate::session) datagrams: usize,
}

impl MediaSender {
    pub(in crate::session) fn held(&self) -> Held {
        Held {
            packets: self.history.len(),
            in_flight: self.history.in_flight(),
            kept: self.frames.kept(),
            backlog: self.frames.backlog(),
            repairs: self.repairs.len(),
            captures: self.capture.waiting(),
            datagrams: self.outgoing.len(),
        }
    }
}
