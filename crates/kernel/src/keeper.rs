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
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What others than the owner may do.
#[derive(Clone, Debug)]
pub(crate) struct Starter(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    care: Mutex<Care>,
    changed: Condvar,
}

#[derive(Default)]
struct Care {
    programs: Programs,
    /// Of programs that were not started.
    unheard: Vec<Report>,
    /// Not here while it hears.
    hear: Option<Hear>,
    over: bool,
}

impl Keeper {
    pub(crate) fn start() -> io::Result<Self> {
        let shared: Arc<Shared> = Arc::default();
        let its = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("tcp-programs".into())
            .spawn(move || its.look_after())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    pub(crate) fn starter(&self) -> Starter {
        Starter(Arc::clone(&self.shared))
    }

    pub(crate) fn on_report(&self, hear: Hear) {
        let before = self.shared.lock().hear.replace(hear);
        // What it holds may come back here when it goes.
        drop(before);
    }
}

impl Starter {
    /// Starts a program for an event, or reports why not.
    pub(crate) fn start(&self, what: &Executable, event: &Event, socket: SocketRef) {
        let mut care = self.0.lock();
        let report = care.programs.start(what, event, socket, Instant::now());
        care.unheard.extend(report);
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn look_after(&self) {
        while let Some(reports) = self.reports() {
            // Nothing is locked while it hears, so it may do what it likes.
            let Some(mut hear) = self.lock().hear.take() else {
                continue;
            };
            for report in &reports {
                hear(report);
            }
            // Another one may have been given meanwhile.
            let mut care = self.lock();
            if care.hear.is_none() {
                care.hear = Some(hear);
            }
        }
    }

    /// The next ones; `None` when it is over.
    fn reports(&self) -> Option<Vec<Report>> {
        let mut care = self.lock();
        loop {
            if care.over {
                care.programs = Programs::default();
                return None;
            }
            let mut reports = std::mem::take(&mut care.unheard);
            reports.extend(care.programs.reap(Instant::now()));
            if !reports.is_empty() {
                return Some(reports);
            }
            care = if care.programs.is_active() {
                let waited = self.changed.wait_timeout(care, GLANCE);
                waited.unwrap_or_else(PoisonError::into_inner).0
            } else {
                let waited = self.changed.wait(care);
                waited.unwrap_or_else(PoisonError::into_inner)
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Care> {
        self.care.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.changed.notify_one();
        join(self.thread.take());
    }
}

impl fmt::Debug for Care {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Care")
            .field("programs", &self.programs)
            .finish_non_exhaustive()
    }
}

/// How often programs are looked after.
const GLANCE: Duration = Duration::from_millis(10);
