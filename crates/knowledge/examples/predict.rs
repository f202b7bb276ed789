//! Prints the pinball loss of each predictor, one step ahead, on held-out synthetic days and on a file
//! with the columns `session,t_s,mbps`:
//! `cargo run --release -p tidegate-knowledge --example predict [FILE.csv]`.

use std::collections::BTreeMap;
use std::env;

use tidegate_core::random::Seed;
use tidegate_core::units::Rate;
use tidegate_knowledge::predict::{LEVELS, Method, WINDOW, forecast, pinball};
use tidegate_knowledge::synthetic::{Process, series};
use tidegate_knowledge::trajectory::{exp2, log2};

fn main() {
    for (name, process) in DAYS {
        // Seeds from 1,000 on: the settings of the predictors were chosen on others.
        let days = (0..40).map(|seed| series(Seed(1_000 + seed), 400, process));
        table(&format!("synthetic days, {name}"), days);
    }
    if let Some(path) = env::args_os().nth(1) {
        let sessions = read(csv::Reader::from_path(&path).expect("a readable file"));
        for step in [1, 5, 20] {
            let resampled = sessions.iter().map(|session| means(session, step));
            let name = path.to_string_lossy();
            table(&format!("{name}, means of {step} s"), resampled);
        }
    }
}

/// Loss in octaves and in Mb/s, and the share of values below some quantiles.
#[derive(Clone, Default)]
struct Score {
    octaves: f64,
    mbps: f64,
    below: [f64; LEVELS.len()],
}

fn table(name: &str, days: impl Iterator<Item = Vec<f64>>) {
    let mut scores = vec![Score::default(); Method::ALL.len()];
    let mut count = 0.0;
    for day in days {
        for at in FIRST..day.len() {
            let history = &day[at.saturating_sub(WINDOW)..at];
            for (score, method) in scores.iter_mut().zip(Method::ALL) {
                let quantiles = forecast(method, history).expect("a history").quantiles;
                let mbps = |value: f64| exp2(value).as_f64() / 1e6;
                score.octaves += pinball(&quantiles, day[at]);
                score.mbps += pinball(&quantiles.map(mbps), mbps(day[at]));
                for (below, quantile) in score.below.iter_mut().zip(quantiles) {
                    *below += f64::from(u8::from(day[at] <= quantile));
                }
            }
            count += 1.0;
        }
    }
    println!("{name}: {count} forecasts");
    println!(
        "{:20} {:>8} {:>8}   below 5, 25, 50, 75, 95 %",
        "", "octaves", "Mb/s"
    );
    for (score, method) in scores.iter().zip(Method::ALL) {
        let below = [0, 2, 3, 4, 6].map(|i| format!("{:4.1}", 100.0 * score.below[i] / count));
        println!(
            "{:20} {:8.5} {:8.5}   {}",
            method.name(),
            score.octaves / count,
            score.mbps / count,
            below.join(" ")
        );
    }
    println!();
}

/// Sessions as series of one value per second, in order of time.
fn read(mut reader: csv::Reader<std::fs::File>) -> Vec<Vec<f64>> {
    let mut sessions: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for record in reader.records() {
        let record = record.expect("a row");
        let [time, mbps] = [1, 2].map(|column| record[column].parse().expect("a number"));
        let session = sessions.entry(record[0].to_owned()).or_default();
        session.push((time, mbps));
    }
    let values = sessions.into_values().map(|mut session| {
        session.sort_by(|a, b| a.0.total_cmp(&b.0));
        let rate = |(_, mbps): (f64, f64)| log2(Rate::from_f64((1e6 * mbps).max(1e3)));
        session.into_iter().map(rate).collect()
    });
    values.collect()
}

/// Logarithms of the mean rates of `step` values each.
fn means(session: &[f64], step: usize) -> Vec<f64> {
    let mean = |chunk: &[f64]| {
        let sum: f64 = chunk.iter().map(|value| exp2(*value).as_f64()).sum();
        log2(Rate::from_f64(sum / chunk.len() as f64))
    };
    session.chunks_exact(step).map(mean).collect()
}

/// Values before the first forecast of a day.
const FIRST: usize = 8;

const DAYS: [(&str, Process); 4] = [
    (
        "noise on a slow component",
        Process {
            slow: 0.4,
            memory: 0.9,
            noise: 0.3,
            jumps: 0.0,
        },
    ),
    (
        "slow component",
        Process {
            slow: 0.4,
            memory: 0.95,
            noise: 0.05,
            jumps: 0.0,
        },
    ),
    (
        "independent noise",
        Process {
            slow: 0.0,
            memory: 0.0,
            noise: 0.4,
            jumps: 0.0,
        },
    ),
    (
        "noise, slow component and jumps",
        Process {
            slow: 0.3,
            memory: 0.9,
            noise: 0.2,
            jumps: 0.01,
        },
    ),
];
