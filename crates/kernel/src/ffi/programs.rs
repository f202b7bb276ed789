//! Programs per event (T-ware) in the C interface.

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

use super::{Handle, borrow, done, lock, put, wanted};
use crate::bpf::events::EventRequest;
use crate::child_supervisor::ChildSupervisor;
use crate::error::EventsError;
use crate::event::{Event, EventKind, SubscriptionId};
use crate::events::Events;
use crate::exec_handler::{Executable, Fault, Report, SocketRef};

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
    // SAFETY: the handle is null or from one of the opening functions, the program is null or whole
    // as the header says, and the id is null or a place for the result.
    unsafe {
        done(handle, |handle| {
            let socket = borrow(socket)?;
            let program = program.as_ref().ok_or("the program is NULL")?.read()?;
            let (programs, wanted) = (&handle.programs, wanted(events, variables));
            let new = programs.bind(&handle.events, socket, wanted, program)?;
            if let Err(e) = handle.keep_taking() {
                // If the daemon is gone, too, that is the error.
                programs.cancel(&handle.events, new)?;
                return Err(format!("the thread for events cannot be started: {e}").into());
            }
            put(id, new.0);
            Ok(())
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_on_report(
    handle: *const Handle,
    callback: Option<ReportCallback>,
    user: *mut c_void,
) -> c_int {
    let receiver = callback.map(|callback| Receiver { callback, user });
    let change = |handle: &Handle| {
        handle.programs.reporter.change(receiver);
        Ok(())
    };
    // SAFETY: as above.
    unsafe { done(handle, change) }
}

impl CProgram {
    /// The program, or what is wrong with its description.
    ///
    /// # Safety
    ///
    /// The pointers are null or as the header demands.
    unsafe fn read(&self) -> Result<Executable, &'static str> {
        if self.program.is_null() {
            return Err("the path of the program is NULL");
        }
        // SAFETY: the path ends with zero.
        let path = unsafe { CStr::from_ptr(self.program) };
        let mut program = Executable::new(PathBuf::from(OsStr::from_bytes(path.to_bytes())));
        let mut next = self.arguments;
        // SAFETY: the list ends with null.
        while let Some(&argument) = unsafe { next.as_ref() }
            && !argument.is_null()
        {
            // SAFETY: each argument ends with zero.
            let text = unsafe { CStr::from_ptr(argument) }.to_str();
            let text = text.map_err(|_| "an argument of the program is not UTF-8")?;
            program.arguments.push(text.to_owned());
            // SAFETY: another argument or the null follows.
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

/// The programs of a handle.
#[derive(Default)]
pub(super) struct Programs {
    /// Locked while an event is taken and assigned.
    bound: Mutex<Bound>,
    /// Started with the first program.
    supervisor: Mutex<Option<ChildSupervisor>>,
    reporter: Arc<Reporter>,
}

#[derive(Default)]
struct Bound {
    programs: BTreeMap<SubscriptionId, (Executable, SocketRef)>,
    /// Subscriptions whose late events are dropped, with the time at which the source of events had
    /// cancelled them.
    cancelled: BTreeMap<SubscriptionId, Option<Instant>>,
}

impl Programs {
    fn bind(
        &self,
        events: &Events,
        socket: BorrowedFd<'_>,
        wanted: EventRequest,
        program: Executable,
    ) -> Result<SubscriptionId, EventsError> {
        let socket_ref = SocketRef::of(socket)?;
        self.start_supervisor()?;
        // The lock is held, so an event cannot be taken before its program is known.
        let mut bound = lock(&self.bound);
        let id = events.subscribe(socket.as_fd(), wanted)?;
        bound.programs.insert(id, (program, socket_ref));
        bound.tidy(events, Instant::now());
        Ok(id)
    }

    fn start_supervisor(&self) -> io::Result<()> {
        let mut supervisor = lock(&self.supervisor);
        if supervisor.is_none() {
            let new = ChildSupervisor::start()?;
            let reporter = Arc::clone(&self.reporter);
            new.on_report(Box::new(move |report| reporter.send(report)));
            *supervisor = Some(new);
        }
        Ok(())
    }

    /// Takes the oldest event and starts its program, if it has one. The flag says whether the
    /// event is for the callback.
    pub(super) fn take(&self, events: &Events) -> Option<(Event, bool)> {
        let mut bound = lock(&self.bound);
        let event = events.try_next()?;
        let id = event.subscription;
        let Some((program, socket)) = bound.programs.get(&id) else {
            let is_late = bound.cancelled.contains_key(&id);
            return Some((event, !is_late));
        };
        if let Some(supervisor) = &*lock(&self.supervisor) {
            supervisor.launcher().start(program, &event, *socket);
        }
        if event.what.kind() == EventKind::Ended {
            bound.programs.remove(&id);
        }
        Some((event, false))
    }

    /// Cancels a subscription. If it has a program, its late events are dropped.
    ///
    /// # Errors
    ///
    /// As [`Events::cancel`].
    pub(super) fn cancel(&self, events: &Events, id: SubscriptionId) -> Result<(), EventsError> {
        let mut bound = lock(&self.bound);
        if bound.programs.remove(&id).is_some() {
            bound.cancelled.insert(id, None);
        }
        // Other events are taken while the daemon answers.
        drop(bound);
        let result = events.cancel(id);
        let now = Instant::now();
        let mut bound = lock(&self.bound);
        if let Some(cancelled) = bound.cancelled.get_mut(&id) {
            *cancelled = Some(now);
        }
        bound.tidy(events, now);
        result
    }

    /// Whether the event is of a cancelled program.
    pub(super) fn is_late(&self, event: &Event) -> bool {
        let bound = lock(&self.bound);
        bound.cancelled.contains_key(&event.subscription)
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.bound).programs.is_empty()
    }
}

impl Bound {
    /// Forgets cancelled subscriptions that have no events any more.
    fn tidy(&mut self, events: &Events, now: Instant) {
        let is_over =
            |cancelled: &Option<Instant>| cancelled.is_some_and(|c| now.duration_since(c) > LATEST);
        if self.cancelled.values().any(is_over) && events.is_empty() {
            self.cancelled.retain(|_, cancelled| !is_over(cancelled));
        }
    }
}

/// Sends reports of failed programs to a callback.
#[derive(Default)]
struct Reporter {
    receiver: Mutex<Option<Receiver>>,
    /// Locked during a call, whose thread is in `thread`.
    call: Mutex<()>,
    thread: Mutex<Option<ThreadId>>,
}

#[derive(Clone, Copy)]
struct Receiver {
    callback: ReportCallback,
    user: *mut c_void,
}

// SAFETY: the header says that another thread uses the pointer.
unsafe impl Send for Receiver {}

impl Reporter {
    /// The old callback is not called any more when this returns, except if it calls this itself.
    fn change(&self, receiver: Option<Receiver>) {
        *lock(&self.receiver) = receiver;
        if *lock(&self.thread) != Some(thread::current().id()) {
            drop(lock(&self.call));
        }
    }

    fn send(&self, report: &Report) {
        let _call = lock(&self.call);
        // Read after the lock is taken, so that a replaced callback is not called.
        let Some(receiver) = *lock(&self.receiver) else {
            return;
        };
        *lock(&self.thread) = Some(thread::current().id());
        // A program that was started has no zero byte in its path.
        let text = |bytes: Vec<u8>| CString::new(bytes).unwrap_or_default();
        let program = text(report.program.as_os_str().as_bytes().to_vec());
        let message = text(report.to_string().into_bytes());
        let (fault, detail) = numbers(&report.fault);
        let report = CReport {
            program: program.as_ptr(),
            text: message.as_ptr(),
            kind: report.event as u32,
            fault,
            detail,
        };
        // SAFETY: the caller has given a function of this type and the pointer for it; the report
        // outlives the call.
        unsafe { (receiver.callback)(&raw const report, receiver.user) };
        *lock(&self.thread) = None;
    }
}

/// `TG_FAULT_...` and its detail.
fn numbers(fault: &Fault) -> (u32, i64) {
    match fault {
        Fault::Failed(status) => (0, status.into_raw().into()),
        Fault::NotStarted(e) => (1, e.raw_os_error().unwrap_or_default().into()),
        Fault::TooMany(many) => (2, *many as i64),
        Fault::TooSlow(limit) => (3, limit.as_millis() as i64),
        Fault::Unknown(e) => (4, e.raw_os_error().unwrap_or_default().into()),
    }
}

/// A program in the kernel that runs while its subscription is cancelled has emitted its event by
/// then. The cooldown of the daemon's slots has the same length.
const LATEST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn cancelled_subscriptions_are_forgotten_with_their_last_events() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (events, programs) = (Events::unprivileged().unwrap(), Programs::default());
        let program = Executable::new("/bin/true");
        let id = programs
            .bind(&events, stream.as_fd(), EventRequest::ALL, program)
            .unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // The change of state is in the queue then; no thread takes it.
        events.wait(None, None).unwrap();
        programs.cancel(&events, id).unwrap();
        assert!(programs.is_empty());
        let now = lock(&programs.bound).cancelled[&id].unwrap();
        let later = now + 2 * LATEST;
        let known = |now| {
            let mut bound = lock(&programs.bound);
            bound.tidy(&events, now);
            bound.cancelled.len()
        };
        assert_eq!(
            (known(now), known(later)),
            (1, 1),
            "the event is still in the queue"
        );
        while let Some((event, is_for_callback)) = programs.take(&events) {
            assert!(!is_for_callback, "{event:?}");
        }
        assert_eq!((known(now), known(later)), (1, 0));
    }
}
