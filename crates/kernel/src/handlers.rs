//! What is done when an event comes: T-ware in the process, a signal, or a program per event.
//!
//! In the papers a subscription binds an event to a handler: the kernel sends a signal, the handler
//! asks which socket and event it was, and starts a program that reacts (T-ware). All three steps
//! can be had here, and the first alone.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, io};

use crate::bpf::events::Wanted;
use crate::error::EventsError;
use crate::event::{Event, EventKind, SubscriptionId};
use crate::events::Events;
use crate::keeper::{Keeper, Starter};
use crate::system::{Bell, Polled, be_brisk, check, join, poll};
use crate::tware::{Executable, Place, Report};

/// Hands events to handlers, on a thread of its own. Dropping it ends that, and kills the programs
/// that run.
///
/// Handlers may bind, change and cancel here, also themselves.
#[derive(Debug)]
pub struct Handlers {
    events: Arc<Events>,
    bound: Arc<Mutex<Bound>>,
    programs: Keeper,
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

/// Hears of the end.
type Hear = Box<dyn FnOnce(&EventsError) + Send>;

#[derive(Default)]
struct Bound {
    /// A handler is not here while it is at work, so that nothing is locked meanwhile.
    handlers: BTreeMap<SubscriptionId, Option<Binding>>,
    hear_end: Option<Hear>,
    /// Why no events come any more.
    end: Option<Arc<EventsError>>,
}

#[derive(Debug)]
struct Binding {
    handler: Handler,
    socket: Place,
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
    /// The system gives no thread or descriptor.
    pub fn start(events: Events) -> io::Result<Self> {
        let events = Arc::new(events);
        let bound: Arc<Mutex<Bound>> = Arc::default();
        let stop = Arc::new(Bell::new()?);
        let programs = Keeper::start()?;
        let starter = programs.starter();
        let (its_events, its_bound, its_stop) =
            (Arc::clone(&events), Arc::clone(&bound), Arc::clone(&stop));
        let thread = thread::Builder::new()
            .name("tcp-handlers".into())
            .spawn(move || serve(&its_events, &its_bound, &starter, &its_stop))?;
        Ok(Self {
            events,
            bound,
            programs,
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
        let fd = socket.as_fd();
        let binding = Binding {
            handler,
            socket: Place::of(fd).map_err(EventsError::System)?,
        };
        // Nothing is handed out in between, so no event finds no handler.
        let mut bound = lock(&self.bound);
        let id = self.events.subscribe(fd, wanted)?;
        bound.handlers.insert(id, Some(binding));
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

    /// Ends a subscription and forgets the handler. A call that has begun and a program that runs
    /// go on.
    ///
    /// # Errors
    ///
    /// As [`Events::cancel`].
    pub fn cancel(&self, id: SubscriptionId) -> Result<(), EventsError> {
        let handler = lock(&self.bound).handlers.remove(&id);
        // What it holds may come back here when it goes.
        drop(handler);
        self.events.cancel(id)
    }

    /// Hears of programs that could not be started, failed, or were ended because they took too
    /// long: on a thread that looks after the programs, and so keeps them waiting while it hears.
    pub fn on_report(&self, hear: impl FnMut(&Report) + Send + 'static) {
        self.programs.on_report(Box::new(hear));
    }

    /// Hears once that no more events come, and why: the daemon is gone. At once if that is so
    /// already, else on the thread of the handlers. Programs that run are still looked after.
    pub fn on_end(&self, hear: impl FnOnce(&EventsError) + Send + 'static) {
        let mut bound = lock(&self.bound);
        if let Some(end) = bound.end.clone() {
            drop(bound);
            hear(&end);
            return;
        }
        let before = bound.hear_end.replace(Box::new(hear));
        drop((bound, before));
    }

    /// Whether events still come: not after the daemon is gone, which [`Self::on_end`] tells.
    pub fn are_serving(&self) -> bool {
        let goes_on = self.thread.as_ref().is_some_and(|t| !t.is_finished());
        goes_on && lock(&self.bound).end.is_none()
    }

    /// Where the events come from, for everything but taking them.
    pub fn events(&self) -> &Events {
        &self.events
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        self.stop.ring();
        join(self.thread.take());
    }
}

fn serve(events: &Events, bound: &Mutex<Bound>, programs: &Starter, stop: &Bell) {
    be_brisk();
    loop {
        while let Some(event) = events.try_next() {
            handle(bound, programs, &event);
            // A handler may have ended this.
            if is_set(stop.as_fd()) {
                return;
            }
        }
        match events.wait(None, Some(stop.as_fd())) {
            Ok(()) if is_set(stop.as_fd()) => return,
            Ok(()) => {}
            Err(error) => return end(bound, error),
        }
    }
}

fn handle(bound: &Mutex<Bound>, programs: &Starter, event: &Event) {
    let id = event.subscription;
    let place = lock(bound).handlers.get_mut(&id).and_then(Option::take);
    let Some(mut binding) = place else {
        return;
    };
    binding.handle(programs, event);
    let mut bound = lock(bound);
    let left = if event.what.kind() == EventKind::Ended {
        bound.handlers.remove(&id);
        Some(binding)
    } else if let Some(place) = bound.handlers.get_mut(&id) {
        *place = Some(binding);
        None
    } else {
        // It was cancelled meanwhile.
        Some(binding)
    };
    // What it holds may come back here when it goes.
    drop((bound, left));
}

/// Tells that no more events come.
fn end(bound: &Mutex<Bound>, error: EventsError) {
    let error = Arc::new(error);
    let mut bound = lock(bound);
    bound.end = Some(Arc::clone(&error));
    let hear = bound.hear_end.take();
    drop(bound);
    if let Some(hear) = hear {
        hear(&error);
    }
}

impl Binding {
    fn handle(&mut self, programs: &Starter, event: &Event) {
        match &mut self.handler {
            Handler::Call(call) => call(event),
            Handler::Run(program) => programs.start(program, event, self.socket),
        }
    }
}

/// Sends a signal to a thread when there are events, as the papers' kernel does. The receiver takes
/// them with [`Events::try_next`], best outside of the signal's handler (`sigwaitinfo`, `signalfd`,
/// or a flag), and the next signal comes when there are events again. A last one comes when the
/// daemon is gone, which [`Events::poll`] then says. Dropping it ends that.
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
                loop {
                    let over = events.wait(None, Some(its_stop.as_fd())).is_err();
                    if is_set(its_stop.as_fd()) || send(thread, signal).is_err() || over {
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
        join(self.thread.take());
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

/// How often takers are looked after.
const GLANCE: Duration = Duration::from_millis(10);
