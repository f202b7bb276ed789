//! Forwarding of packets from a feeder to the next link at enqueue.
//!
//! If a link has a single input, and both links are fast links, a packet that enters the first link
//! (the feeder) is enqueued at the second one immediately, with its departure time from the feeder
//! as arrival time. The feeder then needs no timer. It keeps its packets for its queue and its
//! counters.
//!
//! The result is the same as without forwarding:
//!
//! - A packet is forwarded only if the second link would accept it at any time, and all earlier
//!   packets were forwarded. Otherwise it leaves the feeder at its departure time, as do the
//!   packets behind it.
//! - Both links have a positive delay. Whether the feeder has removed departed packets therefore
//!   does not affect arrivals, and a forwarded packet leaves the second link later than the feeder,
//!   which preserves the order of links at equal times.
//! - Reading the counters of the second link, or observing either link, separates the pair
//!   permanently: packets that have not arrived at the second link go back into the feeder.

use core::mem;

use super::super::fast_link::{Entry, FastLink};
use super::super::link_impl::LinkImpl;
use super::{END, FEEDER, LAST, LinkId, NONE, Network};
use crate::link::Packet;
use crate::link::packet_pool::PacketHandle;
use crate::units::Time;

/// Marks feeders in `hops`, and returns the feeder of each link.
///
/// All links behind a feeder have it as their only input, as a feeder forwards every packet. A
/// feeder is not fed by another feeder, so its packets arrive at the current time.
pub(super) fn mark(links: &[LinkImpl], hops: &mut [u32], routes: &[u32]) -> Vec<u32> {
    let able = |link: usize| links[link].fast().is_some_and(FastLink::takes_time);
    // The only predecessor of each link, if there is one, and whether each link can be a feeder.
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
    // In a row of links, at most every second one is a feeder.
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
    /// A packet enters the feeder `link`, and the next link if possible.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "keeps the handle in registers")]
    pub(super) fn relay(&mut self, at: Time, handle: PacketHandle, link: usize) {
        let next = self.hops[handle.hop as usize + 1];
        let second = self.links[(next & !LAST) as usize].fast();
        let room = next & LAST != 0 || second.is_some_and(FastLink::has_room);
        if let LinkImpl::FastLink(feeder) = &mut self.links[link]
            && feeder.may_hand_on(at)
            && room
        {
            match feeder.push_through(&mut self.store, at, handle) {
                Entry::Refused => return,
                Entry::Taken(out) => {
                    let hop = handle.hop + 1;
                    if self.enter(out, PacketHandle { hop, ..handle }, next) {
                        return;
                    }
                    if let Some(feeder) = self.links[link].fast_mut() {
                        feeder.revert_forward();
                    }
                    self.plan(link);
                    return;
                }
                Entry::TooLate => {}
            }
        }
        self.enter_apart(at, handle, link);
    }

    /// A packet enters the feeder `link`, and the next link at its departure.
    #[inline(never)]
    fn enter_apart(&mut self, at: Time, handle: PacketHandle, link: usize) {
        let entry = match &mut self.links[link] {
            LinkImpl::FastLink(feeder) => feeder.push(&mut self.store, at, handle),
            LinkImpl::GeneralLink(_) => Entry::TooLate,
        };
        match entry {
            Entry::Refused => return,
            Entry::Taken(_) => {}
            Entry::TooLate => {
                self.part(link);
                self.links[link].push(&mut self.store, at, handle);
            }
        }
        self.plan(link);
    }

    /// Disables forwarding to `link`.
    pub(super) fn part_from_feeder(&mut self, link: usize) {
        let feeder = mem::replace(&mut self.feeders[link], NONE);
        if feeder != NONE {
            self.part(feeder as usize);
        }
    }

    /// Disables forwarding to and from `link`, which is up to date.
    pub(super) fn hold(&mut self, link: LinkId) {
        self.move_on(self.reached);
        self.end_batches();
        self.part_from_feeder(link.0);
        self.part(link.0);
        if let Some(fast) = self.links[link.0].fast_mut() {
            fast.advance(self.reached.0);
        }
    }

    /// Disables forwarding by `feeder`, if it is one.
    #[cold]
    fn part(&mut self, feeder: usize) {
        let Some(fast) = self.links[feeder].fast_mut() else {
            return;
        };
        let (mut now, mut highest) = self.reached;
        if self.inboxes.are_on() {
            // Packets forwarded to last links by the horizon have been reported, and stay there.
            let horizon = self.inboxes.horizon();
            let mut fed = (0..self.links.len()).filter(|link| self.feeders[*link] == feeder as u32);
            if horizon > now && fed.any(|link| self.inboxes.has(link)) {
                (now, highest) = (horizon, usize::MAX);
            }
            self.end_lookahead();
        } else if fast.hands_on() {
            self.end_deliveries();
        }
        let Some(fast) = self.links[feeder].fast_mut() else {
            return;
        };
        // At equal times the lower link goes first.
        for handle in fast.part(|out| (out, feeder) <= (now, highest)) {
            let next = self.hops[handle.hop as usize + 1] as usize;
            if let Some(fast) = self.links[next].fast_mut() {
                fast.retract(now);
            }
            self.plan(next);
        }
        self.plan(feeder);
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use proptest::prelude::*;

    use super::super::{LinkForm, NamedLink, NetworkConfig, RouteId, exit_links};
    use super::*;
    use crate::control::Ecn;
    use crate::link::testing::{PacketHandle as Packaged, even_link_config, link_config};
    use crate::link::{
        Capacity, Delivery, DropTailConfig, LinkConfig, LinkLogEntry, LinkStats, QueueConfig,
        Queued,
    };
    use crate::random::Seed;
    use crate::units::Rate;

    fn network(links: &[LinkConfig], routes: &[Vec<usize>]) -> Network<Packaged> {
        network_of(links, routes, LinkForm::Fast)
    }

    fn network_of(
        links: &[LinkConfig],
        routes: &[Vec<usize>],
        form: LinkForm,
    ) -> Network<Packaged> {
        let named = |(i, config): (usize, &LinkConfig)| NamedLink {
            name: i.to_string(),
            config: config.clone(),
        };
        let path = |route: &Vec<usize>| route.iter().map(|i| LinkId(i % links.len())).collect();
        let config = NetworkConfig {
            links: links.iter().enumerate().map(named).collect(),
            routes: routes.iter().map(path).collect(),
        };
        Network::with_links(&config, Seed(1), form).unwrap()
    }

    #[test]
    fn feeders_are_the_only_input() {
        let wire = |millis| LinkConfig {
            delay: Duration::from_millis(millis),
            ..LinkConfig::default()
        };
        let feeders = |links: &[LinkConfig], routes: &[&[usize]]| {
            let routes: Vec<_> = routes.iter().map(|route| route.to_vec()).collect();
            network(links, &routes).feeders
        };
        let five = vec![wire(1); 5];
        // Two access links, a shared link, two exit links.
        let dumbbell: [&[usize]; 2] = [&[0, 2, 3], &[1, 2, 4]];
        assert_eq!(feeders(&five, &dumbbell), [NONE, NONE, NONE, 2, 2]);
        // An exit link with a second input, or no exit link.
        assert_eq!(
            feeders(&five, &[&[0, 2, 3], &[3]]),
            [NONE, NONE, 0, NONE, NONE]
        );
        assert_eq!(feeders(&five, &[&[0, 2, 3], &[1, 2]]), [NONE; 5]);
        // A row: every second link is a feeder.
        assert_eq!(
            feeders(&five, &[&[0, 1, 2, 3, 4]]),
            [NONE, 0, NONE, 2, NONE]
        );
        assert_eq!(
            feeders(&five, &[&[4, 3, 2, 1, 0]]),
            [1, NONE, 3, NONE, NONE]
        );
        assert_eq!(feeders(&five, &[&[0, 1, 0]]), [NONE; 5]);
        // Without delay, the order at equal times could change.
        let instant = [wire(1), wire(1), wire(1), wire(0), wire(0)];
        assert_eq!(feeders(&instant, &dumbbell), [NONE; 5]);
    }

    /// A query at the arrival time finds the packet at the second link; one before, in the feeder.
    #[test]
    fn a_query_includes_arrivals_at_its_time() {
        let wire = LinkConfig {
            delay: Duration::from_millis(1),
            ..LinkConfig::default()
        };
        for (nanos, arrivals) in [(999_999, 0), (1_000_000, 1)] {
            let mut network = network(&[wire.clone(), wire.clone()], &[vec![0, 1]]);
            network.push(Time::ZERO, RouteId(0), Packaged::new(0, 1_000, Ecn::NotEct));
            let at = Time::from_nanos(nanos);
            assert_eq!(network.stats(LinkId(1), at).arrivals, arrivals);
            assert_eq!(network.stats(LinkId(0), at).delivered, arrivals);
            assert_eq!(network.inside(), 1);
            let end = network.pop(Time::FAR).map(|delivery| delivery.at);
            assert_eq!(end, Some(Time::from_millis(2)));
        }
    }

    /// The decision on the fifth packet depends on the backlog of the last link at its arrival, 37
    /// ms. The backlog is different before.
    #[test]
    fn drops_depend_on_the_backlog_at_arrival() {
        let wire = |kbps, limit, millis| LinkConfig {
            capacity: Capacity::Fixed(Rate::kbps(kbps)),
            queue: QueueConfig::DropTail(DropTailConfig::packets(limit)),
            delay: Duration::from_millis(millis),
            ..LinkConfig::default()
        };
        let mut network = network(&[wire(8_000, 100, 20), wire(800, 3, 1)], &[vec![0, 1]]);
        network.deliveries = exit_links::mark(&network.links, &mut network.hops);
        for (id, millis) in (0..).zip([0, 0, 0, 15, 15]) {
            let packet = Packaged::new(id, 1_000, Ecn::NotEct);
            network.push(Time::from_millis(millis), RouteId(0), packet);
        }
        for (millis, arrivals, waiting) in [(25, 3, 2), (37, 5, 3)] {
            let (queued, stats) = network.state(LinkId(1), Time::from_millis(millis));
            let seen = (stats.arrivals, queued.packets);
            assert_eq!(seen, (arrivals, waiting), "at {millis} ms");
        }
    }

    /// An operation on a network, with its link or route.
    #[derive(Clone, Copy, Debug)]
    enum Deed {
        Push(u64),
        Pop,
        PopAll,
        Ask,
        Observe,
    }

    /// Optimisations of a network.
    #[derive(Clone, Copy, Debug)]
    enum Shape {
        Plain,
        /// Those for few links.
        Short,
        /// Those for many links.
        ManyLinks,
    }

    fn deed() -> impl Strategy<Value = Deed> {
        prop_oneof![
            120 => (1..2_000_u64).prop_map(Deed::Push),
            20 => Just(Deed::Pop),
            20 => Just(Deed::PopAll),
            2 => Just(Deed::Ask),
            1 => Just(Deed::Observe),
        ]
    }

    fn routes() -> impl Strategy<Value = Vec<Vec<usize>>> {
        let any = prop::collection::vec(prop::collection::vec(0..6_usize, 0..5), 1..4);
        prop_oneof![
            Just(vec![vec![0, 2, 3], vec![1, 2, 4]]),
            Just(vec![vec![5, 4, 0], vec![3, 4, 1]]),
            Just(vec![vec![0, 1, 2, 3, 4, 5]]),
            Just(vec![vec![1, 0], vec![1, 2, 3], vec![5, 4]]),
            any,
        ]
    }

    fn link() -> impl Strategy<Value = LinkConfig> {
        prop_oneof![6 => even_link_config(), 1 => link_config()]
    }

    /// What a caller sees after an operation: deliveries, state of a link, drops or events of the
    /// link, and the number of packets inside.
    type Seen = (
        Vec<Delivery<Packaged>>,
        Option<(LinkStats, Queued)>,
        Vec<LinkLogEntry>,
        usize,
    );

    fn play(
        network: &mut Network<Packaged>,
        routes: usize,
        deeds: &[(Deed, u64, usize)],
        grid: u64,
    ) -> Vec<Seen> {
        (0..6).for_each(|link| network.observe_drops(LinkId(link), 20));
        let (mut seen, mut now) = (vec![], Time::ZERO);
        for (id, (deed, gap, which)) in deeds.iter().enumerate() {
            now = Time::from_nanos(now.as_nanos() + gap / grid * grid);
            let link = LinkId(which % 6);
            let (mut out, mut asked) = (vec![], None);
            match *deed {
                Deed::Push(size) => {
                    let size = if grid > 1 {
                        size.next_multiple_of(250)
                    } else {
                        size
                    };
                    let packet = Packaged::new(id as u64, size, Ecn::Ect0);
                    network.push(now, RouteId(which % routes), packet);
                }
                Deed::Pop => out.extend(network.pop(now)),
                Deed::PopAll => {
                    out.extend(core::iter::from_fn(|| network.pop(now)));
                    assert!(network.next_departure().is_none_or(|next| next > now));
                }
                Deed::Ask => asked = Some((network.stats(link, now), network.queued(link, now))),
                Deed::Observe => network.observe(link, 30),
            }
            let notes = core::iter::from_fn(|| network.pop_note(link)).collect();
            seen.push((out, asked, notes, network.inside()));
        }
        let end = Time::from_nanos(now.as_nanos() + 20_000_000);
        for at in [end, Time::FAR] {
            let out = core::iter::from_fn(|| network.pop(at)).collect();
            seen.push((out, None, vec![], network.inside()));
            for link in (0..6).map(LinkId) {
                let notes = core::iter::from_fn(|| network.pop_note(link)).collect();
                let asked = Some((network.stats(link, at), network.queued(link, at)));
                seen.push((vec![], asked, notes, network.missed_notes(link) as usize));
            }
        }
        seen
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1500))]

        /// The specification: networks of general links only. A log of events is left out, since a
        /// fast link does not know the events of packets that entered before it.
        #[test]
        fn fast_and_plain_networks_are_equivalent(
            links in prop::collection::vec(link(), 6),
            routes in routes(),
            deeds in prop::collection::vec((deed(), 0..3_000_000_u64, any::<usize>()), 1..200),
            grid in prop_oneof![Just(1_u64), Just(250_000)],
        ) {
            let mut deeds = deeds;
            deeds.retain(|(deed, ..)| !matches!(deed, Deed::Observe));
            let [fast, plain] = [LinkForm::Fast, LinkForm::Plain].map(|form| {
                let mut network = network_of(&links, &routes, form);
                play(&mut network, routes.len(), &deeds, grid)
            });
            for (i, (fast, plain)) in fast.iter().zip(&plain).enumerate() {
                prop_assert_eq!(fast, plain, "step {}", i);
            }
        }

        /// Any queries and observations in between, at times that may coincide with events.
        #[test]
        fn optimised_networks_are_equivalent(
            links in prop::collection::vec(link(), 6),
            routes in routes(),
            deeds in prop::collection::vec((deed(), 0..3_000_000_u64, any::<usize>()), 1..200),
            grid in prop_oneof![Just(1_u64), Just(250_000)],
        ) {
            let run = |shape: Shape| {
                let mut network = network(&links, &routes);
                match shape {
                    Shape::Short => {}
                    Shape::ManyLinks => network.deliveries = exit_links::mark(&network.links, &mut network.hops),
                    Shape::Plain => {
                        (0..6).for_each(|link| network.part(link));
                        network.end_batches();
                    }
                }
                play(&mut network, routes.len(), &deeds, grid)
            };
            let plain = run(Shape::Plain);
            for shape in [Shape::Short, Shape::ManyLinks] {
                for (i, (one, other)) in run(shape).iter().zip(&plain).enumerate() {
                    prop_assert_eq!(one, other, "{:?}, step {}", shape, i);
                }
            }
        }
    }
}
