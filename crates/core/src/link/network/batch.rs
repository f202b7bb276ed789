//! Many packets in one move.
//!
//! Where several links at the beginning of routes lead to links that nothing else leads to, what comes
//! out of them is not moved on one by one in between of everything else, but many at once, in the
//! same order: until a packet is through the wire of the second link, nothing can come of it. The
//! first links need no place in the agenda then, and many moves of one kind in a row are foretold
//! better than moves of all kinds, and find more in the cache.
//!
//! None of this can be seen from outside: who asks for anything that it might change has all moved on
//! first that is due by then.

use super::super::Packet;
use super::super::lane::{Entry, Lane};
use super::super::passage::Passage;
use super::super::store::Parcel;
use super::{CACHED, END, FEEDER, Network, fetch};
use crate::units::{Time, nanos};

/// What is to be moved on.
#[derive(Debug)]
pub(super) struct Batch {
    /// When a packet is out of its first link, and which that is.
    entries: Vec<(Time, u32)>,
    sorted: bool,
    /// When the first of them has to be moved on; of no meaning if there is none.
    due: Time,
    /// How long after a packet is out of its first link something may come of it, in ns.
    slack: u64,
    /// Which links are such first ones.
    firsts: Vec<bool>,
}

impl Batch {
    /// Finds the links and marks them in `hops`.
    pub(super) fn new(links: &[Passage], hops: &mut [u32], routes: &[u32]) -> Self {
        let (firsts, seconds) = find(links, hops, routes);
        for route in routes {
            let hop = &mut hops[*route as usize];
            if *hop & END == 0 && firsts[(*hop & !FEEDER) as usize] {
                *hop |= BATCHED;
            }
        }
        let seconds = links.iter().zip(seconds).filter(|(_, second)| *second);
        Self {
            entries: Vec::new(),
            sorted: true,
            due: Time::FAR,
            slack: seconds
                .map(|(link, _)| nanos(link.delay()))
                .min()
                .unwrap_or(0),
            firsts,
        }
    }

    /// Whether a link is one whose packets are moved on in batches.
    #[inline]
    pub(super) fn has(&self, link: usize) -> bool {
        self.firsts[link]
    }

    /// When packets have to be moved on; [`Time::FAR`] if there are none.
    #[inline]
    pub(super) fn due(&self) -> Time {
        if self.entries.is_empty() {
            Time::FAR
        } else {
            self.due
        }
    }

    /// Whether packets have to be moved on by `at`.
    #[inline]
    pub(super) fn is_due(&self, at: Time) -> bool {
        self.due <= at && !self.entries.is_empty()
    }

    #[inline]
    fn add(&mut self, out: Time, link: u32) {
        let entry = (out, link);
        self.sorted &= self.entries.last().is_none_or(|last| *last < entry);
        self.due = self.due.min(self.due_of(out));
        self.entries.push(entry);
    }

    #[inline]
    fn due_of(&self, out: Time) -> Time {
        Time::from_nanos(out.as_nanos().saturating_add(self.slack))
    }

    /// How many are due by `until`, a moment and the highest link that has its turn then.
    fn count(&mut self, until: (Time, usize)) -> usize {
        if !self.sorted {
            self.entries.sort_unstable();
            self.sorted = true;
        }
        let entries = self.entries.iter();
        let due = entries.take_while(|(out, link)| (*out, *link as usize) <= until);
        due.count()
    }

    /// The first so many were moved on.
    fn remove(&mut self, count: usize) {
        self.entries.drain(..count);
        self.due = self
            .entries
            .first()
            .map_or(Time::FAR, |(out, _)| self.due_of(*out));
    }
}

/// The first links, and the second ones.
///
/// First links are only where routes begin, so that what enters them does so at the present moment,
/// and lead only to second ones. Second ones come only behind first ones. A link that feeds one other
/// alone is no first one: it has a better way.
fn find(links: &[Passage], hops: &[u32], routes: &[u32]) -> (Vec<bool>, Vec<bool>) {
    let able = |link: &Passage| link.lane().is_some_and(Lane::takes_time);
    let mut firsts = vec![false; links.len()];
    for route in routes {
        if let Some(first) = firsts.get_mut(hops[*route as usize] as usize) {
            *first = true;
        }
    }
    let mut seconds = Vec::with_capacity(links.len());
    for (first, link) in firsts.iter_mut().zip(links) {
        seconds.push(able(link) && !*first);
        *first &= able(link);
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
    #[inline]
    pub(super) fn gather(&mut self, at: Time, parcel: Parcel, link: u32) {
        let entry = match &mut self.links[link as usize] {
            Passage::Lane(lane) => lane.push(&mut self.store, at, parcel),
            Passage::Chain(_) => Entry::TooLate,
        };
        match entry {
            Entry::Taken(out) => self.batch.add(out, link),
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
        let count = self.batch.count(until);
        let mut even = true;
        for i in 0..count {
            if self.links.len() > CACHED && i % FETCHED == 0 {
                let next = &self.batch.entries[i..count.min(i + FETCHED)];
                let next = next.iter().map(|(_, link)| *link as usize);
                fetch(&self.links, &self.store, &self.hops, next);
            }
            let (out, link) = self.batch.entries[i];
            let Some((at, parcel)) = self.links[link as usize].pop(&mut self.store, out) else {
                continue;
            };
            let hop = parcel.hop + 1;
            let second = self.hops[hop as usize] & !FEEDER;
            let exit = self.forward(at, Parcel { hop, ..parcel });
            debug_assert!(exit.is_none(), "there is a second link");
            even &= self.links[second as usize].lane().is_some();
        }
        self.batch.remove(count);
        if !even {
            self.end_batches();
        }
    }

    /// From now on packets are moved on one by one, since a link has become of another kind. All that
    /// was due has been moved on.
    #[cold]
    pub(super) fn end_batches(&mut self) {
        for hop in &mut self.hops {
            if *hop & END == 0 {
                *hop &= !BATCHED;
            }
        }
        self.batch.firsts.fill(false);
        let count = self.batch.entries.len();
        for i in 0..count {
            self.plan(self.batch.entries[i].1 as usize);
        }
        self.batch.remove(count);
    }
}

/// Marks a link at the beginning of a route, in the list of hops, whose packets are moved on in
/// batches.
pub(super) const BATCHED: u32 = 1 << 29;

/// Of so many packets at once is looked at what they will touch.
const FETCHED: usize = 16;
