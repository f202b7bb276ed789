//! Packets that are handed on before they are out.

use super::super::Packet;
use super::super::packet_pool::{PacketHandle, PacketPool, SHELL};
use super::{Entry, FastLink, Passing};
use crate::units::{Bytes, Time};

/// Where the ring of a lane has packets that were handed on, they are the oldest ones. They are here
/// only to be counted, until somebody notices that they are out.
impl FastLink {
    /// Whether a packet that is pushed after another can be at the far end only later than it came in,
    /// whatever else happens at that moment.
    pub(in super::super) fn takes_time(&self) -> bool {
        self.delay > 0
    }

    /// Whether the next packet is taken, unmarked, whenever it arrives.
    #[inline]
    pub(in super::super) fn has_room(&self) -> bool {
        self.len < self.limit
    }

    /// Whether a packet that comes at `now` may be handed on: all others were. Those that are out are
    /// let go of when they are in the way, many at once.
    #[inline]
    pub(in super::super) fn may_hand_on(&mut self, now: Time) -> bool {
        let full = self.len as usize == self.ring.len();
        if full || self.limit > 0 && self.len >= self.limit {
            self.forget(now);
        }
        self.rare.handed == self.len && !self.rare.apart
    }

    /// Whether anything inside was handed on.
    pub(in super::super) fn hands_on(&self) -> bool {
        self.rare.handed > 0
    }

    /// A packet arrives, as with [`push`](Self::push), and is handed on if it is taken.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "so that the parcel stays in registers"
    )]
    pub(in super::super) fn push_through<P: Packet>(
        &mut self,
        store: &mut PacketPool<P>,
        at: Time,
        parcel: PacketHandle,
    ) -> Entry {
        let hop = parcel.hop | HANDED;
        let entry = self.push(store, at, PacketHandle { hop, ..parcel });
        if let Entry::Taken(_) = entry {
            self.rare.handed += 1;
            self.rare.handed_bytes += parcel.size;
        }
        entry
    }

    /// A packet arrives at a lane of which all that comes is told of ahead of time, up to the `horizon`:
    /// as with [`push_through`](Self::push_through), but for a count that
    /// [`keep_shells`](Self::keep_shells) makes good. What is told of is let go of when it no longer
    /// matters for what comes: all at once where nothing waits, else as the ring is full.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "so that the parcel stays in registers"
    )]
    pub(in super::super) fn push_told<P: Packet>(
        &mut self,
        store: &mut PacketPool<P>,
        horizon: Time,
        at: Time,
        parcel: PacketHandle,
    ) -> Entry {
        // What is at the far end before that has left the transmitter, and who is behind it the queue.
        let edge = Time::from_nanos(at.as_nanos().saturating_add(self.delay.into()));
        if self.last < edge && self.last <= horizon {
            self.head = self.tail();
            self.len = 0;
        } else if self.len as usize == self.ring.len() {
            while self.len > 0
                && let Passing { out, .. } = *self.passing(0)
                && out <= horizon
                && out < edge
            {
                self.head = self.head.wrapping_add(1);
                self.len -= 1;
            }
        }
        let hop = parcel.hop | HANDED;
        self.push(store, at, PacketHandle { hop, ..parcel })
    }

    /// The last one was not handed on after all.
    #[cold]
    pub(in super::super) fn keep_back(&mut self) {
        self.rare.handed -= 1;
        let place = self.place(self.head.wrapping_add(self.rare.handed));
        let parcel = &mut self.ring[place].parcel;
        parcel.hop &= !HANDED;
        self.rare.handed_bytes -= parcel.size;
    }

    /// Nothing is told of from now on. The last so many were not taken yet; of the others only the shells
    /// are left that are not out at `now`, to be counted until they are.
    #[cold]
    pub(in super::super) fn keep_shells(&mut self, now: Time, kept: usize) {
        self.rare.handed = self.len;
        self.rare.handed_bytes = self.sum(0, self.len);
        self.forget(now);
        (0..kept).for_each(|_| self.keep_back());
        while self.rare.handed > 0 {
            self.keep_back();
            let place = self.place(self.head.wrapping_add(self.rare.handed));
            self.ring[place].parcel.slot = SHELL;
        }
    }

    /// Lets go of what was handed on and is out at `now`.
    #[inline]
    pub(super) fn forget(&mut self, now: Time) {
        while self.rare.handed > 0
            && let Passing { out, parcel } = *self.passing(0)
            && out <= now
        {
            self.head = self.head.wrapping_add(1);
            self.len -= 1;
            self.rare.handed -= 1;
            self.rare.handed_bytes -= parcel.size;
        }
    }

    /// The same as [`pop`](Self::pop) where the oldest was handed on.
    #[cold]
    pub(super) fn pop_behind(&mut self, now: Time) -> Option<(Time, PacketHandle)> {
        self.forget(now);
        if self.rare.handed > 0 {
            return None;
        }
        self.pop(now)
    }

    /// When the first comes out that was not handed on.
    #[cold]
    pub(super) fn departure_behind(&self) -> Option<Time> {
        (self.rare.handed < self.len).then(|| self.passing(self.rare.handed).out)
    }

    /// Nothing is handed on from now on: what `is_out` is gone, and the rest was not handed on. What
    /// these are, the latest first.
    pub(in super::super) fn part(&mut self, is_out: impl Fn(Time) -> bool) -> Vec<PacketHandle> {
        let mut back = Vec::new();
        while self.rare.handed > 0 {
            let number = self.head.wrapping_add(self.rare.handed - 1);
            let place = self.place(number);
            let passing = &mut self.ring[place];
            if is_out(passing.out) {
                break;
            }
            passing.parcel.hop &= !HANDED;
            back.push(passing.parcel);
            self.rare.handed -= 1;
        }
        self.head = self.head.wrapping_add(self.rare.handed);
        self.len -= self.rare.handed;
        (self.rare.handed, self.rare.handed_bytes) = (0, Bytes::ZERO);
        self.rare.apart = true;
        back
    }

    /// The packet that was pushed last never was. It is `now`.
    pub(in super::super) fn retract(&mut self, now: Time) {
        let size = self.passing(self.len - 1).parcel.size;
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
            len => self.passing(len - 1).out,
        };
        self.latest = self.latest.min(now);
    }
}

/// Marks the hop of a packet that was handed on.
pub(super) const HANDED: u32 = 1 << 31;
