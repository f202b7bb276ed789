//! Starts of TFRC beside the TCP of the kernel in the lab.

mod calm;
mod skip;

use std::path::Path;
use std::process::Command;

use calm::judged;
use serde_json::Value;
use tidegate_core::trace::Event;
use tidegate_core::units::Rate;
use tidegate_record::{Run, RunReader};

/// Run folders of the seven starts, and the first rates of TFRC in b/s: a packet per second, or the
/// prediction, of which 1 is a fair share of 10 Mb/s for 21 flows.
const STARTS: [(&str, u64); 7] = [
    ("slow-start", 8_000),
    ("informed--correct", 476_190),
    ("informed--3-times-too-high", 1_428_571),
    ("informed--3-times-too-low", 158_730),
    ("careful-resume--correct", 8_000),
    ("careful-resume--3-times-too-high", 8_000),
    ("careful-resume--3-times-too-low", 8_000),
];

/// The seven starts of Figure 3, 24 seconds each in real time, six of them at a time on two processors.
#[test]
fn tfrc_starts_at_its_predictions_beside_kernel_tcp() {
    let test = "tfrc_starts_at_its_predictions_beside_kernel_tcp";
    if !skip::is_without_lab(test) {
        judged(test, figure_3);
    }
}

fn figure_3() {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("start-lab");
    let options = "papers run start/fig3 --lab --seeds 1 --json --out";
    let run = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(options.split(' '))
        .arg(&out)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let figure: Value = serde_json::from_slice(&run.stdout).unwrap();
    let source = figure["source"].as_str().unwrap();
    assert!(source.contains("played on the TCP of Linux"), "{source}");
    // Eight of the simulated figure, and one for each quantity beside the simulator.
    assert_eq!(figure["claims"].as_array().unwrap().len(), 11, "{figure}");
    assert_eq!(figure["table"]["rows"].as_array().unwrap().len(), 7);
    for (name, first) in STARTS {
        let run = RunReader::load(out.join(format!("lab/{name}-1"))).unwrap();
        let begun = first_rate(&run).unwrap();
        assert_eq!(begun.as_bps(), first, "{name}");
        let flows = &run.summary.as_ref().unwrap().flows;
        assert_eq!(flows.len(), 21, "{name}");
        // In the first five seconds of TFRC. The bottleneck has 10 Mb/s, with at most 0.1 Mb/s from
        // its queue.
        let rate: f64 = flows.iter().filter_map(|flow| flow.receive_bps).sum();
        assert!((9e6..10.1e6).contains(&rate), "{name}: {rate}");
    }
}

/// Rate before its first change.
fn first_rate(run: &Run) -> Option<Rate> {
    run.events.iter().find_map(|row| match row.event {
        Event::RateChanged { from, .. } => Some(from),
        _ => None,
    })
}
