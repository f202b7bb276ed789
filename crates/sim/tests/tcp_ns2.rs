//! The classic TCP senders and the sink compared with ns-2.35, packet by packet. `docs/tcp.md`
//! describes how the references were created.

mod tcp_bench;

use tcp_bench::reference::{Reference, Setup};
use tidegate_core::units::Time;

fn check(text: &str) {
    let reference: Reference = text.parse().unwrap();
    if let Err(difference) = reference.check() {
        panic!("{difference}");
    }
}

macro_rules! as_ns2 {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                check(include_str!(concat!("data/ns2/", stringify!($name), ".txt")));
            }
        )*
    };
}

as_ns2!(
    list_newreno,
    list_reno,
    list_sack,
    path_newreno_bursts,
    path_newreno_variants,
    path_reno_bursts_restart0,
    path_reno_bursts_restart1,
    path_reno_delack,
    path_reno_ecn,
    path_reno_variants,
    path_sack_bursts,
    path_sack_bursts_restart0,
    path_sack_bursts_restart1,
    path_sack_ecn,
    path_sack_short,
    queue_newreno,
    queue_reno,
    queue_sack,
);

/// The comparison detects one additional segment in the initial window, long after the start.
#[test]
fn different_sender_is_detected() {
    let text = include_str!("data/ns2/queue_sack.txt");
    let other = text.replacen("# queue,sack", "# queue,sack,iw=3", 1);
    let reference: Reference = other.parse().unwrap();
    assert!(reference.check().is_err());
}

/// Transmissions and drops in 60 s on the network `queue`, with random delays before transmission:
/// means over seeds. ns-2: seeds 1 to 30 of `trace.tcl net=queue overhead=...`.
#[test]
fn random_delays_have_the_same_effect() {
    for (sender, micros, sent, sent_off, drops, drops_off) in [
        ("reno", 1_000, 11_190.0, 1.0, 84.0, 0.5),
        ("reno", 8_000, 8_875.3, 90.0, 90.9, 1.0),
        ("newreno", 1_000, 11_215.0, 1.0, 84.0, 0.5),
        ("newreno", 8_000, 11_101.3, 6.0, 120.2, 2.5),
        ("sack", 1_000, 11_194.1, 1.0, 84.0, 0.5),
        ("sack", 8_000, 11_081.8, 30.0, 122.3, 2.5),
    ] {
        let (mut all, mut dropped) = (0, 0);
        for seed in 1..=SEEDS {
            let words = format!("queue,{sender},overhead={micros},seed={seed}");
            let setup: Setup = words.parse().unwrap();
            let events = setup.play(Time::from_secs(60));
            all += events.len();
            dropped += events.iter().filter(|e| e.dropped).count();
        }
        let mean = |sum: usize| sum as f64 / SEEDS as f64;
        assert!(
            (mean(all) - sent).abs() < sent_off,
            "{sender} {micros} us: {}",
            mean(all)
        );
        assert!(
            (mean(dropped) - drops).abs() < drops_off,
            "{sender} {micros} us: {}",
            mean(dropped)
        );
    }
}

const SEEDS: u64 = 12;
