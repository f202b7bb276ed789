//! What happened to each packet of a link, for logs and plots.

use core::time::Duration;
use std::collections::VecDeque;

use crate::units::{Bytes, Time};

/// One happening at a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLogEntry {
    /// When, logically.
    pub at: Time,
    /// Which packet: the number of its arrival at this link, from zero.
    pub packet: u64,
    /// Whose it is, see [`Packet::flow`](super::Packet::flow).
    pub flow: u32,
    /// How large it is.
    pub size: Bytes,
    /// What.
    pub happening: LinkEvent,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// It left the transmitter and was not lost. It arrives after the propagation delay, and
    /// jitter if there is any.
    Departed {
        /// How long it waited for the transmitter.
        waited: Duration,
        /// How long its transmission took, with stalls.
        served: Duration,
    },
    /// It is gone.
    Dropped(DropReason),
    /// The queue took it.
    Enqueued,
    /// The queue marked it: as it took it, or as it let it go, long after it was noted as
    /// [`Enqueued`](Self::Enqueued).
    Marked,
}

/// Where a packet was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// At random, behind the transmitter.
    Loss,
    /// Its transmission ended in an outage.
    Outage,
    /// The queue did not take it, or took it and dropped it later.
    Queue,
}

/// A bounded list of notes.
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
