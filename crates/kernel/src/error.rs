//! Why something about events does not work.

use std::path::PathBuf;
use std::{fmt, io};

use crate::bpf::loader::LoadError;
use crate::system::{is_short, more_descriptors};
use crate::tcp::NotTcp;

/// Why something about events does not work. Each message names the cause and what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum EventsError {
    /// The daemon's policy allows this user nothing.
    Barred,
    /// The daemon went away.
    Gone,
    /// The programs are not in the kernel.
    Load(LoadError),
    /// No daemon answers.
    NoDaemon {
        /// Where it should be.
        path: PathBuf,
        /// Why it does not answer.
        cause: io::Error,
    },
    /// This mode does not have it.
    NotHere(&'static str),
    /// It is not a TCP socket.
    NotTcp(NotTcp),
    /// There is no such subscription.
    NoSubscription,
    /// The daemon says no.
    Refused(String),
    /// The daemon does not answer.
    Silent,
    /// The daemon says what makes no sense.
    Strange(String),
    /// The system fails.
    System(io::Error),
    /// The socket is not connected, as it has to be where there is no daemon.
    Unconnected,
    /// Who serves is none of those to whom this process hands its sockets.
    Untrusted {
        /// Where.
        path: PathBuf,
        /// Number of the user who serves there.
        user: u32,
        /// That of this process's user.
        own: u32,
    },
}

impl fmt::Display for EventsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Barred => f.write_str(
                "the policy of the event daemon allows this user nothing: ask the administrator, or use the unprivileged mode",
            ),
            Self::Gone => f.write_str(
                "the event daemon is gone and with it all subscriptions: start it again (tidegate events serve) and subscribe anew",
            ),
            Self::Load(e) => e.fmt(f),
            Self::NoDaemon { path, cause } => write!(
                f,
                "no event daemon answers at {} ({cause}): start it as root (tidegate events serve), name another path, or use the unprivileged mode",
                path.display()
            ),
            Self::NotHere(what) => write!(
                f,
                "{what} cannot be had in the unprivileged mode: use the daemon (tidegate events serve)"
            ),
            Self::NotTcp(e) => e.fmt(f),
            Self::NoSubscription => f.write_str(
                "there is no such subscription: it was cancelled, or its socket is closed",
            ),
            Self::Refused(why) => write!(f, "the event daemon refuses: {why}"),
            Self::Silent => f.write_str(
                "the event daemon does not answer within 10 seconds, and this connection to it is given up: start it again (tidegate events serve) and subscribe anew",
            ),
            Self::Strange(what) => write!(
                f,
                "the event daemon says what makes no sense ({what}): install it and this library from one release"
            ),
            Self::System(e) if is_short(e) => write!(
                f,
                "this process has no descriptor left for events ({e}): close some, or {}",
                more_descriptors(e)
            ),
            Self::System(e) => write!(f, "events: {e}"),
            Self::Unconnected => f.write_str(
                "the socket is not connected, as it has to be in the unprivileged mode: connect it first, or use the daemon (tidegate events serve)",
            ),
            Self::Untrusted { path, user, own } => write!(
                f,
                "user {user} serves at {}, and this process of user {own} hands its sockets to root and itself only: start the daemon as root (tidegate events serve), name another path, or use the unprivileged mode",
                path.display()
            ),
        }
    }
}

impl std::error::Error for EventsError {}
