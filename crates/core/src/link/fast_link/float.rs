//! Lanes that keep nothing: what is on them waits elsewhere.

use super::super::packet_pool::PacketHandle;
use super::{Course, FastLink, LEAST_ROOM, MOST_FRESH, NOTHING, Passing};
use crate::units::{Bytes, Time};

/// A lane that floats has an empty ring. `head` is the number of the next packet then, and `len` is
/// no less than what was in the queue with the last packet, or with [`MIXED`] if their sizes differ.
impl FastLink {
    /// Whether it can be told as soon as a packet comes when it will be out, or that it needs a closer
    /// look; and nothing else is asked.
    pub(in super::super) fn may_float(&self) -> bool {
        self.limit > 0 && self.ring.is_empty() && self.takes_time()
    }

    /// A packet arrives at a lane that floats. When it is out, if it is taken for certain, and later
    /// than the one before.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "so that the parcel stays in registers"
    )]
    pub(in super::super) fn pass(&mut self, at: Time, size: Bytes) -> Option<Time> {
        let at = self.latest.max(at);
        let Course {
            nanos,
            out,
            work,
            known,
        } = self.course(at, size)?;
        if out <= self.last.as_nanos() {
            return None;
        }
        let limit = self.limit.min(MIXED);
        let waiting = match work {
            0 => 0,
            work if known && self.len < MIXED => {
                let packets = u32::try_from(work.div_ceil(nanos)).ok();
                packets.filter(|packets| *packets < limit)?
            }
            _ if self.len & !MIXED < limit => self.len | MIXED,
            _ => return None,
        };
        if !known || self.head.is_multiple_of(MOST_FRESH) {
            self.len = 0;
            self.learn(size, nanos);
        }
        self.head = self.head.wrapping_add(1);
        self.len = waiting + 1;
        self.latest = at;
        self.last = Time::from_nanos(out);
        Some(self.last)
    }

    /// It floats no longer: this is what is on it.
    #[cold]
    pub(in super::super) fn ground(
        &mut self,
        inside: impl ExactSizeIterator<Item = (Time, PacketHandle)>,
    ) {
        let len = inside.len();
        let room = len.next_power_of_two().max(LEAST_ROOM);
        self.ring = vec![NOTHING; room].into_boxed_slice();
        self.len = len as u32;
        self.head = self.head.wrapping_sub(self.len);
        self.rare.started = self.head;
        for (i, (out, parcel)) in (0..).zip(inside) {
            let place = self.place(self.head.wrapping_add(i));
            self.ring[place] = Passing { out, parcel };
        }
    }
}

/// Packets of several sizes wait, so that their number is not known from the time that they take.
const MIXED: u32 = 1 << 31;
