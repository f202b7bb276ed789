//! Figures of RCS in the lab, beside the simulator.

mod calm;
mod skip;

use std::path::Path;
use std::process::Command;

use calm::judged;

/// Figure 12, ten seconds in real time: the rate is back two round trips after a loss, and throughput
/// and overhead are those of the simulator.
#[test]
fn a_source_recovers_in_the_lab_as_in_the_simulator() {
    let test = "a_source_recovers_in_the_lab_as_in_the_simulator";
    if !skip::is_without_lab(test) {
        judged(test, figure_12);
    }
}

fn figure_12() {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rcs-lab");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["papers", "run", "rcs/fig12", "--lab", "--seeds", "1"]);
    let run = command
        .args(["--json", "--out"])
        .arg(&out)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let figure: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let source = figure["source"].as_str().unwrap();
    assert!(source.contains("played on the TCP of Linux"), "{source}");
    let claims = figure["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 3);
    assert!(
        claims.iter().all(|claim| claim["holds"] == true),
        "{claims:?}"
    );
    let packets = out.join("lab/source-22-45-1/flows/source/packets.csv");
    let rows = std::fs::read_to_string(packets).unwrap().lines().count();
    assert!(rows > 100, "{rows} packets");
}
