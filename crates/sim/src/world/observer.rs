//! Observers of a run.

use tidegate_core::control::Ecn;
use tidegate_core::link::{LinkId, LinkStats, Queued};
use tidegate_core::trace::Event;
use tidegate_core::units::{Bytes, Time};

use super::NodeId;
#[cfg(doc)]
use super::World;
use crate::packet_agent::Body;

/// Receives the events of a run.
pub trait Observer {
    /// An agent reports an event.
    fn event(&mut self, _node: NodeId, _at: Time, _event: Event) {}

    /// A packet enters the network.
    fn sent(&mut self, _at: Time, _flight: Flight<'_>) {}

    /// A packet arrives at an active node.
    fn arrived(&mut self, _at: Time, _flight: Flight<'_>) {}

    /// A packet is likely to arrive at a node soon. The observer may prefetch its state.
    fn prefetch_early(&mut self, _node: NodeId) {}

    /// As [`prefetch_early`](Self::prefetch_early), shortly before the arrival.
    fn prefetch(&mut self, _node: NodeId) {}

    /// State of a link, at the interval of [`World::sample_every`].
    fn sample(&mut self, _sample: &Sample) {}

    /// Whether all calls have to be in the order of time. Otherwise only samples and the calls of
    /// each single node are, and a node may be ahead of the others by the delay of the path to it.
    fn wants_order(&self) -> bool {
        true
    }
}

impl Observer for () {
    fn wants_order(&self) -> bool {
        false
    }
}

/// A packet as seen by an observer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flight<'a> {
    /// Sending or receiving node.
    pub node: NodeId,
    /// Flow of the packet.
    pub flow: u32,
    /// Size on the wire, all headers included.
    pub size: Bytes,
    /// ECN field, with the marks so far.
    pub ecn: Ecn,
    /// Time at which the packet entered the network.
    pub entered: Time,
    /// Content of the packet.
    pub body: &'a Body,
}

impl Flight<'_> {
    /// UDP payload; empty for a modelled packet.
    pub fn payload(&self) -> &[u8] {
        match self.body {
            Body::Datagram(payload) => payload,
            _ => &[],
        }
    }
}

/// State of a link at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time of the sample.
    pub at: Time,
    /// The link.
    pub link: LinkId,
    /// Queue length.
    pub queued: Queued,
    /// Counters since the start.
    pub stats: LinkStats,
}
