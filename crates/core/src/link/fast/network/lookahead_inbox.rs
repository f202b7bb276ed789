//! Lookahead mode: packets on their last links are reported before they depart.
//!
//! Applies where every route begins with a batched link and ends with a link that is followed by no
//! other. The end hosts then need not act in order of time: a delivery cannot affect a shared link
//! before the *lead* is over, which is the minimum delay of the last links. A caller may push
//! packets ahead of time, and receives packets as soon as their delivery time is known.
//!
//! This is the lookahead of conservative parallel simulation (K. M. Chandy and J. Misra,
//! "Distributed simulation: a case study in design and verification of distributed programs", IEEE
//! Transactions on Software Engineering SE-5(5), 1979) in one thread: it saves processing in order
//! of time.

use core::mem;

use super::super::fast_link::{Entry, FastLink};
use super::super::link_impl::LinkImpl;
use super::delivery_queue::DeliveryQueue;
use super::lookahead::Step;
use super::{BATCHED, CACHED, END, Exit, FEEDER, LAST, LinkId, NONE, Network, RouteId, exit_links};
use crate::link::Packet;
use crate::link::packet_pool::PacketHandle;
use crate::units::{Bytes, Time, nanos};

/// Packets on their way to the caller in lookahead mode.
///
/// A last link receives its packets when the caller asks for them, up to the *horizon*. Until then
/// they wait here, so that nothing after the latest possible query has to be undone.
#[derive(Debug, Default)]
pub(super) struct LookaheadInboxes {
    /// Whether the mode is enabled.
    on: bool,
    /// The last links.
    links: Vec<bool>,
    /// Latest time reported at present.
    horizon: Time,
    /// Packets that arrived since the last query.
    fresh: Vec<Coming>,
    /// With many links: number of fresh packets per link, and the links with any.
    counts: Vec<u32>,
    named: Vec<u32>,
    /// Packets to report, and the number of those already reported.
    news: Vec<Coming>,
    reported: usize,
    /// Packets after the horizon.
    kept: Vec<Coming>,
}

/// A packet on its last link, or on the way to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coming {
    /// Departure from the last link if `is_in`, else arrival at it.
    at: Time,
    link: u32,
    is_in: bool,
    handle: PacketHandle,
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

    /// Latest time reported so far.
    pub(super) fn horizon(&self) -> Time {
        self.horizon
    }

    /// A packet reaches its last link. Packets of one link are in order.
    #[inline]
    pub(super) fn put(&mut self, at: Time, handle: PacketHandle, link: usize) {
        self.add(Coming {
            at,
            link: link as u32,
            is_in: false,
            handle,
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

    /// Link of the next packets to report.
    #[inline]
    fn next_link(&mut self) -> Option<LinkId> {
        if self.reported == self.news.len() {
            if self.fresh.is_empty() {
                return None;
            }
            self.turn();
        }
        Some(LinkId(self.news[self.reported].link as usize))
    }

    #[inline]
    fn next_of(&mut self, link: LinkId) -> Option<Coming> {
        let coming = self.news.get(self.reported)?;
        (coming.link as usize == link.0).then(|| {
            self.reported += 1;
            *coming
        })
    }

    /// Makes fresh packets reportable. With many links they are grouped by link, for cache
    /// locality.
    #[inline(never)]
    fn turn(&mut self) {
        self.reported = 0;
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

    /// Removes the unreported packets; those of one link are in order.
    fn take_left(&mut self) -> Vec<Coming> {
        let mut left = mem::take(&mut self.kept);
        left.extend(self.news.drain(..).skip(self.reported));
        self.reported = 0;
        left.append(&mut self.fresh);
        for link in self.named.drain(..) {
            self.counts[link as usize] = 0;
        }
        left
    }
}

/// Filler.
const NOTHING: Coming = Coming {
    at: Time::ZERO,
    link: 0,
    is_in: false,
    handle: PacketHandle {
        size: Bytes::ZERO,
        slot: 0,
        hop: 0,
    },
};

impl<P: Packet + Send + 'static> Network<P> {
    /// Enables lookahead mode: packets are reported by [`news_of`](Self::news_of) instead of
    /// [`pop`](Self::pop). Returns the lead in ns: a link without a report at some time has no
    /// departure within the lead after it. Returns `None`, without effect, if the network does not
    /// support the mode, the lead would be below `least` ns, or packets are inside.
    ///
    /// [`advance`](Self::advance) generates reports up to the horizon set by
    /// [`tell_until`](Self::tell_until). All packets that enter by that time must be pushed with
    /// [`push_ahead`](Self::push_ahead) before.
    ///
    /// The mode ends, as [`is_ahead`](Self::is_ahead) shows, when the caller accesses a link at the
    /// end of a route or a time beyond the horizon, or observes any link. Unreported packets are
    /// then popped as usual.
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

    /// Marks the last links for lookahead mode, and returns the lead.
    fn mark_ends(&mut self, least: u64) -> Option<u64> {
        let mut lead = u64::MAX;
        exit_links::find(&self.links, &mut self.hops, FastLink::may_be_unbuffered);
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
        self.deliveries = DeliveryQueue::default();
        self.inboxes = LookaheadInboxes::new(links);
        Some(lead)
    }

    /// Whether a feeder of last links also feeds another link. Forwarding to the latter alone
    /// cannot be undone.
    fn feeds_ends_and_others(&self, ends: &[bool]) -> bool {
        let mut feeds = vec![[false; 2]; self.links.len()];
        for (feeder, end) in self.feeders.iter().zip(ends) {
            if *feeder != NONE {
                feeds[*feeder as usize][usize::from(*end)] = true;
            }
        }
        feeds.contains(&[true; 2])
    }

    /// Ends lookahead mode. All reports up to the horizon must have been taken.
    pub fn end_ahead(&mut self) {
        if self.inboxes.on {
            let horizon = self.inboxes.horizon.max(self.reached.0);
            self.catch_up(horizon);
            self.move_on((horizon, usize::MAX));
            self.end_lookahead();
        }
    }

    /// Ends lookahead mode. Unreported packets are popped at their departure.
    ///
    /// A packet that reaches its last link after the horizon goes back to the feeder of that link,
    /// as it was forwarded after all reported ones.
    #[cold]
    pub(super) fn end_lookahead(&mut self) {
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
                && let Some(fast) = self.links[link].fast_mut()
            {
                fast.keep_for_counters(self.reached.0, left);
            }
        }
        others.sort_by_key(|coming| coming.at);
        for Coming {
            at, link, handle, ..
        } in others
        {
            let feeder = match self.feeders[link as usize] {
                feeder if feeder != NONE && at > inboxes.horizon => feeder as usize,
                _ => {
                    self.links[link as usize].push(&mut self.store, at, handle);
                    continue;
                }
            };
            if let Some(fast) = self.links[feeder].fast_mut() {
                fast.revert_forward();
            }
            self.plan(feeder);
        }
        for link in (0..self.links.len()).filter(|link| inboxes.has(*link)) {
            self.plan(link);
        }
    }

    /// Whether lookahead mode is enabled.
    #[inline]
    pub fn is_ahead(&self) -> bool {
        self.inboxes.on
    }

    /// First and last link of a route. Panics if the route does not exist.
    pub fn ends(&self, route: RouteId) -> Option<(LinkId, LinkId)> {
        let start = self.routes[route.0] as usize;
        let mut links = self.hops[start..].iter().take_while(|hop| **hop & END == 0);
        let link = |hop: &u32| LinkId((hop & !(FEEDER | BATCHED | LAST)) as usize);
        let first = links.next()?;
        Some((link(first), link(links.last().unwrap_or(first))))
    }

    /// A packet of `size` enters `route` at `at`, possibly ahead of time. Times are non-decreasing
    /// per first link. Panics if the route does not exist.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "constructs the packet in place")]
    pub fn push_ahead(&mut self, at: Time, route: RouteId, size: Bytes, make: impl FnOnce() -> P) {
        let (handle, hop) = self.store_packet(route, size, make);
        if hop & (END | BATCHED) == BATCHED {
            self.gather(at, handle, hop & !BATCHED);
        } else if hop & END == 0 {
            // Lookahead mode has ended.
            let link = (hop & !(FEEDER | LAST)) as usize;
            self.links[link].push(&mut self.store, at, handle);
            self.plan(link);
        }
    }

    /// Sets the horizon: packets that depart by then are reported. Horizons are non-decreasing.
    pub fn tell_until(&mut self, horizon: Time) {
        self.inboxes.horizon = horizon;
        for coming in self.inboxes.take_left() {
            self.inboxes.add(coming);
        }
    }

    /// Next link with possible reports. All reports of a link must be taken before the next call.
    #[inline]
    pub fn link_with_news(&mut self) -> Option<LinkId> {
        self.inboxes.next_link()
    }

    /// Next packet of the link with a known departure by the horizon. The exit is used as one of
    /// [`pop_exit`](Self::pop_exit). Times per link are non-decreasing.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for each packet")]
    pub fn news_of(&mut self, link: LinkId) -> Option<Exit> {
        while let Some(coming) = self.inboxes.next_of(link) {
            let Coming { at, handle, .. } = coming;
            let horizon = self.inboxes.horizon;
            let entry = match &mut self.links[link.0] {
                _ if coming.is_in || at > horizon => Entry::Taken(at),
                // The packet stays in the link for the counters, like a forwarded one.
                LinkImpl::FastLink(fast) => {
                    fast.push_reported(&mut self.store, horizon, at, handle)
                }
                LinkImpl::GeneralLink(_) => Entry::TooLate,
            };
            let (out, is_in) = match entry {
                Entry::Refused => continue,
                Entry::Taken(out) => (out, coming.is_in || at <= horizon),
                Entry::TooLate => {
                    self.inboxes.kept.push(coming);
                    self.end_lookahead();
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
                end: handle.hop + 1,
                slot: handle.slot,
            });
        }
        None
    }

    /// Prefetch hint for the report after `others` further ones. Returns its link if it differs
    /// from that of the previous report.
    #[inline]
    pub fn news_behind(&self, others: usize, step: Step) -> Option<LinkId> {
        let LookaheadInboxes { news, reported, .. } = &self.inboxes;
        let coming = news.get(reported + others)?;
        self.store.soon(coming.handle.slot);
        let before = news.get((reported + others).wrapping_sub(1));
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
