//! The two ends of a connection: the connecting and the listening one.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tidegate_core::units::Time;
use tidegate_live::driver::RunLimits;
use tidegate_live::tcp::{TcpError, TcpOptions, TcpSocket, accept, connect};

use super::sending::StreamResult;
use crate::recv::address::bind_any;
use tidegate_console::context::LiveContext;
use tidegate_console::describe;
use tidegate_console::progress::say;

/// Way to establish a connection.
#[derive(Debug)]
pub(crate) enum End {
    /// Connect to an address.
    To(String),
    /// Accept at a port.
    At(TcpListener),
}

impl End {
    /// Connects to `to`, or listens at `at`.
    ///
    /// # Errors
    /// Neither is given, or the port cannot be bound.
    pub(crate) fn new(to: Option<&str>, at: Option<&str>) -> Result<Self> {
        match (to, at) {
            (Some(to), _) => Ok(Self::To(to.to_owned())),
            (None, Some(at)) => listen(at).map(Self::At),
            (None, None) => bail!("no address of the other end: give an address or a port"),
        }
    }

    /// Listening port.
    pub(crate) fn port(&self) -> Option<u16> {
        match self {
            Self::To(_) => None,
            Self::At(listener) => listener.local_addr().ok().map(|address| address.port()),
        }
    }

    /// Calls `play` for the only player, or for each player that connects, until `over` or Ctrl-C.
    /// Its last argument is the number of the player, from 1. A player that accepts no data is not
    /// counted. The clock restarts for each player.
    ///
    /// # Errors
    /// The connection is refused, `play` fails, or the connection to the only player breaks.
    pub(crate) fn each(
        &self,
        around: &mut LiveContext,
        options: &TcpOptions,
        mut over: impl FnMut() -> bool,
        mut play: impl FnMut(&LiveContext, &mut TcpSocket, u32) -> Result<StreamResult>,
    ) -> Result<()> {
        let mut player = 1;
        loop {
            let asked = || around.interrupts.count() > 0 || over();
            let Some((stream, peer)) = self.open(&around.conditions(), asked)? else {
                break;
            };
            around.renew();
            let (took, ended) = match TcpSocket::of_peer(stream, peer, options) {
                Ok(mut socket) => {
                    let played = play(around, &mut socket, player)?;
                    player += u32::from(played.took);
                    (played.took, played.ended)
                }
                Err(error) => (false, Err(error.into())),
            };
            match (ended, self) {
                (Err(error), Self::To(_)) => return Err(error),
                (Err(error), Self::At(_)) => {
                    let why = match error.downcast_ref::<TcpError>() {
                        Some(TcpError::Closed { peer, cause }) if !took => {
                            format!(
                                "{peer} connected and accepted no data{}",
                                in_brackets(cause.as_ref())
                            )
                        }
                        _ => describe(&error),
                    };
                    say(format_args!("{why}; waiting for the next player"));
                }
                (Ok(_), Self::To(_)) => break,
                (Ok(_), Self::At(_)) => {}
            }
        }
        Ok(())
    }

    /// A connection and the address of its peer. `None` if the user interrupts the wait.
    ///
    /// # Errors
    /// The connection is refused.
    pub(crate) fn open(
        &self,
        conditions: &RunLimits,
        asked: impl FnMut() -> bool,
    ) -> Result<Option<(TcpStream, SocketAddr)>> {
        match self {
            Self::To(to) => connect_to(to, conditions, asked),
            Self::At(listener) => Ok(accept(listener, conditions, asked)?),
        }
    }

    /// A connection from which a stream can be read. The listening end rejects connections that
    /// close without data or use another protocol, such as port scans and health checks, prints the
    /// reason and waits for the next one. A silent connection is accepted after `patience`. `None`
    /// if the user interrupts the wait.
    ///
    /// # Errors
    /// The connection is refused, or a system call fails.
    pub(crate) fn open_stream(
        &self,
        conditions: &RunLimits,
        patience: Duration,
        mut asked: impl FnMut() -> bool,
    ) -> Result<Option<Incoming>> {
        loop {
            let Some((stream, peer)) = self.open(conditions, &mut asked)? else {
                return Ok(None);
            };
            let since = conditions.clock.now();
            let socket = TcpSocket::of_peer(stream, peer, &TcpOptions::default())?;
            let there = match self {
                // A peer that the user named is not checked.
                Self::To(_) => Ok(()),
                Self::At(_) => {
                    socket.wait_for_first_packet(since + patience, conditions, &mut asked)
                }
            };
            match there {
                Ok(()) => return Ok(Some(Incoming { socket, since })),
                Err(TcpError::Silent { peer, cause }) => say(format_args!(
                    "{peer} connected and sent nothing{}; waiting for another sender",
                    in_brackets(cause.as_ref())
                )),
                Err(TcpError::NoStream { peer, fault }) => say(format_args!(
                    "{peer} connected and sent no stream of RTP packets (RFC 4571): {fault}; \
                    waiting \
                     for another sender"
                )),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// System error in brackets, if any.
fn in_brackets(cause: Option<&io::Error>) -> String {
    cause.map_or_else(String::new, |cause| format!(" ({cause})"))
}

/// Connection that is expected to carry a stream.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) socket: TcpSocket,
    /// Time of the connection.
    pub(crate) since: Time,
}

fn listen(at: &str) -> Result<TcpListener> {
    let bound = match at.parse() {
        Ok(port) => bind_any(port, TcpListener::bind),
        Err(_) => TcpListener::bind(at),
    };
    bound.with_context(|| {
        format!(
            "cannot listen at \"{at}\": give it as PORT or ADDR:PORT, and check with `ss -ltn` \
            that it is free"
        )
    })
}

/// Connects to an address. `None` if the user interrupts the wait.
///
/// # Errors
/// The address is not HOST:PORT, or the connection is refused.
pub(crate) fn connect_to(
    to: &str,
    conditions: &RunLimits,
    mut asked: impl FnMut() -> bool,
) -> Result<Option<(TcpStream, SocketAddr)>> {
    let fix = "give it as HOST:PORT, for example 192.0.2.7:5004 or [2001:db8::7]:5004";
    if !to.contains(':') {
        bail!("\"{to}\" has no port: {fix}");
    }
    let addresses: Vec<SocketAddr> = to
        .to_socket_addrs()
        .with_context(|| format!("\"{to}\" is not an address: {fix}"))?
        .collect();
    let mut failure = None;
    for peer in addresses {
        match connect(peer, PATIENCE, conditions, &mut asked) {
            Ok(stream) => return Ok(stream.map(|stream| (stream, peer))),
            Err(e) => failure = Some((peer, e)),
        }
    }
    let Some((peer, e)) = failure else {
        bail!("\"{to}\" has no address: {fix}")
    };
    match e.kind() {
        io::ErrorKind::ConnectionRefused => {
            bail!("connection refused by {peer}: start the other end first, or correct the address")
        }
        // The peer accepted and closed the connection at once.
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            let cause = Some(e);
            Err(TcpError::Silent { peer, cause }.into())
        }
        _ => Err(e).with_context(|| format!("cannot reach {peer}: check address and routes")),
    }
}

/// Limit of a connection attempt.
const PATIENCE: Duration = Duration::from_secs(10);
