//! Interruptible connection setup.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

use super::socket::wait;
use crate::driver::{RunLimits, TICK};
use crate::netns::check;
use crate::sockaddr::SockAddr;

/// Connects to `peer`. Returns `None` if the stop flag is set or `asked` returns true before the
/// connection is established.
///
/// # Errors
/// [`io::ErrorKind::ConnectionRefused`] if the port is closed, [`io::ErrorKind::TimedOut`] if the
/// peer does not answer within `patience`, [`io::ErrorKind::ConnectionReset`] if the peer reset the
/// connection immediately, or another error of the system.
pub fn connect(
    peer: SocketAddr,
    patience: Duration,
    conditions: &RunLimits,
    asked: impl FnMut() -> bool,
) -> io::Result<Option<TcpStream>> {
    answer(begin(peer)?, patience, conditions, asked)
}

/// Waits until the connection is established.
pub(super) fn answer(
    stream: TcpStream,
    patience: Duration,
    conditions: &RunLimits,
    mut asked: impl FnMut() -> bool,
) -> io::Result<Option<TcpStream>> {
    let end = conditions.clock.now() + patience;
    loop {
        if let Some(refused) = stream.take_error()? {
            return Err(refused);
        }
        if stream.peer_addr().is_ok() {
            stream.set_nonblocking(false)?;
            return Ok(Some(stream));
        }
        if conditions.stop.is_set() || asked() {
            return Ok(None);
        }
        let now = conditions.clock.now();
        if now >= end {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let connected = (stream.as_raw_fd(), libc::POLLOUT);
        wait(&[connected], conditions, now, end.min(now + TICK))?;
    }
}

/// Starts a connection to `peer`.
pub(super) fn begin(peer: SocketAddr) -> io::Result<TcpStream> {
    let family = if peer.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: a system call with integer arguments.
    let fd = check(unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: the descriptor is new and has no other owner.
    let stream = TcpStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let name = SockAddr::from(peer);
    let address = (&raw const name.storage).cast();
    // SAFETY: the address has this length and outlives the call.
    match check(unsafe { libc::connect(fd, address, name.length) }) {
        Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => Err(e),
        _ => Ok(stream),
    }
}
