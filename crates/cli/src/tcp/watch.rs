//! Subscribes a sender to the kernel's TCP events.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::{Context as _, Result};
use tidegate_core::tcp_rate::{EventNotification, Subscription, TcpView};
use tidegate_core::units::Time;
use tidegate_kernel::{Connection, EventKind, Events, default_path};
use tidegate_live::tcp::{ConnectionObserver, TcpSocket};

use super::TcpArgs;
use super::modes::EventsFrom;

/// Subscribes to events of the socket, if the mode needs any. The returned channel has messages
/// about the event source and its changes.
///
/// # Errors
/// No events of the socket are available.
pub(crate) fn watch(args: &TcpArgs, socket: &mut TcpSocket) -> Result<Option<Receiver<String>>> {
    let Some(mode) = args.choice().symbiosis() else {
        return Ok(None);
    };
    let subscribed = args.modes.subscribed(mode);
    let source = match args.modes.events_from {
        Some(EventsFrom::Unprivileged) => None,
        Some(EventsFrom::InProcess) => Some(Events::in_process()),
        Some(EventsFrom::Daemon) | None => Some(Events::connect(&default_path())),
    };
    let hear = |events| Connection::new(events, &*socket, subscribed);
    let (connection, said) = match source.map(|events| events.and_then(hear)) {
        None => unprivileged(&*socket, subscribed, "as asked for")?,
        Some(Ok(connection)) => (connection, None),
        // A requested source was available at the start and outlives its clients.
        Some(Err(why)) => unprivileged(&*socket, subscribed, &why.to_string())?,
    };
    let (says, said_later) = channel();
    let said = said.unwrap_or_else(|| "events come from the kernel".to_owned());
    // The receiver exists.
    let _ = says.send(said);
    let own = socket.as_fd().try_clone_to_owned();
    socket.set_watch(Box::new(KernelWatch {
        connection,
        fallback: Some(Fallback {
            socket: own.context("cannot duplicate the socket")?,
            subscribed,
            messages: says,
        }),
    }));
    Ok(Some(said_later))
}

/// Events of the connection as an unprivileged process sees them, and a message about the
/// drawbacks.
fn unprivileged(
    socket: impl std::os::fd::AsFd,
    subscribed: Subscription,
    why: &str,
) -> Result<(Connection, Option<String>)> {
    let connection = Connection::new(Events::unprivileged()?, socket, subscribed)?;
    let wanted = Connection::kinds(subscribed);
    let weaker = connection.events().limited_events().iter();
    let weaker: Vec<String> = weaker
        .filter(|(kind, _)| *kind != EventKind::Timeout && wanted.contains(*kind))
        .map(|(kind, how)| format!("; {kind}: {how}"))
        .collect();
    let said = format!(
        "events without privilege ({why}): each write starts a new segment{}",
        weaker.concat()
    );
    Ok((connection, Some(said)))
}

/// Events of a connection for its sender.
#[derive(Debug)]
pub(crate) struct KernelWatch {
    pub(crate) connection: Connection,
    pub(crate) fallback: Option<Fallback>,
}

/// What replaces a source of events that has ended.
#[derive(Debug)]
pub(crate) struct Fallback {
    /// For another subscription of the same socket.
    socket: OwnedFd,
    subscribed: Subscription,
    messages: Sender<String>,
}

impl ConnectionObserver for KernelWatch {
    fn next_event(&mut self, now: Time) -> io::Result<Option<(EventNotification, TcpView)>> {
        let why = match self.connection.next_event(now) {
            Ok(event) => return Ok(event),
            Err(why) => why,
        };
        let Some(fallback) = &self.fallback else {
            return Err(io::Error::other(why));
        };
        // The daemon has exited; the stream continues without privilege.
        let fresh = unprivileged(&fallback.socket, fallback.subscribed, &why.to_string());
        let (connection, said) = fresh.map_err(io::Error::other)?;
        self.connection = connection;
        // The receiver may be gone.
        let _ = fallback.messages.send(said.unwrap_or_default());
        Ok(None)
    }

    fn view(&mut self, now: Time) -> io::Result<TcpView> {
        self.connection.view(now)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.connection.write(bytes)
    }

    fn events(&self) -> BorrowedFd<'_> {
        self.connection.events().as_fd()
    }
}
