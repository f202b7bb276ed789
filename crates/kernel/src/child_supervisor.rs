//! Supervises the programs that events have started, on a thread of its own. Handlers that block
//! and events that stop do not delay it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, io, mem};

use crate::event::Event;
use crate::exec_handler::{Executable, Programs, Report, SocketRef};
use crate::system::{join, spawn};

/// Receives reports of failed programs.
type OnReport = Box<dyn FnMut(&Report) + Send>;

/// Dropping it kills the running programs.
#[derive(Debug)]
pub(crate) struct ChildSupervisor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Starts programs from other threads.
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
    /// Reports of programs that were not started.
    pending: Vec<Report>,
    /// Absent while a call is in progress.
    on_report: Option<OnReport>,
    stopped: bool,
}

impl ChildSupervisor {
    pub(crate) fn start() -> io::Result<Self> {
        let shared: Arc<Shared> = Arc::default();
        let own = Arc::clone(&shared);
        let thread = spawn("tcp-programs", move || own.run())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    pub(crate) fn launcher(&self) -> Launcher {
        Launcher(Arc::clone(&self.shared))
    }

    pub(crate) fn on_report(&self, on_report: OnReport) {
        let before = self.shared.lock().on_report.replace(on_report);
        // Dropped without the lock: its captures may call this module again.
        drop(before);
    }
}

impl Launcher {
    /// Starts a program for an event, or reports why it cannot be started.
    pub(crate) fn start(&self, executable: &Executable, event: &Event, socket: SocketRef) {
        let mut state = self.0.lock();
        let report = state
            .programs
            .start(executable, event, socket, Instant::now());
        state.pending.extend(report);
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn run(&self) {
        while let Some(reports) = self.reports() {
            // The callback runs without the lock, so it may call this module.
            let Some(mut on_report) = self.lock().on_report.take() else {
                continue;
            };
            for report in &reports {
                on_report(report);
            }
            // A callback that was set meanwhile stays. The old one is dropped without the lock.
            let mut state = self.lock();
            if state.on_report.is_none() {
                state.on_report = Some(on_report);
            }
        }
    }

    /// Waits for reports; `None` when the supervisor is dropped.
    fn reports(&self) -> Option<Vec<Report>> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                state.programs = Programs::default();
                return None;
            }
            let mut reports = mem::take(&mut state.pending);
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

/// Interval between two checks of running programs.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
