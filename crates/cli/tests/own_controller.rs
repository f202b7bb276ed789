//! A controller of an application: it is one type and one entry of a table, and scenarios, the benchmark
//! and `send` run it as they run Tidegate's.

#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::process::{Command, ExitCode};

use program::{Program, ProgramResult, Scratch, load, text};
use serde::Deserialize;
use tidegate_core::control::{
    Algorithm, Change, Context, Outcome, RateControl, RateController, Report, Start, Summary,
    Target,
};
use tidegate_core::controller::settings::positive_rate;
use tidegate_core::controller::{Configuration, Entry};
use tidegate_core::path::Path;
use tidegate_core::units::Rate;

/// Five percent more with each report, half with a loss.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "{ first = \"500kb/s\" }")]
struct StepConfig {
    #[serde(deserialize_with = "positive_rate")]
    first: Rate,
}

impl Default for StepConfig {
    fn default() -> Self {
        Self {
            first: Rate::kbps(400),
        }
    }
}

impl Configuration for StepConfig {
    const NAME: &'static str = "step";
    const ABOUT: &'static str = "five percent more with each report, half with a loss";
}

impl Algorithm for StepConfig {
    fn start(&self, start: &Start) -> RateControl {
        let step = Step {
            rate: self.first,
            ceiling: start.demand.ceiling.min(Rate::kbps(100_000)),
        };
        RateControl::new(step, start)
    }
}

#[derive(Debug)]
struct Step {
    rate: Rate,
    ceiling: Rate,
}

impl RateController for Step {
    fn on_report(&mut self, _cx: &mut Context<'_>, report: &Report<'_>, _: &mut Path) {
        let mut outcomes = report.packets.iter().map(|packet| packet.outcome);
        self.rate = if outcomes.any(|outcome| outcome == Outcome::Lost) {
            self.rate.scale(1, 2).max(Rate::kbps(50))
        } else {
            self.rate.scale(21, 20).min(self.ceiling)
        };
    }

    fn on_change(&mut self, _cx: &mut Context<'_>, _change: &Change, _: &mut Path) {}

    fn target(&self) -> Target {
        Target::of(self.rate)
    }

    fn summary(&self, _: &Path) -> Summary {
        Summary::new(self.rate)
    }
}

/// The program with one controller more. The other tests start this test program with the arguments in
/// the environment.
#[test]
fn program_with_a_controller_of_its_own() {
    let Ok(arguments) = env::var(ARGUMENTS) else {
        return;
    };
    let words = arguments.split_whitespace().map(OsString::from);
    let controllers = tidegate_sim::controllers().with(Entry::of::<StepConfig>());
    let given = [OsString::from("tidegate")].into_iter().chain(words);
    assert_eq!(tidegate::run(given, &controllers), ExitCode::SUCCESS);
}

fn run(arguments: &str) -> ProgramResult {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "program_with_a_controller_of_its_own",
            "--nocapture",
        ])
        .env(ARGUMENTS, arguments);
    Program::start(&mut command).wait()
}

#[test]
fn a_scenario_runs_it() {
    let scratch = Scratch::new("own-scenario");
    let [file, out] = ["step.toml", "run"].map(|name| scratch.path(name));
    fs::write(&file, SCENARIO).unwrap();
    let (file, out) = (text(&file), text(&out));
    let ended = run(&format!("sim run {file} --no-report --out {out}"));
    ended.succeeded();
    let run_folder = load(&scratch.path("run"));
    assert_eq!(run_folder.flows[0].info.control, "step");

    let unknown = SCENARIO.replace("first", "last");
    fs::write(scratch.path("step.toml"), unknown).unwrap();
    let ended = run(&format!("sim run {file} --no-report --out {out}"));
    let error =
        "step.toml:14: flow \"a\": control: step: last: no such key; the keys here are first";
    assert!(ended.said.contains(error), "{}", ended.said);
}

#[test]
fn the_benchmark_runs_it() {
    let ended = run("sim bench step --only geo --seeds 1 --json");
    ended.succeeded();
    assert!(
        ended.output.contains("\"control\":\"step\""),
        "{}",
        ended.output
    );
}

#[test]
fn a_stream_is_sent_with_it() {
    let scratch = Scratch::new("own-stream");
    let mut receiver = Program::tidegate("recv --listen 127.0.0.1:0");
    let port = receiver.number("waiting for a stream at port ");
    let sent = text(&scratch.path("sent")).to_owned();
    let options = "--size 320x180 --preset ultrafast --control step --duration 2s";
    let ended = run(&format!(
        "send --to 127.0.0.1:{port} {options} --run {sent}"
    ));
    receiver.wait().succeeded();
    ended.succeeded();
    let run_folder = load(&scratch.path("sent"));
    let flow = &run_folder.flows[0];
    assert_eq!(flow.info.control, "step");
    assert_eq!(flow.sent.len(), 60, "{}", ended.said);

    let ended = run("send --to 127.0.0.1:9 --control stop");
    let choice = "choose tfrc, rap, rcs, tide, fixed:2Mb/s or step";
    assert!(ended.said.contains(choice), "{}", ended.said);
}

const ARGUMENTS: &str = "TIDEGATE_TEST_ARGUMENTS";

const SCENARIO: &str = r#"name = "step"
duration = "20s"
expect = ["a.rate_bps >= 700000", "a.loss >= 0"]
[[link]]
name = "up"
rate = "2Mb/s"
delay = "20ms"
queue = { droptail = "30kB" }
[[link]]
name = "down"
delay = "20ms"
[[flow]]
name = "a"
control = { step = { first = "300kb/s" } }
path = ["up"]
back = ["down"]
bulk = { packet = "1000B" }
"#;
