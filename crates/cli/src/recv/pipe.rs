//! The recording on standard output, for a reader that may be slow or stop.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tidegate_console::output::output;

/// Writes to standard output on a thread of its own, so that the session continues while the reader
/// does not read.
pub(super) struct PipeWriter {
    units: Sender<Vec<u8>>,
    /// Bytes that wait for the reader.
    waiting: Arc<AtomicUsize>,
    /// The first error; closed at the end of the thread.
    failed: Receiver<io::Error>,
}

impl PipeWriter {
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start() -> Result<Self> {
        let (units, pending) = channel::<Vec<u8>>();
        let (fail, failed) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&waiting);
        let write = move || {
            for unit in pending {
                let mut out = output();
                if let Err(e) = out.write_all(&unit).and_then(|()| out.flush()) {
                    // The receiver is gone at the end of the session.
                    let _ = fail.send(e);
                    return;
                }
                left.fetch_sub(unit.len(), Ordering::Relaxed);
            }
        };
        let thread = thread::Builder::new().name("recording".into());
        thread
            .spawn(write)
            .context("cannot start the thread that writes the recording")?;
        Ok(Self {
            units,
            waiting,
            failed,
        })
    }

    /// Passes bytes on to the reader.
    ///
    /// # Errors
    /// That of an earlier write, or [`io::ErrorKind::TimedOut`] if [`MAX_WAITING`] bytes wait.
    pub(super) fn write(&mut self, unit: &[u8]) -> io::Result<()> {
        if let Ok(error) = self.failed.try_recv() {
            return Err(error);
        }
        let before = self.waiting.fetch_add(unit.len(), Ordering::Relaxed);
        if before + unit.len() > MAX_WAITING {
            return Err(unread());
        }
        // The thread has ended after an error, which is the next one here.
        let _ = self.units.send(unit.to_vec());
        Ok(())
    }

    /// Waits until everything is written. Once `is_over` returns true, the reader has [`LAST`] left.
    ///
    /// # Errors
    /// That of a write, or [`io::ErrorKind::TimedOut`].
    pub(super) fn finish(self, is_over: impl Fn() -> bool) -> io::Result<()> {
        drop(self.units);
        let mut left = LAST;
        loop {
            match self.failed.recv_timeout(TURN) {
                Ok(error) => return Err(error),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Err(unread()),
                Err(RecvTimeoutError::Timeout) if is_over() => left = left.saturating_sub(TURN),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

fn unread() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "its reader does not read")
}

/// Bytes that wait for the reader at most: 25 s at 20 Mb/s.
const MAX_WAITING: usize = 64 << 20;
/// Time for the rest of the recording after Ctrl-C.
const LAST: Duration = Duration::from_secs(1);
const TURN: Duration = Duration::from_millis(50);
