use tidegate_core::endpoint::Transmit;
use tidegate_core::link::{
    Capacity, DropTailConfig, LinkConfig, LossConfig, NamedLink, NetworkConfig, QueueConfig,
};
use tidegate_core::random::unit;
use tidegate_core::units::{Bytes, Rate};

use tidegate_core::control::{Context, Ecn, TimerReason};
use tidegate_core::endpoint::{Check, Datagram, Endpoint, Input, Output};

use super::*;
use crate::packet_agent::Body;

/// Sends numbered pings at random intervals and answers pings.
#[derive(Debug)]
enum Player {
    Ping {
        next: Time,
        left: u32,
        owed: bool,
        pongs: Vec<(Time, u8)>,
    },
    Echo {
        answers: Vec<u8>,
        arrived: u32,
    },
    /// Sets its timer to the present instant without end.
    Sleepless,
    /// Sends without end.
    Chatty {
        begun: bool,
    },
}

impl Player {
    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        match self {
            Self::Ping { next, owed, .. } => {
                *owed = true;
                *next = cx.now + Duration::from_micros(1 + (unit(cx.rng) * 20_000.0) as u64);
            }
            Self::Chatty { begun } => *begun = true,
            Self::Echo { .. } | Self::Sleepless => {}
        }
    }

    fn on_datagram(&mut self, cx: &mut Context<'_>, datagram: Datagram<'_>) {
        match self {
            Self::Ping { pongs, .. } => pongs.push((cx.now, datagram.payload[0])),
            Self::Echo { answers, arrived } => {
                answers.push(datagram.payload[0]);
                *arrived += 1;
                cx.trace.record(cx.now, Event::PeerReportsOnly);
            }
            Self::Sleepless | Self::Chatty { .. } => {}
        }
    }

    /// The next byte to send.
    fn next(&mut self) -> Option<u8> {
        match self {
            Self::Ping { left, owed, .. } if *owed && *left > 0 => {
                (*left, *owed) = (*left - 1, false);
                Some(*left as u8)
            }
            Self::Echo { answers, .. } => answers.pop(),
            Self::Chatty { begun: true } => Some(0),
            _ => None,
        }
    }
}

impl Endpoint for Player {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        match input {
            Input::Datagram(datagram) => self.on_datagram(cx, datagram),
            Input::PeerChanged | Input::PathChanged | Input::Stream(_) => {}
            Input::Timeout => self.on_timeout(cx),
        }
        Check::default()
    }

    fn poll(&mut self, _: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        assert!(buffer.is_empty(), "the buffer is not empty");
        if let Some(byte) = self.next() {
            buffer.resize(972, byte);
            return Output::Send(Transmit::default());
        }
        match self {
            Self::Ping { left: 0, .. } | Self::Echo { .. } => Output::Done(None),
            Self::Ping { next, .. } => Output::Wait(Some((*next, TimerReason::Probe))),
            Self::Sleepless => Output::Wait(Some((Time::ZERO, TimerReason::Breaker))),
            Self::Chatty { .. } => Output::Wait(None),
        }
    }
}

fn ping(count: u32) -> Player {
    Player::Ping {
        next: Time::ZERO,
        left: count,
        owed: false,
        pongs: Vec::new(),
    }
}

fn echo() -> Player {
    Player::Echo {
        answers: Vec::new(),
        arrived: 0,
    }
}

/// One link of 1 Mb/s and 10 ms per direction. Serialization of 1000 bytes takes 8 ms.
fn network(loss: f64, seed: u64) -> Network<SimPacket> {
    let link = |name: &str| NamedLink {
        name: name.to_owned(),
        config: LinkConfig {
            capacity: Capacity::Fixed(Rate::kbps(1_000)),
            queue: QueueConfig::DropTail(DropTailConfig::packets(5)),
            loss: LossConfig::Bernoulli(loss),
            delay: ms(10),
            ..LinkConfig::default()
        },
    };
    let config = NetworkConfig {
        links: vec![link("up"), link("down")],
        routes: vec![vec![LinkId(0)], vec![LinkId(1)], vec![]],
    };
    Network::new(&config, Seed(seed)).unwrap()
}

fn node(name: &str, endpoint: Player, peer: usize, route: usize) -> Node<EndpointAgent<Player>> {
    Node {
        name: name.to_owned(),
        agent: EndpointAgent::new(endpoint),
        peer: NodeId(peer),
        route: RouteId(route),
        flow: 0,
        dscp: 0,
        start: Time::ZERO,
        stop: Time::FAR,
    }
}

fn pair(count: u32) -> Vec<Node<EndpointAgent<Player>>> {
    vec![node("ping", ping(count), 1, 0), node("echo", echo(), 0, 1)]
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn pongs(player: &Player) -> &[(Time, u8)] {
    match player {
        Player::Ping { pongs, .. } => pongs,
        other => panic!("{other:?} does not count pongs"),
    }
}

/// All observer calls in order.
#[derive(Debug, Default, PartialEq)]
struct Log(Vec<(Time, String)>);

impl Observer for Log {
    fn event(&mut self, node: NodeId, at: Time, event: Event) {
        self.0.push((at, format!("{node:?} {event:?}")));
    }
    fn sent(&mut self, at: Time, flight: Flight<'_>) {
        let line = format!(
            "sent {:?} {} {}",
            flight.node,
            flight.size.0,
            flight.payload()[0]
        );
        self.0.push((at, line));
    }
    fn arrived(&mut self, at: Time, flight: Flight<'_>) {
        self.0.push((
            at,
            format!("arrived {:?} {}", flight.node, flight.payload()[0]),
        ));
    }
    fn sample(&mut self, sample: &Sample) {
        self.0.push((sample.at, format!("{sample:?}")));
    }
}

#[test]
fn round_trip_takes_the_delay_of_the_links() {
    let mut world = World::new(network(0.0, 1), pair(1), Seed(1)).unwrap();
    let end = world.run(Time::from_secs(9), &mut ()).unwrap();
    // 8 ms of serialization and 10 ms of propagation per direction.
    assert_eq!(end, Time::from_millis(36));
    assert_eq!(
        pongs(&world.agent(NodeId(0)).endpoint),
        [(Time::from_millis(36), 0)]
    );
    assert_eq!(world.into_agents().len(), 2);
}

#[test]
fn same_seed_yields_same_run() {
    let log = |seed| {
        let mut log = Log::default();
        let mut world = World::new(network(0.2, seed), pair(100), Seed(seed)).unwrap();
        world.sample_every(ms(7), 2);
        world.run(Time::from_secs(9), &mut log).unwrap();
        log
    };
    let first = log(1);
    assert!(first.0.is_sorted_by_key(|(at, _)| *at));
    assert!(
        first
            .0
            .iter()
            .any(|(_, line)| line.contains("PeerReportsOnly"))
    );
    assert_eq!(first, log(1));
    assert_ne!(first, log(2));
}

#[test]
fn pauses_change_nothing() {
    let mut whole = Log::default();
    let mut world = World::new(network(0.2, 1), pair(50), Seed(1)).unwrap();
    world.run(Time::from_secs(2), &mut whole).unwrap();
    let mut pieces = Log::default();
    let mut world = World::new(network(0.2, 1), pair(50), Seed(1)).unwrap();
    for step in 1..=200 {
        world
            .run(Time::from_millis(step * 10), &mut pieces)
            .unwrap();
    }
    assert_eq!(whole, pieces);
}

#[test]
fn nodes_are_active_from_start_to_stop() {
    let mut nodes = pair(250);
    nodes[0].start = Time::from_millis(500);
    nodes[1].start = Time::from_millis(600);
    nodes[1].stop = Time::from_millis(1_000);
    let mut log = Log::default();
    let mut world = World::new(network(0.0, 1), nodes, Seed(1)).unwrap();
    world.run(Time::from_secs(2), &mut log).unwrap();
    let of = |word: &str| -> Vec<Time> {
        let lines = log.0.iter().filter(|(_, line)| line.starts_with(word));
        lines.map(|(at, _)| *at).collect()
    };
    assert_eq!(of("sent NodeId(0)")[0], Time::from_millis(500));
    let arrived = of("arrived NodeId(1)");
    assert!(arrived[0] >= Time::from_millis(600) && arrived.len() > 10);
    assert!(*arrived.last().unwrap() < Time::from_millis(1_000));
    assert!(*of("sent NodeId(0)").last().unwrap() > Time::from_millis(1_000));
}

#[test]
fn links_are_sampled_at_exact_times() {
    let mut log = Log::default();
    let mut world = World::new(network(0.0, 1), vec![node("a", ping(3), 0, 0)], Seed(1)).unwrap();
    world.sample_every(ms(4), 2);
    world.run(Time::from_millis(8), &mut log).unwrap();
    let at: Vec<Time> = log
        .0
        .iter()
        .filter(|(_, line)| line.starts_with("Sample"))
        .map(|(at, _)| *at)
        .collect();
    let ticks = [0, 0, 4, 4, 8, 8].map(Time::from_millis);
    assert_eq!(at, ticks, "expected two links per sample time");
    let stats = world.network().stats(LinkId(0), Time::from_millis(8));
    assert!(stats.arrivals >= 1);
}

#[test]
fn stalled_run_fails_with_the_name_of_the_node() {
    let stuck = |endpoint, route| {
        let nodes = vec![
            node("odd", endpoint, 1, route),
            node("echo", echo(), 0, route),
        ];
        let mut world = World::new(network(0.0, 1), nodes, Seed(1)).unwrap();
        world
            .run(Time::from_secs(1), &mut ())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        stuck(Player::Sleepless, 0),
        "the timer of node odd expired more than 1000 times at 0.000000000s (Breaker): \
         on_timer must advance next_timer"
    );
    assert_eq!(
        stuck(Player::Chatty { begun: false }, 0),
        "node odd sent more than 1000000 packets in one call at 0.000000000s: \
         limit the packets per call"
    );
}

#[test]
fn zero_delay_echoes_are_reported_as_storm() {
    let nodes = vec![
        node("ping", ping(1), 1, 2),
        node("a", echo(), 2, 2),
        node("b", echo(), 1, 2),
    ];
    let mut world = World::new(network(0.0, 1), nodes, Seed(1)).unwrap();
    let error = world.run(Time::from_secs(1), &mut ()).unwrap_err();
    assert!(matches!(error, WorldError::Storm { .. }), "{error}");
}

#[test]
fn unknown_peer_is_rejected() {
    let error = World::new(network(0.0, 1), vec![node("a", ping(1), 7, 0)], Seed(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "node a sends to node 7, which does not exist: add it or change the peer"
    );
}

/// Sends every 3 ms, or sets a timer in the past at each arrival.
#[derive(Debug)]
struct Hasty {
    beat: Option<Time>,
    overdue: Option<Time>,
    seen: Vec<(Time, &'static str)>,
}

impl Agent for Hasty {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, _: &Arrival, _: &mut Body) {
        self.seen.push((cx.now, "packet"));
        self.overdue = Some(cx.now.before(ms(2)));
    }
    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        self.seen.push((cx.now, "timer"));
        self.overdue = None;
        if let Some(beat) = self.beat.filter(|beat| *beat <= cx.now) {
            self.beat = Some(beat + ms(3));
            let body = Body::Data {
                seq: 0,
                sent: cx.now,
                rtt: 0,
                open: 0,
                is_dummy: false,
            };
            cx.send(Bytes(1_000), Ecn::NotEct, body);
        }
    }
    fn next_timer(&self) -> Time {
        let [beat, overdue] = [self.beat, self.overdue].map(|at| at.unwrap_or(Time::FAR));
        beat.min(overdue)
    }
    fn is_alone(&self) -> bool {
        true
    }
}

/// A timer in the past counts as one at the instant at which it was set, with lookahead too.
#[test]
fn timers_in_the_past_run_immediately() {
    let wire = |name: &str, delay| NamedLink {
        name: name.to_owned(),
        config: LinkConfig {
            capacity: Capacity::Fixed(Rate::kbps(10_000)),
            delay: ms(delay),
            ..LinkConfig::default()
        },
    };
    let links = [
        ("a", 1),
        ("b", 1),
        ("shared", 10),
        ("c", 2),
        ("d", 3),
        ("e", 1),
        ("f", 1),
        ("back", 10),
        ("g", 1),
        ("h", 1),
    ];
    let routes = [[0, 2, 3], [1, 2, 4], [5, 7, 8], [6, 7, 9]];
    let config = NetworkConfig {
        links: links.map(|(name, delay)| wire(name, delay)).to_vec(),
        routes: routes.map(|route| route.map(LinkId).to_vec()).to_vec(),
    };
    let seen = |ordered: bool| {
        let node = |i: usize| Node {
            name: i.to_string(),
            agent: Hasty {
                beat: Some(Time::from_millis(i as u64)),
                overdue: None,
                seen: Vec::new(),
            },
            peer: NodeId((i + 2) % 4),
            route: RouteId(i),
            flow: 0,
            dscp: 0,
            start: Time::ZERO,
            stop: Time::FAR,
        };
        let network = Network::new(&config, Seed(1)).unwrap();
        let mut world = World::new(network, (0..4).map(node).collect(), Seed(1)).unwrap();
        let end = Time::from_millis(300);
        if ordered {
            world.run(end, &mut Ordered).unwrap();
        } else {
            world.run(end, &mut ()).unwrap();
        }
        assert_eq!(world.network().is_ahead(), !ordered);
        let agents = world.into_agents().into_iter();
        agents.map(|agent| agent.seen).collect::<Vec<_>>()
    };
    let plain = seen(true);
    assert!(
        plain
            .iter()
            .all(|seen| seen.len() > 200 && seen.is_sorted_by_key(|(at, _)| *at))
    );
    assert_eq!(seen(false), plain);
}

/// Ignores all events but requires their order.
struct Ordered;

impl Observer for Ordered {}
