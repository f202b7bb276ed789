//! Software prefetch for the next packets.
//!
//! With many links most accesses per packet are cache misses, and many are dependent: the link has
//! the handle of the packet, the handle leads to the packet and to the next link, and the packet
//! leads to its receiver. Each prefetch step therefore acts on other packets, some time after the
//! previous step, so that no step waits for memory.

use core::mem;

use prefetch_index::prefetch_index;

use super::batch::{self, STRIDE};
use super::{BATCHED, END, FEEDER, LAST, Network, RouteId};
use crate::link::Packet;
use crate::units::Time;

/// Links with imminent departures, by days of the timer queue, the next day first.
#[derive(Debug, Default)]
pub(super) struct Lookahead {
    days: [Day; DAYS],
    /// Number of days filled.
    known: usize,
    /// Whether the days have changed since the last query.
    news: bool,
}

#[derive(Debug, Default)]
struct Day {
    begin: Time,
    links: Vec<u32>,
    /// Destinations of their packets: a link, or [`END`] and the slot of a delivered packet.
    targets: Vec<u32>,
}

/// Prefetch step of [`Network::soon`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The first link of the route.
    Link,
    /// The ring entry of the packet, which needs the link in the cache.
    Place,
}

impl<P: Packet + Send + 'static> Network<P> {
    /// Whether [`coming`](Self::coming) has changed since the last call. Always `false` with few
    /// links.
    #[inline]
    pub fn has_news(&mut self) -> bool {
        mem::take(&mut self.ahead.news)
    }

    /// Packets that are likely to be delivered soon, in three groups, from the nearest, 0. A hint
    /// for prefetching the caller's state per packet: packets may be missing, and may not be
    /// delivered.
    #[inline]
    pub fn coming(&self, group: usize) -> impl Iterator<Item = &P> {
        let targets = self.ahead.days[group.min(DAYS - 1)].targets.iter();
        let exits = targets.filter(|target| **target & END != 0);
        let exits = exits.map(|target| target & !END);
        let delivered_soon = self
            .deliveries
            .coming(group)
            .iter()
            .map(|leaving| leaving.slot);
        exits
            .chain(delivered_soon)
            .filter_map(|slot| self.store.get(slot))
    }

    /// Prefetch hint: a packet is likely to be pushed onto `route`. No other effect.
    #[inline]
    pub fn soon(&self, route: RouteId, step: Step) {
        let start = self.routes.get(route.0).map(|start| *start as usize);
        let Some(hop) = start
            .map(|start| self.hops[start])
            .filter(|hop| hop & END == 0)
        else {
            return;
        };
        let link = (hop & !(FEEDER | BATCHED | LAST)) as usize;
        match step {
            Step::Link => self.link_soon(link),
            Step::Place => self.place_soon(link),
        }
    }

    /// Prefetches for the next days of the timer queue, at the start of a day. A function of its
    /// own, so that it costs nothing with few links.
    #[inline(never)]
    pub(super) fn look_on(&mut self) {
        let reached = self.timers.reached();
        let Lookahead { days, known, news } = &mut self.ahead;
        let over = days[..*known].iter();
        let over = over.take_while(|day| day.begin < reached).count();
        if over == 0 && *known > 0 {
            return;
        }
        days.rotate_left(over);
        *known -= over;
        for day in &mut days[*known..] {
            day.links.clear();
            day.targets.clear();
        }
        for day in &mut days[*known..] {
            let Some(begin) = self.timers.coming(&mut day.links) else {
                break;
            };
            day.begin = begin;
            *known += 1;
        }
        *news = true;
        for link in &self.ahead.days[5].links {
            self.link_soon(*link as usize);
        }
        for link in &self.ahead.days[4].links {
            self.head_soon(*link as usize);
        }
        let Day { links, targets, .. } = &mut self.ahead.days[3];
        let (links, mut targets) = (mem::take(links), mem::take(targets));
        for link in &links {
            targets.extend(self.next_soon(*link as usize));
        }
        (self.ahead.days[3].links, self.ahead.days[3].targets) = (links, targets);
        for target in &self.ahead.days[2].targets {
            if target & END == 0 {
                self.place_soon(*target as usize);
            }
        }
    }

    /// Prefetches for batched packets, after [`STRIDE`] of them were moved.
    #[inline(never)]
    pub(super) fn look_along(&self, list: usize, begins: bool) {
        let range = |step: usize| {
            let (from, count) = if begins {
                (0, (step + 1) * STRIDE)
            } else {
                (step * STRIDE, STRIDE)
            };
            self.batches.coming(list, from, count).iter()
        };
        let kept_by_link = |waiting: &&batch::Waiting| waiting.handle().is_none();
        for waiting in range(4).filter(kept_by_link) {
            self.link_soon(waiting.link as usize);
        }
        for waiting in range(3).filter(kept_by_link) {
            self.head_soon(waiting.link as usize);
        }
        // In lookahead mode packets end at the inbox.
        let reported = self.inboxes.are_on();
        for waiting in range(2) {
            match waiting.handle().map(|handle| self.next_of(handle.hop)) {
                None => drop(self.next_soon(waiting.link as usize)),
                Some(Some(next)) if !reported => self.link_soon(next),
                Some(_) => {}
            }
        }
        if reported {
            return;
        }
        for waiting in range(1) {
            let handle = waiting.handle();
            let handle = handle.or_else(|| self.links[waiting.link as usize].peek().copied());
            if let Some(next) = handle.and_then(|handle| self.next_of(handle.hop)) {
                self.place_soon(next);
            }
        }
    }

    /// Prefetches for packets in the delivery queue, after a stride of them has departed.
    #[inline(never)]
    pub(super) fn look_along_deliveries(&mut self) {
        for leaving in self.deliveries.coming(3) {
            self.store.soon(leaving.slot);
        }
        self.ahead.news = true;
    }

    #[inline]
    pub(super) fn link_soon(&self, link: usize) {
        prefetch_index(&self.links, link);
    }

    #[inline]
    fn head_soon(&self, link: usize) {
        if let Some(fast) = self.links[link].fast() {
            fast.head_soon();
        }
    }

    #[inline]
    pub(super) fn place_soon(&self, link: usize) {
        if let Some(fast) = self.links[link].fast() {
            fast.tail_soon();
        }
    }

    /// Prefetches the packet that departs next if it ends its route, else the next link. Returns it
    /// as a target.
    #[inline]
    fn next_soon(&self, link: usize) -> Option<u32> {
        let handle = self.links[link].peek()?;
        if let Some(next) = self.next_of(handle.hop) {
            self.link_soon(next);
            return Some(next as u32);
        }
        self.store.soon(handle.slot);
        Some(END | handle.slot)
    }

    /// The link of a hop, or the link that it feeds.
    #[inline]
    fn next_of(&self, hop: u32) -> Option<usize> {
        let next = self
            .hops
            .get(hop as usize + 1)
            .filter(|hop| *hop & END == 0)?;
        let next = match next & FEEDER {
            0 => *next,
            _ => self.hops[hop as usize + 2],
        };
        Some((next & !LAST) as usize)
    }
}

/// One day per prefetch step, including those of [`Network::coming`].
const DAYS: usize = 6;

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::collections::BTreeSet;

    use super::super::{LinkId, NamedLink, NetworkConfig};
    use super::*;
    use crate::control::Ecn;
    use crate::link::LinkConfig;
    use crate::link::testing::PacketHandle as Packaged;
    use crate::random::Seed;

    /// 800 routes of two wires, with a packet every 20 ms on each.
    #[test]
    fn delivered_packets_were_announced() {
        let wire = |i: usize| NamedLink {
            name: i.to_string(),
            config: LinkConfig {
                delay: Duration::from_micros(5_000 + i as u64),
                ..LinkConfig::default()
            },
        };
        let config = NetworkConfig {
            links: (0..1_600).map(wire).collect(),
            routes: (0..800)
                .map(|i| vec![LinkId(2 * i), LinkId(2 * i + 1)])
                .collect(),
        };
        let mut network = Network::new(&config, Seed(1)).unwrap();
        let (mut named, mut came, mut known) = (BTreeSet::new(), 0, 0);
        for i in 0..8_000_usize {
            let now = Time::from_micros(25 * i as u64);
            loop {
                if network.has_news() {
                    let groups = (0..3).flat_map(|group| network.coming(group));
                    named.extend(groups.map(|packet: &Packaged| packet.id));
                }
                let Some(delivery) = network.pop(now) else {
                    break;
                };
                came += 1;
                known += u32::from(named.contains(&delivery.packet.id));
            }
            let route = RouteId(i % 800);
            network.soon(route, Step::Link);
            network.soon(route, Step::Place);
            network.push(now, route, Packaged::new(i as u64, 1_000, Ecn::NotEct));
        }
        // All packets except those in flight; most of them were announced.
        assert!(came > 7_500, "{came}");
        assert!(known * 10 > came * 9, "{known} of {came}");
    }
}
