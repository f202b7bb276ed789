//! Errors of starting the daemon.

use std::path::PathBuf;
use std::{fmt, io};

use crate::system;

/// Reason why the daemon cannot serve.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// The service manager passes something other than the socket of the daemon.
    Activation(String),
    /// Other users could exchange the socket.
    Exposed {
        /// Its path.
        path: PathBuf,
        /// The folder that they can change, and the fix.
        why: String,
    },
    /// The user has no entry on this system, so its group is not known.
    GroupUnknown(u32),
    /// Another daemon listens at the path.
    InUse(PathBuf),
    /// The group does not exist.
    NoGroup(String),
    /// The file at the path is not a socket.
    NoSocket(PathBuf),
    /// The user does not exist.
    NoUser(String),
    /// The socket at the path belongs to another program.
    Others(PathBuf),
    /// The privileges cannot be dropped.
    Privileges(io::Error),
    /// The system calls of the process cannot be restricted.
    Seccomp(io::Error),
    /// Signals cannot be received through a descriptor.
    Signals(io::Error),
    /// The socket cannot be created.
    Socket {
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Activation(why) => write!(
                f,
                "{why}: write one ListenSequentialPacket= into the socket unit, or unset LISTEN_FDS"
            ),
            Self::Exposed { path, why } => write!(
                f,
                "other users could exchange the socket {}: {why}",
                path.display()
            ),
            Self::GroupUnknown(user) => write!(
                f,
                "the group of user {user} is not known, since the user has no entry on this system: \
                 give the group, too, as --user {user}:GID"
            ),
            Self::InUse(path) => write!(
                f,
                "another daemon serves at {}: stop it, or choose another --socket",
                path.display()
            ),
            Self::NoGroup(name) => write!(
                f,
                "there is no group `{name}` on this system: create it, or give a number"
            ),
            Self::NoSocket(path) => write!(
                f,
                "the file at {} is not a socket: choose another --socket, or remove the file",
                path.display()
            ),
            Self::NoUser(name) => write!(
                f,
                "there is no user `{name}` on this system: create it, give numbers as UID:GID, or leave \
                 --user out"
            ),
            Self::Others(path) => write!(
                f,
                "another program's socket is at {}: choose another --socket",
                path.display()
            ),
            Self::Privileges(e) | Self::Signals(e) | Self::Socket { cause: e, .. }
                if system::is_short(e) =>
            {
                let fix = system::more_descriptors(e);
                write!(
                    f,
                    "the daemon has no descriptor left for its socket ({e}): {fix}"
                )
            }
            Self::Seccomp(e) => write!(
                f,
                "the system calls of the daemon cannot be restricted ({e}): use a kernel with CONFIG_SECCOMP_FILTER=y"
            ),
            Self::Signals(e) => write!(f, "signals cannot be received through a descriptor ({e})"),
            Self::Privileges(e) => write!(
                f,
                "the privileges cannot be dropped ({e}): start the daemon as root, or leave --user out"
            ),
            Self::Socket { path, cause } => write!(
                f,
                "the socket {} cannot be created ({cause}): choose another --socket",
                path.display()
            ),
        }
    }
}

impl std::error::Error for ServeError {}
