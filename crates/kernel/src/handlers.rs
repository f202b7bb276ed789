//! What is done when an event comes: T-ware in the process, a signal, or a program per event.
//!
//! In the papers a subscription binds an event to a handler: the kernel sends a signal, the handler
//! asks which socket and event it was, and starts a program that reacts (T-ware). All three steps
//! can be had here, and the first alone.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, io};

use crate::bpf::monitor::Wanted;
use crate::error::EventsError;
use crate::event::{Event, EventKind, SubscriptionId};
use crate::events::Events;
use crate::system::{Bell, Polled, be_brisk, check, cookie, poll};
use crate::tware::{Executable, Programs, Report};

/// Hands events to handlers, on a thread of its own. Dropping it ends that.
#[derive(Debug)]
pub struct Handlers {
    events: Arc<Events>,
    bound: Arc<Mutex<Bound>>,
    stop: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

/// What to do with an event.
pub enum Handler {
    /// Call this, on the thread of the handlers. What takes long delays the events after it.
    Call(Box<dyn FnMut(&Event) + Send>),
    /// Start this program, once for each event.
    Run(Executable),
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(_) => f.write_str("Call"),
            Self::Run(program) => f.debug_tuple("Run").field(program).finish(),
        }
    }
}

/// Hears of programs in trouble.
type Hear = Box<dyn FnMut(&Report) + Send>;

#[derive(Default)]
struct Bound {
    handlers: BTreeMap<SubscriptionId, Binding>,
    programs: Programs,
    reports: Option<Hear>,
}

#[derive(Debug)]
struct Binding {
    handler: Handler,
    fd: RawFd,
    /// Of the socket, which tells it from another one with the same descriptor.
    cookie: u64,
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound")
            .field("handlers", &self.handlers)
            .field("programs", &self.programs)
            .finish_non_exhaustive()
    }
}

impl Handlers {
    /// Starts the thread, which takes all events of `events` from now on.
    ///
    /// # Errors
    ///
    /// The system gives no thread or descriptor.
    pub fn start(events: Events) -> io::Result<Self> {
        let events = Arc::new(events);
        let bound: Arc<Mutex<Bound>> = Arc::default();
        let stop = Arc::new(Bell::new()?);
        let (its_events, its_bound, its_stop) =
            (Arc::clone(&events), Arc::clone(&bound), Arc::clone(&stop));
        let thread = thread::Builder::new()
            .name("tcp-handlers".into())
            .spawn(move || serve(&its_events, &its_bound, &its_stop))?;
        Ok(Self {
            events,
            bound,
            stop,
            thread: Some(thread),
        })
    }

    /// Subscribes, and has the handler do what is to be done with the events. A program gets the
    /// socket as long as it is open at the same descriptor.
    ///
    /// # Errors
    ///
    /// As [`Events::subscribe`].
    pub fn bind(
        &self,
        socket: impl AsFd,
        wanted: Wanted,
        handler: Handler,
    ) -> Result<SubscriptionId, EventsError> {
        // Nothing is handed out in between, so no event finds no handler.
        let mut bound = lock(&self.bound);
        let id = self.events.subscribe(&socket, wanted)?;
        let binding = Binding {
            handler,
            fd: socket.as_fd().as_raw_fd(),
            cookie: cookie(socket.as_fd()).map_err(EventsError::System)?,
        };
        bound.handlers.insert(id, binding);
        Ok(id)
    }

    /// Wants other events from now on.
    ///
    /// # Errors
    ///
    /// As [`Events::change`].
    pub fn change(&self, id: SubscriptionId, wanted: Wanted) -> Result<(), EventsError> {
        self.events.change(id, wanted)
    }

    /// Ends a subscription and forgets the handler. A program that runs goes on.
    ///
    /// # Errors
    ///
    /// As [`Events::cancel`].
    pub fn cancel(&self, id: SubscriptionId) -> Result<(), EventsError> {
        lock(&self.bound).handlers.remove(&id);
        self.events.cancel(id)
    }

    /// Hears of programs that could not be started, failed, or were ended because they took too
    /// long.
    pub fn on_report(&self, hear: impl FnMut(&Report) + Send + 'static) {
        lock(&self.bound).reports = Some(Box::new(hear));
    }

    /// Whether events still come: not after the daemon is gone.
    pub fn are_serving(&self) -> bool {
        self.thread.as_ref().is_some_and(|t| !t.is_finished())
    }

    /// Where the events come from, for everything but taking them.
    pub fn events(&self) -> &Events {
        &self.events
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        self.stop.ring();
        if let Some(thread) = self.thread.take() {
            // If a handler panicked, that was said.
            let _ = thread.join();
        }
    }
}

fn serve(events: &Events, bound: &Mutex<Bound>, stop: &Bell) {
    be_brisk();
    loop {
        while let Some(event) = events.try_next() {
            lock(bound).handle(&event);
        }
        lock(bound).look_after_programs();
        let pause = lock(bound).programs.are_running().then_some(GLANCE);
        // Without the daemon nothing more comes, but programs may still run.
        if events.wait(pause, Some(stop.as_fd())).is_err() || is_set(stop.as_fd()) {
            return;
        }
    }
}

impl Bound {
    fn handle(&mut self, event: &Event) {
        let Some(binding) = self.handlers.get_mut(&event.subscription) else {
            return;
        };
        match &mut binding.handler {
            Handler::Call(call) => call(event),
            Handler::Run(program) => {
                // SAFETY: it is only passed to the kernel, and the descriptor may be closed or
                // another file by now, which the cookie tells.
                let socket = unsafe { BorrowedFd::borrow_raw(binding.fd) };
                let same = cookie(socket).is_ok_and(|c| c == binding.cookie);
                let socket = same.then_some(binding.fd);
                let report = self.programs.start(program, event, socket);
                if let (Some(report), Some(hear)) = (report, &mut self.reports) {
                    hear(&report);
                }
            }
        }
        if event.what.kind() == EventKind::Ended {
            self.handlers.remove(&event.subscription);
        }
    }

    fn look_after_programs(&mut self) {
        for report in self.programs.look_after() {
            if let Some(hear) = &mut self.reports {
                hear(&report);
            }
        }
    }
}

/// Sends a signal to a thread when there are events, as the papers' kernel does. The receiver takes
/// them with [`Events::try_next`], best outside of the signal's handler (`sigwaitinfo`, `signalfd`,
/// or a flag), and the next signal comes when there are events again. Dropping it ends that.
#[derive(Debug)]
pub struct Signals {
    stop: Arc<Bell>,
    taken: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Signals {
    /// Sends `signal` to the calling thread.
    ///
    /// # Errors
    ///
    /// There is no such signal, or the system gives no thread or descriptor.
    pub fn to_this_thread(events: Arc<Events>, signal: i32) -> io::Result<Self> {
        // SAFETY: takes nothing and touches no memory.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
        // Signal 0 only asks whether one could be sent.
        send(thread, 0)?;
        if !(1..=libc::SIGRTMAX()).contains(&signal) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let (stop, taken) = (Arc::new(Bell::new()?), Arc::new(Bell::new()?));
        let (its_stop, its_taken) = (Arc::clone(&stop), Arc::clone(&taken));
        let thread = thread::Builder::new()
            .name("tcp-signals".into())
            .spawn(move || {
                be_brisk();
                while events.wait(None, Some(its_stop.as_fd())).is_ok() {
                    if is_set(its_stop.as_fd()) || send(thread, signal).is_err() {
                        return;
                    }
                    // Until all that this signal was for is taken.
                    while !events.is_empty() {
                        let mut both = [
                            Polled::input(its_stop.as_fd()),
                            Polled::input(its_taken.as_fd()),
                        ];
                        if poll(&mut both, Some(GLANCE)).is_err() || both[0].is_ready() {
                            return;
                        }
                        its_taken.quiet();
                    }
                }
            })?;
        Ok(Self {
            stop,
            taken,
            thread: Some(thread),
        })
    }

    /// Says that all events were taken, so that the next signal comes without delay; else it comes
    /// when that is noticed, within 10 ms.
    pub fn rearm(&self) {
        self.taken.ring();
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.stop.ring();
        if let Some(thread) = self.thread.take() {
            // If it panicked it has said so.
            let _ = thread.join();
        }
    }
}

fn send(thread: i32, signal: i32) -> io::Result<()> {
    // SAFETY: takes numbers and touches no memory.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
    check(result as i32).map(drop)
}

fn is_set(bell: BorrowedFd<'_>) -> bool {
    let mut one = [Polled::input(bell)];
    poll(&mut one, Some(Duration::ZERO)).is_ok() && one[0].is_ready()
}

fn lock(bound: &Mutex<Bound>) -> MutexGuard<'_, Bound> {
    bound.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often programs and takers are looked after.
const GLANCE: Duration = Duration::from_millis(10);
