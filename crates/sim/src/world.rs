//! Discrete-event simulation: nodes with agents on a network, with a virtual clock.
//!
//! The order of events is fixed. At each instant, deliveries come first, in the order in which
//! packets left their last link. Then expired timers run, in the order of node numbers. The sample
//! of the links is last. Packets that an agent sends during a call enter the network before the
//! next event. Where the result cannot differ, nodes run ahead of this order, see `lookahead`.

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
use node::{Aside, NodeState, Outlook};
pub use observer::{Flight, Observer, Sample};
pub use packet::SimPacket;
use packet::put;
pub use wired::EndpointAgent;

/// Index of a node in the list given to [`World::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// An agent and its attachment to the network.
#[derive(Clone, Debug)]
pub struct Node<A> {
    /// Names the random stream `party/<name>` and appears in errors.
    pub name: String,
    /// Behaviour of the node.
    pub agent: A,
    /// Receiver of the packets that the agent sends.
    pub peer: NodeId,
    /// Route of the packets that the agent sends.
    pub route: RouteId,
    /// Flow id of the packets, for fair queues and per-flow link counters.
    pub flow: u32,
    /// DSCP of the packets.
    pub dscp: u8,
    /// Start of activity. Before it, the agent is not called, and packets for it are dropped.
    pub start: Time,
    /// End of activity. From then on, the agent is not called, and packets for it are dropped.
    pub stop: Time,
}

/// Nodes on a network, with a virtual clock.
///
/// Packets are moved, not copied, and buffers of delivered datagrams are reused. In steady state a
/// world allocates only to replace the buffers of datagrams that the network dropped.
#[derive(Debug)]
pub struct World<A> {
    network: Network<SimPacket>,
    nodes: Vec<NodeState<A>>,
    /// A lower bound of the next timer of each active node.
    timers: TimerQueue,
    /// Number of nodes that are not done.
    busy: usize,
    now: Time,
    /// Number of distinct instants so far, modulo 2³².
    moment: u32,
    sampler: Option<Sampler>,
    outbox: Outbox,
    /// Deliveries at the present instant.
    deliveries: u32,
    /// State of the lookahead.
    ahead: Lookahead,
}

impl<A: Agent> World<A> {
    /// Attaches nodes to a network. The clock starts at zero.
    ///
    /// # Errors
    /// [`WorldError::NoPeer`] if the peer of a node is not in the list.
    pub fn new(
        network: Network<SimPacket>,
        nodes: Vec<Node<A>>,
        seed: Seed,
    ) -> Result<Self, WorldError> {
        let count = nodes.len();
        if let Some(node) = nodes.iter().find(|node| node.peer.0 >= count) {
            return Err(WorldError::NoPeer {
                node: node.name.clone(),
                peer: node.peer,
            });
        }
        let state = |node: Node<A>| NodeState {
            agent: node.agent,
            start: node.start,
            stop: node.stop,
            peer: node.peer.0 as u32,
            flow: node.flow,
            route: node.route.0 as u32,
            dscp: node.dscp,
            done: false,
            late: false,
            moment: 0,
            wakes: 0,
            aside: Box::new(Aside {
                rng: seed.stream(&format!("party/{}", node.name)),
                name: node.name,
                done_at: Time::ZERO,
            }),
        };
        let mut world = Self {
            network,
            nodes: nodes.into_iter().map(state).collect(),
            timers: TimerQueue::new(count),
            busy: count,
            now: Time::ZERO,
            moment: 0,
            sampler: None,
            outbox: Outbox::default(),
            deliveries: 0,
            ahead: Lookahead::default(),
        };
        for id in 0..count {
            let outlook = world.nodes[id].outlook();
            world.settle(id, outlook);
        }
        Ok(world)
    }

    /// Passes the first `links` links to [`Observer::sample`] at multiples of `interval`, starting
    /// now. An interval of zero counts as one nanosecond.
    pub fn sample_every(&mut self, interval: Duration, links: usize) {
        if self.ahead.is_on() {
            // The decision for lookahead was made for the previous sampler.
            self.network.end_ahead();
            self.end_lookahead();
        }
        self.sampler = Some(Sampler {
            next: self.now,
            interval: interval.max(Duration::from_nanos(1)),
            links: links.min(self.network.len()),
        });
    }

    /// Runs all events up to and including `until`, or until every node is done and the network is
    /// empty. Returns the time reached. A further call continues from there.
    ///
    /// # Errors
    /// A [`WorldError`] if a node keeps the clock from advancing. The world cannot be used
    /// afterwards.
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
            let (wake, id) = self.timers.first();
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

    /// Current simulated time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Agent of a node. Panics if the node does not exist.
    pub fn agent(&self, node: NodeId) -> &A {
        &self.nodes[node.0].agent
    }

    /// Mutable agent of a node, e.g. to drain its records. Panics if the node does not exist.
    pub fn agent_mut(&mut self, node: NodeId) -> &mut A {
        &mut self.nodes[node.0].agent
    }

    /// The network, e.g. for the counters of its links.
    pub fn network(&mut self) -> &mut Network<SimPacket> {
        &mut self.network
    }

    /// Returns the agents in the order of their nodes.
    pub fn into_agents(self) -> Vec<A> {
        self.nodes.into_iter().map(|node| node.agent).collect()
    }

    /// Prefetches the memory that the next packets touch, in three stages: the receiving node and
    /// its counters, then the agent's state and the first link of the reply, then the slot in that
    /// link.
    #[inline]
    fn look_ahead<O: Observer + ?Sized>(&mut self, observer: &mut O) {
        if self.network.has_news() {
            self.prefetch(observer);
        }
    }

    #[inline(never)]
    fn prefetch<O: Observer + ?Sized>(&mut self, observer: &mut O) {
        for packet in self.network.coming(2) {
            prefetch_index(&self.nodes, packet.to as usize);
            observer.prefetch_early(NodeId(packet.to as usize));
        }
        for packet in self.network.coming(1) {
            let node = &self.nodes[packet.to as usize];
            node.agent.soon();
            self.network.soon(RouteId(node.route as usize), Step::Link);
        }
        for packet in self.network.coming(0) {
            let node = &self.nodes[packet.to as usize];
            self.network.soon(RouteId(node.route as usize), Step::Place);
            observer.prefetch(NodeId(packet.to as usize));
        }
    }

    fn go_to(&mut self, at: Time) {
        if at > self.now {
            self.now = at;
            self.moment = self.moment.wrapping_add(1);
            self.deliveries = 0;
        }
    }

    /// Checks the counter first, because `Network::inside` visits every link.
    fn is_over(&mut self) -> bool {
        let all_stopped = || {
            let now = self.now;
            let mut nodes = self.nodes.iter();
            nodes.all(|node| node.done || now >= node.stop)
        };
        (self.busy == 0 || (self.timers.first().0 == Time::FAR && all_stopped()))
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
        if self.deliveries > MAX_DELIVERIES {
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
        let node = &mut self.nodes[id];
        if node.moment != self.moment {
            (node.moment, node.wakes) = (self.moment, 0);
        }
        node.wakes += 1;
        if node.wakes > MAX_WAKES {
            return Err(self.stuck(id, now));
        }
        let outlook = self.ring(id, now, observer);
        self.send::<false, O>(id, now, observer)?;
        self.settle(id, outlook);
        Ok(())
    }

    /// Delivers a packet at the end of its route. Returns the receiving node and its next timer, or
    /// none if the node is not active.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for each packet")]
    fn hand_over<O: Observer + ?Sized>(
        &mut self,
        exit: Exit,
        observer: &mut O,
    ) -> Option<(usize, Outlook)> {
        let packet = self.network.packet_mut(&exit)?;
        let (at, id) = (exit.at(), packet.to as usize);
        let node = &mut self.nodes[id];
        if !node.takes_part(at) {
            self.network.discard(exit);
            return None;
        }
        observer.arrived(at, packet.flight(NodeId(id)));
        let arrival = Arrival {
            size: packet.size,
            ecn: packet.ecn,
            dscp: packet.dscp,
        };
        let mut trace = NodeTrace {
            observer,
            id: NodeId(id),
        };
        let mut cx = AgentCx::new(at, &mut node.aside.rng, &mut trace, &mut self.outbox);
        let (timer, done) = node.agent.take(&mut cx, &arrival, &mut packet.body);
        let due = node.within(timer);
        let outlook = Outlook { due, done };
        self.network.discard(exit);
        Some((id, outlook))
    }

    /// Runs the timer of a node. Returns its next timer.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for each timer")]
    fn ring<O: Observer + ?Sized>(&mut self, id: usize, at: Time, observer: &mut O) -> Outlook {
        let node = &mut self.nodes[id];
        let mut trace = NodeTrace {
            observer,
            id: NodeId(id),
        };
        let mut cx = AgentCx::new(at, &mut node.aside.rng, &mut trace, &mut self.outbox);
        let (timer, done) = node.agent.wake(&mut cx);
        let due = node.within(timer);
        Outlook { due, done }
    }

    /// Sends the packets of an agent's last call. With `AHEAD`, `at` may be later than the clock.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once after each input of a node")]
    fn send<const AHEAD: bool, O: Observer + ?Sized>(
        &mut self,
        id: usize,
        at: Time,
        observer: &mut O,
    ) -> Result<(), WorldError> {
        let Self {
            outbox,
            nodes,
            network,
            ..
        } = self;
        if let Some(outgoing) = outbox.only() {
            put::<AHEAD, A, O>(network, &nodes[id], id, at, outgoing, observer);
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
        if self.outbox.len() > MAX_PACKETS {
            return Err(WorldError::Flood {
                node: self.nodes[id].aside.name.clone(),
                at,
            });
        }
        let mut outbox = mem::take(&mut self.outbox);
        for outgoing in outbox.drain() {
            let (network, node) = (&mut self.network, &self.nodes[id]);
            put::<AHEAD, A, O>(network, node, id, at, &mut Some(outgoing), observer);
        }
        for (other, outgoing) in outbox.drain_as() {
            let (network, node) = (&mut self.network, &self.nodes[other]);
            put::<AHEAD, A, O>(network, node, other, at, &mut Some(outgoing), observer);
        }
        self.outbox = outbox;
        Ok(())
    }

    #[cold]
    fn storm(&self, id: usize, at: Time) -> WorldError {
        let node = self.nodes[id].aside.name.clone();
        WorldError::Storm { node, at }
    }

    #[cold]
    fn stuck(&self, id: usize, at: Time) -> WorldError {
        let node = &self.nodes[id];
        WorldError::Stuck {
            node: node.aside.name.clone(),
            at,
            why: node.agent.why(),
        }
    }

    /// Corrects the first entry of the timer queue if its node has a later timer. Returns whether
    /// the order changed.
    #[inline]
    fn postpone(&mut self, wake: Time, id: usize) -> bool {
        let Some(node) = self.nodes.get_mut(id).filter(|node| node.late) else {
            return false;
        };
        node.late = false;
        self.timers.set(id, node.deadline());
        self.timers.first() != (wake, id)
    }

    /// Updates the timer of a node in the queue and its done state.
    ///
    /// A timer that moves later, as the retransmission timer of TCP does with every
    /// acknowledgement, keeps its entry: see [`postpone`](Self::postpone).
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once after each input of a node")]
    fn settle(&mut self, id: usize, outlook: Outlook) {
        let node = &mut self.nodes[id];
        let planned = self.timers.get(id);
        node.late = outlook.due > planned && planned > self.now;
        if !node.late && outlook.due != planned {
            self.timers.set(id, outlook.due);
        }
        self.count(id, outlook.done, self.now);
    }

    /// Updates the count of busy nodes.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn count(&mut self, id: usize, done: bool, at: Time) {
        let node = &mut self.nodes[id];
        if done != node.done {
            node.done = done;
            node.aside.done_at = at;
            self.busy = if done { self.busy - 1 } else { self.busy + 1 };
        }
    }

    /// Time since which a node is done, or none if it is not.
    pub fn done_at(&self, node: NodeId) -> Option<Time> {
        let node = &self.nodes[node.0];
        node.done.then_some(node.aside.done_at)
    }
}

#[derive(Debug)]
struct Sampler {
    next: Time,
    interval: Duration,
    links: usize,
}

/// Adds the node's number to the events of its agent.
struct NodeTrace<'a, O: ?Sized> {
    observer: &'a mut O,
    id: NodeId,
}

impl<O: Observer + ?Sized> Trace for NodeTrace<'_, O> {
    fn record(&mut self, at: Time, event: Event) {
        self.observer.event(self.id, at, event);
    }
}

/// Limit of timer calls of one node at one instant. A few timers may coincide or chain.
const MAX_WAKES: u16 = 1_000;
/// Limit of packets per call: 1 Gb/s of small packets for one second. More is a fault.
const MAX_PACKETS: usize = 1_000_000;
/// Limit of deliveries at one instant, for the same reason.
const MAX_DELIVERIES: u32 = 2_000_000;

#[cfg(test)]
mod tests;
