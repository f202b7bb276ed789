//! Packets on their last links, by departure time.
//!
//! With many links most accesses per packet are cache misses. A packet on the last link of its
//! route can only depart, at a time known at enqueue. It is therefore stored here, in one queue for
//! all last links; neither its link nor the link's ring nor the timer queue is accessed at
//! departure. The links count accepted packets, and receive the packets inside when the caller
//! accesses them.

use super::calendar_queue::{CalendarQueue, Due};
use crate::link::packet_pool::PacketHandle;
use crate::units::{Bytes, Time};

/// Packets of the last links.
#[derive(Debug, Default)]
pub(super) struct DeliveryQueue {
    /// Links whose packets are here.
    links: Vec<bool>,
    days: CalendarQueue<Leaving>,
    /// Number of removed packets, modulo [`STRIDE`].
    taken: usize,
}

/// A packet on its last link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Leaving {
    /// Departure time.
    pub(super) out: Time,
    /// The last link. Departure times of one link are distinct.
    pub(super) link: u32,
    /// Slot of the packet.
    pub(super) slot: u32,
    /// End of its route in the hop list of the network.
    pub(super) end: u32,
}

impl Due for Leaving {
    #[inline]
    fn due(&self) -> Time {
        self.out
    }
}

impl DeliveryQueue {
    /// Empty queue for the marked `links`.
    pub(super) fn new(links: Vec<bool>) -> Self {
        Self {
            links,
            days: CalendarQueue::new(LEAD + 4 * STRIDE, WANTED),
            taken: 0,
        }
    }

    /// Time of the next departure; [`Time::FAR`] if there is none.
    #[inline]
    pub(super) fn due(&self) -> Time {
        self.days.due()
    }

    /// Time and link of the next departure.
    #[inline]
    pub(super) fn first(&self) -> Option<(Time, usize)> {
        let first = self.days.first()?;
        Some((first.out, first.link as usize))
    }

    #[inline]
    pub(super) fn put(&mut self, leaving: Leaving) {
        self.days.put(leaving);
    }

    /// Removes the next packet. The flag is set once per [`STRIDE`] packets.
    #[inline]
    pub(super) fn take(&mut self) -> Option<(Leaving, bool)> {
        let leaving = self.days.take()?;
        self.taken = (self.taken + 1) % STRIDE;
        Some((leaving, self.taken == 0))
    }

    /// The next packets, in groups of [`STRIDE`].
    #[inline]
    pub(super) fn coming(&self, group: usize) -> &[Leaving] {
        self.days.coming(LEAD + group * STRIDE, STRIDE)
    }

    /// Whether the packets of a link are here.
    #[inline]
    pub(super) fn has(&self, link: usize) -> bool {
        self.links.get(link).is_some_and(|here| *here)
    }

    /// All packets, unordered.
    pub(super) fn into_all(self) -> Vec<Leaving> {
        self.days.into_all()
    }

    /// Removes the packets of a link, in order, and excludes the link from now on.
    pub(super) fn take_of(&mut self, link: usize) -> Vec<Leaving> {
        self.links[link] = false;
        self.days
            .take_those(|leaving| leaving.link as usize == link)
    }
}

impl Leaving {
    /// Handle of the packet.
    pub(super) fn handle(&self, size: Bytes) -> PacketHandle {
        PacketHandle {
            size,
            slot: self.slot,
            hop: self.end - 1,
        }
    }
}

/// Packets per day: enough for the lines at the ends of the days to stay in the cache.
pub(super) const WANTED: u64 = 128;

/// Packets per prefetch step, and distance of the first step in packets.
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

    /// Time span, left shift of the span, link, and number of packets removed before.
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
            let mut deliveries = DeliveryQueue::new(vec![true; 50]);
            let mut model = BTreeSet::new();
            let mut now = 0;
            let parted = parted.index(puts.len());
            for (i, (span, shift, link, taken)) in puts.iter().enumerate() {
                for _ in 0..*taken {
                    let next = deliveries.take().map(|(leaving, _)| leaving);
                    prop_assert_eq!(next, model.pop_first());
                    now = next.map_or(now, |next| next.out.as_nanos());
                    let soon: Vec<_> = (0..4).flat_map(|group| deliveries.coming(group)).collect();
                    let expected: Vec<_> = model.iter().skip(LEAD).take(4 * STRIDE).collect();
                    prop_assert_eq!(soon, expected);
                }
                let new = leaving(now + (span << shift.min(&most)), *link);
                if deliveries.has(*link as usize) && model.insert(new) {
                    deliveries.put(new);
                }
                if i == parted {
                    let own: Vec<_> = model.extract_if(.., |leaving| leaving.link == *link).collect();
                    prop_assert_eq!(deliveries.take_of(*link as usize), own);
                    prop_assert!(!deliveries.has(*link as usize));
                }
                prop_assert_eq!(deliveries.due(), model.first().map_or(Time::FAR, |first| first.out));
            }
            let mut all = deliveries.into_all();
            all.sort_unstable();
            prop_assert_eq!(all, Vec::from_iter(model));
        }
    }
}
