//! Today's TCP over links: throughput and queues against other implementations and formulas,
//! fairness, and what must never happen.

use core::time::Duration;

use tidegate_core::units::{Bytes, Time};
use tidegate_sim::tcp::modern::{Config, CongestionConfig};
use tidegate_sim::tcp::{SourceConfig, SinkConfig};

#[path = "tcp_modern/dumbbell.rs"]
mod dumbbell;

use dumbbell::{Dumbbell, Path, delayed};

#[test]
fn explore() {
    for fr in [false, true] { for delay in [true, false] {
        for mbps in [10, 100] { for rtt in [20, 100] { for (q, loss) in [(0.25, 0.0), (1.0, 0.0), (4.0, 0.0), (1.0, 1e-4), (1.0, 1e-3), (1.0, 1e-2)] {
            let seeds = if loss > 0.0 {5} else {1};
            let mut g = vec![]; let mut qq=0.0; let mut dr=0;
            for seed in 1..=seeds {
            let path = Path { loss, seed, ..Path::new(mbps, rtt, q) };
            let cc = CongestionConfig::Cubic(tidegate_sim::tcp::modern::CubicConfig { reno_friendly: fr, ..Default::default() });
            let config = Config { congestion: cc, ..Config::default() };
            let sink = if delay { delayed() } else { SinkConfig::default() };
            let mut d = Dumbbell::new(&path, &sink, &[(config, SourceConfig::default())]);
            d.run(Time::from_secs(10));
            let m = d.measure(Time::from_secs(if loss>0.0 {60} else {110}));
            g.push((m.goodput/1e4).round()/100.0); qq=m.queue; dr=m.drops;
            }
            println!("friendly {fr} delack {delay} {mbps} {rtt} q{q} p{loss}: {:?} queue {:.1} drops {}", g, qq, dr);
        }}}
    }}
}
