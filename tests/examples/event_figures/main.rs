//! Cost and delay of kernel events: the figures of `docs/itcp.md`.
//!
//! `cargo run --release -p tidegate-tests --example event_figures -- [FIGURE...]`, as root. Prints
//! whether each aim holds. The exit code is 1 if one does not.

mod bulk;
mod latency;
mod path;
mod trace;
mod triples;
mod unprivileged;
mod verdict;

use std::thread;
use std::time::{Duration, Instant};

use verdict::Verdict;

fn main() {
    let all = [
        ("latency", latency::at_a_thousand as fn() -> Vec<Verdict>),
        ("rate", latency::at_ten_thousand),
        ("sockets", latency::of_a_thousand_sockets),
        ("bulk", bulk::run),
        ("neutrality", path::neutrality),
        ("unprivileged", unprivileged::run),
    ];
    let asked: Vec<String> = std::env::args().skip(1).collect();
    if let Some(wrong) = asked.iter().find(|a| all.iter().all(|(n, _)| n != a)) {
        let names = all.map(|(name, _)| name).join(", ");
        eprintln!("unknown figure `{wrong}`: choose among {names}, or omit it for all");
        std::process::exit(2);
    }
    let mut verdicts = Vec::new();
    for (name, run) in all {
        if asked.is_empty() || asked.iter().any(|a| a == name) {
            println!("== {name}");
            verdicts.extend(run());
        }
    }
    println!("== aims");
    for verdict in &verdicts {
        println!("{verdict}");
    }
    if verdicts.iter().any(|verdict| !verdict.holds) {
        std::process::exit(1);
    }
}

/// Quantiles of times, in µs. NaN without times, so that no aim holds.
#[derive(Clone, Copy)]
struct Quantiles {
    p50: f64,
    p99: f64,
}

/// Prints quantiles of times.
fn quantiles(what: &str, mut times: Vec<Duration>) -> Quantiles {
    times.sort_unstable();
    let at =
        |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_nanos() as f64 / 1e3;
    if times.is_empty() {
        println!("{what}: none");
        let none = f64::NAN;
        return Quantiles {
            p50: none,
            p99: none,
        };
    }
    println!(
        "{what}: n {}, p50 {:.1} µs, p90 {:.1} µs, p99 {:.1} µs, p99.9 {:.1} µs, most {:.1} µs",
        times.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        at(1.0)
    );
    Quantiles {
        p50: at(0.5),
        p99: at(0.99),
    }
}

/// Waits until `due` after `start`.
fn wait_until(start: Instant, due: Duration) {
    thread::sleep(due.saturating_sub(start.elapsed()));
}

/// The median.
fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
