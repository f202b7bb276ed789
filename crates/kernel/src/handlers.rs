//! Handlers of events: callbacks, a program per event, and signals.
//!
//! In the papers a subscription binds an event to a handler. The kernel sends a signal, the handler
//! asks for the socket and the event, and executes a program that reacts (T-ware). This module has
//! all three steps, and the signal alone.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use crate::bpf::events::EventRequest;
use crate::child_supervisor::{ChildSupervisor, Launcher};
use crate::error::EventsError;
use crate::event::{Event, EventKind, SubscriptionId};
use crate::events::Events;
use crate::exec_handler::{Executable, Report, SocketRef};
use crate::system::{Bell, Worker, check, input, is_ready, poll, use_short_slices};

/// Passes events to handlers, on a thread of its own. Dropping it stops the thread and kills the
/// running programs.
///
/// A handler may bind, change and cancel subscriptions here, including its own.
#[derive(Debug)]
pub struct Handlers {
    /// Dropped first: it starts programs.
    thread: Worker,
    events: Arc<Events>,
    bound: Arc<Mutex<Bound>>,
    programs: ChildSupervisor,
}

/// The reaction to an event.
pub enum Handler {
    /// Calls a function on the thread of the handlers. A slow function delays later events.
    Call(Box<dyn FnMut(&Event) + Send>),
    /// Executes a program, once for each event.
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

/// Called at the end of events.
type OnEnd = Box<dyn FnOnce(&EventsError) + Send>;

#[derive(Default)]
struct Bound {
    /// A handler is absent during its call, which runs without the lock.
    handlers: BTreeMap<SubscriptionId, Option<Binding>>,
    on_end: Option<OnEnd>,
    /// Reason why there are no more events.
    end: Option<Arc<EventsError>>,
}

#[derive(Debug)]
struct Binding {
    handler: Handler,
    socket: SocketRef,
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound")
            .field("handlers", &self.handlers)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl Handlers {
    /// Starts the thread, which takes all events of `events` from now on.
    ///
    /// # Errors
    ///
    /// The system has no thread or descriptor left.
    pub fn start(events: Events) -> io::Result<Self> {
        let events = Arc::new(events);
        let bound: Arc<Mutex<Bound>> = Arc::default();
        let programs = ChildSupervisor::start()?;
        let launcher = programs.launcher();
        let (its_events, its_bound) = (Arc::clone(&events), Arc::clone(&bound));
        let serve = move |stop: &Bell| serve(&its_events, &its_bound, &launcher, stop);
        let thread = Worker::start("tcp-handlers", serve)?;
        Ok(Self {
            thread,
            events,
            bound,
            programs,
        })
    }

    /// Subscribes, and passes the events to the handler. A program inherits the socket as long as
    /// it is open at the same descriptor.
    ///
    /// # Errors
    ///
    /// As [`Events::subscribe`].
    pub fn bind(
        &self,
        socket: impl AsFd,
        wanted: EventRequest,
        handler: Handler,
    ) -> Result<SubscriptionId, EventsError> {
        let fd = socket.as_fd();
        let binding = Binding {
            handler,
            socket: SocketRef::of(fd)?,
        };
        // The lock is held, so no event is passed before its handler is known.
        let mut bound = lock(&self.bound);
        let id = self.events.subscribe(fd, wanted)?;
        bound.handlers.insert(id, Some(binding));
        Ok(id)
    }

    /// Changes the events of a subscription from now on.
    ///
    /// # Errors
    ///
    /// As [`Events::change`].
    pub fn change(&self, id: SubscriptionId, wanted: EventRequest) -> Result<(), EventsError> {
        self.events.change(id, wanted)
    }

    /// Cancels a subscription and drops its handler. A call in progress and a running program
    /// continue.
    ///
    /// # Errors
    ///
    /// As [`Events::cancel`].
    pub fn cancel(&self, id: SubscriptionId) -> Result<(), EventsError> {
        let handler = lock(&self.bound).handlers.remove(&id);
        // Dropped without the lock: its captures may call this module again.
        drop(handler);
        self.events.cancel(id)
    }

    /// Sets the function that receives reports of programs that could not be started, failed, or
    /// were killed at their limit. It runs on the thread that supervises the programs, and delays
    /// that.
    pub fn on_report(&self, on_report: impl FnMut(&Report) + Send + 'static) {
        self.programs.on_report(Box::new(on_report));
    }

    /// Sets the function that is called once when there are no more events, with the reason: the
    /// daemon is gone. If that is so already it is called now, else on the thread of the handlers.
    /// Running programs stay supervised.
    pub fn on_end(&self, on_end: impl FnOnce(&EventsError) + Send + 'static) {
        let mut bound = lock(&self.bound);
        if let Some(end) = bound.end.clone() {
            drop(bound);
            on_end(&end);
            return;
        }
        let before = bound.on_end.replace(Box::new(on_end));
        drop((bound, before));
    }

    /// Whether more events can come. They cannot once the daemon is gone, see [`Self::on_end`].
    pub fn are_serving(&self) -> bool {
        self.thread.is_running() && lock(&self.bound).end.is_none()
    }

    /// The source of the events. Only the handlers should take events from it.
    pub fn events(&self) -> &Events {
        &self.events
    }
}

fn serve(events: &Events, bound: &Mutex<Bound>, programs: &Launcher, stop: &Bell) {
    use_short_slices();
    loop {
        while let Some(event) = events.try_next() {
            handle(bound, programs, &event);
            // The handler may have dropped the handlers.
            if stop.is_rung() {
                return;
            }
        }
        match events.wait(None, Some(stop.as_fd())) {
            Ok(()) if stop.is_rung() => return,
            Ok(()) => {}
            Err(error) => return end(bound, error),
        }
    }
}

fn handle(bound: &Mutex<Bound>, programs: &Launcher, event: &Event) {
    let id = event.subscription;
    let binding = lock(bound).handlers.get_mut(&id).and_then(Option::take);
    let Some(mut binding) = binding else {
        return;
    };
    match &mut binding.handler {
        Handler::Call(call) => call(event),
        Handler::Run(program) => programs.start(program, event, binding.socket),
    }
    let mut bound = lock(bound);
    let mut unused = Some(binding);
    if event.what.kind() == EventKind::Ended {
        bound.handlers.remove(&id);
    } else if let Some(place) = bound.handlers.get_mut(&id) {
        // Otherwise the subscription was cancelled during the call.
        *place = unused.take();
    }
    // Dropped without the lock: its captures may call this module again.
    drop((bound, unused));
}

/// Reports that there are no more events.
fn end(bound: &Mutex<Bound>, error: EventsError) {
    let error = Arc::new(error);
    let mut bound = lock(bound);
    bound.end = Some(Arc::clone(&error));
    let on_end = bound.on_end.take();
    drop(bound);
    if let Some(on_end) = on_end {
        on_end(&error);
    }
}

/// Sends a signal to a thread when there are events, as the papers' kernel does. The receiver takes
/// the events with [`Events::try_next`], preferably outside of the signal handler (`sigwaitinfo`,
/// `signalfd`, or a flag). The next signal follows when there are events again. The last one comes
/// when the daemon is gone, which [`Events::poll`] then reports. Dropping this ends the signals.
#[derive(Debug)]
pub struct Signals {
    taken: Arc<Bell>,
    _thread: Worker,
}

impl Signals {
    /// Sends `signal` to the calling thread.
    ///
    /// # Errors
    ///
    /// The signal does not exist, or the system has no thread or descriptor left.
    pub fn to_this_thread(events: Arc<Events>, signal: i32) -> io::Result<Self> {
        let thread = rustix::thread::gettid().as_raw_pid();
        // Signal 0 checks whether the thread can receive signals.
        send(thread, 0)?;
        if !(1..=libc::SIGRTMAX()).contains(&signal) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let taken = Arc::new(Bell::new()?);
        let its_taken = Arc::clone(&taken);
        let worker = Worker::start("tcp-signals", move |stop| {
            use_short_slices();
            loop {
                let over = events.wait(None, Some(stop.as_fd())).is_err();
                if stop.is_rung() || send(thread, signal).is_err() || over {
                    return;
                }
                // Until the events of this signal are taken.
                while !events.is_empty() {
                    let mut both = [stop, &its_taken].map(|bell| input(bell.as_fd()));
                    if poll(&mut both, Some(CHECK_INTERVAL)).is_err() || is_ready(&both[0]) {
                        return;
                    }
                    its_taken.quiet();
                }
            }
        })?;
        Ok(Self {
            taken,
            _thread: worker,
        })
    }

    /// Reports that all events are taken, so that the next signal comes without delay. Otherwise it
    /// may come up to 10 ms late.
    pub fn rearm(&self) {
        self.taken.ring();
    }
}

fn send(thread: i32, signal: i32) -> io::Result<()> {
    // SAFETY: takes numbers and touches no memory.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
    check(result as i32).map(drop)
}

fn lock(bound: &Mutex<Bound>) -> MutexGuard<'_, Bound> {
    bound.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Interval of the checks whether events were taken.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
