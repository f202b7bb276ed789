//! What the verbs of the command line share: standard output and error, progress, Ctrl-C, numbers,
//! and the clock of a live session.

#![cfg(target_os = "linux")]
// These macros panic when their stream cannot be written; `progress::say` and `output` do not.
#![warn(clippy::print_stderr, clippy::print_stdout)]

pub mod arguments;
pub mod context;
pub mod output;
pub mod progress;
pub mod signals;

/// The error and its causes, each once: some of our errors name their cause themselves, so that
/// they are complete wherever they are shown.
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
    fn a_cause_is_named_once() {
        let cause = || Err::<(), _>(anyhow!("no such file"));
        let named = cause().context("cannot read x: no such file; give another");
        let named = describe(&named.expect_err("it failed"));
        assert_eq!(named, "cannot read x: no such file; give another");
        let other = cause().context("cannot read x").expect_err("it failed");
        assert_eq!(describe(&other), "cannot read x: no such file");
    }
}
