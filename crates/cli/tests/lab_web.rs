//! Browsers over the kernel's TCP in the lab.

mod calm;
mod skip;

use std::path::Path;
use std::process::Command;

use calm::judged;
use tidegate_record::{Run, RunReader};

/// 60 browsers with pages of two objects of 10 kB and think times of 1 s.
fn scenario(connections: &str) -> String {
    format!(
        r#"name = "browsers"
duration = "6s"
measure = ["2s", "6s"]
[[link]]
name = "there"
rate = "20Mb/s"
delay = "20ms"
queue = {{ droptail = "100 packets" }}
[[link]]
name = "back"
delay = "20ms"
[[flow]]
name = "web"
count = 60
path = ["there"]
back = ["back"]
web = {{ objects = 2, object = "10kB", think = "1s", connections = "{connections}" }}
"#
    )
}

#[test]
fn browsers_load_the_path_as_in_the_simulator() {
    let test = "browsers_load_the_path_as_in_the_simulator";
    if !skip::is_without_lab(test) {
        judged(test, compare);
    }
}

fn compare() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab-web");
    std::fs::create_dir_all(&dir).unwrap();
    for connections in ["page", "object", "at-once"] {
        let file = dir.join(format!("{connections}.toml"));
        std::fs::write(&file, scenario(connections)).unwrap();
        let rate = |world: &str| -> f64 {
            let folder = dir.join(format!("{connections}-{world}"));
            let run = play(world, &file, &folder);
            let summary = run.summary.as_ref().unwrap();
            let rates = summary.flows.iter().map(|flow| flow.receive_bps.unwrap());
            rates.sum()
        };
        let (lab, simulated) = (rate("lab"), rate("sim"));
        // 60 browsers, 20 kB and headers per page, a second and some round trips.
        assert!((5e6..12e6).contains(&lab), "{connections}: {lab}");
        let ratio = lab / simulated;
        assert!(
            (0.7..1.4).contains(&ratio),
            "{connections}: {lab} {simulated}"
        );
    }
}

fn play(world: &str, file: &Path, folder: &Path) -> Run {
    let run = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([world, "run", "--no-report", "--out"])
        .args([folder, file])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    RunReader::load(folder).unwrap()
}
