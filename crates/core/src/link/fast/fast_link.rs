//! Fast implementation of the most common link: FIFO with constant rate and delay.

use core::mem;
use core::time::Duration;

use prefetch_index::prefetch_index;
use rand_pcg::Pcg64Mcg;

use crate::link::Packet;
use crate::link::config::{LinkConfig, LowerEffortPolicy};
use crate::link::delay::Wire;
use crate::link::general_link::{GeneralLink, InService};
use crate::link::packet_log::{DropReason, LinkEvent, LinkLogEntry, PacketLog};
use crate::link::packet_pool::{PacketHandle, PacketPool};
use crate::link::queue::{Discipline, DropTail, DropTailConfig, Fifo, QueuedPacket, Red, Verdict};
use crate::link::rate::{Capacity, Transmitter};
use crate::link::stats::{LinkStats, Queued, Records};
use crate::units::{Bytes, Time, nanos};

use admission::Admission;
use relay::HANDED;

mod admission;
mod float;
mod relay;
mod waiting;

/// Link with a queue that decides at enqueue, a constant rate, a constant delay, no loss and no
/// outages. The arrival time of an accepted packet at the far end is known at enqueue. The packet
/// enters one ring and leaves it at that time; the backlog is computed from counters.
///
/// A fast link behaves as a [`GeneralLink`] with the same configuration, and is converted to one
/// for features that it lacks.
///
/// The fields used per packet are in one cache line: with many links, cache misses dominate the
/// cost.
#[derive(Debug)]
#[repr(align(64))]
pub(in crate::link) struct FastLink {
    /// Packets inside. The length is zero or a power of two.
    ring: Box<[InFlight]>,
    /// Number of departed packets modulo 2³²; also the number of the oldest packet in the ring.
    head: u32,
    /// Number of packets inside.
    len: u32,
    /// Queue limit in packets if that alone decides, else zero.
    limit: u32,
    /// The last size, with its transmission time in ns. Consecutive packets mostly have the same
    /// size.
    size: u32,
    nanos: u32,
    /// Propagation delay, in ns.
    delay: u32,
    /// Latest arrival; a lower bound of later arrivals.
    latest: Time,
    /// Arrival of the last accepted packet at the far end.
    last: Time,
    rare: Box<Rare>,
}

/// Outcome of an arrival.
pub(super) enum Entry {
    /// Accepted, with the arrival time at the far end.
    Taken(Time),
    /// Dropped by the queue.
    Refused,
    /// Never delivered: its time is beyond the range of [`Time`].
    TooLate,
}

/// Schedule of an arriving packet. Times in ns.
struct Course {
    /// Transmission time.
    nanos: u64,
    /// Arrival time at the far end.
    out: u64,
    /// Time until the transmitter is free.
    work: u64,
    /// Whether the size equals the cached one.
    known: bool,
}

/// A packet and its arrival time at the far end. A queued packet starts when its predecessor ends.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    out: Time,
    handle: PacketHandle,
}

/// Fields seldom used per packet.
#[derive(Debug)]
struct Rare {
    admission: Admission,
    transmitter: Transmitter,
    /// Number of the first packet that may still be queued.
    started: u32,
    /// Total size of the packets that may still be queued; unused for limits in packets.
    waiting: Bytes,
    /// Latest time passed by the caller.
    seen: Time,
    /// Accepted packets, their bytes and transmission times in ns, except for the packets from
    /// number `known` on, which all have the cached size.
    known: u32,
    taken: u64,
    taken_bytes: Bytes,
    busy: u64,
    dropped: u64,
    dropped_bytes: Bytes,
    marks: u64,
    /// Packets and bytes inside that were already forwarded to the next link.
    handed: u32,
    handed_bytes: Bytes,
    /// Whether forwarding is disabled.
    apart: bool,
    /// Log of drops only.
    notes: Option<PacketLog>,
}

impl FastLink {
    /// Empty link; `None` if the fast link does not support `config`. `stream` returns the random
    /// stream with the name of the queue discipline.
    pub(super) fn new(config: &LinkConfig, stream: impl Fn(&str) -> Pcg64Mcg) -> Option<Self> {
        let fixed = matches!(config.capacity, Capacity::Unlimited | Capacity::Fixed(_));
        let calm = config.loss.is_none()
            && config.outages.is_empty()
            && config.delay_variation.is_none()
            && config.jitter.is_none();
        if !fixed || !calm || config.lower_effort != LowerEffortPolicy::Honour {
            return None;
        }
        let delay = u32::try_from(nanos(config.delay)).ok()?;
        let admission = Admission::new(config, stream)?;
        Some(Self {
            ring: Box::default(),
            head: 0,
            len: 0,
            limit: admission.plain_limit(),
            size: u32::MAX,
            nanos: 0,
            delay,
            latest: Time::ZERO,
            last: Time::ZERO,
            rare: Box::new(Rare {
                admission,
                transmitter: Transmitter::new(config.capacity.clone()),
                started: 0,
                waiting: Bytes::ZERO,
                seen: Time::ZERO,
                known: 0,
                taken: 0,
                taken_bytes: Bytes::ZERO,
                busy: 0,
                dropped: 0,
                dropped_bytes: Bytes::ZERO,
                marks: 0,
                handed: 0,
                handed_bytes: Bytes::ZERO,
                apart: false,
                notes: None,
            }),
        })
    }

    /// Arrival of a packet.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "keeps the handle in registers")]
    pub(super) fn push<P: Packet>(
        &mut self,
        store: &mut PacketPool<P>,
        at: Time,
        handle: PacketHandle,
    ) -> Entry {
        let at = self.latest.max(at);
        let Some(Course {
            nanos, out, known, ..
        }) = self.course(at, handle.size)
        else {
            return Entry::TooLate;
        };
        self.latest = at;
        let end = out - u64::from(self.delay);
        if self.len >= self.limit && !self.admit(store, at, end, handle.size, handle.slot) {
            return Entry::Refused;
        }
        let tail = self.tail();
        if !known || tail.is_multiple_of(MAX_FRESH) {
            self.learn(handle.size, nanos);
        }
        if self.len as usize == self.ring.len() {
            self.grow();
        }
        let place = self.place(tail);
        let out = Time::from_nanos(out);
        self.ring[place] = InFlight { out, handle };
        self.len += 1;
        self.last = out;
        Entry::Taken(out)
    }

    /// Schedule of a packet that arrives last, at `at`, if accepted; `None` beyond the range of
    /// [`Time`].
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn course(&self, at: Time, size: Bytes) -> Option<Course> {
        let known = size.get() == u64::from(self.size);
        let nanos = if known {
            u64::from(self.nanos)
        } else {
            self.rare.transmitter.time(size)?
        };
        // The transmission starts at the arrival or at the end of the previous one.
        let alone = at.as_nanos().checked_add(u64::from(self.delay))?;
        let last = self.last.as_nanos();
        let out = alone.max(last).checked_add(nanos)?;
        (out < u64::MAX).then_some(Course {
            nanos,
            out,
            work: last.saturating_sub(alone),
            known,
        })
    }

    /// Next packet that has arrived at the far end by `now`, and its arrival time.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "keeps the handle in registers")]
    pub(super) fn pop(&mut self, now: Time) -> Option<(Time, PacketHandle)> {
        if self.len == 0 {
            return None;
        }
        let InFlight { out, handle } = *self.in_flight(0);
        if out > now {
            return None;
        }
        if handle.hop & HANDED != 0 {
            return self.pop_behind(now);
        }
        self.head = self.head.wrapping_add(1);
        self.len -= 1;
        Some((out, handle))
    }

    /// Number of packets inside, forwarded ones included.
    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Prefetches the ring entries of the packets that depart next.
    #[inline]
    pub(super) fn head_soon(&self) {
        prefetch_index(&self.ring, self.place(self.head));
        prefetch_index(&self.ring, self.place(self.head.wrapping_add(1)));
    }

    /// Prefetches the ring entry of the next arrival.
    #[inline]
    pub(super) fn tail_soon(&self) {
        prefetch_index(&self.ring, self.place(self.tail()));
    }

    /// Handle of the packet that departs next.
    #[inline]
    pub(super) fn peek(&self) -> Option<&PacketHandle> {
        let next = (self.len > 0).then(|| &self.in_flight(0).handle);
        next.filter(|handle| handle.hop & HANDED == 0)
    }

    #[inline]
    pub(super) fn next_departure(&self) -> Option<Time> {
        if self.len == 0 {
            return None;
        }
        let InFlight { out, handle } = self.in_flight(0);
        if handle.hop & HANDED != 0 {
            return self.departure_behind();
        }
        Some(*out)
    }

    pub(super) fn advance(&mut self, now: Time) {
        self.rare.seen = self.rare.seen.max(now);
        self.forget(now);
    }

    pub(super) fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay.into())
    }

    /// Whether transmissions take zero time.
    pub(super) fn is_instant(&self) -> bool {
        self.rare.transmitter.is_instant()
    }

    pub(super) fn capacity(&self) -> &Capacity {
        self.rare.transmitter.capacity()
    }

    pub(super) fn queued(&self) -> Queued {
        let from = self.started(self.seen());
        Queued {
            packets: (self.len - from) as usize,
            bytes: self.bytes(from),
        }
    }

    pub(super) fn stats(&self) -> LinkStats {
        let rare = &self.rare;
        let fresh = self.fresh();
        let taken = rare.taken + fresh;
        let bytes = rare.taken_bytes + Bytes(fresh * u64::from(self.size));
        let busy = rare.busy + fresh * u64::from(self.nanos);
        LinkStats {
            arrivals: taken + rare.dropped,
            arrived_bytes: bytes + rare.dropped_bytes,
            delivered: taken - u64::from(self.len),
            delivered_bytes: bytes - self.bytes(0),
            queue_drops: rare.dropped,
            marks: rare.marks,
            busy: Duration::from_nanos(busy - self.unfinished().1),
            ..LinkStats::default()
        }
    }

    /// Enables the log of drops.
    pub(super) fn observe_drops(&mut self, notes: PacketLog) {
        self.rare.notes = Some(notes);
    }

    pub(super) fn notes(&self) -> Option<&PacketLog> {
        self.rare.notes.as_ref()
    }

    pub(super) fn notes_mut(&mut self) -> Option<&mut PacketLog> {
        self.rare.notes.as_mut()
    }

    /// Equivalent general link. Packets inside have no sequence number and a queueing delay of
    /// zero. The fast link must not be used afterwards.
    pub(super) fn make_general<P: Packet>(&mut self, store: &PacketPool<P>) -> GeneralLink {
        let stats = self.stats();
        let seen = self.seen();
        let started = self.started(seen);
        let finished = self.len - self.unfinished().0;
        let mut fifo = Fifo::default();
        let mut wire = Wire::even(self.delay());
        let mut in_service = None;
        for i in 0..self.len {
            let InFlight { out, handle } = *self.in_flight(i);
            let end = out.before(self.delay());
            let start = end.before(Duration::from_nanos(self.time(handle.size)));
            let held = || QueuedPacket::new(store, start, 0, handle);
            if i < finished {
                wire.send(end, handle);
            } else if i < started {
                let held = held();
                in_service = Some((end, InService { held, start }));
            } else {
                fifo.push(held());
            }
        }
        let nothing = Admission::DropTail(DropTailConfig::packets(0));
        let queue = match mem::replace(&mut self.rare.admission, nothing) {
            Admission::DropTail(config) => Discipline::DropTail(DropTail::with(config, fifo)),
            Admission::Red(mut idler) => {
                idler.notify_idle(seen);
                Discipline::Red(Box::new(Red::with(idler.law, fifo)))
            }
        };
        let records = Records {
            notes: self.rare.notes.take(),
            ..Records::default()
        };
        let transmitter = self.rare.transmitter.clone();
        GeneralLink::resume(queue, transmitter, in_service, wire, stats, records)
    }

    /// Whether the queue accepts a packet that would depart at `end`. Marks or drops the packet.
    fn admit<P: Packet>(
        &mut self,
        store: &mut PacketPool<P>,
        at: Time,
        end: u64,
        size: Bytes,
        slot: u32,
    ) -> bool {
        let tail = self.tail();
        if self.limit == 0 {
            self.let_go(at, tail);
        } else {
            self.rare.started = self.head.wrapping_add(self.started(at));
        }
        let waiting = Queued {
            packets: tail.wrapping_sub(self.rare.started) as usize,
            bytes: self.rare.waiting,
        };
        let capable = || {
            let packet = store.get(slot);
            packet.is_some_and(|packet| packet.ecn().is_capable())
        };
        let free_at = Time::from_nanos(end);
        let verdict = self
            .rare
            .admission
            .verdict(at, free_at, size, waiting, capable);
        match verdict {
            Verdict::Accepted => {}
            Verdict::Marked => self.mark(store, slot),
            Verdict::Dropped => {
                self.lose(store, at, size, slot);
                return false;
            }
        }
        self.rare.waiting += size;
        true
    }

    /// Counts the packets of the cached size and caches a new one.
    #[cold]
    fn learn(&mut self, size: Bytes, nanos: u64) {
        let (fresh, tail) = (self.fresh(), self.tail());
        let rare = &mut *self.rare;
        rare.taken += fresh + 1;
        rare.taken_bytes += Bytes(fresh * u64::from(self.size)) + size;
        rare.busy += fresh * u64::from(self.nanos) + nanos;
        rare.known = tail.wrapping_add(1);
        if rare.started.wrapping_sub(self.head) > self.len {
            rare.started = self.head;
        }
        if let (Ok(size), Ok(nanos)) = (u32::try_from(size.get()), u32::try_from(nanos)) {
            (self.size, self.nanos) = (size, nanos);
        }
    }

    /// Drops a packet at the queue.
    #[cold]
    fn lose<P: Packet>(&mut self, store: &mut PacketPool<P>, at: Time, size: Bytes, slot: u32) {
        let lost = store.take(slot);
        let (flow, dscp) = lost.map_or((0, 0), |packet| (packet.flow(), packet.dscp()));
        let fresh = self.fresh();
        let rare = &mut *self.rare;
        if let Some(notes) = &mut rare.notes {
            notes.add(LinkLogEntry {
                at,
                packet: rare.taken + fresh + rare.dropped,
                flow,
                size,
                dscp,
                happening: LinkEvent::Dropped(DropReason::Queue),
            });
        }
        rare.dropped += 1;
        rare.dropped_bytes += size;
    }

    /// Marks a packet.
    #[cold]
    fn mark<P: Packet>(&mut self, store: &mut PacketPool<P>, slot: u32) {
        if let Some(packet) = store.get_mut(slot) {
            packet.set_ce();
        }
        self.rare.marks += 1;
    }

    #[cold]
    fn grow(&mut self) {
        let room = (2 * self.ring.len()).max(MIN_ROOM);
        let mut ring = vec![NOTHING; room].into_boxed_slice();
        for i in 0..self.len {
            let number = self.head.wrapping_add(i);
            ring[number as usize & (room - 1)] = *self.in_flight(i);
        }
        self.ring = ring;
    }

    /// Number of the next packet.
    #[inline]
    fn tail(&self) -> u32 {
        self.head.wrapping_add(self.len)
    }

    /// Accepted packets not yet counted.
    fn fresh(&self) -> u64 {
        u64::from(self.tail().wrapping_sub(self.rare.known))
    }

    /// Ring index of a packet number.
    #[inline]
    fn place(&self, number: u32) -> usize {
        number as usize & self.ring.len().wrapping_sub(1)
    }

    /// The `i`-th packet inside, from zero.
    #[inline]
    fn in_flight(&self, i: u32) -> &InFlight {
        &self.ring[self.place(self.head.wrapping_add(i))]
    }

    /// Total size of the packets inside except the oldest `first`.
    fn bytes(&self, first: u32) -> Bytes {
        if self.fresh() >= u64::from(self.len) {
            return Bytes(u64::from(self.len - first) * u64::from(self.size));
        }
        if first < self.rare.handed / 2 {
            let left = self.rare.handed_bytes - self.sum(0, first);
            return left + self.sum(self.rare.handed, self.len);
        }
        self.sum(first, self.len)
    }

    /// Total size of the packets inside from `first` to before `end`.
    fn sum(&self, first: u32, end: u32) -> Bytes {
        let (from, len) = (
            self.place(self.head.wrapping_add(first)),
            (end - first) as usize,
        );
        let straight = len.min(self.ring.len() - from);
        let (late, early) = (&self.ring[from..][..straight], &self.ring[..len - straight]);
        let all = late.iter().chain(early);
        all.map(|in_flight| in_flight.handle.size).sum()
    }

    /// Transmission time of an accepted packet, in ns.
    fn time(&self, size: Bytes) -> u64 {
        self.rare.transmitter.time(size).unwrap_or(0)
    }

    fn seen(&self) -> Time {
        self.latest.max(self.rare.seen)
    }
}

/// Filler of the ring.
const NOTHING: InFlight = InFlight {
    out: Time::FAR,
    handle: PacketHandle {
        size: Bytes::ZERO,
        slot: 0,
        hop: 0,
    },
};

/// Maximum number of uncounted packets, far below the wrap-around of the numbers.
const MAX_FRESH: u32 = 1 << 31;

/// Initial capacity of the ring.
const MIN_ROOM: usize = 4;
