//! Counters of a link.

use core::time::Duration;

use super::packet_log::{LinkLogEntry, PacketLog};
use crate::units::Bytes;

/// Counters of a link. Every arrival is delivered, dropped for one of three causes, or still
/// [inside](super::Link::inside).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Arrived packets.
    pub arrivals: u64,
    /// Arrived bytes.
    pub arrived_bytes: Bytes,
    /// Packets delivered at the far end and popped.
    pub delivered: u64,
    /// Delivered bytes.
    pub delivered_bytes: Bytes,
    /// Queue drops, at enqueue or later.
    pub queue_drops: u64,
    /// Random losses.
    pub loss_drops: u64,
    /// Packets lost in outages.
    pub outage_drops: u64,
    /// ECN marks of the queue.
    pub marks: u64,
    /// Total transmission time of finished packets, including stalls. Divided by the duration, this
    /// is the utilisation. For steps or a trace, compare the bytes with
    /// [`Capacity::offered`](super::Capacity::offered) instead.
    pub busy: Duration,
}

/// Counters of one flow at a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Arrived packets.
    pub arrivals: u64,
    /// Arrived bytes.
    pub arrived_bytes: Bytes,
    /// Packets delivered at the far end and popped.
    pub delivered: u64,
    /// Delivered bytes.
    pub delivered_bytes: Bytes,
    /// Queue drops, at enqueue or later.
    pub queue_drops: u64,
    /// Random losses and packets lost in outages.
    pub other_drops: u64,
    /// ECN marks of the queue.
    pub marks: u64,
}

/// Backlog of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queued {
    /// Number of packets.
    pub packets: usize,
    /// Their size.
    pub bytes: Bytes,
}

/// Optional records: packet log and per-flow counters.
#[derive(Debug, Default)]
pub(super) struct Records {
    pub(super) notes: Option<PacketLog>,
    pub(super) flows: Vec<FlowCounts>,
}

impl Records {
    pub(super) fn note(&mut self, note: LinkLogEntry) {
        if let Some(notes) = &mut self.notes {
            notes.add(note);
        }
    }

    /// Updates the counters of a flow, if they are enabled.
    pub(super) fn count(&mut self, flow: u32, change: impl FnOnce(&mut FlowCounts)) {
        if let Some(counts) = self.flows.get_mut(flow as usize) {
            change(counts);
        }
    }
}
