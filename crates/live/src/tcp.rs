//! Media over kernel TCP, without privileges.
//!
//! Socket options keep the backlog in the application, where it can still be dropped. An event loop
//! drives a [`TcpSender`] with its encoder, or a [`TcpReceiver`].

mod connect;
mod connection_set;
mod listener;
mod service;
mod socket;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use tidegate_core::session::stream::EncodePipe;
use tidegate_core::session::tcp::{StreamFault, TcpReceiver, TcpSender, TcpStreamer};
use tidegate_core::units::Time;

use crate::driver::{RunLimits, TICK};
use crate::tls::{is_certificate_refused, reason};
pub use connect::connect;
pub use connection_set::ConnectionSet;
pub use listener::{Admitted, Listener, Opening, Refusal};
pub use service::{Connections, Service, ServiceLimits, ServiceRefusal};
use socket::wait;
pub use socket::{ConnectionObserver, TcpOptions, TcpSocket, set_rto_max};

/// Waits for a connection until the stop flag is set or `asked` returns true. Returns the address
/// of the peer as well, because the system no longer reports it after a reset of the connection.
///
/// # Errors
/// If the listener fails.
pub fn accept(
    listener: &TcpListener,
    conditions: &RunLimits,
    mut asked: impl FnMut() -> bool,
) -> Result<Option<(TcpStream, SocketAddr)>, TcpError> {
    listener.set_nonblocking(true).map_err(TcpError::System)?;
    loop {
        if conditions.stop.is_set() || asked() {
            return Ok(None);
        }
        match listener.accept() {
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
            Ok(connected) => return Ok(Some(connected)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let now = conditions.clock.now();
                let fd = listener.as_raw_fd();
                wait(&[(fd, libc::POLLIN)], conditions, now, now + TICK)
                    .map_err(TcpError::System)?;
            }
            Err(e) => return Err(TcpError::System(e)),
        }
    }
}

/// End of a stream at its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderEnd {
    /// Stopped by the callback or the stop flag.
    Callback,
    /// The whole stream and its BYE were sent.
    Everything,
    /// The player sent a BYE.
    PlayerLeft,
}

/// Drives a sender until it has sent everything, the connection ends, or `on_turn` stops it.
/// `on_turn` is called after every event, and at least every [`TICK`].
///
/// All data of the peer except for a BYE is discarded.
///
/// # Errors
/// [`TcpError::Closed`] if the peer closes the connection in mid-stream, or an error of the system.
pub fn send<P: EncodePipe>(
    stream: &mut TcpStreamer<P>,
    socket: &mut TcpSocket,
    conditions: &RunLimits,
    mut on_turn: impl FnMut(&mut TcpStreamer<P>, Time) -> ControlFlow<()>,
) -> Result<SenderEnd, TcpError> {
    let peer = socket.peer;
    let gone = |cause: io::Error| TcpError::of(cause, peer);
    // A player that left while it waited for its turn gets no data.
    let read = listen(socket);
    if socket.player.has_left() {
        return Ok(SenderEnd::PlayerLeft);
    }
    ended(read, peer)?;
    loop {
        let now = conditions.clock.now();
        hear(&mut stream.sender, socket, now).map_err(gone)?;
        let backlog = stream.sender.backlog();
        socket.check_stall(now, backlog.unsent + backlog.unacknowledged)?;
        // First, so that a new rate applies to a picture that is due now.
        let asked = on_turn(stream, now).is_break() || conditions.stop.is_set();
        stream.turn(now);
        let written = write_all(stream, socket, now);
        // The peer may have sent a BYE before writes failed.
        let read = listen(socket);
        if socket.player.has_left() {
            return Ok(SenderEnd::PlayerLeft);
        }
        let full = written.map_err(gone)?;
        if stream.sender.is_done() {
            return Ok(SenderEnd::Everything);
        }
        if asked {
            return Ok(SenderEnd::Callback);
        }
        ended(read, peer)?;
        let next = stream.sender.next_timeout().unwrap_or(Time::FAR);
        let room = if stream.sender.waits_for_room() {
            now + ROOM
        } else {
            Time::FAR
        };
        let events = libc::POLLIN | if full { libc::POLLOUT } else { 0 };
        let until = next.min(now + TICK).min(room);
        let own = (socket.stream.as_raw_fd(), events);
        let watch = socket.events().map_or(-1, |events| events.as_raw_fd());
        wait(&[own, (watch, libc::POLLIN)], conditions, now, until).map_err(TcpError::System)?;
    }
}

/// Passes events and state of the connection to the sender.
fn hear(sender: &mut TcpSender, socket: &mut TcpSocket, now: Time) -> io::Result<()> {
    let (unsent, unacknowledged) = socket.backlog()?;
    sender.on_kernel(unsent, unacknowledged);
    while let Some((told, view)) = socket.next_event(now)? {
        sender.on_event(now, told, &view);
    }
    if let Some(view) = socket.view(now)? {
        sender.on_view(now, &view);
    }
    Ok(())
}

/// Writes to the socket until it is full or no data is left; returns whether it is full.
fn write_all<P: EncodePipe>(
    stream: &mut TcpStreamer<P>,
    socket: &mut TcpSocket,
    now: Time,
) -> io::Result<bool> {
    loop {
        let bytes = stream.sender.poll_write(now);
        if bytes.is_empty() {
            return Ok(false);
        }
        let count = socket.write(bytes)?;
        if count == 0 {
            return Ok(true);
        }
        stream.sender.on_written(now, count);
        if let Some(view) = socket.view(now)? {
            // The written data affects the next decision.
            stream.sender.on_view(now, &view);
            stream.turn(now);
        }
    }
}

/// Whether the peer may send more data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Open,
    End,
}

fn listen(socket: &mut TcpSocket) -> io::Result<Reading> {
    let mut buffer = [0; 4_096];
    while let Some(count) = socket.read(&mut buffer)? {
        if count == 0 {
            return Ok(Reading::End);
        }
        // Packets of another format are ignored once the player is served.
        let _ = socket.player.on_bytes(&buffer[..count]);
    }
    Ok(Reading::Open)
}

/// # Errors
/// The peer has closed the connection.
fn ended(read: io::Result<Reading>, peer: SocketAddr) -> Result<(), TcpError> {
    match read {
        Ok(Reading::Open) => Ok(()),
        Ok(Reading::End) => Err(TcpError::Closed { peer, cause: None }),
        Err(cause) => Err(TcpError::of(cause, peer)),
    }
}

/// End of a stream at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverEnd {
    /// Stopped by the callback, the stop flag or the time limit.
    Callback,
    /// The sender sent a BYE.
    Bye,
}

/// Drives a receiver until the stream ends. `on_turn` is called after every read, and at least
/// every [`TICK`]; it fetches the frames.
///
/// # Errors
/// [`TcpError::Closed`] if the sender closes the connection without a BYE, [`TcpError::Silent`] if
/// it has not sent any data by then, [`TcpError::NoStream`] if the data is not a stream, or an
/// error of the system.
pub fn receive(
    receiver: &mut TcpReceiver,
    socket: &mut TcpSocket,
    conditions: &RunLimits,
    mut on_turn: impl FnMut(&mut TcpReceiver, Time) -> ControlFlow<()>,
) -> Result<ReceiverEnd, TcpError> {
    let peer = socket.peer;
    let mut buffer = vec![0; 1 << 16];
    let mut silent = receiver.codec().is_none();
    loop {
        let now = conditions.clock.now();
        let asked = on_turn(receiver, now).is_break() || conditions.stop.is_set();
        if receiver.is_over() {
            return Ok(ReceiverEnd::Bye);
        }
        if asked || conditions.until.is_some_and(|until| now >= until) {
            // If the sender does not receive the BYE, it has closed the connection, or it is not
            // reachable. The stream ends in any case.
            let _ = socket.leave(&receiver.farewell(), LAST_WORDS, conditions);
            return Ok(ReceiverEnd::Callback);
        }
        let read = socket.read(&mut buffer);
        let now = conditions.clock.now();
        let gone = |error: TcpError| {
            if silent {
                error.before_any_data()
            } else {
                error
            }
        };
        match read.map_err(|cause| gone(TcpError::of(cause, peer)))? {
            Some(0) => {
                receiver.finish();
                // The stream ends in any case.
                let _ = on_turn(receiver, now);
                return Err(gone(TcpError::Closed { peer, cause: None }));
            }
            Some(count) => {
                silent = false;
                receiver
                    .on_bytes(now, &buffer[..count])
                    .map_err(|fault| TcpError::no_stream(peer, fault))?;
            }
            None => {
                let fd = socket.stream.as_raw_fd();
                let until = conditions.until.unwrap_or(Time::FAR).min(now + TICK);
                wait(&[(fd, libc::POLLIN)], conditions, now, until).map_err(TcpError::System)?;
            }
        }
    }
}

/// Error of a connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TcpError {
    /// The peer closed the connection before the end of the stream.
    #[error("{}", closed(.peer, .cause.as_ref()))]
    Closed {
        /// Address of the peer.
        peer: SocketAddr,
        /// Error of the system; `None` after an orderly close.
        cause: Option<io::Error>,
    },
    /// The peer closed the connection without having sent any data.
    #[error(
        "{peer} closed the connection before sending any data{}; see the messages of the peer",
        in_brackets(.cause.as_ref())
    )]
    Silent {
        /// Address of the peer.
        peer: SocketAddr,
        /// Error of the system; `None` after an orderly close.
        cause: Option<io::Error>,
    },
    /// The data of the peer is not a stream.
    #[error(
        "{peer} sends no stream of RTP packets (RFC 4571): {fault}; is it `tidegate send \
         --transport tcp`?"
    )]
    NoStream {
        /// Address of the peer.
        peer: SocketAddr,
        /// Error in the data.
        fault: StreamFault,
    },
    /// The player does not acknowledge the data in the socket.
    #[error("{peer} has not acknowledged the data in the socket for {} s: the player hangs, or the \
         path is interrupted; a longer --idle-timeout waits longer", .limit.as_secs_f64())]
    Stalled {
        /// Address of the peer.
        peer: SocketAddr,
        /// Time limit.
        limit: Duration,
    },
    /// The system rejects a socket option.
    #[error("this system rejects {option}: {cause}; omit the option, or choose a supported value")]
    Option {
        /// Name of the option, and the command-line option that sets it.
        option: &'static str,
        /// Error of the system.
        cause: io::Error,
    },
    /// The socket or the event queue failed.
    #[error("the socket or its event queue failed: {0}")]
    System(io::Error),
    /// TLS failed.
    #[error("{}", tls_failed(.peer, .cause))]
    Tls {
        /// Address of the peer.
        peer: SocketAddr,
        /// The reason.
        cause: io::Error,
    },
}

impl TcpError {
    fn of(cause: io::Error, peer: SocketAddr) -> Self {
        use io::ErrorKind as Kind;
        match cause.kind() {
            Kind::BrokenPipe
            | Kind::ConnectionAborted
            | Kind::ConnectionReset
            | Kind::HostUnreachable
            | Kind::NetworkDown
            | Kind::NetworkUnreachable
            | Kind::NotConnected
            | Kind::TimedOut => Self::Closed {
                peer,
                cause: Some(cause),
            },
            Kind::InvalidData => Self::Tls { peer, cause },
            _ => Self::System(cause),
        }
    }

    const fn no_stream(peer: SocketAddr, fault: StreamFault) -> Self {
        Self::NoStream { peer, fault }
    }

    /// The same error for a peer that has not sent any data.
    fn before_any_data(self) -> Self {
        match self {
            Self::Closed { peer, cause } => Self::Silent { peer, cause },
            other => other,
        }
    }
}

fn closed(peer: &SocketAddr, cause: Option<&io::Error>) -> String {
    match cause {
        None => format!(
            "{peer} closed the connection in mid-stream: it was stopped, or has failed; see its last \
             messages"
        ),
        Some(cause) => format!(
            "the connection to {peer} broke in mid-stream: {cause}; see the last messages of the \
             peer, and check the path"
        ),
    }
}

fn in_brackets(cause: Option<&io::Error>) -> String {
    cause.map_or_else(String::new, |cause| format!(" ({cause})"))
}

fn tls_failed(peer: &SocketAddr, cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => format!(
            "{peer} closed the connection during the TLS handshake: does it have --tls-cert?"
        ),
        io::ErrorKind::TimedOut => format!(
            "{peer} did not complete the TLS handshake in time: does it have --tls-cert, and serve no \
             other peer?"
        ),
        _ if is_certificate_refused(cause) => format!(
            "{peer} accepts only ends with a certificate that it knows: give --tls-cert and --tls-key, \
             and at the other end --tls-client-fingerprint or --tls-client-ca"
        ),
        _ => format!(
            "TLS with {peer} failed: {}; check --tls-fingerprint or --tls-ca at the connecting end, and \
             --tls-cert at the listening one",
            reason(cause)
        ),
    }
}

/// Polling interval while a frame waits for room. The system does not notify of acknowledgements,
/// and a poll costs a few microseconds.
const ROOM: Duration = Duration::from_millis(5);
/// Time that a player waits for its sender to close the connection.
const LAST_WORDS: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
