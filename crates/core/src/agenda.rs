//! Who is next: the earliest of a fixed number of deadlines.

use core::{array, mem};

use crate::units::Time;

/// A deadline for each of a fixed number of slots, and the earliest of them at hand.
///
/// A tournament in groups of eight, which fill a cache line: every group knows its earliest
/// member. A deadline that is not the earliest of its group, before or after, changes nothing
/// else, and that is the rule; otherwise the change walks on to the group above. Unlike a heap it
/// never holds an entry that is out of date, moves nothing about, and does not allocate. Of equal
/// deadlines the lower slot is first, which makes the order total.
#[derive(Clone, Debug)]
pub struct Agenda {
    /// The deadlines of the slots first, then those of the earliest of each group below, and so on
    /// up to a level of one group. Filled up with [`Time::FAR`].
    at: Vec<Group>,
    /// Whose they are.
    slot: Vec<[u32; GROUP]>,
    /// Where each level begins.
    levels: Vec<usize>,
    /// The earliest of all.
    first: (Time, u32),
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Group([Time; GROUP]);

impl Agenda {
    /// All `slots` without a deadline. At most 2³¹ of them, which is more than memory holds.
    pub fn new(slots: usize) -> Self {
        let (mut slot, mut levels) = (Vec::new(), Vec::new());
        let (mut members, mut reach) = (slots, 1);
        loop {
            let groups = members.div_ceil(GROUP).max(1);
            levels.push(slot.len());
            let group = |g: usize| array::from_fn(|i| ((g * GROUP + i) * reach) as u32);
            slot.extend((0..groups).map(group));
            if groups == 1 {
                return Self {
                    at: vec![Group([Time::FAR; GROUP]); slot.len()],
                    slot,
                    levels,
                    first: (Time::FAR, 0),
                };
            }
            (members, reach) = (groups, reach * GROUP);
        }
    }

    /// The earliest deadline and its slot; [`Time::FAR`] while no slot has one.
    #[inline]
    pub fn first(&self) -> (Time, usize) {
        (self.first.0, self.first.1 as usize)
    }

    /// The deadline of a slot; [`Time::FAR`] if it has none. Panics if there is no such slot.
    #[inline]
    pub fn get(&self, slot: usize) -> Time {
        self.at[slot / GROUP].0[slot % GROUP]
    }

    /// Sets the deadline of a slot; [`Time::FAR`] takes it away. Panics if there is no such slot.
    #[inline]
    pub fn set(&mut self, slot: usize, at: Time) {
        if self.get(slot) != at {
            self.change(slot, at);
        }
    }

    fn change(&mut self, slot: usize, at: Time) {
        let (mut member, mut entry) = (slot, (at, slot as u32));
        for (level, start) in self.levels.iter().enumerate() {
            let (group, place) = (member / GROUP, member % GROUP);
            // The earliest of its group so far is the one that changes if it is the one that the
            // group had at this place.
            let was = mem::replace(&mut self.slot[start + group][place], entry.1);
            self.at[start + group].0[place] = entry.0;
            let best = match self.levels.get(level + 1) {
                Some(above) => {
                    let above = above + group / GROUP;
                    let place = group % GROUP;
                    (self.at[above].0[place], self.slot[above][place])
                }
                None => self.first,
            };
            if entry >= best {
                if best.1 != was {
                    return;
                }
                let (at, place) = self.at[start + group].earliest();
                entry = (at, self.slot[start + group][place]);
            }
            if entry == best {
                return;
            }
            member = group;
        }
        self.first = entry;
    }
}

impl Group {
    /// The earliest, the first of equal ones, and which it is. A tournament again, of conditional
    /// moves: which is earlier cannot be foreseen.
    #[inline]
    fn earliest(&self) -> (Time, usize) {
        let at = |place: usize| (self.0[place], place);
        let earlier = |a: (Time, usize), b: (Time, usize)| if b.0 < a.0 { b } else { a };
        let low = earlier(earlier(at(0), at(1)), earlier(at(2), at(3)));
        let high = earlier(earlier(at(4), at(5)), earlier(at(6), at(7)));
        earlier(low, high)
    }
}

const GROUP: usize = 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a search through all of them.
        #[test]
        fn the_earliest_is_first(
            slots in 1..700_usize,
            changes in prop::collection::vec((any::<usize>(), 0..20_u64), 0..300),
        ) {
            let mut agenda = Agenda::new(slots);
            let mut plain = vec![Time::FAR; slots];
            for (slot, at) in changes {
                let (slot, at) = (slot % slots, if at == 0 { Time::FAR } else { Time::from_nanos(at) });
                agenda.set(slot, at);
                plain[slot] = at;
                let first = (0..slots).min_by_key(|slot| (plain[*slot], *slot)).unwrap();
                prop_assert_eq!(agenda.first(), (plain[first], first));
                prop_assert_eq!(agenda.get(slot), at);
            }
        }
    }
}
