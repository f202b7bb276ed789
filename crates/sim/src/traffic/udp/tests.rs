use proptest::prelude::*;
use tidegate_core::link::{
    Capacity, DropTailConfig, LinkConfig, LinkId, LossConfig, NamedLink, Network, NetworkConfig,
    QueueConfig, RouteId,
};
use tidegate_core::random::Seed;

use super::*;
use crate::packet_agent::Outbox;
use crate::world::{Node, NodeId, World};

/// Departure times until `until`, with timers `late` nanoseconds late.
fn departures(config: &SourceConfig, seed: u64, until: Time, late: u64) -> Vec<Time> {
    let mut source = Source::new(config.clone()).unwrap();
    let mut rng = Seed(seed).stream("party/udp");
    let mut out = Outbox::default();
    let mut trace = ();
    let mut times = Vec::new();
    let mut now = Time::ZERO;
    while source.next_timer() <= until {
        now = source.next_timer().max(now);
        let mut cx = AgentCx::new(
            now + Duration::from_nanos(late),
            &mut rng,
            &mut trace,
            &mut out,
        );
        source.on_timer(&mut cx);
        times.extend(out.drain().map(|packet| match packet.body {
            Body::Data { sent, .. } => sent,
            other => panic!("{other:?}"),
        }));
    }
    assert_eq!(source.sent(), times.len() as u64);
    times
}

fn rate_of(config: &SourceConfig, seed: u64, secs: u64) -> f64 {
    let count = departures(config, seed, Time::from_secs(secs), 0).len();
    count as f64 * config.packet.bits() as f64 / secs as f64
}

/// Index of dispersion: variance over mean of the packet counts in windows.
fn dispersion(times: &[Time], window: Duration, windows: usize) -> f64 {
    let mut counts = vec![0.0_f64; windows];
    for at in times {
        let n = at.as_nanos() / nanos(window);
        if let Some(count) = counts.get_mut(n as usize) {
            *count += 1.0;
        }
    }
    let mean = counts.iter().sum::<f64>() / windows as f64;
    let squares = counts.iter().map(|c| (c - mean) * (c - mean));
    squares.sum::<f64>() / (windows as f64 - 1.0) / mean
}

fn on_off(on: u64, off: u64, shape: Option<f64>) -> SourceConfig {
    SourceConfig {
        spacing: Spacing::OnOff {
            on: Duration::from_millis(on),
            off: Duration::from_millis(off),
            shape,
        },
        ..SourceConfig::default()
    }
}

fn poisson() -> SourceConfig {
    SourceConfig {
        spacing: Spacing::Poisson,
        ..SourceConfig::default()
    }
}

#[test]
fn constant_spacing_is_exact_and_does_not_drift() {
    // The gap is 1142857.142857.. ns. An integer gap would be one packet off after 2.5 hours.
    let config = SourceConfig {
        rate: Rate::kbps(7_000).into(),
        ..SourceConfig::default()
    };
    let times = departures(&config, 1, Time::from_secs(60), 0);
    assert_eq!(times.len(), 52_501);
    for (n, at) in times.iter().enumerate() {
        assert_eq!(at.as_nanos(), (n as u64 * 8_000_000).div_ceil(7));
    }
}

#[test]
fn rate_steps_scale_the_remaining_gap() {
    let config = SourceConfig {
        rate: Schedule {
            first: Rate::kbps(1_000),
            steps: vec![
                (Time::from_millis(12), Rate::kbps(4_000)),
                (Time::from_millis(14), Rate::ZERO),
                (Time::from_millis(20), Rate::kbps(1_000)),
                (Time::from_millis(24), Rate::ZERO),
            ],
        },
        ..SourceConfig::default()
    };
    let times = departures(&config, 1, Time::from_secs(1), 0);
    // Gaps are 8 ms and 2 ms. Half a gap is left at 12 ms, and half of the next at 14 ms.
    assert_eq!(times, [0, 8, 13, 24].map(Time::from_millis));
    let mut source = Source::new(config).unwrap();
    assert!(!source.is_done());
    let mut rng = Seed(1).stream("party/udp");
    let mut out = Outbox::default();
    let mut trace = ();
    let mut cx = AgentCx::new(Time::from_secs(1), &mut rng, &mut trace, &mut out);
    source.on_timer(&mut cx);
    assert!(source.is_done());
}

#[test]
fn mean_rates_are_within_a_hundredth() {
    let jittered = SourceConfig {
        spacing: Spacing::Constant { jitter: 0.5 },
        ..SourceConfig::default()
    };
    for (config, secs) in [
        (SourceConfig::default(), 100),
        (jittered, 1_000),
        (poisson(), 1_000),
        (on_off(500, 500, None), 40_000),
        (on_off(100, 900, Some(2.5)), 40_000),
    ] {
        let wanted = 1e6 * config.duty();
        let error = rate_of(&config, 5, secs) / wanted - 1.0;
        assert!(error.abs() < 0.01, "{:?}: off by {error}", config.spacing);
    }
}

/// Means of heavy tails converge slowly, so the test averages many sources. Their mean rate holds
/// from the start.
#[test]
fn heavy_tailed_sources_start_in_steady_state() {
    for shape in [None, Some(1.5), Some(1.2)] {
        let config = on_off(500, 1_500, shape);
        let sent: usize = (0..4_000)
            .map(|seed| departures(&config, seed, Time::from_secs(2), 0).len())
            .sum();
        // A quarter of 125 packets per second.
        let error = sent as f64 / (4_000.0 * 62.5) - 1.0;
        assert!(error.abs() < 0.03, "{shape:?}: off by {error}");
    }
}

#[test]
fn dispersion_distinguishes_the_spacings() {
    let window = Duration::from_millis(100);
    let index = |config: &SourceConfig| {
        let times = departures(config, 3, Time::from_secs(1_000), 0);
        dispersion(&times, window, 10_000)
    };
    let even = index(&SourceConfig::default());
    let poisson = index(&poisson());
    let bursty = index(&on_off(200, 200, None));
    assert!(even < 0.05, "{even}");
    // Ten thousand windows: the standard error is sqrt(2/10000).
    assert!((poisson - 1.0).abs() < 0.05, "{poisson}");
    assert!(bursty > 2.0, "{bursty}");
}

#[test]
fn heavy_tailed_bursts_stay_bursty_over_long_windows() {
    let growth = |shape| {
        let times = departures(&on_off(200, 200, shape), 3, Time::from_secs(20_000), 0);
        dispersion(&times, Duration::from_secs(50), 400)
            / dispersion(&times, Duration::from_secs(2), 10_000)
    };
    let (light, heavy) = (growth(None), growth(Some(1.3)));
    // With exponential times the index converges; with heavy tails it grows with the window.
    assert!(light < 1.5, "{light}");
    assert!(heavy > 2.0, "{heavy}");
}

#[test]
fn schedule_applies_to_poisson_sources() {
    let config = SourceConfig {
        rate: Schedule {
            first: Rate::kbps(500),
            steps: vec![(Time::from_secs(500), Rate::kbps(2_000))],
        },
        ..poisson()
    };
    let times = departures(&config, 9, Time::from_secs(1_000), 0);
    let early = times.partition_point(|at| *at < Time::from_secs(500));
    let (early, late) = (
        early as f64 / 31_250.0,
        (times.len() - early) as f64 / 125_000.0,
    );
    assert!(
        (early - 1.0).abs() < 0.02 && (late - 1.0).abs() < 0.01,
        "{early} {late}"
    );
}

#[test]
fn sinks_count_received_and_lost_packets() {
    let link = |name: &str, capacity, loss| NamedLink {
        name: name.to_owned(),
        config: LinkConfig {
            capacity,
            loss,
            queue: QueueConfig::DropTail(DropTailConfig::packets(5)),
            delay: Duration::from_millis(10),
            ..LinkConfig::default()
        },
    };
    let config = NetworkConfig {
        links: vec![link(
            "up",
            Capacity::Fixed(Rate::kbps(2_000)),
            LossConfig::Bernoulli(0.1),
        )],
        routes: vec![vec![LinkId(0)], vec![]],
    };
    let network = Network::new(&config, Seed(1)).unwrap();
    let node = |name: &str, agent, peer, route| Node {
        name: name.to_owned(),
        agent,
        peer: NodeId(peer),
        route: RouteId(route),
        flow: 0,
        dscp: 0,
        start: Time::from_secs(1),
        stop: Time::from_secs(41),
    };
    let source = Source::new(SourceConfig::default()).unwrap();
    let nodes = vec![
        node("source", Player::Source(source), 1, 0),
        node("sink", Player::Sink(Sink::default()), 0, 1),
    ];
    let mut world = World::new(network, nodes, Seed(1)).unwrap();
    world.run(Time::from_secs(60), &mut ()).unwrap();
    let (Player::Source(source), Player::Sink(sink)) =
        (world.agent(NodeId(0)), world.agent(NodeId(1)))
    else {
        panic!("nodes are in order");
    };
    // 125 packets per second for 40 s.
    assert_eq!(source.sent(), 5_000);
    assert!((source.sent() - sink.received() - sink.lost()) <= 20);
    let loss = sink.lost() as f64 / 5_000.0;
    assert!((loss - 0.1).abs() < 0.02, "{loss}");
    assert_eq!(sink.bytes(), Bytes(sink.received() * 1_000));
    // 4 ms of serialization, 10 ms of propagation, no cross traffic.
    let delay = Some(Duration::from_millis(14));
    assert_eq!(
        (sink.delays().least(), sink.delays().most()),
        (delay, delay)
    );
    assert_eq!(sink.marked(), 0);
}

#[derive(Debug)]
enum Player {
    Source(Source),
    Sink(Sink),
}

impl Agent for Player {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: &mut Body) {
        match self {
            Self::Source(agent) => agent.on_packet(cx, arrival, body),
            Self::Sink(agent) => agent.on_packet(cx, arrival, body),
        }
    }
    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        match self {
            Self::Source(agent) => agent.on_timer(cx),
            Self::Sink(agent) => agent.on_timer(cx),
        }
    }
    fn next_timer(&self) -> Time {
        match self {
            Self::Source(agent) => agent.next_timer(),
            Self::Sink(agent) => agent.next_timer(),
        }
    }
}

#[test]
fn faults_are_named() {
    let fault = |config: SourceConfig| Source::new(config).unwrap_err().to_string();
    let with = |rate: Rate, packet: u64, spacing| SourceConfig {
        rate: rate.into(),
        packet: Bytes(packet),
        spacing,
        ecn: Ecn::NotEct,
    };
    let even = Spacing::Constant { jitter: 0.0 };
    assert_eq!(
        fault(with(Rate::ZERO, 1_000, even)),
        "the rate is 0 at all times: write a rate above 0, or remove the flow"
    );
    assert_eq!(
        fault(with(Rate::kbps(1), 65_536, even)),
        "a packet of 65536 B is not possible: write a size from 1 to 65535"
    );
    assert_eq!(
        fault(with(Rate::bps(8_000_000_001), 1, even)),
        "at 8.00 Gb/s more than one packet would leave in a nanosecond: \
         lower the rate or use larger packets"
    );
    assert_eq!(
        fault(with(
            Rate::kbps(1),
            1_000,
            Spacing::Constant { jitter: 1.5 }
        )),
        "a jitter of 1.5 is not in 0..=1, a share of the gap"
    );
    assert_eq!(
        fault(on_off(500, 0, None)),
        "on and off times: a mean of 0 is not possible: write a number above 0"
    );
    assert_eq!(
        fault(on_off(500, 500, Some(1.0))),
        "on and off times: a power law of shape 1 has no mean: choose a shape above 1 or bound it"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Late timers delay packets, but change neither their number nor the random draws.
    #[test]
    fn late_wake_ups_change_neither_count_nor_draws(seed: u64, kbps in 100_u64..5_000, kind in 0..4_usize, late in 0_u64..3_000_000) {
        let spacing = [
            Spacing::Constant { jitter: 0.0 },
            Spacing::Constant { jitter: 0.5 },
            Spacing::Poisson,
            Spacing::OnOff { on: Duration::from_millis(50), off: Duration::from_millis(50), shape: Some(1.5) },
        ][kind];
        let config = SourceConfig { rate: Rate::kbps(kbps).into(), spacing, ..SourceConfig::default() };
        let until = Time::from_secs(3);
        let (on_time, delayed) = (departures(&config, seed, until, 0), departures(&config, seed, until, late));
        // The first timer is the start, so its lateness counts twice.
        let late = Duration::from_nanos(late);
        for (a, b) in on_time.iter().zip(&delayed) {
            prop_assert!(a <= b && b.since(*a) <= late * 2, "{:?} {:?}", a, b);
        }
        let certain = on_time.partition_point(|at| *at <= until.before(late));
        prop_assert!((certain..=on_time.len()).contains(&delayed.len()));
    }
}
