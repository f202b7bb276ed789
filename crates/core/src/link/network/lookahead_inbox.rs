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
use super::super::fast_link::{Entry, FastLink};
use super::super::link_impl::LinkImpl;
use super::super::packet_pool::PacketHandle;
use super::delivery_queue::DeliveryQueue;
use super::lookahead::Step;
use super::{BATCHED, CACHED, END, Exit, FEEDER, LAST, LinkId, NONE, Network, RouteId, exit_links};
use crate::units::{Bytes, Time, nanos};

/// What is told of ahead of time.
///
/// A last link gets its packets when somebody asks for them, up to the *horizon*. Until then they wait
/// here: so nothing needs to be taken back that comes later than anybody may ask for.
#[derive(Debug, Default)]
pub(super) struct LookaheadInboxes {
    /// Whether anything is.
    on: bool,
    /// The last links.
    links: Vec<bool>,
    /// Nothing later is told of at present.
    horizon: Time,
    /// What came since anybody asked.
    fresh: Vec<Coming>,
    /// With many links: how much of it is of each, and of which there is any.
    counts: Vec<u32>,
    named: Vec<u32>,
    /// What is told of, and how much of it was taken.
    news: Vec<Coming>,
    told: usize,
    /// What is later than the horizon.
    kept: Vec<Coming>,
}

/// A packet on its last link, or on the way there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coming {
    /// When it is out of that link, if it `is_in`, or gets there.
    at: Time,
    link: u32,
    is_in: bool,
    parcel: PacketHandle,
}

impl LookaheadInboxes {
    fn new(links: Vec<bool>) -> Self {
        let many = links.len() > CACHED;
        Self {
            on: true,
            counts: vec![0; if many { links.len() } else { 0 }],
            links,
            ..Self::default()
        }
    }

    #[inline]
    pub(super) fn are_on(&self) -> bool {
        self.on
    }

    /// Up to when anything was told.
    pub(super) fn horizon(&self) -> Time {
        self.horizon
    }

    /// A packet gets to its last link. That of each link in order.
    #[inline]
    pub(super) fn put(&mut self, at: Time, parcel: PacketHandle, link: usize) {
        self.add(Coming {
            at,
            link: link as u32,
            is_in: false,
            parcel,
        });
    }

    #[inline]
    fn add(&mut self, coming: Coming) {
        if let Some(count) = self.counts.get_mut(coming.link as usize) {
            if *count == 0 {
                self.named.push(coming.link);
            }
            *count += 1;
        }
        self.fresh.push(coming);
    }

    /// The link that the next news are of.
    #[inline]
    fn next_link(&mut self) -> Option<LinkId> {
        if self.told == self.news.len() {
            if self.fresh.is_empty() {
                return None;
            }
            self.turn();
        }
        Some(LinkId(self.news[self.told].link as usize))
    }

    #[inline]
    fn next_of(&mut self, link: LinkId) -> Option<Coming> {
        let coming = self.news.get(self.told)?;
        (coming.link as usize == link.0).then(|| {
            self.told += 1;
            *coming
        })
    }

    /// What came is told of from now on. With many links, all of one in a row: who takes it finds more in
    /// the cache.
    #[inline(never)]
    fn turn(&mut self) {
        self.told = 0;
        self.news.clear();
        if self.counts.is_empty() {
            mem::swap(&mut self.news, &mut self.fresh);
            return;
        }
        let mut begin = 0;
        for link in &self.named {
            let count = &mut self.counts[*link as usize];
            begin += mem::replace(count, begin);
        }
        self.news.resize(self.fresh.len(), NOTHING);
        for coming in self.fresh.drain(..) {
            let place = &mut self.counts[coming.link as usize];
            self.news[*place as usize] = coming;
            *place += 1;
        }
        for link in self.named.drain(..) {
            self.counts[link as usize] = 0;
        }
    }

    /// Whether packets of a link may be here.
    #[inline]
    pub(super) fn has(&self, link: usize) -> bool {
        self.links.get(link).is_some_and(|here| *here)
    }

    /// What nobody took, that of each link in order.
    fn take_left(&mut self) -> Vec<Coming> {
        let mut left = mem::take(&mut self.kept);
        left.extend(self.news.drain(..).skip(self.told));
        self.told = 0;
        left.append(&mut self.fresh);
        for link in self.named.drain(..) {
            self.counts[link as usize] = 0;
        }
        left
    }
}

/// In place of what is about to be written.
const NOTHING: Coming = Coming {
    at: Time::ZERO,
    link: 0,
    is_in: false,
    parcel: PacketHandle {
        size: Bytes::ZERO,
        slot: 0,
        hop: 0,
    },
};

impl<P: Packet + Send + 'static> Network<P> {
    /// Has packets told of ahead of time from now on, by [`news_of`](Self::news_of) rather than by
    /// [`pop`](Self::pop); the lead in ns: how long after a moment nothing comes out of any link of
    /// which there were no news at that moment. None, and nothing changes, if the network cannot do
    /// it, or not with a lead of at least so many ns, or has packets inside.
    ///
    /// To [`advance`](Self::advance) makes news, which are told up to the horizon that
    /// [`tell_until`](Self::tell_until) sets. What is handed in by [`push_ahead`](Self::push_ahead)
    /// before is to be all that enters by that moment.
    ///
    /// It ends by itself, and [`is_ahead`](Self::is_ahead) says so, when somebody asks for a link at the
    /// end of a route, or beyond the horizon, or has any link observed. What nobody took by then is popped
    /// as ever.
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
        exit_links::find(&self.links, &mut self.hops, FastLink::may_float);
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
        if lead < least || self.feeds_ends_and_others(&links) {
            return None;
        }
        self.shelf = DeliveryQueue::default();
        self.inboxes = LookaheadInboxes::new(links);
        Some(lead)
    }

    /// Whether a feeder of last links feeds another one, too: what it handed on to that could not be
    /// taken back alone.
    fn feeds_ends_and_others(&self, ends: &[bool]) -> bool {
        let mut feeds = vec![[false; 2]; self.links.len()];
        for (feeder, end) in self.feeders.iter().zip(ends) {
            if *feeder != NONE {
                feeds[*feeder as usize][usize::from(*end)] = true;
            }
        }
        feeds.contains(&[true; 2])
    }

    /// Nothing is told of ahead of time from now on, as with questions that end that. All up to the
    /// horizon has been taken.
    pub fn end_ahead(&mut self) {
        if self.inboxes.on {
            let horizon = self.inboxes.horizon.max(self.reached.0);
            self.catch_up(horizon);
            self.move_on((horizon, usize::MAX));
            self.end_news();
        }
    }

    /// Nothing is told of ahead of time from now on: what nobody took comes out when it is out.
    ///
    /// What gets to its last link behind the horizon goes back to the link that feeds that: it was handed
    /// on after all that was told.
    #[cold]
    pub(super) fn end_news(&mut self) {
        self.unmark();
        let mut inboxes = mem::take(&mut self.inboxes);
        let (known, mut others): (Vec<_>, Vec<_>) = inboxes
            .take_left()
            .into_iter()
            .partition(|coming| coming.is_in);
        let mut left = vec![0; self.links.len()];
        for coming in known {
            left[coming.link as usize] += 1;
        }
        for (link, left) in left.into_iter().enumerate() {
            if inboxes.has(link)
                && let Some(lane) = self.links[link].lane_mut()
            {
                lane.keep_shells(self.reached.0, left);
            }
        }
        others.sort_by_key(|coming| coming.at);
        for Coming {
            at, link, parcel, ..
        } in others
        {
            let feeder = match self.feeders[link as usize] {
                feeder if feeder != NONE && at > inboxes.horizon => feeder as usize,
                _ => {
                    self.links[link as usize].push(&mut self.store, at, parcel);
                    continue;
                }
            };
            if let Some(lane) = self.links[feeder].lane_mut() {
                lane.keep_back();
            }
            self.plan(feeder);
        }
        for link in (0..self.links.len()).filter(|link| inboxes.has(*link)) {
            self.plan(link);
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

    /// From now on all is told of that is out by `horizon`. Horizons never go back.
    pub fn tell_until(&mut self, horizon: Time) {
        self.inboxes.horizon = horizon;
        for coming in self.inboxes.take_left() {
            self.inboxes.add(coming);
        }
    }

    /// The next link of which there may be news. All of them are to be taken before this is asked again.
    #[inline]
    pub fn link_with_news(&mut self) -> Option<LinkId> {
        self.inboxes.next_link()
    }

    /// The next packet of that link of which it is known when it will be out, if that is by the horizon.
    /// It is as one that has reached the end of its route, and later than all of this link before.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for each packet")]
    pub fn news_of(&mut self, link: LinkId) -> Option<Exit> {
        while let Some(coming) = self.inboxes.next_of(link) {
            let Coming { at, parcel, .. } = coming;
            let horizon = self.inboxes.horizon;
            let entry = match &mut self.links[link.0] {
                _ if coming.is_in || at > horizon => Entry::Taken(at),
                // It stays there to be counted, as what one link hands on to the next.
                LinkImpl::FastLink(lane) => lane.push_told(&mut self.store, horizon, at, parcel),
                LinkImpl::GeneralLink(_) => Entry::TooLate,
            };
            let (out, is_in) = match entry {
                Entry::Refused => continue,
                Entry::Taken(out) => (out, coming.is_in || at <= horizon),
                Entry::TooLate => {
                    self.inboxes.kept.push(coming);
                    self.end_news();
                    return None;
                }
            };
            if !is_in || out > horizon {
                let at = out;
                self.inboxes.kept.push(Coming {
                    at,
                    is_in,
                    ..coming
                });
                continue;
            }
            return Some(Exit {
                at: out,
                end: parcel.hop + 1,
                slot: parcel.slot,
            });
        }
        None
    }

    /// What is told after so many other news, if that is known: which link it is out of, if the one before
    /// is out of another. Has brought to the cache what a step asks for.
    #[inline]
    pub fn news_behind(&self, others: usize, step: Step) -> Option<LinkId> {
        let LookaheadInboxes { news, told, .. } = &self.inboxes;
        let coming = news.get(told + others)?;
        self.store.soon(coming.parcel.slot);
        let before = news.get((told + others).wrapping_sub(1));
        if before.is_some_and(|before| before.link == coming.link) {
            return None;
        }
        let link = coming.link as usize;
        match step {
            Step::Link => self.link_soon(link),
            Step::Place => self.place_soon(link),
        }
        Some(LinkId(link))
    }
}

#[cfg(test)]
mod tests;
