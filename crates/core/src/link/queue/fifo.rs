//! FIFO with its size in packets and bytes.

use std::collections::VecDeque;

use super::{Queued, QueuedPacket};
use crate::units::Bytes;

/// Building block of most disciplines.
#[derive(Debug, Default)]
pub(in crate::link) struct Fifo {
    list: VecDeque<QueuedPacket>,
    bytes: Bytes,
}

impl Fifo {
    #[inline]
    pub(in crate::link) fn push(&mut self, packet: QueuedPacket) {
        self.bytes += packet.size;
        self.list.push_back(packet);
    }

    /// Removes the oldest packet.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<QueuedPacket> {
        let packet = self.list.pop_front()?;
        self.bytes -= packet.size;
        Some(packet)
    }

    pub(super) fn pop_newest(&mut self) -> Option<QueuedPacket> {
        let packet = self.list.pop_back()?;
        self.bytes -= packet.size;
        Some(packet)
    }

    /// The oldest packet.
    pub(super) fn head(&self) -> Option<&QueuedPacket> {
        self.list.front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    #[inline]
    pub(super) fn queued(&self) -> Queued {
        Queued {
            packets: self.list.len(),
            bytes: self.bytes,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    #[inline]
    pub(super) fn bytes(&self) -> Bytes {
        self.bytes
    }
}
