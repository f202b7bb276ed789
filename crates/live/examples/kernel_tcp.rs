//! One bulk flow of the kernel's TCP over an emulated bottleneck, for comparison with
//! `tidegate_sim::tcp::modern`. Requires root or user namespaces.
//!
//! `cargo run --release -p tidegate-live --example kernel_tcp -- cubic 10 100 1 0 50 1`
//!
//! Arguments: congestion control, Mb/s, round-trip time in ms, queue in bandwidth-delay products of
//! packets of 1500 bytes, loss, seconds, seed. The output is these arguments, the goodput in Mb/s
//! and the mean number of queued packets from 10 s on, and the total drops of the queue.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_core::link::{
    Capacity, DropTailConfig, LinkConfig, LinkId, LossConfig, NamedLink, NetworkConfig,
    QueueConfig, RouteId,
};
use tidegate_core::random::Seed;
use tidegate_core::units::{Rate, Time};
use tidegate_live::emulator::{Emulator, EmulatorConfig, EmulatorLog, Host};
use tidegate_live::tcp::{TcpOptions, TcpSocket};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<f64> = args.iter().skip(1).filter_map(|a| a.parse().ok()).collect();
    let &[mbps, rtt_ms, products, loss, seconds, seed] = numbers.as_slice() else {
        eprintln!("usage: kernel_tcp CONGESTION MBPS RTT_MS PRODUCTS LOSS SECONDS SEED");
        std::process::exit(2);
    };
    let rate = Rate::from_f64(mbps * 1e6);
    let packets = products * mbps * rtt_ms / 12.0 + 0.5;
    let forth = LinkConfig {
        capacity: Capacity::Fixed(rate),
        queue: QueueConfig::DropTail(DropTailConfig::packets(packets.max(2.0) as u32)),
        loss: LossConfig::Bernoulli(loss),
        delay: Duration::from_secs_f64(rtt_ms / 2e3),
        ..LinkConfig::default()
    };
    let back = LinkConfig {
        delay: forth.delay,
        ..LinkConfig::default()
    };
    let named = |name: &str, config| NamedLink {
        name: name.into(),
        config,
    };
    let mut config = EmulatorConfig::new(NetworkConfig {
        links: vec![named("forth", forth.clone()), named("back", back)],
        routes: vec![vec![LinkId(0)], vec![LinkId(1)]],
    });
    config.log = 3_000_000;
    config.seed = Seed(seed as u64);
    let emulator = Emulator::start(&config).expect("start the emulator");
    let listen = || TcpListener::bind((Host::B.address(), 5_000)).expect("bind the port");
    let listener = emulator.namespace(Host::B).within(listen).unwrap();
    let end = Duration::from_secs_f64(seconds);
    let server = thread::spawn(move || receive(&listener, end));
    let connect = || TcpStream::connect((Host::B.address(), 5_000)).expect("connect");
    let stream = emulator.namespace(Host::A).within(connect).unwrap();
    send(stream, &args[0]);
    let goodput = server.join().unwrap();
    let (report, log) = emulator.stop().unwrap();
    assert!(report.kept_up, "{report:?}");
    let queue = waiting(&log, &forth, rate);
    let drops = report.links[0].queue_drops;
    println!("{},{goodput:.3},{queue:.2},{drops}", args.join(","));
}

/// Goodput from `WARM` to `end`, in Mb/s.
fn receive(listener: &TcpListener, end: Duration) -> f64 {
    let (mut stream, _) = listener.accept().unwrap();
    let start = Instant::now();
    let mut buffer = vec![0; 1 << 16];
    let (mut bytes, mut since) = (0, None);
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        let now = start.elapsed();
        if now >= end {
            break;
        }
        if since.is_some() {
            bytes += n;
        } else if now >= WARM {
            since = Some(now);
        }
    }
    let since = since.expect("data after the warm-up: more than 10 seconds are needed");
    bytes as f64 * 8e-6 / end.saturating_sub(since).as_secs_f64()
}

/// Writes until the peer closes the connection.
fn send(stream: TcpStream, congestion: &str) {
    let options = TcpOptions {
        congestion: Some(congestion.to_owned()),
        ..TcpOptions::default()
    };
    let copy = stream.try_clone().expect("clone the socket");
    TcpSocket::new(stream, &options).expect("congestion control supported by this kernel");
    copy.set_nonblocking(false)
        .expect("set the socket to blocking");
    let buffer = vec![0; 1 << 16];
    while (&copy).write_all(&buffer).is_ok() {}
}

/// Mean queue length from `WARM` on, in packets of 1500 bytes.
fn waiting(log: &EmulatorLog, forth: &LinkConfig, rate: Rate) -> f64 {
    let mut left: Vec<Option<Time>> = vec![None; log.arrivals.len()];
    for departure in &log.departures {
        if let Some(slot) = left.get_mut(departure.id as usize) {
            *slot = Some(departure.at);
        }
    }
    let start = log.arrivals[0].at + WARM;
    let waits: Vec<f64> = log
        .arrivals
        .iter()
        .filter(|arrival| arrival.route == RouteId(0) && arrival.at >= start)
        .filter_map(|arrival| {
            let left = (*left.get(arrival.id as usize)?)?;
            let served = arrival.size / rate;
            Some(left.since(arrival.at + forth.delay + served).as_secs_f64())
        })
        .collect();
    waits.iter().sum::<f64>() / waits.len() as f64 * rate.as_f64() / 12_000.0
}

const WARM: Duration = Duration::from_secs(10);
