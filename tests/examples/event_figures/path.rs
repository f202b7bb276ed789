//! An emulated path with deterministic losses; compares its traffic with and without a
//! subscription.

use std::io::Read as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_core::link::{
    Capacity, DropTailConfig, LinkConfig, LossConfig, Outage, QueueConfig, RouteId,
};
use tidegate_core::random::{Seed, unit};
use tidegate_core::units::Rate;
use tidegate_kernel::{EventRequest, Events, set_congestion_control};
use tidegate_live::emulator::{Emulator, EmulatorConfig, EmulatorLog, Host};

use crate::triples::{self, Triple};
use crate::verdict::Verdict;

/// 8 Mb/s, RTT of 40 ms, every `every`th packet lost.
pub(crate) fn config(every: u32, outages: Vec<Outage>) -> EmulatorConfig {
    let there = LinkConfig {
        capacity: Capacity::Fixed(Rate::kbps(8_000)),
        queue: QueueConfig::DropTail(DropTailConfig::packets(60)),
        outages,
        loss: LossConfig::Every(NonZeroU32::new(every).unwrap()),
        delay: Duration::from_millis(20),
        jitter: None,
        ..LinkConfig::default()
    };
    let back = LinkConfig {
        delay: Duration::from_millis(20),
        ..LinkConfig::default()
    };
    EmulatorConfig {
        log: 100_000,
        ..EmulatorConfig::path(there, back)
    }
}

/// A connection over the path, and a thread that reads all data.
pub(crate) fn connect(emulator: &Emulator) -> (TcpStream, thread::JoinHandle<()>) {
    let listen = || TcpListener::bind((Host::B.address(), PORT)).unwrap();
    let listener = emulator.namespace(Host::B).within(listen).unwrap();
    let sink = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut buffer = vec![0; 1 << 16];
        while stream.read(&mut buffer).is_ok_and(|many| many > 0) {}
    });
    let connect = || TcpStream::connect((Host::B.address(), PORT)).unwrap();
    let stream = emulator.namespace(Host::A).within(connect).unwrap();
    set_congestion_control(&stream, "reno").unwrap();
    (stream, sink)
}

/// Measurements of one transfer.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    /// Data packets sent.
    packets: f64,
    /// Bytes sent.
    bytes: f64,
    /// Time until the last byte was acknowledged.
    seconds: f64,
}

impl Transfer {
    fn numbers(self) -> [f64; 3] {
        [self.packets, self.bytes, self.seconds]
    }
}

/// Alternates two unsubscribed transfers and a subscribed one.
pub(crate) fn neutrality() -> Vec<Verdict> {
    let mut all: [Vec<Transfer>; 3] = Default::default();
    for round in 0..ROUNDS {
        for which in 0..3 {
            // Rotates the order within the rounds.
            let which = (which + round) % 3;
            all[which].push(transfer(which == 2));
        }
    }
    for (which, name) in ["unsubscribed", "unsubscribed", "subscribed"]
        .iter()
        .enumerate()
    {
        let mut packets: Vec<f64> = all[which].iter().map(|t| t.packets).collect();
        packets.sort_unstable_by(f64::total_cmp);
        println!("packets of each run, {name}: {packets:?}");
    }
    AIMS.into_iter()
        .enumerate()
        .map(|(number, (name, aim))| {
            let triples =
                (0..ROUNDS).map(|round| [0, 1, 2].map(|w| all[w][round].numbers()[number]));
            verdict(name, aim, &triples.collect::<Vec<_>>())
        })
        .collect()
}

fn verdict(name: &str, aim: &'static str, triples: &[Triple]) -> Verdict {
    let [one, other, subscribed] = [0, 1, 2].map(|which| {
        let all = triples.iter().map(|triple| triple[which]);
        all.sum::<f64>() / triples.len() as f64
    });
    let [unsubscribed, mixed] = triples::apart(triples);
    println!(
        "{name}: means {one:.4} and {other:.4} unsubscribed, {subscribed:.4} subscribed; mean distance {unsubscribed:.4} between unsubscribed ones, {mixed:.4} to the subscribed one"
    );
    let mut stream = Seed(1).stream(name);
    let significance = triples::significance(triples, || unit(&mut stream));
    let [low, high] = significance.interval;
    Verdict {
        aim,
        measured: format!(
            "mean distance {:+.4} {name} larger, 95 % interval {low:+.4} to {high:+.4}, p {:.3} in {ROUNDS} rounds",
            mixed - unsubscribed,
            significance.p
        ),
        holds: significance.p >= LEVEL,
    }
}

fn transfer(subscribed: bool) -> Transfer {
    let emulator = Emulator::start(&config(250, Vec::new())).unwrap();
    let events = Events::in_process().unwrap();
    let (stream, sink) = connect(&emulator);
    // The programs are attached in all cases and at the same time, by a subscription to another
    // socket if not to this one.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let watched = if subscribed { &stream } else { &other };
    events.subscribe(watched, EventRequest::ALL).unwrap();
    let start = Instant::now();
    events.write_all(&stream, &vec![0; 2_000_000]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    sink.join().unwrap();
    let seconds = start.elapsed().as_secs_f64();
    let (_, log) = emulator.stop().unwrap();
    let (packets, bytes) = sent(&log);
    Transfer {
        packets,
        bytes,
        seconds,
    }
}

fn sent(log: &EmulatorLog) -> (f64, f64) {
    let there = log.arrivals.iter().filter(|a| a.route == RouteId(0));
    let sizes: Vec<f64> = there.map(|a| a.size.get() as f64).collect();
    (sizes.len() as f64, sizes.iter().sum())
}

const AIMS: [(&str, &str); 3] = [
    (
        "packets",
        "on the wire, packets differ no more with a subscription than without",
    ),
    (
        "bytes",
        "on the wire, bytes differ no more with a subscription than without",
    ),
    (
        "seconds",
        "on the wire, times differ no more with a subscription than without",
    ),
];
/// Port of the receiver.
pub(crate) const PORT: u16 = 5_001;
const ROUNDS: usize = 40;
/// Without a difference, one of the three figures falls below this in one of twenty runs.
const LEVEL: f64 = 0.05 / AIMS.len() as f64;
