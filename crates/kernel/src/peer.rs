//! Who is at the other end of a local socket.

use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use crate::system::{check, option};

/// A process, as it was when it connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) process: i32,
    pub(crate) user: u32,
    /// All of them.
    pub(crate) groups: Vec<u32>,
}

impl Peer {
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

impl fmt::Display for Peer {
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
