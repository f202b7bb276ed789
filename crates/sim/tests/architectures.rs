//! Encoders with and without a buffer between them and the network.

use tidegate_core::random::Seed;
use tidegate_core::trace::DropCause;
use tidegate_sim::flow_endpoints::FlowResult;
use tidegate_sim::runner::{self, Keep};
use tidegate_sim::scenario::Scenario;

/// 1.5 Mb/s, then 0.5 Mb/s.
fn play(video: &str) -> FlowResult {
    let text = format!(
        "name = \"encoders\"\nduration = \"30s\"\n[[link]]\nname = \"up\"\nrate = [[\"0s\", \
         \"1.5Mb/s\"], [\"10s\", \"0.5Mb/s\"]]\ndelay = \"40ms\"\nqueue = {{ droptail = \"20kB\" \
         }}\n[[link]]\nname = \"down\"\ndelay = \"40ms\"\n[[flow]]\nname = \"video\"\npath = \
         [\"up\"]\nback = [\"down\"]\ncontrol = \"tfrc\"\nvideo = {{ {video} }}\ndelay_bound = \"2s\"\n"
    );
    let scenario = Scenario::parse("encoders", &text, &|_| Err(String::new()));
    let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
    let encoder = |flow: &str, plan: &tidegate_sim::scenario::VideoPlan, seed| {
        Ok(plan.modelled(flow, seed).expect("a modelled encoder"))
    };
    let run = runner::flows(&scenario, Seed(1), Keep::default(), &encoder);
    let mut flows = run.unwrap_or_else(|error| panic!("{error}")).flows;
    flows.remove(0).1
}

/// Longest time from the capture of a frame to its departure, in seconds.
fn longest_wait(run: &FlowResult) -> f64 {
    let waits = run
        .sent
        .iter()
        .filter_map(|row| Some(row.left?.since(row.captured)));
    waits.max().map_or(0.0, |wait| wait.as_secs_f64())
}

fn overflows(run: &FlowResult) -> usize {
    let dropped = |row: &&_| -> bool {
        let row: &tidegate_core::session::sender::SentFrame = row;
        row.dropped == Some(DropCause::Overflow)
    };
    run.sent.iter().filter(dropped).count()
}

const FIXED: &str = "floor = \"800kb/s\", ceiling = \"800kb/s\"";

#[test]
fn a_fixed_encoder_waits_or_loses_frames() {
    let unlimited = play(FIXED);
    assert!(
        longest_wait(&unlimited) >= 1.0,
        "{}",
        longest_wait(&unlimited)
    );
    assert_eq!(overflows(&unlimited), 0);
    let limited = play(&format!("{FIXED}, buffer = \"2kB\""));
    assert!(longest_wait(&limited) <= 0.5, "{}", longest_wait(&limited));
    assert!(overflows(&limited) >= 30, "{}", overflows(&limited));
}

#[test]
fn an_adaptive_encoder_needs_no_buffer() {
    let buffered = play("buffer = \"2kB\"");
    let none = play("buffer = \"none\"");
    assert!(
        overflows(&buffered) <= 60 && overflows(&none) == 0,
        "{}",
        overflows(&buffered)
    );
    let median = |run: &FlowResult| {
        let waits = run
            .sent
            .iter()
            .filter_map(|row| Some(row.left?.since(row.captured)));
        let mut waits: Vec<_> = waits.collect();
        waits.sort();
        waits[waits.len() / 2].as_secs_f64()
    };
    assert!(
        median(&none) < 0.6 * median(&buffered),
        "{} {}",
        median(&none),
        median(&buffered)
    );
}
