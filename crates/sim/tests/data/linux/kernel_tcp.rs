//! One greedy flow of the kernel's own TCP over an emulated bottleneck, for comparison with
//! `tidegate_sim::tcp::modern`. It needs root, or user namespaces. To run it, copy it to the
//! examples of the crate `tidegate-live`:
//!
//! `cargo run --release -p tidegate-live --example kernel_tcp -- cubic 10 100 1 0 50 1`
//!
//! that is the congestion control, Mb/s, round trip in ms, queue in bandwidth-delay products of
//! packets of 1500 bytes, loss, seconds, seed. It prints these and then, from 10 s on, goodput in
//! Mb/s and the mean number of packets waiting; and what the queue dropped in all.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use tidegate_core::link::{
    Capacity, DropTailConfig, LinkConfig, LinkId, NamedLink, NetworkConfig, QueueConfig, RouteId,
};
use tidegate_core::random::Seed;
use tidegate_core::units::{Rate, Time};
use tidegate_live::emulator::{Emulator, EmulatorConfig, EmulatorLog, Side};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |n: usize| args[n].parse::<f64>().expect("a number");
    let (rate, delay) = (Rate::from_f64(number(1) * 1e6), number(2) / 2e3);
    let end = Duration::from_secs_f64(number(5));
    let packets = number(3) * number(1) * number(2) / 12.0 + 0.5;
    let forth = LinkConfig {
        capacity: Capacity::Fixed(rate),
        queue: QueueConfig::DropTail(DropTailConfig::packets(packets.max(2.0) as u32)),
        loss: number(4),
        delay: Duration::from_secs_f64(delay),
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
    config.seed = Seed(number(6) as u64);
    let emulator = Emulator::start(&config).expect("an emulator");
    let server = emulator
        .namespace(Side::B)
        .run(move || receive(end))
        .unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let algorithm = args[0].clone();
    let client = emulator
        .namespace(Side::A)
        .run(move || send(&algorithm))
        .unwrap();
    let goodput = server.join().unwrap();
    client.join().unwrap();
    let (report, log) = emulator.stop().unwrap();
    assert!(report.kept_up, "{report:?}");
    let queue = waiting(&log, &forth, rate);
    let drops = report.links[0].queue_drops;
    println!("{},{goodput:.3},{queue:.2},{drops}", args.join(","));
}

/// Payload that comes from `WARM` to `end`, in Mb/s.
fn receive(end: Duration) -> f64 {
    let listener = TcpListener::bind("0.0.0.0:5000").unwrap();
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
    bytes as f64 * 8e-6 / (end - since.expect("data after the warm-up")).as_secs_f64()
}

/// Writes until the other side has enough.
fn send(algorithm: &str) {
    let mut stream = TcpStream::connect((Side::B.address(), 5000)).unwrap();
    // SAFETY: the name is as long as is said, and outlives the call.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            algorithm.as_ptr().cast(),
            algorithm.len() as libc::socklen_t,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    let buffer = vec![0; 1 << 16];
    while stream.write_all(&buffer).is_ok() {}
}

/// Mean time in the queue from `WARM` on, in packets of 1500 bytes.
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
