//! Numbered slots, each with a user, and a cooldown before a released slot is reused.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// The slots. A program in the kernel may still access a released slot, so it is not reused within
/// [`COOLDOWN`]. Until then it counts as a slot of its last user. A user could occupy all slots one
/// after the other otherwise.
#[derive(Debug)]
pub(super) struct SlotAllocator {
    /// The slot that is free for the longest time is first.
    free: VecDeque<u32>,
    /// Released slots with the time of their release, in that order.
    cooling: VecDeque<(u32, Instant)>,
    all: Vec<Slot>,
    /// Number of slots of each user that has any.
    held: BTreeMap<u32, u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Number of allocations.
    uses: u32,
    /// The last user.
    user: u32,
}

impl SlotAllocator {
    pub(super) fn new(many: u32) -> Self {
        Self {
            free: (0..many).collect(),
            cooling: VecDeque::new(),
            all: vec![Slot::default(); many as usize],
            held: BTreeMap::new(),
        }
    }

    /// A slot for a user, and its number of allocations including this one.
    pub(super) fn allocate(&mut self, user: u32, now: Instant) -> Option<(u32, u32)> {
        self.expire(now);
        let number = self.free.pop_front()?;
        let slot = &mut self.all[number as usize];
        slot.uses = slot.uses.wrapping_add(1);
        slot.user = user;
        *self.held.entry(user).or_default() += 1;
        Some((number, slot.uses))
    }

    pub(super) fn release(&mut self, slot: u32, now: Instant) {
        self.cooling.push_back((slot, now));
    }

    /// Number of slots of a user, including those in their cooldown.
    pub(super) fn held_by(&mut self, user: u32, now: Instant) -> u32 {
        self.expire(now);
        self.held.get(&user).copied().unwrap_or(0)
    }

    /// Number of slots that can be allocated.
    pub(super) fn free(&mut self, now: Instant) -> usize {
        self.expire(now);
        self.free.len()
    }

    /// Whether any slot is allocated.
    pub(super) fn any_allocated(&self) -> bool {
        self.free.len() + self.cooling.len() < self.all.len()
    }

    /// Frees the slots whose cooldown is over.
    fn expire(&mut self, now: Instant) {
        while let Some(&(slot, since)) = self.cooling.front()
            && now.duration_since(since) >= COOLDOWN
        {
            self.cooling.pop_front();
            self.free.push_back(slot);
            let user = self.all[slot as usize].user;
            if let Some(many) = self.held.get_mut(&user) {
                *many -= 1;
                if *many == 0 {
                    self.held.remove(&user);
                }
            }
        }
    }
}

/// Programs in the kernel run for microseconds. The margin is for a virtual machine whose
/// processors are descheduled.
const COOLDOWN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_slots_are_reused_after_a_cooldown() {
        let start = Instant::now();
        let mut slots = SlotAllocator::new(2);
        assert_eq!(slots.allocate(7, start), Some((0, 1)));
        assert_eq!(slots.allocate(7, start), Some((1, 1)));
        assert_eq!(slots.allocate(7, start), None);
        slots.release(1, start);
        assert!(slots.any_allocated());
        assert_eq!(slots.allocate(7, start + COOLDOWN / 2), None);
        assert_eq!(slots.allocate(7, start + COOLDOWN), Some((1, 2)));
        slots.release(0, start + COOLDOWN);
        slots.release(1, start + COOLDOWN);
        assert!(!slots.any_allocated());
    }

    #[test]
    fn slots_in_their_cooldown_count_for_their_last_user() {
        let start = Instant::now();
        let mut slots = SlotAllocator::new(3);
        assert_eq!(slots.allocate(7, start), Some((0, 1)));
        assert_eq!(slots.allocate(8, start), Some((1, 1)));
        slots.release(0, start);
        assert_eq!([slots.held_by(7, start), slots.held_by(8, start)], [1, 1]);
        assert_eq!(slots.free(start), 1);
        let later = start + COOLDOWN;
        assert_eq!([slots.held_by(7, later), slots.held_by(8, later)], [0, 1]);
        assert_eq!(slots.free(later), 2);
    }
}
