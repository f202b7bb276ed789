//! Many connections of a protocol with requests and responses, on one thread.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, RawFd};
use std::time::Duration;
use std::{fmt, mem};

use tidegate_core::units::Time;

use super::listener::{is_shortage, network};
use super::socket::{poll, set_unsent};
use crate::driver::RunLimits;
use crate::netns::check;

/// A protocol, without its sockets.
pub trait Service {
    /// State of one connection.
    type Connection: fmt::Debug;

    /// A connection was accepted at the address `local` from `peer`.
    fn accept(&mut self, now: Time, local: SocketAddr, peer: SocketAddr) -> Self::Connection;

    /// A connection from `peer` was closed because of a limit.
    fn on_refused(&mut self, now: Time, peer: SocketAddr, refusal: ServiceRefusal);

    /// Maximum number of bytes of the next [`on_bytes`](Self::on_bytes).
    fn room(&self, connection: &Self::Connection) -> usize;

    /// The kernel's least round-trip time of a connection, before each
    /// [`on_bytes`](Self::on_bytes).
    fn on_rtt(&mut self, connection: &mut Self::Connection, rtt: Duration);

    /// Bytes were received.
    fn on_bytes(&mut self, now: Time, connection: &mut Self::Connection, bytes: &[u8]);

    /// Bytes to send.
    fn output<'a>(&self, connection: &'a Self::Connection) -> &'a [u8];

    /// The first `count` bytes of the output were sent.
    fn on_written(&mut self, now: Time, connection: &mut Self::Connection, count: usize);

    /// Sockets with packets that leave over this connection, between its own messages.
    fn sources(&self, _: &Self::Connection) -> Vec<RawFd> {
        Vec::new()
    }

    /// Adds the next of these packets to the output, which is empty. Returns whether there is one.
    fn load(&mut self, _now: Time, _: &mut Self::Connection) -> bool {
        false
    }

    /// The deadline of [`next_timeout`](Self::next_timeout) has passed.
    fn on_timeout(&mut self, now: Time, connection: &mut Self::Connection);

    /// Next deadline.
    fn next_timeout(&self, connection: &Self::Connection) -> Option<Time>;

    /// Whether the connection is closed once its output is sent.
    fn is_over(&self, connection: &Self::Connection) -> bool;

    /// The connection is closed.
    fn on_closed(&mut self, now: Time, connection: Self::Connection);
}

/// Limits of the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceLimits {
    /// Connections.
    pub connections: usize,
    /// Connections of one network: an IPv4 address, or an IPv6 /64.
    pub of_network: usize,
}

/// Reason why a connection was closed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceRefusal {
    /// There are too many connections.
    Connections,
    /// There are too many connections of its network.
    OfNetwork,
}

/// The open connections of a service.
#[derive(Debug)]
pub struct Connections<C> {
    listener: TcpListener,
    limits: ServiceLimits,
    open: Vec<Open<C>>,
    leaving: Vec<Leaving>,
    /// Time until which the system accepts no connection.
    paused_until: Time,
}

#[derive(Debug)]
struct Open<C> {
    stream: TcpStream,
    peer: SocketAddr,
    state: C,
}

/// A connection whose last bytes were sent. Closing it with unread data would reset it, and the peer
/// would lose these bytes.
#[derive(Debug)]
struct Leaving {
    stream: TcpStream,
    until: Time,
}

impl<C: fmt::Debug> Connections<C> {
    /// Serves the connections of a listening socket.
    ///
    /// # Errors
    /// The error of the system.
    pub fn new(listener: TcpListener, limits: ServiceLimits) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            limits,
            open: Vec::new(),
            leaving: Vec::new(),
            paused_until: Time::ZERO,
        })
    }

    /// Waits for events until `until` at most, and processes them.
    ///
    /// # Errors
    /// The event queue fails.
    pub fn turn<S: Service<Connection = C>>(
        &mut self,
        service: &mut S,
        conditions: &RunLimits,
        until: Time,
    ) -> io::Result<()> {
        let now = conditions.clock.now();
        let paused = now < self.paused_until;
        let listener = if paused {
            -1
        } else {
            self.listener.as_raw_fd()
        };
        let mut polled = vec![(listener, libc::POLLIN)];
        let mut counts = Vec::with_capacity(self.open.len());
        for open in &self.open {
            let before = polled.len();
            polled.extend(open.interest(service));
            counts.push(polled.len() - before);
        }
        let leaving = self.leaving.iter();
        polled.extend(leaving.map(|leaving| (leaving.stream.as_raw_fd(), libc::POLLIN)));
        let due = self
            .open
            .iter()
            .filter_map(|open| service.next_timeout(&open.state));
        let resumed = paused.then_some(self.paused_until);
        let leaves = self.leaving.iter().map(|leaving| leaving.until);
        let wake = due.chain(resumed).chain(leaves).min().unwrap_or(until);
        let events = poll(&polled, &conditions.stop, now, wake.min(until))?;
        let now = conditions.clock.now();
        let mut rest = &events[1..];
        let ready = counts.into_iter().map(|count| {
            let (own, others) = rest.split_at(count);
            rest = others;
            own[0] != 0
        });
        let ready: Vec<bool> = ready.collect();
        let leaving: Vec<bool> = rest.iter().map(|events| *events != 0).collect();
        self.serve(service, now, &ready);
        self.leave(now, &leaving);
        if events[0] != 0 {
            self.accept(service, now);
        }
        Ok(())
    }

    /// Closes all connections.
    pub fn close<S: Service<Connection = C>>(&mut self, service: &mut S, now: Time) {
        for open in mem::take(&mut self.open) {
            service.on_closed(now, open.state);
        }
        self.leaving.clear();
    }

    fn serve<S: Service<Connection = C>>(&mut self, service: &mut S, now: Time, ready: &[bool]) {
        let mut ready = ready.iter();
        for mut open in mem::take(&mut self.open) {
            let is_ready = ready.next() == Some(&true);
            if service
                .next_timeout(&open.state)
                .is_some_and(|at| at <= now)
            {
                service.on_timeout(now, &mut open.state);
            }
            match open.turn(service, now, is_ready) {
                Ok(()) if !service.is_over(&open.state) => self.open.push(open),
                Ok(()) if !service.output(&open.state).is_empty() => self.open.push(open),
                Ok(()) => {
                    let until = now + LEAVE_TIME;
                    // A peer that has closed its end fails later.
                    let _ = open.stream.shutdown(Shutdown::Write);
                    self.leaving.push(Leaving {
                        stream: open.stream,
                        until,
                    });
                    service.on_closed(now, open.state);
                }
                Err(_) => service.on_closed(now, open.state),
            }
        }
        let surplus = self.leaving.len().saturating_sub(self.limits.connections);
        self.leaving.drain(..surplus);
    }

    /// Discards what leaving peers send, until they close their end.
    fn leave(&mut self, now: Time, ready: &[bool]) {
        let mut ready = ready.iter();
        self.leaving.retain_mut(|leaving| {
            let is_ready = ready.next() == Some(&true);
            let mut discarded = [0; 4_096];
            let ended = match leaving.stream.read(&mut discarded) {
                Ok(count) => count == 0,
                Err(e) => e.kind() != io::ErrorKind::WouldBlock,
            };
            now < leaving.until && !(is_ready && ended)
        });
    }

    /// Accepts a few connections, so that the others are served in between.
    fn accept<S: Service<Connection = C>>(&mut self, service: &mut S, now: Time) {
        for _ in 0..BATCH {
            let (stream, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(e) if is_shortage(&e) => {
                    self.paused_until = now + PAUSE;
                    return;
                }
                // None is left, or the error is that of one connection (accept(2)).
                Err(_) => return,
            };
            let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
            if let Some(refusal) = self.refusal(peer.ip()) {
                service.on_refused(now, peer, refusal);
                continue;
            }
            let configured = stream
                .set_nonblocking(true)
                .and_then(|()| stream.set_nodelay(true))
                .and_then(|()| set_unsent(&stream, UNSENT));
            let Ok(local) = configured.and_then(|()| stream.local_addr()) else {
                continue;
            };
            let local = SocketAddr::new(local.ip().to_canonical(), local.port());
            let state = service.accept(now, local, peer);
            self.open.push(Open {
                stream,
                peer,
                state,
            });
        }
    }

    fn refusal(&self, peer: IpAddr) -> Option<ServiceRefusal> {
        if self.open.len() >= self.limits.connections {
            return Some(ServiceRefusal::Connections);
        }
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for open in &self.open {
            *counts.entry(network(open.peer.ip())).or_default() += 1;
        }
        let count = counts.get(&network(peer)).copied().unwrap_or(0);
        (count >= self.limits.of_network).then_some(ServiceRefusal::OfNetwork)
    }
}

impl<C> Open<C> {
    /// Descriptors and the events to wait for; that of the connection is the first.
    fn interest<S: Service<Connection = C>>(&self, service: &S) -> Vec<(RawFd, libc::c_short)> {
        let input = service.room(&self.state) > 0;
        let output = !service.output(&self.state).is_empty();
        let events = [(input, libc::POLLIN), (output, libc::POLLOUT)];
        let events = events.iter().filter(|(wanted, _)| *wanted);
        let events = events.fold(0, |sum, (_, event)| sum | event);
        let mut interest = vec![(self.stream.as_raw_fd(), events)];
        if !output {
            let sources = service.sources(&self.state);
            interest.extend(sources.into_iter().map(|source| (source, libc::POLLIN)));
        }
        interest
    }

    /// Reads and writes what is possible. An error is the end of the connection.
    fn turn<S: Service<Connection = C>>(
        &mut self,
        service: &mut S,
        now: Time,
        is_ready: bool,
    ) -> io::Result<()> {
        if is_ready {
            let mut buffer = [0; 4_096];
            let room = service.room(&self.state).min(buffer.len());
            if room > 0 {
                match self.stream.read(&mut buffer[..room]) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(count) => {
                        if let Some(rtt) = round_trip(&self.stream) {
                            service.on_rtt(&mut self.state, rtt);
                        }
                        service.on_bytes(now, &mut self.state, &buffer[..count]);
                    }
                    Err(e) if is_temporary(&e) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        for _ in 0..BATCH {
            while !service.output(&self.state).is_empty() {
                match self.stream.write(service.output(&self.state)) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => service.on_written(now, &mut self.state, count),
                    Err(e) if is_temporary(&e) => return Ok(()),
                    Err(e) => return Err(e),
                }
            }
            if !service.load(now, &mut self.state) {
                break;
            }
        }
        Ok(())
    }
}

/// Least round-trip time of a connection; `None` without a sample.
fn round_trip(stream: &TcpStream) -> Option<Duration> {
    // SAFETY: a tcp_info consists of integers, for which zero is valid.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut size = mem::size_of_val(&info) as libc::socklen_t;
    // SAFETY: `info` is passed with its size.
    let read = check(unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut size,
        )
    });
    let rtt = Duration::from_micros(info.tcpi_min_rtt.into());
    (read.is_ok() && !rtt.is_zero()).then_some(rtt)
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Bytes that wait in the kernel unsent: three packets. The others wait where they can be dropped.
const UNSENT: u32 = 4_096;
/// Connections accepted in one turn, and packets of a connection.
const BATCH: usize = 16;
/// Time without connections after a shortage of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);
/// Time for a peer to read the last bytes and to close its end.
const LEAVE_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
