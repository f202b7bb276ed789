//! Flows of the Coordination Protocol in the lab.

mod calm;
mod skip;

use std::path::Path;
use std::process::Command;

use calm::judged;
use tidegate_record::RunReader;

/// Two flowshares beside two TCP flows.
const SCENARIO: &str = r#"name = "sites"
duration = "12s"
measure = ["4s", "12s"]
[[link]]
name = "there"
rate = "4Mb/s"
delay = "20ms"
loss = 0.01
queue = { droptail = "20 packets" }
[[link]]
name = "back"
delay = "20ms"
[[aggregation]]
name = "points"
control = "tfrc"
[[flow]]
name = "cp"
count = 2
path = ["there"]
back = ["back"]
access = { delay = "1ms" }
exit = { delay = "1ms" }
cp = { points = "points", shares = 2, packet = "1000B" }
[[flow]]
name = "tcp"
count = 2
path = ["there"]
back = ["back"]
tcp = { kind = "linux-reno", packet = "1000B" }
"#;

/// Endpoints behind gateways follow the available bandwidth: without reports they would send a packet
/// per second.
#[test]
fn flowshares_get_a_part_beside_kernel_tcp() {
    let test = "flowshares_get_a_part_beside_kernel_tcp";
    if !skip::is_without_lab(test) {
        judged(test, share);
    }
}

fn share() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab-cp");
    std::fs::create_dir_all(&dir).unwrap();
    let (scenario, folder) = (dir.join("sites.toml"), dir.join("run"));
    std::fs::write(&scenario, SCENARIO).unwrap();
    let lab = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["lab", "run", "--no-report", "--out"])
        .args([&folder, &scenario])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&lab.stderr);
    assert!(lab.status.success(), "{said}");
    let run = RunReader::load(&folder).unwrap();
    let summary = run.summary.as_ref().unwrap();
    let rates = summary.flows.iter().map(|flow| flow.receive_bps.unwrap());
    let rates: Vec<f64> = rates.collect();
    let [cp, tcp] = [&rates[..2], &rates[2..]].map(|rates| rates.iter().sum::<f64>());
    assert!((3e6..4e6).contains(&(cp + tcp)), "{rates:?}");
    assert!((0.3..0.7).contains(&(cp / (cp + tcp))), "{rates:?}");
    // Both flows have the same part.
    assert!((0.8..1.25).contains(&(rates[0] / rates[1])), "{rates:?}");
}
