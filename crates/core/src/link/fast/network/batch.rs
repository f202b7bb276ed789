//! Moving packets in batches.
//!
//! Applies where several first links of routes lead to second links that have no other input.
//! Departures of the first links are not processed one by one among all other events, but in bulk
//! and in the same order: a packet has no visible effect until it has passed the propagation delay
//! of the second link. The first links then need no timer. Bulk processing improves branch
//! prediction and cache locality.
//!
//! A first link is *unbuffered* while each packet is certainly accepted: packets in flight are
//! stored in the batch only, and the link is not accessed at their departure. The link becomes
//! buffered permanently if its queue may be full, if a packet would depart at the same time as its
//! predecessor, or if the caller accesses the link.
//!
//! The result is the same as without batches: an access to state that a batched packet may affect
//! first processes all packets that are due.

use core::mem;

use super::super::fast_link::{Entry, FastLink};
use super::super::link_impl::LinkImpl;
use super::calendar_queue::{CalendarQueue, Due};
use super::{CACHED, END, FEEDER, LAST, NONE, Network, delivery_queue};
use crate::link::Packet;
use crate::link::packet_pool::PacketHandle;
use crate::units::{Bytes, Time, nanos};

/// Packets waiting for a batch.
#[derive(Debug)]
pub(super) struct Batches {
    /// One batch per second link, or a single one if a first link leads to several.
    lists: Vec<Batch>,
    /// Deadline of the next batch; [`Time::FAR`] if there is none.
    due: Time,
    /// Index of the batch of each first link, or [`NONE`].
    of: Vec<u32>,
    /// Number of links made buffered one by one.
    buffered: usize,
}

/// Packets waiting for a batch to one second link.
#[derive(Debug)]
struct Batch {
    entries: CalendarQueue<Waiting>,
    /// Minimum time from the departure of a first link to a visible effect, in ns.
    slack: u64,
    /// Deadline of the batch; [`Time::FAR`] if it is empty.
    due: Time,
}

/// A packet on an unbuffered first link, or the oldest packet of a buffered one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waiting {
    /// Departure time.
    out: Time,
    /// The first link.
    pub(super) link: u32,
    /// Slot of the packet, or [`NONE`] if the link stores the packet.
    slot: u32,
    /// Index into the hop list of the network.
    hop: u32,
    size: u32,
}

impl Waiting {
    /// Entry for a packet stored in the link.
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

    /// Handle of a packet not stored in a link.
    #[inline]
    pub(super) fn handle(&self) -> Option<PacketHandle> {
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
    /// Finds the first links and marks them in `hops`.
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
            buffered: 0,
        }
    }

    /// Whether a link is a first link with batches.
    #[inline]
    pub(super) fn has(&self, link: usize) -> bool {
        self.of[link] != NONE
    }

    /// Deadline of the next batch; [`Time::FAR`] if there is none.
    #[inline]
    pub(super) fn due(&self) -> Time {
        self.due
    }

    /// Up to `count` entries of a batch in order, from index `from` on.
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
        // Entries per calendar day: enough for the prefetch, or short days to sort without
        // prefetch.
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

    /// [`Time::FAR`] is never due: packets that depart then stay.
    #[inline]
    fn plan(&mut self) {
        let first = self.entries.due();
        self.due = match first.as_nanos().saturating_add(self.slack) {
            _ if first == Time::FAR => first,
            due => Time::from_nanos(due.min(u64::MAX - 1)),
        };
    }
}

/// First links and second links.
///
/// A first link occurs only at the start of routes, so its packets arrive at the current time, and
/// it leads to second links only. A second link occurs only behind first links. A link that feeds
/// exactly one other link is excluded, as a feeder is cheaper (`relay`).
fn find(links: &[LinkImpl], hops: &[u32], routes: &[u32]) -> (Vec<bool>, Vec<bool>) {
    let able = |link: &LinkImpl| link.fast().is_some_and(FastLink::takes_time);
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
    /// A packet enters a first link with batches.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "keeps the handle in registers")]
    pub(super) fn gather(&mut self, at: Time, handle: PacketHandle, link: u32) {
        if let LinkImpl::FastLink(fast) = &mut self.links[link as usize]
            && fast.may_be_unbuffered()
        {
            if let Ok(size) = u32::try_from(handle.size.get())
                && let Some(out) = fast.pass(at, handle.size)
            {
                let PacketHandle { slot, hop, .. } = handle;
                self.batches.add(Waiting {
                    out,
                    link,
                    slot,
                    hop,
                    size,
                });
                return;
            }
            self.buffer_link(link);
        }
        self.gather_there(at, handle, link);
    }

    /// [`gather`](Self::gather) for a packet that the link stores.
    #[inline(never)]
    fn gather_there(&mut self, at: Time, handle: PacketHandle, link: u32) {
        let entry = match &mut self.links[link as usize] {
            LinkImpl::FastLink(fast) => fast.push(&mut self.store, at, handle),
            LinkImpl::GeneralLink(_) => Entry::TooLate,
        };
        match entry {
            Entry::Taken(out) => self.batches.add(Waiting::of_link(out, link)),
            Entry::Refused => {}
            Entry::TooLate => {
                self.end_batches();
                self.links[link as usize].push(&mut self.store, at, handle);
                self.plan(link as usize);
            }
        }
    }

    /// Processes departures of first links up to `until`: a time, and the highest link at that
    /// time.
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

    /// [`move_on`](Self::move_on) for one batch. Returns whether all second links are still fast
    /// links.
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
            let packet = match next.handle() {
                Some(handle) => Some((out, handle)),
                None => self.links[link as usize].pop(&mut self.store, out),
            };
            let Some((at, handle)) = packet else {
                continue;
            };
            let hop = handle.hop + 1;
            let second = self.hops[hop as usize] & !(FEEDER | LAST);
            let exit = self.forward(at, PacketHandle { hop, ..handle });
            debug_assert!(exit.is_none(), "a first link is followed by a second link");
            even &= self.links[second as usize].fast().is_some();
        }
        self.batches.lists[list].plan();
        even
    }

    /// Disables batches, as a link is no longer a fast link. All due packets have been processed.
    #[cold]
    pub(super) fn end_batches(&mut self) {
        if self.inboxes.are_on() {
            self.end_lookahead();
        }
        for hop in &mut self.hops {
            if *hop & END == 0 {
                *hop &= !BATCHED;
            }
        }
        self.buffer_all();
        self.batches.of.fill(NONE);
        self.batches.due = Time::FAR;
        for list in mem::take(&mut self.batches.lists) {
            for leaving in list.entries.into_all() {
                self.plan(leaving.link as usize);
            }
        }
    }

    /// Makes a first link buffered. The cost is linear in the waiting packets, so after several
    /// links all of them are made buffered at once.
    #[cold]
    #[inline(never)]
    fn buffer_link(&mut self, link: u32) {
        self.batches.buffered += 1;
        if self.batches.buffered.pow(2) > self.links.len().max(1_000) {
            self.buffer_all();
            return;
        }
        let list = self.batches.of[link as usize] as usize;
        let entries = &mut self.batches.lists[list].entries;
        let own = entries.take_those(|leaving| leaving.link == link);
        self.restore(link, &own);
    }

    /// Makes all first links buffered if the caller accesses `link` and it may be one of them.
    pub(super) fn buffer_all_for(&mut self, link: usize) {
        if self.batches.has(link)
            && self.links[link]
                .fast()
                .is_some_and(FastLink::may_be_unbuffered)
        {
            self.buffer_all();
        }
    }

    #[cold]
    fn buffer_all(&mut self) {
        for list in 0..self.batches.lists.len() {
            let entries = &mut self.batches.lists[list].entries;
            let mut own = entries.take_those(|leaving| leaving.slot != NONE);
            own.sort_by_key(|leaving| leaving.link);
            for own in own.chunk_by(|one, other| one.link == other.link) {
                self.restore(own[0].link, own);
            }
        }
        for link in 0..self.links.len() {
            if self.batches.has(link)
                && self.links[link]
                    .fast()
                    .is_some_and(FastLink::may_be_unbuffered)
            {
                self.restore(link as u32, &[]);
            }
        }
    }

    /// Moves the packets of an unbuffered link into the link.
    fn restore(&mut self, link: u32, own: &[Waiting]) {
        if let Some(fast) = self.links[link as usize].fast_mut() {
            let handles = own.iter().map(Waiting::handle);
            let handles: Vec<_> = handles.flatten().collect();
            fast.make_buffered(own.iter().map(|leaving| leaving.out).zip(handles));
        }
        let list = self.batches.of[link as usize] as usize;
        for leaving in own {
            let there = Waiting::of_link(leaving.out, link);
            self.batches.lists[list].entries.put(there);
        }
    }
}

/// Flag in the hop list: a first link with batches.
pub(super) const BATCHED: u32 = 1 << 29;

/// Batched packets per prefetch step.
pub(super) const STRIDE: usize = 8;

#[cfg(test)]
mod tests;
