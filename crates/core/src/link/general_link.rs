//! A link of any kind: queue, transmitter, outages, random loss, propagation.

use core::mem;
use core::time::Duration;

use rand_pcg::Pcg64Mcg;

use super::Packet;
use super::config::{LinkConfig, LinkFault};
use super::delay::Wire;
use super::loss::Loss;
use super::outage::Outages;
use super::packet_log::{DropReason, LinkEvent, LinkLogEntry, PacketLog};
use super::packet_pool::{PacketHandle, PacketPool};
use super::queue::{Discipline, Held, Queue, Verdict};
use super::rate::{Capacity, Transmitter};
use super::stats::{FlowCounts, LinkStats, Queued, Records};
use crate::units::Time;

/// The parts of a link one after the other, whatever they are.
///
/// At equal times, what arrives finds the packet still in transmission that leaves then.
#[derive(Debug)]
pub(super) struct GeneralLink {
    queue: Discipline,
    transmitter: Transmitter,
    in_service: Option<InService>,
    /// When that is out; [`Time::FAR`] if there is none, or the capacity stalls for ever.
    free_at: Time,
    outages: Outages,
    loss: Loss,
    wire: Wire<PacketHandle>,
    /// The latest arrival: later ones cannot come before it.
    latest: Time,
    /// Without the time that the transmitter worked.
    stats: LinkStats,
    /// That time, in ns.
    busy: u64,
    records: Records,
    /// What the queue has just dropped; empty between calls.
    dropped: Vec<Held>,
}

impl GeneralLink {
    /// Empty. `stream` gives the random streams of the link, see [`Link::new`](super::Link::new).
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
            loss: Loss::new(config.loss, stream("loss")),
            wire: Wire::new(config.delay, config.jitter, stream("jitter")),
            latest: Time::ZERO,
            stats: LinkStats::default(),
            busy: 0,
            records: Records::default(),
            dropped: Vec::new(),
        })
    }

    /// With what is inside of it: packets that wait, one that is out at a known moment, and
    /// those on the wire, whose delay is even.
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
            wire,
            // Times never go back.
            latest: Time::ZERO,
            busy: stats.busy.as_nanos() as u64,
            stats,
            records,
            dropped: Vec::new(),
        }
    }

    /// A packet arrives that `store` keeps.
    #[inline]
    pub(super) fn push<P: Packet>(
        &mut self,
        store: &mut PacketPool<P>,
        at: Time,
        parcel: PacketHandle,
    ) {
        self.latest = self.latest.max(at);
        let at = self.latest;
        self.advance(store, at);
        let held = self.take_in(store, at, parcel);
        let idle = self.in_service.is_none();
        let (verdict, direct) = match &mut self.queue {
            // Nothing waits while the transmitter is idle, so that the packet need not either.
            Discipline::DropTail(queue) if idle => (queue.judge(held), true),
            queue => (queue.enqueue(at, held, &mut self.dropped), false),
        };
        if !self.dropped.is_empty() {
            self.bury(store, at);
        }
        match verdict {
            Verdict::Dropped => return self.lose(store, at, &held),
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
        // If its transmission takes no time.
        self.work(store, at);
    }

    /// The next packet to have arrived by `now`, and when.
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
        let (at, parcel) = arrived?;
        self.stats.delivered += 1;
        self.stats.delivered_bytes += parcel.size;
        let flow = store.get(parcel.slot).map_or(0, P::flow);
        self.records.count(flow, |counts| {
            counts.delivered += 1;
            counts.delivered_bytes += parcel.size;
        });
        Some((at, parcel))
    }

    #[inline]
    pub(super) fn next_departure(&self) -> Option<Time> {
        let next = (self.free_at < Time::FAR).then_some(self.free_at);
        self.wire.next_departure(next)
    }

    /// Transmits what is out before `now`.
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

    /// Keeps notes from now on.
    pub(super) fn observe(&mut self, notes: PacketLog) {
        self.records.notes = Some(notes);
    }

    pub(super) fn notes(&self) -> Option<&PacketLog> {
        self.records.notes.as_ref()
    }

    pub(super) fn notes_mut(&mut self) -> Option<&mut PacketLog> {
        self.records.notes.as_mut()
    }

    /// Counts flows apart from now on.
    pub(super) fn count_flows(&mut self, flows: usize) {
        self.records.flows = vec![FlowCounts::default(); flows];
    }

    pub(super) fn flow_counts(&self) -> &[FlowCounts] {
        &self.records.flows
    }

    /// Transmits what is out by `now`, with what is just then.
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

    /// The transmitter is free.
    #[inline]
    fn begin<P: Packet>(&mut self, store: &mut PacketPool<P>, at: Time) {
        let next = self.queue.dequeue(at, &mut self.dropped);
        if !self.dropped.is_empty() {
            self.bury(store, at);
        }
        let Some(held) = next else {
            self.in_service = None;
            self.free_at = Time::FAR;
            return;
        };
        self.start(store, at, held);
    }

    #[inline]
    fn start<P: Packet>(&mut self, store: &mut PacketPool<P>, at: Time, held: Held) {
        if held.marked {
            self.mark(store, at, &held);
        }
        self.free_at = self.transmitter.serve(at, held.size).unwrap_or(Time::FAR);
        self.in_service = Some(InService { held, start: at });
    }

    /// The last bit of a packet is out.
    #[inline]
    fn finish<P: Packet>(&mut self, store: &mut PacketPool<P>, end: Time, start: Time, held: Held) {
        let served = end.as_nanos() - start.as_nanos();
        self.busy += served;
        // Drawn in any case: an outage must not change the luck of the packets after it.
        let unlucky = self.loss.loses();
        let jitter = self.wire.draw();
        if unlucky || self.outages.covers(end) {
            return self.waste(store, end, &held);
        }
        let flow = || store.get(held.slot).map_or(0, Packet::flow);
        self.wire.push(end, served, jitter, flow, held.parcel());
        if self.records.notes.is_some() {
            let departed = LinkEvent::Departed {
                waited: start.since(held.arrived),
                served: end.since(start),
            };
            self.note(end, &held, departed);
        }
    }

    /// A packet is lost behind the transmitter.
    #[cold]
    fn waste<P>(&mut self, store: &mut PacketPool<P>, at: Time, held: &Held) {
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

    /// Counts what the queue has just dropped.
    #[cold]
    fn bury<P>(&mut self, store: &mut PacketPool<P>, at: Time) {
        let mut dropped = mem::take(&mut self.dropped);
        for held in dropped.drain(..) {
            self.lose(store, at, &held);
        }
        self.dropped = dropped;
    }

    /// The queue has dropped a packet.
    #[cold]
    fn lose<P>(&mut self, store: &mut PacketPool<P>, at: Time, held: &Held) {
        store.take(held.slot);
        self.stats.queue_drops += 1;
        self.records
            .count(held.flow, |counts| counts.queue_drops += 1);
        self.note(at, held, LinkEvent::Dropped(DropReason::Queue));
    }

    /// The queue has marked a packet.
    #[cold]
    fn mark<P: Packet>(&mut self, store: &mut PacketPool<P>, at: Time, held: &Held) {
        if let Some(packet) = store.get_mut(held.slot) {
            packet.set_ce();
        }
        self.stats.marks += 1;
        self.records.count(held.flow, |counts| counts.marks += 1);
        self.note(at, held, LinkEvent::Marked);
    }

    #[inline]
    fn note(&mut self, at: Time, held: &Held, happening: LinkEvent) {
        self.records.note(LinkLogEntry {
            at,
            packet: held.number,
            flow: held.flow,
            size: held.size,
            happening,
        });
    }

    /// The packet as the queue sees it.
    #[inline]
    fn take_in<P: Packet>(
        &mut self,
        store: &PacketPool<P>,
        at: Time,
        parcel: PacketHandle,
    ) -> Held {
        let held = Held::new(store, at, self.stats.arrivals, parcel);
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
    pub(super) held: Held,
    pub(super) start: Time,
}
