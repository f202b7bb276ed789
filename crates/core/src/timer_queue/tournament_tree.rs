//! An agenda of few slots.

use crate::units::Time;

/// A tournament (Knuth, "The Art of Computer Programming" volume 3, section 5.4.1): slots play in
/// groups of four, winners play winners, and who wins the last round is first. A deadline that
/// changes plays its rounds again.
///
/// Rounds are all played, however they end, and none of them is a branch: what a processor cannot
/// foretell here it need not. With some hundred slots that is worth more than the rounds cost.
#[derive(Clone, Debug)]
pub(super) struct TournamentTree {
    /// The winner of group `i` plays in group `i / 4`, and the last one is in group 0.
    groups: Vec<[u64; 4]>,
    /// Slots and what fills them up to a power of four.
    places: usize,
    first: u64,
}

impl TournamentTree {
    /// All `slots` without a deadline, at most [`MOST_SLOTS`].
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
            entry => (time(entry), entry as usize % MOST_SLOTS),
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

    /// Whether it is set; it is not if that is too late to be kept here.
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

/// A deadline and its slot are one number, which is less for who is earlier.
const SLOT_BITS: u32 = 10;
/// No deadline.
const NEVER: u64 = u64::MAX;
/// What is not earlier, from 208 days on, does not fit.
pub(super) const END: Time = Time::from_nanos(u64::MAX >> SLOT_BITS);
/// So many slots can be told apart.
pub(super) const MOST_SLOTS: usize = 1 << SLOT_BITS;
