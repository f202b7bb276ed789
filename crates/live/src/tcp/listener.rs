//! Accepts connections on a thread and passes on those whose peer has sent its opening.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, io, mem};

use tidegate_core::session::tcp::{PlayerRtcp, StreamFault, TcpReceiver};
use tidegate_core::trace::RecordLimiter;
use tidegate_core::units::Time;

use super::TcpError;
use super::socket::{TcpSocket, poll, wait};
use crate::clock::Clock;
use crate::driver::{RunLimits, StopFlag, TICK};
use crate::limits::open_files;
use crate::tls::{TlsServer, reason};

/// Data that a peer must send before it is served.
pub trait Opening: Default + fmt::Debug + Send + 'static {
    /// Object of "the peer sent" if the opening is absent.
    const ABSENT: &'static str;
    /// Whether a peer is served that has closed the connection while it waited for its turn.
    const SERVED_AFTER_CLOSE: bool;

    /// Processes bytes of the peer. Returns whether the opening is complete.
    ///
    /// # Errors
    /// The bytes have another format.
    fn advance(
        &mut self,
        now: Time,
        bytes: &[u8],
        identity: PeerIdentity,
    ) -> Result<bool, StreamFault>;
}

/// Whether the peer has proved its identity before its opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerIdentity {
    /// TLS has verified its key or its certificate.
    Verified,
    /// Any host may be the peer.
    Unknown,
}

/// A sender sends a decodable frame. A BYE or single packets are not enough, because they would end
/// or hold a session without any video. An unknown sender sends [`PROBATION`] decodable frames:
/// until then it holds no place, and its end is not the end of the session.
impl Opening for TcpReceiver {
    const ABSENT: &'static str = "no stream of RTP packets (RFC 4571)";
    /// Its stream may be complete.
    const SERVED_AFTER_CLOSE: bool = true;

    fn advance(
        &mut self,
        now: Time,
        bytes: &[u8],
        identity: PeerIdentity,
    ) -> Result<bool, StreamFault> {
        self.on_bytes(now, bytes)?;
        let required = match identity {
            PeerIdentity::Verified => 1,
            PeerIdentity::Unknown => PROBATION,
        };
        Ok(self.skip_to_decodable() >= required)
    }
}

/// A player sends an RTCP packet.
impl Opening for PlayerRtcp {
    const ABSENT: &'static str = "no receiver report (RFC 4571)";
    const SERVED_AFTER_CLOSE: bool = false;

    fn advance(&mut self, _: Time, bytes: &[u8], _: PeerIdentity) -> Result<bool, StreamFault> {
        self.on_bytes(bytes)?;
        Ok(self.has_begun())
    }
}

/// A connection whose peer has sent its opening.
#[derive(Debug)]
pub struct Admitted<O> {
    /// The connection.
    pub socket: TcpSocket,
    /// The opening. Later data is unread.
    pub opening: O,
    /// Time of the connection.
    pub since: Time,
}

/// A connection that is not served.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The system accepts no connection.
    Accept(io::Error),
    /// The peer closed the connection before its opening was complete.
    Closed {
        /// Address of the peer.
        peer: SocketAddr,
        /// Bytes received.
        bytes: u64,
        /// Missing data.
        absent: &'static str,
        /// Error of the system; `None` after an orderly close.
        cause: Option<io::Error>,
    },
    /// The connection was closed in favour of newer ones.
    Crowded {
        /// Address of the peer.
        peer: SocketAddr,
        /// Missing data; `None` if the opening was complete and too many others wait.
        absent: Option<&'static str>,
    },
    /// The opening was not complete in time.
    Late {
        /// Address of the peer.
        peer: SocketAddr,
        /// Missing data.
        absent: &'static str,
        /// Time limit.
        limit: Duration,
    },
    /// The peer closed the connection after its opening, before its turn.
    Left {
        /// Address of the peer.
        peer: SocketAddr,
    },
    /// The data has another format.
    NoStream {
        /// Address of the peer.
        peer: SocketAddr,
        /// Missing data.
        absent: &'static str,
        /// Error in the data.
        fault: StreamFault,
    },
    /// The TLS handshake failed.
    Tls {
        /// Address of the peer.
        peer: SocketAddr,
        /// The reason.
        cause: io::Error,
    },
}

/// Listening socket that serves one peer at a time, and accepts others meanwhile.
///
/// A connection is passed on once its peer has sent its [`Opening`] as a whole. Until then it is
/// one of a bounded number of pending connections: it is closed after a time limit, independent of
/// how much of the opening has arrived, and if there are too many, the oldest one of the network
/// (IPv4 address or IPv6 /64) with the most pending connections is closed.
#[derive(Debug)]
pub struct Listener<O> {
    shared: Arc<Mutex<Shared<O>>>,
    /// That of the thread.
    clock: Clock,
    /// Ends the thread.
    stop: StopFlag,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared<O> {
    ready: VecDeque<Admitted<O>>,
    /// With the number of refusals before that are not reported.
    refusals: VecDeque<(Refusal, u64)>,
    limiter: RecordLimiter,
    failed: Option<io::Error>,
}

impl<O: Opening> Listener<O> {
    /// Starts to accept. Openings must be complete within `limit`. A driver that waits under
    /// `conditions` is woken for each admitted connection; times are those of its clock. With `tls`,
    /// the handshake is a part of the opening.
    ///
    /// # Errors
    /// The thread or its event cannot be created.
    pub fn start(
        listener: TcpListener,
        limit: Duration,
        tls: Option<TlsServer>,
        conditions: &RunLimits,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Mutex::new(Shared {
            ready: VecDeque::new(),
            refusals: VecDeque::new(),
            limiter: RecordLimiter::default(),
            failed: None,
        }));
        let stop = StopFlag::new()?;
        // The rest of the process needs descriptors as well.
        let most = usize::try_from(open_files() / 4).unwrap_or(MAX_PENDING);
        let mut acceptor = Acceptor {
            listener,
            limit,
            tls,
            clock: conditions.clock,
            stop: stop.clone(),
            driver: conditions.stop.clone(),
            most: most.clamp(1, MAX_PENDING),
            pending: Vec::new(),
            paused_until: Time::ZERO,
            shared: Arc::clone(&shared),
        };
        let thread = thread::Builder::new().name("listener".into());
        let thread = thread.spawn(move || {
            let failed = acceptor.run().err();
            lock(&acceptor.shared).failed = failed;
            acceptor.driver.wake();
        })?;
        Ok(Self {
            shared,
            clock: conditions.clock,
            stop,
            thread: Some(thread),
        })
    }

    /// Waits for a connection whose opening is complete. `None` if the stop flag is set or `asked`
    /// returns true before. `refused` gets the refusals since the last call, at most
    /// [`PER_SECOND`](tidegate_core::trace::PER_SECOND), and the number of those in between.
    ///
    /// # Errors
    /// The listener fails.
    pub fn next(
        &self,
        conditions: &RunLimits,
        mut asked: impl FnMut() -> bool,
        mut refused: impl FnMut(&Refusal, u64),
    ) -> Result<Option<Admitted<O>>, TcpError> {
        loop {
            let mut shared = lock(&self.shared);
            shared.close_left(self.clock.now());
            let refusals = mem::take(&mut shared.refusals);
            let ready = shared.ready.pop_front();
            let failed = shared.failed.take();
            drop(shared);
            for (refusal, omitted) in &refusals {
                refused(refusal, *omitted);
            }
            if let Some(failed) = failed {
                return Err(TcpError::System(failed));
            }
            if ready.is_some() {
                return Ok(ready);
            }
            if conditions.stop.is_set() || asked() {
                return Ok(None);
            }
            let now = conditions.clock.now();
            wait(&[], conditions, now, now + TICK).map_err(TcpError::System)?;
        }
    }
}

impl<O: Opening> Shared<O> {
    /// Closes the waiting connections whose peer has left. Each would hold a place of others.
    fn close_left(&mut self, now: Time) {
        if O::SERVED_AFTER_CLOSE {
            return;
        }
        for admitted in mem::take(&mut self.ready) {
            if admitted.socket.has_ended() {
                let peer = admitted.socket.peer();
                self.refuse(now, Refusal::Left { peer });
            } else {
                self.ready.push_back(admitted);
            }
        }
    }

    fn refuse(&mut self, now: Time, refusal: Refusal) {
        if let Some(omitted) = self.limiter.admit(now) {
            // The driver does not take them while it serves a peer.
            if self.refusals.len() == MAX_REFUSALS
                && let Some((_, before)) = self.refusals.pop_front()
                && let Some((_, next)) = self.refusals.front_mut()
            {
                *next += before + 1;
            }
            self.refusals.push_back((refusal, omitted));
        }
    }
}

impl<O> Drop for Listener<O> {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            // A panic was printed by the thread.
            let _ = thread.join();
        }
    }
}

/// State of the thread.
struct Acceptor<O> {
    listener: TcpListener,
    limit: Duration,
    tls: Option<TlsServer>,
    clock: Clock,
    stop: StopFlag,
    driver: StopFlag,
    /// Maximum number of pending connections.
    most: usize,
    /// Oldest first.
    pending: Vec<Pending<O>>,
    /// Time until which the system accepts no connection.
    paused_until: Time,
    shared: Arc<Mutex<Shared<O>>>,
}

/// A connection whose opening is not complete.
#[derive(Debug)]
struct Pending<O> {
    socket: TcpSocket,
    opening: O,
    since: Time,
    bytes: u64,
}

impl<O: Opening> Acceptor<O> {
    fn run(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 16];
        while !self.stop.is_set() {
            let now = self.clock.now();
            self.expire(now);
            let is_paused = now < self.paused_until;
            let listener = if is_paused {
                -1
            } else {
                self.listener.as_raw_fd()
            };
            let mut polled = vec![(listener, libc::POLLIN)];
            polled.extend(self.pending.iter().map(|pending| pending.socket.interest()));
            let due = self.pending.first().map(|oldest| oldest.since + self.limit);
            let resumed = is_paused.then_some(self.paused_until);
            let until = due.into_iter().chain(resumed).min().unwrap_or(Time::FAR);
            let events = poll(&polled, &self.stop, now, until)?;
            let is_ready: Vec<bool> = events.iter().map(|events| *events != 0).collect();
            self.read(&is_ready[1..], &mut buffer);
            if is_ready[0] {
                self.accept();
            }
        }
        Ok(())
    }

    fn expire(&mut self, now: Time) {
        let limit = self.limit;
        let is_late = |pending: &Pending<O>| now.since(pending.since) >= limit;
        let late = self.pending.iter().take_while(|p| is_late(p)).count();
        let late: Vec<SocketAddr> = self
            .pending
            .drain(..late)
            .map(|p| p.socket.peer())
            .collect();
        for peer in late {
            self.refuse(Refusal::Late {
                peer,
                absent: O::ABSENT,
                limit,
            });
        }
    }

    /// Reads from the pending connections that are ready.
    fn read(&mut self, is_ready: &[bool], buffer: &mut [u8]) {
        let now = self.clock.now();
        let identity = match &self.tls {
            Some(tls) if tls.verifies_clients() => PeerIdentity::Verified,
            _ => PeerIdentity::Unknown,
        };
        let mut is_ready = is_ready.iter();
        for mut pending in mem::take(&mut self.pending) {
            if is_ready.next() != Some(&true) {
                self.pending.push(pending);
                continue;
            }
            match pending.read(now, buffer, identity) {
                Ok(false) => self.pending.push(pending),
                Ok(true) => self.admit(pending),
                Err(refusal) => self.refuse(refusal),
            }
        }
        while self.pending.iter().map(|p| p.bytes).sum::<u64>() > MAX_PENDING_BYTES {
            self.evict();
        }
    }

    fn admit(&mut self, pending: Pending<O>) {
        let now = self.clock.now();
        let mut shared = lock(&self.shared);
        shared.close_left(now);
        if shared.ready.len() == MAX_READY {
            let peer = pending.socket.peer();
            return shared.refuse(now, Refusal::Crowded { peer, absent: None });
        }
        shared.ready.push_back(Admitted {
            socket: pending.socket,
            opening: pending.opening,
            since: pending.since,
        });
        drop(shared);
        self.driver.wake();
    }

    /// Accepts a few connections, so that those that are pending are read in between.
    fn accept(&mut self) {
        for _ in 0..BATCH {
            match self.listener.accept() {
                Ok((stream, peer)) => self.add(stream, peer),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // The system lacks descriptors or memory: a pending connection has some.
                Err(e) if is_shortage(&e) && !self.pending.is_empty() => self.evict(),
                // An error of this connection (accept(2)), or a shortage.
                Err(e) => {
                    if is_shortage(&e) {
                        self.paused_until = self.clock.now() + PAUSE;
                        self.refuse(Refusal::Accept(e));
                        return;
                    }
                }
            }
        }
    }

    fn add(&mut self, stream: TcpStream, peer: SocketAddr) {
        if self.pending.len() >= self.most {
            self.evict();
        }
        match TcpSocket::accepted(stream, peer, self.tls.as_ref()) {
            Ok(socket) => self.pending.push(Pending {
                socket,
                opening: O::default(),
                since: self.clock.now(),
                bytes: 0,
            }),
            Err(e) => self.refuse(Refusal::Accept(e)),
        }
    }

    /// Closes the oldest pending connection of the network with the most of them.
    fn evict(&mut self) {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for pending in &self.pending {
            *counts.entry(pending.network()).or_default() += 1;
        }
        let most = counts.values().max();
        let is_victim = |pending: &Pending<O>| counts.get(&pending.network()) == most;
        if let Some(oldest) = self.pending.iter().position(is_victim) {
            let peer = self.pending.remove(oldest).socket.peer();
            let absent = Some(O::ABSENT);
            self.refuse(Refusal::Crowded { peer, absent });
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        lock(&self.shared).refuse(self.clock.now(), refusal);
    }
}

impl<O: Opening> Pending<O> {
    fn network(&self) -> IpAddr {
        network(self.socket.peer().ip())
    }

    /// Reads once. Returns whether the opening is complete.
    fn read(
        &mut self,
        now: Time,
        buffer: &mut [u8],
        identity: PeerIdentity,
    ) -> Result<bool, Refusal> {
        let (peer, absent) = (self.socket.peer(), O::ABSENT);
        let closed = |bytes, cause| Refusal::Closed {
            peer,
            bytes,
            absent,
            cause,
        };
        match self.socket.read(buffer) {
            Ok(None) => Ok(false),
            Ok(Some(0)) => Err(closed(self.bytes, None)),
            Err(cause) if cause.kind() == io::ErrorKind::InvalidData => {
                Err(Refusal::Tls { peer, cause })
            }
            Err(cause) => Err(closed(self.bytes, Some(cause))),
            Ok(Some(count)) => {
                self.bytes += count as u64;
                let bytes = self.bytes;
                let read = self.opening.advance(now, &buffer[..count], identity);
                let read = match read {
                    Ok(false) if bytes > MAX_OPENING => Err(StreamFault::NoFrame { bytes }),
                    read => read,
                };
                read.map_err(|fault| Refusal::NoStream {
                    peer,
                    absent,
                    fault,
                })
            }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept(cause) => write!(f, "the system accepts no connection ({cause})"),
            Self::Closed {
                peer,
                bytes,
                absent,
                cause,
            } => {
                write!(f, "{peer} connected and sent ")?;
                match bytes {
                    0 => f.write_str("nothing")?,
                    bytes => write!(f, "{absent} in {bytes} bytes")?,
                }
                cause
                    .as_ref()
                    .map_or(Ok(()), |cause| write!(f, " ({cause})"))
            }
            Self::Crowded {
                peer,
                absent: Some(absent),
            } => write!(
                f,
                "{peer} connected and sent {absent} before too many others connected"
            ),
            Self::Crowded { peer, absent: None } => {
                write!(f, "{peer} connected while too many others wait")
            }
            Self::Late {
                peer,
                absent,
                limit,
            } => write!(
                f,
                "{peer} connected and sent {absent} within {} s",
                limit.as_secs_f64()
            ),
            Self::Left { peer } => write!(f, "{peer} connected and left before its turn"),
            Self::NoStream {
                peer,
                absent,
                fault,
            } => write!(f, "{peer} connected and sent {absent}: {fault}"),
            Self::Tls { peer, cause } => {
                let cause = reason(cause);
                write!(f, "{peer} connected and failed the TLS handshake: {cause}")
            }
        }
    }
}

/// Addresses that one host may have: an IPv4 address, or an IPv6 /64.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

/// A poisoned lock is usable: no critical section leaves a partial state.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the system lacks descriptors or memory.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM]
        .into_iter()
        .any(|shortage| code == Some(shortage))
}

/// Decodable frames of an unknown sender before it is served. A quarter of a second at 30 frames/s:
/// most of it is not noticed, and a single forged key frame takes no place.
pub const PROBATION: usize = 8;
/// Pending connections. Each may hold an opening of at most [`MAX_OPENING`].
const MAX_PENDING: usize = 64;
/// Bytes that all pending connections have sent.
const MAX_PENDING_BYTES: u64 = 64 << 20;
/// Connections with a complete opening that wait for their turn.
const MAX_READY: usize = 8;
/// Refusals that wait for the driver.
const MAX_REFUSALS: usize = 16;
/// Connections accepted between two reads.
const BATCH: usize = 16;
/// Size of an opening: a frame of 4 MiB, the limit of a receiver, its headers, and a probation of
/// 100 Mb/s.
const MAX_OPENING: u64 = 8 << 20;
/// Time without connections after a shortage of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
