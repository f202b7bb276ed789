//! A lab with more hosts than a machine word has bits, ended by Ctrl-C.

mod skip;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use tidegate_record::RunReader;

/// Eighty hosts. The last flow would start long after the end of the test.
const WIDE: &str = r#"name = "wide"
duration = "300s"
[[link]]
name = "there"
rate = "10Mb/s"
delay = "10ms"
queue = { droptail = "60kB" }
[[link]]
name = "back"
delay = "10ms"
[[flow]]
name = "trickle"
count = 38
path = ["there"]
back = ["back"]
udp = { rate = "60kb/s" }
[[flow]]
name = "transfer"
path = ["there"]
back = ["back"]
tcp = { kind = "cubic" }
start = "280s"
[[flow]]
name = "late"
path = ["there"]
back = ["back"]
udp = { rate = "60kb/s" }
start = "280s"
"#;

#[test]
fn ctrl_c_ends_a_wide_lab_and_keeps_its_results() {
    if skip::is_without_lab("ctrl_c_ends_a_wide_lab_and_keeps_its_results") {
        return;
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab-wide");
    fs::create_dir_all(&dir).unwrap();
    let (scenario, folder) = (dir.join("wide.toml"), dir.join("run"));
    fs::write(&scenario, WIDE).unwrap();
    let mut lab = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["lab", "run", "--no-report", "--json", "--out"])
        .args([&folder, &scenario])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(lab.stderr.take().unwrap()).lines();
    let began = said.find(|line| {
        line.as_ref()
            .is_ok_and(|line| line.contains("in real time"))
    });
    assert!(began.is_some(), "the lab ended before its start");
    let pid = libc::pid_t::try_from(lab.id()).unwrap();
    // SAFETY: takes numbers; the child has not been waited for, so the id is its own.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
    let rest: Vec<String> = said.map_while(Result::ok).collect();
    let status = lab.wait().unwrap();
    assert_eq!(status.code(), Some(130), "{rest:?}");
    let run = RunReader::load(&folder).unwrap();
    assert_eq!(run.flows.len(), 40);
    // The run ended before the last two flows started at 280 s.
    let summary = run.summary.as_ref().unwrap();
    assert!(summary.flows[38..].iter().all(|f| f.rate_bps.is_none()));
    let notes = &run.manifest.notes;
    assert!(
        notes.iter().any(|note| note.starts_with("interrupted")),
        "{notes:?}"
    );
}
