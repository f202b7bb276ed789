//! Ctrl-C in verbs that play for a while: what they were at is said in one line, and the exit code
//! tells that it was not all.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context as _, Result};
use tidegate_live::driver::{Interrupts, StopFlag};

use crate::progress::Bar;

/// Takes Ctrl-C, from now on.
///
/// # Errors
/// The system says why not.
pub fn catch() -> Result<Interrupts> {
    Interrupts::catch(&StopFlag::new()?).context("Ctrl-C cannot be caught")
}

/// What a shell reports of a program that Ctrl-C ended.
pub fn exit_code() -> ExitCode {
    ExitCode::from(130)
}

/// Says that nothing of `what` is kept, and that `dir` is as before if it is there.
pub fn without_trace(what: &str, dir: &Path) -> String {
    let earlier = if dir.exists() {
        format!("; {} is as it was", dir.display())
    } else {
        String::new()
    };
    format!("interrupted in {what}: nothing of it is kept{earlier}")
}

/// What `work` makes on a thread of its own, while a bar shows how far it is; none after Ctrl-C,
/// if that is `heeded`. The thread is then left to itself: `work` only computes, so that it may end with the process.
pub fn attend<T: Send + 'static>(
    heeded: Option<&Interrupts>,
    what: &'static str,
    work: impl FnOnce(&Share) -> T + Send + 'static,
) -> Option<T> {
    let share = Arc::new(Share::default());
    let (sender, made) = mpsc::channel();
    let worker = {
        let share = Arc::clone(&share);
        thread::spawn(move || {
            // Nobody listens after Ctrl-C.
            let _ = sender.send(work(&share));
        })
    };
    let mut bar = Bar::new(what);
    let made = loop {
        match made.recv_timeout(GLANCE) {
            Ok(made) => break Some(made),
            Err(RecvTimeoutError::Timeout) if heeded.is_some_and(|i| i.count() > 0) => break None,
            Err(RecvTimeoutError::Timeout) => bar.show(share.get()),
            Err(RecvTimeoutError::Disconnected) => {
                let panic = worker.join().expect_err("it would have sent what it made");
                std::panic::resume_unwind(panic);
            }
        }
    };
    bar.done();
    made
}

/// How much is done, in 0..=1, between who works and who looks.
#[derive(Debug, Default)]
pub struct Share(AtomicU64);

impl Share {
    /// Sets the share, in 0..=1.
    pub fn set(&self, share: f64) {
        self.0.store(share.to_bits(), Ordering::Relaxed);
    }

    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// Folders that are made before anything is played, so that it is known early if they cannot be.
#[derive(Debug)]
pub struct Made(Vec<PathBuf>);

impl Made {
    /// What of `dir` is not there yet.
    pub fn by(dir: &Path) -> Self {
        let missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
        let missing = dir.ancestors().take_while(missing);
        Self(missing.map(Path::to_owned).collect())
    }

    /// Removes those into which nothing came.
    pub fn undo(&self) {
        for dir in &self.0 {
            // One that is not empty stays, and so do those around it.
            let _ = fs::remove_dir(dir);
        }
    }
}

/// How long Ctrl-C may go unseen.
pub const GLANCE: Duration = Duration::from_millis(100);
