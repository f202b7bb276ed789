//! Fast links that store no packets; packets in flight are in the delivery queue or a batch.

use super::{Course, FastLink, InFlight, MAX_FRESH, MIN_ROOM, NOTHING};
use crate::link::packet_pool::PacketHandle;
use crate::units::{Bytes, Time};

/// An unbuffered link has an empty ring. `head` is the number of the next packet. `len` is an upper
/// bound of the backlog at the last arrival, or has [`MIXED`] set if the sizes differ.
impl FastLink {
    /// Whether each arrival is either accepted with a known departure time or leads to a buffered
    /// link, and no other feature is in use.
    pub(in super::super) fn may_be_unbuffered(&self) -> bool {
        self.limit > 0 && self.ring.is_empty() && self.takes_time()
    }

    /// Arrival at an unbuffered link. Returns the departure time if the packet is certainly
    /// accepted and departs after its predecessor.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "keeps the handle in registers")]
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
        if !known || self.head.is_multiple_of(MAX_FRESH) {
            self.len = 0;
            self.learn(size, nanos);
        }
        self.head = self.head.wrapping_add(1);
        self.len = waiting + 1;
        self.latest = at;
        self.last = Time::from_nanos(out);
        Some(self.last)
    }

    /// Makes the link buffered, with the given packets inside.
    #[cold]
    pub(in super::super) fn make_buffered(
        &mut self,
        inside: impl ExactSizeIterator<Item = (Time, PacketHandle)>,
    ) {
        let len = inside.len();
        let room = len.next_power_of_two().max(MIN_ROOM);
        self.ring = vec![NOTHING; room].into_boxed_slice();
        self.len = len as u32;
        self.head = self.head.wrapping_sub(self.len);
        self.rare.started = self.head;
        for (i, (out, handle)) in (0..).zip(inside) {
            let place = self.place(self.head.wrapping_add(i));
            self.ring[place] = InFlight { out, handle };
        }
    }
}

/// Flag: packets of several sizes are queued, so their number does not follow from the backlog's
/// transmission time.
const MIXED: u32 = 1 << 31;
