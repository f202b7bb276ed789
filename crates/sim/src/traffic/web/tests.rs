use core::time::Duration;

use tidegate_core::link::{
    Capacity, DropTailConfig, LinkConfig, LinkId, LossConfig, NamedLink, Network, NetworkConfig,
    QueueConfig, RouteId,
};
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate, Time};

use super::*;
use crate::packet_agent::{Agent, AgentCx, Arrival, Body};
use crate::tcp::{SinkConfig, classic};
use crate::traffic::Distribution;
use crate::world::{Node, NodeId, SimPacket, World};

#[derive(Debug)]
enum Player {
    Client(Client),
    Server(Server),
}

impl Agent for Player {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: &mut Body) {
        match self {
            Self::Client(agent) => agent.on_packet(cx, arrival, body),
            Self::Server(agent) => agent.on_packet(cx, arrival, body),
        }
    }
    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        match self {
            Self::Client(agent) => agent.on_timer(cx),
            Self::Server(agent) => agent.on_timer(cx),
        }
    }
    fn next_timer(&self) -> Time {
        match self {
            Self::Client(agent) => agent.next_timer(),
            Self::Server(agent) => agent.next_timer(),
        }
    }
}

/// Pages use route 0, requests route 1; 20 ms per direction.
fn network(rate: Option<Rate>, queue: u32, loss: f64, seed: u64) -> Network<SimPacket> {
    let link = |name: &str, capacity, loss| NamedLink {
        name: name.to_owned(),
        config: LinkConfig {
            capacity,
            loss,
            queue: QueueConfig::DropTail(DropTailConfig::packets(queue)),
            delay: Duration::from_millis(20),
            ..LinkConfig::default()
        },
    };
    let down = rate.map_or(Capacity::Unlimited, Capacity::Fixed);
    let config = NetworkConfig {
        links: vec![
            link("down", down, LossConfig::Bernoulli(loss)),
            link("up", Capacity::Unlimited, LossConfig::Bernoulli(loss)),
        ],
        routes: vec![vec![LinkId(0)], vec![LinkId(1)]],
    };
    Network::new(&config, Seed(seed)).unwrap()
}

fn world(config: Config, browsers: usize, network: Network<SimPacket>) -> World<Player> {
    let config = Arc::new(config);
    let mut nodes = Vec::new();
    for n in 0..browsers {
        let (client, server) = browser(&config).unwrap();
        let node = |side: &str, agent, peer, route| Node {
            name: format!("web-{n}/{side}"),
            agent,
            peer: NodeId(peer),
            route: RouteId(route),
            flow: n as u32,
            dscp: 0,
            start: Time::ZERO,
            stop: Time::FAR,
        };
        nodes.push(node("client", Player::Client(client), 2 * n + 1, 1));
        nodes.push(node("server", Player::Server(server), 2 * n, 0));
    }
    World::new(network, nodes, Seed(1)).unwrap()
}

fn totals(world: &World<Player>, browsers: usize) -> Totals {
    let mut totals = Totals::default();
    for n in 0..browsers {
        let pair = (world.agent(NodeId(2 * n)), world.agent(NodeId(2 * n + 1)));
        let (Player::Client(client), Player::Server(server)) = pair else {
            panic!("clients and servers take turns");
        };
        totals.add(client, server);
    }
    totals
}

/// Pages of `objects` objects of 10 kB, or eleven segments, about once per second.
fn plain(objects: f64, connections: Connections) -> Config {
    Config {
        think: Distribution::Constant(1.0),
        objects: Distribution::Constant(objects),
        size: Distribution::Constant(10_000.0),
        connections,
        ..Config::default()
    }
}

#[test]
fn page_load_takes_the_expected_round_trips() {
    let page = |objects, connections| {
        let mut world = world(plain(objects, connections), 1, network(None, 9, 0.0, 1));
        world.run(Time::from_secs(10), &mut ()).unwrap();
        let totals = totals(&world, 1);
        assert_eq!(totals.page_times.least(), totals.page_times.most());
        (
            totals.page_times.mean().unwrap().as_millis(),
            totals.server.connections / totals.client.pages,
        )
    };
    // A round trip of 40 ms for request and SYN, then windows of 2, 4 and the last 5 segments.
    assert_eq!(page(1.0, Connections::PerPage), (160, 1));
    assert_eq!(page(3.0, Connections::PerObject), (480, 3));
    // The window is 13 at the end of the first object, so each later object takes one round trip.
    assert_eq!(page(3.0, Connections::PerPage), (240, 1));
    // Parallel objects take as long as one.
    assert_eq!(page(3.0, Connections::AtOnce), (160, 3));
}

/// A page takes 160 ms. With a mean think time of 10 s and eight browsers, one run in eight has a
/// page by 200 ms, and hardly any has two.
#[test]
fn browser_that_begins_with_a_page_skips_the_first_think_time() {
    let pages = |begin| {
        let config = Config {
            think: Distribution::Exponential { mean: 10.0 },
            begin,
            ..plain(30.0, Connections::AtOnce)
        };
        let mut world = world(config, 8, network(None, 9, 0.0, 1));
        world.run(Time::from_millis(200), &mut ()).unwrap();
        totals(&world, 8).client
    };
    let (page, thinking) = (pages(Begin::Page), pages(Begin::Thinking));
    assert_eq!((page.pages, page.objects), (8, 240));
    assert!(thinking.pages <= 1, "{thinking:?}");
}

#[test]
fn counters_add_up() {
    let mut world = world(
        plain(2.0, Connections::PerObject),
        1,
        network(None, 9, 0.0, 1),
    );
    world.run(Time::from_millis(99_600), &mut ()).unwrap();
    let totals = totals(&world, 1);
    let Totals { client, server, .. } = &totals;
    assert_eq!((client.pages, client.objects), (75, 150));
    assert_eq!(client.bytes, 150 * 10_000);
    // Eleven data segments and a SYN each. The run ends in a think time.
    assert_eq!((server.sent, client.segments), (150 * 12, 150 * 12));
    assert_eq!(
        (server.repeated, client.repeated, server.timeouts),
        (0, 0, 0)
    );
    assert!(totals.loss() < 1e-12);
    assert_eq!(totals.page_times.count(), 75);
}

/// One packet in ten is lost, including requests and acknowledgements. All pages complete despite
/// retransmissions across objects and connections.
#[test]
fn all_pages_complete_despite_losses() {
    for (connections, flavour) in [
        (Connections::PerObject, classic::Flavour::Reno),
        (Connections::PerPage, classic::Flavour::NewReno),
        (Connections::PerPage, classic::Flavour::Sack),
        (Connections::AtOnce, classic::Flavour::Reno),
    ] {
        let config = Config {
            tcp: classic::Config {
                flavour,
                ..classic::Config::default()
            },
            sink: SinkConfig {
                delay: Some(Duration::from_millis(40)),
                ..SinkConfig::default()
            },
            ..plain(3.0, connections)
        };
        let mut world = world(config, 30, network(None, 9, 0.1, 7));
        let mut before = 0;
        for minutes in 1..=5 {
            world.run(Time::from_secs(240 * minutes), &mut ()).unwrap();
            let totals = totals(&world, 30);
            assert!(totals.client.pages > before + 600, "{totals:?}");
            before = totals.client.pages;
        }
        let totals = totals(&world, 30);
        assert!((totals.loss() - 0.1).abs() < 0.01, "{}", totals.loss());
        assert!(totals.client.repeated > 100, "{totals:?}");
        assert_eq!(totals.client.objects / totals.client.pages, 3);
    }
}

/// Browsers on an uncongested link offer the configured load.
#[test]
fn offered_load_equals_the_configured_load() {
    let load = Rate::kbps(5_000);
    let config = Config {
        // Lighter tails than the default, so that the mean converges in a short run.
        size: Distribution::LogNormal {
            median: 8_000.0,
            sigma: 1.0,
        },
        objects: Distribution::pareto(2.43, 3.0),
        think: Distribution::Exponential { mean: 1.0 },
        ..Config::default()
    };
    let page = Duration::from_millis(400);
    let config = config.with_load(200, load, page);
    assert!((config.rate(page).as_f64() * 200.0 / load.as_f64() - 1.0).abs() < 1e-3);
    let mut world = world(config.clone(), 200, network(None, 9, 0.0, 1));
    world.run(Time::from_secs(800), &mut ()).unwrap();
    let totals = totals(&world, 200);
    let offered = 200.0 * config.rate(totals.page_times.mean().unwrap()).as_f64();
    let found = totals.client.bytes as f64 * 8.0 / 800.0;
    assert!((found / offered - 1.0).abs() < 0.02, "{found} of {offered}");
    assert!((found / load.as_f64() - 1.0).abs() < 0.04, "{found}");
}

/// The loss rate follows from the number of browsers on a link, as in the papers' experiments.
#[test]
fn loss_rate_grows_with_the_number_of_browsers() {
    let found = [200_usize, 300, 400].map(|browsers| {
        // 20 kb/s per browser: 4, 6 and 8 Mb/s on a link of 5 Mb/s.
        let config = Config::default().with_load(100, Rate::kbps(2_000), Duration::from_secs(1));
        let link = network(Some(Rate::kbps(5_000)), 50, 0.0, 3);
        let mut world = world(config, browsers, link);
        world.run(Time::from_secs(300), &mut ()).unwrap();
        let totals = totals(&world, browsers);
        (totals.loss(), totals.page_times.quantile(0.9).unwrap())
    });
    let [light, busy, heavy] = found;
    assert!(light.0 < busy.0 && busy.0 < heavy.0, "{found:?}");
    assert!(light.1 < heavy.1, "{found:?}");
    assert!(
        light.0 > 1e-4 && heavy.0 > 0.02 && heavy.0 < 0.2,
        "{found:?}"
    );
}

#[test]
fn same_seed_yields_same_pages() {
    let run = || {
        let mut world = world(
            Config::default(),
            20,
            network(Some(Rate::kbps(2_000)), 20, 0.01, 3),
        );
        world.run(Time::from_secs(60), &mut ()).unwrap();
        totals(&world, 20)
    };
    assert_eq!(run(), run());
}

#[test]
fn faults_are_named() {
    let fault = |config: Config| browser(&Arc::new(config)).unwrap_err().to_string();
    assert_eq!(
        fault(Config {
            think: Distribution::pareto(1.0, 3.0),
            ..Config::default()
        }),
        "think time: a power law of shape 1 has no mean: choose a shape above 1 or bound it"
    );
    assert_eq!(
        fault(Config {
            size: Distribution::Constant(0.0),
            ..Config::default()
        }),
        "object size: a value of 0 is not possible: write a number above 0"
    );
    assert_eq!(
        fault(Config {
            request: Bytes(0),
            ..Config::default()
        }),
        "a request of 0 B is not possible: write a size from 1 to 65535"
    );
    assert_eq!(
        fault(Config {
            retry: Duration::ZERO,
            ..Config::default()
        }),
        "the retransmission time-out of requests is zero: write a time above 0, as 3 s"
    );
    assert_eq!(
        fault(Config {
            tcp: classic::Config {
                packet_size: 40,
                ..classic::Config::default()
            },
            ..Config::default()
        }),
        "packets of 40 B with headers of 40 B have no room for payload: increase the packet size"
    );
}

/// Reference: ns-2.35 (`PagePool/WebTraf`, Reno, pages of one object) over 10 Mb/s and a queue of
/// 50 kB. Utilisation and loss in bytes from 100 to 400 s, as means of two to six seeds.
#[test]
fn load_of_browsers_agrees_with_ns2() {
    for (browsers, used, loss) in [
        (800, 0.782, 0.0047),
        (1_000, 0.965, 0.0535),
        (1_200, 1.0, 0.252),
    ] {
        let config = Config {
            think: Distribution::Exponential { mean: 10.0 },
            objects: Distribution::Constant(1.0),
            // As many bytes on the wire as in ns-2 with whole packets, 12.5 on average.
            size: Distribution::pareto(2.5, 12.55 * 960.0),
            tcp: classic::Config::default(),
            ..Config::default()
        };
        let link = |name: &str, capacity| NamedLink {
            name: name.to_owned(),
            config: LinkConfig {
                capacity,
                queue: QueueConfig::DropTail(DropTailConfig::bytes(Bytes(50_000))),
                delay: Duration::from_millis(22),
                ..LinkConfig::default()
            },
        };
        let network = NetworkConfig {
            links: vec![
                link("down", Capacity::Fixed(Rate::kbps(10_000))),
                link("up", Capacity::Unlimited),
            ],
            routes: vec![vec![LinkId(0)], vec![LinkId(1)]],
        };
        let network = Network::new(&network, Seed(1)).unwrap();
        let mut world = world(config, browsers, network);
        let mut bytes = |until| {
            world.run(until, &mut ()).unwrap();
            let stats = world.network().stats(LinkId(0), until);
            (stats.arrived_bytes.0, stats.delivered_bytes.0)
        };
        let (before, after) = (bytes(Time::from_secs(100)), bytes(Time::from_secs(400)));
        let (arrived, delivered) = (after.0 - before.0, after.1 - before.1);
        let found_use = delivered as f64 * 8.0 / 3e9;
        let found_loss = 1.0 - delivered as f64 / arrived as f64;
        assert!(
            (found_use - used).abs() < 0.02,
            "{found_use} with {browsers}"
        );
        assert!(
            (found_loss - loss).abs() < 0.02,
            "{found_loss} with {browsers}"
        );
    }
}
