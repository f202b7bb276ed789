//! Sockets that a service manager passes (socket activation, `sd_listen_fds(3)`).

use std::env;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketType, sockopt};

use super::ServeError;
use crate::system::by_number;

/// The socket that the service manager has passed to this process, if it has.
///
/// # Errors
///
/// It is not one listening local socket of type `SOCK_SEQPACKET`.
pub(super) fn inherited() -> Result<Option<OwnedFd>, ServeError> {
    let number = |name| env::var(name).ok()?.parse::<u32>().ok();
    // A parent may have left the variables of another process.
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(None);
    }
    match number("LISTEN_FDS") {
        None | Some(0) => Ok(None),
        Some(1) => take().map(Some),
        Some(many) => Err(ServeError::Activation(format!(
            "the service manager passes {many} sockets"
        ))),
    }
}

fn take() -> Result<OwnedFd, ServeError> {
    let found = by_number(FIRST).ok_or(Errno::BADF);
    let found = found.and_then(|found| fcntl_setfd(found, FdFlags::CLOEXEC));
    found.map_err(|e| {
        let e = std::io::Error::from(e);
        ServeError::Activation(format!("descriptor {FIRST} is not open ({e})"))
    })?;
    // SAFETY: by the protocol the descriptor belongs to this process, and nothing else in it uses
    // the number.
    let socket = unsafe { OwnedFd::from_raw_fd(FIRST) };
    if is_listening(socket.as_fd()) {
        return Ok(socket);
    }
    Err(ServeError::Activation(format!(
        "descriptor {} is not a listening local socket of type SOCK_SEQPACKET",
        socket.as_raw_fd()
    )))
}

fn is_listening(socket: BorrowedFd<'_>) -> bool {
    sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(socket) == Ok(SocketType::SEQPACKET)
        && sockopt::socket_acceptconn(socket) == Ok(true)
}

/// The first descriptor that is passed (`SD_LISTEN_FDS_START`).
const FIRST: i32 = 3;
