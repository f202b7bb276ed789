//! Common parts of the subcommands: standard output and error, progress, Ctrl-C, option values, and
//! the clock of a live session.

#![cfg(target_os = "linux")]
// These macros panic on write errors; `progress::say` and `output` do not.
#![warn(clippy::print_stderr, clippy::print_stdout)]

pub mod arguments;
pub mod context;
pub mod exit;
pub mod output;
pub mod progress;
pub mod signals;

/// The error and its causes, each once. Errors of this workspace include their cause in their text,
/// so that they are complete in any output.
pub fn describe(error: &anyhow::Error) -> String {
    let mut described = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if described.is_empty() {
            described = cause;
        } else if !described.contains(&cause) {
            described = format!("{described}: {cause}");
        }
    }
    described
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};

    use super::*;

    #[test]
    fn a_cause_is_printed_once() {
        let cause = || Err::<(), _>(anyhow!("no such file"));
        let named = cause().context("cannot read x: no such file; give another");
        let named = describe(&named.expect_err("it failed"));
        assert_eq!(named, "cannot read x: no such file; give another");
        let other = cause().context("cannot read x").expect_err("it failed");
        assert_eq!(describe(&other), "cannot read x: no such file");
    }
}
