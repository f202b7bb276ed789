//! How much a sender holds, for those who check that it is bounded.

use super::MediaSender;
use crate::units::Bytes;

/// Lengths of all queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) struct Held {
    /// Packets whose fate is kept.
    pub(in crate::session) packets: usize,
    /// Of these, bytes without a fate.
    pub(in crate::session) in_flight: Bytes,
    /// Frames kept for repair.
    pub(in crate::session) kept: usize,
    /// Wire bytes that wait to leave for the first time.
    pub(in crate::session) backlog: Bytes,
    /// Packets to be sent again.
    pub(in crate::session) repairs: usize,
    /// Captures that wait for the encoder.
    pub(in crate::session) captures: usize,
    /// Reports that wait to leave.
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
