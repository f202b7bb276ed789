//! Prints how long the decision on a start takes when 1,000,000 clients are known, while 50,000 samples per
//! second enter the store and the table is built again: `cargo run --release -p tidegate-knowledge
//! --example start`. Exits with 1 if a gate is missed.

use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use tidegate_core::random::{Seed, unit};
use tidegate_core::units::Rate;
use tidegate_knowledge::cluster::ClusterConfig;
use tidegate_knowledge::gather::{GatherConfig, GatherCounts, Gatherer};
use tidegate_knowledge::recluster::recluster;
use tidegate_knowledge::start_table::{SharedTable, StartTable};
use tidegate_knowledge::{
    AddressPolicy, Client, Cloud, HashKey, Measurement, Observation, Sample, Scale, Store, WallTime,
};

fn main() -> ExitCode {
    let folder = env::temp_dir().join(format!("tidegate-start-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for temporary files");
    let path = folder.join("store.db");
    let now = WallTime::of_day(20_000).after(Duration::from_hours(12));
    let mut store = Store::open(&path, now).expect("open").store;
    // Each client in a cloud of its own: the largest table for their number.
    for first in (0..CLIENTS).step_by(50_000) {
        let batch: Vec<Sample> = (first..first + 50_000)
            .flat_map(|client| {
                [Scale::Minute, Scale::RoundTrip].map(|scale| sample(client, scale, now))
            })
            .collect();
        store.ingest(&batch).expect("written");
    }
    let done = recluster(&mut store, ClusterConfig::default(), now).expect("clustered");
    let began = Instant::now();
    let table = StartTable::build(&store, &ADDRESSES, now).expect("built");
    println!(
        "{} clouds in {} clusters; table built in {:.1} s, before the first start",
        table.len(),
        done.clusters,
        began.elapsed().as_secs_f64()
    );
    let table = SharedTable::new(table);
    println!("decisions, with nothing else:");
    let alone = decide(&table, || false);
    let is_over = AtomicBool::new(false);
    let (loaded, counts, seconds) = thread::scope(|scope| {
        let builder = scope.spawn(|| {
            let store = Store::read(&path).expect("read");
            table.replace(StartTable::build(&store, &ADDRESSES, now).expect("built"));
        });
        let ingest = scope.spawn(|| ingest(store, now, &is_over));
        println!("decisions, while samples are written and the table is built again:");
        let loaded = decide(&table, || !builder.is_finished());
        is_over.store(true, Ordering::Relaxed);
        let (counts, seconds) = ingest.join().expect("ingested");
        (loaded, counts, seconds)
    });
    let rate = counts.written as f64 / seconds;
    println!("ingest: {rate:.0} samples/s for {seconds:.1} s, {counts:?}");
    let gates = [
        ("decision p99 alone, µs", alone, 10.0, alone <= 10.0),
        ("decision p99 with ingest, µs", loaded, 10.0, loaded <= 10.0),
        (
            "ingest, samples/s",
            rate,
            50e3,
            rate >= 49.9e3 && counts.dropped == 0,
        ),
    ];
    for (name, measured, gate, holds) in gates {
        let word = if holds { "holds" } else { "FAILS" };
        println!("{word}: {name}: measured {measured:.1}, gate {gate}");
    }
    fs::remove_dir_all(folder).expect("removed");
    if gates.iter().all(|(.., holds)| *holds) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// 200,000 decisions, and more as long as `goes_on`. Returns the 99th percentile in µs.
fn decide(table: &SharedTable, goes_on: impl Fn() -> bool) -> f64 {
    let mut rng = Seed(1).stream("start");
    let mut times = Vec::new();
    while times.len() < 200_000 || goes_on() {
        for _ in 0..1_000 {
            let address = address((unit(&mut rng) * f64::from(CLIENTS)) as u32);
            let began = Instant::now();
            let prior = table.predict(address).and_then(|found| found.prior());
            times.push(began.elapsed());
            assert!(prior.is_some());
        }
        // Starts come one by one.
        thread::park_timeout(Duration::from_millis(1));
    }
    times.sort_unstable();
    let at = |share: f64| times[(share * (times.len() - 1) as f64) as usize].as_secs_f64() * 1e6;
    println!(
        "{} decisions: p50 {:.2} µs, p99 {:.2} µs, p99.9 {:.2} µs, slowest {:.0} µs",
        times.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
    at(0.99)
}

/// Samples of running sessions, as many as the gate asks for. Returns the counters and the seconds.
fn ingest(store: Store, now: WallTime, is_over: &AtomicBool) -> (GatherCounts, f64) {
    let config = GatherConfig::new(AddressPolicy::Hashed(HashKey::new(&[7; 32])));
    let notify = |notice| println!("{notice}");
    let gatherer = Gatherer::start(store, config, now, notify).expect("a thread");
    let recorder = gatherer.recorder();
    let began = Instant::now();
    let mut number = 0_u32;
    while !is_over.load(Ordering::Relaxed) {
        while f64::from(number) < began.elapsed().as_secs_f64() * PER_SECOND {
            let one = sample(number.wrapping_mul(7_919) % CLIENTS, Scale::RoundTrip, now);
            recorder.record(Observation {
                address: address(number.wrapping_mul(7_919) % CLIENTS),
                measurement: one.measurement,
                tag: None,
            });
            number += 1;
        }
        thread::park_timeout(Duration::from_millis(5));
    }
    drop(recorder);
    let counts = gatherer.finish();
    (counts, began.elapsed().as_secs_f64())
}

fn address(client: u32) -> IpAddr {
    Ipv4Addr::from(0x0100_0000 + (client << 8) + 7).into()
}

fn sample(client: u32, scale: Scale, now: WallTime) -> Sample {
    let address = address(client);
    let span = Duration::from_millis(u64::from(client % 1_000_000));
    Sample {
        cloud: Cloud::of(address).expect("a host"),
        client: Client::new("-").expect("a name"),
        measurement: Measurement {
            at: now.before(span),
            scale,
            rate: Rate::kbps(1_000 << (client % 4)),
            rtt: Some(Duration::from_millis(20)),
            loss: None,
            is_limited: false,
        },
        tag: None,
    }
}

const ADDRESSES: AddressPolicy = AddressPolicy::Truncated;
const CLIENTS: u32 = 1_000_000;
const PER_SECOND: f64 = 50e3;
