//! Prints the rate at which samples of many clients enter a store, from their addresses:
//! `cargo run --release -p tidegate-knowledge --example ingest`.

use std::time::{Duration, Instant};
use std::{env, fs};

use tidegate_core::units::Rate;
use tidegate_knowledge::{
    AddressPolicy, Cloud, HashKey, Measurement, Sample, Scale, Store, WallTime,
};

fn main() {
    let folder = env::temp_dir().join(format!("tidegate-ingest-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for temporary files");
    let start = WallTime::of_day(20_000);
    let path = folder.join("store.db");
    let mut store = Store::open(&path, start).expect("open").store;
    let policy = AddressPolicy::Hashed(HashKey::new(&[7; 32]));
    let mut worst = Duration::ZERO;
    let began = Instant::now();
    for second in 0..SECONDS {
        let turn = Instant::now();
        let batch: Vec<Sample> = (0..PER_SECOND)
            .map(|i| sample(&policy, start, second, i))
            .collect();
        store.ingest(&batch).expect("written");
        worst = worst.max(turn.elapsed());
    }
    let took = began.elapsed().as_secs_f64();
    let all = f64::from(SECONDS * PER_SECOND);
    let size = fs::metadata(&path).map_or(0, |data| data.len());
    println!(
        "{all} samples of {CLIENTS} clients in {took:.2} s: {:.0} samples/s; slowest batch of \
         {PER_SECOND}: {:.0} ms; {:.0} bytes per sample",
        all / took,
        1e3 * worst.as_secs_f64(),
        size as f64 / all
    );
    fs::remove_dir_all(folder).expect("removed");
}

fn sample(policy: &AddressPolicy, start: WallTime, second: u32, i: u32) -> Sample {
    let number = (second.wrapping_mul(7_919) + i.wrapping_mul(31)) % CLIENTS;
    let address = std::net::Ipv4Addr::from(0x0a00_0000 + number).into();
    let at = Duration::from_secs(second.into()) + Duration::from_micros(20 * u64::from(i));
    Sample {
        cloud: Cloud::of(address).expect("a host"),
        client: policy.client(address),
        measurement: Measurement {
            at: start.after(at),
            scale: Scale::RoundTrip,
            rate: Rate::kbps(u64::from(500 + number % 5_000)),
            rtt: Some(Duration::from_millis(20)),
            loss: Some(0.001),
            is_limited: false,
        },
        tag: None,
    }
}

const SECONDS: u32 = 40;
const PER_SECOND: u32 = 50_000;
const CLIENTS: u32 = 1_000_000;
