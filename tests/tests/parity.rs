//! Parity of the emulator with real packets and of the models in virtual time.

#[path = "../../crates/cli/tests/calm/mod.rs"]
mod calm;
mod lab;

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use calm::judged;
use lab::namespaces::in_lab;
use lab::{Capture, set_ecn};
use tidegate_core::control::Ecn;
use tidegate_core::link::{
    Capacity, Delivery, DropTailConfig, JitterConfig, LinkConfig, LinkId, LossConfig, NamedLink,
    Network, NetworkConfig, Outage, QueueConfig, RedConfig, RouteId, Spread, Steps,
};
use tidegate_core::random::{Seed, unit};
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_live::clock::Clock;
use tidegate_live::driver::{RunLimits, StopFlag};
use tidegate_live::emulator::{
    Arrival, Departure, Emulator, EmulatorConfig, EmulatorLog, EmulatorReport, Host,
};

/// Two links forward: a drop-tail queue with capacity steps, stalls, outages, loss over time and
/// reordering jitter, followed by RED with ECN. One link back, whose delay varies over time. Steps
/// and outages repeat every second, since the start of the traffic on a busy machine is
/// unpredictable.
fn network() -> NetworkConfig {
    let ms = Time::from_millis;
    let second = |s| {
        [
            (ms(1_000 * s), Rate::kbps(16_000)),
            (ms(1_000 * s + 300), Rate::kbps(8_000)),
            (ms(1_000 * s + 600), Rate::ZERO),
            (ms(1_000 * s + 640), Rate::kbps(18_000)),
        ]
    };
    let steps: Vec<_> = (0..LIMIT.as_secs()).flat_map(second).collect();
    let outage = |s| Outage {
        from: ms(1_000 * s + 800),
        to: ms(1_000 * s + 820),
    };
    let radio = LinkConfig {
        capacity: Capacity::Steps(Steps::new(&steps).unwrap()),
        queue: QueueConfig::DropTail(DropTailConfig::packets(40)),
        outages: (0..LIMIT.as_secs()).map(outage).collect(),
        loss: LossConfig::Steps(Steps::new(&over_time(0.002, 0.05)).unwrap()),
        delay: Duration::from_millis(7),
        jitter: Some(JitterConfig {
            spread: Spread::Uniform {
                max: Duration::from_millis(4),
            },
            reorder: true,
        }),
        ..LinkConfig::default()
    };
    let core = LinkConfig {
        capacity: Capacity::Fixed(Rate::kbps(11_000)),
        queue: QueueConfig::Red(RedConfig {
            limit: 60,
            min_threshold: 3.0,
            max_threshold: 20.0,
            weight: 0.05,
            ecn: true,
            ..RedConfig::default()
        }),
        delay: Duration::from_millis(13),
        ..LinkConfig::default()
    };
    let back = LinkConfig {
        capacity: Capacity::Fixed(Rate::kbps(1_000)),
        queue: QueueConfig::DropTail(DropTailConfig::bytes(Bytes(3_000))),
        delay: Duration::from_millis(20),
        delay_variation: Some(Steps::new(&over_time(Duration::ZERO, VARIATION)).unwrap()),
        ..LinkConfig::default()
    };
    let named = |name: &str, config| NamedLink {
        name: name.into(),
        config,
    };
    NetworkConfig {
        links: vec![
            named("radio", radio),
            named("core", core),
            named("back", back),
        ],
        routes: vec![vec![LinkId(0), LinkId(1)], vec![LinkId(2)]],
    }
}

/// Two values in turn, for 100 ms each.
fn over_time<T: Copy>(even: T, odd: T) -> Vec<(Time, T)> {
    let value = |n: u64| if n.is_multiple_of(2) { even } else { odd };
    let steps = 0..10 * LIMIT.as_secs();
    steps
        .map(|n| (Time::from_millis(100 * n), value(n)))
        .collect()
}

struct Run {
    config: EmulatorConfig,
    report: EmulatorReport,
    log: EmulatorLog,
    /// Times and sizes of the packets that side B received.
    captured: Vec<(Time, usize)>,
    /// Relative drift of the clocks of the kernel's stamps and of the emulator.
    drift: Duration,
}

/// Sends packets at random times and of random sizes from A to B, which returns each one truncated.
fn run() -> Run {
    let config = EmulatorConfig {
        limit: LIMIT,
        log: 100_000,
        ..EmulatorConfig::new(network())
    };
    let clock = config.clock;
    let emulator = Emulator::start(&config).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let (capture, listening) = {
        let (done, (ready, listening)) = (Arc::clone(&done), std::sync::mpsc::channel());
        let listen = move || {
            let capture = Capture::start("tide0", clock);
            ready.send(()).unwrap();
            let mut packets = vec![];
            while !done.load(Ordering::SeqCst) {
                packets.extend(std::iter::from_fn(|| capture.next()).map(|(at, p)| (at, p.len())));
            }
            (packets, capture.drift())
        };
        (emulator.namespace(Host::B).run(listen).unwrap(), listening)
    };
    listening.recv().unwrap();
    let (ready, bound) = std::sync::mpsc::channel();
    let sent = Arc::new(AtomicBool::new(false));
    let all_sent = Arc::clone(&sent);
    let echo = move || {
        let socket = UdpSocket::bind((Host::B.address(), PORT)).unwrap();
        // Exceeds the time of a packet in flight: a time-out after the last send ends the echo.
        socket
            .set_read_timeout(Some(Duration::from_millis(700)))
            .unwrap();
        ready.send(()).unwrap();
        let mut buffer = [0; 2_048];
        loop {
            let over = all_sent.load(Ordering::SeqCst);
            match socket.recv_from(&mut buffer) {
                Ok((length, from)) => {
                    let _ = socket.send_to(&buffer[..length.min(60)], from);
                }
                Err(_) if over => return,
                Err(_) => {}
            }
        }
    };
    let echo = emulator.namespace(Host::B).run(echo).unwrap();
    bound.recv().unwrap();
    let blaster = emulator
        .namespace(Host::A)
        .run(move || blast(clock))
        .unwrap();
    blaster.join().unwrap();
    sent.store(true, Ordering::SeqCst);
    echo.join().unwrap();
    done.store(true, Ordering::SeqCst);
    let (captured, drift) = capture.join().unwrap();
    let (report, log) = emulator.stop().unwrap();
    Run {
        config,
        report,
        log,
        captured,
        drift,
    }
}

fn blast(clock: Clock) {
    let socket = UdpSocket::bind((Host::A.address(), PORT)).unwrap();
    set_ecn(&socket, Ecn::Ect0);
    let mut rng = Seed(1).stream("blaster");
    let load = RunLimits {
        clock,
        until: None,
        stop: StopFlag::new().unwrap(),
    };
    let mut next = clock.now();
    for _ in 0..PACKETS {
        next += Duration::from_secs_f64(0.0012 * unit(&mut rng));
        load.sleep_until(next);
        let size = 200 + (1_272.0 * unit(&mut rng)) as usize;
        let _ = socket.send_to(&vec![0; size], (Host::B.address(), PORT));
    }
}

/// Replays the logged arrivals in virtual time.
fn replay(run: &Run) -> (Vec<Delivery<Arrival>>, Network<Arrival>) {
    let mut network = Network::new(&run.config.network, run.config.seed).unwrap();
    for a in &run.log.arrivals {
        network.push(a.at, a.route, *a);
    }
    let end = run.report.ended;
    let deliveries = std::iter::from_fn(|| network.pop(end)).collect();
    (deliveries, network)
}

#[test]
fn emulator_and_models_agree() {
    let test = "emulator_and_models_agree";
    let agree = || {
        let run = run();
        println!("{:#?}", run.report);
        assert_coverage(&run);
        assert_equal_outcomes(&run);
        assert_capture_matches(&run);
    };
    in_lab(test, || judged(test, agree));
}

fn assert_coverage(run: &Run) {
    let [radio, core, back] = run.report.links[..] else {
        panic!("three links");
    };
    assert!(radio.arrivals >= PACKETS * 9 / 10, "{radio:?}");
    assert!(
        radio.queue_drops > 0 && radio.loss_drops > 0 && radio.outage_drops > 0,
        "{radio:?}"
    );
    assert!(core.marks > 0, "{core:?}");
    assert!(back.delivered > 0 && back.queue_drops > 0, "{back:?}");
    assert_eq!(run.log.missed, 0);
}

/// Drops, marks and departure times must be equal.
fn assert_equal_outcomes(run: &Run) {
    let (deliveries, mut network) = replay(run);
    assert_eq!(network.inside(), 0, "all packets have left the network");
    let expected: Vec<_> = deliveries
        .iter()
        .map(|d| (d.at, d.packet.id, d.packet.ecn))
        .collect();
    // The queue of the link back is full most of the time: 20 ms, 24 ms in the queue, and the variation.
    let back = deliveries.iter().filter(|d| d.packet.route == RouteId(1));
    let longest = back.map(|d| d.at.since(d.packet.at)).max();
    assert!(
        longest.is_some_and(|delay| delay >= Duration::from_millis(50)),
        "{longest:?}"
    );
    let logical = |d: &Departure| (d.at, d.id, d.ecn);
    let emulated: Vec<_> = run.log.departures.iter().map(logical).collect();
    assert_eq!(emulated, expected);
    for (i, stats) in run.report.links.iter().enumerate() {
        assert_eq!(
            network.stats(LinkId(i), run.report.ended),
            *stats,
            "link {i}"
        );
    }
}

/// Host B received each packet between its departure time and the emulator's write time.
fn assert_capture_matches(run: &Run) {
    let forth = run.log.departures.iter().filter_map(|d| {
        let arrival = run.log.arrivals[d.id as usize];
        assert_eq!(arrival.id, d.id);
        (arrival.route == RouteId(0)).then_some((d, arrival.size))
    });
    let forth: Vec<_> = forth.collect();
    assert_eq!(forth.len(), run.captured.len());
    // The two clocks are read in succession; interrupts may come in between.
    let clocks = Duration::from_micros(20) + run.drift;
    for ((departure, size), (at, length)) in forth.into_iter().zip(&run.captured) {
        assert_eq!(size, Bytes(*length as u64));
        assert!(*at + clocks >= departure.at, "early: {at:?} {departure:?}");
        assert!(
            *at <= departure.written + clocks,
            "late: {at:?} {departure:?}"
        );
        let late = at.since(departure.at);
        assert!(late <= run.report.timing_worst + clocks, "{late:?}");
    }
}

const LIMIT: Duration = Duration::from_secs(20);
const VARIATION: Duration = Duration::from_millis(10);
const PACKETS: u64 = 3_000;
const PORT: u16 = 5_000;
