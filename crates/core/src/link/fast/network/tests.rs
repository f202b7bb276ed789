use core::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::control::Ecn;
use crate::link::testing::{PacketHandle, link_config};
use crate::units::Rate;

fn network(links: Vec<LinkConfig>, routes: &[&[usize]]) -> Network<PacketHandle> {
    let links = links.into_iter().enumerate();
    let config = NetworkConfig {
        links: links
            .map(|(i, config)| NamedLink {
                name: i.to_string(),
                config,
            })
            .collect(),
        routes: routes
            .iter()
            .map(|hops| hops.iter().map(|i| LinkId(*i)).collect())
            .collect(),
    };
    Network::new(&config, Seed(1)).unwrap()
}

fn wire(millis: u64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(millis),
        ..LinkConfig::default()
    }
}

fn handle(id: u64) -> PacketHandle {
    PacketHandle::new(id, 1_000, Ecn::Ect0)
}

fn drain(network: &mut Network<PacketHandle>, now: Time) -> Vec<(u64, u64)> {
    let deliveries = core::iter::from_fn(|| network.pop(now));
    deliveries
        .map(|d| (d.at.as_nanos() / 1_000_000, d.packet.id))
        .collect()
}

#[test]
fn merging_routes_advance_in_global_time_order() {
    let slow = LinkConfig {
        capacity: Capacity::Fixed(Rate::kbps(8_000)),
        ..LinkConfig::default()
    };
    let mut network = network(vec![wire(5), wire(3), slow], &[&[0, 2], &[1, 2], &[]]);
    let ms = Time::from_millis;
    network.push(ms(0), RouteId(0), handle(0));
    network.push(ms(1), RouteId(1), handle(1));
    network.push(ms(2), RouteId(1), handle(2));
    network.push(ms(2), RouteId(2), handle(3));
    assert_eq!(network.next_departure(), Some(ms(2)));
    assert_eq!(drain(&mut network, ms(2)), [(2, 3)]);
    // At the shared link: packet 1 at 4 ms, packets 0 and 2 at 5 ms, with link 0 first.
    assert_eq!(network.queued(LinkId(2), ms(5)).packets, 1);
    assert_eq!(drain(&mut network, ms(100)), [(5, 1), (6, 0), (7, 2)]);
    assert_eq!(network.stats(LinkId(2), ms(100)).delivered, 3);
    assert_eq!((network.inside(), network.next_departure()), (0, None));
}

#[test]
fn invalid_networks_are_rejected() {
    let twice = ["a", "a"].map(|name| NamedLink {
        name: name.into(),
        config: wire(1),
    });
    let config = NetworkConfig {
        links: twice.to_vec(),
        routes: vec![],
    };
    let taken = Network::<PacketHandle>::new(&config, Seed(1)).unwrap_err();
    assert_eq!(taken, NetworkError::NameTaken { name: "a".into() });
    let config = NetworkConfig {
        links: vec![],
        routes: vec![vec![], vec![LinkId(7)]],
    };
    let unknown = Network::<PacketHandle>::new(&config, Seed(1)).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "route 1 leads across link 7, which does not exist"
    );
}

const ROUTES: [&[usize]; 5] = [&[0, 2], &[1, 2, 0], &[2], &[], &[0, 1]];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// With routes that merge, diverge and form loops, delivery times do not depend on polling
    /// times.
    #[test]
    fn deliveries_do_not_depend_on_wakeups(
        links in prop::collection::vec(link_config(), 3),
        arrivals in prop::collection::vec((0..2_000_000_u64, 1..2_000_u64, 0..5_usize), 1..150),
        polls in prop::collection::vec(1..40_000_000_u64, 1..20),
    ) {
        let run = |polls: &[u64], punctual: bool| {
            let mut network = network(links.clone(), &ROUTES);
            let (mut out, mut now, mut poll, mut i) = (vec![], 0, 0, 0);
            for (id, (gap, size, route)) in arrivals.iter().enumerate() {
                now += gap;
                while poll <= now {
                    let at = Time::from_nanos(poll);
                    out.extend(core::iter::from_fn(|| network.pop(at)));
                    if punctual && let Some(next) = network.next_departure() {
                        assert!(next > at);
                    }
                    poll += polls[i % polls.len()];
                    i += 1;
                }
                let handle = PacketHandle::new(id as u64, *size, Ecn::Ect0);
                network.push(Time::from_nanos(now), RouteId(*route), handle);
            }
            let end = Time::FAR;
            out.extend(core::iter::from_fn(|| network.pop(end)));
            let stats: Vec<_> = (0..3).map(|i| network.stats(LinkId(i), end)).collect();
            (out, stats, network.inside() as u64)
        };
        let punctual = run(&[1_000_000], true);
        prop_assert!(punctual.0.is_sorted_by_key(|d| d.at));
        let dropped: u64 = punctual.1.iter().map(|s| s.queue_drops + s.loss_drops + s.outage_drops).sum();
        prop_assert_eq!(arrivals.len() as u64, punctual.0.len() as u64 + dropped + punctual.2);
        prop_assert_eq!(run(&polls, false), punctual);
    }
}
