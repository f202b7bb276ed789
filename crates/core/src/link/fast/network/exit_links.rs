//! Last links of routes, whose packets are in the delivery queue.
//!
//! The result is the same as without the queue. Such a link is a fast link that is followed by no
//! other link. Reading a link's counters, or observing it, moves the packets of all links from the
//! delivery queue back into the links, and disables this optimisation permanently.

use core::mem;

use super::super::fast_link::FastLink;
use super::super::link_impl::LinkImpl;
use super::batch::BATCHED;
use super::delivery_queue::{DeliveryQueue, Leaving};
use super::{END, Exit, FEEDER, LAST, Network};
use crate::link::Packet;
use crate::link::packet_pool::PacketHandle;
use crate::units::Time;

/// Marks the last links in `hops`, and returns an empty delivery queue for them.
pub(super) fn mark(links: &[LinkImpl], hops: &mut [u32]) -> DeliveryQueue {
    DeliveryQueue::new(find(links, hops, FastLink::may_be_unbuffered))
}

/// Marks in `hops` the `able` links that are followed by no other link, and returns them.
pub(super) fn find(
    links: &[LinkImpl],
    hops: &mut [u32],
    able: impl Fn(&FastLink) -> bool,
) -> Vec<bool> {
    let able = |link: &LinkImpl| link.fast().is_some_and(&able);
    let mut last: Vec<bool> = links.iter().map(able).collect();
    for pair in hops.windows(2).filter(|pair| pair[0] & END == 0) {
        last[link_of(pair[0])] &= pair[1] & END != 0;
    }
    for hop in hops.iter_mut() {
        if *hop & END == 0 && last[link_of(*hop)] {
            *hop |= LAST;
        }
    }
    last
}

/// Link of a hop, without its flags.
fn link_of(hop: u32) -> usize {
    (hop & !(FEEDER | BATCHED | LAST)) as usize
}

impl<P: Packet + Send + 'static> Network<P> {
    /// A packet enters the last link of its route. Returns whether it is in the delivery queue; if
    /// not, the link is excluded from the delivery queue from now on.
    #[inline(never)]
    pub(super) fn enqueue_delivery(&mut self, at: Time, handle: PacketHandle, link: usize) -> bool {
        let fast = self.links[link].fast_mut();
        let Some(out) = fast.and_then(|fast| fast.pass(at, handle.size)) else {
            self.exclude_from_deliveries(link);
            return false;
        };
        self.deliveries.put(Leaving {
            out,
            link: link as u32,
            slot: handle.slot,
            end: handle.hop + 1,
        });
        true
    }

    /// Removes the next packet from the delivery queue.
    #[inline]
    pub(super) fn leave(&mut self) -> Option<Exit> {
        let (leaving, over) = self.deliveries.take()?;
        let Leaving {
            out,
            link,
            slot,
            end,
        } = leaving;
        self.reach(out, link as usize);
        if over {
            self.look_along_deliveries();
        }
        Some(Exit { at: out, end, slot })
    }

    /// Excludes `link` from the delivery queue.
    #[cold]
    #[inline(never)]
    fn exclude_from_deliveries(&mut self, link: usize) {
        let own = self.deliveries.take_of(link);
        for hop in &mut self.hops {
            if *hop & END == 0 && link_of(*hop) == link {
                *hop &= !LAST;
            }
        }
        self.make_buffered(link, &own);
    }

    /// Moves packets from the delivery queue back into their link.
    fn make_buffered(&mut self, link: usize, own: &[Leaving]) {
        let Self { links, store, .. } = self;
        if let Some(fast) = links[link].fast_mut() {
            let size = |slot| store.get(slot).map(Packet::size).unwrap_or_default();
            fast.make_buffered(own.iter().map(|l| (l.out, l.handle(size(l.slot)))));
        }
        self.plan(link);
    }

    /// Ends the use of the delivery queue and the lookahead mode, if `link` may take part in
    /// either.
    pub(super) fn end_deliveries_for(&mut self, link: usize) {
        if self.deliveries.has(link) {
            self.end_deliveries();
        }
        if self.inboxes.has(link) {
            self.end_lookahead();
        }
    }

    /// Ends the use of the delivery queue.
    #[cold]
    pub(super) fn end_deliveries(&mut self) {
        self.unmark();
        let deliveries = mem::take(&mut self.deliveries);
        let links: Vec<_> = (0..self.links.len())
            .filter(|i| deliveries.has(*i))
            .collect();
        let mut all = deliveries.into_all();
        all.sort_unstable_by_key(|leaving| (leaving.link, leaving.out));
        let mut rest = &all[..];
        for link in links {
            let count = rest.partition_point(|leaving| leaving.link as usize <= link);
            let (own, others) = rest.split_at(count);
            rest = others;
            self.make_buffered(link, own);
        }
    }

    /// Removes the marks of last links from the hop list.
    pub(super) fn unmark(&mut self) {
        for hop in &mut self.hops {
            if *hop & END == 0 {
                *hop &= !LAST;
            }
        }
    }
}
