//! Two links in one move.
//!
//! Where a link is fed by one other alone, and both are lanes, a packet that enters the first enters
//! the second in the same breath, as of the moment at which it will be out of the first: nothing can
//! come between. The first then needs no place in the agenda. It keeps what is inside of it for its
//! queue and its counters.
//!
//! None of this can be seen from outside:
//!
//! - A packet is handed on only if the second link would take it at any time, and only if all before
//!   it were; if not, it leaves the first when its time has come, and those behind it too.
//! - Both links have a wire with some delay. So whether the first has let go of what is out changes
//!   nothing for what comes in; and what is handed on leaves the second later than the first, so that
//!   turns at one moment are taken in the same order.
//! - Who asks for counters of the second link, or has either observed, parts them: what has not
//!   arrived at the second link by then goes back into the first. They stay parted, since who asks
//!   once asks again.

use core::mem;

use super::super::Packet;
use super::super::passage::Passage;
use super::super::store::Parcel;
use super::{END, FEEDER, LinkId, NONE, Network};
use crate::units::Time;

/// Marks feeders in `hops`; who feeds each link.
///
/// A feeder hands on all that comes in, so that each of its packets goes on to a link that is fed by
/// it alone. It is not fed by another feeder, so that what enters it enters at the present moment.
pub(super) fn mark(links: &[Passage], hops: &mut [u32], routes: &[u32]) -> Vec<u32> {
    let able = |link: usize| links[link].lane().is_some_and(|lane| lane.takes_time());
    // Who is before each link, if it is always the same one, and whether each can be a feeder.
    let mut before: Vec<Option<u32>> = vec![None; links.len()];
    for pair in hops.windows(2) {
        if let [from, to] = *pair
            && from & END == 0
            && to & END == 0
        {
            let before = &mut before[to as usize];
            *before = match *before {
                None => Some(from),
                Some(other) if other == from => Some(from),
                Some(_) => Some(NONE),
            };
        }
    }
    for route in routes {
        if let Some(first) = before.get_mut(hops[*route as usize] as usize) {
            *first = Some(NONE);
        }
    }
    let sole = |link: usize| before[link].filter(|from| *from != NONE);
    let mut feeds: Vec<bool> = (0..links.len()).map(able).collect();
    for pair in hops.windows(2) {
        if let [from, to] = *pair
            && from & END == 0
        {
            let follower = to & END == 0 && to != from && able(to as usize);
            feeds[from as usize] &= follower && sole(to as usize) == Some(from);
        }
    }
    // Of a row of links every second one at most.
    let mut blocked = vec![false; links.len()];
    for link in 0..links.len() {
        let from = sole(link).map(|from| from as usize);
        feeds[link] &= !blocked[link] && !from.is_some_and(|from| from < link && feeds[from]);
        if let Some(from) = from.filter(|_| feeds[link]) {
            blocked[from] = true;
        }
    }
    for hop in hops {
        if *hop & END == 0 && feeds[*hop as usize] {
            *hop |= FEEDER;
        }
    }
    let feeder = |link| sole(link).filter(|from| feeds[*from as usize]);
    (0..links.len())
        .map(|link| feeder(link).unwrap_or(NONE))
        .collect()
}

impl<P: Packet + Send + 'static> Network<P> {
    /// A packet enters the feeder `link`, and the next one if it can.
    #[inline]
    pub(super) fn relay(&mut self, at: Time, parcel: Parcel, link: usize) {
        let next = self.hops[parcel.hop as usize + 1] as usize;
        let store = &mut self.store;
        let lanes = self.links.get_disjoint_mut([link, next]);
        if let Ok([Passage::Lane(feeder), next_one]) = lanes
            && let Some(out) = feeder.push_through(store, at, parcel)
        {
            let Some(out) = out else { return };
            let parcel = Parcel {
                hop: parcel.hop + 1,
                ..parcel
            };
            if let Passage::Lane(lane) = next_one
                && feeder.may_hand_on()
                && lane.has_room()
                && let Some(changed) = lane.push(store, out, parcel)
            {
                feeder.hand_on();
                if changed {
                    self.plan(next);
                }
                return;
            }
        } else {
            self.part(link);
            self.links[link].push(&mut self.store, at, parcel);
        }
        self.plan(link);
    }

    /// From now on `link` does not get its packets before they arrive.
    pub(super) fn part_from_feeder(&mut self, link: usize) {
        let feeder = mem::replace(&mut self.feeders[link], NONE);
        if feeder != NONE {
            self.part(feeder as usize);
        }
    }

    /// From now on nothing is handed on to or by `link`, which has seen all that has happened.
    pub(super) fn hold(&mut self, link: LinkId) {
        self.part_from_feeder(link.0);
        self.part(link.0);
        self.links[link.0].advance(&mut self.store, self.reached.0);
    }

    /// From now on `feeder`, if it is one, lets go of packets when their time has come.
    #[cold]
    fn part(&mut self, feeder: usize) {
        let Some(lane) = self.links[feeder].lane_mut() else {
            return;
        };
        let (now, highest) = self.reached;
        // At one moment the lower link has its turn first.
        for parcel in lane.part(|out| (out, feeder) <= (now, highest)) {
            let next = self.hops[parcel.hop as usize + 1] as usize;
            if let Some(lane) = self.links[next].lane_mut() {
                lane.retract(now);
            }
            self.plan(next);
        }
        self.plan(feeder);
    }
}
