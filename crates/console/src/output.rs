//! Standard output with errors that name standard output.

use std::io::{self, ErrorKind, StdoutLock, Write};
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context as _, Result};

/// Locked standard output.
#[derive(Debug)]
pub struct Output(StdoutLock<'static>);

/// Locks standard output. The same thread may lock it again.
pub fn output() -> Output {
    Output(io::stdout().lock())
}

/// Prints a JSON value for `--json` on a line.
///
/// # Errors
/// Standard output is closed or full.
pub fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string(value)?;
    writeln!(output(), "{text}").context("cannot print the summary of --json")
}

/// Whether the error is a closed pipe at standard output (`tidegate ... | head`), which is not a
/// failure.
pub fn is_unread(error: &anyhow::Error) -> bool {
    let is_ours = |cause: &(dyn std::error::Error + 'static)| {
        let error = cause.downcast_ref::<io::Error>();
        let is_ours = error.and_then(io::Error::get_ref);
        is_ours.is_some_and(<dyn std::error::Error + Send + Sync>::is::<StdoutError>)
            && error.is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
    };
    error.chain().any(is_ours)
}

/// Write error of standard output.
#[derive(Debug, thiserror::Error)]
#[error("cannot write standard output: {0}")]
struct StdoutError(io::Error);

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

/// Keeps the kind of the error, so that interrupted writes are repeated.
fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), StdoutError(error))
}
