//! Storage of packets inside a network. Queues and wires pass handles, so each packet is moved in
//! once and out once, independent of its size and number of hops.

use prefetch_index::prefetch_index;

use crate::units::Bytes;

/// Handle of a stored packet. It fits in two registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PacketHandle {
    pub(super) size: Bytes,
    /// Slot in the pool.
    pub(super) slot: u32,
    /// Index into the hop list of the network.
    pub(super) hop: u32,
}

/// Slot of a packet that has been delivered and remains in a link for the counters only.
pub(super) const DELIVERED: u32 = u32::MAX;

/// Slots with a free list.
#[derive(Debug)]
pub(super) struct PacketPool<P> {
    slots: Vec<Slot<P>>,
    free: Vec<u32>,
}

/// Aligned to a cache line: with more packets than the cache holds, the cost per packet is the
/// number of its cache lines.
#[derive(Debug)]
#[repr(align(64))]
struct Slot<P>(Option<P>);

impl<P> PacketPool<P> {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Stores the packet that `make` returns, and returns its slot. The packet is constructed in
    /// place: copying it would read wider words than were written, which stalls store forwarding.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "constructs the packet in place")]
    pub(super) fn put(&mut self, make: impl FnOnce() -> P) -> u32 {
        if let Some(slot) = self.free.pop() {
            // The next free slots may have left the cache.
            if self.slots.len() > CACHED
                && let Some(soon) = self.free.len().checked_sub(2)
            {
                self.soon(self.free[soon]);
            }
            match &mut self.slots[slot as usize].0 {
                // A free slot holds no value to drop.
                place @ None => *place = Some(make()),
                Some(packet) => *packet = make(),
            }
            return slot;
        }
        self.slots.push(Slot(Some(make())));
        (self.slots.len() - 1) as u32
    }

    /// Removes and returns the packet of a slot.
    #[inline]
    pub(super) fn take(&mut self, slot: u32) -> Option<P> {
        self.free.push(slot);
        self.slots[slot as usize].0.take()
    }

    /// Drops the packet of a slot.
    #[inline]
    pub(super) fn discard(&mut self, slot: u32) {
        self.free.push(slot);
        self.slots[slot as usize].0 = None;
    }

    pub(super) fn get(&self, slot: u32) -> Option<&P> {
        self.slots.get(slot as usize)?.0.as_ref()
    }

    /// Prefetches the packet.
    #[inline]
    pub(super) fn soon(&self, slot: u32) {
        prefetch_index(&self.slots, slot as usize);
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut P> {
        self.slots[slot as usize].0.as_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// Number of packets up to which the pool is assumed to fit in the cache.
const CACHED: usize = 8_192;
