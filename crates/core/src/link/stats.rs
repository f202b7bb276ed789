//! What a link counts.

use core::time::Duration;

use super::packet_log::{LinkLogEntry, PacketLog};
use crate::units::Bytes;

/// What a link counted. Every arrival is delivered, dropped in one of three ways, or
/// [inside](super::Link::inside).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets that came.
    pub arrivals: u64,
    /// Their size.
    pub arrived_bytes: Bytes,
    /// Packets that came out at the far end, and were popped.
    pub delivered: u64,
    /// Their size.
    pub delivered_bytes: Bytes,
    /// Packets that the queue did not take, or dropped later.
    pub queue_drops: u64,
    /// Packets lost at random.
    pub loss_drops: u64,
    /// Packets lost in outages.
    pub outage_drops: u64,
    /// Packets that the queue marked.
    pub marks: u64,
    /// For how long the transmitter worked on packets that it has finished, stalls included.
    /// Over a span, this is the utilisation; with steps or a trace, compare bytes with
    /// [`Capacity::offered`](super::Capacity::offered) instead.
    pub busy: Duration,
}

/// What a link counted of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Packets that came.
    pub arrivals: u64,
    /// Their size.
    pub arrived_bytes: Bytes,
    /// Packets that came out at the far end, and were popped.
    pub delivered: u64,
    /// Their size.
    pub delivered_bytes: Bytes,
    /// Packets that the queue did not take, or dropped later.
    pub queue_drops: u64,
    /// Packets lost at random or in an outage.
    pub other_drops: u64,
    /// Packets that the queue marked.
    pub marks: u64,
}

/// What waits in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queued {
    /// Number of packets.
    pub packets: usize,
    /// Their size.
    pub bytes: Bytes,
}

/// What is recorded only on demand.
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

    /// Changes the counts of a flow, if it is counted.
    pub(super) fn count(&mut self, flow: u32, change: impl FnOnce(&mut FlowCounts)) {
        if let Some(counts) = self.flows.get_mut(flow as usize) {
            change(counts);
        }
    }
}
