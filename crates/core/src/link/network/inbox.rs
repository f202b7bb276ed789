//! Packets on their last links that are told of before they are out.
//!
//! Where every route begins with a link whose packets are moved on in batches, and ends with one whose
//! packets can only come out of it, whoever is at the ends of the routes need not act in the order of
//! time: nothing that a packet does at the far end comes back to a link that others use before the
//! *lead* is over, which is the least that the last links of a route take. So a caller may hand in
//! packets ahead of time, and is told of packets as soon as it is known when they will be out.
//!
//! This is the lookahead of conservative parallel simulation (K. M. Chandy and J. Misra, "Distributed
//! simulation: a case study in design and verification of distributed programs", IEEE Transactions on
//! Software Engineering SE-5(5), 1979), in one thread: what is saved is turns in the order of time.

use core::mem;

use super::super::Packet;
use super::super::lane::{Entry, Lane};
use super::super::passage::Passage;
use super::super::store::Parcel;
use super::shelf::{Leaving, Shelf};
use super::{BATCHED, END, Exit, FEEDER, LAST, LinkId, NONE, Network, RouteId, last};
use crate::units::{Bytes, Time, nanos};

/// What is told of ahead of time.
#[derive(Debug, Default)]
pub(super) struct Inboxes {
    /// Whether anything is.
    on: bool,
    /// The last links.
    links: Vec<bool>,
    /// What is told of, and how much of it was taken.
    news: Vec<Leaving>,
    told: usize,
    /// What was told of and [kept](Network::keep).
    kept: Vec<Leaving>,
}

impl Inboxes {
    #[inline]
    pub(super) fn are_on(&self) -> bool {
        self.on
    }

    #[inline]
    pub(super) fn put(&mut self, leaving: Leaving) {
        self.news.push(leaving);
    }

    #[inline]
    fn next(&mut self) -> Option<Leaving> {
        if let Some(leaving) = self.news.get(self.told) {
            self.told += 1;
            return Some(*leaving);
        }
        self.news.clear();
        self.told = 0;
        None
    }

    /// Whether packets of a link may be here.
    #[inline]
    pub(super) fn has(&self, link: usize) -> bool {
        self.links.get(link).is_some_and(|here| *here)
    }

    /// How many packets of each link nobody took.
    fn left(&self) -> Vec<usize> {
        let mut left = vec![0; self.links.len()];
        for leaving in self.kept.iter().chain(&self.news[self.told..]) {
            left[leaving.link as usize] += 1;
        }
        left
    }
}

/// A packet that will be out of its last link.
#[derive(Debug)]
#[must_use = "the packet stays in the network until it is taken"]
pub struct News(Leaving);

impl News {
    /// Of which link.
    #[inline]
    pub fn link(&self) -> LinkId {
        LinkId(self.0.link as usize)
    }

    /// When. Not earlier than any news of this link before.
    #[inline]
    pub fn at(&self) -> Time {
        self.0.out
    }

    /// The packet, as one that has reached the end of its route.
    #[inline]
    pub fn exit(self) -> Exit {
        let Leaving { out, slot, end, .. } = self.0;
        Exit { at: out, end, slot }
    }
}

impl<P: Packet + Send + 'static> Network<P> {
    /// Has packets told of ahead of time from now on, by [`news`](Self::news) rather than by
    /// [`pop`](Self::pop); the lead in ns: how long after a moment nothing comes out of any link of
    /// which there were no news at that moment. None, and nothing changes, if the network cannot do
    /// it, or not with a lead of at least so many ns, or has packets inside.
    ///
    /// To [`advance`](Self::advance) makes news. What is handed in by [`push_ahead`](Self::push_ahead)
    /// before is to be all that enters by that moment.
    ///
    /// It ends by itself, and [`is_ahead`](Self::is_ahead) says so, when somebody asks for a link at the
    /// end of a route or has any observed, and when a queue there may be full. What nobody took by then is
    /// popped as ever.
    pub fn get_ahead(&mut self, least: u64) -> Option<u64> {
        if self.inboxes.on || self.store.len() > 0 || self.routes.is_empty() {
            return None;
        }
        let before = self.hops.clone();
        self.unmark();
        let lead = self.mark_ends(least.max(1));
        if lead.is_none() {
            self.hops = before;
        }
        lead
    }

    /// Marks last links and has their packets told of; the lead.
    fn mark_ends(&mut self, least: u64) -> Option<u64> {
        let mut lead = u64::MAX;
        last::find(&self.links, &mut self.hops, Lane::may_float);
        let mut links = vec![false; self.links.len()];
        for route in &self.routes {
            let route = &self.hops[*route as usize..];
            let end = route.iter().position(|hop| hop & END != 0)?;
            let (first, last) = (route.first()?, route.get(end.checked_sub(1)?)?);
            if first & BATCHED == 0 || last & LAST == 0 {
                return None;
            }
            let link = (last & !(FEEDER | BATCHED | LAST)) as usize;
            links[link] = true;
            let feeder = match self.feeders[link] {
                NONE => 0,
                feeder => nanos(self.links[feeder as usize].delay()),
            };
            lead = lead.min(feeder.saturating_add(nanos(self.links[link].delay())));
        }
        if lead < least {
            return None;
        }
        self.shelf = Shelf::default();
        self.inboxes = Inboxes {
            on: true,
            links,
            ..Inboxes::default()
        };
        Some(lead)
    }

    /// A packet enters the last link of its route and is told of, unless that does not take it. Whether
    /// that is all.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "so that the parcel stays in registers"
    )]
    pub(super) fn tell(&mut self, at: Time, parcel: Parcel, link: usize) -> bool {
        let entry = match &mut self.links[link] {
            // It stays there to be counted, as what one link hands on to the next.
            Passage::Lane(lane) if lane.has_room_at(at) => {
                lane.push_told(&mut self.store, self.reached.0, at, parcel)
            }
            _ => Entry::TooLate,
        };
        match entry {
            Entry::Taken(out) => self.inboxes.put(Leaving {
                out,
                link: link as u32,
                slot: parcel.slot,
                end: parcel.hop + 1,
            }),
            Entry::Refused => {}
            Entry::TooLate => {
                self.end_news();
                return false;
            }
        }
        true
    }

    /// Nothing is told of ahead of time from now on: what nobody took comes out when it is out.
    #[cold]
    pub(super) fn end_news(&mut self) {
        self.unmark();
        let inboxes = mem::take(&mut self.inboxes);
        for (link, left) in inboxes.left().into_iter().enumerate() {
            if inboxes.has(link) {
                if let Some(lane) = self.links[link].lane_mut() {
                    lane.keep_shells(self.reached.0, left);
                }
                self.plan(link);
            }
        }
    }

    /// Whether packets are told of ahead of time.
    #[inline]
    pub fn is_ahead(&self) -> bool {
        self.inboxes.on
    }

    /// The first link of a route and the last one. Panics if there is no such route.
    pub fn ends(&self, route: RouteId) -> Option<(LinkId, LinkId)> {
        let start = self.routes[route.0] as usize;
        let mut links = self.hops[start..].iter().take_while(|hop| **hop & END == 0);
        let link = |hop: &u32| LinkId((hop & !(FEEDER | BATCHED | LAST)) as usize);
        let first = links.next()?;
        Some((link(first), link(links.last().unwrap_or(first))))
    }

    /// A packet of `size` enters `route` at `at`, which may be ahead of time: later than nothing but what
    /// entered this route, or another with the same first link. Panics if there is no such route.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "so that a packet is written where it stays"
    )]
    pub fn push_ahead(&mut self, at: Time, route: RouteId, size: Bytes, make: impl FnOnce() -> P) {
        let (parcel, hop) = self.lodge(route, size, make);
        if hop & (END | BATCHED) == BATCHED {
            self.gather(at, parcel, hop & !BATCHED);
        } else if hop & END == 0 {
            // Nothing is told of ahead of time any more.
            let link = (hop & !(FEEDER | LAST)) as usize;
            self.links[link].push(&mut self.store, at, parcel);
            self.plan(link);
        }
    }

    /// The next packet of which it is known when it will be out. Those of one link are in order.
    #[inline]
    pub fn news(&mut self) -> Option<News> {
        self.inboxes.next().map(News)
    }

    /// What is told after so many other news, if that is known: which link it is out of. Has the packet
    /// brought to the cache.
    #[inline]
    pub fn news_behind(&self, others: usize) -> Option<LinkId> {
        let leaving = self.inboxes.news.get(self.inboxes.told + others)?;
        self.store.soon(leaving.slot);
        Some(LinkId(leaving.link as usize))
    }

    /// Keeps a packet for later: it is [`news`](Self::news) again after [`tell_again`](Self::tell_again).
    /// All packets of its link that are told of after it have to be kept too.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "each is kept once")]
    pub fn keep(&mut self, news: News) {
        self.inboxes.kept.push(news.0);
    }

    /// What was kept is news again, before all others.
    pub fn tell_again(&mut self) {
        let Inboxes {
            news, told, kept, ..
        } = &mut self.inboxes;
        kept.extend(news.drain(*told..));
        news.clear();
        *told = 0;
        mem::swap(news, kept);
    }
}
