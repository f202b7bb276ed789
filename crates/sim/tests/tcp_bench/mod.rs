//! A small event loop for TCP models: a sender, a sink, and chains of links between them whose
//! times are exact to a fraction of a nanosecond.

pub(crate) mod reference;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::control::Ecn;
use tidegate_core::random::Seed;
use tidegate_core::units::{Rate, Time};
use tidegate_sim::packet_agent::{Agent, AgentCx, Arrival, Body, Outbox, Outgoing};

/// Configuration of a link.
#[derive(Clone, Debug)]
pub(crate) struct Hop {
    pub(crate) rate: Rate,
    pub(crate) delay: Duration,
    /// As in ns-2: a packet is dropped if the queue would have this length with it.
    pub(crate) limit: usize,
    /// Indices of packets that are lost after transmission, from zero, ascending.
    pub(crate) losses: Vec<u64>,
    /// Indices of ECN-capable packets that are marked, counted in the same way.
    pub(crate) marks: Vec<u64>,
}

impl Hop {
    pub(crate) fn new(rate: Rate, delay: Duration) -> Self {
        Self {
            rate,
            delay,
            limit: 1_000,
            losses: Vec::new(),
            marks: Vec::new(),
        }
    }
}

/// Links in both directions, and the index of the observed forward link.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    pub(crate) forward: Vec<Hop>,
    pub(crate) back: Vec<Hop>,
    pub(crate) watched: usize,
}

/// A FIFO link. `core::link::Link` rounds each transmission up to a nanosecond, so that a busy link
/// is late by some microseconds after a minute; here the fraction is carried over.
#[derive(Debug)]
struct Fifo {
    hop: Hop,
    /// Time at which the transmitter becomes idle, in nanoseconds times the rate.
    free: u128,
    /// Start of transmission of each waiting packet, in the same unit.
    begins: VecDeque<u128>,
    out: u64,
    next_loss: usize,
    next_mark: usize,
}

enum Fate {
    Dropped,
    Lost,
    Arrives(Time),
}

impl Fifo {
    fn push(&mut self, now: Time, packet: &mut Outgoing) -> Fate {
        let rate = u128::from(self.hop.rate.as_bps());
        let at = u128::from(now.as_nanos()) * rate;
        while self.begins.pop_front_if(|begin| *begin <= at).is_some() {}
        if self.begins.len() + 1 >= self.hop.limit {
            return Fate::Dropped;
        }
        let begin = at.max(self.free);
        if begin > at {
            self.begins.push_back(begin);
        }
        self.free = begin + u128::from(packet.size) * 8 * 1_000_000_000;
        let number = self.out;
        self.out += 1;
        if self.hop.marks.get(self.next_mark) == Some(&number) {
            self.next_mark += 1;
            if packet.ecn.is_capable() {
                packet.ecn = Ecn::Ce;
            }
        }
        if self.hop.losses.get(self.next_loss) == Some(&number) {
            self.next_loss += 1;
            return Fate::Lost;
        }
        let out = (self.free + rate / 2) / rate;
        Fate::Arrives(Time::from_nanos(out as u64) + self.hop.delay)
    }
}

/// A packet that arrived at the observed link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) at: Time,
    pub(crate) seq: u32,
    pub(crate) dropped: bool,
}

/// Sender, sink and links.
#[derive(Debug)]
pub(crate) struct Bench<S, R> {
    pub(crate) sender: S,
    pub(crate) sink: R,
    pub(crate) now: Time,
    forward: Vec<Fifo>,
    back: Vec<Fifo>,
    watched: usize,
    pub(crate) seen: Vec<Seen>,
    events: BinaryHeap<Reverse<(Time, u64, u32)>>,
    packets: Vec<Option<(Place, Outgoing)>>,
    spare: Vec<u32>,
    order: u64,
    rngs: [Pcg64Mcg; 2],
    out: Outbox,
    sent: Vec<Outgoing>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    back: bool,
    hop: usize,
}

impl<S: Agent, R: Agent> Bench<S, R> {
    /// Observes the forward link with index `watched`. The sender's random draws come from `seed`.
    pub(crate) fn new(sender: S, sink: R, links: &Links, seed: u64) -> Self {
        let chain = |hops: &[Hop]| {
            hops.iter()
                .map(|hop| Fifo {
                    hop: hop.clone(),
                    free: 0,
                    begins: VecDeque::new(),
                    out: 0,
                    next_loss: 0,
                    next_mark: 0,
                })
                .collect()
        };
        Self {
            sender,
            sink,
            now: Time::ZERO,
            forward: chain(&links.forward),
            back: chain(&links.back),
            watched: links.watched,
            seen: Vec::new(),
            events: BinaryHeap::new(),
            packets: Vec::new(),
            spare: Vec::new(),
            order: 0,
            rngs: [Seed(seed).stream("sender"), Seed(seed).stream("sink")],
            out: Outbox::default(),
            sent: Vec::new(),
        }
    }

    /// Runs until `end`, or until there are no further events.
    pub(crate) fn run(&mut self, end: Time) {
        loop {
            let packet = self.events.peek().map_or(Time::FAR, |e| e.0.0);
            let timer = self.sender.next_timer().min(self.sink.next_timer());
            let at = packet.min(timer);
            if at > end || at == Time::FAR {
                self.now = end;
                return;
            }
            self.now = at;
            if packet < timer {
                self.arrive();
            } else if self.sender.next_timer() == at {
                self.call(false, |agent, cx| agent.on_timer(cx));
            } else {
                self.call(true, |agent, cx| agent.on_timer(cx));
            }
        }
    }

    fn arrive(&mut self) {
        let Some(Reverse((_, _, slot))) = self.events.pop() else {
            return;
        };
        let Some((place, mut packet)) = self.packets[slot as usize].take() else {
            return;
        };
        self.spare.push(slot);
        let hops = if place.back {
            &self.back
        } else {
            &self.forward
        };
        if place.hop < hops.len() {
            self.enter(place, packet);
        } else {
            let arrival = Arrival {
                size: packet.size,
                ecn: packet.ecn,
                dscp: 0,
            };
            self.call(!place.back, |agent, cx| {
                agent.on_packet(cx, &arrival, &mut packet.body);
            });
        }
    }

    fn call(&mut self, sink: bool, what: impl FnOnce(&mut dyn Agent, &mut AgentCx<'_>)) {
        let mut trace = ();
        let rng = &mut self.rngs[usize::from(sink)];
        let mut cx = AgentCx::new(self.now, rng, &mut trace, &mut self.out);
        if sink {
            what(&mut self.sink, &mut cx);
        } else {
            what(&mut self.sender, &mut cx);
        }
        let mut sent = std::mem::take(&mut self.sent);
        sent.extend(self.out.drain());
        for packet in sent.drain(..) {
            self.enter(Place { back: sink, hop: 0 }, packet);
        }
        self.sent = sent;
    }

    /// Calls the sender, and sends its packets.
    pub(crate) fn with_sender(&mut self, what: impl FnOnce(&mut S, &mut AgentCx<'_>)) {
        let mut trace = ();
        let mut cx = AgentCx::new(self.now, &mut self.rngs[0], &mut trace, &mut self.out);
        what(&mut self.sender, &mut cx);
        let sent: Vec<_> = self.out.drain().collect();
        for packet in sent {
            self.enter(
                Place {
                    back: false,
                    hop: 0,
                },
                packet,
            );
        }
    }

    fn enter(&mut self, place: Place, mut packet: Outgoing) {
        let now = self.now;
        let chain = if place.back {
            &mut self.back
        } else {
            &mut self.forward
        };
        let fate = chain[place.hop].push(now, &mut packet);
        if !place.back
            && place.hop == self.watched
            && let Body::Segment(segment) = &packet.body
        {
            self.seen.push(Seen {
                at: now,
                seq: segment.seq,
                dropped: matches!(fate, Fate::Dropped),
            });
        }
        let Fate::Arrives(at) = fate else {
            return;
        };
        let next = Place {
            hop: place.hop + 1,
            ..place
        };
        let slot = self.spare.pop().unwrap_or_else(|| {
            self.packets.push(None);
            self.packets.len() as u32 - 1
        });
        self.packets[slot as usize] = Some((next, packet));
        self.events.push(Reverse((at, self.order, slot)));
        self.order += 1;
    }
}

/// Rounded to the nearest microsecond, as ns-2 prints it.
pub(crate) fn micros(at: Time) -> u64 {
    (at.as_nanos() + 500) / 1_000
}
