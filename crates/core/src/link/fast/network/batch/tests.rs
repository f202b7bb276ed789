use core::time::Duration;

use super::super::{LinkForm, LinkId, NamedLink, NetworkConfig, RouteId};
use super::*;
use crate::control::Ecn;
use crate::link::testing::PacketHandle as Packaged;
use crate::link::{Capacity, LinkConfig};
use crate::random::Seed;
use crate::units::Rate;

/// Network of wires with the given delays, in ms.
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
fn first_links_of_merging_routes_have_batches() {
    let batched = |delays: &[u64], routes: &[&[usize]]| {
        let network = network(delays, routes);
        let links = 0..delays.len();
        links
            .filter(|i| network.batches.has(*i))
            .collect::<Vec<_>>()
    };
    let fork: [&[usize]; 2] = [&[0, 2, 3], &[1, 2, 4]];
    assert_eq!(batched(&[1, 7, 50, 1, 1], &fork), [0, 1]);
    // A packet may have an effect immediately, or before it leaves its first link.
    assert_eq!(batched(&[1, 1, 0, 1, 1], &fork), []);
    assert_eq!(batched(&[1, 0, 50, 1, 1], &fork), []);
    // The second link is also the first link of a route, or has another input.
    assert_eq!(batched(&[1; 5], &[&[0, 2, 3], &[1, 2, 4], &[2, 3]]), []);
    assert_eq!(batched(&[1; 5], &[&[0, 2, 3], &[1, 2, 4], &[4, 3, 2]]), []);
    // The first link is also a second one, or is the last link of a route.
    assert_eq!(batched(&[1; 5], &[&[0, 2, 3], &[1, 2, 4], &[3, 1]]), []);
    assert_eq!(batched(&[1; 5], &[&[0, 2, 3], &[1, 2, 4], &[1]]), []);
    // A first link that leads to several second links.
    assert_eq!(batched(&[1; 4], &[&[0, 2], &[0, 3], &[1, 3]]), [0, 1]);
    // A feeder: the only input of the second link.
    assert_eq!(batched(&[1; 3], &[&[0, 1, 2]]), []);
}

/// A late query must not move batched packets past a packet that the caller pushes after an earlier
/// delivery.
#[test]
fn a_packet_pushed_after_a_delivery_keeps_its_order() {
    let mut network = network(&[1, 1, 1, 1, 1], &[&[0, 2, 3], &[1, 2, 4]]);
    let slow = LinkConfig {
        capacity: Capacity::Fixed(Rate::kbps(1_000)),
        delay: Duration::from_millis(1),
        ..LinkConfig::default()
    };
    network.links[0] = LinkImpl::new(&slow, Seed(1), "slow", LinkForm::Fast).unwrap();
    let mut push = |at: Time, route: usize, id: u64| {
        let packet = Packaged::new(id, 1_000, Ecn::NotEct);
        network.push(at, RouteId(route), packet);
        let out = network.pop(Time::from_secs(1)).unwrap();
        (out.packet.id, out.at)
    };
    let ms = Time::from_millis;
    assert_eq!(push(Time::ZERO, 1, 0), (0, ms(3)));
    // It leaves its first link at 12 ms, so a query at that time finds it at the second link.
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
fn queries_process_due_packets_first() {
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
