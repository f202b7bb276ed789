//! Verbs that run scenarios, by the command line.

use core::time::Duration;
use std::fs;
use std::path::Path;
use std::process::Command;

use calm::judged;
use command::{folder, text, tidegate};
use program::Program;

mod calm;
mod command;
#[expect(dead_code, reason = "the other tests use the rest")]
mod program;
mod skip;

#[test]
fn json_has_fixed_keys_and_the_exit_code_depends_on_expectations() {
    let dir = folder("scenarios-json");
    let scenario = dir.join("short.toml");
    std::fs::write(&scenario, short("\"tidegate.on_time_of_all >= 0.9\"")).unwrap();
    let out = tidegate(
        &["sim", "run", path(&scenario), "--json", "--no-report"],
        &dir,
    );
    assert!(out.status.success(), "{}", text(&out.stderr));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let top = ["scenario", "seed", "flows", "links", "expect", "kept_up"];
    assert_eq!(keys(&json), sorted(top));
    let flow = &json["flows"][0];
    let expected = [
        "name",
        "class",
        "control",
        "rate_bps",
        "receive_bps",
        "loss_event_rate",
        "completion_s",
        "rtt_ms",
        "packet_delay_ms",
        "loss",
        "delay_ms",
        "queue_ms",
        "frames",
        "psnr_y_db",
        "ssim",
        "freezes",
    ];
    assert_eq!(keys(flow), sorted(expected));
    assert_eq!(keys(&flow["delay_ms"]), ["max", "p50", "p95", "p99"]);
    assert_eq!(keys(&flow["queue_ms"]), ["mean", "p95"]);
    let frames = ["made", "sent", "on_time", "savable", "late", "dropped"];
    assert_eq!(keys(&flow["frames"]), sorted(frames));
    let link = [
        "name",
        "utilisation",
        "drops",
        "drops_queue",
        "drops_random",
        "drops_outage",
        "marks",
        "queue_p95_ms",
    ];
    assert_eq!(keys(&json["links"][0]), sorted(link));
    assert_eq!(keys(&json["expect"][0]), ["holds", "measured", "text"]);
    assert_eq!(flow["frames"]["made"], 120);

    std::fs::write(&scenario, short("\"tidegate.delay_ms.p50 <= 1\"")).unwrap();
    let out = tidegate(&["sim", "run", path(&scenario), "--no-report"], &dir);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stdout).contains("FAILS  tidegate.delay_ms.p50 <= 1"));
}

#[test]
fn validate_compares_with_ns2() {
    let dir = folder("scenarios-validate");
    let args = [
        "sim", "validate", "--quick", "--seeds", "5", "--json", "--out", "drawn",
    ];
    let out = tidegate(&args, &dir);
    let stdout = text(&out.stdout);
    assert!(out.status.success(), "{stdout}{}", text(&out.stderr));
    let rows: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let expected = [
        "what",
        "theirs",
        "ours",
        "spread",
        "our_spread",
        "n",
        "our_n",
        "allowed",
        "holds",
        "excuse",
    ];
    assert_eq!(keys(&rows[0]), sorted(expected));
    let drawing = fs::read_to_string(dir.join("drawn/satellite.svg")).unwrap();
    assert!(drawing.contains(">ns-2<") && drawing.contains(">ours<"));
    assert!(dir.join("drawn/satellite.png").exists());
    assert!(
        rows.as_array().is_some_and(|rows| rows.len() >= 20),
        "{stdout}"
    );
    let out = tidegate(&["sim", "validate", "--only", "queue reno"], &dir);
    assert!(text(&out.stdout).contains("3 rows, 0 do not hold"));
    let out = tidegate(&["sim", "validate", "--only", "nothing"], &dir);
    assert!(text(&out.stderr).contains("no case matches"));
}

#[test]
fn the_same_seed_yields_identical_files() {
    let dir = folder("scenarios-same");
    let scenario = dir.join("short.toml");
    std::fs::write(&scenario, short("")).unwrap();
    let run = |out: &str, seed: &str| {
        let args = [
            "sim",
            "run",
            path(&scenario),
            "--no-report",
            "--seed",
            seed,
            "--out",
            out,
        ];
        assert!(tidegate(&args, &dir).status.success());
        let read = |file: &str| std::fs::read(dir.join(out).join(file)).unwrap();
        [
            read("events.jsonl"),
            read("flows/tidegate/packets.csv"),
            read("summary.json"),
        ]
    };
    let first = run("a", "7");
    assert_eq!(first, run("b", "7"));
    assert_ne!(first, run("c", "8"));
}

/// 10¹³ packets, which exceed any memory, are rejected before the start.
#[test]
fn a_flood_is_rejected_before_the_start() {
    let dir = folder("scenarios-flood");
    let scenario = dir.join("flood.toml");
    let flood = "name = \"flood\"\nduration = \"24h\"\n[[link]]\nname = \"l\"\n[[flow]]\n\
                 name = \"flood\"\npath = [\"l\"]\nback = [\"l\"]\nudp = { rate = \"1Tb/s\" }\n";
    std::fs::write(&scenario, flood).unwrap();
    let out = tidegate(&["sim", "run", path(&scenario), "--out", "run"], &dir);
    let error = text(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{error}");
    assert!(
        error.contains("the flow \"flood\" sends about 10800000 million packets"),
        "{error}"
    );
    assert!(error.contains("or set count = 2"), "{error}");
    assert!(!dir.join("run").exists());
}

#[test]
fn invalid_scenarios_are_reported_with_file_line_and_fix() {
    let dir = folder("scenarios-wrong");
    let scenario = dir.join("wrong.toml");
    for (change, line, words) in [
        (
            ("delay = \"20ms\"", "dealy = \"20ms\""),
            7,
            "did you mean \"delay\"",
        ),
        (
            ("rate = \"2Mb/s\"", "rate = \"2 furlongs\""),
            6,
            "2 furlongs",
        ),
        (("path = [\"uplink\"]", "path = [\"uphill\"]"), 14, "uphill"),
    ] {
        std::fs::write(&scenario, short("").replacen(change.0, change.1, 1)).unwrap();
        let out = tidegate(&["sim", "run", path(&scenario)], &dir);
        assert_eq!(out.status.code(), Some(2));
        let error = text(&out.stderr);
        assert!(error.contains(&format!("wrong.toml:{line}:")), "{error}");
        assert!(error.contains(words), "{error}");
    }
    // An error in the sweep is an error of the file for every verb.
    let sweep = format!("{}[sweep]\n\"flow.other.start\" = [\"1s\"]\n", short(""));
    std::fs::write(&scenario, &sweep).unwrap();
    let line = sweep.lines().count();
    for verb in [["sim", "run"], ["sim", "sweep"], ["lab", "run"]] {
        let out = tidegate(&[verb[0], verb[1], path(&scenario)], &dir);
        let error = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{error}");
        let wanted = format!("wrong.toml:{line}: sweep: flow.other.start: there is no flow");
        assert!(error.contains(&wanted), "{error}");
    }
    std::fs::write(&scenario, short("\"tidegate.rate_bps >= 1.5Mb/s\"")).unwrap();
    let out = tidegate(&["sim", "run", path(&scenario)], &dir);
    let error = text(&out.stderr);
    assert!(
        error.contains("in bits per second; write 1500000"),
        "{error}"
    );
    let out = tidegate(&["sim", "run", "nowhere.toml"], &dir);
    assert!(text(&out.stderr).contains("nowhere.toml"));
    let out = tidegate(&["demo", "--input", "nowhere.mp4"], &dir);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("nowhere.mp4"));
    let out = tidegate(&["report", "nowhere"], &dir);
    assert!(text(&out.stderr).contains("nowhere"));
}

#[test]
fn the_lab_runs_the_same_scenario_file() {
    let test = "the_lab_runs_the_same_scenario_file";
    if !skip::is_without_lab(test) {
        judged(test, compare_with_lab);
    }
}

fn compare_with_lab() {
    let dir = folder("scenarios-lab");
    let scenario = dir.join("short.toml");
    let expect = r#""tidegate.on_time_of_all >= 0.8", "detour.on_time_of_all >= 0.8""#;
    std::fs::write(&scenario, short(expect) + DETOUR).unwrap();
    let args = ["lab", "run", path(&scenario), "--json", "--out", "run"];
    let out = tidegate(&args, &dir);
    if out.status.code() == Some(75) {
        eprintln!("not judged: the machine was too busy for the emulator");
        return;
    }
    assert!(
        out.status.success(),
        "{} {}",
        text(&out.stdout),
        text(&out.stderr)
    );
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    for flow in 0..2 {
        assert_eq!(json["flows"][flow]["frames"]["made"], 120);
        // Each flow is alone on its own link.
        let link = [0, 2][flow];
        assert!(json["links"][link]["utilisation"].as_f64().unwrap() > 0.1);
    }
    // The metrics have the same meaning in the simulator.
    let args = [
        "sim",
        "run",
        path(&scenario),
        "--json",
        "--no-report",
        "--out",
    ];
    let out = tidegate(&[&args[..], &["sim"]].concat(), &dir);
    let modelled: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    for path in [
        "/rate_bps",
        "/receive_bps",
        "/rtt_ms",
        "/packet_delay_ms/p50",
    ] {
        let of = |json: &serde_json::Value| json["flows"][0].pointer(path).unwrap().as_f64();
        let (lab, sim) = (of(&json).expect(path), of(&modelled).expect(path));
        // A busy machine adds delay, which reduces the rate.
        assert!((0.5..2.0).contains(&(lab / sim)), "{path}: {lab} {sim}");
    }
    let run = tidegate_record::RunReader::load(dir.join("run")).unwrap();
    let packets = run.flows[0].packets.iter();
    let mut took = packets.filter_map(|row| Some(row.arrived?.since(row.sent)));
    assert!(took.all(|delay| delay < Duration::from_secs(4)));
    assert_eq!(run.manifest.timing.len(), 1);
    assert!(dir.join("run/report.html").exists());
}

#[test]
fn an_interrupted_lab_keeps_its_results() {
    if skip::is_without_lab("an_interrupted_lab_keeps_its_results") {
        return;
    }
    let dir = folder("scenarios-interrupted");
    let scenario = dir.join("long.toml");
    let long = short("").replace("\"4s\"", "\"10min\"");
    std::fs::write(&scenario, long).unwrap();
    let run = dir.join("run");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["lab", "run", path(&scenario), "--out", path(&run)]);
    let mut lab = Program::start(&mut command);
    lab.wait_for_line("running tidegate in real time");
    lab.interrupt();
    let ended = lab.wait();
    assert_eq!(ended.status.code(), Some(130), "{}", ended.said);
    assert!(ended.output.contains("interrupted"), "{}", ended.output);
    let run = tidegate_record::RunReader::load(&run).unwrap();
    assert!(run.summary.is_some());
}

/// Four seconds of modelled video.
fn short(expect: &str) -> String {
    format!(
        r#"name = "short"
duration = "4s"
expect = [{expect}]
[[link]]
name = "uplink"
rate = "2Mb/s"
delay = "20ms"
queue = {{ droptail = "50kB" }}
[[link]]
name = "downlink"
delay = "20ms"
[[flow]]
name = "tidegate"
path = ["uplink"]
back = ["downlink"]
control = "tfrc"
video = {{ encoder = "model" }}
delay_bound = "400ms"
"#
    )
}

/// A second flow, with its own link.
const DETOUR: &str = r#"[[link]]
name = "byway"
rate = "1Mb/s"
delay = "5ms"
queue = { droptail = "50kB" }
[[flow]]
name = "detour"
path = ["byway"]
back = ["downlink"]
control = "tfrc"
video = { encoder = "model" }
delay_bound = "400ms"
"#;

fn path(p: &Path) -> &str {
    p.to_str().unwrap()
}

/// Keys in alphabetical order.
fn keys(value: &serde_json::Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    keys.sort_unstable();
    keys
}

fn sorted<const N: usize>(mut names: [&str; N]) -> Vec<&str> {
    names.sort_unstable();
    names.to_vec()
}
