//! Programs per event (T-ware) in the C interface.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, c_char, c_int};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use super::{Handle, Place, Text, User, borrow, done, lock, wanted};
use crate::bpf::events::EventRequest;
use crate::child_supervisor::ChildSupervisor;
use crate::error::EventsError;
use crate::event::{Event, EventKind, SubscriptionId};
use crate::events::Events;
use crate::exec_handler::{Executable, Fault, Report, SocketRef};

/// `tg_program`.
#[repr(C)]
pub(crate) struct CProgram {
    program: Text,
    /// A list that ends with null.
    arguments: Option<NonNull<Text>>,
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
type ReportCallback = extern "C" fn(&CReport, User);

#[unsafe(no_mangle)]
extern "C" fn tg_events_run(
    handle: Option<&Handle>,
    socket: c_int,
    events: u32,
    variables: u64,
    program: Option<&CProgram>,
    id: Place<u64>,
) -> c_int {
    done(handle, |handle| {
        let socket = borrow(socket)?;
        let program = program.ok_or("the program is NULL")?.read()?;
        let (programs, wanted) = (&handle.programs, wanted(events, variables));
        let new = programs.bind(&handle.events, socket, wanted, program)?;
        if let Err(e) = handle.keep_taking() {
            // If the daemon is gone, too, that is the error.
            programs.cancel(&handle.events, new)?;
            return Err(format!("the thread for events cannot be started: {e}").into());
        }
        id.put(new.0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_on_report(
    handle: Option<&Handle>,
    callback: Option<ReportCallback>,
    user: User,
) -> c_int {
    let receiver = callback.map(|callback| Receiver { callback, user });
    let change = |handle: &Handle| {
        handle.programs.reporter.change(receiver);
        Ok(())
    };
    done(handle, change)
}

impl CProgram {
    /// The program, or what is wrong with its description.
    fn read(&self) -> Result<Executable, &'static str> {
        let path = self
            .program
            .get()
            .ok_or("the path of the program is NULL")?;
        let mut program = Executable::new(PathBuf::from(OsStr::from_bytes(path.to_bytes())));
        let argument = |number| {
            // SAFETY: the list ends with null, after which no element is read.
            self.arguments
                .and_then(|list| unsafe { list.add(number).read() }.get())
        };
        for text in (0..).map_while(argument) {
            let text = text.to_str();
            let text = text.map_err(|_| "an argument of the program is not UTF-8")?;
            program.arguments.push(text.to_owned());
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
    user: User,
}

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
        (receiver.callback)(&report, receiver.user);
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
