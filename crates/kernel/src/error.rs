//! Errors of the event service.

use std::io;
use std::path::PathBuf;

use crate::bpf::loader::LoadError;
use crate::system::{is_short, more_descriptors};
use crate::tcp::NotTcp;

/// An error of the event service. The message names the object, the cause and the fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventsError {
    /// The daemon's policy allows this user nothing.
    #[error(
        "the policy of the event daemon allows this user nothing: ask the administrator, or use \
         the unprivileged mode"
    )]
    NotPermitted,
    /// The daemon is gone.
    #[error(
        "the event daemon is gone and with it all subscriptions: start it again (tidegate \
         events serve) and subscribe again"
    )]
    DaemonGone,
    /// The programs cannot be loaded.
    #[error("{0}")]
    Load(LoadError),
    /// No daemon answers.
    #[error(
        "no event daemon answers at {path} ({cause}): start it as root (tidegate events serve), \
         name another path, or use the unprivileged mode"
    )]
    NoDaemon {
        /// Path of its socket.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// The descriptor is not a TCP socket.
    #[error("{0}")]
    NotTcp(NotTcp),
    /// The subscription does not exist.
    #[error("there is no such subscription: it was cancelled, or its socket is closed")]
    NoSubscription,
    /// The daemon refuses the request.
    #[error("the event daemon refuses: {0}")]
    Refused(String),
    /// The daemon does not answer in time.
    #[error(
        "the event daemon does not answer within 10 seconds, so this connection to it is \
         closed: start it again (tidegate events serve) and subscribe again"
    )]
    Silent,
    /// The reply of the daemon is invalid.
    #[error(
        "the reply of the event daemon is invalid ({0}): install it and this library from one release"
    )]
    Strange(String),
    /// A system call failed.
    #[error("{}", failed(.0))]
    System(io::Error),
    /// The socket is not connected, which the unprivileged mode needs.
    #[error(
        "the unprivileged mode needs a connected socket, which this is not: connect it first, \
         or use the daemon (tidegate events serve)"
    )]
    Unconnected,
    /// The user of the daemon may not receive sockets of this process.
    #[error(
        "user {user} serves at {path}, and this process of user {own} sends its sockets to root \
         and to its own user only: start the daemon as root (tidegate events serve), name \
         another path, or use the unprivileged mode"
    )]
    Untrusted {
        /// Path of its socket.
        path: PathBuf,
        /// Number of the daemon's user.
        user: u32,
        /// Number of the user of this process.
        own: u32,
    },
}

fn failed(e: &io::Error) -> String {
    if is_short(e) {
        let more = more_descriptors(e);
        format!("this process has no descriptor left for events ({e}): close some, or {more}")
    } else {
        format!("the event service failed ({e}): check the limits of this process")
    }
}

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
