//! RAP against ns-2's.

use std::collections::BTreeSet;

use tidegate_core::controller::Configuration as _;
use tidegate_core::controller::rap::RapConfig;
use tidegate_core::units::Bytes;
use tidegate_sim::model_flow;

use crate::micro::{Path, furthest};
use crate::satellite::{Kind, Played, Satellite};
use crate::table::Table;

/// Packets leave at the same times as in ns-2: over a queue that overflows, over a path with one
/// loss per hundred packets, over a path with long loss bursts that cause timeouts, and over the
/// queue with fine-grain adaptation.
///
/// The rate grows by 0.97 packets per round trip instead of one. With one, a rate step and a packet
/// are due at the same time in every round trip, and in ns-2 floating-point rounding decides their
/// order.
#[test]
fn send_times_equal_those_of_ns2() {
    let table = Table::read(include_str!("../data/ns2/rap_micro.csv"));
    for (trace, count, seconds, tolerance_us) in [
        ("queue", 11_537, 60, 50),
        ("list100", 13_682, 120, 150),
        ("burst", 13_353, 25, 50),
        ("fine", 10_482, 60, 50),
    ] {
        let path = Path {
            queue: (trace == "queue" || trace == "fine").then_some(10),
            lost: match trace {
                "list100" => (1..200).map(|k| k * 100 - 1).collect(),
                "burst" => {
                    let lost = (500..=560).chain(1_500..=1_505);
                    lost.chain([3_000, 3_001]).collect()
                }
                _ => BTreeSet::new(),
            },
            seconds,
        };
        let rap = RapConfig {
            increase: 0.97,
            fine_grain: trace == "fine",
            ..RapConfig::per_packet()
        };
        let Kind {
            sender, receiver, ..
        } = kind(&rap);
        let sent = path.play(sender, &rap, receiver);
        assert_eq!(sent.len(), count, "{trace}");
        let worst = furthest(&sent, &table, trace);
        println!("{trace}: {count} packets, at most {worst} us apart");
        assert!(worst <= tolerance_us, "{trace}: {worst} us");
    }
}

/// Ten flows share 1300 packets per second over a satellite link with random loss.
#[test]
fn throughput_with_random_loss_equals_that_of_ns2() {
    let table = Table::read(include_str!("../data/ns2/rap_lossy.csv"));
    println!("set          loss   rtt   ns-2    sd   ours ours/ns-2  fairness");
    for (set, loss, rtt) in [
        ("P", 1e-5, 0.55),
        ("P", 1e-3, 0.55),
        ("P", 1e-2, 0.55),
        ("P", 1e-1, 0.55),
        ("P_ackloss", 1e-1, 0.55),
        ("P_fine", 1e-5, 0.55),
        ("RTT", 1e-3, 0.1),
        ("RTT", 1e-3, 0.75),
    ] {
        let rows = table.rows(&[("set", set)]);
        let same = |row: &&usize| {
            (table.number(**row, "loss") / loss - 1.0).abs() < 1e-9
                && (table.number(**row, "rtt_s") / rtt - 1.0).abs() < 1e-9
        };
        let row = *rows.iter().find(same).expect("a row of this set");
        let case = Satellite {
            loss,
            loss_back: if set == "P_ackloss" { loss } else { 0.0 },
            rtt,
            outage: 0,
            seconds: 550,
        };
        let rap = RapConfig {
            fine_grain: set == "P_fine",
            ..RapConfig::per_packet()
        };
        let (first, second) = (case.play(&kind(&rap), 1), case.play(&kind(&rap), 2));
        let ours = f64::midpoint(first.received, second.received);
        let ns2 = table.number(row, "received_pps");
        let sd = table.number(row, "received_sd");
        println!(
            "{set:9} {loss:7} {rtt:5} {ns2:6.2} {sd:5.2} {ours:6.2} {:9.3} {:9.4}",
            ours / ns2,
            first.fairness
        );
        // Where no queue averages them, two seeds of ns-2 differ by 4 % of the mean.
        assert!(
            (ours / ns2 - 1.0).abs() < 0.06,
            "{set} {loss} {rtt}: {ours} of {ns2}"
        );
        assert!(first.fairness > 0.98);
    }
}

/// The same flows with an outage, at a loss rate of 0.001.
#[test]
fn response_to_an_outage_equals_that_of_ns2() {
    let table = Table::read(include_str!("../data/ns2/rap_outage.csv"));
    println!("outage   half: ns-2   ours   after: ns-2   ours   during: ns-2   ours");
    for outage in [2, 10, 60] {
        let rows = table.rows(&[("outage_s", &outage.to_string())]);
        let case = Satellite {
            loss: 1e-3,
            loss_back: 0.0,
            rtt: 0.55,
            outage,
            seconds: 200 + outage + 60,
        };
        let rap = RapConfig::per_packet();
        let (first, second) = (case.play(&kind(&rap), 1), case.play(&kind(&rap), 2));
        let mean = |f: fn(&Played) -> f64| f64::midpoint(f(&first), f(&second));
        let (half, after, during) = (mean(|p| p.half), mean(|p| p.after), mean(|p| p.during));
        let ns2 = ["half_s", "received_pps_50_s_after", "sent_pps_during"];
        let [ns2_half, ns2_after, ns2_during] = ns2.map(|name| table.number(rows[0], name));
        println!(
            "{outage:6} {ns2_half:12.1} {half:6.1} {ns2_after:13.1} {after:6.1} {ns2_during:14.1} {during:6.1}"
        );
        assert!((half - ns2_half).abs() <= 3.0, "{half} s");
        assert!((after / ns2_after - 1.0).abs() < 0.1, "{after}");
        assert!((during / ns2_during - 1.0).abs() < 0.15, "{during}");
    }
}

/// Packets of 1000 bytes, spaced as in ns-2.
fn kind(rap: &RapConfig) -> Kind<'_> {
    let (sender, receiver) = model_flow::ends(rap.properties(), Bytes(1_000));
    Kind {
        sender,
        algorithm: rap,
        receiver,
    }
}
