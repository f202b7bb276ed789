//! Comparison with Linux, ns-3, quinn, and with formulas.

use tidegate_core::units::{Rate, Time};
use tidegate_sim::packet_agent::Agent as _;
use tidegate_sim::tcp::SinkConfig;
use tidegate_sim::tcp::modern::{Config, CongestionConfig};

use super::dumbbell::{Dumbbell, Measured, Path, delayed};
use super::wire::{Wire, segment};
use super::{at, cubic_alone, endless, ms, packets, with};

/// Results of another implementation for a single flow.
#[derive(Clone, Copy, Debug)]
struct Row<'a> {
    algorithm: &'a str,
    mbps: u64,
    rtt_ms: u64,
    /// Queue, in bandwidth-delay products.
    products: f64,
    loss: f64,
    /// Mb/s of payload.
    goodput: f64,
    /// Mean number of waiting packets.
    queue: f64,
}

/// Rows of a table with the goodput in column `goodput` and the queue in the next column.
fn rows(table: &str, goodput: usize) -> impl Iterator<Item = Row<'_>> {
    table.lines().skip(1).map(move |line| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |n: usize| fields[n].parse::<f64>().unwrap();
        Row {
            algorithm: fields[0],
            mbps: number(1) as u64,
            rtt_ms: number(2) as u64,
            products: number(3),
            loss: number(4),
            goodput: number(goodput),
            queue: number(goodput + 1),
        }
    })
}

/// Means over runs of `data/ns3/single_flow.cc`, without those that would take too long here.
fn ns3() -> impl Iterator<Item = Row<'static>> {
    rows(include_str!("../data/ns3/single_flow.csv"), 6)
        .filter(|row| row.mbps * row.rtt_ms <= 2_000 || (row.products - 1.0).abs() < 0.1)
}

/// Linux 6.18 in the emulator: the example `kernel_tcp` of the crate `live`.
fn linux() -> impl Iterator<Item = Row<'static>> {
    rows(include_str!("../data/linux/single_flow.csv"), 7)
}

/// Results of the model from 10 s to `end` s, as mean of `seeds` runs.
fn ours(
    row: &Row<'_>,
    congestion: CongestionConfig,
    sink: &SinkConfig,
    end: u64,
    seeds: u64,
) -> Measured {
    let mut sum = Measured::default();
    for seed in 1..=seeds {
        let path = Path {
            loss: row.loss,
            seed,
            ..Path::new(row.mbps, row.rtt_ms, row.products)
        };
        let mut dumbbell = Dumbbell::new(&path, sink, &[(with(congestion), endless())]);
        dumbbell.run(at(10));
        let measured = dumbbell.measure(at(end));
        sum.goodput += measured.goodput / 1e6 / seeds as f64;
        sum.queue += measured.queue / seeds as f64;
    }
    sum
}

/// As in the runs of ns-3.
fn as_ns3(row: &Row<'_>, congestion: CongestionConfig, seeds: u64) -> Measured {
    ours(row, congestion, &SinkConfig::default(), 110, seeds)
}

/// If the queue, and not random loss, determines the result: within 3 % of the kernel's throughput.
/// Exception: CUBIC in queues of a few packets, which the kernel's pairs of segments fill earlier.
#[test]
fn single_flow_agrees_with_linux() {
    let mut compared = 0;
    for row in linux() {
        let congestion = match row.algorithm {
            "bbr" => CongestionConfig::bbr(),
            "cubic" => CongestionConfig::cubic(),
            _ => CongestionConfig::reno(),
        };
        let bbr = row.algorithm == "bbr";
        if row.loss > 0.0 && !bbr {
            continue;
        }
        let ours = ours(&row, congestion, &delayed(), 50, 1);
        let few = row.queue < 2.0;
        let tolerance = if few { 0.08 } else { 0.03 };
        let off = ours.goodput / row.goodput - 1.0;
        assert!(off.abs() < tolerance, "{row:?} {ours:?}");
        // BBR's queue depends on the jitter of the host, which affects its filters.
        let tolerance = if bbr { 10.0 } else { 0.05 * row.queue + 2.5 };
        let off = ours.queue - row.queue;
        assert!(off.abs() < tolerance, "{row:?} {ours:?}");
        compared += 1;
    }
    assert_eq!(compared, 26);
}

/// Without random losses CUBIC's sawtooth determines throughput and queue. Both agree, except for a
/// queue of a quarter of a product, where a single packet in flight matters.
#[test]
fn cubic_queue_agrees_with_ns3() {
    for row in ns3().filter(|row| row.algorithm == "TcpCubic" && row.loss <= 0.0) {
        let ours = as_ns3(&row, cubic_alone(true), 1);
        let off = ours.goodput / row.goodput - 1.0;
        assert!(off.abs() < 0.02, "{row:?} {ours:?}");
        let off = ours.queue / row.queue - 1.0;
        let tolerance = if row.products < 1.0 { 0.35 } else { 0.07 };
        assert!(off.abs() < tolerance, "{row:?} {ours:?}");
    }
}

/// With random losses, runs vary: they have a standard deviation of about 10 %. Windows of less
/// than twenty segments are not compared, because rounding differs there.
#[test]
fn cubic_with_losses_agrees_with_ns3() {
    let comparable = |row: &Row<'_>| {
        let window = 1.054 * libm::pow(row.rtt_ms as f64 / 1e3 / row.loss, 0.75);
        row.algorithm == "TcpCubic" && row.loss > 0.0 && window > 20.0
    };
    for row in ns3().filter(comparable) {
        let seeds = if row.mbps > 10 { 3 } else { 10 };
        let ours = as_ns3(&row, cubic_alone(true), seeds);
        let off = ours.goodput / row.goodput - 1.0;
        assert!(off.abs() < 0.15, "{row:?} {ours:?} {off}");
    }
}

/// In the range in which ns-3's BBR works: its startup has no loss.
#[test]
fn bbr_throughput_agrees_with_ns3() {
    for row in ns3().filter(|row| row.algorithm == "TcpBbr") {
        let ours = as_ns3(&row, CongestionConfig::bbr(), 1);
        let off = ours.goodput / row.goodput - 1.0;
        assert!(off.abs() < 0.03, "{row:?} {ours:?} {off}");
        let product = row.mbps as f64 * row.rtt_ms as f64 / 12.0;
        let limit = 0.25 * product + 10.0;
        assert!(ours.queue.max(row.queue) < limit, "{row:?} {ours:?}");
    }
}

/// Random loss that halves the throughput of the others does not affect BBR, as in figure 8 of its
/// paper and in quinn's BBR (9.90 Mb/s on the wire of 10 Mb/s at 1 %).
#[test]
fn bbr_is_insensitive_to_random_loss() {
    for (mbps, rtt_ms, loss) in [(10, 100, 0.01), (10, 20, 0.05), (20, 100, 0.001)] {
        let path = Path {
            loss,
            ..Path::new(mbps, rtt_ms, 1.0)
        };
        let flow = (with(CongestionConfig::bbr()), endless());
        let mut dumbbell = Dumbbell::new(&path, &delayed(), &[flow]);
        dumbbell.run(at(5));
        let share = dumbbell.measure(at(45)).goodput / path.rate.as_f64();
        // Of payload; probes of the round trip take up to 3 %.
        assert!(
            share > 0.965 * (1.0 - loss) * 0.95,
            "{mbps} {rtt_ms} {loss}: {share}"
        );
    }
}

/// Mean window, in segments, of a flow over an unlimited path that loses every `n`th segment once,
/// from its delivery rate.
fn mean_window(congestion: CongestionConfig, rtt_ms: u64, n: u64) -> f64 {
    let mut first = 0;
    let mut wire = Wire::new(
        &with(congestion),
        &endless(),
        &SinkConfig::default(),
        |sent| {
            let (_, again) = segment(sent).unwrap_or((0, true));
            first += u64::from(!again);
            (again || first % n != 0).then_some(ms(rtt_ms / 2))
        },
    );
    let (warm, end) = (at(100), at(400));
    wire.run(warm);
    let before = wire.sink.next();
    wire.run(end);
    let rate = f64::from(wire.sink.next() - before) / end.since(warm).as_secs_f64();
    rate * rtt_ms as f64 / 1e3
}

/// RFC 9438 figure 3 for C = 0.4: 1.054·(RTT/p)^(3/4) segments. With equally spaced losses the
/// sequence of its epochs does not converge: too long and too short epochs alternate, the longer
/// one with fast convergence and the shorter one without.
#[test]
fn cubic_has_the_mean_window_of_rfc_9438() {
    for (rtt_ms, n) in [(100, 1_000), (100, 10_000), (200, 1_000), (20, 1_000)] {
        let want = 1.054 * libm::pow(rtt_ms as f64 / 1e3 * n as f64, 0.75);
        let cautious = mean_window(cubic_alone(true), rtt_ms, n);
        let plain = mean_window(cubic_alone(false), rtt_ms, n);
        assert!(
            cautious > 0.85 * want && plain < 1.15 * want,
            "{want}: {cautious} {plain}"
        );
        assert!(
            cautious < want && plain > want,
            "{want}: {cautious} {plain}"
        );
    }
}

/// sqrt(3/(2p)) segments, minus the round trip in which each loss is repaired. CUBIC is not slower
/// where Reno would be faster than its curve (RFC 9438 section 4.3).
#[test]
fn reno_has_the_mean_window_of_the_square_root_law() {
    for (n, tolerance) in [(100, 0.15), (1_000, 0.06), (10_000, 0.03)] {
        let want = (1.5 * n as f64).sqrt();
        let reno = mean_window(CongestionConfig::reno(), 20, n);
        assert!((reno / want - 1.0).abs() < tolerance, "{n}: {reno} {want}");
        let cubic = mean_window(CongestionConfig::cubic(), 20, n);
        assert!((cubic / reno - 1.0).abs() < 0.1, "{n}: {cubic} {reno}");
    }
}

#[test]
fn terabit_path_is_filled() {
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
    // The acknowledgement of an odd last segment is 40 ms late, and would affect the rate sample.
    dumbbell.run(Time::ZERO + ms(40));
    let rate = dumbbell.flows[0].sender.path().delivery_rate.unwrap();
    assert!(rate > Rate::kbps(500_000_000), "{rate:?}");
    dumbbell.run(at(1));
    assert!(
        dumbbell.flows[0].sender.is_done(),
        "{:?}",
        dumbbell.flows[0].sender.state()
    );
}

/// quinn-proto 0.11 on 10 Mb/s and 100 ms, 1228 bytes per packet, 300 ms of queue, from 5 s to 60
/// s: kb/s on the wire and ms of queue. Its BBR differs: it keeps the queue at 110 ms.
#[test]
fn reno_and_cubic_agree_with_quinn() {
    for (congestion, loss, wire_kbps, queue_ms) in [
        (CongestionConfig::reno(), 0.0, 10_000.0, 210.0),
        (CongestionConfig::cubic(), 0.0, 10_000.0, 245.0),
        (CongestionConfig::reno(), 0.01, 1_043.0, 0.0),
        (CongestionConfig::cubic(), 0.01, 1_115.0, 0.0),
    ] {
        let path = Path {
            loss,
            queue: 305,
            ..Path::new(10, 100, 3.0)
        };
        let config = Config {
            packet_size: 1_228,
            ..with(congestion)
        };
        let mut dumbbell = Dumbbell::new(&path, &delayed(), &[(config, endless())]);
        dumbbell.run(at(5));
        let before = dumbbell.link.stats().delivered_bytes;
        let queue = dumbbell.measure(at(60)).queue * 1_228.0 * 8.0 / 1e4;
        let carried = dumbbell.link.stats().delivered_bytes - before;
        let kbps = carried.bits() as f64 / 55e3;
        assert!(
            (kbps / wire_kbps - 1.0).abs() < 0.15,
            "{congestion:?}: {kbps}"
        );
        assert!(
            (queue - queue_ms).abs() < 0.05 * queue_ms + 2.0,
            "{congestion:?}: {queue}"
        );
    }
}
