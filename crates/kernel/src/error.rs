//! Errors of the event service.

use std::path::PathBuf;
use std::{fmt, io};

use crate::bpf::loader::LoadError;
use crate::system::{is_short, more_descriptors};
use crate::tcp::NotTcp;

/// An error of the event service. The message names the object, the cause and the fix.
#[derive(Debug)]
#[non_exhaustive]
pub enum EventsError {
    /// The daemon's policy allows this user nothing.
    NotPermitted,
    /// The daemon is gone.
    DaemonGone,
    /// The programs cannot be loaded.
    Load(LoadError),
    /// No daemon answers.
    NoDaemon {
        /// Path of its socket.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// The descriptor is not a TCP socket.
    NotTcp(NotTcp),
    /// The subscription does not exist.
    NoSubscription,
    /// The daemon refuses the request.
    Refused(String),
    /// The daemon does not answer in time.
    Silent,
    /// The reply of the daemon is invalid.
    Strange(String),
    /// A system call failed.
    System(io::Error),
    /// The socket is not connected, which the unprivileged mode needs.
    Unconnected,
    /// The user of the daemon may not receive sockets of this process.
    Untrusted {
        /// Path of its socket.
        path: PathBuf,
        /// Number of the daemon's user.
        user: u32,
        /// Number of the user of this process.
        own: u32,
    },
}

impl fmt::Display for EventsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPermitted => f.write_str(
                "the policy of the event daemon allows this user nothing: ask the administrator, or use the unprivileged mode",
            ),
            Self::DaemonGone => f.write_str(
                "the event daemon is gone and with it all subscriptions: start it again (tidegate events serve) and subscribe again",
            ),
            Self::Load(e) => e.fmt(f),
            Self::NoDaemon { path, cause } => write!(
                f,
                "no event daemon answers at {} ({cause}): start it as root (tidegate events serve), name another path, or use the unprivileged mode",
                path.display()
            ),
            Self::NotTcp(e) => e.fmt(f),
            Self::NoSubscription => f.write_str(
                "there is no such subscription: it was cancelled, or its socket is closed",
            ),
            Self::Refused(why) => write!(f, "the event daemon refuses: {why}"),
            Self::Silent => f.write_str(
                "the event daemon does not answer within 10 seconds, so this connection to it is closed: start it again (tidegate events serve) and subscribe again",
            ),
            Self::Strange(what) => write!(
                f,
                "the reply of the event daemon is invalid ({what}): install it and this library from one release"
            ),
            Self::System(e) if is_short(e) => write!(
                f,
                "this process has no descriptor left for events ({e}): close some, or {}",
                more_descriptors(e)
            ),
            Self::System(e) => write!(f, "the event service failed ({e}): check the limits of this process"),
            Self::Unconnected => f.write_str(
                "the unprivileged mode needs a connected socket, which this is not: connect it first, or use the daemon (tidegate events serve)",
            ),
            Self::Untrusted { path, user, own } => write!(
                f,
                "user {user} serves at {}, and this process of user {own} sends its sockets to root and to its own user only: start the daemon as root (tidegate events serve), name another path, or use the unprivileged mode",
                path.display()
            ),
        }
    }
}

impl std::error::Error for EventsError {}

impl From<io::Error> for EventsError {
    fn from(e: io::Error) -> Self {
        Self::System(e)
    }
}

impl From<NotTcp> for EventsError {
    fn from(e: NotTcp) -> Self {
        Self::NotTcp(e)
    }
}
