//! A world in which time jumps: parties, a network between them, and nothing else.
//!
//! The order of events is fixed. At one moment, what the network delivers comes first, in the order
//! in which it left; then the parties whose deadline has come, in the order of their numbers; then
//! the sample of the links. After every input a party is drained before anything else happens. Where
//! nobody can tell, parties have their turns earlier than that, as `ahead` says.

use core::mem;
use core::time::Duration;

use prefetch_index::prefetch_index;
use tidegate_core::link::{Exit, LinkId, Network, RouteId, Step};
use tidegate_core::random::Seed;
use tidegate_core::timer_queue::TimerQueue;
use tidegate_core::trace::{Event, Trace};
use tidegate_core::units::Time;

use crate::packet_agent::{Agent, AgentCx, Arrival, Outbox};

mod batch_wakeup;
mod error;
mod lookahead;
mod node;
mod observer;
mod packet;
mod wired;

pub use error::WorldError;
use lookahead::Lookahead;
use node::{Aside, NodeState};
pub use observer::{Flight, Observer, Sample};
pub use packet::SimPacket;
use packet::put;
pub use wired::Wired;

/// A party by its place in the list given to [`World::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// An agent and its place in the world.
#[derive(Clone, Debug)]
pub struct Node<A> {
    /// Names its random stream, `party/<name>`, and shows up in errors.
    pub name: String,
    /// What it does.
    pub agent: A,
    /// Who receives what it sends.
    pub peer: NodeId,
    /// The way there.
    pub route: RouteId,
    /// Whose packets these are: what fair queues keep apart and link counters tell apart.
    pub flow: u32,
    /// The DSCP of its packets.
    pub dscp: u8,
    /// Before, it is not called, and what arrives for it is lost.
    pub start: Time,
    /// From then on, the same.
    pub stop: Time,
}

/// Parties on a network.
///
/// What agents send is moved, and buffers of datagrams are used again once they arrive: a world in
/// its stride does not allocate, other than for datagrams in place of those that the network loses.
#[derive(Debug)]
pub struct World<A> {
    network: Network<SimPacket>,
    seats: Vec<NodeState<A>>,
    /// When each party wants to be woken, while it takes part: then or later.
    agenda: TimerQueue,
    /// How many parties are not done.
    busy: usize,
    now: Time,
    /// How many moments there were, modulo 2³².
    moment: u32,
    sampler: Option<Sampler>,
    outbox: Outbox,
    /// At the present moment.
    deliveries: u32,
    /// Who may be ahead of the others.
    ahead: Lookahead,
}

impl<A: Agent> World<A> {
    /// Puts parties on a network; the clock stands at zero.
    ///
    /// # Errors
    /// When a party has a peer that is not in the list.
    pub fn new(
        network: Network<SimPacket>,
        parties: Vec<Node<A>>,
        seed: Seed,
    ) -> Result<Self, WorldError> {
        let count = parties.len();
        if let Some(party) = parties.iter().find(|party| party.peer.0 >= count) {
            return Err(WorldError::NoPeer {
                party: party.name.clone(),
                peer: party.peer,
            });
        }
        let seat = |party: Node<A>| NodeState {
            agent: party.agent,
            start: party.start,
            stop: party.stop,
            peer: party.peer.0 as u32,
            flow: party.flow,
            route: party.route.0 as u32,
            dscp: party.dscp,
            done: false,
            late: false,
            moment: 0,
            wakes: 0,
            aside: Box::new(Aside {
                rng: seed.stream(&format!("party/{}", party.name)),
                name: party.name,
                done_at: Time::ZERO,
            }),
        };
        let mut world = Self {
            network,
            seats: parties.into_iter().map(seat).collect(),
            agenda: TimerQueue::new(count),
            busy: count,
            now: Time::ZERO,
            moment: 0,
            sampler: None,
            outbox: Outbox::default(),
            deliveries: 0,
            ahead: Lookahead::default(),
        };
        for id in 0..count {
            let outlook = world.seats[id].outlook();
            world.settle(id, outlook);
        }
        Ok(world)
    }

    /// From now on, shows the first `links` links to the observer at multiples of `interval`, the
    /// present moment first. An interval of zero counts as one nanosecond.
    pub fn sample_every(&mut self, interval: Duration, links: usize) {
        if self.ahead.is_on() {
            // Whether anybody may be was found out for other samples.
            self.network.end_ahead();
            self.fall_in();
        }
        self.sampler = Some(Sampler {
            next: self.now,
            interval: interval.max(Duration::from_nanos(1)),
            links: links.min(self.network.len()),
        });
    }

    /// Lets everything happen up to and including `until`, or until every party is done and the
    /// network is empty. Returns the moment that was reached. May be called again to go on.
    ///
    /// # Errors
    /// When a party does not let time go on. The world is of no further use then.
    pub fn run<O: Observer + ?Sized>(
        &mut self,
        until: Time,
        observer: &mut O,
    ) -> Result<Time, WorldError> {
        if self.may_be_ahead(observer.wants_order())
            && let Some(end) = self.run_ahead(until, observer)?
        {
            return Ok(end);
        }
        loop {
            self.look_ahead(observer);
            let (wake, id) = self.agenda.first();
            let sample = self.sampler.as_ref().map_or(Time::FAR, |s| s.next);
            let horizon = wake.min(sample).max(self.now).min(until);
            if let Some(exit) = self.network.pop_exit(horizon) {
                self.go_to(exit.at());
                self.deliver(exit, observer)?;
                continue;
            }
            if self.postpone(wake, id) {
                continue;
            }
            if self.is_over() {
                return Ok(self.now);
            }
            if wake.min(sample) > until {
                self.now = until.max(self.now);
                return Ok(self.now);
            }
            self.go_to(horizon);
            if wake <= horizon {
                self.wake(id, observer)?;
            } else {
                self.sample(observer);
            }
        }
    }

    /// The present moment.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The agent of a party. Panics if there is no such party.
    pub fn agent(&self, party: NodeId) -> &A {
        &self.seats[party.0].agent
    }

    /// The same, to take out what it has collected. Panics if there is no such party.
    pub fn agent_mut(&mut self, party: NodeId) -> &mut A {
        &mut self.seats[party.0].agent
    }

    /// The network, e.g. for what its links counted.
    pub fn network(&mut self) -> &mut Network<SimPacket> {
        &mut self.network
    }

    /// The agents, in the order in which they came in.
    pub fn into_agents(self) -> Vec<A> {
        self.seats.into_iter().map(|seat| seat.agent).collect()
    }

    /// Brings to the cache what the next packets will touch, step by step: who gets them and what is
    /// counted of them, then what these consist of and the link that the answer takes, then its place
    /// in there.
    #[inline]
    fn look_ahead<O: Observer + ?Sized>(&mut self, observer: &mut O) {
        if self.network.has_news() {
            self.look_on(observer);
        }
    }

    #[inline(never)]
    fn look_on<O: Observer + ?Sized>(&mut self, observer: &mut O) {
        for packet in self.network.coming(2) {
            prefetch_index(&self.seats, packet.to as usize);
            observer.soon(NodeId(packet.to as usize));
        }
        for packet in self.network.coming(1) {
            let seat = &self.seats[packet.to as usize];
            seat.agent.soon();
            self.network.soon(RouteId(seat.route as usize), Step::Link);
        }
        for packet in self.network.coming(0) {
            let seat = &self.seats[packet.to as usize];
            self.network.soon(RouteId(seat.route as usize), Step::Place);
            observer.very_soon(NodeId(packet.to as usize));
        }
    }

    fn go_to(&mut self, at: Time) {
        if at > self.now {
            self.now = at;
            self.moment = self.moment.wrapping_add(1);
            self.deliveries = 0;
        }
    }

    /// A look at the counter comes first: the rest costs a walk through all links.
    fn is_over(&mut self) -> bool {
        let nobody_left = || {
            let now = self.now;
            let mut seats = self.seats.iter();
            seats.all(|seat| seat.done || now >= seat.stop)
        };
        (self.busy == 0 || (self.agenda.first().0 == Time::FAR && nobody_left()))
            && self.network.inside() == 0
    }

    fn sample<O: Observer + ?Sized>(&mut self, observer: &mut O) {
        let now = self.now;
        let Some(sampler) = &mut self.sampler else {
            return;
        };
        sampler.next += sampler.interval;
        for link in (0..sampler.links).map(LinkId) {
            let (queued, stats) = self.network.state(link, now);
            observer.sample(&Sample {
                at: now,
                link,
                queued,
                stats,
            });
        }
    }

    fn deliver<O: Observer + ?Sized>(
        &mut self,
        exit: Exit,
        observer: &mut O,
    ) -> Result<(), WorldError> {
        let Some((id, outlook)) = self.hand_over(exit, observer) else {
            return Ok(());
        };
        self.deliveries += 1;
        if self.deliveries > MOST_DELIVERIES {
            return Err(self.storm(id, self.now));
        }
        self.send::<false, O>(id, self.now, observer)?;
        self.settle(id, outlook);
        Ok(())
    }

    fn wake<O: Observer + ?Sized>(
        &mut self,
        id: usize,
        observer: &mut O,
    ) -> Result<(), WorldError> {
        let now = self.now;
        let seat = &mut self.seats[id];
        if seat.moment != self.moment {
            (seat.moment, seat.wakes) = (self.moment, 0);
        }
        seat.wakes += 1;
        if seat.wakes > MOST_WAKES {
            return Err(self.stuck(id, now));
        }
        let outlook = self.ring(id, now, observer);
        self.send::<false, O>(id, now, observer)?;
        self.settle(id, outlook);
        Ok(())
    }

    /// Gives a packet at the end of its route to the party that it is for. Who that is, if it takes
    /// part, and its outlook then.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for each packet")]
    fn hand_over<O: Observer + ?Sized>(
        &mut self,
        exit: Exit,
        observer: &mut O,
    ) -> Option<(usize, (Time, bool))> {
        let packet = self.network.packet_mut(&exit)?;
        let (at, id) = (exit.at(), packet.to as usize);
        let seat = &mut self.seats[id];
        if !seat.takes_part(at) {
            self.network.discard(exit);
            return None;
        }
        observer.arrived(at, packet.flight(NodeId(id)));
        let arrival = Arrival {
            size: packet.size,
            ecn: packet.ecn,
        };
        let mut trace = Voice {
            observer,
            id: NodeId(id),
        };
        let mut cx = AgentCx::new(at, &mut seat.aside.rng, &mut trace, &mut self.outbox);
        let (timer, done) = seat.agent.take(&mut cx, &arrival, &mut packet.body);
        let outlook = (seat.within(timer), done);
        self.network.discard(exit);
        Some((id, outlook))
    }

    /// The timer of a party has come. Its outlook then.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for each timer")]
    fn ring<O: Observer + ?Sized>(
        &mut self,
        id: usize,
        at: Time,
        observer: &mut O,
    ) -> (Time, bool) {
        let seat = &mut self.seats[id];
        let mut trace = Voice {
            observer,
            id: NodeId(id),
        };
        let mut cx = AgentCx::new(at, &mut seat.aside.rng, &mut trace, &mut self.outbox);
        let (timer, done) = seat.agent.wake(&mut cx);
        (seat.within(timer), done)
    }

    /// Puts on the network what a party has just sent, which may be ahead of time.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once after each input of a party")]
    fn send<const AHEAD: bool, O: Observer + ?Sized>(
        &mut self,
        id: usize,
        at: Time,
        observer: &mut O,
    ) -> Result<(), WorldError> {
        let Self {
            outbox,
            seats,
            network,
            ..
        } = self;
        if let Some(outgoing) = outbox.only() {
            put::<AHEAD, A, O>(network, &seats[id], id, at, outgoing, observer);
        } else if self.outbox.len() > 0 {
            self.put_all::<AHEAD, O>(id, at, observer)?;
        }
        Ok(())
    }

    #[inline(never)]
    fn put_all<const AHEAD: bool, O: Observer + ?Sized>(
        &mut self,
        id: usize,
        at: Time,
        observer: &mut O,
    ) -> Result<(), WorldError> {
        if self.outbox.len() > MOST_PACKETS {
            return Err(WorldError::Flood {
                party: self.seats[id].aside.name.clone(),
                at,
            });
        }
        let mut outbox = mem::take(&mut self.outbox);
        for outgoing in outbox.drain() {
            let (network, seat) = (&mut self.network, &self.seats[id]);
            put::<AHEAD, A, O>(network, seat, id, at, &mut Some(outgoing), observer);
        }
        self.outbox = outbox;
        Ok(())
    }

    #[cold]
    fn storm(&self, id: usize, at: Time) -> WorldError {
        let party = self.seats[id].aside.name.clone();
        WorldError::Storm { party, at }
    }

    #[cold]
    fn stuck(&self, id: usize, at: Time) -> WorldError {
        let seat = &self.seats[id];
        WorldError::Stuck {
            party: seat.aside.name.clone(),
            at,
            why: seat.agent.why(),
        }
    }

    /// Whether the first of the agenda wants to be woken later than it says there, which it says
    /// from now on.
    #[inline]
    fn postpone(&mut self, wake: Time, id: usize) -> bool {
        let Some(seat) = self.seats.get_mut(id).filter(|seat| seat.late) else {
            return false;
        };
        seat.late = false;
        self.agenda.set(id, seat.deadline());
        self.agenda.first() != (wake, id)
    }

    /// Writes down when a party wants to be woken next, and whether it is done.
    ///
    /// A timer that moves away, as that of TCP does with every acknowledgement, stays where it is:
    /// see [`postpone`](Self::postpone).
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once after each input of a party")]
    fn settle(&mut self, id: usize, (at, done): (Time, bool)) {
        let seat = &mut self.seats[id];
        let planned = self.agenda.get(id);
        seat.late = at > planned && planned > self.now;
        if !seat.late && at != planned {
            self.agenda.set(id, at);
        }
        self.count(id, done, self.now);
    }

    /// Whether a party is done at `at`.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn count(&mut self, id: usize, done: bool, at: Time) {
        let seat = &mut self.seats[id];
        if done != seat.done {
            seat.done = done;
            seat.aside.done_at = at;
            self.busy = if done { self.busy - 1 } else { self.busy + 1 };
        }
    }

    /// Since when a party has been done; none if it is not.
    pub fn done_at(&self, party: NodeId) -> Option<Time> {
        let seat = &self.seats[party.0];
        seat.done.then_some(seat.aside.done_at)
    }
}

#[derive(Debug)]
struct Sampler {
    next: Time,
    interval: Duration,
    links: usize,
}

/// Adds to what a party says who it is.
struct Voice<'a, O: ?Sized> {
    observer: &'a mut O,
    id: NodeId,
}

impl<O: Observer + ?Sized> Trace for Voice<'_, O> {
    fn record(&mut self, at: Time, event: Event) {
        self.observer.event(self.id, at, event);
    }
}

/// Several timers of one party may fall on one moment, and one may set the next; hundreds do not.
const MOST_WAKES: u16 = 1_000;
/// 1 Gb/s of small packets for a whole second of a party that was away: more is a fault.
const MOST_PACKETS: usize = 1_000_000;
/// As above.
const MOST_DELIVERIES: u32 = 2_000_000;

#[cfg(test)]
mod tests;
