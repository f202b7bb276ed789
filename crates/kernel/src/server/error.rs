//! Errors of starting the daemon.

use std::io;
use std::path::PathBuf;

use crate::system;

/// Reason why the daemon cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The service manager passes something other than the socket of the daemon.
    #[error("{0}: write one ListenSequentialPacket= into the socket unit, or unset LISTEN_FDS")]
    Activation(String),
    /// Other users could exchange the socket.
    #[error("other users could exchange the socket {path}: {why}")]
    Exposed {
        /// Its path.
        path: PathBuf,
        /// The folder that they can change, and the fix.
        why: String,
    },
    /// The user has no entry on this system, so its group is not known.
    #[error(
        "the group of user {0} is not known, since the user has no entry on this system: give \
         the group, too, as --user {0}:GID"
    )]
    GroupUnknown(u32),
    /// Another daemon listens at the path.
    #[error("another daemon serves at {0}: stop it, or choose another --socket")]
    InUse(PathBuf),
    /// The group does not exist.
    #[error("there is no group `{0}` on this system: create it, or give a number")]
    NoGroup(String),
    /// The file at the path is not a socket.
    #[error("the file at {0} is not a socket: choose another --socket, or remove the file")]
    NoSocket(PathBuf),
    /// The user does not exist.
    #[error(
        "there is no user `{0}` on this system: create it, give numbers as UID:GID, or leave --user out"
    )]
    NoUser(String),
    /// The socket at the path belongs to another program.
    #[error("another program's socket is at {0}: choose another --socket")]
    Others(PathBuf),
    /// The privileges cannot be dropped.
    #[error(
        "{}",
        failed("the privileges cannot be dropped", .0, ": start the daemon as root, or leave --user out")
    )]
    Privileges(io::Error),
    /// The system calls of the process cannot be restricted.
    #[error(
        "the system calls of the daemon cannot be restricted ({0}): use a kernel with \
         CONFIG_SECCOMP_FILTER=y"
    )]
    Seccomp(io::Error),
    /// Signals cannot be received through a descriptor.
    #[error("{}", failed("signals cannot be received through a descriptor", .0, ""))]
    Signals(io::Error),
    /// The socket cannot be created.
    #[error(
        "{}",
        failed(&format!("the socket {} cannot be created", .path.display()), .cause, ": choose another --socket")
    )]
    Socket {
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
}

/// `what` failed, unless a descriptor is missing.
fn failed(what: &str, e: &io::Error, fix: &str) -> String {
    if system::is_short(e) {
        let fix = system::more_descriptors(e);
        return format!("the daemon has no descriptor left for its socket ({e}): {fix}");
    }
    format!("{what} ({e}){fix}")
}
