//! Who is next: the earliest of a fixed number of deadlines.

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
    /// The deadlines of the slots first, then for each group below the earliest of it, and so on
    /// up to the one that is earliest of all. Each level is filled up with [`Time::FAR`].
    levels: Vec<Level>,
}

#[derive(Clone, Debug)]
struct Level {
    at: Vec<Time>,
    /// Whose deadline it is.
    slot: Vec<u32>,
}

impl Agenda {
    /// All `slots` without a deadline. At most 2³¹ of them, which is more than memory holds.
    pub fn new(slots: usize) -> Self {
        let mut levels = Vec::new();
        let mut size = slots.max(1);
        let mut reach = 1;
        loop {
            let full = if size > 1 {
                size.next_multiple_of(GROUP)
            } else {
                1
            };
            levels.push(Level {
                at: vec![Time::FAR; full],
                slot: (0..full).map(|i| (i * reach) as u32).collect(),
            });
            if size == 1 {
                return Self { levels };
            }
            size = full / GROUP;
            reach *= GROUP;
        }
    }

    /// The earliest deadline and its slot; [`Time::FAR`] while no slot has one.
    #[inline]
    pub fn first(&self) -> (Time, usize) {
        let top = &self.levels[self.levels.len() - 1];
        (top.at[0], top.slot[0] as usize)
    }

    /// The deadline of a slot; [`Time::FAR`] if it has none. Panics if there is no such slot.
    #[inline]
    pub fn get(&self, slot: usize) -> Time {
        self.levels[0].at[slot]
    }

    /// Sets the deadline of a slot; [`Time::FAR`] takes it away. Panics if there is no such slot.
    #[inline]
    pub fn set(&mut self, slot: usize, at: Time) {
        if self.levels[0].at[slot] == at {
            return;
        }
        self.levels[0].at[slot] = at;
        let (mut entry, mut child) = ((at, slot as u32), slot);
        for level in 1..self.levels.len() {
            let (below, above) = self.levels.split_at_mut(level);
            let (below, above) = (&below[level - 1], &mut above[0]);
            let group = child / GROUP;
            let best = (above.at[group], above.slot[group]);
            let winner = if entry < best {
                entry
            } else if best.1 as usize >> (BITS * (level - 1)) == child {
                below.earliest(group)
            } else {
                return;
            };
            if winner == best {
                return;
            }
            (above.at[group], above.slot[group]) = winner;
            (entry, child) = (winner, group);
        }
    }
}

impl Level {
    /// The earliest of a group, the first of equal ones.
    #[inline]
    fn earliest(&self, group: usize) -> (Time, u32) {
        let from = group * GROUP;
        let at = &self.at[from..from + GROUP];
        let (mut best, mut index) = (at[0], 0);
        for (i, at) in at.iter().enumerate().skip(1) {
            // Both are conditional moves: which is earlier cannot be foreseen.
            index = if *at < best { i } else { index };
            best = if *at < best { *at } else { best };
        }
        (best, self.slot[from + index])
    }
}

const BITS: usize = 3;
const GROUP: usize = 1 << BITS;

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
