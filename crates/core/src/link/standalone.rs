//! A link outside of a network.

use core::time::Duration;

use super::config::{LinkConfig, LinkError};
use super::fast::{LinkForm, LinkImpl};
use super::packet_log::LinkLogEntry;
use super::packet_pool::{PacketHandle, PacketPool};
use super::rate::Capacity;
use super::{Hop, Packet};
use crate::random::Seed;
use crate::units::Time;

pub use super::stats::{FlowCounts, LinkStats, Queued};

/// One direction of one hop.
///
/// At equal times an arrival precedes the end of a transmission, as in ns-2. In the opposite order,
/// a sender behind a link of the same rate, whose packets arrive exactly at departures, would get
/// every free place of a full queue and starve the other senders.
#[derive(Debug)]
pub struct Link<P> {
    store: PacketPool<P>,
    pub(super) passage: LinkImpl,
}

impl<P: Packet> Link<P> {
    /// Builds the link. Its random streams are `link/<name>/loss`, `link/<name>/jitter` and
    /// `link/<name>/` with the name of the queue discipline.
    ///
    /// # Errors
    ///
    /// A parameter is out of range. The error names the link and the parameter.
    pub fn new(config: &LinkConfig, seed: Seed, name: &str) -> Result<Self, LinkError> {
        let passage =
            LinkImpl::new(config, seed, name, LinkForm::Fast).map_err(|fault| LinkError {
                link: name.to_owned(),
                fault,
            })?;
        Ok(Self {
            store: PacketPool::new(),
            passage,
        })
    }

    /// Advances queue, transmitter and counters to `now`. A transmission that ends exactly at `now`
    /// is still in progress. [`Hop::push`] and [`Hop::pop`] include this.
    pub fn advance(&mut self, now: Time) {
        self.passage.advance(&mut self.store, now);
    }

    /// Counters as of the last call of `push`, `pop` or [`advance`](Self::advance).
    pub fn stats(&self) -> LinkStats {
        self.passage.stats()
    }

    /// Backlog without the packet in transmission, as of the last call.
    pub fn queued(&self) -> Queued {
        self.passage.queued()
    }

    /// Number of packets in the queue, in transmission or in propagation.
    pub fn inside(&self) -> usize {
        self.store.len()
    }

    /// Capacity of the transmitter.
    pub fn capacity(&self) -> &Capacity {
        self.passage.capacity()
    }

    /// Propagation delay.
    pub fn delay(&self) -> Duration {
        self.passage.delay()
    }

    /// Enables the packet log with at most `limit` unread entries; further entries are counted as
    /// missed. Packets already inside may be logged without a sequence number and queueing delay.
    pub fn observe(&mut self, limit: usize) {
        self.passage.observe(&self.store, limit);
    }

    /// As [`observe`](Self::observe), for drops only.
    pub fn observe_drops(&mut self, limit: usize) {
        self.passage.observe_drops(limit);
    }

    /// Oldest unread log entry. Entries are in order of time.
    pub fn pop_note(&mut self) -> Option<LinkLogEntry> {
        self.passage.pop_note()
    }

    /// Number of log entries lost because the log was full.
    pub fn missed_notes(&self) -> u64 {
        self.passage.missed_notes()
    }

    /// Enables per-flow counters for flows below `flows`, see [`Packet::flow`].
    pub fn count_flows(&mut self, flows: usize) {
        self.passage.count_flows(&self.store, flows);
    }

    /// Per-flow counters by flow number, as of the last call; empty without
    /// [`count_flows`](Self::count_flows).
    pub fn flow_counts(&self) -> &[FlowCounts] {
        self.passage.flow_counts()
    }
}

impl<P: Packet + Send> Hop<P> for Link<P> {
    #[inline]
    fn push(&mut self, at: Time, packet: P) {
        let size = packet.size();
        let slot = self.store.put(|| packet);
        let handle = PacketHandle { size, slot, hop: 0 };
        self.passage.push(&mut self.store, at, handle);
    }

    #[inline]
    fn pop(&mut self, now: Time) -> Option<(Time, P)> {
        let departed = self.passage.pop(&mut self.store, now);
        self.passage.advance(&mut self.store, now);
        let (at, handle) = departed?;
        let packet = self.store.take(handle.slot)?;
        Some((at, packet))
    }

    /// Lower bound of the next departure. If the packet in transmission is lost or delayed by
    /// jitter, a [`pop`](Self::pop) at that time returns `None` and this moves forward.
    fn next_departure(&self) -> Option<Time> {
        self.passage.next_departure()
    }
}

#[cfg(test)]
mod tests;
