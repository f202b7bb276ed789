//! Network of links with fixed routes.

use std::collections::{BTreeSet, VecDeque};

use super::fast_link::{Entry, FastLink};
use super::link_impl::LinkImpl;
use crate::link::Packet;
use crate::link::config::{LinkConfig, LinkError};
use crate::link::packet_log::LinkLogEntry;
use crate::link::packet_pool::{DELIVERED, PacketHandle, PacketPool};
use crate::link::rate::Capacity;
use crate::link::standalone::{LinkStats, Queued};
use crate::random::Seed;
use crate::timer_queue::TimerQueue;
use crate::units::{Bytes, Time};
use batch::{BATCHED, Batches};
use delivery_queue::DeliveryQueue;
use lookahead::Lookahead;
pub use lookahead::Step;
use lookahead_inbox::LookaheadInboxes;

mod batch;
mod calendar_queue;
mod delivery_queue;
mod exit_links;
mod lookahead;
mod lookahead_inbox;
mod relay;

/// Configuration of a [`Network`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetworkConfig {
    /// Links; a [`LinkId`] is an index into them. Names are unique.
    pub links: Vec<NamedLink>,
    /// Routes; a [`RouteId`] is an index into them. An empty route delivers immediately.
    pub routes: Vec<Vec<LinkId>>,
}

/// A link and its name, which selects its random streams.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedLink {
    /// Name of the link.
    pub name: String,
    /// Parameters of the link.
    pub config: LinkConfig,
}

/// Implementation of the links of a [`Network`]. Results do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkForm {
    /// Fast links where the configuration permits.
    #[default]
    Fast,
    /// General links only, which are the specification.
    Plain,
}

/// Index of a link in a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub usize);

/// Index of a route in a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(pub usize);

/// A packet delivered at the end of its route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// Logical delivery time.
    pub at: Time,
    /// Route of the packet.
    pub route: RouteId,
    /// The packet.
    pub packet: P,
}

/// A packet at the end of its route, still stored in the network. [`Network::packet_mut`] reads it;
/// [`Network::take`] or [`Network::discard`] must remove it.
#[derive(Debug)]
#[must_use = "the packet stays in the network until it is taken"]
pub struct Exit {
    at: Time,
    /// Index of the end of its route in the hop list.
    end: u32,
    slot: u32,
}

impl Exit {
    /// Logical arrival time at the end of the route.
    #[inline]
    pub fn at(&self) -> Time {
        self.at
    }
}

/// Links and routes.
///
/// Events are processed in order of logical time, also where routes merge. The link with the
/// earliest departure goes first; ties are broken by the lower link number. Events inside the
/// network precede a push at the same time.
#[derive(Debug)]
pub struct Network<P> {
    links: Vec<LinkImpl>,
    /// Packets inside.
    store: PacketPool<P>,
    /// Concatenated routes: a link per entry, or [`END`] with the number of the route.
    hops: Vec<u32>,
    /// Start of each route in `hops`.
    routes: Vec<u32>,
    /// Next departure of each link.
    timers: TimerQueue,
    /// Packets at the end of their routes, not yet popped.
    arrived: VecDeque<Exit>,
    /// The feeder of each link, or [`NONE`]. A feeder forwards packets to the link at enqueue.
    feeders: Vec<u32>,
    /// Packets that are moved in batches.
    batches: Batches,
    /// Packets on their last links.
    deliveries: DeliveryQueue,
    /// Packets on their last links in lookahead mode.
    inboxes: LookaheadInboxes,
    /// Processed time, and the highest link processed at that time.
    reached: (Time, usize),
    ahead: Lookahead,
}

impl<P: Packet + Send + 'static> Network<P> {
    /// Builds the links and checks the routes.
    ///
    /// # Errors
    ///
    /// A link is invalid, a link name is not unique, or a route names an unknown link.
    pub fn new(config: &NetworkConfig, seed: Seed) -> Result<Self, NetworkError> {
        Self::with_links(config, seed, LinkForm::Fast)
    }

    /// As [`new`](Self::new), with links in the given form.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_links(
        config: &NetworkConfig,
        seed: Seed,
        form: LinkForm,
    ) -> Result<Self, NetworkError> {
        let mut links = Vec::with_capacity(config.links.len());
        let mut names = BTreeSet::new();
        for NamedLink { name, config: link } in &config.links {
            if !names.insert(name) {
                return Err(NetworkError::NameTaken { name: name.clone() });
            }
            let link = LinkImpl::new(link, seed, name, form).map_err(|fault| LinkError {
                link: name.clone(),
                fault,
            });
            links.push(link.map_err(NetworkError::Link)?);
        }
        let (mut hops, mut routes) = (Vec::new(), Vec::with_capacity(config.routes.len()));
        for (route, path) in config.routes.iter().enumerate() {
            if let Some(link) = path.iter().find(|link| link.0 >= links.len()) {
                return Err(NetworkError::UnknownLink {
                    route: RouteId(route),
                    link: *link,
                });
            }
            routes.push(hops.len() as u32);
            hops.extend(path.iter().map(|link| link.0 as u32));
            hops.push(END | route as u32);
        }
        let feeders = relay::mark(&links, &mut hops, &routes);
        let batches = Batches::new(&links, &mut hops, &routes);
        for link in (0..links.len()).filter(|link| batches.has(*link)) {
            if let Some(fast) = links[link].fast_mut().filter(|fast| fast.is_instant()) {
                // The link would become buffered with the first burst.
                fast.make_buffered([].into_iter());
            }
        }
        // With few links, a ring per link costs less.
        let many = links.len() > CACHED;
        let deliveries = many.then(|| exit_links::mark(&links, &mut hops));
        Ok(Self {
            timers: TimerQueue::new(links.len()),
            links,
            feeders,
            batches,
            deliveries: deliveries.unwrap_or_default(),
            inboxes: LookaheadInboxes::default(),
            reached: (Time::ZERO, 0),
            store: PacketPool::new(),
            hops,
            routes,
            arrived: VecDeque::new(),
            ahead: Lookahead::default(),
        })
    }

    /// A packet enters `route` at `at`. Times are non-decreasing. Panics if the route does not
    /// exist.
    #[inline]
    pub fn push(&mut self, at: Time, route: RouteId, packet: P) {
        self.push_new(at, route, packet.size(), || packet);
    }

    /// [`push`](Self::push) of a packet of `size` that `make` constructs in place.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "constructs the packet in place")]
    pub fn push_new(&mut self, at: Time, route: RouteId, size: Bytes, make: impl FnOnce() -> P) {
        self.catch_up(at);
        let (handle, hop) = self.store_packet(route, size, make);
        if hop & (END | BATCHED) == BATCHED {
            self.gather(at, handle, hop & !BATCHED);
        } else {
            self.set_out(at, handle);
        }
    }

    /// Stores a packet that enters `route`, and returns its handle and first hop.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn store_packet(
        &mut self,
        route: RouteId,
        size: Bytes,
        make: impl FnOnce() -> P,
    ) -> (PacketHandle, u32) {
        let hop = self.routes[route.0];
        let slot = self.store.put(make);
        (PacketHandle { size, slot, hop }, self.hops[hop as usize])
    }

    #[inline(never)]
    fn set_out(&mut self, at: Time, handle: PacketHandle) {
        if let Some(exit) = self.forward(at, handle) {
            self.arrived.push_back(exit);
        }
    }

    /// Next packet that has reached the end of its route by `now`.
    #[inline]
    pub fn pop(&mut self, now: Time) -> Option<Delivery<P>> {
        let exit = self.pop_exit(now)?;
        Some(Delivery {
            at: exit.at,
            route: RouteId((self.hops[exit.end as usize] & !END) as usize),
            packet: self.take(exit)?,
        })
    }

    /// [`pop`](Self::pop) without moving the packet.
    #[inline]
    pub fn pop_exit(&mut self, now: Time) -> Option<Exit> {
        if let Some(waiting) = self.arrived.front() {
            return if waiting.at <= now {
                self.arrived.pop_front()
            } else {
                None
            };
        }
        self.run(now)
    }

    /// The packet at the end of its route.
    #[inline]
    pub fn packet_mut(&mut self, exit: &Exit) -> Option<&mut P> {
        self.store.get_mut(exit.slot)
    }

    /// Removes and drops the packet.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "an exit is discarded once")]
    pub fn discard(&mut self, exit: Exit) {
        self.store.discard(exit.slot);
    }

    /// Removes and returns the packet.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "an exit is taken once")]
    pub fn take(&mut self, exit: Exit) -> Option<P> {
        self.store.take(exit.slot)
    }

    /// Time of the next [`pop`](Self::pop). A lower bound of the next delivery: it may be the time
    /// of an internal hop or of a loss.
    #[inline]
    pub fn next_departure(&self) -> Option<Time> {
        let arrived = self.arrived.front().map(|delivery| delivery.at);
        arrived.or_else(|| {
            let at = self.timers.first().0.min(self.deliveries.due());
            let at = at.min(self.batches.due());
            (at != Time::FAR).then_some(at)
        })
    }

    /// Advances all links and counters to `now`. Packets delivered meanwhile are kept for
    /// [`pop`](Self::pop).
    pub fn advance(&mut self, now: Time) {
        if self.inboxes.are_on() && now > self.inboxes.horizon() {
            self.end_ahead();
        }
        self.catch_up(now);
        self.move_on((now, usize::MAX));
    }

    /// As [`advance`](Self::advance), except for batched packets that cannot affect a delivery yet.
    #[inline]
    fn catch_up(&mut self, now: Time) {
        while let Some(exit) = self.run(now) {
            self.arrived.push_back(exit);
        }
    }

    /// Number of links.
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether the network has no links.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Counters of a link as of `now`. Panics if the link does not exist, as all methods below.
    pub fn stats(&mut self, link: LinkId, now: Time) -> LinkStats {
        self.settled(link, now).stats()
    }

    /// Backlog of a link as of `now`.
    pub fn queued(&mut self, link: LinkId, now: Time) -> Queued {
        self.settled(link, now).queued()
    }

    /// Backlog and counters of a link, at half the cost of two calls.
    pub fn state(&mut self, link: LinkId, now: Time) -> (Queued, LinkStats) {
        let link = self.settled(link, now);
        (link.queued(), link.stats())
    }

    /// Capacity of the transmitter of a link.
    pub fn capacity(&self, link: LinkId) -> &Capacity {
        self.links[link.0].capacity()
    }

    /// Enables the packet log of a link, see [`Link::observe`](crate::link::Link::observe).
    pub fn observe(&mut self, link: LinkId, limit: usize) {
        self.end_deliveries_for(link.0);
        self.hold(link);
        self.links[link.0].observe(&self.store, limit);
        self.plan(link.0);
    }

    /// Enables the drop log of a link, see [`Link::observe_drops`](crate::link::Link::observe_drops).
    pub fn observe_drops(&mut self, link: LinkId, limit: usize) {
        self.links[link.0].observe_drops(limit);
    }

    /// Oldest unread log entry of a link, see [`Link::pop_note`](crate::link::Link::pop_note).
    pub fn pop_note(&mut self, link: LinkId) -> Option<LinkLogEntry> {
        self.move_on(self.reached);
        self.links[link.0].pop_note()
    }

    /// Number of log entries of a link lost because the log was full.
    pub fn missed_notes(&self, link: LinkId) -> u64 {
        self.links[link.0].missed_notes()
    }

    /// Number of packets inside, undelivered ones at the end of their routes included.
    pub fn inside(&mut self) -> usize {
        self.move_on(self.reached);
        self.store.len()
    }

    fn settled(&mut self, link: LinkId, now: Time) -> &LinkImpl {
        self.advance(now);
        self.buffer_all_for(link.0);
        self.end_deliveries_for(link.0);
        self.part_from_feeder(link.0);
        self.links[link.0].advance(&mut self.store, now);
        self.plan(link.0);
        &self.links[link.0]
    }

    /// Processes events up to `now`, or until a packet reaches the end of its route. Mostly there
    /// is no event.
    #[inline]
    fn run(&mut self, now: Time) -> Option<Exit> {
        let at = self.timers.first().0.min(self.deliveries.due());
        if at.min(self.batches.due()) > now {
            self.reached = (now, usize::MAX);
            return None;
        }
        self.run_on(now)
    }

    #[inline(never)]
    fn run_on(&mut self, now: Time) -> Option<Exit> {
        loop {
            let (mut at, mut link) = self.timers.first();
            let mut delivered_soon = false;
            if self.deliveries.due() <= at
                && let Some(first) = self.deliveries.first()
            {
                delivered_soon = first < (at, link);
                (at, link) = first.min((at, link));
            }
            let due = self.batches.due();
            if due <= at.min(now) && due != Time::FAR {
                // Stop here: after the first delivery, the caller may push packets behind it.
                let until = if at == due { link } else { usize::MAX };
                self.move_on((due, until));
                continue;
            }
            if at > now || at == Time::FAR {
                self.reached = (now, usize::MAX);
                return None;
            }
            if delivered_soon {
                return self.leave();
            }
            if let Some(exit) = self.step(at, link) {
                return Some(exit);
            }
        }
    }

    #[inline]
    fn step(&mut self, at: Time, link: usize) -> Option<Exit> {
        if self.links.len() > CACHED && self.timers.begun() {
            self.look_on();
        }
        self.reach(at, link);
        let passage = &mut self.links[link];
        let departed = passage.pop(&mut self.store, at);
        let next = passage.next_departure();
        self.timers.set_first(link, next.unwrap_or(Time::FAR));
        let (at, handle) = departed?;
        let hop = handle.hop + 1;
        self.forward(at, PacketHandle { hop, ..handle })
    }

    /// Records that `link` is processed at `at`.
    #[inline]
    fn reach(&mut self, at: Time, link: usize) {
        self.reached = match self.reached {
            (then, highest) if then == at => (at, highest.max(link)),
            _ => (at, link),
        };
    }

    /// Moves a packet to the next link of its route, or out of the network.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "keeps the handle in registers and avoids store-forwarding stalls"
    )]
    fn forward(&mut self, at: Time, handle: PacketHandle) -> Option<Exit> {
        let hop = self.hops[handle.hop as usize];
        if hop & END != 0 {
            let (end, slot) = (handle.hop, handle.slot);
            return (slot != DELIVERED).then_some(Exit { at, end, slot });
        }
        if hop & FEEDER != 0 {
            self.relay(at, handle, (hop & !FEEDER) as usize);
        } else if !self.enter(at, handle, hop) {
            let link = (hop & !LAST) as usize;
            self.links[link].push(&mut self.store, at, handle);
            self.plan(link);
        }
        None
    }

    /// Arrival of a packet at the link of `hop`. Returns whether a fast link handled it; a last
    /// link in lookahead mode also needs room in its queue.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn enter(&mut self, at: Time, handle: PacketHandle, hop: u32) -> bool {
        let link = (hop & !LAST) as usize;
        if hop & LAST != 0 {
            if self.inboxes.are_on() {
                self.inboxes.put(at, handle, link);
                return true;
            }
            if self.enqueue_delivery(at, handle, link) {
                return true;
            }
            // The packet may arrive ahead of time, when the backlog at its arrival is unknown.
            if !self.links[link].fast().is_some_and(FastLink::has_room) {
                return false;
            }
        }
        let LinkImpl::FastLink(fast) = &mut self.links[link] else {
            return false;
        };
        match fast.push(&mut self.store, at, handle) {
            Entry::Taken(out) => {
                if fast.len() == 1 {
                    self.timers.set(link, out);
                }
                true
            }
            Entry::Refused => true,
            Entry::TooLate => false,
        }
    }

    #[inline]
    fn plan(&mut self, link: usize) {
        if self.batches.has(link) {
            return;
        }
        let next = self.links[link].next_departure();
        self.timers.set(link, next.unwrap_or(Time::FAR));
    }
}

/// Invalid configuration of a network.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NetworkError {
    /// A link is invalid.
    #[error("{0}")]
    Link(LinkError),
    /// Two links have the same name, and thus the same random streams.
    #[error("two links are called `{name}`: give each a name of its own")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// A route contains an unknown link.
    #[error("route {} leads across link {}, which does not exist", .route.0, .link.0)]
    UnknownLink {
        /// The route.
        route: RouteId,
        /// The unknown link.
        link: LinkId,
    },
}

/// Number of links up to which they are assumed to fit in the cache.
const CACHED: usize = 1_000;

/// Flag in the hop list: end of a route.
const END: u32 = 1 << 31;

/// Flag in the hop list: a feeder.
const FEEDER: u32 = 1 << 30;

/// Flag in the hop list: a last link whose packets are in the delivery queue.
const LAST: u32 = 1 << 28;

/// No link.
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests;
