//! Runs a scenario and prints the number of packet-hops, for benchmarks of whole processes: `cargo
//! run --release -p tidegate-sim --example speed -- scenarios/speed/tfrc-48.toml`. A second
//! argument limits the duration, in milliseconds, to measure the setup time.

use core::time::Duration;
use std::path::Path;
use std::process::ExitCode;

use tidegate_core::media::EncodeError;
use tidegate_sim::runner;
use tidegate_sim::scenario::Scenario;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(file) = args.next() else {
        eprintln!("usage: speed SCENARIO [MILLISECONDS]");
        return ExitCode::FAILURE;
    };
    let mut scenario = match Scenario::load(Path::new(&file), &tidegate_sim::controllers()) {
        Ok(scenario) => scenario,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(millis) = args.next().and_then(|text| text.parse().ok()) {
        scenario.duration = Duration::from_millis(millis);
        for flow in &mut scenario.flows {
            flow.stop = flow.stop.min(scenario.duration);
        }
    }
    let no_video = |_: &str, _: &_, _| Err(EncodeError::Source("no video here".to_owned()));
    match runner::scenario(&scenario, scenario.seed, &no_video, &mut |_| {}) {
        Ok(takes) => {
            let take = &takes[0];
            let totals = (0..take.flows.len()).map(|flow| take.meter.totals(flow));
            let (mut sent, mut received, mut dropped) = (0, 0, 0);
            for flow in totals {
                sent += flow.sent.packets;
                received += flow.received.packets;
                dropped += flow.dropped;
            }
            println!(
                "{} packet-hops, {} flows; while measured: {sent} sent, {received} received, {dropped} dropped",
                take.hops,
                take.flows.len()
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
