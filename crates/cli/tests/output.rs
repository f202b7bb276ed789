//! Output errors: closed pipes and full disks.

mod command;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use command::{folder, text, tidegate};

/// Short commands of each kind.
const LINES: [&str; 6] = [
    "papers list",
    "sim run run.toml --out run --no-report",
    "papers list --json",
    "papers run itcp/fig3 --out figures",
    "sim sweep sweep.toml --out points",
    "report drawn",
];

const SCENARIO: &str = r#"name = "short"
duration = "4s"

[[link]]
name = "up"
rate = "1Mb/s"
delay = "20ms"
queue = { droptail = "20 packets" }

[[link]]
name = "down"
delay = "20ms"

[[flow]]
name = "tfrc"
path = ["up"]
back = ["down"]
control = "tfrc"
bulk = { packet = "1200B" }
"#;

fn play(line: &str, dir: &Path, out: Stdio, err: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(line.split(' ')).current_dir(dir);
    command.stdout(out).stderr(err).output().unwrap()
}

/// Creates a folder with the files that the commands read.
fn prepared(name: &str) -> PathBuf {
    let dir = folder(name);
    std::fs::write(dir.join("run.toml"), SCENARIO).unwrap();
    let sweep = "\n[sweep]\nseeds = 2\n\"link.up.rate\" = [\"1Mb/s\"]\n";
    std::fs::write(dir.join("sweep.toml"), [SCENARIO, sweep].concat()).unwrap();
    let line = "sim run run.toml --out drawn --no-report --json";
    let ran = tidegate(&line.split(' ').collect::<Vec<_>>(), &dir);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    dir
}

fn full() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_full_disk_is_an_error() {
    let dir = prepared("output-full");
    for line in LINES {
        let ran = play(line, &dir, full(), Stdio::piped());
        let said = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(3), "{line}: {said}");
        assert!(said.contains("standard output"), "{line}: {said}");
        assert!(said.contains("No space left on device"), "{line}: {said}");
        assert!(!said.contains("panicked"), "{line}: {said}");
    }
}

/// As in `tidegate papers list | head -1`: no error and no message.
#[test]
fn a_closed_pipe_is_no_error() {
    let dir = prepared("output-closed");
    for line in LINES {
        let ran = play(line, &dir, closed(), Stdio::piped());
        let said = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(0), "{line}: {said}");
        assert!(!said.contains("standard output"), "{line}: {said}");
    }
}

/// Progress messages are not results.
#[test]
fn write_errors_of_progress_messages_are_ignored() {
    let dir = prepared("output-unheard");
    for line in LINES {
        for err in [full(), closed()] {
            let ran = play(line, &dir, Stdio::piped(), err);
            assert_eq!(ran.status.code(), Some(0), "{line}");
            assert!(!ran.stdout.is_empty(), "{line}");
        }
    }
}

/// Two runs of a scenario at the same time have the same folder unless `--out` names another one.
#[test]
fn a_folder_that_another_process_writes_is_refused() {
    let dir = prepared("output-shared");
    let claimed = tidegate_record::StagedRun::claim(dir.join("run")).unwrap();
    let refused = play(LINES[1], &dir, Stdio::piped(), Stdio::piped());
    let said = text(&refused.stderr);
    assert!(!refused.status.success(), "{said}");
    assert!(said.contains("is writing a run to run: wait"), "{said}");
    drop(claimed);
    let ran = play(LINES[1], &dir, Stdio::piped(), Stdio::piped());
    assert!(ran.status.success(), "{}", text(&ran.stderr));
}
