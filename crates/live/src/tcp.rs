//! Media over kernel TCP, without privileges.
//!
//! Socket options keep the backlog in the application, where it can still be dropped.

mod connect;
mod connection_set;
mod listener;
mod service;
mod socket;
mod transport;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use rand_core::Rng;
use tidegate_core::endpoint::Endpoint;
use tidegate_core::random::Seed;
use tidegate_core::session::tcp::{StreamFault, TcpReceiver};
use tidegate_core::trace::Trace;
use tidegate_core::units::{Bytes, Time};

use crate::driver::{DriveError, EndReason, RunLimits, TICK, drive_over};
use crate::tls::{is_certificate_refused, reason};
pub use connect::connect;
pub use connection_set::ConnectionSet;
pub use listener::{Admitted, Listener, Opening, PROBATION, PeerIdentity, Refusal};
pub use service::{Connections, Service, ServiceLimits, ServiceRefusal};
use socket::wait;
pub use socket::{ConnectionObserver, TcpOptions, TcpSocket, set_rto_max};
pub use transport::TcpTransport;

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

/// Drives an endpoint until it is done, the connection ends, or `on_turn` stops it. `on_turn` is called
/// after every event, and at least every [`TICK`].
///
/// # Errors
/// [`TcpError::Closed`] if the peer closes the connection in mid-stream, or an error of the system.
pub fn drive<E: Endpoint>(
    endpoint: &mut E,
    socket: &mut TcpSocket,
    conditions: &RunLimits,
    on_turn: impl FnMut(&mut E, Time) -> ControlFlow<()>,
) -> Result<EndReason, TcpError> {
    let peer = socket.peer();
    let transport = TcpTransport::new(socket);
    // Endpoints over byte streams draw no random numbers and trace nothing.
    let (mut rng, mut trace) = (Seed(0).stream("tcp"), ());
    let shared: (&mut dyn Rng, &mut dyn Trace) = (&mut rng, &mut trace);
    let (_, ended) =
        drive_over(transport, endpoint, conditions, shared, on_turn).map_err(TcpError::System)?;
    match ended {
        Ok(report) => Ok(report.why),
        Err(DriveError::Broken(cause)) => Err(match cause.downcast() {
            Ok(error) => error,
            Err(cause) => TcpError::of(cause, peer),
        }),
        Err(error) => Err(TcpError::System(io::Error::other(error))),
    }
}

/// Drives a receiver until the stream ends, with [`EndReason::Done`] after a BYE of the sender.
/// `on_turn` is called after every read, and at least every [`TICK`]; it fetches the frames.
///
/// # Errors
/// [`TcpError::Closed`] if the sender closes the connection without a BYE, [`TcpError::Silent`] if
/// it has not sent any data by then, [`TcpError::NoStream`] if the data is not a stream, or an
/// error of the system.
pub fn receive(
    receiver: &mut TcpReceiver,
    socket: &mut TcpSocket,
    conditions: &RunLimits,
    on_turn: impl FnMut(&mut TcpReceiver, Time) -> ControlFlow<()>,
) -> Result<EndReason, TcpError> {
    let ended = drive(receiver, socket, conditions, on_turn);
    if let Some(fault) = receiver.fault() {
        let peer = socket.peer;
        return Err(TcpError::NoStream { peer, fault });
    }
    let is_silent = receiver.received().bytes == Bytes::ZERO;
    if ended.as_ref().is_ok_and(|why| *why != EndReason::Done) {
        // If the sender does not receive the BYE, it has closed the connection, or it is not
        // reachable. The stream ends in any case.
        let _ = socket.leave(&receiver.farewell(), LAST_WORDS, conditions);
    }
    ended.map_err(|error| {
        if is_silent {
            error.before_any_data()
        } else {
            error
        }
    })
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

/// Time that a player waits for its sender to close the connection.
const LAST_WORDS: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
