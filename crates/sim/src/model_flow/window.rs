//! Packets in flight whose fate is unknown.

use tidegate_core::units::Time;

/// Send times and kinds of packets from the oldest one with unknown fate. A ring that grows with the
/// largest number of packets in flight, up to [`MAX`].
#[derive(Debug)]
pub(super) struct Window {
    /// Nanoseconds, with [`DUMMY`] for dummy packets, or [`SETTLED`]; the length is a power of two.
    slots: Vec<u64>,
    base: u64,
    next: u64,
}

impl Window {
    /// A window before the first packet.
    pub(super) fn new() -> Self {
        Self {
            slots: vec![SETTLED; MIN],
            base: 0,
            next: 0,
        }
    }

    /// Lower bound of the packets with unknown fate.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// The number of the next packet.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Adds a packet. Returns its number.
    pub(super) fn push(&mut self, at: Time, is_dummy: bool) -> u64 {
        let seq = self.next;
        if seq - self.base == self.slots.len() as u64 {
            self.make_room();
        }
        let slot = self.slot(seq);
        self.slots[slot] = at.as_nanos() & !DUMMY | if is_dummy { DUMMY } else { 0 };
        self.next += 1;
        seq
    }

    /// Send time of packet `seq`, if its fate is unknown.
    pub(super) fn sent(&self, seq: u64) -> Option<Time> {
        if seq < self.base || seq >= self.next {
            return None;
        }
        let nanos = self.slots[self.slot(seq)];
        (nanos != SETTLED).then_some(Time::from_nanos(nanos & !DUMMY))
    }

    /// Calls `known` for the packets with unknown fate up to `last`, in order, with their send times
    /// and whether they are dummy packets. Those for which it returns true are settled.
    pub(super) fn review(&mut self, last: u64, mut known: impl FnMut(u64, Time, bool) -> bool) {
        let mask = self.slots.len() as u64 - 1;
        let mut seq = self.base;
        while seq < self.next && seq <= last {
            let slot = &mut self.slots[(seq & mask) as usize];
            if *slot != SETTLED && known(seq, Time::from_nanos(*slot & !DUMMY), *slot & DUMMY != 0)
            {
                *slot = SETTLED;
            }
            if *slot == SETTLED && seq == self.base {
                self.base += 1;
            }
            seq += 1;
        }
        // Reports may be reordered, so packets after `last` may already be settled.
        while self.base < self.next && self.slots[self.slot(self.base)] == SETTLED {
            self.base += 1;
        }
    }

    /// Doubles the ring, or discards the oldest packet if the ring has its maximum size.
    fn make_room(&mut self) {
        if self.slots.len() == MAX {
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

/// The highest bit of a time that ends 292 years after the start.
const DUMMY: u64 = 1 << 63;
/// No packet is sent at the end of time.
const SETTLED: u64 = u64::MAX;
/// Initial length.
const MIN: usize = 64;
/// A million packets without a report take 8 MiB; beyond that, the oldest packets are discarded.
const MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_unsettled_packets_and_grows() {
        let mut window = Window::new();
        for seq in 0..1_000 {
            assert_eq!(window.push(Time::from_nanos(2 * seq), seq % 3 == 0), seq);
        }
        window.review(998, |seq, sent, is_dummy| {
            assert_eq!((sent, is_dummy), (Time::from_nanos(2 * seq), seq % 3 == 0));
            seq % 2 == 1
        });
        assert_eq!((window.base(), window.next()), (0, 1_000));
        assert_eq!(window.sent(1), None);
        assert_eq!(window.sent(998), Some(Time::from_nanos(1_996)));
        window.review(0, |seq, _, _| seq == 0);
        assert_eq!(window.base(), 2);
        let mut shown = vec![];
        window.review(u64::MAX, |seq, _, _| {
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
    fn discards_the_oldest_packets_beyond_its_bound() {
        let mut window = Window::new();
        for seq in 0..MAX as u64 + 3 {
            window.push(Time::from_nanos(2 * seq), false);
        }
        assert_eq!(window.base(), 3);
        assert_eq!(window.sent(2), None);
        assert_eq!(window.sent(3), Some(Time::from_nanos(6)));
    }
}
