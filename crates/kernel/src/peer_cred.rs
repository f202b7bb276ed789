//! Who is at the other end of a local socket.

use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use crate::system::{check, option};

/// A process, as it was when it connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerCred {
    pub(crate) process: i32,
    pub(crate) user: u32,
    /// All of them.
    pub(crate) groups: Vec<u32>,
}

impl PeerCred {
    /// Asks the kernel.
    pub(crate) fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let who: libc::ucred = option(socket, libc::SOL_SOCKET, libc::SO_PEERCRED)?;
        let mut groups = other_groups(socket)?;
        groups.push(who.gid);
        Ok(Self {
            process: who.pid,
            user: who.uid,
            groups,
        })
    }
}

/// The user who serves at the other end: who listened there, when he began to.
pub(crate) fn server_user(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let who: libc::ucred = option(socket, libc::SOL_SOCKET, libc::SO_PEERCRED)?;
    Ok(who.uid)
}

/// Whether sockets of user `own` may be handed over to a daemon of `user`. Whoever gets a socket
/// can do all that its owner can, so a path where anybody may put a socket is no warrant. `keeper`
/// is who owns the folder in which the daemon's socket is, if root alone can have made that.
pub(crate) fn is_trusted(user: u32, own: u32, keeper: Option<u32>) -> bool {
    user == 0 || user == own || keeper == Some(user)
}

/// As whom this thread acts.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: takes nothing and touches no memory.
    unsafe { libc::geteuid() }
}

impl fmt::Display for PeerCred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of user {}", self.process, self.user)
    }
}

fn other_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    // A process may have 65,536 groups (NGROUPS_MAX).
    let mut groups = vec![0_u32; 1 << 16];
    let mut size = mem::size_of_val(groups.as_slice()) as libc::socklen_t;
    // SAFETY: `groups` is passed with its size.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut size,
        )
    })?;
    groups.truncate(size as usize / mem::size_of::<u32>());
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_go_to_root_oneself_and_whom_root_named() {
        for (user, own, keeper, may) in [
            (0, 1000, None, true),
            (1000, 1000, None, true),
            (1001, 1000, None, false),
            (1001, 0, None, false),
            (1001, 1000, Some(0), false),
            (1001, 1000, Some(1001), true),
        ] {
            assert_eq!(
                is_trusted(user, own, keeper),
                may,
                "{user} {own} {keeper:?}"
            );
        }
    }
}
