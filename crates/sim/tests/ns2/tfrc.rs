//! TFRC of RFC 3448 compared with that of ns-2.

use core::time::Duration;
use std::collections::BTreeSet;

use tidegate_core::control::Algorithm as _;
use tidegate_core::controller::Configuration as _;
use tidegate_core::link::{LinkConfig, LossConfig};
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_sim::model_flow;
use tidegate_sim::ns2::tfrc::Ns2TfrcConfig;

use crate::lab::{Lab, link, start};
use crate::micro::{Path, furthest};
use crate::satellite::{Kind, Satellite};
use crate::table::Table;

/// Packets leave at the same times as in ns-2: over a queue that overflows, over a longer queue
/// with a loss of every 137th packet after it, with about 3 % irregular losses, and with 60
/// consecutive losses that let the no-feedback timer expire. (When the path is restored, at 12.5 s,
/// ns-2's receiver reports packets twice.)
///
/// Slow start multiplies by 1.9 and begins with 3.3 packets per round trip instead of 2 and 4. With
/// the standard values, twice the receive rate equals the rate, reports arrive exactly a round trip
/// apart, and in ns-2 floating-point rounding decides the sequence.
#[test]
fn send_times_equal_those_of_ns2() {
    let table = Table::read(include_str!("../data/ns2/tfrc_micro.csv"));
    let rough = Table::read(include_str!("../data/ns2/tfrc_rough.csv"));
    let tfrc = Ns2TfrcConfig {
        slow_start_factor: 1.9,
        initial_window: Some(3.3),
        ..Ns2TfrcConfig::native()
    };
    let regular = || (60..12_000).step_by(137);
    for (trace, count, queue, seconds, tolerance_us) in [
        ("queue", 11_261, 10, 60, 50),
        ("drops", 11_201, 50, 60, 50),
        ("rough", 12_747, 50, 120, 150),
        ("burst", 2_059, 50, 12, 50),
    ] {
        let lost: BTreeSet<u64> = match trace {
            "drops" => regular().collect(),
            "rough" => {
                let rows = rough.rows(&[]).into_iter();
                rows.map(|row| rough.number(row, "packet") as u64).collect()
            }
            "burst" => regular().chain(2_000..2_060).collect(),
            _ => BTreeSet::new(),
        };
        let path = Path {
            queue: Some(queue),
            lost,
            seconds,
        };
        let Kind {
            sender, receiver, ..
        } = kind(&tfrc);
        let sent = path.play(sender, &tfrc, receiver);
        assert_eq!(sent.len(), count, "{trace}");
        let worst = furthest(&sent, &table, trace);
        println!("{trace}: {count} packets, at most {worst} us apart");
        assert!(worst <= tolerance_us, "{trace}: {worst} us");
    }
}

/// Throughput over a path of constant round-trip time that loses packets at random.
#[test]
fn rate_equals_that_of_ns2() {
    let table = Table::read(include_str!("../data/ns2/tfrc_response.csv"));
    println!("  loss   rtt    ns-2     sd    ours ours/ns-2   mean p: ns-2     ours");
    for row in table.rows(&[]) {
        let columns = ["loss", "rtt_s", "sent_pps", "sent_sd", "reported_p"];
        let [loss, rtt, ns2, sd, ns2_p] = columns.map(|column| table.number(row, column));
        // Lower loss rates take too long to measure.
        if loss < 1e-3 {
            continue;
        }
        let (first, second) = (response(loss, rtt, 1), response(loss, rtt, 2));
        let (ours, p) = (
            f64::midpoint(first.0, second.0),
            f64::midpoint(first.1, second.1),
        );
        let ratio = ours / ns2;
        println!("{loss:6} {rtt:5} {ns2:7.2} {sd:6.2} {ours:7.2} {ratio:9.3} {ns2_p:14.6} {p:8.6}");
        assert!((0.95..=1.05).contains(&ratio), "{ours} of {ns2}");
    }
}

/// Packets per second, and the mean over time of the loss event rate.
fn response(loss: f64, rtt: f64, seed: u64) -> (f64, f64) {
    let way = Duration::from_secs_f64(rtt / 2.0);
    let there = LinkConfig {
        loss: LossConfig::Bernoulli(loss),
        ..link(
            Rate::kbps(100_000),
            way.saturating_sub(Duration::from_micros(80)),
            100_000,
        )
    };
    let back = LinkConfig {
        delay: way,
        ..LinkConfig::default()
    };
    let mut lab = Lab::new(vec![("there", there), ("back", back)], &[&[0], &[1]], seed);
    let tfrc = Ns2TfrcConfig::native();
    let Kind {
        sender, receiver, ..
    } = kind(&tfrc);
    let controller = tfrc.start(&start(&sender));
    lab.add(sender, controller, receiver, [0, 1]);
    let events = |lab: &Lab| lab.flows[0].sender.packets() as f64 * loss;
    let step = Duration::from_secs_f64(rtt);
    let mut now = Time::ZERO;
    while events(&lab) < 30.0 {
        now += step;
        lab.run(now);
    }
    let (began, before) = (now, lab.flows[0].sender.packets());
    let (mut sum, mut count) = (0.0, 0.0);
    while events(&lab) < 530.0 {
        now += step;
        lab.run(now);
        sum += lab.flows[0].sender.summary().loss_event_rate;
        count += 1.0;
    }
    let sent = (lab.flows[0].sender.packets() - before) as f64;
    (sent / now.since(began).as_secs_f64(), sum / count)
}

/// Ten flows share 1300 packets per second over a satellite link with random loss.
#[test]
fn throughput_with_random_loss_equals_that_of_ns2() {
    let table = Table::read(include_str!("../data/ns2/tfrc_lossy.csv"));
    println!("   loss   ns-2    sd   ours ours/ns-2  fairness");
    for row in table.rows(&[]) {
        let columns = ["loss", "received_pps", "received_sd"];
        let [loss, ns2, sd] = columns.map(|column| table.number(row, column));
        if loss < 1e-4 {
            continue;
        }
        let case = Satellite {
            loss,
            loss_back: 0.0,
            rtt: 0.55,
            outage: 0,
            seconds: 550,
        };
        let tfrc = Ns2TfrcConfig::native();
        let (first, second) = (case.play(&kind(&tfrc), 1), case.play(&kind(&tfrc), 2));
        let ours = f64::midpoint(first.received, second.received);
        let ratio = ours / ns2;
        println!(
            "{loss:7} {ns2:6.2} {sd:5.2} {ours:6.2} {ratio:9.3} {:9.4}",
            first.fairness
        );
        // At a loss rate of 0.001 two seeds of ns-2 differ by 5 % of the mean.
        assert!((0.94..=1.06).contains(&ratio), "{ours} of {ns2}");
        assert!(first.fairness > 0.97);
    }
}

/// Packets of 1000 bytes, spaced and reported as in ns-2.
fn kind(tfrc: &Ns2TfrcConfig) -> Kind<'_> {
    let (sender, receiver) = model_flow::ends(tfrc.properties(), Bytes(1_000));
    Kind {
        sender,
        algorithm: tfrc,
        receiver,
    }
}
