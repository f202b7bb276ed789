//! Connecting, which somebody may end.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

use super::socket::wait;
use crate::driver::{Conditions, TICK};
use crate::netns::check;
use crate::sockaddr::Name;

/// Connects to `peer`, until the stop flag is set or `asked` says so: then there is none.
///
/// # Errors
/// [`io::ErrorKind::ConnectionRefused`] when nobody listens there, [`io::ErrorKind::TimedOut`] when
/// none answers for so long as `patience`, [`io::ErrorKind::ConnectionReset`] when who answered has
/// reset it before we looked, and what else the system says.
pub fn connect(
    peer: SocketAddr,
    patience: Duration,
    conditions: &Conditions,
    asked: impl FnMut() -> bool,
) -> io::Result<Option<TcpStream>> {
    answer(begin(peer)?, patience, conditions, asked)
}

/// The connection, as soon as the peer has answered.
pub(super) fn answer(
    stream: TcpStream,
    patience: Duration,
    conditions: &Conditions,
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

/// A socket on its way to `peer`.
pub(super) fn begin(peer: SocketAddr) -> io::Result<TcpStream> {
    let family = if peer.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: a system call that takes numbers.
    let fd = check(unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: the descriptor is new, and nobody else has it.
    let stream = TcpStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let name = Name::from(peer);
    let address = (&raw const name.storage).cast();
    // SAFETY: the address is as long as that, and outlives the call.
    match check(unsafe { libc::connect(fd, address, name.length) }) {
        Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => Err(e),
        _ => Ok(stream),
    }
}
