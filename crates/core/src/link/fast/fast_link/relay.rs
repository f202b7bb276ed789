//! Forwarding of packets to the next link at enqueue, before they depart.

use super::{Entry, FastLink, InFlight};
use crate::link::Packet;
use crate::link::packet_pool::{DELIVERED, PacketHandle, PacketPool};
use crate::units::{Bytes, Time};

/// Forwarded packets are the oldest ones in the ring. They remain there for the counters until
/// their departure is processed.
impl FastLink {
    /// Whether a packet departs strictly later than it arrives.
    pub(in super::super) fn takes_time(&self) -> bool {
        self.delay > 0
    }

    /// Whether the next packet is accepted without a mark at any arrival time.
    #[inline]
    pub(in super::super) fn has_room(&self) -> bool {
        self.len < self.limit
    }

    /// Whether a packet that arrives at `now` may be forwarded, as all packets inside were.
    /// Departed packets are removed in bulk when the ring is full.
    #[inline]
    pub(in super::super) fn may_hand_on(&mut self, now: Time) -> bool {
        let full = self.len as usize == self.ring.len();
        if full || self.limit > 0 && self.len >= self.limit {
            self.forget(now);
        }
        self.rare.handed == self.len && !self.rare.apart
    }

    /// Whether any packet inside was forwarded.
    pub(in super::super) fn hands_on(&self) -> bool {
        self.rare.handed > 0
    }

    /// As [`push`](Self::push), and marks an accepted packet as forwarded.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "keeps the handle in registers")]
    pub(in super::super) fn push_through<P: Packet>(
        &mut self,
        store: &mut PacketPool<P>,
        at: Time,
        handle: PacketHandle,
    ) -> Entry {
        let hop = handle.hop | HANDED;
        let entry = self.push(store, at, PacketHandle { hop, ..handle });
        if let Entry::Taken(_) = entry {
            self.rare.handed += 1;
            self.rare.handed_bytes += handle.size;
        }
        entry
    }

    /// Arrival at a link whose departures are reported ahead of time, up to `horizon`. As
    /// [`push_through`](Self::push_through), except for a counter that
    /// [`keep_for_counters`](Self::keep_for_counters) corrects. Reported packets are removed once
    /// they do not affect later arrivals: all of them if the queue is empty, else when the ring is
    /// full.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "keeps the handle in registers")]
    pub(in super::super) fn push_reported<P: Packet>(
        &mut self,
        store: &mut PacketPool<P>,
        horizon: Time,
        at: Time,
        handle: PacketHandle,
    ) -> Entry {
        // Packets that reach the far end before this have left the transmitter, and their
        // successors the queue.
        let edge = Time::from_nanos(at.as_nanos().saturating_add(self.delay.into()));
        if self.last < edge && self.last <= horizon {
            self.head = self.tail();
            self.len = 0;
        } else if self.len as usize == self.ring.len() {
            while self.len > 0
                && let InFlight { out, .. } = *self.in_flight(0)
                && out <= horizon
                && out < edge
            {
                self.head = self.head.wrapping_add(1);
                self.len -= 1;
            }
        }
        let hop = handle.hop | HANDED;
        self.push(store, at, PacketHandle { hop, ..handle })
    }

    /// Reverts the forwarding of the last packet.
    #[cold]
    pub(in super::super) fn revert_forward(&mut self) {
        self.rare.handed -= 1;
        let place = self.place(self.head.wrapping_add(self.rare.handed));
        let handle = &mut self.ring[place].handle;
        handle.hop &= !HANDED;
        self.rare.handed_bytes -= handle.size;
    }

    /// Ends reporting ahead of time. The last `kept` packets have not been delivered. Of the
    /// others, those that depart after `now` remain for the counters.
    #[cold]
    pub(in super::super) fn keep_for_counters(&mut self, now: Time, kept: usize) {
        self.rare.handed = self.len;
        self.rare.handed_bytes = self.sum(0, self.len);
        self.forget(now);
        (0..kept).for_each(|_| self.revert_forward());
        while self.rare.handed > 0 {
            self.revert_forward();
            let place = self.place(self.head.wrapping_add(self.rare.handed));
            self.ring[place].handle.slot = DELIVERED;
        }
    }

    /// Removes forwarded packets that have departed by `now`.
    #[inline]
    pub(super) fn forget(&mut self, now: Time) {
        while self.rare.handed > 0
            && let InFlight { out, handle } = *self.in_flight(0)
            && out <= now
        {
            self.head = self.head.wrapping_add(1);
            self.len -= 1;
            self.rare.handed -= 1;
            self.rare.handed_bytes -= handle.size;
        }
    }

    /// [`pop`](Self::pop) for a ring whose oldest packet was forwarded.
    #[cold]
    pub(super) fn pop_behind(&mut self, now: Time) -> Option<(Time, PacketHandle)> {
        self.forget(now);
        if self.rare.handed > 0 {
            return None;
        }
        self.pop(now)
    }

    /// Departure of the first packet that was not forwarded.
    #[cold]
    pub(super) fn departure_behind(&self) -> Option<Time> {
        (self.rare.handed < self.len).then(|| self.in_flight(self.rare.handed).out)
    }

    /// Disables forwarding. Forwarded packets for which `is_out` holds are removed; the others
    /// become regular packets. Returns the latter, the latest first.
    pub(in super::super) fn part(&mut self, is_out: impl Fn(Time) -> bool) -> Vec<PacketHandle> {
        let mut back = Vec::new();
        while self.rare.handed > 0 {
            let number = self.head.wrapping_add(self.rare.handed - 1);
            let place = self.place(number);
            let in_flight = &mut self.ring[place];
            if is_out(in_flight.out) {
                break;
            }
            in_flight.handle.hop &= !HANDED;
            back.push(in_flight.handle);
            self.rare.handed -= 1;
        }
        self.head = self.head.wrapping_add(self.rare.handed);
        self.len -= self.rare.handed;
        (self.rare.handed, self.rare.handed_bytes) = (0, Bytes::ZERO);
        self.rare.apart = true;
        back
    }

    /// Removes the last pushed packet as if it had never arrived. The current time is `now`.
    pub(in super::super) fn retract(&mut self, now: Time) {
        let size = self.in_flight(self.len - 1).handle.size;
        let nanos = self.time(size);
        let (fresh, tail) = (self.fresh(), self.tail());
        let rare = &mut *self.rare;
        rare.taken = rare.taken + fresh - 1;
        rare.taken_bytes = rare.taken_bytes + Bytes(fresh * u64::from(self.size)) - size;
        rare.busy = rare.busy + fresh * u64::from(self.nanos) - nanos;
        rare.known = tail.wrapping_sub(1);
        self.len -= 1;
        self.last = match self.len {
            0 => Time::ZERO,
            len => self.in_flight(len - 1).out,
        };
        self.latest = self.latest.min(now);
    }
}

/// Flag in the hop of a forwarded packet.
pub(super) const HANDED: u32 = 1 << 31;
