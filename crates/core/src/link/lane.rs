//! The most common link, made fast: first in, first out, over a wire of constant delay.

use core::mem;
use core::time::Duration;
use std::collections::VecDeque;

use rand_pcg::Pcg64Mcg;

use super::Packet;
use super::chain::{Chain, InService};
use super::config::LinkConfig;
use super::delay::Wire;
use super::notes::{DropReason, Happening, LinkNote, Notes};
use super::queue::{
    Discipline, DropTail, DropTailConfig, Fifo, Held, Limit, QueueConfig, Red, RedLaw, Verdict,
};
use super::rate::{Capacity, Transmitter};
use super::stats::{LinkStats, Queued, Records};
use super::store::{Parcel, Store};
use crate::units::{Bytes, Time, nanos};

/// A queue that decides as packets arrive, a rate that never changes, a wire without jitter, no
/// losses and no outages: nothing that happens later touches a packet that was taken, so that the
/// moment of its arrival at the far end is known at once. It goes into one ring and comes out of it
/// at that moment; what waits is a matter of counting.
///
/// It does what a [`Chain`] of the same parts does, and becomes one when more is asked of it.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Lane {
    /// What is inside, oldest first.
    ring: VecDeque<Passing>,
    /// How many of them are known to have left the queue.
    started: usize,
    /// The size of the others.
    waiting: Bytes,
    /// When the transmitter is free.
    free_at: Time,
    /// Of the wire, in ns.
    delay: u64,
    /// A size and how long its transmission takes, in ns, since most packets have the size of the
    /// one before.
    known: (Bytes, u64),
    admission: Admission,
    /// The latest arrival: later ones cannot come before it.
    latest: Time,
    /// The latest time that it was told.
    seen: Time,
    arrivals: u64,
    arrived_bytes: Bytes,
    delivered_bytes: Bytes,
    /// Transmission times of all that was taken, in ns.
    busy: u64,
    rare: Box<Rare>,
}

/// A packet, and when it arrives at the far end. One that waits starts when the one before is out.
#[derive(Clone, Copy, Debug)]
struct Passing {
    out: Time,
    parcel: Parcel,
}

/// Who may wait.
#[derive(Debug)]
enum Admission {
    /// Up to so many packets.
    Packets(u32),
    /// Whatever else drop-tail can be asked for.
    DropTail(Box<DropTailConfig>),
    Red(Box<Idler>),
}

/// RED, which has to hear of idle times.
#[derive(Debug)]
struct Idler {
    law: RedLaw,
    /// Whether it has heard of the last one.
    told: bool,
}

/// What a packet seldom touches.
#[derive(Debug)]
struct Rare {
    transmitter: Transmitter,
    dropped: u64,
    marks: u64,
    /// Of drops alone.
    notes: Option<Notes>,
}

impl Lane {
    /// Empty; `None` if `config` asks for more than a lane can do. `stream` gives the random
    /// stream of the link that has the name of the discipline.
    pub(super) fn new(config: &LinkConfig, stream: impl Fn(&str) -> Pcg64Mcg) -> Option<Self> {
        let fixed = matches!(config.capacity, Capacity::Unlimited | Capacity::Fixed(_));
        let calm = config.loss.is_none() && config.outages.is_empty() && config.jitter.is_none();
        let admission = match config.queue {
            _ if !fixed || !calm => return None,
            QueueConfig::DropTail(config) => Admission::of(config),
            QueueConfig::Red(red) => Admission::Red(Box::new(Idler {
                law: RedLaw::new(red, &config.capacity, stream("red")),
                told: true,
            })),
            _ => return None,
        };
        let transmitter = Transmitter::new(config.capacity.clone());
        Some(Self {
            ring: VecDeque::new(),
            started: 0,
            waiting: Bytes::ZERO,
            free_at: Time::ZERO,
            delay: nanos(config.delay),
            known: (Bytes::ZERO, transmitter.time(Bytes::ZERO).unwrap_or(0)),
            admission,
            latest: Time::ZERO,
            seen: Time::ZERO,
            arrivals: 0,
            arrived_bytes: Bytes::ZERO,
            delivered_bytes: Bytes::ZERO,
            busy: 0,
            rare: Box::new(Rare {
                transmitter,
                dropped: 0,
                marks: 0,
                notes: None,
            }),
        })
    }

    /// A packet arrives. Whether this changes when the next one leaves; `None`, with nothing done,
    /// if its arrival at the far end would be beyond the end of time.
    #[inline]
    pub(super) fn push<P: Packet>(
        &mut self,
        store: &mut Store<P>,
        at: Time,
        parcel: Parcel,
    ) -> Option<bool> {
        let at = self.latest.max(at);
        if parcel.size != self.known.0 {
            self.known = (parcel.size, self.rare.transmitter.time(parcel.size)?);
        }
        let nanos = self.known.1;
        let end = self.free_at.max(at).as_nanos().checked_add(nanos)?;
        let out = end.checked_add(self.delay).filter(|out| *out < u64::MAX)?;
        self.latest = at;
        self.advance(at);
        self.arrivals += 1;
        self.arrived_bytes += parcel.size;
        if self.free_at <= at {
            (self.started, self.waiting) = (self.ring.len(), Bytes::ZERO);
        }
        // A count that is out of date is too high, and seldom matters.
        let short = match self.admission {
            Admission::Packets(limit) => self.ring.len() - self.started < limit as usize,
            _ => false,
        };
        if !short && !self.admit(store, at, parcel) {
            return Some(false);
        }
        if self.free_at <= at {
            self.started += 1;
        } else {
            self.waiting += parcel.size;
        }
        self.busy += nanos;
        self.free_at = Time::from_nanos(end);
        let out = Time::from_nanos(out);
        self.ring.push_back(Passing { out, parcel });
        Some(self.ring.len() == 1)
    }

    /// The next packet to have arrived by `now`, and when.
    #[inline]
    pub(super) fn pop(&mut self, now: Time) -> Option<(Time, Parcel)> {
        self.advance(now);
        let Passing { out, parcel } = self.ring.pop_front_if(|first| first.out <= now)?;
        if self.started > 0 {
            self.started -= 1;
        } else {
            self.waiting -= parcel.size;
        }
        self.delivered_bytes += parcel.size;
        Some((out, parcel))
    }

    #[inline]
    pub(super) fn next_departure(&self) -> Option<Time> {
        self.ring.front().map(|first| first.out)
    }

    #[inline]
    pub(super) fn advance(&mut self, now: Time) {
        self.seen = self.seen.max(now);
    }

    pub(super) fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay)
    }

    pub(super) fn capacity(&self) -> &Capacity {
        self.rare.transmitter.capacity()
    }

    pub(super) fn queued(&self) -> Queued {
        let (started, bytes) = self.left_queue(self.seen);
        Queued {
            packets: self.ring.len() - started,
            bytes,
        }
    }

    pub(super) fn stats(&self) -> LinkStats {
        let rare = &self.rare;
        LinkStats {
            arrivals: self.arrivals,
            arrived_bytes: self.arrived_bytes,
            delivered: self.arrivals - rare.dropped - self.ring.len() as u64,
            delivered_bytes: self.delivered_bytes,
            queue_drops: rare.dropped,
            marks: rare.marks,
            busy: Duration::from_nanos(self.busy - self.unfinished().1),
            ..LinkStats::default()
        }
    }

    /// Keeps notes of drops from now on.
    pub(super) fn observe_drops(&mut self, notes: Notes) {
        self.rare.notes = Some(notes);
    }

    pub(super) fn notes(&self) -> Option<&Notes> {
        self.rare.notes.as_ref()
    }

    pub(super) fn notes_mut(&mut self) -> Option<&mut Notes> {
        self.rare.notes.as_mut()
    }

    /// The chain that does the same from here on. Packets that are inside get no numbers and have
    /// not waited, since nobody had asked for either. The lane is of no further use.
    pub(super) fn become_chain<P: Packet>(&mut self, store: &Store<P>) -> Chain {
        let stats = self.stats();
        let (started, _) = self.left_queue(self.seen);
        let finished = self.ring.len() - self.unfinished().0;
        let mut fifo = Fifo::default();
        let mut wire = Wire::even(self.delay());
        let mut in_service = None;
        for (i, Passing { out, parcel }) in self.ring.iter().enumerate() {
            let end = out.before(self.delay());
            let start = end.before(Duration::from_nanos(self.time(parcel.size)));
            let held = || Held::new(store, start, 0, *parcel);
            if i < finished {
                wire.push(end, 0, *parcel);
            } else if i < started {
                in_service = Some((
                    end,
                    InService {
                        held: held(),
                        start,
                    },
                ));
            } else {
                fifo.push(held());
            }
        }
        let queue = match mem::replace(&mut self.admission, Admission::Packets(0)) {
            Admission::Packets(limit) => {
                let config = DropTailConfig::packets(limit);
                Discipline::DropTail(DropTail::with(config, fifo))
            }
            Admission::DropTail(config) => Discipline::DropTail(DropTail::with(*config, fifo)),
            Admission::Red(mut idler) => {
                idler.hear(self.free_at, self.seen);
                Discipline::Red(Box::new(Red::with(idler.law, fifo)))
            }
        };
        let records = Records {
            notes: self.rare.notes.take(),
            ..Records::default()
        };
        let transmitter = self.rare.transmitter.clone();
        Chain::resume(queue, transmitter, in_service, wire, stats, records)
    }

    /// Whether the queue takes a packet. Marks it or loses it.
    fn admit<P: Packet>(&mut self, store: &mut Store<P>, at: Time, parcel: Parcel) -> bool {
        if self.free_at > at {
            (self.started, self.waiting) = self.left_queue(at);
        }
        let waiting = Queued {
            packets: self.ring.len() - self.started,
            bytes: self.waiting,
        };
        let capable = || {
            let packet = store.get(parcel.slot);
            packet.is_some_and(|packet| packet.ecn().is_capable())
        };
        let free_at = self.free_at;
        let verdict = self
            .admission
            .judge(free_at, at, parcel.size, waiting, capable);
        match verdict {
            Verdict::Accepted => {}
            Verdict::Marked => self.mark(store, parcel),
            Verdict::Dropped => self.lose(store, at, parcel),
        }
        verdict != Verdict::Dropped
    }

    /// The queue does not take a packet.
    #[cold]
    fn lose<P>(&mut self, store: &mut Store<P>, at: Time, parcel: Parcel) {
        store.take(parcel.slot);
        if let Some(notes) = &mut self.rare.notes {
            notes.add(LinkNote {
                at,
                packet: self.arrivals - 1,
                flow: parcel.flow,
                size: parcel.size,
                happening: Happening::Dropped(DropReason::Queue),
            });
        }
        self.rare.dropped += 1;
    }

    /// The queue takes a packet and marks it.
    #[cold]
    fn mark<P: Packet>(&mut self, store: &mut Store<P>, parcel: Parcel) {
        if let Some(packet) = store.get_mut(parcel.slot) {
            packet.set_ce();
        }
        self.rare.marks += 1;
    }

    /// How long the transmission of a packet takes that was taken, in ns.
    fn time(&self, size: Bytes) -> u64 {
        self.rare.transmitter.time(size).unwrap_or(0)
    }

    /// How many packets have left the queue at `at`, which is not before it was asked last, and
    /// the size of the others.
    #[inline]
    fn left_queue(&self, at: Time) -> (usize, Bytes) {
        let (mut started, mut waiting) = (self.started, self.waiting);
        let out = at.as_nanos().saturating_add(self.delay);
        while started < self.ring.len()
            && (started == 0 || self.ring[started - 1].out.as_nanos() <= out)
        {
            waiting -= self.ring[started].parcel.size;
            started += 1;
        }
        (started, waiting)
    }

    /// How many packets the transmitter has not finished, and how long it takes for them, in ns.
    fn unfinished(&self) -> (usize, u64) {
        let out = self.seen.as_nanos().saturating_add(self.delay);
        let newest = self.ring.iter().rev();
        let ahead = newest.take_while(|passing| passing.out.as_nanos() > out);
        let Some((i, oldest)) = ahead.enumerate().last() else {
            return (0, 0);
        };
        // The others follow it without a gap.
        let first = oldest.out.as_nanos() - self.delay;
        let others = self.free_at.as_nanos() - first;
        (i + 1, others + self.time(oldest.parcel.size))
    }
}

impl Admission {
    fn of(config: DropTailConfig) -> Self {
        match config {
            DropTailConfig {
                limit: Limit::Packets(limit),
                mark_above: None,
            } => Self::Packets(limit),
            config => Self::DropTail(Box::new(config)),
        }
    }

    /// What becomes of a packet of `size` that arrives at `at`, where `waiting` waits and the
    /// transmitter is free from `free_at` on.
    fn judge(
        &mut self,
        free_at: Time,
        at: Time,
        size: Bytes,
        waiting: Queued,
        capable: impl Fn() -> bool,
    ) -> Verdict {
        match self {
            Self::Packets(limit) => DropTailConfig::packets(*limit).judge(waiting, size, capable),
            Self::DropTail(config) => config.judge(waiting, size, capable),
            Self::Red(idler) => {
                idler.hear(free_at, at);
                let verdict = idler.law.judge(at, size, waiting, capable);
                idler.told &= verdict == Verdict::Dropped;
                verdict
            }
        }
    }
}

impl Idler {
    /// The transmitter is free from `free_at` on; it is `now`.
    fn hear(&mut self, free_at: Time, now: Time) {
        if free_at <= now && !self.told {
            self.law.idle(free_at);
            self.told = true;
        }
    }
}
