//! Timer queue for few slots.

use crate::units::Time;

/// Tournament tree (Knuth, "The Art of Computer Programming" volume 3, section 5.4.1) of arity
/// four. A change of a deadline updates the path from its leaf to the root.
///
/// The path is always updated up to the root, without branches, which avoids mispredictions. With
/// about 100 slots this outweighs the extra updates.
#[derive(Clone, Debug)]
pub(super) struct TournamentTree {
    /// The minimum of group `i` is an entry of group `i / 4`; the root is group 0.
    groups: Vec<[u64; 4]>,
    /// Number of leaves: the slots, padded to a power of four.
    places: usize,
    first: u64,
}

impl TournamentTree {
    /// Queue of `slots` slots without deadlines, at most [`MAX_SLOTS`].
    pub(super) fn new(slots: usize) -> Self {
        let mut places = 4;
        while places < slots {
            places *= 4;
        }
        Self {
            groups: vec![[NEVER; 4]; places / 2],
            places,
            first: NEVER,
        }
    }

    #[inline]
    pub(super) fn first(&self) -> (Time, usize) {
        match self.first {
            NEVER => (Time::FAR, 0),
            entry => (time(entry), entry as usize % MAX_SLOTS),
        }
    }

    #[inline]
    pub(super) fn get(&self, slot: usize) -> Time {
        let place = self.places + slot;
        match self.groups[place / 4][place % 4] {
            NEVER => Time::FAR,
            entry => time(entry),
        }
    }

    /// Sets a deadline. Returns `false` if the deadline is too late to be represented.
    #[inline]
    pub(super) fn set(&mut self, slot: usize, at: Time) -> bool {
        let mut winner = if at == Time::FAR {
            NEVER
        } else if at < END {
            at.as_nanos() << SLOT_BITS | slot as u64
        } else {
            return false;
        };
        let mut place = self.places + slot;
        while place > 1 {
            let (group, i) = (&mut self.groups[place / 4], place % 4);
            group[i] = winner;
            let others = group[i ^ 1].min(group[i ^ 2]).min(group[i ^ 3]);
            winner = winner.min(others);
            place /= 4;
        }
        self.first = winner;
        true
    }
}

#[inline]
fn time(entry: u64) -> Time {
    Time::from_nanos(entry >> SLOT_BITS)
}

/// Deadline and slot are packed into one integer; a smaller integer is earlier.
const SLOT_BITS: u32 = 10;
/// No deadline.
const NEVER: u64 = u64::MAX;
/// First deadline that cannot be represented: 208 days.
pub(super) const END: Time = Time::from_nanos(u64::MAX >> SLOT_BITS);
/// Maximum number of slots.
pub(super) const MAX_SLOTS: usize = 1 << SLOT_BITS;
