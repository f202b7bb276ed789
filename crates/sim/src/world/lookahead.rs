//! Conservative lookahead: nodes that run ahead of the clock.
//!
//! An agent depends only on its inputs and their times. If a node shares neither the first nor the
//! last link of its routes, its inputs can be processed before those of other nodes at earlier
//! times, as soon as no earlier input can arrive (see
//! [`get_ahead`](tidegate_core::link::Network::get_ahead)). The receiver then processes a packet as
//! soon as its path through the network is known, and the reply enters the receiver's first link at
//! once. Neither passes through an event queue. Shared links still see packets in the order of
//! time.
//!
//! The results of agents are unchanged, and tests compare them with the plain order. The plain
//! order applies if an observer needs ordered events or agents share state.

use core::mem;

use prefetch_index::prefetch_index;
use tidegate_core::link::{LinkId, RouteId, Step};
use tidegate_core::units::Time;

use super::batch_wakeup::BatchWakeup;
use super::node::Outlook;
use super::{MAX_WAKES, NodeId, Observer, World, WorldError};
use crate::packet_agent::Agent;

/// State of the lookahead of a world.
#[derive(Debug, Default)]
pub(super) struct Lookahead {
    on: bool,
    /// Lookahead of the network in ns: no unknown packet arrives within it.
    lead: u64,
    /// Receiving node of each link.
    receivers: Vec<u32>,
    /// Latest time at which timers may run, because later arrivals may still be unknown.
    limit: Time,
    /// Time of the latest event.
    latest: Time,
    /// Timers of the nodes.
    timers: BatchWakeup,
}

impl Lookahead {
    pub(super) fn is_on(&self) -> bool {
        self.on
    }
}

impl<A: Agent> World<A> {
    /// Whether nodes may run ahead of each other. The first call decides, before any event.
    pub(super) fn may_be_ahead(&mut self, wants_order: bool) -> bool {
        if self.now == Time::ZERO && !self.ahead.on && !wants_order {
            self.ahead = self.find_ahead().unwrap_or_default();
        }
        // A new observer may need the order, and reading a link's counters ends the lookahead.
        if self.ahead.on && (wants_order || !self.network.is_ahead()) {
            self.end_lookahead();
        }
        self.ahead.on
    }

    fn find_ahead(&mut self) -> Option<Lookahead> {
        let sampled = self.sampler.as_ref().map_or(0, |sampler| sampler.links);
        let mut firsts = vec![false; self.network.len()];
        let mut reached = vec![false; self.nodes.len()];
        let mut receivers = vec![NONE; self.network.len()];
        for node in &self.nodes {
            let (first, last) = self.network.ends(RouteId(node.route as usize))?;
            let sampled = first.0 < sampled || last.0 < sampled;
            let shared = mem::replace(&mut firsts[first.0], true)
                || receivers[last.0] != NONE
                || mem::replace(&mut reached[node.peer as usize], true);
            if sampled || shared || !node.agent.is_alone() {
                return None;
            }
            receivers[last.0] = node.peer;
        }
        let lead = self.network.get_ahead(MIN_LEAD)?;
        let mut timers = BatchWakeup::new(self.nodes.len(), lead / 4);
        for (id, node) in self.nodes.iter().enumerate() {
            timers.plan(id, node.deadline());
        }
        Some(Lookahead {
            on: true,
            lead,
            receivers,
            timers,
            ..Lookahead::default()
        })
    }

    /// [`run`](World::run) with lookahead. Returns none if the plain order has to continue.
    pub(super) fn run_ahead<O: Observer + ?Sized>(
        &mut self,
        until: Time,
        observer: &mut O,
    ) -> Result<Option<Time>, WorldError> {
        // The network has processed all events up to the limit.
        let until = until.max(self.now);
        let mut reached = self.now;
        self.ahead.latest = reached;
        self.network.tell_until(until);
        loop {
            let limit = later(reached, self.ahead.lead - 1).min(until);
            self.ahead.limit = limit;
            while let Some(link) = self.network.link_with_news() {
                self.deliver_ahead(link, observer)?;
            }
            if !self.network.is_ahead() {
                // Some nodes are ahead of `reached` and have no event before it.
                self.now = reached;
                self.end_lookahead();
                return Ok(None);
            }
            let sample = self.sampler.as_ref().map_or(Time::FAR, |s| s.next);
            let mut rest = self.is_at_rest();
            if !rest {
                self.visit_by(limit, limit == until, observer)?;
                rest = self.is_at_rest();
            }
            if rest && sample >= self.ahead.latest {
                // The run is over, or only samples remain.
                self.now = self.ahead.latest;
                self.rebuild_timer_queue();
                return Ok(None);
            }
            if reached >= until && sample > until {
                self.now = until;
                return Ok(Some(until));
            }
            reached = if rest {
                sample
            } else {
                self.idle_until(limit, until).min(sample).max(reached)
            };
            self.network.advance(reached);
            if sample <= reached {
                self.now = sample;
                self.ahead.latest = self.ahead.latest.max(sample);
                self.sample(observer);
            }
        }
    }

    /// Time until which neither a timer nor a delivery is due.
    #[inline]
    fn idle_until(&mut self, limit: Time, until: Time) -> Time {
        let timers = &mut self.ahead.timers;
        if limit == until {
            return until;
        }
        let visited = timers.start().as_nanos().saturating_sub(1);
        let departure = self.network.next_departure().unwrap_or(Time::FAR);
        let sample = self.sampler.as_ref().map_or(Time::FAR, |s| s.next);
        let idle = timers.skip_to(departure.min(sample).min(until));
        Time::from_nanos(visited).max(idle).min(until)
    }

    /// Runs the timers due by `limit`, or in slots that begin by `limit` if it is the `last` one.
    #[inline]
    fn visit_by<O: Observer + ?Sized>(
        &mut self,
        limit: Time,
        last: bool,
        observer: &mut O,
    ) -> Result<(), WorldError> {
        let round = self.ahead.timers.round_of(later(limit, 1));
        let end = round + u64::from(last);
        while self.network.is_ahead()
            && let Some(id) = self.ahead.timers.take(end)
        {
            self.visit(id, observer)?;
        }
        if last {
            self.ahead.timers.reopen(round);
        }
        Ok(())
    }

    /// Whether the network is empty, and all nodes are done or no timer is set.
    fn is_at_rest(&mut self) -> bool {
        self.network.inside() == 0
            && (self.busy == 0 || self.nodes.iter().all(|node| node.deadline() == Time::FAR))
    }

    /// Prefetches for the deliveries after the next ones, in stages as
    /// [`look_ahead`](World::look_ahead) does.
    #[inline]
    fn look_at_news<O: Observer + ?Sized>(&mut self, observer: &mut O) {
        let receiver = |link: LinkId| self.ahead.receivers[link.0] as usize;
        if let Some(id) = self.network.news_behind(9, Step::Link).map(receiver) {
            prefetch_index(&self.nodes, id);
            observer.prefetch_early(NodeId(id));
        }
        if let Some(id) = self.network.news_behind(6, Step::Place).map(receiver) {
            let node = &self.nodes[id];
            node.agent.soon();
            self.network.soon(RouteId(node.route as usize), Step::Link);
        }
        if let Some(id) = self.network.news_behind(3, Step::Place).map(receiver) {
            let node = &self.nodes[id];
            self.network.soon(RouteId(node.route as usize), Step::Place);
            observer.prefetch(NodeId(id));
        }
    }

    /// Delivers the packets that leave a link to its node, and runs the node's timers in between.
    /// No other input can arrive before them, whatever the limit is.
    fn deliver_ahead<O: Observer + ?Sized>(
        &mut self,
        link: LinkId,
        observer: &mut O,
    ) -> Result<(), WorldError> {
        let id = self.ahead.receivers[link.0] as usize;
        let mut outlook = self.nodes[id].outlook();
        while let Some(exit) = self.network.news_of(link) {
            if self.nodes.len() > CACHED {
                self.look_at_news(observer);
            }
            let at = exit.at();
            while outlook.due < at {
                outlook = self.wake_at(id, outlook.due, observer)?;
            }
            self.ahead.latest = self.ahead.latest.max(at);
            if let Some((_, next)) = self.hand_over(exit, observer) {
                self.send::<true, O>(id, at, observer)?;
                self.nodes[id].start = at;
                let due = next.due.max(at);
                outlook = Outlook { due, ..next };
                self.count(id, next.done, at);
            }
        }
        self.plan(id, outlook);
        Ok(())
    }

    /// Runs the timer of a node until its next timer is later. Returns that timer.
    ///
    /// `at` becomes the node's present, so that a timer in the past counts as one at `at`.
    #[inline]
    fn wake_at<O: Observer + ?Sized>(
        &mut self,
        id: usize,
        at: Time,
        observer: &mut O,
    ) -> Result<Outlook, WorldError> {
        self.ahead.latest = self.ahead.latest.max(at);
        for _ in 0..MAX_WAKES {
            let outlook = self.ring(id, at, observer);
            self.send::<true, O>(id, at, observer)?;
            self.count(id, outlook.done, at);
            if outlook.due > at {
                self.nodes[id].start = at;
                return Ok(outlook);
            }
        }
        Err(self.stuck(id, at))
    }

    /// Runs all timers of a node up to the limit.
    fn visit<O: Observer + ?Sized>(
        &mut self,
        id: usize,
        observer: &mut O,
    ) -> Result<(), WorldError> {
        let mut outlook = self.nodes[id].outlook();
        while outlook.due <= self.ahead.limit {
            outlook = self.wake_at(id, outlook.due, observer)?;
        }
        self.plan(id, outlook);
        Ok(())
    }

    /// Updates the timer of a node and its done state.
    #[inline]
    fn plan(&mut self, id: usize, outlook: Outlook) {
        self.ahead.timers.plan(id, outlook.due);
        self.count(id, outlook.done, self.now);
    }

    /// Returns to the plain order for the rest of the run.
    #[cold]
    pub(super) fn end_lookahead(&mut self) {
        self.ahead = Lookahead::default();
        self.rebuild_timer_queue();
    }

    #[cold]
    fn rebuild_timer_queue(&mut self) {
        for id in 0..self.nodes.len() {
            self.timers.set(id, self.nodes[id].deadline());
            self.nodes[id].late = false;
        }
    }
}

fn later(at: Time, nanos: u64) -> Time {
    Time::from_nanos(at.as_nanos().saturating_add(nanos))
}

/// The state of so many nodes fits into the cache, without prefetching.
const CACHED: usize = 500;

/// No link or no node.
const NONE: u32 = u32::MAX;

/// Minimum useful lookahead in ns. Hardly any packet falls into a shorter one.
const MIN_LEAD: u64 = 1_000_000;
