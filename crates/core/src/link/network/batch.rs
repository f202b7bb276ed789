//! Many packets in one move.
//!
//! Where several links at the beginning of routes lead to links that nothing else leads to, what comes
//! out of them is not moved on one by one in between of everything else, but many at once, in the
//! same order: until a packet is through the wire of the second link, nothing can come of it. The
//! first links need no place in the agenda then, and many moves of one kind in a row are foretold
//! better than moves of all kinds, and find more in the cache.
//!
//! A first link *floats* while it takes each packet for certain: what is on it waits in the batch alone,
//! and the link is not touched again when it is out. Once a packet needs a closer look, since the queue
//! may be full or it would be out at the moment of the one before, or anybody asks for such a link, it
//! keeps its packets itself, for good.
//!
//! None of this can be seen from outside: who asks for anything that it might change has all moved on
//! first that is due by then.

use core::mem;

use super::super::Packet;
use super::super::fast_link::{Entry, FastLink};
use super::super::link_impl::LinkImpl;
use super::super::packet_pool::PacketHandle;
use super::calendar_queue::{CalendarQueue, Due};
use super::lookahead::STRIDE;
use super::{CACHED, END, FEEDER, LAST, NONE, Network, delivery_queue};
use crate::units::{Bytes, Time, nanos};

/// What is to be moved on.
#[derive(Debug)]
pub(super) struct Batches {
    /// One for each second link, or one for all if a first link leads to several.
    lists: Vec<Batch>,
    /// When the first of all has to be moved on; [`Time::FAR`] if there is none.
    due: Time,
    /// The list of each first link, or [`NONE`].
    of: Vec<u32>,
    /// How many links were landed one by one.
    landed: usize,
}

/// What is to be moved on to one link.
#[derive(Debug)]
struct Batch {
    entries: CalendarQueue<Waiting>,
    /// How long after a packet is out of its first link something may come of it, in ns.
    slack: u64,
    /// When the first has to be moved on; [`Time::FAR`] if there is none.
    due: Time,
}

/// A packet on its first link, if that floats; else the oldest one there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waiting {
    /// When it is out of it.
    out: Time,
    /// Which link that is.
    pub(super) link: u32,
    /// Where it is kept, or [`NONE`] if the link knows.
    slot: u32,
    /// Where it is in the network's list of hops.
    hop: u32,
    size: u32,
}

impl Waiting {
    /// The one that a link has.
    #[inline]
    fn of_link(out: Time, link: u32) -> Self {
        Self {
            out,
            link,
            slot: NONE,
            hop: 0,
            size: 0,
        }
    }

    /// What it has itself.
    #[inline]
    pub(super) fn parcel(&self) -> Option<PacketHandle> {
        (self.slot != NONE).then_some(PacketHandle {
            size: Bytes(self.size.into()),
            slot: self.slot,
            hop: self.hop,
        })
    }
}

impl Due for Waiting {
    #[inline]
    fn due(&self) -> Time {
        self.out
    }
}

impl Batches {
    /// Finds the links and marks them in `hops`.
    pub(super) fn new(links: &[LinkImpl], hops: &mut [u32], routes: &[u32]) -> Self {
        let (firsts, seconds) = find(links, hops, routes);
        let mut second_of = vec![NONE; links.len()];
        let mut apart = true;
        for pair in hops.windows(2) {
            let from = (pair[0] & !FEEDER) as usize;
            if pair[0] & END == 0 && firsts[from] {
                let to = pair[1] & !FEEDER;
                apart &= second_of[from] == NONE || second_of[from] == to;
                second_of[from] = to;
            }
        }
        let mut lists: Vec<Batch> = Vec::new();
        let mut list_of = vec![NONE; links.len()];
        for (second, link) in links.iter().enumerate().filter(|(i, _)| seconds[*i]) {
            let slack = nanos(link.delay());
            match lists.first_mut().filter(|_| !apart) {
                Some(only) => only.slack = only.slack.min(slack),
                None => lists.push(Batch::new(slack, links.len())),
            }
            list_of[second] = lists.len() as u32 - 1;
        }
        for route in routes {
            let hop = &mut hops[*route as usize];
            if *hop & END == 0 && firsts[(*hop & !FEEDER) as usize] {
                *hop |= BATCHED;
            }
        }
        let list = |second: &u32| list_of.get(*second as usize).copied().unwrap_or(NONE);
        Self {
            lists,
            due: Time::FAR,
            of: second_of.iter().map(list).collect(),
            landed: 0,
        }
    }

    /// Whether a link is one whose packets are moved on in batches.
    #[inline]
    pub(super) fn has(&self, link: usize) -> bool {
        self.of[link] != NONE
    }

    /// When packets have to be moved on; [`Time::FAR`] if there are none.
    #[inline]
    pub(super) fn due(&self) -> Time {
        self.due
    }

    /// Of one list, what is moved on next but for the first `from`: at most so many.
    #[inline]
    pub(super) fn coming(&self, list: usize, from: usize, count: usize) -> &[Waiting] {
        self.lists[list].entries.coming(from, count)
    }

    #[inline]
    fn add(&mut self, leaving: Waiting) {
        let list = &mut self.lists[self.of[leaving.link as usize] as usize];
        let is_first = leaving.out < list.entries.due();
        list.entries.put(leaving);
        if is_first {
            list.plan();
            self.due = self.due.min(list.due);
        }
    }
}

impl Batch {
    fn new(slack: u64, links: usize) -> Self {
        // As many as a look ahead along them asks for; where there is none, days that are soon sorted.
        let entries = if links > CACHED {
            CalendarQueue::new(6 * STRIDE, delivery_queue::WANTED)
        } else {
            CalendarQueue::new(1, 16)
        };
        Self {
            entries,
            slack,
            due: Time::FAR,
        }
    }

    /// The end of time is never due: what is out then stays.
    #[inline]
    fn plan(&mut self) {
        let first = self.entries.due();
        self.due = match first.as_nanos().saturating_add(self.slack) {
            _ if first == Time::FAR => first,
            due => Time::from_nanos(due.min(u64::MAX - 1)),
        };
    }
}

/// The first links, and the second ones.
///
/// First links are only where routes begin, so that what enters them does so at the present moment,
/// and lead only to second ones. Second ones come only behind first ones. A link that feeds one other
/// alone is no first one: it has a better way.
fn find(links: &[LinkImpl], hops: &[u32], routes: &[u32]) -> (Vec<bool>, Vec<bool>) {
    let able = |link: &LinkImpl| link.lane().is_some_and(FastLink::takes_time);
    let mut firsts = vec![false; links.len()];
    let mut seconds: Vec<bool> = links.iter().map(able).collect();
    for route in routes {
        let start = hops[*route as usize];
        if start & END == 0 {
            let link = (start & !FEEDER) as usize;
            firsts[link] = start & FEEDER == 0 && able(&links[link]);
            seconds[link] = false;
        }
    }
    loop {
        let before = (firsts.clone(), seconds.clone());
        for pair in hops.windows(2) {
            if pair[0] & END != 0 {
                continue;
            }
            let from = (pair[0] & !FEEDER) as usize;
            let to = (pair[1] & END == 0).then_some((pair[1] & !FEEDER) as usize);
            let well = to.is_some_and(|to| firsts[from] && seconds[to]);
            firsts[from] &= well;
            if let Some(to) = to {
                firsts[to] = false;
                seconds[to] &= well;
            }
        }
        if before == (firsts.clone(), seconds.clone()) {
            return (firsts, seconds);
        }
    }
}

impl<P: Packet + Send + 'static> Network<P> {
    /// A packet enters a link whose packets are moved on in batches.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "so that the parcel stays in registers"
    )]
    pub(super) fn gather(&mut self, at: Time, parcel: PacketHandle, link: u32) {
        if let LinkImpl::FastLink(lane) = &mut self.links[link as usize]
            && lane.may_float()
        {
            if let Ok(size) = u32::try_from(parcel.size.get())
                && let Some(out) = lane.pass(at, parcel.size)
            {
                let PacketHandle { slot, hop, .. } = parcel;
                self.batches.add(Waiting {
                    out,
                    link,
                    slot,
                    hop,
                    size,
                });
                return;
            }
            self.land(link);
        }
        self.gather_there(at, parcel, link);
    }

    /// The same of one that the link keeps.
    #[inline(never)]
    fn gather_there(&mut self, at: Time, parcel: PacketHandle, link: u32) {
        let entry = match &mut self.links[link as usize] {
            LinkImpl::FastLink(lane) => lane.push(&mut self.store, at, parcel),
            LinkImpl::GeneralLink(_) => Entry::TooLate,
        };
        match entry {
            Entry::Taken(out) => self.batches.add(Waiting::of_link(out, link)),
            Entry::Refused => {}
            Entry::TooLate => {
                self.end_batches();
                self.links[link as usize].push(&mut self.store, at, parcel);
                self.plan(link as usize);
            }
        }
    }

    /// Moves on what is out of its first link by `until`, a moment and the highest link that has its
    /// turn then.
    pub(super) fn move_on(&mut self, until: (Time, usize)) {
        let mut even = true;
        for list in 0..self.batches.lists.len() {
            even &= self.move_list_on(list, until);
        }
        let lists = self.batches.lists.iter();
        self.batches.due = lists.map(|list| list.due).min().unwrap_or(Time::FAR);
        if !even {
            self.end_batches();
        }
    }

    /// The same of one list. Whether the next links are lanes still.
    #[inline]
    fn move_list_on(&mut self, list: usize, until: (Time, usize)) -> bool {
        let (until, highest) = (until.0, until.1 as u32);
        let (mut count, mut even) = (0_usize, true);
        let many = self.links.len() > CACHED;
        while let Some(&next) = self.batches.lists[list].entries.first()
            && (next.out, next.link) <= (until, highest)
        {
            if many && count.is_multiple_of(STRIDE) {
                self.look_along(list, count == 0);
            }
            count += 1;
            self.batches.lists[list].entries.take();
            let Waiting { out, link, .. } = next;
            let packet = match next.parcel() {
                Some(parcel) => Some((out, parcel)),
                None => self.links[link as usize].pop(&mut self.store, out),
            };
            let Some((at, parcel)) = packet else {
                continue;
            };
            let hop = parcel.hop + 1;
            let second = self.hops[hop as usize] & !(FEEDER | LAST);
            let exit = self.forward(at, PacketHandle { hop, ..parcel });
            debug_assert!(exit.is_none(), "there is a second link");
            even &= self.links[second as usize].lane().is_some();
        }
        self.batches.lists[list].plan();
        even
    }

    /// From now on packets are moved on one by one, since a link has become of another kind. All that
    /// was due has been moved on.
    #[cold]
    pub(super) fn end_batches(&mut self) {
        if self.inboxes.are_on() {
            self.end_news();
        }
        for hop in &mut self.hops {
            if *hop & END == 0 {
                *hop &= !BATCHED;
            }
        }
        self.land_all();
        self.batches.of.fill(NONE);
        self.batches.due = Time::FAR;
        for list in mem::take(&mut self.batches.lists) {
            for leaving in list.entries.into_all() {
                self.plan(leaving.link as usize);
            }
        }
    }

    /// A first link floats no longer. Each time all that waits is looked through, so that after some of
    /// them none does.
    #[cold]
    #[inline(never)]
    fn land(&mut self, link: u32) {
        self.batches.landed += 1;
        if self.batches.landed.pow(2) > self.links.len().max(1_000) {
            self.land_all();
            return;
        }
        let list = self.batches.of[link as usize] as usize;
        let entries = &mut self.batches.lists[list].entries;
        let own = entries.take_those(|leaving| leaving.link == link);
        self.put_down(link, &own);
    }

    /// The same of all, if a link is asked for that may be one.
    pub(super) fn land_all_for(&mut self, link: usize) {
        if self.batches.has(link) && self.links[link].lane().is_some_and(FastLink::may_float) {
            self.land_all();
        }
    }

    #[cold]
    fn land_all(&mut self) {
        for list in 0..self.batches.lists.len() {
            let entries = &mut self.batches.lists[list].entries;
            let mut own = entries.take_those(|leaving| leaving.slot != NONE);
            own.sort_by_key(|leaving| leaving.link);
            for own in own.chunk_by(|one, other| one.link == other.link) {
                self.put_down(own[0].link, own);
            }
        }
        for link in 0..self.links.len() {
            if self.batches.has(link) && self.links[link].lane().is_some_and(FastLink::may_float) {
                self.put_down(link as u32, &[]);
            }
        }
    }

    /// What a link had while it floated goes there.
    fn put_down(&mut self, link: u32, own: &[Waiting]) {
        if let Some(lane) = self.links[link as usize].lane_mut() {
            let parcels = own.iter().map(Waiting::parcel);
            let parcels: Vec<_> = parcels.flatten().collect();
            lane.ground(own.iter().map(|leaving| leaving.out).zip(parcels));
        }
        let list = self.batches.of[link as usize] as usize;
        for leaving in own {
            let there = Waiting::of_link(leaving.out, link);
            self.batches.lists[list].entries.put(there);
        }
    }
}

/// Marks a link at the beginning of a route, in the list of hops, whose packets are moved on in
/// batches.
pub(super) const BATCHED: u32 = 1 << 29;

#[cfg(test)]
mod tests;
