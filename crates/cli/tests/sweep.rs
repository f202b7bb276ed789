//! `tidegate sim sweep`, by the command line.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use command::{folder, text, tidegate};
use program::Program;
use serde_json::Value;
use tidegate_record::{RunReader, summarise};
use tidegate_sim::scenario::Scenario;

mod command;
#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

#[test]
fn a_resumed_sweep_equals_a_complete_one_for_any_number_of_threads() {
    let dir = folder("sweep-resume");
    write(&dir, &short("4s", "", SWEEP));
    let whole = sweep(&dir, &["--jobs", "1", "--out", "one"]);
    assert!(whole.status.success(), "{}", text(&whole.stderr));
    let [results, summary] = files(&dir.join("one"));
    assert!(
        sweep(&dir, &["--jobs", "2", "--out", "two"])
            .status
            .success()
    );
    assert_eq!(files(&dir.join("two")), [results.clone(), summary.clone()]);

    // Three points, two seeds; two flows, two links and an expectation each.
    let lines = String::from_utf8(results.clone()).unwrap();
    assert_eq!(lines.lines().count(), 1 + 6 * 5);
    // Killed in the third row of the third run, with rows of one later run already written.
    let head: Vec<&str> = lines.split_inclusive('\n').collect();
    let early = head[1 + 5 * 5..].concat();
    let cut = [
        head[0],
        &early,
        &head[1..1 + 2 * 5 + 2].concat(),
        &head[13][..20],
    ]
    .concat();
    fs::write(dir.join("two/results.csv"), cut).unwrap();
    fs::remove_file(dir.join("two/summary.csv")).unwrap();
    let resumed = sweep(&dir, &["--out", "two"]);
    assert!(text(&resumed.stderr).contains("two has 3 of 6 runs, 3 remaining"));
    assert_eq!(files(&dir.join("two")), [results.clone(), summary.clone()]);
    assert_eq!(
        text(&resumed.stdout).replace("two", "one"),
        text(&whole.stdout)
    );

    let again = sweep(&dir, &["--out", "two"]);
    assert!(text(&again.stderr).contains("two has 6 of 6 runs, 0 remaining"));
    assert_eq!(files(&dir.join("two")), [results, summary]);
}

#[test]
fn a_run_of_a_sweep_equals_a_single_run() {
    let dir = folder("sweep-numbers");
    write(
        &dir,
        &short("4s", "", "seeds = [3]\n\"link.uplink.delay\" = [\"35ms\"]"),
    );
    assert!(sweep(&dir, &["--out", "sweep"]).status.success());
    let mut table = csv::Reader::from_path(dir.join("sweep/results.csv")).unwrap();
    let head = table.headers().unwrap().clone();
    let row = table.records().next().unwrap().unwrap();
    let cell = |name: &str| {
        let place = head.iter().position(|column| column == name);
        &row[place.unwrap_or_else(|| panic!("{name} in {head:?}"))]
    };
    assert_eq!(
        (cell("kind"), cell("name"), cell("seed")),
        ("flow", "tidegate", "3")
    );

    let plain = short("4s", "", "seeds = 2").replacen("20ms", "35ms", 1);
    write(&dir, &plain);
    let args = [
        "sim",
        "run",
        "s.toml",
        "--seed",
        "3",
        "--json",
        "--no-report",
        "--out",
        "run",
    ];
    let out = tidegate(&args, &dir);
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    let flow = &json["flows"][0];
    for (column, number) in [
        ("rate_bps", &flow["rate_bps"]),
        ("delay_ms.p99", &flow["delay_ms"]["p99"]),
        ("packet_delay_ms.mean", &flow["packet_delay_ms"]["mean"]),
        ("queue_ms.p95", &flow["queue_ms"]["p95"]),
        ("psnr_y_db", &flow["psnr_y_db"]),
        ("ssim", &flow["ssim"]),
        ("frames.on_time", &flow["frames"]["on_time"]),
    ] {
        let found: f64 = cell(column).parse().unwrap();
        assert_eq!(Some(found), number.as_f64(), "{column}");
    }
    // Metrics computed in memory equal those computed from the folder.
    let run = RunReader::load(dir.join("run")).unwrap();
    let scenario = Scenario::load(&dir.join("s.toml"), &tidegate_sim::controllers()).unwrap();
    assert_eq!(Some(summarise(&run, &scenario.expect)), run.summary);
}

/// One flow has a packet log, two have none. The measured interval is shorter than the run.
#[test]
fn rates_are_equal_with_and_without_a_packet_log() {
    let dir = folder("sweep-rates");
    let flow = r#"[[flow]]
name = "u"
path = ["up"]
back = ["down"]
start = "6s"
udp = { rate = "1Mb/s" }
"#;
    let link = |name: &str| format!("[[link]]\nname = \"{name}\"\ndelay = \"20ms\"\n");
    let head = "name = \"rates\"\nduration = \"10s\"\nmeasure = [\"5s\", \"9s\"]\n";
    let sweep_of = "[sweep]\n\"flow.u.count\" = [1, 2]\n";
    let links = [link("up"), link("down")].concat();
    write(&dir, &[head, &links, flow, sweep_of].concat());
    let out = sweep(&dir, &["--out", "s"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let mut table = csv::Reader::from_path(dir.join("s/results.csv")).unwrap();
    let head = table.headers().unwrap().clone();
    let place = |name: &str| head.iter().position(|column| column == name).unwrap();
    let flows = table.records().map(Result::unwrap);
    let flows = flows.filter(|row| &row[place("kind")] == "flow");
    let rates: Vec<f64> = flows
        .map(|row| row[place("rate_bps")].parse().unwrap())
        .collect();
    assert_eq!(rates.len(), 2, "one flow, and the mean of two");
    for rate in rates {
        assert!((rate / 1e6 - 1.0).abs() < 0.01, "{rate}");
    }
}

#[test]
fn errors_of_a_sweep_are_reported_before_the_first_run() {
    let dir = folder("sweep-faults");
    for (table, line, words) in [
        (
            "\"link.uplink.dealy\" = [\"1ms\"]",
            26,
            "did you mean \"delay\"?",
        ),
        (
            "seeds = 2\n\"flow.camera.count\" = [1]",
            27,
            "use \"tidegate\"",
        ),
        (
            "seeds = 2\n\"link.uplink.delay\" = [\"1ms\", \"two\"]",
            27,
            "delay: \"two\"",
        ),
    ] {
        write(&dir, &short("4s", "", table));
        let out = sweep(&dir, &[]);
        assert_eq!(out.status.code(), Some(2));
        let error = text(&out.stderr);
        assert!(
            error.contains(&format!("s.toml:{line}: sweep: ")),
            "{error}"
        );
        assert!(error.contains(words), "{error}");
        assert!(!dir.join("runs").exists());
    }
    write(&dir, short("4s", "", "").split("[sweep]").next().unwrap());
    assert!(text(&sweep(&dir, &[]).stderr).contains("sweep: is missing; add"));
}

#[test]
fn another_sweep_is_overwritten_with_fresh_only_and_other_files_never() {
    let dir = folder("sweep-other");
    write(&dir, &short("2s", "", "seeds = 1"));
    assert!(sweep(&dir, &[]).status.success());
    let results = dir.join("runs/short-sweep/results.csv");
    let first = fs::read(&results).unwrap();
    write(&dir, &short("3s", "", "seeds = 1"));
    let out = sweep(&dir, &[]);
    assert_eq!(out.status.code(), Some(2));
    assert!(
        text(&out.stderr).contains("another text of the scenario"),
        "{}",
        text(&out.stderr)
    );
    assert!(text(&out.stderr).contains("--fresh"));
    assert_eq!(fs::read(&results).unwrap(), first);
    assert!(sweep(&dir, &["--fresh"]).status.success());
    assert_ne!(fs::read(&results).unwrap(), first);

    fs::create_dir(dir.join("mine")).unwrap();
    fs::write(dir.join("mine/letter"), "dear").unwrap();
    let out = sweep(&dir, &["--fresh", "--out", "mine"]);
    assert!(text(&out.stderr).contains("contains files that are not of a sweep"));
    assert_eq!(fs::read_dir(dir.join("mine")).unwrap().count(), 1);
}

#[test]
fn expectations_are_checked_in_every_run() {
    let dir = folder("sweep-expect");
    let expect = "\"link.uplink.utilisation >= 0\", \"tidegate.delay_ms.p50 <= 60\"";
    let table = "seeds = 2\n\"link.uplink.delay\" = [\"20ms\", \"90ms\"]";
    write(&dir, &short("4s", expect, table));
    let out = sweep(&dir, &["--out", "s"]);
    assert_eq!(out.status.code(), Some(1));
    let said = text(&out.stdout);
    for seed in [1, 2] {
        let with = format!("with link.uplink.delay = 90ms, seed {seed}\n");
        assert!(said.contains(&with), "{said}");
    }
    assert_eq!(said.matches("FAILS").count(), 2, "{said}");

    let out = sweep(&dir, &["--out", "s", "--json"]);
    assert_eq!(out.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["failed"].as_array().unwrap().len(), 2);
    assert_eq!(json["failed"][0]["values"]["link.uplink.delay"], "90ms");
    assert_eq!(json["runs"], 4);
    let summary = json["summary"].as_array().unwrap();
    let is_it = |row: &&Value| row["point"] == 2 && row["metric"] == "holds";
    let holds: Vec<&Value> = summary
        .iter()
        .filter(is_it)
        .map(|row| &row["mean"])
        .collect();
    assert_eq!(holds, [1.0, 0.0]);
    let rate = summary
        .iter()
        .find(|row| row["metric"] == "receive_bps")
        .unwrap();
    assert_eq!(rate["n"], 2);
    assert!(rate["sd"].is_number());
}

#[test]
fn an_interrupted_sweep_can_be_continued() {
    let dir = folder("sweep-interrupted");
    // The first run to finish takes seconds, the others take minutes.
    let table = "\"duration\" = [\"24h\", \"23h\", \"3s\"]";
    write(&dir, &short("4s", "", table));
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["sim", "sweep", "s.toml", "--jobs", "3", "--out", "s"]);
    let mut program = Program::start(command.current_dir(&dir));
    program.wait_for_line("1 of 3 runs");
    program.interrupt();
    let ended = program.wait();
    assert_eq!(ended.status.code(), Some(130), "{}", ended.said);
    let wanted = "interrupted after 1 of 3 runs; run the same command again to continue";
    assert!(ended.said.contains(wanted), "{}", ended.said);
    let kept = fs::read_to_string(dir.join("s/results.csv")).unwrap();
    assert!(
        kept.lines()
            .nth(1)
            .unwrap()
            .starts_with("3,3s,1,flow,tidegate,"),
        "{kept}"
    );
}

#[test]
fn merged_shards_equal_one_sweep() {
    let dir = folder("sweep-shards");
    write(&dir, &short("4s", "", SWEEP));
    let whole = sweep(&dir, &["--out", "one"]);
    // Six runs in four shards: two of two runs, two of one.
    for shard in ["0/4", "1/4", "3/4"] {
        let name = shard.replace('/', "-of-");
        let out = format!("all/shard-{name}");
        let done = sweep(&dir, &["--shard", shard, "--jobs", "1", "--out", &out]);
        assert!(done.status.success(), "{}", text(&done.stderr));
    }
    let early = merge(&dir, &["--out", "all"]);
    assert_eq!(early.status.code(), Some(1));
    let missing = "1 run of 6 missing, of these shards:\n  --shard 2/4\n";
    assert!(
        text(&early.stderr).contains(missing),
        "{}",
        text(&early.stderr)
    );
    let last = sweep(&dir, &["--shard", "2/4", "--out", "elsewhere"]);
    assert!(last.status.success(), "{}", text(&last.stderr));

    let folders: Vec<String> = [0, 1, 3].map(|i| format!("all/shard-{i}-of-4")).into();
    let mut args = vec!["elsewhere"];
    args.extend(folders.iter().map(String::as_str));
    let merged = merge(
        &dir,
        &[&args[..], &["--out", "new", "--verify", "2"]].concat(),
    );
    assert!(merged.status.success(), "{}", text(&merged.stderr));
    assert!(text(&merged.stderr).contains("2 runs repeated with equal results"));
    assert_eq!(files(&dir.join("new")), files(&dir.join("one")));
    assert_eq!(
        text(&merged.stdout).replace("new", "one"),
        text(&whole.stdout)
    );

    // The early merge has kept what it found; the sweep runs the rest.
    let rest = sweep(&dir, &["--out", "all"]);
    assert!(text(&rest.stderr).contains("all has 5 of 6 runs, 1 remaining"));
    assert_eq!(files(&dir.join("all")), files(&dir.join("one")));
}

#[test]
fn damaged_and_foreign_shards_are_refused() {
    let dir = folder("sweep-shards-bad");
    write(&dir, &short("4s", "", SWEEP));
    let none = merge(&dir, &["--out", "all"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none.stderr).contains("cannot read all: give the folders of the shards"));
    let other = merge(&dir, &["--out", "other", "."]);
    assert_eq!(other.status.code(), Some(2));
    assert!(text(&other.stderr).contains(". is not the folder of a shard"));
    for shard in ["0/2", "1/2"] {
        let out = format!("all/shard-{}", shard.replace('/', "-of-"));
        assert!(
            sweep(&dir, &["--shard", shard, "--out", &out])
                .status
                .success()
        );
    }
    let other = sweep(&dir, &["--shard", "0/3", "--out", "all/shard-0-of-2"]);
    assert!(
        text(&other.stderr).contains("a sweep with other shards"),
        "{}",
        text(&other.stderr)
    );

    // A digit of a result changes: the repeated runs show it.
    let results = dir.join("all/shard-0-of-2/results.csv");
    let good = fs::read_to_string(&results).unwrap();
    let (rows, last) = good
        .trim_end()
        .rsplit_once("tidegate.frames.made >= 60,1")
        .unwrap();
    let digit = last.chars().nth_back(2).unwrap();
    assert!(digit.is_ascii_digit(), "{last}");
    let changed = if digit == '9' { '8' } else { '9' };
    let at = last.len() - 3;
    let last = format!("{}{changed}{}", &last[..at], &last[at + 1..]);
    fs::write(
        &results,
        format!("{rows}tidegate.frames.made >= 60,1{last}\n"),
    )
    .unwrap();
    let differs = merge(&dir, &["--out", "all", "--verify", "6"]);
    assert_eq!(differs.status.code(), Some(1), "{}", text(&differs.stderr));
    let wanted = "has another result on this machine than in its shard";
    assert!(
        text(&differs.stderr).contains(wanted),
        "{}",
        text(&differs.stderr)
    );

    // The same runs twice, once damaged.
    let twice = sweep(&dir, &["--shard", "0/1", "--out", "all/shard-0-of-1"]);
    assert!(twice.status.success());
    let differs = merge(&dir, &["--out", "all", "--fresh"]);
    assert_eq!(differs.status.code(), Some(2));
    assert!(text(&differs.stderr).contains("differ from those of another folder"));

    write(&dir, &short("5s", "", SWEEP));
    let other = merge(&dir, &["--out", "new", "all/shard-1-of-2"]);
    assert!(text(&other.stderr).contains("another text of the scenario"));
}

#[test]
fn the_list_has_every_run_once() {
    let dir = folder("sweep-list");
    write(&dir, &short("4s", "", SWEEP));
    let list = sweep(&dir, &["--list"]);
    assert!(list.status.success(), "{}", text(&list.stderr));
    let mut table = csv::Reader::from_reader(list.stdout.as_slice());
    let head = table.headers().unwrap().clone();
    assert_eq!(
        head.iter().collect::<Vec<_>>(),
        ["run", "point", "link.uplink.rate", "seed", "flow_seconds"]
    );
    let rows: Vec<_> = table.records().map(Result::unwrap).collect();
    let cells = |row: &csv::StringRecord| row.iter().take(4).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rows.len(), 6);
    assert_eq!(cells(&rows[3]), ["3", "2", "2Mb/s", "2"]);
    // A flow and its baseline for 4 s.
    assert_eq!(&rows[3][4], "8");
    let part = sweep(&dir, &["--list", "--json", "--shard", "1/4"]);
    let runs: Vec<Value> = text(&part.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let numbers: Vec<_> = runs
        .iter()
        .map(|run| run["run"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, [1, 5]);
    assert!(!dir.join("runs").exists());
}

/// Two flows of modelled video, the second a baseline. The sweep begins in line 26.
fn short(duration: &str, expect: &str, table: &str) -> String {
    let expect = if expect.is_empty() {
        "\"tidegate.frames.made >= 60\""
    } else {
        expect
    };
    format!(
        r#"name = "short"
duration = "{duration}"
expect = [{expect}]
[[link]]
name = "uplink"
rate = "2Mb/s"
delay = "20ms"
loss = 0.01
queue = {{ droptail = "50kB" }}
[[link]]
name = "downlink"
delay = "20ms"
[[flow]]
name = "tidegate"
path = ["uplink"]
back = ["downlink"]
control = "tfrc"
delay_bound = "400ms"
[flow.video]
encoder = "model"
[[baseline]]
name = "fixed"
of = "tidegate"
rate = "1Mb/s"
[sweep]
{table}
"#
    )
}

const SWEEP: &str = "seeds = [7, 2]\n\"link.uplink.rate\" = [\"1Mb/s\", \"2Mb/s\", \"3Mb/s\"]";

fn write(dir: &Path, scenario: &str) {
    fs::write(dir.join("s.toml"), scenario).unwrap();
}

fn sweep(dir: &Path, args: &[&str]) -> Output {
    tidegate(&[&["sim", "sweep", "s.toml"], args].concat(), dir)
}

fn merge(dir: &Path, args: &[&str]) -> Output {
    tidegate(&[&["sim", "merge", "s.toml"], args].concat(), dir)
}

fn files(dir: &Path) -> [Vec<u8>; 2] {
    ["results.csv", "summary.csv"].map(|file| fs::read(dir.join(file)).unwrap())
}
