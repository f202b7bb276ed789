use core::time::Duration;

use super::super::{LinkId, NamedLink, NetworkConfig, RouteId};
use super::*;
use crate::control::Ecn;
use crate::link::testing::PacketHandle as Packaged;
use crate::link::{Capacity, LinkConfig};
use crate::random::Seed;
use crate::units::Rate;

/// With one delay for each link, in ms.
fn network(delays: &[u64], routes: &[&[usize]]) -> Network<Packaged> {
    let link = |(i, delay): (usize, &u64)| NamedLink {
        name: i.to_string(),
        config: LinkConfig {
            delay: Duration::from_millis(*delay),
            ..LinkConfig::default()
        },
    };
    let path = |route: &&[usize]| route.iter().map(|i| LinkId(*i)).collect();
    let config = NetworkConfig {
        links: delays.iter().enumerate().map(link).collect(),
        routes: routes.iter().map(path).collect(),
    };
    Network::new(&config, Seed(1)).unwrap()
}

#[test]
fn whose_packets_are_moved_on_in_batches() {
    let batched = |delays: &[u64], routes: &[&[usize]]| {
        let network = network(delays, routes);
        let links = 0..delays.len();
        links
            .filter(|i| network.batches.has(*i))
            .collect::<Vec<_>>()
    };
    let fork: [&[usize]; 2] = [&[0, 2, 3], &[1, 2, 4]];
    assert_eq!(batched(&[1, 7, 50, 1, 1], &fork), [0, 1]);
    // Something may come of a packet at once, or before it is out of its first link.
    assert_eq!(batched(&[1, 1, 0, 1, 1], &fork), []);
    assert_eq!(batched(&[1, 0, 50, 1, 1], &fork), []);
    // The second link has packets that come to it by themselves, or another way.
    assert_eq!(batched(&[1; 5], &[&[0, 2, 3], &[1, 2, 4], &[2, 3]]), []);
    assert_eq!(batched(&[1; 5], &[&[0, 2, 3], &[1, 2, 4], &[4, 3, 2]]), []);
    // The first is a second one too, or has packets with nowhere to go.
    assert_eq!(batched(&[1; 5], &[&[0, 2, 3], &[1, 2, 4], &[3, 1]]), []);
    assert_eq!(batched(&[1; 5], &[&[0, 2, 3], &[1, 2, 4], &[1]]), []);
    // A first link that leads to several.
    assert_eq!(batched(&[1; 4], &[&[0, 2], &[0, 3], &[1, 3]]), [0, 1]);
    // It feeds the second alone.
    assert_eq!(batched(&[1; 3], &[&[0, 1, 2]]), []);
}

/// However far ahead somebody asks: an answer to the first packet may overtake what waits for its
/// first link.
#[test]
fn what_is_pushed_after_a_delivery_comes_in_between() {
    let mut network = network(&[1, 1, 1, 1, 1], &[&[0, 2, 3], &[1, 2, 4]]);
    let slow = LinkConfig {
        capacity: Capacity::Fixed(Rate::kbps(1_000)),
        delay: Duration::from_millis(1),
        ..LinkConfig::default()
    };
    network.links[0] = LinkImpl::new(&slow, Seed(1), "slow").unwrap();
    let mut push = |at: Time, route: usize, id: u64| {
        let packet = Packaged::new(id, 1_000, Ecn::NotEct);
        network.push(at, RouteId(route), packet);
        let out = network.pop(Time::from_secs(1)).unwrap();
        (out.packet.id, out.at)
    };
    let ms = Time::from_millis;
    assert_eq!(push(Time::ZERO, 1, 0), (0, ms(3)));
    // Out of its first link at 12 ms; asked for by then, it is at the second one already.
    assert_eq!(push(ms(3), 0, 1), (1, ms(14)));
    let packet = Packaged::new(2, 1_000, Ecn::NotEct);
    network.push(ms(14), RouteId(0), packet);
    for id in [3, 4] {
        let packet = Packaged::new(id, 1_000, Ecn::NotEct);
        network.push(ms(14), RouteId(1), packet);
    }
    let first = network.pop(Time::from_secs(1)).unwrap();
    assert_eq!((first.packet.id, first.at), (3, ms(17)));
    let packet = Packaged::new(5, 1_000, Ecn::NotEct);
    network.push(ms(17), RouteId(1), packet);
    let rest = core::iter::from_fn(|| network.pop(Time::from_secs(1)));
    let rest: Vec<_> = rest.map(|out| (out.packet.id, out.at)).collect();
    assert_eq!(rest, [(4, ms(17)), (5, ms(20)), (2, ms(25))]);
}

#[test]
fn what_is_due_is_moved_on_for_who_asks() {
    let mut network = network(&[1, 1, 50, 1, 1], &[&[0, 2, 3], &[1, 2, 4]]);
    for (id, route) in [(0, 1), (1, 0)] {
        let packet = Packaged::new(id, 1_000, Ecn::NotEct);
        network.push(Time::ZERO, RouteId(route), packet);
    }
    let at = Time::from_millis(2);
    assert_eq!(network.next_departure(), Some(Time::from_millis(51)));
    assert_eq!(network.pop(at), None);
    let waiting = network.batches.lists[0].entries.coming(0, 9);
    assert_eq!(waiting.len(), 2);
    let second = network.stats(LinkId(2), at);
    assert_eq!((second.arrivals, second.delivered), (2, 0));
    assert_eq!(network.stats(LinkId(1), at).delivered, 1);
    let out = core::iter::from_fn(|| network.pop(Time::from_millis(52)));
    assert_eq!(out.map(|out| out.packet.id).collect::<Vec<_>>(), [1, 0]);
}
