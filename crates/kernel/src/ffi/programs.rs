//! A program per event (T-ware).

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use super::texts::{fail, status};
use super::{Handle, NO_HANDLE, borrow, lock, put, wanted};
use crate::bpf::events::Wanted;
use crate::error::EventsError;
use crate::event::{Event, EventKind, SubscriptionId};
use crate::events::Events;
use crate::keeper::Keeper;
use crate::tware::{Executable, Fault, Place, Report};

/// `tg_program`.
#[repr(C)]
pub(crate) struct CProgram {
    program: *const c_char,
    arguments: *const *const c_char,
    limit_ms: u32,
    at_once: u32,
}

/// `tg_report`.
#[repr(C)]
pub(crate) struct CReport {
    program: *const c_char,
    text: *const c_char,
    kind: u32,
    fault: u32,
    detail: i64,
}

/// `tg_report_callback`.
type ReportCallback = unsafe extern "C" fn(*const CReport, *mut c_void);

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_run(
    handle: *const Handle,
    socket: c_int,
    events: u32,
    variables: u64,
    program: *const CProgram,
    id: *mut u64,
) -> c_int {
    // SAFETY: as the header says, null or from one of the opening functions.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return fail(NO_HANDLE, -1);
    };
    let Some(socket) = borrow(socket) else {
        return fail("the socket is negative", -1);
    };
    // SAFETY: null or a whole description, as the header says.
    let program = match unsafe { program.as_ref().map(|p| p.read()) } {
        Some(Ok(program)) => program,
        Some(Err(why)) => return fail(why, -1),
        None => return fail("the program is NULL", -1),
    };
    let wanted = wanted(events, variables);
    let bound = handle
        .programs
        .bind(&handle.events, socket, wanted, program);
    let new = match bound {
        Ok(new) => new,
        Err(e) => return fail(&e.to_string(), -1),
    };
    if let Err(e) = handle.keep_taking() {
        // The daemon may be gone, and that says more.
        return match handle.programs.cancel(&handle.events, new) {
            Ok(()) => fail(&format!("no thread takes the events: {e}"), -1),
            error => status(error),
        };
    }
    // SAFETY: null or a place for the answer.
    unsafe { put(id, new.0) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_on_report(
    handle: *const Handle,
    callback: Option<ReportCallback>,
    user: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return fail(NO_HANDLE, -1);
    };
    let hearer = callback.map(|callback| Hearer { callback, user });
    handle.programs.reporter.change(hearer);
    0
}

impl CProgram {
    /// Says what is wrong with it.
    ///
    /// # Safety
    ///
    /// Its pointers are null or as the header wants them.
    unsafe fn read(&self) -> Result<Executable, &'static str> {
        if self.program.is_null() {
            return Err("no program is named");
        }
        // SAFETY: it ends in zero.
        let path = unsafe { CStr::from_ptr(self.program) };
        let mut program = Executable::new(PathBuf::from(OsStr::from_bytes(path.to_bytes())));
        let mut next = self.arguments;
        // SAFETY: the last one is null; those before end in zero.
        while let Some(&argument) = unsafe { next.as_ref() }
            && !argument.is_null()
        {
            // SAFETY: as above.
            let text = unsafe { CStr::from_ptr(argument) }.to_str();
            let text = text.map_err(|_| "an argument of the program is not UTF-8")?;
            program.arguments.push(text.to_owned());
            // SAFETY: there is one more, or the null.
            next = unsafe { next.add(1) };
        }
        if self.limit_ms > 0 {
            program.limit = Duration::from_millis(self.limit_ms.into());
        }
        if self.at_once > 0 {
            program.at_once = self.at_once as usize;
        }
        Ok(program)
    }
}

/// Which programs are started for what.
#[derive(Default)]
pub(super) struct Programs {
    /// Locked from the taking of an event until it is known whose it is.
    bound: Mutex<Bound>,
    /// From the first program on.
    keeper: Mutex<Option<Keeper>>,
    reporter: Arc<Reporter>,
}

#[derive(Default)]
struct Bound {
    programs: BTreeMap<SubscriptionId, (Executable, Place)>,
    /// What is still on its way from these is nobody's. With each when the source of events had
    /// forgotten it, if it has.
    cancelled: BTreeMap<SubscriptionId, Option<Instant>>,
}

impl Programs {
    fn bind(
        &self,
        events: &Events,
        socket: BorrowedFd<'_>,
        wanted: Wanted,
        program: Executable,
    ) -> Result<SubscriptionId, EventsError> {
        let place = Place::of(socket).map_err(EventsError::System)?;
        self.wake_keeper().map_err(EventsError::System)?;
        // Nothing is taken in between, so no event finds no program.
        let mut bound = lock(&self.bound);
        let id = events.subscribe(socket.as_fd(), wanted)?;
        bound.programs.insert(id, (program, place));
        bound.tidy(events, Instant::now());
        Ok(id)
    }

    fn wake_keeper(&self) -> io::Result<()> {
        let mut keeper = lock(&self.keeper);
        if keeper.is_none() {
            let new = Keeper::start()?;
            let reporter = Arc::clone(&self.reporter);
            new.on_report(Box::new(move |report| reporter.tell(report)));
            *keeper = Some(new);
        }
        Ok(())
    }

    /// Takes the oldest event that nobody took, and starts the program for it, if it has one. Comes
    /// with whether it is for whoever hears of the rest.
    pub(super) fn take(&self, events: &Events) -> Option<(Event, bool)> {
        let mut bound = lock(&self.bound);
        let event = events.try_next()?;
        let id = event.subscription;
        let Some((program, place)) = bound.programs.get(&id) else {
            let is_late = bound.cancelled.contains_key(&id);
            return Some((event, !is_late));
        };
        if let Some(keeper) = &*lock(&self.keeper) {
            keeper.starter().start(program, &event, *place);
        }
        if event.what.kind() == EventKind::Ended {
            bound.programs.remove(&id);
        }
        Some((event, false))
    }

    /// Ends a subscription. If it has a program that is started no more, and what is on its way is
    /// for nobody.
    ///
    /// # Errors
    ///
    /// As [`Events::cancel`].
    pub(super) fn cancel(&self, events: &Events, id: SubscriptionId) -> Result<(), EventsError> {
        let mut bound = lock(&self.bound);
        if bound.programs.remove(&id).is_some() {
            bound.cancelled.insert(id, None);
        }
        drop(bound);
        // Programs for others start meanwhile.
        let cancelled = events.cancel(id);
        let mut bound = lock(&self.bound);
        if let Some(forgotten) = bound.cancelled.get_mut(&id) {
            *forgotten = Some(Instant::now());
        }
        bound.tidy(events, Instant::now());
        cancelled
    }

    /// Whether this is for a program that was cancelled.
    pub(super) fn is_late(&self, event: &Event) -> bool {
        let bound = lock(&self.bound);
        bound.cancelled.contains_key(&event.subscription)
    }

    pub(super) fn are_none(&self) -> bool {
        lock(&self.bound).programs.is_empty()
    }
}

impl Bound {
    /// Forgets those of which nothing can come any more.
    fn tidy(&mut self, events: &Events, now: Instant) {
        let is_over =
            |forgotten: &Option<Instant>| forgotten.is_some_and(|f| now.duration_since(f) > LATEST);
        if self.cancelled.values().any(is_over) && events.is_empty() {
            self.cancelled.retain(|_, forgotten| !is_over(forgotten));
        }
    }
}

/// Who hears of programs in trouble.
#[derive(Default)]
struct Reporter {
    hearer: Mutex<Option<Hearer>>,
    /// Locked while it hears, with the thread on which it does.
    turn: Mutex<()>,
    thread: Mutex<Option<ThreadId>>,
}

#[derive(Clone, Copy)]
struct Hearer {
    callback: ReportCallback,
    user: *mut c_void,
}

// SAFETY: the header says that the pointer is used on another thread.
unsafe impl Send for Hearer {}

impl Reporter {
    /// When this comes back, nobody else hears, unless it is asked by who hears just now.
    fn change(&self, hearer: Option<Hearer>) {
        *lock(&self.hearer) = hearer;
        if *lock(&self.thread) != Some(thread::current().id()) {
            drop(lock(&self.turn));
        }
    }

    fn tell(&self, report: &Report) {
        let _turn = lock(&self.turn);
        // After the turn was taken, so that no call of one that was replaced begins.
        let Some(hearer) = *lock(&self.hearer) else {
            return;
        };
        *lock(&self.thread) = Some(thread::current().id());
        // Paths that were started have no zeros; the text of one that has is lost, not the report.
        let text = |bytes: Vec<u8>| CString::new(bytes).unwrap_or_default();
        let program = text(report.program.as_os_str().as_bytes().to_vec());
        let words = text(report.to_string().into_bytes());
        let (fault, detail) = numbers(&report.fault);
        let report = CReport {
            program: program.as_ptr(),
            text: words.as_ptr(),
            kind: report.event as u32,
            fault,
            detail,
        };
        // SAFETY: the caller gave a function of this type, and the pointer for it; the report lives
        // as long as the call.
        unsafe { (hearer.callback)(&raw const report, hearer.user) };
        *lock(&self.thread) = None;
    }
}

/// `TG_FAULT_...`, and what goes with it.
fn numbers(fault: &Fault) -> (u32, i64) {
    match fault {
        Fault::Failed(status) => (0, status.into_raw().into()),
        Fault::NotStarted(e) => (1, e.raw_os_error().unwrap_or_default().into()),
        Fault::TooMany(many) => (2, *many as i64),
        Fault::TooSlow(limit) => (3, limit.as_millis() as i64),
        Fault::Unknown(e) => (4, e.raw_os_error().unwrap_or_default().into()),
    }
}

/// A processor that was at an event when its subscription was cancelled has told of it by then, as
/// the daemon's places of subscriptions suppose, too.
const LATEST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn what_was_cancelled_is_not_remembered_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (events, programs) = (Events::unprivileged().unwrap(), Programs::default());
        let program = Executable::new("/bin/true");
        let id = programs
            .bind(&events, stream.as_fd(), Wanted::ALL, program)
            .unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // Until its change of state is on its way, which wakes nobody up here.
        events.wait(None, None).unwrap();
        programs.cancel(&events, id).unwrap();
        assert!(programs.are_none());
        let (now, later) = (Instant::now(), Instant::now() + 2 * LATEST);
        let known = |now| {
            let mut bound = lock(&programs.bound);
            bound.tidy(&events, now);
            bound.cancelled.len()
        };
        assert_eq!((known(now), known(later)), (1, 1), "it still waits");
        while let Some((event, is_for_the_rest)) = programs.take(&events) {
            assert!(!is_for_the_rest, "{event:?}");
        }
        assert_eq!((known(now), known(later)), (1, 0));
    }
}
