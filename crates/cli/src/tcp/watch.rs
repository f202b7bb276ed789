//! What the kernel tells of a connection, for a sender in symbiosis with it.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::{Context as _, Result};
use tidegate_core::tcp_rate::{Subscription, TcpEvent, TcpView, Told};
use tidegate_core::units::Time;
use tidegate_kernel::{Connection, EventKind, Events, default_path};
use tidegate_live::tcp::{TcpSocket, Watch};

use super::TcpArgs;
use super::modes::EventsFrom;

/// Has somebody watch the socket, if the mode wants to be told anything. What comes out says where
/// events come from, and what becomes of that.
///
/// # Errors
/// The system tells nothing of the socket.
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
        // One that was asked for was there when we began, and those who are served outlive it.
        Some(Err(why)) => unprivileged(&*socket, subscribed, &why.to_string())?,
    };
    let (says, said_later) = channel();
    let said = said.unwrap_or_else(|| "events come from the kernel".to_owned());
    // The other end is here.
    let _ = says.send(said);
    let own = socket.as_fd().try_clone_to_owned();
    socket.set_watch(Box::new(KernelWatch {
        connection,
        socket: own.context("no descriptor is left")?,
        subscribed,
        says,
    }));
    Ok(Some(said_later))
}

/// The connection as a process without privilege sees it, and a line about what that costs.
fn unprivileged(
    socket: impl std::os::fd::AsFd,
    subscribed: Subscription,
    why: &str,
) -> Result<(Connection, Option<String>)> {
    let connection = Connection::new(Events::unprivileged()?, socket, subscribed)?;
    let wanted = |kind: &EventKind| match kind {
        EventKind::Recovery => subscribed.contains(TcpEvent::ThirdDuplicate),
        EventKind::Recovered => subscribed.contains(TcpEvent::Repaired),
        _ => false,
    };
    let weaker = connection.events().weaker().iter();
    let weaker: Vec<String> = weaker
        .filter(|(kind, _)| wanted(kind))
        .map(|(kind, how)| format!("; {kind}: {how}"))
        .collect();
    let said = format!(
        "events without privilege ({why}): writes are cut into segments of their own{}",
        weaker.concat()
    );
    Ok((connection, Some(said)))
}

#[derive(Debug)]
struct KernelWatch {
    connection: Connection,
    /// For another connection to the same socket.
    socket: OwnedFd,
    subscribed: Subscription,
    says: Sender<String>,
}

impl Watch for KernelWatch {
    fn next_event(&mut self, now: Time) -> io::Result<Option<(Told, TcpView)>> {
        match self.connection.next_event(now) {
            Ok(event) => Ok(event),
            Err(why) => {
                // The daemon has gone; the stream goes on.
                let fresh = unprivileged(&self.socket, self.subscribed, &why.to_string());
                let (connection, said) = fresh.map_err(io::Error::other)?;
                self.connection = connection;
                // Who does not listen any more wants no words.
                let _ = self.says.send(said.unwrap_or_default());
                Ok(None)
            }
        }
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
