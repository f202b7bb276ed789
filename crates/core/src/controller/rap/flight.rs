//! Sending times of the packets in flight.

use crate::units::Time;

/// Ring of sending times. It grows with the number of packets in flight, up to [`MAX`].
#[derive(Clone, Debug)]
pub(super) struct Flight {
    /// Sending times in ns, or [`SETTLED`]; the length is a power of two.
    slots: Vec<u64>,
    base: u64,
    next: u64,
}

impl Flight {
    /// An empty flight.
    pub(super) fn new() -> Self {
        Self {
            slots: vec![SETTLED; MIN],
            base: 0,
            next: 0,
        }
    }

    /// Records that packet `seq` is sent. Skipped numbers count as settled. Lower numbers are
    /// ignored.
    pub(super) fn send(&mut self, seq: u64, at: Time) {
        if seq < self.next || seq == u64::MAX {
            return;
        }
        if self.base == self.next || seq - self.base >= MAX as u64 {
            self.base = seq;
        } else {
            while seq - self.base >= self.slots.len() as u64 {
                self.grow();
            }
            for skipped in self.next..seq {
                let slot = self.slot(skipped);
                self.slots[slot] = SETTLED;
            }
        }
        let slot = self.slot(seq);
        self.slots[slot] = at.as_nanos();
        self.next = seq + 1;
    }

    /// Removes packet `seq`, whose fate is known; returns whether it was in flight.
    pub(super) fn settle(&mut self, seq: u64) -> bool {
        if seq < self.base || seq >= self.next {
            return false;
        }
        let slot = self.slot(seq);
        let open = self.slots[slot] != SETTLED;
        self.slots[slot] = SETTLED;
        while self.base < self.next && self.slots[self.slot(self.base)] == SETTLED {
            self.base += 1;
        }
        open
    }

    /// Sending time of the oldest packet in flight.
    pub(super) fn oldest(&self) -> Option<Time> {
        (self.base < self.next).then(|| Time::from_nanos(self.slots[self.slot(self.base)]))
    }

    /// Highest sequence number sent, plus one.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Removes all packets.
    pub(super) fn clear(&mut self) {
        self.base = self.next;
    }

    fn grow(&mut self) {
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

/// Marker of a packet with a known fate. No packet is sent at this time.
const SETTLED: u64 = u64::MAX;
/// Initial length.
const MIN: usize = 64;
/// 65536 packets of 1200 bytes are one second at 630 Mb/s. With more packets in flight, all but the
/// newest are dropped, and a loss among them is not detected.
const MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Time {
        Time::from_nanos(ns)
    }

    #[test]
    fn oldest_is_the_first_packet_in_flight() {
        let mut flight = Flight::new();
        assert_eq!(flight.oldest(), None);
        for seq in 3..500 {
            flight.send(seq, at(seq));
        }
        assert_eq!(flight.oldest(), Some(at(3)));
        assert!(flight.settle(4) && flight.settle(3));
        assert!(!flight.settle(3) && !flight.settle(2) && !flight.settle(500));
        assert_eq!((flight.oldest(), flight.next()), (Some(at(5)), 500));
        flight.send(600, at(600));
        assert!(!flight.settle(550), "never sent");
        assert!(flight.settle(600));
        flight.clear();
        assert_eq!(flight.oldest(), None);
        assert!(!flight.settle(499));
    }

    #[test]
    fn overflow_keeps_the_newest_packet() {
        let mut flight = Flight::new();
        for seq in 0..=MAX as u64 {
            flight.send(seq, at(seq));
        }
        assert_eq!(flight.oldest(), Some(at(MAX as u64)));
        flight.send(u64::MAX, at(0));
        flight.send(u64::MAX - 1, at(7));
        assert_eq!(flight.oldest(), Some(at(7)));
    }
}
