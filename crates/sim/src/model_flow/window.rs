//! Packets in flight whose fate is unknown.

use tidegate_core::units::Time;

/// When each packet left, from the oldest whose fate is open. A ring that grows while more are
/// out than ever before, up to [`MOST`].
#[derive(Debug)]
pub(super) struct Window {
    /// Nanoseconds, or [`SETTLED`]; the length is a power of two.
    slots: Vec<u64>,
    base: u64,
    next: u64,
}

impl Window {
    /// Nothing has left.
    pub(super) fn new() -> Self {
        Self {
            slots: vec![SETTLED; LEAST],
            base: 0,
            next: 0,
        }
    }

    /// The lowest number that may be open.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// The number of the next packet.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// A packet leaves; its number.
    pub(super) fn push(&mut self, at: Time) -> u64 {
        let seq = self.next;
        if seq - self.base == self.slots.len() as u64 {
            self.make_room();
        }
        let slot = self.slot(seq);
        self.slots[slot] = at.as_nanos();
        self.next += 1;
        seq
    }

    /// When packet `seq` left, if its fate is open.
    pub(super) fn sent(&self, seq: u64) -> Option<Time> {
        if seq < self.base || seq >= self.next {
            return None;
        }
        let nanos = self.slots[self.slot(seq)];
        (nanos != SETTLED).then_some(Time::from_nanos(nanos))
    }

    /// Shows the open packets up to `last`, in order, with when each left. Those of which `known`
    /// says that their fate is known are settled.
    pub(super) fn review(&mut self, last: u64, mut known: impl FnMut(u64, Time) -> bool) {
        let mask = self.slots.len() as u64 - 1;
        let mut seq = self.base;
        while seq < self.next && seq <= last {
            let slot = &mut self.slots[(seq & mask) as usize];
            if *slot != SETTLED && known(seq, Time::from_nanos(*slot)) {
                *slot = SETTLED;
            }
            if *slot == SETTLED && seq == self.base {
                self.base += 1;
            }
            seq += 1;
        }
        // Reports may come out of order: what is behind `last` may be settled already.
        while self.base < self.next && self.slots[self.slot(self.base)] == SETTLED {
            self.base += 1;
        }
    }

    /// Doubles the ring, or forgets the oldest packet if it is as large as it gets.
    fn make_room(&mut self) {
        if self.slots.len() == MOST {
            self.base += 1;
            return;
        }
        let mut slots = vec![SETTLED; 2 * self.slots.len()];
        let mask = slots.len() as u64 - 1;
        for seq in self.base..self.next {
            slots[(seq & mask) as usize] = self.slots[self.slot(seq)];
        }
        self.slots = slots;
    }

    fn slot(&self, seq: u64) -> usize {
        (seq & (self.slots.len() as u64 - 1)) as usize
    }
}

/// No packet leaves at the end of time.
const SETTLED: u64 = u64::MAX;
/// At first.
const LEAST: usize = 64;
/// A million packets without any news are 8 MiB; the oldest of more are forgotten.
const MOST: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_what_is_open_and_grows() {
        let mut window = Window::new();
        for seq in 0..1_000 {
            assert_eq!(window.push(Time::from_nanos(seq)), seq);
        }
        window.review(998, |seq, sent| {
            assert_eq!(sent, Time::from_nanos(seq));
            seq % 2 == 1
        });
        assert_eq!((window.base(), window.next()), (0, 1_000));
        assert_eq!(window.sent(1), None);
        assert_eq!(window.sent(998), Some(Time::from_nanos(998)));
        window.review(0, |seq, _| seq == 0);
        assert_eq!(window.base(), 2);
        let mut shown = vec![];
        window.review(u64::MAX, |seq, _| {
            shown.push(seq);
            true
        });
        assert_eq!(
            shown,
            (2..998).step_by(2).chain([998, 999]).collect::<Vec<_>>()
        );
        assert_eq!((window.base(), window.next()), (1_000, 1_000));
        assert_eq!(window.sent(0), None);
        assert_eq!(window.sent(1_000), None);
    }

    #[test]
    fn beyond_its_bound_it_forgets_the_oldest() {
        let mut window = Window::new();
        for seq in 0..MOST as u64 + 3 {
            window.push(Time::from_nanos(seq));
        }
        assert_eq!(window.base(), 3);
        assert_eq!(window.sent(2), None);
        assert_eq!(window.sent(3), Some(Time::from_nanos(3)));
    }
}
