//! Event loop that drives endpoints in real time with sockets and a timer.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, io, thread};

use rand_core::Rng;
use tidegate_core::endpoint::Endpoint;
use tidegate_core::timer_queue::TimerQueue;
use tidegate_core::trace::Trace;
use tidegate_core::units::Time;

use self::session::{Session, Shared};
use crate::clock::Clock;
use crate::events::{self, Events, Ready, eventfd};
use crate::transport::{MAX_SOURCES, Transport, UdpTransport};
use crate::udp::Socket;

mod interrupts;
mod session;

pub use interrupts::Interrupts;

/// Wakes or stops a driver from another thread.
#[derive(Clone, Debug)]
pub struct StopFlag {
    event: Arc<OwnedFd>,
    is_set: Arc<AtomicBool>,
}

impl StopFlag {
    /// Creates a flag that is not set.
    ///
    /// # Errors
    ///
    /// The process has too many open files.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            event: Arc::new(eventfd()?),
            is_set: Arc::default(),
        })
    }

    /// Makes the driver poll its endpoint, for example after an encoder has finished.
    pub fn wake(&self) {
        events::ring(self.event.as_fd());
    }

    /// Descriptor that is readable after [`wake`](Self::wake).
    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// The event behind the descriptor.
    pub(crate) fn event(&self) -> &Arc<OwnedFd> {
        &self.event
    }

    /// Resets the descriptor.
    pub(crate) fn clear_wake(&self) {
        events::clear(self.event.as_fd());
    }

    /// Stops the driver immediately.
    pub fn set(&self) {
        self.is_set.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Whether the driver must stop.
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::SeqCst)
    }
}

/// Clock and stop conditions of a driver.
#[derive(Clone, Debug)]
pub struct RunLimits {
    /// Clock of the endpoint.
    pub clock: Clock,
    /// Time limit.
    pub until: Option<Time>,
    /// Flag that stops or wakes the driver.
    pub stop: StopFlag,
}

impl RunLimits {
    /// Sleeps until `at`, or until the stop flag is set, which is checked every [`TICK`].
    pub fn sleep_until(&self, at: Time) {
        while self.clock.now() < at && !self.stop.is_set() {
            thread::sleep(self.clock.until(at).min(TICK));
        }
    }
}

/// Result of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverReport {
    /// Reason of the end.
    pub why: EndReason,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams received.
    pub received: u64,
    /// Datagrams that the kernel rejected, or that were refused by the peer's host.
    pub failures: u64,
    /// No datagram was received, and datagrams were refused for some time until the end.
    pub refused: bool,
}

/// Reason for the end of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The callback stopped it.
    Callback,
    /// The endpoint is done.
    Done,
    /// The stop flag is set.
    Stopped,
    /// The time limit has passed.
    TimeOver,
}

/// Drives one endpoint until it is done; see [`UdpTransport`] for the use of the sockets.
///
/// `on_turn` is called after every input, and at least every [`TICK`], to take rows, print progress
/// or stop. It may change the endpoint.
///
/// # Errors
///
/// See [`DriveError`].
pub fn drive<E: Endpoint>(
    endpoint: &mut E,
    sockets: &mut Vec<Socket>,
    conditions: &RunLimits,
    rng: &mut dyn Rng,
    trace: &mut dyn Trace,
    on_turn: impl FnMut(&mut E, Time) -> ControlFlow<()>,
) -> Result<DriverReport, DriveError> {
    let transport = UdpTransport::new(core::mem::take(sockets));
    let shared = (rng, trace);
    let (transport, result) =
        drive_over(transport, endpoint, conditions, shared, on_turn).map_err(DriveError::System)?;
    *sockets = transport.into_sockets();
    result
}

/// Drives one endpoint over `transport` as [`drive`] does, with a source of randomness and a trace.
/// Returns the transport, still open.
///
/// # Errors
///
/// The timer or the event queue failed.
pub fn drive_over<E: Endpoint, T: Transport>(
    transport: T,
    endpoint: &mut E,
    limits: &RunLimits,
    (rng, trace): (&mut dyn Rng, &mut dyn Trace),
    mut on_turn: impl FnMut(&mut E, Time) -> ControlFlow<()>,
) -> io::Result<(T, Result<DriverReport, DriveError>)> {
    let mut driver = Driver::new(limits, rng, trace)?;
    driver.add(endpoint, transport, None)?;
    loop {
        let ended = driver.turn(|_, endpoint, now| on_turn(endpoint, now))?;
        if let Some(ended) = ended.into_iter().next() {
            return Ok((ended.transport, ended.result));
        }
    }
}

/// Drives many sessions on one thread: endpoints with their transports, the deadlines of all in one
/// queue, and one wait for all.
pub struct Driver<'a, E, T> {
    limits: RunLimits,
    shared: Shared<'a>,
    /// The sessions by number. Numbers of ended sessions are used again.
    sessions: Vec<Option<Session<E, T>>>,
    free: Vec<usize>,
    /// Next step of each session.
    timers: TimerQueue,
    events: Events,
    ready: Ready,
}

/// A session that has ended.
#[derive(Debug)]
pub struct Ended<E, T> {
    /// Its number.
    pub number: usize,
    /// The endpoint.
    pub endpoint: E,
    /// The transport, still open.
    pub transport: T,
    /// Why it ended.
    pub result: Result<DriverReport, DriveError>,
}

impl<'a, E: Endpoint, T: Transport> Driver<'a, E, T> {
    /// A driver without sessions. The sessions share a source of randomness and a trace.
    ///
    /// # Errors
    ///
    /// The process has too many open files.
    pub fn new(
        limits: &RunLimits,
        rng: &'a mut dyn Rng,
        trace: &'a mut dyn Trace,
    ) -> io::Result<Self> {
        let events = Events::new(core::iter::empty(), &limits.stop.event, limits.clock)?;
        Ok(Self {
            shared: Shared {
                clock: limits.clock,
                rng,
                trace,
                outgoing: Vec::with_capacity(2_048),
                incoming: vec![0; LARGEST],
            },
            limits: limits.clone(),
            sessions: Vec::new(),
            free: Vec::new(),
            timers: TimerQueue::new(FIRST_ROOM),
            events,
            ready: Ready::default(),
        })
    }

    /// Adds a session, and returns its number. `wake` wakes this session alone; without it, the
    /// session is woken together with the driver.
    ///
    /// # Errors
    ///
    /// The system cannot watch its sources.
    pub fn add(&mut self, endpoint: E, transport: T, wake: Option<StopFlag>) -> io::Result<usize> {
        let number = self.free.last().copied().unwrap_or(self.sessions.len());
        let first = number * SLOTS;
        for (source, fd) in transport.sources().enumerate() {
            self.events.watch_input(fd, first + source)?;
        }
        if let Some(wake) = &wake {
            self.events.watch_input(wake.event.as_fd(), first + WAKE)?;
        }
        let session = Session::new(endpoint, transport, wake, self.limits.clock.now());
        match self.free.pop() {
            Some(_) => self.sessions[number] = Some(session),
            None => self.sessions.push(Some(session)),
        }
        if number >= self.timers.slots() {
            self.grow();
        }
        self.timers.set(number, Time::ZERO);
        Ok(number)
    }

    /// Number of sessions.
    pub fn len(&self) -> usize {
        self.sessions.len() - self.free.len()
    }

    /// Whether there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until a session has something to do or the stop flag wakes the driver, and lets the
    /// sessions do it. Returns those that have ended.
    ///
    /// `on_turn` is called with the number of a session after each of its inputs, and at least every
    /// [`TICK`]. It may change the endpoint or end the session.
    ///
    /// # Errors
    ///
    /// The timer or the event queue failed.
    pub fn turn(
        &mut self,
        mut on_turn: impl FnMut(usize, &mut E, Time) -> ControlFlow<()>,
    ) -> io::Result<Vec<Ended<E, T>>> {
        let mut ended = Vec::new();
        let now = self.limits.clock.now();
        // A few at a time, so that datagrams are read when many sessions are due.
        for _ in 0..BATCH {
            let (at, number) = self.timers.first();
            if at > now {
                break;
            }
            ended.extend(self.step(number, &mut on_turn, |_, _| Ok(())));
        }
        if !ended.is_empty() {
            return Ok(ended);
        }
        let (next, _) = self.timers.first();
        self.events.wait(next, &mut self.ready)?;
        for index in 0..self.ready.sources().len() {
            let token = self.ready.sources()[index];
            let (number, source) = (token / SLOTS, token % SLOTS);
            ended.extend(
                self.step(number, &mut on_turn, |session, shared| match source {
                    WAKE => {
                        session.wake_up();
                        Ok(())
                    }
                    source => session.hear(shared, source),
                }),
            );
        }
        for number in 0..self.sessions.len() {
            if self.ready.woken()
                && self.sessions[number]
                    .as_ref()
                    .is_some_and(|s| s.wake.is_none())
            {
                ended.extend(self.step(number, &mut on_turn, |session, _| {
                    session.wake_up();
                    Ok(())
                }));
            }
        }
        Ok(ended)
    }

    /// Passes an input to a session and lets it go on. Returns it if it has ended.
    fn step(
        &mut self,
        number: usize,
        on_turn: &mut impl FnMut(usize, &mut E, Time) -> ControlFlow<()>,
        input: impl FnOnce(&mut Session<E, T>, &mut Shared<'a>) -> Result<(), DriveError>,
    ) -> Option<Ended<E, T>> {
        let (shared, limits) = (&mut self.shared, &self.limits);
        // The session may have ended since the event.
        let session = self.sessions.get_mut(number)?.as_mut()?;
        let stepped = input(session, shared).and_then(|()| {
            session.step(shared, limits, |endpoint, now| {
                on_turn(number, endpoint, now)
            })
        });
        let result = match stepped {
            Ok(None) => {
                self.timers.set(number, session.next_step(limits));
                let full = session.transport.is_full();
                if full != session.awaits_room
                    && let Some(source) = session.transport.sources().next()
                {
                    session.awaits_room = full;
                    // If it fails, the next look is a tick later.
                    let _ = self.events.await_room(source, number * SLOTS, full);
                }
                return None;
            }
            Ok(Some(why)) => Ok(session.report(why)),
            Err(error) => Err(error),
        };
        let Session {
            endpoint,
            transport,
            wake,
            ..
        } = self.sessions[number].take()?;
        self.timers.set(number, Time::FAR);
        self.free.push(number);
        for source in transport.sources() {
            self.events.forget(source);
        }
        if let Some(wake) = wake {
            self.events.forget(wake.event.as_fd());
        }
        Some(Ended {
            number,
            endpoint,
            transport,
            result,
        })
    }

    /// Doubles the room of the queue of deadlines.
    fn grow(&mut self) {
        let mut timers = TimerQueue::new(self.timers.slots() * 2);
        for number in 0..self.timers.slots() {
            timers.set(number, self.timers.get(number));
        }
        self.timers = timers;
    }
}

impl<E, T> fmt::Debug for Driver<'_, E, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("limits", &self.limits)
            .field("sessions", &(self.sessions.len() - self.free.len()))
            .finish_non_exhaustive()
    }
}

/// Error of a driver.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// The transport broke.
    #[error("the connection broke: {0}")]
    Broken(io::Error),
    /// The port of the peer is closed (ICMP port unreachable).
    #[error("connection refused by {peer}: start the receiver first, or correct the address")]
    ConnectionRefused {
        /// Address of the peer.
        peer: SocketAddr,
    },
    /// The timer or the event queue failed.
    #[error("the timer or the event queue failed: {0}")]
    System(io::Error),
    /// A datagram exceeds the MTU of the path.
    #[error(
        "a datagram of {length} bytes exceeds the MTU of the path: choose a smaller packet size"
    )]
    TooLarge {
        /// Payload length in bytes.
        length: usize,
    },
    /// Datagrams cannot be sent to the peer.
    #[error("{peer} cannot be reached: {cause}: check the address and the routes of this host")]
    Unreachable {
        /// Address of the peer.
        peer: SocketAddr,
        /// Error of the system.
        cause: io::Error,
    },
}

/// Maximum time between two calls of the callback of a driver, and between two checks of a stop
/// flag.
pub const TICK: Duration = Duration::from_millis(100);
/// Sessions that are processed before sockets are read: about 300 µs.
const BATCH: usize = 32;
/// Event tokens of a session: its sources, and the event of its own flag.
const SLOTS: usize = MAX_SOURCES + 1;
const WAKE: usize = MAX_SOURCES;
/// Room of the queue of deadlines of a driver of few sessions.
const FIRST_ROOM: usize = 4;
/// Maximum UDP payload.
const LARGEST: usize = 65_535;

#[cfg(test)]
mod tests;
