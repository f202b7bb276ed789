//! Numbered places that are taken and given back.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Places. One that was given back is not taken again for a while: a program in the kernel may just
/// be at work with it.
#[derive(Debug)]
pub(super) struct Places {
    /// With the time at which they were given back. The longest free is first.
    free: VecDeque<(u32, Option<Instant>)>,
    /// How often each was taken.
    uses: Vec<u32>,
}

impl Places {
    pub(super) fn new(many: u32) -> Self {
        Self {
            free: (0..many).map(|place| (place, None)).collect(),
            uses: vec![0; many as usize],
        }
    }

    /// A place, and how often it was taken, this time included.
    pub(super) fn take(&mut self, now: Instant) -> Option<(u32, u32)> {
        let &(place, since) = self.free.front()?;
        if since.is_some_and(|since| now.duration_since(since) < REST) {
            return None;
        }
        self.free.pop_front();
        let uses = &mut self.uses[place as usize];
        *uses = uses.wrapping_add(1);
        Some((place, *uses))
    }

    pub(super) fn give(&mut self, place: u32, now: Instant) {
        self.free.push_back((place, Some(now)));
    }

    /// Whether any is taken.
    pub(super) fn any_taken(&self) -> bool {
        self.free.len() < self.uses.len()
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
        let mut places = Places::new(2);
        assert_eq!(places.take(start), Some((0, 1)));
        assert_eq!(places.take(start), Some((1, 1)));
        assert_eq!(places.take(start), None);
        places.give(1, start);
        assert!(places.any_taken());
        assert_eq!(places.take(start + REST / 2), None);
        assert_eq!(places.take(start + REST), Some((1, 2)));
        places.give(0, start + REST);
        places.give(1, start + REST);
        assert!(!places.any_taken());
    }
}
