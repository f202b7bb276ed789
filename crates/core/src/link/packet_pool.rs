//! Where packets are kept while queues and wires pass their numbers around: each moves in once and
//! out once, however large it is, however many links it crosses.

use prefetch_index::prefetch_index;

use crate::units::Bytes;

/// What links hand on in place of a packet: as much as two registers hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PacketHandle {
    pub(super) size: Bytes,
    /// Where the packet is kept.
    pub(super) slot: u32,
    /// Where it is in the network's list of hops.
    pub(super) hop: u32,
}

/// In place of the slot of a packet that was taken already, and is on its way for links to count.
pub(super) const SHELL: u32 = u32::MAX;

/// Slots that are used again.
#[derive(Debug)]
pub(super) struct PacketPool<P> {
    slots: Vec<Slot<P>>,
    free: Vec<u32>,
}

/// At the start of a cache line: once there are more packets than a cache holds, what each costs
/// is the lines that it fills.
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

    /// Keeps what `make` makes; the number of its slot. It is made where it stays: a packet that is put
    /// together elsewhere is read back in larger pieces than it was written in, which a processor has to
    /// wait for.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "so that a packet is written where it stays"
    )]
    pub(super) fn put(&mut self, make: impl FnOnce() -> P) -> u32 {
        if let Some(slot) = self.free.pop() {
            // The next ones may have been free for long.
            if self.slots.len() > CACHED
                && let Some(soon) = self.free.len().checked_sub(2)
            {
                self.soon(self.free[soon]);
            }
            match &mut self.slots[slot as usize].0 {
                // A free slot has nothing that would have to go first.
                place @ None => *place = Some(make()),
                Some(packet) => *packet = make(),
            }
            return slot;
        }
        self.slots.push(Slot(Some(make())));
        (self.slots.len() - 1) as u32
    }

    /// The packet of a slot, which becomes free.
    #[inline]
    pub(super) fn take(&mut self, slot: u32) -> Option<P> {
        self.free.push(slot);
        self.slots[slot as usize].0.take()
    }

    /// Forgets the packet of a slot, which becomes free.
    #[inline]
    pub(super) fn discard(&mut self, slot: u32) {
        self.free.push(slot);
        self.slots[slot as usize].0 = None;
    }

    pub(super) fn get(&self, slot: u32) -> Option<&P> {
        self.slots.get(slot as usize)?.0.as_ref()
    }

    /// Has the packet brought to the cache.
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

/// So many packets are in the cache anyhow.
const CACHED: usize = 8_192;
