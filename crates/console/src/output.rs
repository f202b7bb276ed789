//! Standard output, whose errors say that it is standard output.

use std::io::{self, ErrorKind, StdoutLock, Write};
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context as _, Result};

/// Where results go.
#[derive(Debug)]
pub struct Output(StdoutLock<'static>);

/// Standard output. May be taken again while it is held.
pub fn output() -> Output {
    Output(io::stdout().lock())
}

/// Prints what `--json` asks for, on a line.
///
/// # Errors
/// When standard output is closed or full.
pub fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string(value)?;
    writeln!(output(), "{text}").context("standard output does not take the numbers of --json")
}

/// Whether whoever read the standard output went away (`tidegate ... | head`), which is no failure
/// of ours.
pub fn is_unread(error: &anyhow::Error) -> bool {
    let is_ours = |cause: &(dyn std::error::Error + 'static)| {
        let error = cause.downcast_ref::<io::Error>();
        let is_ours = error.and_then(io::Error::get_ref);
        is_ours.is_some_and(<dyn std::error::Error + Send + Sync>::is::<Untaken>)
            && error.is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
    };
    error.chain().any(is_ours)
}

/// Why it takes no more.
#[derive(Debug)]
struct Untaken(io::Error);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

impl AsFd for Output {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl std::fmt::Display for Untaken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "standard output cannot be written: {}", self.0)
    }
}

impl std::error::Error for Untaken {}

/// Of the same kind: what is interrupted is written again.
fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), Untaken(error))
}
