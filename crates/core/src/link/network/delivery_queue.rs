//! Packets on their last links, by the moment at which they come out.
//!
//! With many links next to nothing of what a packet touches is in the cache. A packet on the last
//! link of its route can only come out of it, when it was known at once. So it waits here, among all
//! that do, and comes out of here: neither its link nor a ring of that nor an agenda is touched again.
//! The links count what they took, and learn what is inside of them when somebody asks.

use super::super::packet_pool::PacketHandle;
use super::calendar_queue::{CalendarQueue, Due};
use crate::units::{Bytes, Time};

/// The packets of some links.
#[derive(Debug, Default)]
pub(super) struct DeliveryQueue {
    /// Whose packets are here.
    links: Vec<bool>,
    days: CalendarQueue<Leaving>,
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

impl Due for Leaving {
    #[inline]
    fn due(&self) -> Time {
        self.out
    }
}

impl DeliveryQueue {
    /// Empty, for those of `links` that are marked.
    pub(super) fn new(links: Vec<bool>) -> Self {
        Self {
            links,
            days: CalendarQueue::new(LEAD + 4 * STRIDE, WANTED),
            taken: 0,
        }
    }

    /// When the next packet comes out; [`Time::FAR`] if there is none.
    #[inline]
    pub(super) fn due(&self) -> Time {
        self.days.due()
    }

    /// The same, and of which link.
    #[inline]
    pub(super) fn first(&self) -> Option<(Time, usize)> {
        let first = self.days.first()?;
        Some((first.out, first.link as usize))
    }

    #[inline]
    pub(super) fn put(&mut self, leaving: Leaving) {
        self.days.put(leaving);
    }

    /// The next packet. Whether a stride is over.
    #[inline]
    pub(super) fn take(&mut self) -> Option<(Leaving, bool)> {
        let leaving = self.days.take()?;
        self.taken = (self.taken + 1) % STRIDE;
        Some((leaving, self.taken == 0))
    }

    /// The packets that come out soon, [`STRIDE`] in a group.
    #[inline]
    pub(super) fn coming(&self, group: usize) -> &[Leaving] {
        self.days.coming(LEAD + group * STRIDE, STRIDE)
    }

    /// Whether packets of a link are here.
    #[inline]
    pub(super) fn has(&self, link: usize) -> bool {
        self.links.get(link).is_some_and(|here| *here)
    }

    /// All packets, in no order.
    pub(super) fn into_all(self) -> Vec<Leaving> {
        self.days.into_all()
    }

    /// Takes out what is on one link, in order, of which nothing comes here any more.
    pub(super) fn take_of(&mut self, link: usize) -> Vec<Leaving> {
        self.links[link] = false;
        self.days
            .take_those(|leaving| leaving.link as usize == link)
    }
}

impl Leaving {
    /// What links hand on of it.
    pub(super) fn parcel(&self, size: Bytes) -> PacketHandle {
        PacketHandle {
            size,
            slot: self.slot,
            hop: self.end - 1,
        }
    }
}

/// So many share a day: enough for the lines that the days end with to stay in the cache.
pub(super) const WANTED: u64 = 128;

/// How many packets make a step of a look ahead, and how many come out before the first of them.
pub(super) const STRIDE: usize = 8;
const LEAD: usize = 4;

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
            let mut shelf = DeliveryQueue::new(vec![true; 50]);
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
                    prop_assert!(!shelf.has(*link as usize));
                }
                prop_assert_eq!(shelf.due(), model.first().map_or(Time::FAR, |first| first.out));
            }
            let mut all = shelf.into_all();
            all.sort_unstable();
            prop_assert_eq!(all, Vec::from_iter(model));
        }
    }
}
