//! The results of runs with lookahead equal those in the order of time.

use proptest::prelude::*;
use tidegate_core::link::LinkStats;
use tidegate_core::trace::Event;

use super::*;
use crate::world::{Flight, Observer, Sample};

/// Observable results of a run, apart from the order of events between nodes.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    /// Packets sent and received and events of each node, in order.
    nodes: Vec<Vec<String>>,
    samples: Vec<Sample>,
    meter: Vec<String>,
    links: Vec<(LinkStats, u64)>,
    /// End of each piece.
    ends: Vec<(Time, usize)>,
    agents: String,
}

/// Records all observer calls, and counts as the recorder does.
struct Watch<'a> {
    stage: Recorder<'a>,
    seen: Seen,
    ordered: bool,
}

impl Watch<'_> {
    fn add(&mut self, node: NodeId, line: String) {
        self.seen.nodes[node.0].push(line);
    }
}

impl Observer for Watch<'_> {
    fn event(&mut self, node: NodeId, at: Time, event: Event) {
        self.add(node, format!("{at:?} {event:?}"));
    }
    fn sent(&mut self, at: Time, flight: Flight<'_>) {
        self.add(flight.node, format!("{at:?} sent {flight:?}"));
        self.stage.sent(at, flight);
    }
    fn arrived(&mut self, at: Time, flight: Flight<'_>) {
        self.add(flight.node, format!("{at:?} got {flight:?}"));
        self.stage.arrived(at, flight);
    }
    fn sample(&mut self, sample: &Sample) {
        self.seen.samples.push(*sample);
    }
    fn wants_order(&self) -> bool {
        self.ordered
    }
}

/// Interruptions of a run from outside.
#[derive(Clone, Debug)]
struct Course {
    /// Length of each piece, in ms.
    pieces: Vec<u64>,
    /// Number of the piece after which all links are read.
    asks: usize,
    /// Number of the piece before which link sampling starts, and whether all links are sampled.
    sampled: usize,
    everywhere: bool,
}

fn see(text: &str, seed: u64, course: &Course, ordered: bool) -> (Seen, bool) {
    let none = |_: &str| Err("no files here".to_owned());
    let scenario = Scenario::parse("t", text, &none).unwrap_or_else(|e| panic!("{text}{e}"));
    let seed = Seed(seed);
    let instances = topology::flow_instances(&scenario, seed);
    let no_video = |_: &str, _: &VideoPlan, _| Err(EncodeError::Source("no video".to_owned()));
    let config = topology::network(&scenario, &instances).unwrap();
    let network = Network::new(&config, seed).unwrap();
    let links = network.len();
    let nodes = nodes(&instances, seed, &no_video).unwrap();
    let mut watch = Watch {
        seen: Seen {
            nodes: vec![vec![]; nodes.len()],
            ..Seen::default()
        },
        stage: Recorder::new(&scenario, &instances, Keep::default()),
        ordered,
    };
    let mut world = World::new(network, nodes, seed).unwrap();
    let (mut at, mut ahead) = (Time::ZERO, false);
    for (i, piece) in course.pieces.iter().enumerate() {
        if i == course.sampled {
            let all = if course.everywhere { links } else { 0 };
            world.sample_every(SAMPLE, scenario.links.len().max(all));
        }
        // Once left, the lookahead never resumes.
        let now = world.now();
        assert_eq!(
            world
                .run(Time::from_nanos(now.as_nanos() / 2), &mut watch)
                .unwrap(),
            now
        );
        at += Duration::from_millis(*piece);
        let end = world.run(at, &mut watch).unwrap();
        ahead |= world.network().is_ahead();
        let inside = world.network().inside();
        watch.seen.ends.push((end, inside));
        if i == course.asks {
            let stats = |link| (world.network().stats(LinkId(link), end), 0);
            let now: Vec<_> = (0..links).map(stats).collect();
            watch.seen.links.extend(now);
        }
    }
    let end = world.now();
    for link in 0..links {
        let stats = world.network().stats(LinkId(link), end);
        watch.seen.links.push((stats, 1));
    }
    let mut seen = watch.seen;
    let meter = &watch.stage.meter;
    for flow in 0..instances.len() {
        let bins: Vec<_> = meter.bins(flow).collect();
        seen.meter
            .push(format!("{:?} {bins:?}", meter.totals(flow)));
    }
    seen.agents = format!("{:?}", world.into_agents());
    (seen, ahead)
}

fn one_of(list: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(list)
}

const SOURCES: [&str; 14] = [
    "tcp = { kind = \"sack\", packet = \"1000B\" }",
    "tcp = { kind = \"sack\", overhead = \"500us\", limit = \"200kB\" }",
    "tcp = { kind = \"newreno\", delayed_ack = \"100ms\" }",
    "tcp = { kind = \"cubic\" }",
    "tcp = { kind = \"cubic\", delayed_ack = \"40ms\", limit = \"100kB\" }",
    "tcp = { kind = \"bbr\" }",
    "control = \"tfrc\"\nbulk = { packet = \"1000B\" }",
    "control = \"tfrc\"\nbulk = { packet = \"500B\", limit = \"100kB\" }",
    "control = { tfrc = { flavour = \"rfc3448\" } }\nbulk = { packet = \"1000B\", overhead = \"1ms\" }",
    "control = \"rap\"\nbulk = { packet = \"1000B\" }",
    "control = \"tfrc\"\nbulk = { packet = \"1000B\", demand = [[\"0s\", \"1Mb/s\"], [\"1s\", \"100kb/s\"]] }",
    "udp = { rate = \"300kb/s\", packet = \"200B\", spacing = \"poisson\" }",
    "udp = { rate = [[\"0s\", \"1Mb/s\"], [\"1s\", \"0b/s\"]], jitter = \"50%\" }",
    "web = { load = \"1Mb/s\", connections = \"object\" }",
];

fn flow() -> impl Strategy<Value = String> {
    (
        one_of(&SOURCES),
        2..5_u32,
        one_of(&[
            "",
            "rate = \"500kb/s\", ",
            "rate = \"100Mb/s\", ",
            "rate = \"2Mb/s\", queue = { droptail = \"3 packets\" }, ",
        ]),
        one_of(&["1ms", "7ms"]),
        one_of(&[
            "",
            "rate = \"2Mb/s\", queue = { droptail = \"3 packets\" }, ",
            "rate = \"8Mb/s\", queue = { droptail = \"1 packets\" }, ",
        ]),
        one_of(&["\"1ms\"", "[\"1ms\", \"20ms\"]", "\"60ms\""]),
        one_of(&["", "stop = \"1500ms\""]),
    )
        .prop_map(|(source, count, access, delay, exit, far, stop)| {
            format!(
                "[[flow]]\nname = \"{{}}\"\ncount = {count}\nfrom = \"a\"\nto = \"{{to}}\"\n\
                 access = {{ {access}delay = \"{delay}\" }}\nexit = {{ {exit}delay = {far} }}\n\
                 start = [\"0s\", \"500ms\"]\n{stop}\n{source}\n"
            )
        })
}

fn scenario() -> impl Strategy<Value = String> {
    let link = (
        one_of(&["300kb/s", "2Mb/s", "20Mb/s"]),
        one_of(&["1ms", "10ms", "80ms"]),
        one_of(&[
            "{ droptail = \"6 packets\" }",
            "{ droptail = \"30kB\" }",
            "{ red = { min = \"5 packets\", max = \"15 packets\", limit = \"30 packets\" } }",
            "{ red = { min = \"5 packets\", max = \"15 packets\", limit = \"30 packets\", ecn = true } }",
        ]),
    );
    let second = prop_oneof![Just(false), Just(true)];
    (link, prop::collection::vec(flow(), 1..4), second).prop_map(
        |((rate, delay, queue), flows, second)| {
            let link = |name: &str, from: &str, to: &str| {
                format!(
                    "[[link]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = \"{to}\"\nduplex = true\n\
                     rate = \"{rate}\"\ndelay = \"{delay}\"\nqueue = {queue}\n"
                )
            };
            let mut text = "name = \"t\"\nduration = \"3s\"\n".to_owned();
            text += &link("one", "a", "b");
            if second {
                text += &link("two", "b", "c");
            }
            for (i, flow) in flows.iter().enumerate() {
                // With two links, some flows use the first only.
                let to = if second && i % 2 == 0 { "c" } else { "b" };
                text += &flow.replace("{}", &format!("f{i}")).replace("{to}", to);
            }
            text
        },
    )
}

fn course() -> impl Strategy<Value = Course> {
    let pieces = prop::collection::vec(prop_oneof![1..50_u64, 500..2_500_u64], 1..6);
    let sampled = prop_oneof![3 => Just(0), 1 => Just(1), 2 => Just(9_usize)];
    let everywhere = prop::bool::weighted(0.1);
    (pieces, 0..9_usize, sampled, everywhere).prop_map(|(pieces, asks, sampled, everywhere)| {
        Course {
            pieces,
            asks,
            sampled,
            everywhere,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn lookahead_does_not_change_results(text in scenario(), course in course(), seed in 1..1_000_u64) {
        compare(&text, seed, &course)?;
    }
}

/// Compares a run in plain order with one with lookahead. Returns whether lookahead was active at
/// the end of any piece.
fn compare(text: &str, seed: u64, course: &Course) -> Result<bool, TestCaseError> {
    let (plain, ahead) = see(text, seed, course, true);
    prop_assert!(!ahead);
    let (seen, ahead) = see(text, seed, course, false);
    for (i, (one, other)) in seen.nodes.iter().zip(&plain.nodes).enumerate() {
        let first = one.iter().zip(other).find(|(one, other)| one != other);
        prop_assert_eq!(first, None, "node {}, {}", i, text);
        let rest = (one.get(other.len()), other.get(one.len()));
        prop_assert_eq!(rest, (None, None), "node {}, {}", i, text);
    }
    prop_assert_eq!(&seen.ends, &plain.ends, "{}", text);
    prop_assert_eq!(&seen.samples, &plain.samples, "{}", text);
    prop_assert_eq!(&seen.meter, &plain.meter, "{}", text);
    prop_assert_eq!(&seen.links, &plain.links, "{}", text);
    prop_assert_eq!(&seen.agents, &plain.agents, "{}", text);
    Ok(ahead)
}

/// Enough flows that arrivals are grouped by receiver.
#[test]
fn lookahead_with_many_flows() {
    let text = "name = \"t\"\nduration = \"2s\"\n[[link]]\nname = \"one\"\nfrom = \"a\"\nto = \"b\"\n\
                duplex = true\nrate = \"40Mb/s\"\ndelay = \"20ms\"\nqueue = { droptail = \"200 packets\" }\n\
                [[flow]]\nname = \"f\"\ncount = 300\nfrom = \"a\"\nto = \"b\"\n\
                access = { rate = \"2Mb/s\", delay = \"1ms\", queue = { droptail = \"9 packets\" } }\n\
                exit = { rate = \"2Mb/s\", queue = { droptail = \"3 packets\" }, delay = [\"1ms\", \"20ms\"] }\n\
                start = [\"0s\", \"500ms\"]\ntcp = { kind = \"sack\", packet = \"1000B\" }\n";
    for asks in [0, 9] {
        let course = Course {
            pieces: vec![700, 13, 900],
            asks,
            sampled: 0,
            everywhere: false,
        };
        assert!(compare(text, 1, &course).unwrap());
    }
}

/// Packets from a link without a rate reach an exit link exactly when it becomes idle.
#[test]
fn lookahead_with_bursts_at_an_exit_link() {
    for (limit, size) in [(1, 1_000), (1, 500), (2, 1_000)] {
        let text = format!(
            "name = \"t\"\nduration = \"3s\"\n[[link]]\nname = \"one\"\nfrom = \"a\"\nto = \"b\"\n\
             duplex = true\ndelay = \"20ms\"\n[[flow]]\nname = \"x\"\ncount = 3\nfrom = \"a\"\nto = \"b\"\n\
             access = {{ delay = \"1ms\" }}\n\
             exit = {{ rate = \"8Mb/s\", delay = \"1ms\", queue = {{ droptail = \"{limit} packets\" }} }}\n\
             start = [\"0s\", \"200ms\"]\ntcp = {{ kind = \"sack\", packet = \"{size}B\" }}\n"
        );
        let course = Course {
            pieces: vec![700, 13, 500, 333, 900],
            asks: 9,
            sampled: 9,
            everywhere: false,
        };
        assert!(compare(&text, 1, &course).unwrap());
    }
}

/// Lookahead is active in the scenarios that it was designed for.
#[test]
fn dumbbell_runs_with_lookahead() {
    let flow = |source: &str| {
        format!(
            "name = \"t\"\nduration = \"3s\"\n[[link]]\nname = \"one\"\nfrom = \"a\"\nto = \"b\"\n\
             duplex = true\nrate = \"2Mb/s\"\ndelay = \"20ms\"\nqueue = {{ droptail = \"60kB\" }}\n[[flow]]\nname = \"f\"\ncount = 3\n\
             from = \"a\"\nto = \"b\"\naccess = {{ delay = \"1ms\" }}\nexit = {{ delay = \"1ms\" }}\n{source}\n"
        )
    };
    let course = Course {
        pieces: vec![1_000, 1_000],
        asks: 9,
        sampled: 0,
        everywhere: false,
    };
    for source in SOURCES {
        assert!(see(&flow(source), 1, &course, false).1, "{source}");
    }
}
