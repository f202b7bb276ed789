//! Log of the events of each packet at a link.

use core::time::Duration;
use std::collections::VecDeque;

use crate::units::{Bytes, Time};

/// An event of a packet at a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLogEntry {
    /// Logical time.
    pub at: Time,
    /// Sequence number of the packet by arrival at this link, from zero.
    pub packet: u64,
    /// Flow of the packet, see [`Packet::flow`](super::Packet::flow).
    pub flow: u32,
    /// Size of the packet.
    pub size: Bytes,
    /// DSCP of the packet.
    pub dscp: u8,
    /// The event.
    pub happening: LinkEvent,
}

/// Event of a packet at a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The packet left the transmitter and was not lost. It arrives after the propagation delay and
    /// jitter.
    Departed {
        /// Queueing delay.
        waited: Duration,
        /// Transmission time, including stalls.
        served: Duration,
    },
    /// The packet was dropped.
    Dropped(DropReason),
    /// The packet was enqueued.
    Enqueued,
    /// The queue marked the packet, at enqueue or at dequeue. The latter follows its
    /// [`Enqueued`](Self::Enqueued) event.
    Marked,
}

/// Cause of a packet drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Random loss behind the transmitter.
    Loss,
    /// The transmission ended during an outage.
    Outage,
    /// Queue drop, at enqueue or later.
    Queue,
}

/// Bounded packet log.
#[derive(Debug)]
pub(super) struct PacketLog {
    limit: usize,
    only_drops: bool,
    list: VecDeque<LinkLogEntry>,
    missed: u64,
}

impl PacketLog {
    pub(super) fn new(limit: usize, only_drops: bool) -> Self {
        Self {
            limit,
            only_drops,
            list: VecDeque::new(),
            missed: 0,
        }
    }

    pub(super) fn add(&mut self, note: LinkLogEntry) {
        if self.only_drops && !matches!(note.happening, LinkEvent::Dropped(_)) {
            return;
        }
        if self.list.len() < self.limit {
            self.list.push_back(note);
        } else {
            self.missed += 1;
        }
    }

    pub(super) fn take(&mut self) -> Option<LinkLogEntry> {
        self.list.pop_front()
    }

    pub(super) fn missed(&self) -> u64 {
        self.missed
    }
}
