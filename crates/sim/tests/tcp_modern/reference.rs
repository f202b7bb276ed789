//! Against ns-3.37, and against formulas.

use core::time::Duration;

use tidegate_core::units::{Rate, Time};
use tidegate_sim::tcp::modern::{BbrConfig, Config, CongestionConfig, CubicConfig};
use tidegate_sim::tcp::{InitialWindow, SinkConfig};

use tidegate_sim::agent::Agent as _;

use super::dumbbell::{Dumbbell, Measured, Path, delayed};
use super::wire::{Wire, segment};
use super::{at, cubic_alone, endless, ms, packets, with};

/// `data/ns3/single_flow.csv`: means over runs of `data/ns3/single_flow.cc`.
#[derive(Clone, Copy, Debug)]
struct Row {
    bbr: bool,
    mbps: u64,
    rtt_ms: u64,
    products: f64,
    loss: f64,
    /// Mb/s of payload.
    goodput: f64,
    /// Packets.
    queue: f64,
}

fn rows() -> Vec<Row> {
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |n: usize| fields[n].parse::<f64>().unwrap();
        Row {
            bbr: fields[0] == "TcpBbr",
            mbps: number(1) as u64,
            rtt_ms: number(2) as u64,
            products: number(3),
            loss: number(4),
            goodput: number(6),
            queue: number(7),
        }
    };
    let lines = include_str!("../data/ns3/single_flow.csv").lines();
    lines.skip(1).map(parse).collect()
}

/// Ours, from 10 s to 110 s as there, mean of `seeds` runs.
fn ours(row: &Row, congestion: CongestionConfig, seeds: u64) -> Measured {
    let mut sum = Measured::default();
    for seed in 1..=seeds {
        let path = Path {
            loss: row.loss,
            seed,
            ..Path::new(row.mbps, row.rtt_ms, row.products)
        };
        let flow = (with(congestion), endless());
        let mut dumbbell = Dumbbell::new(&path, &SinkConfig::default(), &[flow]);
        dumbbell.run(at(10));
        let measured = dumbbell.measure(at(110));
        sum.goodput += measured.goodput / seeds as f64;
        sum.queue += measured.queue / seeds as f64;
    }
    sum
}

/// CUBIC without its Reno-friendly region, which ns-3 does not have.
fn compare(bbr: bool, random: bool, goodput: f64, queue: impl Fn(&Row) -> f64) {
    let chosen = |row: &&Row| row.bbr == bbr && (row.loss > 0.0) == random;
    let mut compared = 0;
    for row in rows().iter().filter(chosen) {
        let congestion = if bbr {
            CongestionConfig::bbr()
        } else {
            cubic_alone(true)
        };
        let ours = ours(row, congestion, if random { 10 } else { 1 });
        let off = ours.goodput / 1e6 / row.goodput - 1.0;
        assert!(off.abs() < goodput, "{row:?} {ours:?} {off}");
        let off = (ours.queue - row.queue).abs();
        assert!(off < queue(row), "{row:?} {ours:?} {off}");
        compared += 1;
    }
    assert!(compared >= 4, "{compared}");
}

#[test]
fn a_terabit_is_filled() {
    let path = Path {
        rate: Rate::kbps(1_000_000_000),
        rtt: ms(1),
        queue: 60_000,
        ..Path::new(1, 1, 1.0)
    };
    let config = Config {
        window: 1 << 20,
        ..with(CongestionConfig::bbr())
    };
    let mut dumbbell = Dumbbell::new(&path, &delayed(), &[(config, packets(1_000_000))]);
    dumbbell.run(at(1));
    assert!(
        dumbbell.flows[0].sender.is_done(),
        "{:?}",
        dumbbell.flows[0].sender.state()
    );
    let rate = dumbbell.flows[0].sender.path().delivery_rate.unwrap();
    assert!(rate > Rate::kbps(500_000_000), "{rate:?}");
}
