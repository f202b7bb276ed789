//! Backlog of a fast link.

use super::FastLink;
use crate::units::{Bytes, Time};

impl FastLink {
    /// Subtracts packets that have left the queue by `at` from the backlog. Called before each
    /// arrival up to number `tail`, so that ring entries of departed packets are not yet
    /// overwritten.
    #[inline]
    pub(super) fn let_go(&mut self, at: Time, tail: u32) {
        if let Some((waiting, true)) = self.waiting_alike(at) {
            self.rare.started = tail.wrapping_sub(waiting);
            self.rare.waiting = Bytes(u64::from(waiting) * u64::from(self.size));
            return;
        }
        let edge = self.edge(at);
        let mut number = self.rare.started;
        let mut waiting = self.rare.waiting;
        while number != tail {
            // Departed packets are no longer inside; the first packet inside has left the queue.
            let ahead = number.wrapping_sub(self.head);
            let queued = ahead.wrapping_sub(1) < self.len;
            if queued && self.ring[self.place(number.wrapping_sub(1))].out >= edge {
                break;
            }
            waiting -= self.ring[self.place(number)].handle.size;
            number = number.wrapping_add(1);
        }
        self.rare.started = number;
        self.rare.waiting = waiting;
    }

    /// Upper bound of the backlog at `at`, in packets, if all have the same size; computed from the
    /// transmission times. The flag is set if the bound is exact, and unset if a packet may leave
    /// the queue exactly at `at`, which depends on earlier packets.
    #[inline]
    fn waiting_alike(&self, at: Time) -> Option<(u32, bool)> {
        let free = at.as_nanos().checked_add(u64::from(self.delay))?;
        let work = self.last.as_nanos().saturating_sub(free);
        if work == 0 {
            return Some((0, true));
        }
        let work = u32::try_from(work).ok()?;
        let waiting = work.checked_div(self.nanos)?;
        let exact = !work.is_multiple_of(self.nanos);
        (u64::from(waiting) <= self.fresh()).then_some((waiting, exact))
    }

    /// Number of packets inside that have left the queue by `at`. `at` is non-decreasing.
    pub(super) fn started(&self, at: Time) -> u32 {
        // Departed packets are no longer inside.
        let ahead = self.rare.started.wrapping_sub(self.head);
        let mut started = if ahead > self.len { 0 } else { ahead };
        let edge = self.edge(at);
        let has_left = |i: u32| i < self.len && (i == 0 || self.in_flight(i - 1).out < edge);
        // Galloping search: mostly none or one more packet has started, or nearly all after a long
        // gap.
        let mut step = 1;
        while has_left(started) {
            started += step;
            step *= 2;
        }
        let mut least = started - step / 2;
        let mut end = started.min(self.len);
        while least < end {
            let middle = u32::midpoint(least, end);
            if has_left(middle) {
                least = middle + 1;
            } else {
                end = middle;
            }
        }
        end
    }

    /// Packets that reach the far end before this have left the transmitter before `at`, or at `at`
    /// for a transmission time of zero.
    pub(super) fn edge(&self, at: Time) -> Time {
        let instant = u64::from(self.rare.transmitter.is_instant());
        let behind = u64::from(self.delay) + instant;
        Time::from_nanos(at.as_nanos().saturating_add(behind))
    }

    /// Number of packets the transmitter has not finished, and their remaining time in ns.
    pub(super) fn unfinished(&self) -> (u32, u64) {
        let edge = self.edge(self.seen());
        // Packets arrive at the far end in order.
        let (mut oldest, mut end) = (0, self.len);
        while oldest < end {
            let middle = u32::midpoint(oldest, end);
            if self.in_flight(middle).out < edge {
                oldest = middle + 1;
            } else {
                end = middle;
            }
        }
        if oldest == self.len {
            return (0, 0);
        }
        // The others follow back to back.
        let (first, last) = (self.in_flight(oldest), self.in_flight(self.len - 1));
        let others = last.out.as_nanos() - first.out.as_nanos();
        (self.len - oldest, others + self.time(first.handle.size))
    }
}
