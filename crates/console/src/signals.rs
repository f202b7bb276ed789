//! Ctrl-C in subcommands that run for long: a message names the interrupted work, and the exit code
//! is 130.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context as _, Result};
use tidegate_live::driver::{Interrupts, StopFlag};

use crate::exit::INTERRUPTED;
use crate::progress::Bar;

/// Installs the handler of Ctrl-C.
///
/// # Errors
/// The system rejects the handler.
pub fn catch() -> Result<Interrupts> {
    Interrupts::install(&StopFlag::new()?).context("cannot install the handler of Ctrl-C")
}

/// Exit code of a program that Ctrl-C ended, as a shell reports it.
pub fn exit_code() -> ExitCode {
    ExitCode::from(INTERRUPTED)
}

/// Prints that no results of `what` are kept, and that an existing `dir` is unchanged.
pub fn nothing_kept(what: &str, dir: &Path) -> String {
    let earlier = if dir.exists() {
        format!("; {} is unchanged", dir.display())
    } else {
        String::new()
    };
    format!("interrupted in {what}: no results are kept{earlier}")
}

/// Result of `work` on a thread of its own, with a progress bar. `None` after Ctrl-C, if
/// `interrupts` is given. The thread is then abandoned: `work` only computes, so it may end with
/// the process.
pub fn run_interruptible<T: Send + 'static>(
    interrupts: Option<&Interrupts>,
    what: &'static str,
    work: impl FnOnce(&Share) -> T + Send + 'static,
) -> Option<T> {
    let share = Arc::new(Share::default());
    let (sender, made) = mpsc::channel();
    let worker = {
        let share = Arc::clone(&share);
        thread::spawn(move || {
            // The receiver is gone after Ctrl-C.
            let _ = sender.send(work(&share));
        })
    };
    let mut bar = Bar::new(what);
    let made = loop {
        match made.recv_timeout(GLANCE) {
            Ok(made) => break Some(made),
            Err(RecvTimeoutError::Timeout) if interrupts.is_some_and(|i| i.count() > 0) => {
                break None;
            }
            Err(RecvTimeoutError::Timeout) => bar.show(share.get()),
            Err(RecvTimeoutError::Disconnected) => {
                let panic = worker
                    .join()
                    .expect_err("a worker without panic sends its result");
                std::panic::resume_unwind(panic);
            }
        }
    };
    bar.done();
    made
}

/// Progress in 0..=1, shared between the worker and the observer.
#[derive(Debug, Default)]
pub struct Share(AtomicU64);

impl Share {
    /// Sets the progress, in 0..=1.
    pub fn set(&self, share: f64) {
        self.0.store(share.to_bits(), Ordering::Relaxed);
    }

    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// Folders created before a run, so that errors are reported early.
#[derive(Debug)]
pub struct CreatedFolders(Vec<PathBuf>);

impl CreatedFolders {
    /// The missing parents of `dir`, and `dir` itself.
    pub fn by(dir: &Path) -> Self {
        let missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
        let missing = dir.ancestors().take_while(missing);
        Self(missing.map(Path::to_owned).collect())
    }

    /// Removes the folders that are still empty.
    pub fn undo(&self) {
        for dir in &self.0 {
            // A folder with files stays, and so do its parents.
            let _ = fs::remove_dir(dir);
        }
    }
}

/// Longest time until Ctrl-C is noticed.
pub const GLANCE: Duration = Duration::from_millis(100);
