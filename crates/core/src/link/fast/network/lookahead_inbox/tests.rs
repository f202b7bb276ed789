use core::iter;
use core::time::Duration;

use proptest::prelude::*;

use super::super::{NamedLink, NetworkConfig};
use super::*;
use crate::control::Ecn;
use crate::link::packet_log::LinkLogEntry;
use crate::link::standalone::{LinkStats, Queued};
use crate::link::testing::{PacketHandle as Packaged, even_link_config};
use crate::link::{Capacity, DropTailConfig, LinkConfig, QueueConfig};
use crate::random::Seed;
use crate::units::Rate;

fn network(links: &[LinkConfig], routes: &[Vec<usize>]) -> Network<Packaged> {
    let named = |(i, config): (usize, &LinkConfig)| NamedLink {
        name: i.to_string(),
        config: config.clone(),
    };
    let path = |route: &Vec<usize>| route.iter().map(|i| LinkId(*i)).collect();
    let config = NetworkConfig {
        links: links.iter().enumerate().map(named).collect(),
        routes: routes.iter().map(path).collect(),
    };
    Network::new(&config, Seed(1)).unwrap()
}

fn wire(kbps: Option<u64>, limit: u32, delay: u64) -> LinkConfig {
    LinkConfig {
        capacity: kbps.map_or(Capacity::Unlimited, |kbps| {
            Capacity::Fixed(Rate::kbps(kbps))
        }),
        queue: QueueConfig::DropTail(DropTailConfig::packets(limit)),
        delay: Duration::from_nanos(delay),
        ..LinkConfig::default()
    }
}

/// A link supported at the ends of a route.
fn end() -> impl Strategy<Value = LinkConfig> {
    let kbps = prop_oneof![
        Just(None),
        (100..20_000_u64).prop_map(Some),
        Just(Some(8_000)),
    ];
    let delay = prop_oneof![Just(1_000_000), 1..20_000_000_u64];
    (kbps, 1..12_u32, delay).prop_map(|(kbps, limit, delay)| wire(kbps, limit, delay))
}

fn links() -> impl Strategy<Value = Vec<LinkConfig>> {
    let other = || prop_oneof![end(), even_link_config()];
    (end(), other(), other(), end(), end(), other())
        .prop_map(|(a, b, c, d, e, f)| vec![a, b, c, d, e, f])
}

fn routes() -> impl Strategy<Value = Vec<Vec<usize>>> {
    prop_oneof![
        Just(vec![vec![0, 2, 3], vec![1, 2, 4]]),
        Just(vec![vec![0, 2, 3], vec![0, 2, 4], vec![1, 2, 3]]),
        Just(vec![vec![0, 2], vec![1, 2], vec![0, 3], vec![1, 3]]),
        Just(vec![vec![0, 2, 5, 3], vec![1, 2, 5, 4]]),
        Just(vec![vec![0, 2, 3], vec![1, 2, 5, 4]]),
    ]
}

/// Operations until the next possible query. Times in ns.
#[derive(Clone, Debug)]
struct Piece {
    length: u64,
    /// Time, size and route of each packet.
    packets: Vec<(u64, u64, usize)>,
    /// Times of calls of `advance`.
    steps: Vec<u64>,
    /// Link queried at the end, and the delay of the query.
    ask: Option<(usize, u64)>,
    observe: bool,
}

fn piece() -> impl Strategy<Value = Piece> {
    let at = || 0..30_000_000_u64;
    let packet = (at(), 1..2_000_u64, any::<usize>());
    let later = prop_oneof![4 => Just(0), 1 => Just(7_000_000_u64)];
    (
        1..30_000_000_u64,
        prop::collection::vec(packet, 0..40),
        prop::collection::vec(at(), 0..4),
        prop::option::weighted(0.3, (0..6_usize, later)),
        prop::bool::weighted(0.05),
    )
        .prop_map(|(length, packets, steps, ask, observe)| Piece {
            length,
            packets,
            steps,
            ask,
            observe,
        })
}

/// Observations: deliveries, packets inside, results of queries, drop logs.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    out: Vec<(Time, usize, Packaged)>,
    inside: usize,
    asked: Vec<(Queued, LinkStats)>,
    notes: Vec<LinkLogEntry>,
}

fn pop_all(network: &mut Network<Packaged>, now: Time, routes: &[Vec<usize>], seen: &mut Seen) {
    for delivery in iter::from_fn(|| network.pop(now)) {
        let last = routes[delivery.route.0].last().copied().unwrap_or_default();
        seen.out.push((delivery.at, last, delivery.packet));
    }
}

/// Packets of a piece that begins at `start`, in order. None enters exactly at `start`.
fn packets(piece: &Piece, start: u64, grid: u64, routes: usize) -> Vec<(Time, usize, Packaged)> {
    let mut packets = piece.packets.clone();
    let length = piece.length.max(grid);
    for (at, ..) in &mut packets {
        *at = start + 1 + *at % length / grid * grid;
    }
    packets.sort_by_key(|packet| packet.0);
    let packet = |(id, (at, size, route)): (usize, &(u64, u64, usize))| {
        let size = if grid > 1 {
            size.next_multiple_of(250)
        } else {
            *size
        };
        let packet = Packaged::new(start + id as u64, size, Ecn::Ect0);
        (Time::from_nanos(*at), route % routes, packet)
    };
    packets.iter().enumerate().map(packet).collect()
}

/// Runs the pieces, in lookahead mode if supported. `None` if lookahead is required but
/// unsupported.
fn play(
    (links, routes): (&[LinkConfig], &[Vec<usize>]),
    pieces: &[Piece],
    grid: u64,
    ahead: bool,
) -> Option<Vec<Seen>> {
    let mut network = network(links, routes);
    if ahead {
        network.get_ahead(1)?;
    } else {
        (0..links.len()).for_each(|link| network.part_from_feeder(link));
        network.end_batches();
    }
    (0..links.len()).for_each(|link| network.observe_drops(LinkId(link), 200));
    let (mut all, mut now) = (vec![], 0);
    for piece in pieces {
        let (start, end) = (now, now + piece.length.max(grid) + 1);
        let packets = packets(piece, start, grid, routes.len());
        let mut seen = Seen::default();
        if network.is_ahead() {
            network.tell_until(Time::from_nanos(end));
            // In order per first link; links in any order.
            let mut packets = packets;
            packets.sort_by_key(|(at, route, _)| (routes[*route][0], *at));
            for (at, route, packet) in packets {
                network.push_ahead(at, RouteId(route), packet.size(), || packet);
            }
            let mut steps: Vec<_> = piece
                .steps
                .iter()
                .map(|at| start + at % (end - start))
                .collect();
            steps.push(end);
            steps.sort_unstable();
            for step in steps {
                network.advance(Time::from_nanos(step));
                while let Some(link) = network.link_with_news() {
                    while let Some(exit) = network.news_of(link) {
                        let at = exit.at();
                        seen.out.push((at, link.0, network.take(exit).unwrap()));
                    }
                }
            }
        } else {
            for (at, route, packet) in packets {
                pop_all(&mut network, at, routes, &mut seen);
                network.push(at, RouteId(route), packet);
            }
        }
        pop_all(&mut network, Time::from_nanos(end), routes, &mut seen);
        seen.out.sort_by_key(|(at, link, _)| (*at, *link));
        seen.inside = network.inside();
        for link in (0..links.len()).map(LinkId) {
            seen.notes.extend(iter::from_fn(|| network.pop_note(link)));
        }
        now = end;
        if let Some((link, later)) = piece.ask {
            now = end + later;
            let state = network.state(LinkId(link), Time::from_nanos(now));
            seen.asked.push(state);
        }
        if piece.observe {
            network.observe(LinkId(piece.packets.len() % links.len()), 30);
        }
        all.push(seen);
    }
    for at in [now, now + 10_000_000_000_000].map(Time::from_nanos) {
        let mut seen = Seen::default();
        let state = |link| network.state(LinkId(link), at);
        seen.asked.extend((0..links.len()).map(state));
        pop_all(&mut network, at, routes, &mut seen);
        seen.out.sort_by_key(|(at, link, _)| (*at, *link));
        seen.inside = network.inside();
        all.push(seen);
    }
    Some(all)
}

/// Packet A leaves the transmitter of the exit link when P and Q arrive, so P counts as queued.
#[test]
fn arrivals_precede_the_end_of_a_transmission() {
    let ms = 1_000_000;
    let mut links = vec![wire(None, 100, ms); 5];
    links[3] = wire(Some(8_000), 1, ms);
    let routes = vec![vec![0, 2, 3], vec![1, 2, 4]];
    let pieces = [Piece {
        length: 30 * ms,
        packets: vec![(0, 1_000, 0), (ms, 1_000, 0), (ms, 1_000, 0)],
        steps: vec![],
        ask: None,
        observe: false,
    }];
    let seen = play((&links, &routes), &pieces, 1, true).unwrap();
    assert_eq!(seen[0].out.len(), 2);
    assert_eq!(Some(seen), play((&links, &routes), &pieces, 1, false));
}

/// A bottleneck exit link removes departed packets from its ring.
#[test]
fn the_ring_of_a_busy_exit_stays_small() {
    let ms = 1_000_000;
    let mut links = vec![wire(None, 100, ms); 5];
    links[3] = wire(Some(8_000), 10, ms);
    let mut network = network(&links, &[vec![0, 2, 3], vec![1, 2, 4]]);
    network.get_ahead(1).unwrap();
    network.tell_until(Time::from_secs(10));
    for i in 0..10_000 {
        let at = Time::from_micros(950 * i);
        let packet = Packaged::new(i, 1_000, Ecn::Ect0);
        network.push_ahead(at, RouteId(0), packet.size(), || packet);
        network.advance(at);
        while let Some(link) = network.link_with_news() {
            while let Some(exit) = network.news_of(link) {
                assert!(network.take(exit).is_some());
            }
        }
    }
    let fast = network.links[3].fast().unwrap();
    assert!(fast.len() <= 16, "{}", fast.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// With any pushes, queries and observations at the end of a piece, or later.
    #[test]
    fn lookahead_is_equivalent_to_order_of_time(
        links in links(),
        routes in routes(),
        pieces in prop::collection::vec(piece(), 1..6),
        grid in prop_oneof![Just(1_u64), Just(250_000)],
    ) {
        if let Some(seen) = play((&links, &routes), &pieces, grid, true) {
            let plain = play((&links, &routes), &pieces, grid, false).unwrap();
            for (i, (one, other)) in seen.iter().zip(&plain).enumerate() {
                prop_assert_eq!(one, other, "piece {}", i);
            }
        }
    }
}
