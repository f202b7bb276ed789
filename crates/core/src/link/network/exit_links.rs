//! Last links of routes, whose packets are in the delivery queue.
//!
//! The result is the same as without the queue. Such a link is a fast link that is followed by no
//! other link. Reading a link's counters, or observing it, moves the packets of all links from the
//! delivery queue back into the links, and disables this optimisation permanently.

use core::mem;

use super::super::Packet;
use super::super::fast_link::FastLink;
use super::super::link_impl::LinkImpl;
use super::super::packet_pool::PacketHandle;
use super::batch::BATCHED;
use super::delivery_queue::{DeliveryQueue, Leaving};
use super::{END, Exit, FEEDER, LAST, Network};
use crate::units::Time;

/// Marks the last links in `hops`, and returns an empty delivery queue for them.
pub(super) fn mark(links: &[LinkImpl], hops: &mut [u32]) -> DeliveryQueue {
    DeliveryQueue::new(find(links, hops, FastLink::may_float))
}

/// Marks in `hops` the `able` links that are followed by no other link, and returns them.
pub(super) fn find(
    links: &[LinkImpl],
    hops: &mut [u32],
    able: impl Fn(&FastLink) -> bool,
) -> Vec<bool> {
    let able = |link: &LinkImpl| link.lane().is_some_and(&able);
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
    pub(super) fn shelve(&mut self, at: Time, parcel: PacketHandle, link: usize) -> bool {
        let lane = self.links[link].lane_mut();
        let Some(out) = lane.and_then(|lane| lane.pass(at, parcel.size)) else {
            self.unshelve(link);
            return false;
        };
        self.shelf.put(Leaving {
            out,
            link: link as u32,
            slot: parcel.slot,
            end: parcel.hop + 1,
        });
        true
    }

    /// Removes the next packet from the delivery queue.
    #[inline]
    pub(super) fn leave(&mut self) -> Option<Exit> {
        let (leaving, over) = self.shelf.take()?;
        let Leaving {
            out,
            link,
            slot,
            end,
        } = leaving;
        self.reach(out, link as usize);
        if over {
            self.look_along_shelf();
        }
        Some(Exit { at: out, end, slot })
    }

    /// Excludes `link` from the delivery queue.
    #[cold]
    #[inline(never)]
    fn unshelve(&mut self, link: usize) {
        let own = self.shelf.take_of(link);
        for hop in &mut self.hops {
            if *hop & END == 0 && link_of(*hop) == link {
                *hop &= !LAST;
            }
        }
        self.ground(link, &own);
    }

    /// Moves packets from the delivery queue back into their link.
    fn ground(&mut self, link: usize, own: &[Leaving]) {
        let Self { links, store, .. } = self;
        if let Some(lane) = links[link].lane_mut() {
            let size = |slot| store.get(slot).map(Packet::size).unwrap_or_default();
            lane.ground(own.iter().map(|l| (l.out, l.parcel(size(l.slot)))));
        }
        self.plan(link);
    }

    /// Ends the use of the delivery queue and the lookahead mode, if `link` may take part in
    /// either.
    pub(super) fn clear_shelf_for(&mut self, link: usize) {
        if self.shelf.has(link) {
            self.clear_shelf();
        }
        if self.inboxes.has(link) {
            self.end_news();
        }
    }

    /// Ends the use of the delivery queue.
    #[cold]
    pub(super) fn clear_shelf(&mut self) {
        self.unmark();
        let shelf = mem::take(&mut self.shelf);
        let links: Vec<_> = (0..self.links.len()).filter(|i| shelf.has(*i)).collect();
        let mut all = shelf.into_all();
        all.sort_unstable_by_key(|leaving| (leaving.link, leaving.out));
        let mut rest = &all[..];
        for link in links {
            let count = rest.partition_point(|leaving| leaving.link as usize <= link);
            let (own, others) = rest.split_at(count);
            rest = others;
            self.ground(link, own);
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
