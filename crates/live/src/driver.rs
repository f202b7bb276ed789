//! Event loop that drives an endpoint in real time with sockets and a timer.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, io, thread};

use rand_core::Rng;
use tidegate_core::control::Context;
use tidegate_core::endpoint::{Datagram, Endpoint, Input, Output, Transmit};
use tidegate_core::trace::Trace;
use tidegate_core::units::Time;
use tidegate_core::wire::rtcp;

use crate::clock::Clock;
use crate::events::{self, Events, Ready, eventfd};
use crate::udp::{Arrival, Socket};

mod interrupts;

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
        events::ring(self.event.as_raw_fd());
    }

    /// Descriptor that is readable after [`wake`](Self::wake).
    pub(crate) fn event_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// The event behind the descriptor.
    pub(crate) fn event(&self) -> &Arc<OwnedFd> {
        &self.event
    }

    /// Resets the descriptor.
    pub(crate) fn clear_wake(&self) {
        events::clear(self.event.as_raw_fd());
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

/// Drives an endpoint until it is done. Datagrams of all sockets are passed to the endpoint, and
/// its datagrams are sent from the first socket, RTCP from that of [`Socket::rtcp`], if there is one.
/// Sockets for RTCP from other ports
/// ([`Socket::from_host`]) are closed when a report that the endpoint believes arrives at the first
/// socket: the peer multiplexes RTCP with RTP (RFC 5761 section 5.1.1).
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
    assert!(!sockets.is_empty(), "an endpoint needs a socket to send by");
    let watched = sockets.iter().map(std::os::fd::AsFd::as_fd);
    let events = Events::new(watched, &conditions.stop.event, conditions.clock)
        .map_err(DriveError::System)?;
    let mut driver = Driver {
        now: conditions.clock.now(),
        clock: conditions.clock,
        endpoint,
        sockets,
        rng,
        trace,
        events,
        ready: Ready::default(),
        outgoing: Vec::with_capacity(2_048),
        incoming: vec![0; LARGEST],
        counts: DriverReport {
            why: EndReason::Done,
            sent: 0,
            received: 0,
            failures: 0,
            refused: false,
        },
        refusals: Refusals::default(),
        last: Output::Wait(None),
    };
    driver.run(conditions, on_turn)
}

struct Driver<'a, E> {
    endpoint: &'a mut E,
    sockets: &'a mut Vec<Socket>,
    rng: &'a mut dyn Rng,
    trace: &'a mut dyn Trace,
    clock: Clock,
    /// Time of the last input. The arrival time of a datagram may precede a timeout that is already
    /// processed, but the time of the endpoint must not decrease.
    now: Time,
    events: Events,
    ready: Ready,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    counts: DriverReport,
    /// Refusals before the first received datagram.
    refusals: Refusals,
    /// The output with which the last poll of the endpoint ended.
    last: Output,
}

impl<E: Endpoint> Driver<'_, E> {
    fn run(
        &mut self,
        conditions: &RunLimits,
        mut on_turn: impl FnMut(&mut E, Time) -> ControlFlow<()>,
    ) -> Result<DriverReport, DriveError> {
        let until = conditions.until.unwrap_or(Time::FAR);
        self.drain(None)?;
        loop {
            if self
                .last
                .timer()
                .is_some_and(|(at, _)| at <= self.clock.now())
            {
                self.time_out()?;
            }
            self.advance(self.clock.now());
            let asked = on_turn(self.endpoint, self.now).is_break();
            // The callback may have changed the endpoint.
            self.drain(None)?;
            let why = match () {
                () if self.last.is_done() => EndReason::Done,
                () if asked => EndReason::Callback,
                () if conditions.stop.is_set() => EndReason::Stopped,
                () if self.now >= until => EndReason::TimeOver,
                () => {
                    self.wait(until)?;
                    continue;
                }
            };
            let refused = self.counts.received == 0 && self.refusals.are_final(self.now);
            return Ok(DriverReport {
                why,
                refused,
                ..self.counts
            });
        }
    }

    /// Sleeps until an event, and reads the received datagrams.
    fn wait(&mut self, until: Time) -> Result<(), DriveError> {
        let next = self.last.timer().map_or(Time::FAR, |(at, _)| at);
        let wake = next.min(until).min(self.now + TICK);
        let waited = self.events.wait(wake, &mut self.ready);
        waited.map_err(DriveError::System)?;
        for i in 0..self.ready.sources().len() {
            self.hear(self.ready.sources()[i])?;
        }
        if self.ready.woken() {
            self.time_out()?;
        }
        Ok(())
    }

    /// Reads up to [`BATCH`] datagrams. The event queue is level-triggered and reports the rest.
    fn hear(&mut self, socket: usize) -> Result<(), DriveError> {
        for _ in 0..BATCH {
            // The socket may have been closed since the event.
            let Some(source) = self.sockets.get_mut(socket) else {
                break;
            };
            let mut buffer = core::mem::take(&mut self.incoming);
            let heard = match source.receive(self.clock, &mut buffer) {
                Ok(Some(arrival)) => Some(self.on_arrival(socket, arrival, &buffer)),
                Ok(None) => None,
                Err(e) => Some(self.on_failure(socket, e)),
            };
            self.incoming = buffer;
            match heard {
                Some(result) => result?,
                None => break,
            }
        }
        Ok(())
    }

    fn on_arrival(
        &mut self,
        socket: usize,
        arrival: Arrival,
        buffer: &[u8],
    ) -> Result<(), DriveError> {
        self.advance(arrival.at);
        self.counts.received += 1;
        let payload = &buffer[..arrival.length];
        let (mut cx, endpoint) = self.cx();
        if arrival.is_new_peer {
            endpoint.handle(&mut cx, Input::PeerChanged);
        }
        let Arrival { ecn, dscp, .. } = arrival;
        let datagram = Datagram { ecn, dscp, payload };
        let check = endpoint.handle(&mut cx, Input::Datagram(datagram));
        self.sockets[socket].on_check(check.source);
        if socket == 0 && rtcp::is_rtcp(payload) && check.is_believed {
            self.sockets.retain(|socket| !socket.is_rtcp_fallback());
        }
        self.drain(Some(socket))
    }

    fn time_out(&mut self) -> Result<(), DriveError> {
        self.advance(self.clock.now());
        let (mut cx, endpoint) = self.cx();
        endpoint.handle(&mut cx, Input::Timeout);
        self.drain(None)
    }

    /// Sends the datagrams of the endpoint. Answers leave from the socket `heard`, by which the last
    /// datagram came.
    fn drain(&mut self, heard: Option<usize>) -> Result<(), DriveError> {
        let mut buffer = core::mem::take(&mut self.outgoing);
        let result = loop {
            buffer.clear();
            let (mut cx, endpoint) = self.cx();
            let output = endpoint.poll(&mut cx, &mut buffer);
            let sent = match output {
                Output::Answer => {
                    self.answer(heard, &buffer);
                    Ok(())
                }
                Output::Send(how) => self.send(&buffer, how),
                Output::Done(_) | Output::Wait(_) => {
                    self.last = output;
                    break Ok(());
                }
            };
            if sent.is_err() {
                break sent;
            }
        };
        self.outgoing = buffer;
        result
    }

    fn send(&mut self, payload: &[u8], how: Transmit) -> Result<(), DriveError> {
        let from = self.socket_for(payload);
        match self.sockets[from].send(payload, how) {
            Ok(()) => self.counts.sent += 1,
            Err(e) if e.raw_os_error() == Some(libc::EMSGSIZE) => {
                let length = payload.len();
                return Err(DriveError::TooLarge { length });
            }
            Err(e) => self.on_failure(from, e)?,
        }
        Ok(())
    }

    /// Sends an answer to the source of the last datagram. A failure concerns this source only, which
    /// need not exist.
    fn answer(&mut self, heard: Option<usize>, payload: &[u8]) {
        let socket = heard.and_then(|heard| self.sockets.get_mut(heard));
        match socket.map(|socket| socket.answer(payload)) {
            Some(Ok(())) => self.counts.sent += 1,
            Some(Err(_)) | None => self.counts.failures += 1,
        }
    }

    /// The socket that sends a datagram.
    fn socket_for(&self, datagram: &[u8]) -> usize {
        let mut sockets = self.sockets.iter();
        let for_rtcp = sockets.position(Socket::is_for_rtcp);
        for_rtcp.filter(|_| rtcp::is_rtcp(datagram)).unwrap_or(0)
    }

    /// A datagram that could not be sent, or was refused, counts as lost. It is an error if no
    /// datagram was ever received and the failures persist for [`REFUSALS`].
    fn on_failure(&mut self, socket: usize, cause: io::Error) -> Result<(), DriveError> {
        self.counts.failures += 1;
        let known = self.sockets.get(socket).and_then(Socket::peer);
        let known = known.or(self.sockets[0].peer());
        let Some(peer) = known.filter(|_| self.counts.received == 0) else {
            return Ok(());
        };
        if matches!(
            cause.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
        ) {
            return Ok(());
        }
        if self.refusals.add(self.clock.now()) < REFUSALS {
            return Ok(());
        }
        Err(match cause.kind() {
            io::ErrorKind::ConnectionRefused => DriveError::ConnectionRefused { peer },
            _ => DriveError::Unreachable { peer, cause },
        })
    }

    fn advance(&mut self, to: Time) {
        self.now = self.now.max(to);
    }

    fn cx(&mut self) -> (Context<'_>, &mut E) {
        let cx = Context {
            now: self.now,
            rng: self.rng,
            trace: self.trace,
        };
        (cx, self.endpoint)
    }
}

/// First and last time of the present series of refused datagrams.
#[derive(Clone, Copy, Debug, Default)]
struct Refusals(Option<(Time, Time)>);

impl Refusals {
    /// Adds a refusal, and returns the duration of the series.
    fn add(&mut self, now: Time) -> Duration {
        let row = self.0.filter(|_| self.go_on(now));
        let (first, _) = row.unwrap_or((now, now));
        self.0 = Some((first, now));
        now.since(first)
    }

    fn go_on(self, now: Time) -> bool {
        self.0.is_some_and(|(_, last)| now.since(last) < LULL)
    }

    /// Whether they explain the end at `now`. A receiver may leave at the first of several BYEs.
    fn are_final(self, now: Time) -> bool {
        let began = self.0.filter(|_| self.go_on(now));
        began.is_some_and(|(first, _)| now.since(first) > FAREWELL)
    }
}

/// Error of a driver.
#[derive(Debug)]
#[non_exhaustive]
pub enum DriveError {
    /// The port of the peer is closed (ICMP port unreachable).
    ConnectionRefused {
        /// Address of the peer.
        peer: SocketAddr,
    },
    /// The timer or the event queue failed.
    System(io::Error),
    /// A datagram exceeds the MTU of the path.
    TooLarge {
        /// Payload length in bytes.
        length: usize,
    },
    /// Datagrams cannot be sent to the peer.
    Unreachable {
        /// Address of the peer.
        peer: SocketAddr,
        /// Error of the system.
        cause: io::Error,
    },
}

impl fmt::Display for DriveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConnectionRefused { peer } => write!(
                f,
                "connection refused by {peer}: start the receiver first, or correct the address"
            ),
            Self::System(e) => write!(f, "the timer or the event queue failed: {e}"),
            Self::TooLarge { length } => write!(
                f,
                "a datagram of {length} bytes exceeds the MTU of the path: choose a smaller packet \
                 size"
            ),
            Self::Unreachable { peer, cause } => write!(
                f,
                "{peer} cannot be reached: {cause}: check the address and the routes of this host"
            ),
        }
    }
}

/// The message includes the error of the system.
impl std::error::Error for DriveError {}

/// Maximum time between two calls of the callback of a driver, and between two checks of a stop
/// flag.
pub const TICK: Duration = Duration::from_millis(100);
/// Duration of refusals after which the driver fails. A receiver may start slightly later than its
/// sender.
const REFUSALS: Duration = Duration::from_secs(3);
/// Maximum gap within a series of refusals. A Linux host sends one ICMP error per second.
const LULL: Duration = Duration::from_secs(2);
/// Longer than the time from the first to the last BYE of a sender.
const FAREWELL: Duration = Duration::from_millis(300);
/// Reading takes about 5 µs per datagram. After this many, a paced packet may be due.
const BATCH: usize = 32;
/// Maximum UDP payload.
const LARGEST: usize = 65_535;

#[cfg(test)]
mod tests;
