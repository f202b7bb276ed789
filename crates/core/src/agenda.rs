//! Who is next: the earliest of a fixed number of deadlines.

use crate::units::Time;

/// A deadline for each of a fixed number of slots, and the earliest of them at hand.
///
/// A tournament: every inner node knows the earlier of its two children, so that a change walks
/// from a leaf towards the root and stops where it no longer matters. Unlike a heap it needs no
/// index of where things are, never holds an entry that is out of date, and does not allocate.
/// Of equal deadlines the lower slot is first, which makes the order total.
#[derive(Clone, Debug)]
pub struct Agenda {
    /// Node `i` has the children `2i` and `2i + 1`; leaves begin at `leaves`. Node 0 is unused.
    nodes: Box<[Entry]>,
    leaves: usize,
}

/// A deadline and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Time,
    slot: u32,
}

impl Agenda {
    /// All `slots` without a deadline. At most 2³¹ of them, which is more than memory holds.
    pub fn new(slots: usize) -> Self {
        let leaves = slots.max(1).next_power_of_two();
        let mut nodes = vec![
            Entry {
                at: Time::FAR,
                slot: 0
            };
            2 * leaves
        ];
        for node in (1..2 * leaves).rev() {
            nodes[node].slot = if node >= leaves {
                (node - leaves) as u32
            } else {
                nodes[2 * node].slot
            };
        }
        Self {
            nodes: nodes.into_boxed_slice(),
            leaves,
        }
    }

    /// The earliest deadline and its slot; [`Time::FAR`] while no slot has one.
    #[inline]
    pub fn first(&self) -> (Time, usize) {
        let first = self.nodes[1];
        (first.at, first.slot as usize)
    }

    /// The deadline of a slot; [`Time::FAR`] if it has none. Panics if there is no such slot.
    #[inline]
    pub fn get(&self, slot: usize) -> Time {
        self.nodes[self.leaves + slot].at
    }

    /// Sets the deadline of a slot; [`Time::FAR`] takes it away. Panics if there is no such slot.
    #[inline]
    pub fn set(&mut self, slot: usize, at: Time) {
        let mut node = self.leaves + slot;
        if self.nodes[node].at == at {
            return;
        }
        self.nodes[node] = Entry {
            at,
            slot: slot as u32,
        };
        while node > 1 {
            let pair = node & !1;
            let (left, right) = (self.nodes[pair], self.nodes[pair + 1]);
            let winner = if right.at < left.at { right } else { left };
            node /= 2;
            // Whoever won here before and still does won further up for the same reasons.
            if self.nodes[node] == winner {
                return;
            }
            self.nodes[node] = winner;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a search through all of them.
        #[test]
        fn the_earliest_is_first(
            slots in 1..40_usize,
            changes in prop::collection::vec((0..40_usize, 0..20_u64), 0..200),
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
