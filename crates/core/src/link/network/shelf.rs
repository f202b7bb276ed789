//! Packets on their last links, by the moment at which they come out.
//!
//! With many links next to nothing of what a packet touches is in the cache. A packet on the last
//! link of its route can only come out of it, when it was known at once. So it waits here, among all
//! that do, and comes out of here: neither its link nor a ring of that nor an agenda is touched again.
//! The links count what they took, and learn what is inside of them when somebody asks.

use core::mem;

use super::super::store::Parcel;
use crate::units::{Bytes, Time, nanos};

/// A calendar whose days are arrays (compare [`Agenda`](crate::agenda::Agenda), whose deadlines move).
///
/// The next packets are in order, the others by day. The length of a day follows the packets.
#[derive(Debug)]
pub(super) struct Shelf {
    /// Whose packets are here.
    links: Vec<bool>,
    /// When the next packet comes out; [`Time::FAR`] if there is none.
    due: Time,
    /// All packets before the day `cursor`, in order; those before `next` have come out.
    front: Vec<Leaving>,
    next: usize,
    /// A ring of days, the length of which is zero or a power of two.
    days: Vec<Vec<Leaving>>,
    /// A bit for each of them that is not empty.
    full: Vec<u64>,
    /// Room for days.
    spare: Vec<Vec<Leaving>>,
    /// The ring has the days from this one on. A day is a number of nanoseconds without its lower
    /// `shift` bits.
    cursor: u64,
    shift: u32,
    /// Later packets, and the day of the first of them.
    beyond: Vec<Leaving>,
    beyond_from: u64,
    /// How many are in the ring or beyond it.
    waiting: usize,
    /// How many came to the front since the length of a day was looked at.
    passed: usize,
    /// How many came out, modulo [`STRIDE`].
    taken: usize,
}

/// A packet on its last link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Leaving {
    /// When it comes out.
    pub(super) out: Time,
    /// Of which link. No two come out of one at the same moment.
    pub(super) link: u32,
    /// Where it is kept.
    pub(super) slot: u32,
    /// The end of its route in the network's list of hops.
    pub(super) end: u32,
}

impl Default for Shelf {
    /// Empty, for none.
    fn default() -> Self {
        Self {
            links: Vec::new(),
            due: Time::FAR,
            front: Vec::new(),
            next: 0,
            days: Vec::new(),
            full: Vec::new(),
            spare: Vec::new(),
            cursor: 0,
            shift: FIRST_SHIFT,
            beyond: Vec::new(),
            beyond_from: u64::MAX,
            waiting: 0,
            passed: 0,
            taken: 0,
        }
    }
}

impl Shelf {
    /// Empty, for those of `links` that are marked.
    pub(super) fn new(links: Vec<bool>) -> Self {
        Self {
            days: (0..DAYS).map(|_| Vec::new()).collect(),
            full: vec![0; DAYS / 64],
            links,
            ..Self::default()
        }
    }

    /// When the next packet comes out; [`Time::FAR`] if there is none.
    #[inline]
    pub(super) fn due(&self) -> Time {
        self.due
    }

    /// The same, and of which link.
    #[inline]
    pub(super) fn first(&self) -> Option<(Time, usize)> {
        let first = self.front.get(self.next)?;
        Some((first.out, first.link as usize))
    }

    #[inline]
    pub(super) fn put(&mut self, leaving: Leaving) {
        let day = leaving.out.as_nanos() >> self.shift;
        self.due = self.due.min(leaving.out);
        if day < self.cursor {
            self.jump_in(leaving);
            return;
        }
        self.keep(day, leaving);
        if self.front.len() == self.next {
            self.refill();
        }
    }

    /// The next packet. Whether a stride is over.
    #[inline]
    pub(super) fn take(&mut self) -> Option<(Leaving, bool)> {
        let leaving = *self.front.get(self.next)?;
        self.next += 1;
        self.taken = (self.taken + 1) % STRIDE;
        if self.front.len() - self.next < KNOWN && self.waiting > 0 {
            self.refill();
        }
        self.due = self.first().map_or(Time::FAR, |(out, _)| out);
        Some((leaving, self.taken == 0))
    }

    /// The packets that come out soon, [`STRIDE`] in a group.
    #[inline]
    pub(super) fn coming(&self, group: usize) -> &[Leaving] {
        let from = self.next + LEAD + group * STRIDE;
        let end = self.front.len().min(from + STRIDE);
        self.front.get(from..end).unwrap_or_default()
    }

    /// Whether packets of a link are here.
    #[inline]
    pub(super) fn has(&self, link: usize) -> bool {
        self.links.get(link).is_some_and(|here| *here)
    }

    /// The links whose packets are here.
    pub(super) fn links(&self) -> impl Iterator<Item = usize> {
        (0..self.links.len()).filter(|link| self.links[*link])
    }

    /// All packets, in no order.
    pub(super) fn into_all(mut self) -> Vec<Leaving> {
        self.front.drain(..self.next);
        let rest = self.days.into_iter().flatten().chain(self.beyond);
        self.front.into_iter().chain(rest).collect()
    }

    /// Takes out what is on one link, in order, of which nothing comes here any more.
    pub(super) fn take_of(&mut self, link: usize) -> Vec<Leaving> {
        self.links[link] = false;
        self.front.drain(..self.next);
        self.next = 0;
        let is_own = |leaving: &mut Leaving| leaving.link as usize == link;
        let mut own: Vec<_> = self.front.extract_if(.., is_own).collect();
        let known = own.len();
        for list in self.days.iter_mut().chain([&mut self.beyond]) {
            own.extend(list.extract_if(.., is_own));
        }
        own.sort_unstable();
        self.waiting -= own.len() - known;
        if self.front.len() == self.next && self.waiting > 0 {
            self.refill();
        }
        self.due = self.first().map_or(Time::FAR, |(out, _)| out);
        own
    }

    /// Among those at the front. Where many are, days have become too long.
    #[inline(never)]
    fn jump_in(&mut self, leaving: Leaving) {
        let soon = &self.front[self.next..];
        let place = soon.partition_point(|other| *other < leaving);
        if soon.len() > MOST_SOON {
            let shift = shift_for(soon);
            if shift + 1 < self.shift {
                self.cut_anew(shift);
                return self.put(leaving);
            }
        }
        self.front.insert(self.next + place, leaving);
    }

    /// In the ring or beyond it.
    #[inline]
    fn keep(&mut self, day: u64, leaving: Leaving) {
        self.waiting += 1;
        if day - self.cursor >= DAYS as u64 {
            self.beyond_from = self.beyond_from.min(day);
            self.beyond.push(leaving);
            return;
        }
        let place = day as usize % DAYS;
        let list = &mut self.days[place];
        if list.is_empty() {
            self.full[place / 64] |= 1 << (place % 64);
            if list.capacity() == 0 {
                *list = self.spare.pop().unwrap_or_default();
            }
        }
        list.push(leaving);
    }

    /// Brings days to the front; there is something to bring.
    #[inline(never)]
    fn refill(&mut self) {
        self.front.drain(..self.next);
        self.next = 0;
        self.fill();
        if self.passed < PERIOD {
            return;
        }
        self.passed = 0;
        let shift = shift_for(&self.front);
        if shift.abs_diff(self.shift) > 1 {
            self.cut_anew(shift);
        }
    }

    /// Brings days to the front until enough is known.
    fn fill(&mut self) {
        while self.front.len() - self.next < KNOWN && self.waiting > 0 {
            let day = self.next_day();
            let place = day as usize % DAYS;
            self.cursor = day + 1;
            self.full[place / 64] &= !(1 << (place % 64));
            let mut list = mem::take(&mut self.days[place]);
            list.sort_unstable();
            self.waiting -= list.len();
            self.passed += list.len();
            self.front.append(&mut list);
            self.spare.push(list);
        }
    }

    /// The next day of the ring that is not empty.
    fn next_day(&mut self) -> u64 {
        loop {
            let day = self.day_from(self.cursor);
            if let Some(day) = day.filter(|day| *day < self.beyond_from) {
                return day;
            }
            // The first that is beyond the ring is next.
            self.cursor = self.beyond_from;
            self.beyond_from = u64::MAX;
            let beyond = mem::take(&mut self.beyond);
            self.waiting -= beyond.len();
            for leaving in beyond {
                self.keep(leaving.out.as_nanos() >> self.shift, leaving);
            }
        }
    }

    /// The first day of the ring from `cursor` on that is not empty.
    fn day_from(&self, cursor: u64) -> Option<u64> {
        let start = cursor as usize % DAYS;
        let words = DAYS / 64;
        // The word of the first day comes twice: its upper bits first, its lower ones last.
        (0..=words).find_map(|i| {
            let word = (start / 64 + i) % words;
            let mask = match i {
                0 => u64::MAX << (start % 64),
                i if i == words => !(u64::MAX << (start % 64)),
                _ => u64::MAX,
            };
            let bits = self.full[word] & mask;
            (bits != 0).then(|| {
                let place = word * 64 + bits.trailing_zeros() as usize;
                cursor + ((place + DAYS - start) % DAYS) as u64
            })
        })
    }

    /// Gives days another length.
    #[cold]
    fn cut_anew(&mut self, shift: u32) {
        let lists = self.days.iter_mut().chain([&mut self.beyond]);
        let mut all: Vec<_> = lists.flat_map(|list| list.drain(..)).collect();
        all.extend(self.front.drain(..).skip(self.next));
        let first = all.iter().map(|leaving| leaving.out).min();
        self.full.fill(0);
        (self.next, self.waiting) = (0, 0);
        self.beyond_from = u64::MAX;
        self.shift = shift;
        self.cursor = first.map_or(0, |first| first.as_nanos() >> shift);
        for leaving in all {
            self.keep(leaving.out.as_nanos() >> shift, leaving);
        }
        self.fill();
    }
}

/// For [`WANTED`] packets a day, where these are some in a row.
fn shift_for(row: &[Leaving]) -> u32 {
    let (Some(first), Some(last)) = (row.first(), row.last()) else {
        return FIRST_SHIFT;
    };
    let gap = nanos(last.out.since(first.out)) / row.len() as u64;
    let length = gap.saturating_mul(WANTED).max(1);
    length.ilog2().clamp(LEAST_SHIFT, MOST_SHIFT)
}

impl Leaving {
    /// What links hand on of it.
    pub(super) fn parcel(&self, size: Bytes) -> Parcel {
        Parcel {
            size,
            slot: self.slot,
            hop: self.end - 1,
        }
    }
}

/// Days of the ring.
const DAYS: usize = 1024;

/// Days of 66 us at first, and of 0.5 us to 18 minutes.
const FIRST_SHIFT: u32 = 16;
const LEAST_SHIFT: u32 = 9;
const MOST_SHIFT: u32 = 40;

/// So many packets share a day: enough for the lines that the days end with to stay in the cache.
const WANTED: u64 = 128;

/// After so many packets the length of a day is looked at, and where so many are at the front.
const PERIOD: usize = 4096;
const MOST_SOON: usize = 1024;

/// How many packets make a step of a look ahead, how many come out before the first of them, and how
/// many are known.
pub(super) const STRIDE: usize = 8;
const LEAD: usize = 4;
const KNOWN: usize = LEAD + 4 * STRIDE;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn leaving(nanos: u64, link: u32) -> Leaving {
        Leaving {
            out: Time::from_nanos(nanos),
            link,
            slot: 0,
            end: 0,
        }
    }

    /// More than a ring holds, then as dense as can be, then at one moment.
    #[test]
    fn days_follow_the_packets() {
        let mut shelf = Shelf::new(vec![true; 40_000]);
        let shifts = [10_000_000_000, 1_000_000, 10, 0].map(|gap| {
            let from = shelf.cursor << shelf.shift;
            for i in 0..40_000 {
                shelf.put(leaving(from + i * gap, i as u32));
            }
            let mut last = shelf.due();
            for _ in 0..40_000 {
                let (next, _) = shelf.take().unwrap();
                assert!(next.out >= last);
                last = next.out;
            }
            assert_eq!(shelf.take(), None);
            assert_eq!(shelf.due(), Time::FAR);
            shelf.shift
        });
        assert_eq!(shifts, [40, 26, 10, 10]);
    }

    /// A span, how many times it is shifted to the left, which link, and how many packets are taken
    /// before.
    fn puts() -> impl Strategy<Value = Vec<(u64, u32, u32, usize)>> {
        let put = (0..1_000_u64, 0..40_u32, 0..50_u32, 0..3_usize);
        prop::collection::vec(put, 1..3_000)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn packets_come_out_in_order(
            puts in puts(),
            most in 0..40_u32,
            parted in any::<prop::sample::Index>(),
        ) {
            let mut shelf = Shelf::new(vec![true; 50]);
            let mut model = BTreeSet::new();
            let mut now = 0;
            let parted = parted.index(puts.len());
            for (i, (span, shift, link, taken)) in puts.iter().enumerate() {
                for _ in 0..*taken {
                    let next = shelf.take().map(|(leaving, _)| leaving);
                    prop_assert_eq!(next, model.pop_first());
                    now = next.map_or(now, |next| next.out.as_nanos());
                    let soon: Vec<_> = (0..4).flat_map(|group| shelf.coming(group)).collect();
                    let expected: Vec<_> = model.iter().skip(LEAD).take(4 * STRIDE).collect();
                    prop_assert_eq!(soon, expected);
                }
                let new = leaving(now + (span << shift.min(&most)), *link);
                if shelf.has(*link as usize) && model.insert(new) {
                    shelf.put(new);
                }
                if i == parted {
                    let own: Vec<_> = model.extract_if(.., |leaving| leaving.link == *link).collect();
                    prop_assert_eq!(shelf.take_of(*link as usize), own);
                    prop_assert!(!shelf.links().any(|other| other as u32 == *link));
                }
                prop_assert_eq!(shelf.due(), model.first().map_or(Time::FAR, |first| first.out));
            }
            let mut all = shelf.into_all();
            all.sort_unstable();
            prop_assert_eq!(all, Vec::from_iter(model));
        }
    }
}
