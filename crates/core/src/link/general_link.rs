//! Link with any configuration: queue, transmitter, outages, random loss, propagation.

use core::mem;
use core::time::Duration;

use rand_pcg::Pcg64Mcg;

use super::Packet;
use super::config::{LinkConfig, LinkFault, LowerEffortPolicy};
use super::delay::Wire;
use super::loss::Loss;
use super::outage::Outages;
use super::packet_log::{DropReason, LinkEvent, LinkLogEntry, PacketLog};
use super::packet_pool::{PacketHandle, PacketPool};
use super::queue::{Discipline, Queue, QueuedPacket, Verdict};
use super::rate::{Capacity, Transmitter};
use super::stats::{FlowCounts, LinkStats, Queued, Records};
use crate::endpoint::LOWER_EFFORT;
use crate::units::Time;

/// The stages of a link in sequence.
///
/// At equal times an arrival precedes the end of a transmission.
#[derive(Debug)]
pub(super) struct GeneralLink {
    queue: Discipline,
    transmitter: Transmitter,
    in_service: Option<InService>,
    /// End of the current transmission; [`Time::FAR`] if there is none or the capacity stalls
    /// forever.
    free_at: Time,
    outages: Outages,
    loss: Loss,
    policy: LowerEffortPolicy,
    wire: Wire<PacketHandle>,
    /// Latest arrival; a lower bound of later arrivals.
    latest: Time,
    /// Counters without `busy`.
    stats: LinkStats,
    /// Total transmission time, in ns.
    busy: u64,
    records: Records,
    /// Packets just dropped by the queue; empty between calls.
    dropped: Vec<QueuedPacket>,
}

impl GeneralLink {
    /// Empty link. `stream` returns its random streams, see [`Link::new`](super::Link::new).
    pub(super) fn new(
        config: &LinkConfig,
        stream: impl Fn(&str) -> Pcg64Mcg,
    ) -> Result<Self, LinkFault> {
        let outages = Outages::new(&config.outages).map_err(LinkFault::Outages)?;
        Ok(Self {
            queue: config.queue.build(&config.capacity, &stream),
            transmitter: Transmitter::new(config.capacity.clone()),
            in_service: None,
            free_at: Time::FAR,
            outages,
            loss: Loss::new(&config.loss, stream("loss")),
            policy: config.lower_effort,
            wire: Wire::new(
                config.delay,
                config.delay_variation.clone(),
                config.jitter,
                stream("jitter"),
            ),
            latest: Time::ZERO,
            stats: LinkStats::default(),
            busy: 0,
            records: Records::default(),
            dropped: Vec::new(),
        })
    }

    /// Link with the given backlog, current transmission, and packets in propagation, at constant
    /// delay.
    pub(super) fn resume(
        queue: Discipline,
        transmitter: Transmitter,
        in_service: Option<(Time, InService)>,
        wire: Wire<PacketHandle>,
        stats: LinkStats,
        records: Records,
    ) -> Self {
        Self {
            queue,
            transmitter,
            in_service: in_service.map(|(_, packet)| packet),
            free_at: in_service.map_or(Time::FAR, |(end, _)| end),
            outages: Outages::default(),
            loss: Loss::None,
            policy: LowerEffortPolicy::Honour,
            wire,
            // Any later time is accepted, as times are non-decreasing.
            latest: Time::ZERO,
            busy: stats.busy.as_nanos() as u64,
            stats,
            records,
            dropped: Vec::new(),
        }
    }

    /// Arrival of a packet stored in `store`.
    #[inline]
    pub(super) fn push<P: Packet>(
        &mut self,
        store: &mut PacketPool<P>,
        at: Time,
        handle: PacketHandle,
    ) {
        self.latest = self.latest.max(at);
        let at = self.latest;
        self.advance(store, at);
        let mut held = self.make_entry(store, at, handle);
        if held.dscp == LOWER_EFFORT && !self.lets_in(store, &mut held) {
            return self.count_queue_drop(store, at, &held);
        }
        let idle = self.in_service.is_none();
        let (verdict, direct) = match &mut self.queue {
            // The queue is empty while the transmitter is idle, so the packet bypasses it.
            Discipline::DropTail(queue) if idle => (queue.verdict(held), true),
            queue => (queue.enqueue(at, held, &mut self.dropped), false),
        };
        if !self.dropped.is_empty() {
            self.count_queue_drops(store, at);
        }
        match verdict {
            Verdict::Dropped => return self.count_queue_drop(store, at, &held),
            Verdict::Accepted => self.note(at, &held, LinkEvent::Enqueued),
            Verdict::Marked => self.mark(store, at, &held),
        }
        if !idle {
            return;
        }
        if !direct {
            self.begin(store, at);
        } else if self.transmitter.is_instant() {
            return self.finish(store, at, at, held);
        } else {
            self.start(store, at, held);
        }
        // For a transmission time of zero.
        self.work(store, at);
    }

    /// Applies the policy to a packet of lower effort. Returns whether the packet is let in.
    fn lets_in<P: Packet>(&self, store: &mut PacketPool<P>, held: &mut QueuedPacket) -> bool {
        match self.policy {
            LowerEffortPolicy::Honour => {}
            LowerEffortPolicy::Ignore => held.dscp = 0,
            LowerEffortPolicy::Remark => {
                held.dscp = 0;
                if let Some(packet) = store.get_mut(held.slot) {
                    packet.set_dscp(0);
                }
            }
            LowerEffortPolicy::Drop => return false,
        }
        true
    }

    /// Next packet that has arrived at the far end by `now`, and its arrival time.
    #[inline]
    pub(super) fn pop<P: Packet>(
        &mut self,
        store: &mut PacketPool<P>,
        now: Time,
    ) -> Option<(Time, PacketHandle)> {
        self.advance(store, now);
        let mut arrived = self.wire.pop(now);
        if arrived.is_none() && self.wire.delay() == Duration::ZERO {
            self.work(store, now);
            arrived = self.wire.pop(now);
        }
        let (at, handle) = arrived?;
        self.stats.delivered += 1;
        self.stats.delivered_bytes += handle.size;
        let flow = store.get(handle.slot).map_or(0, P::flow);
        self.records.count(flow, |counts| {
            counts.delivered += 1;
            counts.delivered_bytes += handle.size;
        });
        Some((at, handle))
    }

    #[inline]
    pub(super) fn next_departure(&self) -> Option<Time> {
        let next = (self.free_at < Time::FAR).then_some(self.free_at);
        self.wire.next_departure(next)
    }

    /// Processes transmissions that end before `now`.
    #[inline]
    pub(super) fn advance<P: Packet>(&mut self, store: &mut PacketPool<P>, now: Time) {
        if self.free_at < now {
            self.work(store, now.before(Duration::from_nanos(1)));
        }
    }

    pub(super) fn stats(&self) -> LinkStats {
        LinkStats {
            busy: Duration::from_nanos(self.busy),
            ..self.stats
        }
    }

    pub(super) fn queued(&self) -> Queued {
        Queued {
            packets: self.queue.len(),
            bytes: self.queue.bytes(),
        }
    }

    pub(super) fn capacity(&self) -> &Capacity {
        self.transmitter.capacity()
    }

    pub(super) fn delay(&self) -> Duration {
        self.wire.delay()
    }

    /// Enables the packet log.
    pub(super) fn observe(&mut self, notes: PacketLog) {
        self.records.notes = Some(notes);
    }

    pub(super) fn notes(&self) -> Option<&PacketLog> {
        self.records.notes.as_ref()
    }

    pub(super) fn notes_mut(&mut self) -> Option<&mut PacketLog> {
        self.records.notes.as_mut()
    }

    /// Enables per-flow counters.
    pub(super) fn count_flows(&mut self, flows: usize) {
        self.records.flows = vec![FlowCounts::default(); flows];
    }

    pub(super) fn flow_counts(&self) -> &[FlowCounts] {
        &self.records.flows
    }

    /// Processes transmissions that end by `now`, inclusive.
    fn work<P: Packet>(&mut self, store: &mut PacketPool<P>, now: Time) {
        while self.free_at <= now
            && let Some(InService { held, start }) = self.in_service
        {
            let at = self.free_at;
            if at == Time::FAR {
                return;
            }
            self.finish(store, at, start, held);
            self.begin(store, at);
        }
    }

    /// Starts the next transmission.
    #[inline]
    fn begin<P: Packet>(&mut self, store: &mut PacketPool<P>, at: Time) {
        let next = self.queue.dequeue(at, &mut self.dropped);
        if !self.dropped.is_empty() {
            self.count_queue_drops(store, at);
        }
        let Some(held) = next else {
            self.in_service = None;
            self.free_at = Time::FAR;
            return;
        };
        self.start(store, at, held);
    }

    #[inline]
    fn start<P: Packet>(&mut self, store: &mut PacketPool<P>, at: Time, held: QueuedPacket) {
        if held.marked {
            self.mark(store, at, &held);
        }
        self.free_at = self.transmitter.serve(at, held.size).unwrap_or(Time::FAR);
        self.in_service = Some(InService { held, start: at });
    }

    /// Ends a transmission.
    #[inline]
    fn finish<P: Packet>(
        &mut self,
        store: &mut PacketPool<P>,
        end: Time,
        start: Time,
        held: QueuedPacket,
    ) {
        let served = end.as_nanos() - start.as_nanos();
        self.busy += served;
        // Drawn in any case: an outage must not shift the random numbers of later packets.
        let lost = self.loss.loses(end);
        let jitter = self.wire.draw();
        if lost || self.outages.covers(end) {
            return self.drop_after_transmission(store, end, &held);
        }
        let flow = || store.get(held.slot).map_or(0, Packet::flow);
        self.wire.push(end, served, jitter, flow, held.handle());
        if self.records.notes.is_some() {
            let departed = LinkEvent::Departed {
                waited: start.since(held.arrived),
                served: end.since(start),
            };
            self.note(end, &held, departed);
        }
    }

    /// Drops a packet behind the transmitter.
    #[cold]
    fn drop_after_transmission<P>(
        &mut self,
        store: &mut PacketPool<P>,
        at: Time,
        held: &QueuedPacket,
    ) {
        let reason = if self.outages.covers(at) {
            self.stats.outage_drops += 1;
            DropReason::Outage
        } else {
            self.stats.loss_drops += 1;
            DropReason::Loss
        };
        store.take(held.slot);
        self.records
            .count(held.flow, |counts| counts.other_drops += 1);
        self.note(at, held, LinkEvent::Dropped(reason));
    }

    /// Counts the packets just dropped by the queue.
    #[cold]
    fn count_queue_drops<P>(&mut self, store: &mut PacketPool<P>, at: Time) {
        let mut dropped = mem::take(&mut self.dropped);
        for held in dropped.drain(..) {
            self.count_queue_drop(store, at, &held);
        }
        self.dropped = dropped;
    }

    /// Counts a queue drop.
    #[cold]
    fn count_queue_drop<P>(&mut self, store: &mut PacketPool<P>, at: Time, held: &QueuedPacket) {
        store.take(held.slot);
        self.stats.queue_drops += 1;
        self.records
            .count(held.flow, |counts| counts.queue_drops += 1);
        self.note(at, held, LinkEvent::Dropped(DropReason::Queue));
    }

    /// Marks a packet.
    #[cold]
    fn mark<P: Packet>(&mut self, store: &mut PacketPool<P>, at: Time, held: &QueuedPacket) {
        if let Some(packet) = store.get_mut(held.slot) {
            packet.set_ce();
        }
        self.stats.marks += 1;
        self.records.count(held.flow, |counts| counts.marks += 1);
        self.note(at, held, LinkEvent::Marked);
    }

    #[inline]
    fn note(&mut self, at: Time, held: &QueuedPacket, happening: LinkEvent) {
        self.records.note(LinkLogEntry {
            at,
            packet: held.number,
            flow: held.flow,
            size: held.size,
            dscp: held.dscp,
            happening,
        });
    }

    /// Queue entry of the packet.
    #[inline]
    fn make_entry<P: Packet>(
        &mut self,
        store: &PacketPool<P>,
        at: Time,
        handle: PacketHandle,
    ) -> QueuedPacket {
        let held = QueuedPacket::new(store, at, self.stats.arrivals, handle);
        self.stats.arrivals += 1;
        self.stats.arrived_bytes += held.size;
        self.records.count(held.flow, |counts| {
            counts.arrivals += 1;
            counts.arrived_bytes += held.size;
        });
        held
    }
}

/// The packet in transmission.
#[derive(Clone, Copy, Debug)]
pub(super) struct InService {
    pub(super) held: QueuedPacket,
    pub(super) start: Time,
}
