//! Links that form a network, with routes across them.

use core::fmt;
use std::collections::{BTreeSet, VecDeque};

use super::Packet;
use super::config::{LinkConfig, LinkError};
use super::fast_link::{Entry, FastLink};
use super::link_impl::LinkImpl;
use super::packet_log::LinkLogEntry;
use super::packet_pool::{PacketHandle, PacketPool, SHELL};
use super::rate::Capacity;
use super::standalone::{LinkStats, Queued};
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

/// What a [`Network`] is made from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetworkConfig {
    /// The links; a [`LinkId`] is an index into them. No two have the same name.
    pub links: Vec<NamedLink>,
    /// The routes; a [`RouteId`] is an index into them. An empty route delivers at once.
    pub routes: Vec<Vec<LinkId>>,
}

/// A link and the name that its random streams bear.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedLink {
    /// Its name.
    pub name: String,
    /// Its parameters.
    pub config: LinkConfig,
}

/// A link of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub usize);

/// A route of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(pub usize);

/// A packet that reached the end of its route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// When, logically.
    pub at: Time,
    /// Along which route.
    pub route: RouteId,
    /// What.
    pub packet: P,
}

/// A packet at the end of its route that is still where the network keeps it: to be looked at with
/// [`Network::packet_mut`] and taken out with [`Network::take`] or [`Network::discard`], or it stays
/// inside.
#[derive(Debug)]
#[must_use = "the packet stays in the network until it is taken"]
pub struct Exit {
    at: Time,
    /// The end of its route in the list of hops.
    end: u32,
    slot: u32,
}

impl Exit {
    /// When it got there, logically.
    #[inline]
    pub fn at(&self) -> Time {
        self.at
    }
}

/// Links and routes.
///
/// Everything happens in the order of logical time, also where routes merge: the link with the
/// earliest next departure always goes first, and at equal times the one with the lower number.
/// What happens inside at a moment goes before what is pushed at that moment.
#[derive(Debug)]
pub struct Network<P> {
    links: Vec<LinkImpl>,
    /// What is inside of them.
    store: PacketPool<P>,
    /// All routes one after the other: a link, or [`END`] with the number of the route.
    hops: Vec<u32>,
    /// Where each route begins in `hops`.
    routes: Vec<u32>,
    /// The next departure of each link.
    agenda: TimerQueue,
    /// Packets at the end of their routes that nobody has popped.
    arrived: VecDeque<Exit>,
    /// The link that packets of each link are handed on by as soon as they enter it, or [`NONE`].
    feeders: Vec<u32>,
    /// What is moved on many at once.
    batches: Batches,
    /// What is on its last link.
    shelf: DeliveryQueue,
    /// The same, where it is told of ahead of time.
    inboxes: LookaheadInboxes,
    /// The moment that was reached, and the highest link that had its turn at that moment.
    reached: (Time, usize),
    ahead: Lookahead,
}

impl<P: Packet + Send + 'static> Network<P> {
    /// Builds the links and checks the routes.
    ///
    /// # Errors
    ///
    /// A link has a fault or a name that is taken, or a route leads nowhere.
    pub fn new(config: &NetworkConfig, seed: Seed) -> Result<Self, NetworkError> {
        let mut links = Vec::with_capacity(config.links.len());
        let mut names = BTreeSet::new();
        for NamedLink { name, config: link } in &config.links {
            if !names.insert(name) {
                return Err(NetworkError::NameTaken { name: name.clone() });
            }
            let link = LinkImpl::new(link, seed, name).map_err(|fault| LinkError {
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
            if let Some(lane) = links[link].lane_mut().filter(|lane| lane.is_instant()) {
                // It could not float beyond the first burst.
                lane.ground([].into_iter());
            }
        }
        // Where links are few, a ring each costs less.
        let many = links.len() > CACHED;
        let shelf = many.then(|| exit_links::mark(&links, &mut hops));
        Ok(Self {
            agenda: TimerQueue::new(links.len()),
            links,
            feeders,
            batches,
            shelf: shelf.unwrap_or_default(),
            inboxes: LookaheadInboxes::default(),
            reached: (Time::ZERO, 0),
            store: PacketPool::new(),
            hops,
            routes,
            arrived: VecDeque::new(),
            ahead: Lookahead::default(),
        })
    }

    /// A packet enters `route` at `at`. Times never go back. Panics if there is no such route.
    #[inline]
    pub fn push(&mut self, at: Time, route: RouteId, packet: P) {
        self.push_new(at, route, packet.size(), || packet);
    }

    /// The same of a packet of `size` that is made where the network keeps it.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "so that a packet is written where it stays"
    )]
    pub fn push_new(&mut self, at: Time, route: RouteId, size: Bytes, make: impl FnOnce() -> P) {
        self.catch_up(at);
        let (parcel, hop) = self.lodge(route, size, make);
        if hop & (END | BATCHED) == BATCHED {
            self.gather(at, parcel, hop & !BATCHED);
        } else {
            self.set_out(at, parcel);
        }
    }

    /// Keeps a packet that is about to enter `route`; its first hop.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn lodge(
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
    fn set_out(&mut self, at: Time, parcel: PacketHandle) {
        if let Some(exit) = self.forward(at, parcel) {
            self.arrived.push_back(exit);
        }
    }

    /// The next packet to have reached the end of its route by `now`.
    #[inline]
    pub fn pop(&mut self, now: Time) -> Option<Delivery<P>> {
        let exit = self.pop_exit(now)?;
        Some(Delivery {
            at: exit.at,
            route: RouteId((self.hops[exit.end as usize] & !END) as usize),
            packet: self.take(exit)?,
        })
    }

    /// The same, without moving the packet.
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

    /// Forgets it.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "each is forgotten once")]
    pub fn discard(&mut self, exit: Exit) {
        self.store.discard(exit.slot);
    }

    /// Takes it out.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "each is taken once")]
    pub fn take(&mut self, exit: Exit) -> Option<P> {
        self.store.take(exit.slot)
    }

    /// When to call [`pop`](Self::pop) next: not later than the next delivery, and possibly
    /// earlier, where a packet passes a link within the network or gets lost.
    #[inline]
    pub fn next_departure(&self) -> Option<Time> {
        let arrived = self.arrived.front().map(|delivery| delivery.at);
        arrived.or_else(|| {
            let at = self.agenda.first().0.min(self.shelf.due());
            let at = at.min(self.batches.due());
            (at != Time::FAR).then_some(at)
        })
    }

    /// Brings all links and counters to `now`. What arrives meanwhile waits for
    /// [`pop`](Self::pop).
    pub fn advance(&mut self, now: Time) {
        if self.inboxes.are_on() && now > self.inboxes.horizon() {
            self.end_ahead();
        }
        self.catch_up(now);
        self.move_on((now, usize::MAX));
    }

    /// The same, but for packets of which nothing comes before the next are moved on.
    #[inline]
    fn catch_up(&mut self, now: Time) {
        while let Some(exit) = self.run(now) {
            self.arrived.push_back(exit);
        }
    }

    /// How many links there are.
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// What a link counted up to `now`. Panics if there is no such link, like all below.
    pub fn stats(&mut self, link: LinkId, now: Time) -> LinkStats {
        self.settled(link, now).stats()
    }

    /// What waits at a link at `now`.
    pub fn queued(&mut self, link: LinkId, now: Time) -> Queued {
        self.settled(link, now).queued()
    }

    /// Both at once, for half of what they cost.
    pub fn state(&mut self, link: LinkId, now: Time) -> (Queued, LinkStats) {
        let link = self.settled(link, now);
        (link.queued(), link.stats())
    }

    /// What the transmitter of a link can carry.
    pub fn capacity(&self, link: LinkId) -> &Capacity {
        self.links[link.0].capacity()
    }

    /// Has a link keep at most `limit` notes, see [`Link::observe`](super::Link::observe).
    pub fn observe(&mut self, link: LinkId, limit: usize) {
        self.clear_shelf_for(link.0);
        self.hold(link);
        self.links[link.0].observe(&self.store, limit);
        self.plan(link.0);
    }

    /// Has a link keep at most `limit` notes of drops, see [`Link::observe_drops`](super::Link::observe_drops).
    pub fn observe_drops(&mut self, link: LinkId, limit: usize) {
        self.links[link.0].observe_drops(limit);
    }

    /// The oldest note of a link, see [`Link::pop_note`](super::Link::pop_note).
    pub fn pop_note(&mut self, link: LinkId) -> Option<LinkLogEntry> {
        self.move_on(self.reached);
        self.links[link.0].pop_note()
    }

    /// How many notes of a link found no room.
    pub fn missed_notes(&self, link: LinkId) -> u64 {
        self.links[link.0].missed_notes()
    }

    /// How many packets are inside, with those that wait for [`pop`](Self::pop).
    pub fn inside(&mut self) -> usize {
        self.move_on(self.reached);
        self.store.len()
    }

    fn settled(&mut self, link: LinkId, now: Time) -> &LinkImpl {
        self.advance(now);
        self.land_all_for(link.0);
        self.clear_shelf_for(link.0);
        self.part_from_feeder(link.0);
        self.links[link.0].advance(&mut self.store, now);
        self.plan(link.0);
        &self.links[link.0]
    }

    /// Lets everything happen up to `now`, or until a packet is at the end of its route. Often there
    /// is nothing to happen.
    #[inline]
    fn run(&mut self, now: Time) -> Option<Exit> {
        let at = self.agenda.first().0.min(self.shelf.due());
        if at.min(self.batches.due()) > now {
            self.reached = (now, usize::MAX);
            return None;
        }
        self.run_on(now)
    }

    #[inline(never)]
    fn run_on(&mut self, now: Time) -> Option<Exit> {
        loop {
            let (mut at, mut link) = self.agenda.first();
            let mut shelved = false;
            if self.shelf.due() <= at
                && let Some(first) = self.shelf.first()
            {
                shelved = first < (at, link);
                (at, link) = first.min((at, link));
            }
            let due = self.batches.due();
            if due <= at.min(now) && due != Time::FAR {
                // No further: once the first of them is delivered, others may enter behind it.
                let until = if at == due { link } else { usize::MAX };
                self.move_on((due, until));
                continue;
            }
            if at > now || at == Time::FAR {
                self.reached = (now, usize::MAX);
                return None;
            }
            if shelved {
                return self.leave();
            }
            if let Some(exit) = self.step(at, link) {
                return Some(exit);
            }
        }
    }

    #[inline]
    fn step(&mut self, at: Time, link: usize) -> Option<Exit> {
        if self.links.len() > CACHED && self.agenda.begun() {
            self.look_on();
        }
        self.reach(at, link);
        let passage = &mut self.links[link];
        let departed = passage.pop(&mut self.store, at);
        let next = passage.next_departure();
        self.agenda.set_first(link, next.unwrap_or(Time::FAR));
        let (at, parcel) = departed?;
        let hop = parcel.hop + 1;
        self.forward(at, PacketHandle { hop, ..parcel })
    }

    /// It is the turn of `link`.
    #[inline]
    fn reach(&mut self, at: Time, link: usize) {
        self.reached = match self.reached {
            (then, highest) if then == at => (at, highest.max(link)),
            _ => (at, link),
        };
    }

    /// Onto the next link of its route, or out.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "a parcel stays in registers, and none is read back in other pieces than it was written in"
    )]
    fn forward(&mut self, at: Time, parcel: PacketHandle) -> Option<Exit> {
        let hop = self.hops[parcel.hop as usize];
        if hop & END != 0 {
            let (end, slot) = (parcel.hop, parcel.slot);
            return (slot != SHELL).then_some(Exit { at, end, slot });
        }
        if hop & FEEDER != 0 {
            self.relay(at, parcel, (hop & !FEEDER) as usize);
        } else if !self.enter(at, parcel, hop) {
            let link = (hop & !LAST) as usize;
            self.links[link].push(&mut self.store, at, parcel);
            self.plan(link);
        }
        None
    }

    /// A packet enters the link of `hop`, if that is a lane and takes or refuses it, and as a last link has
    /// room; whether it does.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn enter(&mut self, at: Time, parcel: PacketHandle, hop: u32) -> bool {
        let link = (hop & !LAST) as usize;
        if hop & LAST != 0 {
            if self.inboxes.are_on() {
                self.inboxes.put(at, parcel, link);
                return true;
            }
            if self.shelve(at, parcel, link) {
                return true;
            }
            // It may come ahead of its time, at which nobody knows yet what waits.
            if !self.links[link].lane().is_some_and(FastLink::has_room) {
                return false;
            }
        }
        let LinkImpl::FastLink(lane) = &mut self.links[link] else {
            return false;
        };
        match lane.push(&mut self.store, at, parcel) {
            Entry::Taken(out) => {
                if lane.len() == 1 {
                    self.agenda.set(link, out);
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
        self.agenda.set(link, next.unwrap_or(Time::FAR));
    }
}

/// Why a network cannot be built.
#[derive(Clone, Debug, PartialEq)]
pub enum NetworkError {
    /// A link has a fault.
    Link(LinkError),
    /// Two links have the same name, and would have the same luck.
    NameTaken {
        /// The name.
        name: String,
    },
    /// A route leads across a link that does not exist.
    UnknownLink {
        /// Which route.
        route: RouteId,
        /// Which link.
        link: LinkId,
    },
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(e) => e.fmt(f),
            Self::NameTaken { name } => {
                write!(
                    f,
                    "two links are called `{name}`: give each a name of its own"
                )
            }
            Self::UnknownLink { route, link } => write!(
                f,
                "route {} leads across link {}, which does not exist",
                route.0, link.0
            ),
        }
    }
}

impl core::error::Error for NetworkError {}

/// So many links are in the cache anyhow.
const CACHED: usize = 1_000;

/// Marks the end of a route in the list of hops.
const END: u32 = 1 << 31;

/// Marks a link there whose packets are handed on as soon as they enter it.
const FEEDER: u32 = 1 << 30;

/// Marks a link there at the end of a route whose packets are on the shelf.
const LAST: u32 = 1 << 28;

/// No link.
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests;
