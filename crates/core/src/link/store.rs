//! Where packets are kept while queues and wires pass their numbers around: each moves in once and
//! out once, however large it is, however many links it crosses.

use prefetch_index::prefetch_index;

use super::Packet;
use crate::units::Bytes;

/// What links hand on in place of a packet: as much as two registers hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Parcel {
    pub(super) size: Bytes,
    /// Where the packet is kept.
    pub(super) slot: u32,
    /// Where it is in the network's list of hops.
    pub(super) hop: u32,
}

impl Parcel {
    /// For a packet that is kept from now on.
    #[inline]
    pub(super) fn new<P: Packet>(store: &mut Store<P>, hop: u32, packet: P) -> Self {
        Self {
            size: packet.size(),
            hop,
            slot: store.put(packet),
        }
    }
}

/// Slots that are used again.
#[derive(Debug)]
pub(super) struct Store<P> {
    slots: Vec<Slot<P>>,
    free: Vec<u32>,
}

/// At the start of a cache line: once there are more packets than a cache holds, what each costs
/// is the lines that it fills.
#[derive(Debug)]
#[repr(align(64))]
struct Slot<P>(Option<P>);

impl<P> Store<P> {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Keeps `packet`; the number of its slot.
    #[inline]
    pub(super) fn put(&mut self, packet: P) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize].0 = Some(packet);
            return slot;
        }
        self.slots.push(Slot(Some(packet)));
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
        self.slots[slot as usize].0.as_ref()
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
