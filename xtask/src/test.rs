//! Runs all tests, several programs at a time.
//!
//! `cargo test` runs one test program after the other. Many of ours wait for real time, so most of
//! the machine is idle for most of that time. Here one program in real time runs per processor, and
//! beside them one that computes, at the lowest priority. Each has one test thread. Tests in real time
//! then have as many neighbours as within one program of `cargo test`.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Deserialize;

/// Builds the tests of the workspace at `root` and runs them. Returns whether all have passed.
///
/// # Errors
/// The build fails, or a program cannot be started.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let mut programs = build(root)?;
    programs.push(documentation(root));
    // The longest one would otherwise run alone at the end.
    programs.sort_by_key(|program| program.name != LONGEST);
    let (real_time, computing): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(Program::is_in_real_time);
    let queues = Mutex::new([real_time.into(), computing.into()]);
    let results = Mutex::new(Vec::new());
    let lanes = 1 + thread::available_parallelism().map_or(1, usize::from);
    let (queues, done) = (&queues, &results);
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes)
            .map(|lane| scope.spawn(move || serve(lane, queues, done)))
            .collect();
        lanes
            .into_iter()
            .try_for_each(|lane| lane.join().expect("a lane does not panic"))
    })?;
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(summarise(results))
}

/// A test program.
#[derive(Debug)]
struct Program {
    /// Crate and target.
    name: String,
    package: String,
    command: Command,
}

impl Program {
    /// Whether its tests run in real time and compute little.
    fn is_in_real_time(&self) -> bool {
        REAL_TIME.contains(&self.package.as_str())
    }
}

/// Result of a test program.
#[derive(Debug)]
struct Finished {
    name: String,
    output: String,
    success: bool,
    took: Duration,
}

type Queues = Mutex<[VecDeque<Program>; 2]>;

/// Runs programs until none is left. The first lane prefers programs that compute. It runs no program
/// in real time, since the other lanes already run one per processor. They help it at the end.
fn serve(lane: usize, queues: &Queues, results: &Mutex<Vec<Finished>>) -> anyhow::Result<()> {
    loop {
        let next = {
            let mut queues = queues.lock().unwrap_or_else(PoisonError::into_inner);
            let [real_time, computing] = &mut *queues;
            match lane {
                0 => computing.pop_front(),
                _ => real_time.pop_front().or_else(|| computing.pop_front()),
            }
        };
        let Some(mut program) = next else {
            return Ok(());
        };
        let began = Instant::now();
        let output = program
            .command
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {}", program.name))?;
        let finished = Finished {
            output: String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr),
            success: output.status.success(),
            took: began.elapsed(),
            name: program.name,
        };
        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
        // A closed pipe does not end the tests.
        let _ = writeln!(
            io::stdout(),
            "\n   Running {} ({:.1} s)\n{}",
            finished.name,
            finished.took.as_secs_f64(),
            finished.output.trim_end()
        );
        results.push(finished);
    }
}

/// Prints the slowest programs, the tests that could not be judged, the failures and the totals.
fn summarise(mut results: Vec<Finished>) -> bool {
    results.sort_by_key(|finished| std::cmp::Reverse(finished.took));
    println!("\n== the slowest");
    for finished in results.iter().take(SLOWEST) {
        println!("{:8.2} s  {}", finished.took.as_secs_f64(), finished.name);
    }
    let mut totals = Totals::default();
    for finished in &results {
        totals.add(finished);
    }
    totals.print(results.len());
    results.iter().all(|finished| finished.success)
}

#[derive(Debug, Default, PartialEq)]
struct Totals {
    passed: u64,
    failed: u64,
    ignored: u64,
    failures: Vec<String>,
    unjudged: Vec<String>,
}

impl Totals {
    fn add(&mut self, finished: &Finished) {
        let failures = self.failures.len();
        for line in finished.output.lines() {
            if let Some(test) = line
                .strip_prefix("test ")
                .and_then(|rest| rest.strip_suffix(" ... FAILED"))
            {
                self.failures.push(format!("{}: {test}", finished.name));
            } else if let Some((_, text)) = line.split_once("not judged: ") {
                self.unjudged.push(text.to_owned());
            } else if let Some(counts) = line.strip_prefix("test result: ") {
                self.passed += count(counts, "passed");
                self.failed += count(counts, "failed");
                self.ignored += count(counts, "ignored");
            }
        }
        // Killed by a signal, or not a test program at all.
        if !finished.success && self.failures.len() == failures {
            self.failures
                .push(format!("{}: the program", finished.name));
        }
    }

    fn print(&self, programs: usize) {
        for (title, lines) in [("not judged", &self.unjudged), ("failed", &self.failures)] {
            if !lines.is_empty() {
                println!("\n== {title}\n{}", lines.join("\n"));
            }
        }
        println!(
            "\n{} passed, {} failed, {} ignored in {programs} test programs",
            self.passed, self.failed, self.ignored
        );
    }
}

/// The number before `word` in a line as `ok. 12 passed; 0 failed; 1 ignored`.
fn count(line: &str, word: &str) -> u64 {
    let mut words = line.split([' ', ';']);
    let mut before = "";
    words
        .find_map(|next| {
            let number = (next == word).then(|| before.parse().ok()).flatten();
            before = next;
            number
        })
        .unwrap_or(0)
}

/// A message of cargo about a target that it built.
#[derive(Debug, Deserialize)]
struct Artifact {
    target: Target,
    profile: Profile,
    manifest_path: PathBuf,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

/// Builds the test programs of all crates.
fn build(root: &Path) -> anyhow::Result<Vec<Program>> {
    let output = cargo(root)
        .args(["test", "--locked", "--workspace", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the build of the tests failed; the reason is printed above");
    }
    let messages = String::from_utf8(output.stdout).context("cargo's messages are not UTF-8")?;
    let programs: Vec<_> = messages.lines().filter_map(program).collect();
    if programs.is_empty() {
        bail!("cargo built no test program");
    }
    Ok(programs)
}

/// The test program that a message of cargo announces. It runs in the folder of its crate, as with
/// `cargo test`.
fn program(message: &str) -> Option<Program> {
    let artifact: Artifact = serde_json::from_str(message).ok()?;
    let executable = artifact.executable.filter(|_| artifact.profile.test)?;
    let folder = artifact.manifest_path.parent()?;
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let kind = artifact.target.kind.first()?;
    let mut command = if REAL_TIME.contains(&package.as_str()) {
        Command::new(executable)
    } else {
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(executable);
        command
    };
    command
        .current_dir(folder)
        .env("CARGO_MANIFEST_DIR", folder)
        .env("RUST_TEST_THREADS", "1");
    Some(Program {
        name: format!("{package}: {kind} {}", artifact.target.name),
        package,
        command,
    })
}

/// The examples in the documentation, which cargo builds and runs by itself.
fn documentation(root: &Path) -> Program {
    let mut command = cargo(root);
    command.args(["test", "--locked", "--workspace", "--doc", "--quiet"]);
    Program {
        name: "documentation".to_owned(),
        package: String::new(),
        command,
    }
}

fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Folders of the crates whose tests run in real time.
const REAL_TIME: [&str; 5] = ["cli", "eventsd", "kernel", "live", "tests"];
const LONGEST: &str = "cli: test readme";
const SLOWEST: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(output: &str, success: bool) -> Finished {
        Finished {
            name: "core: lib core".to_owned(),
            output: output.to_owned(),
            success,
            took: Duration::ZERO,
        }
    }

    #[test]
    fn totals_count_the_results_of_all_programs() {
        let mut totals = Totals::default();
        let ok = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out";
        totals.add(&finished(ok, true));
        let bad = "test a::b ... FAILED\nnot judged: c, as the machine stalled\n\
                   test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured";
        totals.add(&finished(bad, false));
        totals.add(&finished("aborted", false));
        let expected = Totals {
            passed: 15,
            failed: 1,
            ignored: 1,
            failures: vec![
                "core: lib core: a::b".to_owned(),
                "core: lib core: the program".to_owned(),
            ],
            unjudged: vec!["c, as the machine stalled".to_owned()],
        };
        assert_eq!(totals, expected);
    }

    #[test]
    fn only_test_programs_are_run() {
        let message = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/r/crates/cli/Cargo.toml",
                "target":{{"name":"live","kind":["test"]}},"profile":{{"test":{test}}},
                "executable":{executable}}}"#
            )
        };
        let found = program(&message(true, "\"/t/live-1\"")).unwrap();
        assert_eq!(found.name, "cli: test live");
        assert!(found.is_in_real_time());
        assert!(program(&message(false, "\"/t/tidegate\"")).is_none());
        assert!(program(&message(true, "null")).is_none());
        assert!(program(r#"{"reason":"build-finished","success":true}"#).is_none());
    }
}
