//! The most common link, made fast: first in, first out, over a wire of constant delay.

use core::mem;
use core::time::Duration;

use prefetch_index::prefetch_index;
use rand_pcg::Pcg64Mcg;

use super::Packet;
use super::config::LinkConfig;
use super::delay::Wire;
use super::general_link::{GeneralLink, InService};
use super::packet_log::{DropReason, LinkEvent, LinkLogEntry, PacketLog};
use super::packet_pool::{PacketHandle, PacketPool};
use super::queue::{Discipline, DropTail, DropTailConfig, Fifo, Held, Red, Verdict};
use super::rate::{Capacity, Transmitter};
use super::stats::{LinkStats, Queued, Records};
use crate::units::{Bytes, Time, nanos};

use admission::Admission;
use relay::HANDED;

mod admission;
mod float;
mod relay;
mod waiting;

/// A queue that decides as packets arrive, a rate that never changes, a wire without jitter, no
/// losses and no outages: nothing that happens later touches a packet that was taken, so that the
/// moment of its arrival at the far end is known at once. It goes into one ring and comes out of it
/// at that moment; what waits is a matter of counting.
///
/// It does what a [`GeneralLink`] of the same parts does, and becomes one when more is asked of it.
///
/// What a packet touches here is one cache line, since with many links nothing else costs as much.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct FastLink {
    /// What is inside: a ring, whose length is zero or a power of two.
    ring: Box<[Passing]>,
    /// How many packets came out so far, modulo 2³²: the number of the oldest in the ring.
    head: u32,
    /// How many are inside.
    len: u32,
    /// How many may wait if nothing else matters, else zero.
    limit: u32,
    /// A size and how long its transmission takes, in ns, since most packets have the size of the
    /// one before.
    size: u32,
    nanos: u32,
    /// Of the wire, in ns.
    delay: u32,
    /// The latest arrival: later ones cannot come before it.
    latest: Time,
    /// When the one that was taken last arrives at the far end.
    last: Time,
    rare: Box<Rare>,
}

/// What became of a packet that came.
pub(super) enum Entry {
    /// It will be out then.
    Taken(Time),
    /// The queue did not take it.
    Refused,
    /// Nothing: it would be out beyond the end of time.
    TooLate,
}

/// What becomes of a packet that comes. Times in ns.
struct Course {
    /// How long its transmission takes.
    nanos: u64,
    /// When it is out.
    out: u64,
    /// How long the transmitter is busy with others before.
    work: u64,
    /// Whether it is as large as the one before.
    known: bool,
}

/// A packet, and when it arrives at the far end. One that waits starts when the one before is out.
#[derive(Clone, Copy, Debug)]
struct Passing {
    out: Time,
    parcel: PacketHandle,
}

/// What a packet seldom touches.
#[derive(Debug)]
struct Rare {
    admission: Admission,
    transmitter: Transmitter,
    /// The number of the first packet that is not known to have left the queue.
    started: u32,
    /// The size of what was not known to have left it; of no use where packets are counted.
    waiting: Bytes,
    /// The latest time that it was told.
    seen: Time,
    /// Packets taken, their size, and their transmission times in ns; but for those from the one of
    /// this number on, which are all alike.
    known: u32,
    taken: u64,
    taken_bytes: Bytes,
    busy: u64,
    dropped: u64,
    dropped_bytes: Bytes,
    marks: u64,
    /// How many of those inside were handed on, and their size.
    handed: u32,
    handed_bytes: Bytes,
    /// Whether none will be.
    apart: bool,
    /// Of drops alone.
    notes: Option<PacketLog>,
}

impl FastLink {
    /// Empty; `None` if `config` asks for more than a lane can do. `stream` gives the random
    /// stream of the link that has the name of the discipline.
    pub(super) fn new(config: &LinkConfig, stream: impl Fn(&str) -> Pcg64Mcg) -> Option<Self> {
        let fixed = matches!(config.capacity, Capacity::Unlimited | Capacity::Fixed(_));
        let calm = config.loss.is_none() && config.outages.is_empty() && config.jitter.is_none();
        if !fixed || !calm {
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

    /// A packet arrives.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "so that the parcel stays in registers"
    )]
    pub(super) fn push<P: Packet>(
        &mut self,
        store: &mut PacketPool<P>,
        at: Time,
        parcel: PacketHandle,
    ) -> Entry {
        let at = self.latest.max(at);
        let Some(Course {
            nanos, out, known, ..
        }) = self.course(at, parcel.size)
        else {
            return Entry::TooLate;
        };
        self.latest = at;
        let end = out - u64::from(self.delay);
        if self.len >= self.limit && !self.admit(store, at, end, parcel.size, parcel.slot) {
            return Entry::Refused;
        }
        let tail = self.tail();
        if !known || tail.is_multiple_of(MOST_FRESH) {
            self.learn(parcel.size, nanos);
        }
        if self.len as usize == self.ring.len() {
            self.grow();
        }
        let place = self.place(tail);
        let out = Time::from_nanos(out);
        self.ring[place] = Passing { out, parcel };
        self.len += 1;
        self.last = out;
        Entry::Taken(out)
    }

    /// What becomes of a packet that comes at `at`, after all others, if it is taken; none if it is
    /// out beyond the end of time.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn course(&self, at: Time, size: Bytes) -> Option<Course> {
        let known = size.get() == u64::from(self.size);
        let nanos = if known {
            u64::from(self.nanos)
        } else {
            self.rare.transmitter.time(size)?
        };
        // It starts when it comes or when the one before is out.
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

    /// The next packet to have arrived by `now`, and when.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "so that the parcel stays in registers"
    )]
    pub(super) fn pop(&mut self, now: Time) -> Option<(Time, PacketHandle)> {
        if self.len == 0 {
            return None;
        }
        let Passing { out, parcel } = *self.passing(0);
        if out > now {
            return None;
        }
        if parcel.hop & HANDED != 0 {
            return self.pop_behind(now);
        }
        self.head = self.head.wrapping_add(1);
        self.len -= 1;
        Some((out, parcel))
    }

    /// How many packets are inside, with those that were handed on.
    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Has the places of the packets brought to the cache that come out next.
    #[inline]
    pub(super) fn head_soon(&self) {
        prefetch_index(&self.ring, self.place(self.head));
        prefetch_index(&self.ring, self.place(self.head.wrapping_add(1)));
    }

    /// The same of the place that the next packet will take.
    #[inline]
    pub(super) fn tail_soon(&self) {
        prefetch_index(&self.ring, self.place(self.tail()));
    }

    /// The packet that comes out next.
    #[inline]
    pub(super) fn peek(&self) -> Option<&PacketHandle> {
        let next = (self.len > 0).then(|| &self.passing(0).parcel);
        next.filter(|parcel| parcel.hop & HANDED == 0)
    }

    #[inline]
    pub(super) fn next_departure(&self) -> Option<Time> {
        if self.len == 0 {
            return None;
        }
        let Passing { out, parcel } = self.passing(0);
        if parcel.hop & HANDED != 0 {
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

    /// Whether transmissions take no time.
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

    /// Keeps notes of drops from now on.
    pub(super) fn observe_drops(&mut self, notes: PacketLog) {
        self.rare.notes = Some(notes);
    }

    pub(super) fn notes(&self) -> Option<&PacketLog> {
        self.rare.notes.as_ref()
    }

    pub(super) fn notes_mut(&mut self) -> Option<&mut PacketLog> {
        self.rare.notes.as_mut()
    }

    /// The chain that does the same from here on. Packets that are inside get no numbers and have
    /// not waited, since nobody had asked for either. The lane is of no further use.
    pub(super) fn become_chain<P: Packet>(&mut self, store: &PacketPool<P>) -> GeneralLink {
        let stats = self.stats();
        let seen = self.seen();
        let started = self.started(seen);
        let finished = self.len - self.unfinished().0;
        let mut fifo = Fifo::default();
        let mut wire = Wire::even(self.delay());
        let mut in_service = None;
        for i in 0..self.len {
            let Passing { out, parcel } = *self.passing(i);
            let end = out.before(self.delay());
            let start = end.before(Duration::from_nanos(self.time(parcel.size)));
            let held = || Held::new(store, start, 0, parcel);
            if i < finished {
                wire.send(end, parcel);
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
                idler.hear(seen);
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

    /// Whether the queue takes a packet that is out at `end` if it does. Marks it or loses it.
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
            .judge(at, free_at, size, waiting, capable);
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

    /// Takes a packet whose size is not that of the one before, or one after very many that are.
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

    /// The queue does not take a packet.
    #[cold]
    fn lose<P: Packet>(&mut self, store: &mut PacketPool<P>, at: Time, size: Bytes, slot: u32) {
        let flow = store.take(slot).map_or(0, |packet| packet.flow());
        let fresh = self.fresh();
        let rare = &mut *self.rare;
        if let Some(notes) = &mut rare.notes {
            notes.add(LinkLogEntry {
                at,
                packet: rare.taken + fresh + rare.dropped,
                flow,
                size,
                happening: LinkEvent::Dropped(DropReason::Queue),
            });
        }
        rare.dropped += 1;
        rare.dropped_bytes += size;
    }

    /// The queue takes a packet and marks it.
    #[cold]
    fn mark<P: Packet>(&mut self, store: &mut PacketPool<P>, slot: u32) {
        if let Some(packet) = store.get_mut(slot) {
            packet.set_ce();
        }
        self.rare.marks += 1;
    }

    #[cold]
    fn grow(&mut self) {
        let room = (2 * self.ring.len()).max(LEAST_ROOM);
        let mut ring = vec![NOTHING; room].into_boxed_slice();
        for i in 0..self.len {
            let number = self.head.wrapping_add(i);
            ring[number as usize & (room - 1)] = *self.passing(i);
        }
        self.ring = ring;
    }

    /// The number of the next packet.
    #[inline]
    fn tail(&self) -> u32 {
        self.head.wrapping_add(self.len)
    }

    /// How many packets were taken that are not counted yet.
    fn fresh(&self) -> u64 {
        u64::from(self.tail().wrapping_sub(self.rare.known))
    }

    /// Where the packet of that number is.
    #[inline]
    fn place(&self, number: u32) -> usize {
        number as usize & self.ring.len().wrapping_sub(1)
    }

    /// The packet that is the `i`-th, from zero, of those inside.
    #[inline]
    fn passing(&self, i: u32) -> &Passing {
        &self.ring[self.place(self.head.wrapping_add(i))]
    }

    /// The size of all packets inside but for the oldest `first`.
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

    /// The size of those inside from one to before another.
    fn sum(&self, first: u32, end: u32) -> Bytes {
        let (from, len) = (
            self.place(self.head.wrapping_add(first)),
            (end - first) as usize,
        );
        let straight = len.min(self.ring.len() - from);
        let (late, early) = (&self.ring[from..][..straight], &self.ring[..len - straight]);
        let all = late.iter().chain(early);
        all.map(|passing| passing.parcel.size).sum()
    }

    /// How long the transmission of a packet takes that was taken, in ns.
    fn time(&self, size: Bytes) -> u64 {
        self.rare.transmitter.time(size).unwrap_or(0)
    }

    fn seen(&self) -> Time {
        self.latest.max(self.rare.seen)
    }
}

/// What a ring is filled up with.
const NOTHING: Passing = Passing {
    out: Time::FAR,
    parcel: PacketHandle {
        size: Bytes::ZERO,
        slot: 0,
        hop: 0,
    },
};

/// Of so many packets one is counted at least: often enough for numbers that wrap around.
const MOST_FRESH: u32 = 1 << 31;

/// The room of a ring at first.
const LEAST_ROOM: usize = 4;
