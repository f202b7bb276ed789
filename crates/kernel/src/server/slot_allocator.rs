//! Numbered places that are taken and given back.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// SlotAllocator. One that was given back is not taken again for a while: a program in the kernel may just
/// be at work with it. Until then it counts as its last user's, who could otherwise take them all,
/// one after the other.
#[derive(Debug)]
pub(super) struct SlotAllocator {
    /// The longest free is first.
    free: VecDeque<u32>,
    /// With the time at which they were given back, in that order.
    resting: VecDeque<(u32, Instant)>,
    all: Vec<Place>,
    /// SlotAllocator of each user who has any.
    of: BTreeMap<u32, u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// How often it was taken.
    uses: u32,
    /// Who took it last.
    user: u32,
}

impl SlotAllocator {
    pub(super) fn new(many: u32) -> Self {
        Self {
            free: (0..many).collect(),
            resting: VecDeque::new(),
            all: vec![Place::default(); many as usize],
            of: BTreeMap::new(),
        }
    }

    /// A place for a user, and how often it was taken, this time included.
    pub(super) fn take(&mut self, user: u32, now: Instant) -> Option<(u32, u32)> {
        self.wake(now);
        let number = self.free.pop_front()?;
        let place = &mut self.all[number as usize];
        place.uses = place.uses.wrapping_add(1);
        place.user = user;
        *self.of.entry(user).or_default() += 1;
        Some((number, place.uses))
    }

    pub(super) fn give(&mut self, place: u32, now: Instant) {
        self.resting.push_back((place, now));
    }

    /// How many are a user's, those that rest included.
    pub(super) fn of(&mut self, user: u32, now: Instant) -> u32 {
        self.wake(now);
        self.of.get(&user).copied().unwrap_or(0)
    }

    /// How many nobody has and none of which rests.
    pub(super) fn free(&mut self, now: Instant) -> usize {
        self.wake(now);
        self.free.len()
    }

    /// Whether any is taken.
    pub(super) fn any_taken(&self) -> bool {
        self.free.len() + self.resting.len() < self.all.len()
    }

    /// Ends the rest of those that have had it.
    fn wake(&mut self, now: Instant) {
        while let Some(&(place, since)) = self.resting.front()
            && now.duration_since(since) >= REST
        {
            self.resting.pop_front();
            self.free.push_back(place);
            let user = self.all[place as usize].user;
            if let Some(many) = self.of.get_mut(&user) {
                *many -= 1;
                if *many == 0 {
                    self.of.remove(&user);
                }
            }
        }
    }
}

/// Programs run for microseconds; this leaves room for a machine that stands still.
const REST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_rest_before_they_are_taken_again() {
        let start = Instant::now();
        let mut places = SlotAllocator::new(2);
        assert_eq!(places.take(7, start), Some((0, 1)));
        assert_eq!(places.take(7, start), Some((1, 1)));
        assert_eq!(places.take(7, start), None);
        places.give(1, start);
        assert!(places.any_taken());
        assert_eq!(places.take(7, start + REST / 2), None);
        assert_eq!(places.take(7, start + REST), Some((1, 2)));
        places.give(0, start + REST);
        places.give(1, start + REST);
        assert!(!places.any_taken());
    }

    #[test]
    fn places_that_rest_count_as_their_last_users() {
        let start = Instant::now();
        let mut places = SlotAllocator::new(3);
        assert_eq!(places.take(7, start), Some((0, 1)));
        assert_eq!(places.take(8, start), Some((1, 1)));
        places.give(0, start);
        assert_eq!([places.of(7, start), places.of(8, start)], [1, 1]);
        assert_eq!(places.free(start), 1);
        let later = start + REST;
        assert_eq!([places.of(7, later), places.of(8, later)], [0, 1]);
        assert_eq!(places.free(later), 2);
    }
}
