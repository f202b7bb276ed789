//! Who sees what happens in a world.

use tidegate_core::control::Ecn;
use tidegate_core::link::{LinkId, LinkStats, Queued};
use tidegate_core::trace::Event;
use tidegate_core::units::{Bytes, Time};

use super::NodeId;
#[cfg(doc)]
use super::World;
use crate::packet_agent::Body;

/// Who sees what happens in a world.
pub trait Observer {
    /// A party says that something happened.
    fn event(&mut self, _party: NodeId, _at: Time, _event: Event) {}

    /// A packet enters the network.
    fn sent(&mut self, _at: Time, _flight: Flight<'_>) {}

    /// A packet reached a party that takes part.
    fn arrived(&mut self, _at: Time, _flight: Flight<'_>) {}

    /// A packet is likely to reach a party soon: what is kept of it may be brought to the cache.
    fn soon(&mut self, _party: NodeId) {}

    /// The same a while later, shortly before it arrives.
    fn very_soon(&mut self, _party: NodeId) {}

    /// The state of a link, at the interval of [`World::sample_every`].
    fn sample(&mut self, _sample: &Sample) {}

    /// Whether all that it sees is to be in the order of time. If not, what one party does is, and so
    /// are samples, but a party may be ahead of the others by what a packet takes to reach it.
    fn wants_order(&self) -> bool {
        true
    }
}

impl Observer for () {
    fn wants_order(&self) -> bool {
        false
    }
}

/// A packet, as an observer sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flight<'a> {
    /// Who sends it or receives it.
    pub party: NodeId,
    /// Whose it is.
    pub flow: u32,
    /// On the wire, every header included.
    pub size: Bytes,
    /// As it is now.
    pub ecn: Ecn,
    /// When it entered the network.
    pub entered: Time,
    /// What it carries.
    pub body: &'a Body,
}

impl Flight<'_> {
    /// The UDP payload, where it has one.
    pub fn payload(&self) -> &[u8] {
        match self.body {
            Body::Datagram(payload) => payload,
            _ => &[],
        }
    }
}

/// The state of a link at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// Which.
    pub link: LinkId,
    /// What waits.
    pub queued: Queued,
    /// Counters since the start.
    pub stats: LinkStats,
}
