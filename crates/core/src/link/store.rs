//! Where a link keeps its packets while queues and wires pass their numbers around: each packet
//! moves in once and out once, however large it is and however often it changes places.

/// Slots that are used again.
#[derive(Debug)]
pub(super) struct Store<P> {
    slots: Vec<Option<P>>,
    free: Vec<u32>,
}

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
            self.slots[slot as usize] = Some(packet);
            return slot;
        }
        self.slots.push(Some(packet));
        (self.slots.len() - 1) as u32
    }

    /// The packet of a slot, which becomes free.
    #[inline]
    pub(super) fn take(&mut self, slot: u32) -> Option<P> {
        self.free.push(slot);
        self.slots[slot as usize].take()
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut P> {
        self.slots[slot as usize].as_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
