//! Exit codes: each class of failure has its own.

mod command;

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::Command;

use command::{folder, text, tidegate};

const SCENARIO: &str = r#"name = "short"
duration = "2s"
expect = ["bulk.rate_bps >= 1000"]

[[link]]
name = "up"
rate = "1Mb/s"
delay = "20ms"
queue = { droptail = "20 packets" }

[[link]]
name = "down"
delay = "20ms"

[[flow]]
name = "bulk"
path = ["up"]
back = ["down"]
control = "tfrc"
bulk = { packet = "1200B" }
"#;

fn ends_with(line: &str, dir: &Path, code: i32, words: &str) {
    let ran = tidegate(&line.split(' ').collect::<Vec<_>>(), dir);
    let said = text(&ran.stderr) + &text(&ran.stdout);
    assert_eq!(ran.status.code(), Some(code), "{line}: {said}");
    assert!(said.contains(words), "{line}: {said}");
}

#[test]
fn expectations_input_and_environment_have_their_own_codes() {
    let dir = folder("exit-codes");
    fs::write(dir.join("holds.toml"), SCENARIO).unwrap();
    let fails = SCENARIO.replace(">= 1000", "<= 1000");
    fs::write(dir.join("fails.toml"), fails).unwrap();
    fs::write(dir.join("wrong.toml"), "name = 3").unwrap();
    fs::create_dir(dir.join("folder")).unwrap();
    fs::write(dir.join("folder/letter"), "dear").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp = udp.local_addr().unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp_port = tcp.local_addr().unwrap();
    let refused = {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap();
        closed.local_addr().unwrap()
    };
    let run = "sim run --no-report --out run";
    for (line, code, words) in [
        (format!("{run} holds.toml"), 0, "holds"),
        (format!("{run} fails.toml"), 1, "FAILS"),
        (format!("{run} wrong.toml"), 2, "wrong.toml:1"),
        (format!("{run} missing.toml"), 2, "missing.toml"),
        (
            "sim run --no-report --out folder holds.toml".into(),
            2,
            "will not be overwritten",
        ),
        (
            "send --to 127.0.0.1:9 --input missing.mp4".into(),
            2,
            "missing.mp4",
        ),
        (
            "send --to 127.0.0.1:9 --input /dev/video987".into(),
            3,
            "/dev/video987",
        ),
        ("send --to 127.0.0.1".into(), 2, "has no port"),
        ("send --to 192.0.2.1:9".into(), 2, "--key-file"),
        (
            "recv --listen 5004 --sdp x".into(),
            2,
            "cannot be used with",
        ),
        ("recv --listen 127.0.0.1:0 --out folder".into(), 2, "folder"),
        (
            "recv --listen 127.0.0.1:0 --key-file missing".into(),
            2,
            "missing",
        ),
        (
            format!("recv --listen {udp}"),
            3,
            "another program uses the port",
        ),
        (
            format!("recv --transport tcp --listen {tcp_port}"),
            3,
            "cannot listen at",
        ),
        (
            format!("send --transport tcp --to {refused}"),
            3,
            "connection refused",
        ),
        (
            "recv --listen 127.0.0.1:0 --duration 10ms".into(),
            3,
            "no packet of this stream",
        ),
    ] {
        ends_with(&line, &dir, code, words);
    }
}

/// A folder in which nothing can be created: the folder of the processes, also for root.
#[test]
fn an_output_without_space_or_permission_is_an_error_of_the_environment() {
    let dir = folder("exit-codes-output");
    ends_with(
        "recv --listen 127.0.0.1:0 --run /proc/run",
        &dir,
        2,
        "/proc/run",
    );
    fs::write(dir.join("holds.toml"), SCENARIO).unwrap();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["sim", "run", "--no-report", "--json", "holds.toml"])
        .current_dir(&dir)
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(3), "{}", text(&ran.stderr));
}

#[test]
fn the_help_of_each_command_has_the_codes() {
    let dir = folder("exit-codes-help");
    for command in [
        "--help",
        "send --help",
        "recv --help",
        "lab run --help",
        "sim sweep --help",
    ] {
        ends_with(
            command,
            &dir,
            0,
            "Exit codes: 0 success, 1 an expectation fails, 2 invalid",
        );
    }
}

#[test]
fn all_options_of_papers_are_documented() {
    let dir = folder("exit-codes-papers");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/command-line.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, papers) = page.split_once("\n## Papers\n").unwrap();
    for verb in ["list", "run", "law"] {
        let help = text(&tidegate(&["papers", verb, "--help"], &dir).stdout);
        let options = help
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("--"));
        let names: Vec<&str> = options
            .filter_map(|option| option.split([' ', '.']).next())
            .collect();
        assert!(!names.is_empty(), "{verb}: {help}");
        for name in names {
            let is_named = [" ", "`"].map(|end| papers.contains(&format!("`--{name}{end}")));
            assert!(is_named.contains(&true), "{verb}: --{name}");
        }
    }
}
