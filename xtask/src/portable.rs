//! Portability of the core.
//!
//! The core must build without an operating system, and compute identical results with another C
//! library and another optimisation level. A program that prints digests of simulated runs is built
//! for the host without optimisation and for musl with optimisation; both must print the same.
//! Targets that are not installed are skipped with a message.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::Report;

/// Builds the core for the targets and compares digests, in the workspace at `root`.
pub(crate) fn check(root: &Path) -> anyhow::Result<Report> {
    let mut report = Report::default();
    if is_installed(root, WASM) {
        let core = [
            "build",
            "--locked",
            "--quiet",
            "-p",
            "tidegate-core",
            "--target",
            WASM,
        ];
        if cargo(root, &core, &mut report)?.is_some() {
            report.line(format_args!("the core builds for {WASM}"));
        }
    } else {
        report.line(format_args!("left out: {}", absent(WASM)));
    }
    if is_installed(root, MUSL) {
        let here = cargo(root, &digest(&[]), &mut report)?;
        let there = cargo(root, &digest(&["--release", "--target", MUSL]), &mut report)?;
        if let Some((here, there)) = here.zip(there) {
            compare(&here, &there, &mut report);
        }
    } else {
        report.line(format_args!("left out: {}", absent(MUSL)));
    }
    Ok(report)
}

/// Arguments of cargo that build with `options` the program that digests runs, and run it.
fn digest<'a>(options: &[&'a str]) -> Vec<&'a str> {
    let program = [
        "run",
        "--locked",
        "--quiet",
        "-p",
        "tidegate-sim",
        "--example",
        "digest",
    ];
    [&program[..], options, &["--"], &SCENARIOS].concat()
}

fn compare(here: &str, there: &str, report: &mut Report) {
    if here.lines().count() != SCENARIOS.len() {
        report.fault(format_args!("a scenario has no digest: {here}"));
    } else if here == there {
        report.line(format_args!(
            "{} scenarios give the same bits here and on {MUSL}",
            SCENARIOS.len()
        ));
    } else {
        report.fault(format_args!(
            "runs differ between machines.\nhere:\n{here}on {MUSL}:\n{there}"
        ));
    }
}

/// Output of cargo with the arguments `words`; a failure is reported.
fn cargo(root: &Path, words: &[&str], report: &mut Report) -> anyhow::Result<Option<String>> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program)
        .args(words)
        .current_dir(root)
        .output()
        .context("cannot start cargo")?;
    if output.status.success() {
        return Ok(Some(String::from_utf8(output.stdout)?));
    }
    report.fault(format_args!(
        "cargo {} failed: {}",
        words.join(" "),
        String::from_utf8_lossy(&output.stderr)
    ));
    Ok(None)
}

/// Whether the standard library for `target` is installed.
fn is_installed(root: &Path, target: &str) -> bool {
    let program = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let answer = Command::new(program)
        .args(["--print", "target-libdir", "--target", target])
        .current_dir(root)
        .output();
    answer.is_ok_and(|answer| {
        let directory = String::from_utf8_lossy(&answer.stdout).into_owned();
        answer.status.success() && Path::new(directory.trim()).is_dir()
    })
}

fn absent(target: &str) -> String {
    format!("{target} is not installed; rustup target add {target}")
}

const WASM: &str = "wasm32-unknown-unknown";
const MUSL: &str = "x86_64-unknown-linux-musl";

/// These scenarios cover loss, ECN marks, a trace and a baseline.
const SCENARIOS: [&str; 4] = [
    "scenarios/demo.toml",
    "scenarios/cellular.toml",
    "scenarios/lossy.toml",
    "scenarios/red-ecn.toml",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(here: &str, there: &str) -> Report {
        let mut report = Report::default();
        compare(here, there, &mut report);
        report
    }

    #[test]
    fn a_single_difference_is_reported() {
        assert!(!compared("a\nb\nc\nd\n", "a\nb\nc\nd\n").failed);
        assert!(compared("a\nb\nc\nd\n", "a\nb\nc\ne\n").failed);
        assert!(compared("", "").failed, "no scenario was run");
    }
}
