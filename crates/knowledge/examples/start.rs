//! Prints how long the decision on a start takes when the clouds of 1,000,000 clients are known:
//! `cargo run --release -p tidegate-knowledge --example start`.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};
use std::{env, fs};

use tidegate_core::random::{Seed, unit};
use tidegate_core::units::Rate;
use tidegate_knowledge::cluster::ClusterConfig;
use tidegate_knowledge::recluster::recluster;
use tidegate_knowledge::start_table::StartTable;
use tidegate_knowledge::{Client, Cloud, Measurement, Sample, Scale, Store, WallTime};

fn main() {
    let folder = env::temp_dir().join(format!("tidegate-start-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for temporary files");
    let now = WallTime::of_day(20_000).after(Duration::from_hours(12));
    let mut store = Store::open(&folder.join("store.db"), now)
        .expect("open")
        .store;
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
    let table = StartTable::build(&store, now).expect("built");
    println!(
        "{} clouds in {} clusters; table built in {:.1} s",
        table.len(),
        done.clusters,
        began.elapsed().as_secs_f64()
    );
    let mut rng = Seed(1).stream("start");
    let mut times: Vec<Duration> = (0..200_000)
        .map(|_| {
            let address = address((unit(&mut rng) * f64::from(CLIENTS)) as u32);
            let began = Instant::now();
            let prior = table.predict(address).and_then(|found| found.prior());
            let took = began.elapsed();
            assert!(prior.is_some());
            took
        })
        .collect();
    times.sort_unstable();
    let at = |share: f64| times[(share * (times.len() - 1) as f64) as usize].as_nanos();
    println!(
        "decision: p50 {} ns, p99 {} ns, p99.9 {} ns",
        at(0.5),
        at(0.99),
        at(0.999)
    );
    fs::remove_dir_all(folder).expect("removed");
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
        },
        tag: None,
    }
}

const CLIENTS: u32 = 1_000_000;
