//! A link on its own.

use core::time::Duration;

use super::config::{LinkConfig, LinkError};
use super::link_impl::LinkImpl;
use super::packet_log::LinkLogEntry;
use super::packet_pool::{PacketHandle, PacketPool};
use super::rate::Capacity;
use super::{Packet, Stage};
use crate::random::Seed;
use crate::units::Time;

pub use super::stats::{FlowCounts, LinkStats, Queued};

/// One direction of one hop.
///
/// At equal times, what arrives finds the packet still in transmission that leaves then, as in ns-2.
/// The other way round, a sender behind a link of the same rate, whose packets come just when others
/// leave, would get every place in a full queue, and nobody else one.
#[derive(Debug)]
pub struct Link<P> {
    store: PacketPool<P>,
    pub(super) passage: LinkImpl,
}

impl<P: Packet> Link<P> {
    /// Builds the link. Its random streams are `link/<name>/loss`, `link/<name>/jitter` and
    /// `link/<name>/` with the name of the discipline.
    ///
    /// # Errors
    ///
    /// Names the link and the parameter that is out of range.
    pub fn new(config: &LinkConfig, seed: Seed, name: &str) -> Result<Self, LinkError> {
        let passage = LinkImpl::new(config, seed, name).map_err(|fault| LinkError {
            link: name.to_owned(),
            fault,
        })?;
        Ok(Self {
            store: PacketPool::new(),
            passage,
        })
    }

    /// Brings queue, transmitter and counters to `now`, whether something leaves or not; what would
    /// leave the transmitter just then has not yet.
    /// [`Stage::push`] and [`Stage::pop`] do this by themselves.
    pub fn advance(&mut self, now: Time) {
        self.passage.advance(&mut self.store, now);
    }

    /// What it counted up to the last call of `push`, `pop` or [`advance`](Self::advance).
    pub fn stats(&self) -> LinkStats {
        self.passage.stats()
    }

    /// What waits, without the packet in transmission, as of the last call.
    pub fn queued(&self) -> Queued {
        self.passage.queued()
    }

    /// How many packets are in the queue, in transmission or on the wire.
    pub fn inside(&self) -> usize {
        self.store.len()
    }

    /// What the transmitter can carry.
    pub fn capacity(&self) -> &Capacity {
        self.passage.capacity()
    }

    /// Propagation.
    pub fn delay(&self) -> Duration {
        self.passage.delay()
    }

    /// From now on, keeps notes of what happens to each packet: at most `limit` that nobody
    /// took; more are counted as missed. Off at first. A packet that is inside already may be noted
    /// without its number and without how long it waited.
    pub fn observe(&mut self, limit: usize) {
        self.passage.observe(&self.store, limit);
    }

    /// As [`observe`](Self::observe), but notes only what is dropped.
    pub fn observe_drops(&mut self, limit: usize) {
        self.passage.observe_drops(limit);
    }

    /// The oldest note that was not taken yet. Notes come in the order of their times.
    pub fn pop_note(&mut self) -> Option<LinkLogEntry> {
        self.passage.pop_note()
    }

    /// How many notes found no room.
    pub fn missed_notes(&self) -> u64 {
        self.passage.missed_notes()
    }

    /// From now on, counts apart what happens to each flow below `flows`, see [`Packet::flow`].
    /// Off at first.
    pub fn count_flows(&mut self, flows: usize) {
        self.passage.count_flows(&self.store, flows);
    }

    /// What was counted of each flow, in the order of their numbers; empty unless asked for by
    /// [`count_flows`](Self::count_flows). As of the last call, as [`stats`](Self::stats).
    pub fn flow_counts(&self) -> &[FlowCounts] {
        self.passage.flow_counts()
    }
}

impl<P: Packet + Send> Stage<P> for Link<P> {
    #[inline]
    fn push(&mut self, at: Time, packet: P) {
        let size = packet.size();
        let slot = self.store.put(|| packet);
        let parcel = PacketHandle { size, slot, hop: 0 };
        self.passage.push(&mut self.store, at, parcel);
    }

    #[inline]
    fn pop(&mut self, now: Time) -> Option<(Time, P)> {
        let departed = self.passage.pop(&mut self.store, now);
        self.passage.advance(&mut self.store, now);
        let (at, parcel) = departed?;
        let packet = self.store.take(parcel.slot)?;
        Some((at, packet))
    }

    /// Not later than the next packet leaves. Where the packet in transmission gets lost or
    /// meets jitter, a [`pop`](Self::pop) at that time gives nothing and moves this on.
    fn next_departure(&self) -> Option<Time> {
        self.passage.next_departure()
    }
}

#[cfg(test)]
mod tests;
