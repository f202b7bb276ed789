//! Looks after programs that were started for events, on a thread of its own: whatever handlers are
//! at, and whether or not events still come.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, io};

use crate::event::Event;
use crate::exec_handler::{Executable, Programs, Report, SocketRef};
use crate::system::join;

/// Hears of programs in trouble.
type Hear = Box<dyn FnMut(&Report) + Send>;

/// Dropping it kills the programs that run.
#[derive(Debug)]
pub(crate) struct ChildSupervisor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What others than the owner may do.
#[derive(Clone, Debug)]
pub(crate) struct Launcher(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    programs: Programs,
    /// Of programs that were not started.
    pending: Vec<Report>,
    /// Not here while it hears.
    hear: Option<Hear>,
    stopped: bool,
}

impl ChildSupervisor {
    pub(crate) fn start() -> io::Result<Self> {
        let shared: Arc<Shared> = Arc::default();
        let its = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("tcp-programs".into())
            .spawn(move || its.run())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    pub(crate) fn launcher(&self) -> Launcher {
        Launcher(Arc::clone(&self.shared))
    }

    pub(crate) fn on_report(&self, hear: Hear) {
        let before = self.shared.lock().hear.replace(hear);
        // What it holds may come back here when it goes.
        drop(before);
    }
}

impl Launcher {
    /// Starts a program for an event, or reports why not.
    pub(crate) fn start(&self, what: &Executable, event: &Event, socket: SocketRef) {
        let mut state = self.0.lock();
        let report = state.programs.start(what, event, socket, Instant::now());
        state.pending.extend(report);
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn run(&self) {
        while let Some(reports) = self.reports() {
            // Nothing is locked while it hears, so it may do what it likes.
            let Some(mut hear) = self.lock().hear.take() else {
                continue;
            };
            for report in &reports {
                hear(report);
            }
            // Another one may have been given meanwhile.
            let mut state = self.lock();
            if state.hear.is_none() {
                state.hear = Some(hear);
            }
        }
    }

    /// The next ones; `None` when it is stopped.
    fn reports(&self) -> Option<Vec<Report>> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                state.programs = Programs::default();
                return None;
            }
            let mut reports = std::mem::take(&mut state.pending);
            reports.extend(state.programs.reap(Instant::now()));
            if !reports.is_empty() {
                return Some(reports);
            }
            state = if state.programs.is_active() {
                let waited = self.changed.wait_timeout(state, POLL_INTERVAL);
                waited.unwrap_or_else(PoisonError::into_inner).0
            } else {
                let waited = self.changed.wait(state);
                waited.unwrap_or_else(PoisonError::into_inner)
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ChildSupervisor {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_one();
        join(self.thread.take());
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("programs", &self.programs)
            .finish_non_exhaustive()
    }
}

/// How often programs are looked after.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
