//! Kernel TCP without privilege: a socket with the options that keep a backlog where it can still
//! be dropped, and a loop that drives a [`TcpSender`] with its encoder.

mod connect;
mod linear;
mod socket;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::os::fd::AsRawFd as _;
use std::time::Duration;
use std::{fmt, io};

use tidegate_core::session::stream::EncodePipe;
use tidegate_core::session::tcp::{Listener, StreamFault, TcpReceiver, TcpSender, TcpStreamer};
use tidegate_core::units::Time;

use crate::driver::{Conditions, TICK};
pub use connect::connect;
use socket::wait;
pub use socket::{TcpOptions, TcpSocket, Watch, set_rto_max};

/// Waits for somebody to connect, until the stop flag is set or `asked` says so. Comes with who it
/// is, which the system no longer tells of one who has reset the connection meanwhile.
///
/// # Errors
/// When the listener fails.
pub fn accept(
    listener: &TcpListener,
    conditions: &Conditions,
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

/// How a stream ended at its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The callback or the stop flag wanted it.
    Asked,
    /// Everything was said, and a goodbye.
    Everything,
    /// The player said goodbye.
    PlayerLeft,
}

/// Drives a sender until it has said everything, the connection ends, or `on_turn` wants it.
/// `on_turn` is called whenever something happened, and at least every [`TICK`].
///
/// Whatever the peer says but a goodbye is read and passed over.
///
/// # Errors
/// [`TcpError::Closed`] when the peer left in mid-stream, and what else the system says.
pub fn send<P: EncodePipe>(
    stream: &mut TcpStreamer<P>,
    socket: &mut TcpSocket,
    conditions: &Conditions,
    mut on_turn: impl FnMut(&mut TcpStreamer<P>, Time) -> ControlFlow<()>,
) -> Result<Sent, TcpError> {
    let peer = socket.peer;
    let gone = |cause: io::Error| TcpError::of(cause, peer);
    let mut listener = Listener::default();
    loop {
        let now = conditions.clock.now();
        hear(&mut stream.sender, socket, now).map_err(gone)?;
        // First, so that news of the rate holds for a picture that is due now.
        let asked = on_turn(stream, now).is_break() || conditions.stop.is_set();
        stream.turn(now);
        let written = write_all(stream, socket, now);
        // Who has left may have said so before writes began to fail.
        let read = listen(&mut listener, socket);
        if listener.has_left() {
            return Ok(Sent::PlayerLeft);
        }
        let full = written.map_err(gone)?;
        if stream.sender.is_done() {
            return Ok(Sent::Everything);
        }
        if asked {
            return Ok(Sent::Asked);
        }
        if read.map_err(gone)? == Reading::End {
            return Err(TcpError::Closed { peer, cause: None });
        }
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

/// Tells the sender what the connection did and how it stands.
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

/// Hands over what the socket takes, and what is made of it. Whether it is full.
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
            // What was written counts for what comes next.
            stream.sender.on_view(now, &view);
            stream.turn(now);
        }
    }
}

/// Whether more may come from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Open,
    End,
}

fn listen(listener: &mut Listener, socket: &mut TcpSocket) -> io::Result<Reading> {
    let mut buffer = [0; 4_096];
    while let Some(count) = socket.read(&mut buffer)? {
        if count == 0 {
            return Ok(Reading::End);
        }
        listener.on_bytes(&buffer[..count]);
    }
    Ok(Reading::Open)
}

/// How a stream ended at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The callback or the stop flag wanted it, or time is over.
    Asked,
    /// The sender said goodbye.
    Goodbye,
}

/// Drives a receiver until the stream ends. `on_turn` is called after every piece, and at least
/// every [`TICK`]; it fetches the frames.
///
/// # Errors
/// [`TcpError::Closed`] when the sender left without a goodbye, [`TcpError::Silent`] when it had not
/// even begun, [`TcpError::NoStream`] when it says something else, and what the system says.
pub fn receive(
    receiver: &mut TcpReceiver,
    socket: &mut TcpSocket,
    conditions: &Conditions,
    mut on_turn: impl FnMut(&mut TcpReceiver, Time) -> ControlFlow<()>,
) -> Result<Received, TcpError> {
    let peer = socket.peer;
    let mut buffer = vec![0; 1 << 16];
    let mut silent = true;
    loop {
        let now = conditions.clock.now();
        let asked = on_turn(receiver, now).is_break() || conditions.stop.is_set();
        if receiver.is_over() {
            return Ok(Received::Goodbye);
        }
        if asked || conditions.until.is_some_and(|until| now >= until) {
            // Who does not hear it has gone itself, or hears nothing at all: it ends either way.
            let _ = socket.leave(&receiver.farewell(), LAST_WORDS, conditions);
            return Ok(Received::Asked);
        }
        let read = socket.read(&mut buffer);
        let now = conditions.clock.now();
        let gone = |error: TcpError| if silent { error.before_a_word() } else { error };
        match read.map_err(|cause| gone(TcpError::of(cause, peer)))? {
            Some(0) => {
                receiver.finish();
                // It ends either way.
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

/// Why a connection is of no use.
#[derive(Debug)]
#[non_exhaustive]
pub enum TcpError {
    /// The peer has gone before the stream was over.
    Closed {
        /// The peer.
        peer: SocketAddr,
        /// What the system says; nothing if it closed in order.
        cause: Option<io::Error>,
    },
    /// The peer took the connection and has gone without having sent anything.
    Silent {
        /// The peer.
        peer: SocketAddr,
        /// What the system says; nothing if it closed in order.
        cause: Option<io::Error>,
    },
    /// The peer sends something else.
    NoStream {
        /// The peer.
        peer: SocketAddr,
        /// What is wrong with it.
        fault: StreamFault,
    },
    /// The system does not take an option.
    Option {
        /// Its name, and the switch that asked for it.
        option: &'static str,
        /// The reason.
        cause: io::Error,
    },
    /// The socket or the event queue.
    System(io::Error),
}

impl TcpError {
    fn of(cause: io::Error, peer: SocketAddr) -> Self {
        use io::ErrorKind as Kind;
        match cause.kind() {
            Kind::BrokenPipe | Kind::ConnectionReset | Kind::NotConnected | Kind::TimedOut => {
                Self::Closed {
                    peer,
                    cause: Some(cause),
                }
            }
            _ => Self::System(cause),
        }
    }

    const fn no_stream(peer: SocketAddr, fault: StreamFault) -> Self {
        Self::NoStream { peer, fault }
    }

    /// The same of a peer that has not sent anything.
    fn before_a_word(self) -> Self {
        match self {
            Self::Closed { peer, cause } => Self::Silent { peer, cause },
            other => other,
        }
    }
}

impl fmt::Display for TcpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed { peer, cause: None } => write!(
                f,
                "{peer} closed the connection in mid-stream: it was ended, or has failed; look at \
                 what it said last"
            ),
            Self::Closed {
                peer,
                cause: Some(cause),
            } => write!(
                f,
                "the connection to {peer} broke in mid-stream: {cause}; look at what the other end \
                 said last, and at the path"
            ),
            Self::Silent { peer, cause } => {
                write!(f, "{peer} closed the connection without a word")?;
                if let Some(cause) = cause {
                    write!(f, " ({cause})")?;
                }
                f.write_str("; look at what it says of it where it runs")
            }
            Self::NoStream { peer, fault } => write!(
                f,
                "{peer} sends no stream of RTP packets (RFC 4571): {fault}; is it `tidegate send \
                 --transport tcp`?"
            ),
            Self::Option { option, cause } => write!(
                f,
                "this system does not take {option}: {cause}; leave it out, or ask for a value that \
                 it has"
            ),
            Self::System(e) => write!(f, "the connection cannot go on: {e}"),
        }
    }
}

/// What the system says is part of the message.
impl std::error::Error for TcpError {}

/// The system tells nobody that an acknowledgement has come: a frame that waits for room is tried
/// again after this. A look costs some microseconds.
const ROOM: Duration = Duration::from_millis(5);
/// A player waits so long for its sender to close.
const LAST_WORDS: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
