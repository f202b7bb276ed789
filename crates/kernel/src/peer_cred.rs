//! Credentials of the peer of a local socket.

use std::fmt;
use std::io;
use std::mem;
use std::os::fd::BorrowedFd;

use rustix::net::sockopt::socket_peercred;

use crate::system::option_into;

/// The peer at the time of its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerCred {
    pub(crate) process: i32,
    pub(crate) user: u32,
    /// All groups of the process.
    pub(crate) groups: Vec<u32>,
}

impl PeerCred {
    /// Reads the credentials.
    pub(crate) fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let peer = socket_peercred(socket)?;
        let mut groups = other_groups(socket)?;
        groups.push(peer.gid.as_raw());
        Ok(Self {
            process: peer.pid.as_raw_pid(),
            user: peer.uid.as_raw(),
            groups,
        })
    }
}

/// The user of the server at the other end, at the time at which it began to listen.
pub(crate) fn server_user(socket: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(socket_peercred(socket)?.uid.as_raw())
}

/// Whether a process of user `own` may send its sockets to a daemon of `user`. A received socket
/// gives all rights of its owner, and any user may listen at a path where any user may write.
/// `owner` is the owner of the socket's directory, if only root can have made that directory.
pub(crate) fn is_trusted(user: u32, own: u32, owner: Option<u32>) -> bool {
    user == 0 || user == own || owner == Some(user)
}

/// The effective user of this thread.
pub(crate) fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

impl fmt::Display for PeerCred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of user {}", self.process, self.user)
    }
}

fn other_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    // A process may have 65,536 groups (NGROUPS_MAX).
    let mut groups = vec![0_u32; 1 << 16];
    let size = option_into(socket, libc::SOL_SOCKET, libc::SO_PEERGROUPS, &mut groups)?;
    groups.truncate(size / mem::size_of::<u32>());
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trusted_are_root_the_own_user_and_the_owner_of_the_directory() {
        for (user, own, owner, may) in [
            (0, 1000, None, true),
            (1000, 1000, None, true),
            (1001, 1000, None, false),
            (1001, 0, None, false),
            (1001, 1000, Some(0), false),
            (1001, 1000, Some(1001), true),
        ] {
            assert_eq!(is_trusted(user, own, owner), may, "{user} {own} {owner:?}");
        }
    }
}
