//! The two ends of a connection: who connects, and who waits.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tidegate_core::units::Time;
use tidegate_live::driver::Conditions;
use tidegate_live::tcp::{TcpError, TcpOptions, TcpSocket, accept, connect};

use super::sending::Played;
use crate::recv::address::bind_any;
use tidegate_console::context::LiveContext;
use tidegate_console::describe;
use tidegate_console::progress::say;

/// How to come to a connection.
#[derive(Debug)]
pub(crate) enum End {
    /// By connecting.
    To(String),
    /// By waiting.
    At(TcpListener),
}

impl End {
    /// Connects to `to`, or waits at `at`.
    ///
    /// # Errors
    /// When neither is given, or the port cannot be had.
    pub(crate) fn new(to: Option<&str>, at: Option<&str>) -> Result<Self> {
        match (to, at) {
            (Some(to), _) => Ok(Self::To(to.to_owned())),
            (None, Some(at)) => listen(at).map(Self::At),
            (None, None) => bail!("nothing says where the other end is: give an address or a port"),
        }
    }

    /// The port that it waits at.
    pub(crate) fn port(&self) -> Option<u16> {
        match self {
            Self::To(_) => None,
            Self::At(listener) => listener.local_addr().ok().map(|address| address.port()),
        }
    }

    /// Has `play` send to the one player there, or to one after the other of those who come, until
    /// `over` or Ctrl-C. It is told which player it is, from one; who takes nothing is none, and the
    /// next one has its number. The clock starts anew for each.
    ///
    /// # Errors
    /// When nobody listens there, `play` fails, or the connection to the only player broke.
    pub(crate) fn each(
        &self,
        around: &mut LiveContext,
        options: &TcpOptions,
        mut over: impl FnMut() -> bool,
        mut play: impl FnMut(&LiveContext, &mut TcpSocket, u32) -> Result<Played>,
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
                                "{peer} connected and took nothing{}",
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

    /// A connection, and who is at its other end. `None` if somebody ended the wait.
    ///
    /// # Errors
    /// When nobody listens there.
    pub(crate) fn open(
        &self,
        conditions: &Conditions,
        asked: impl FnMut() -> bool,
    ) -> Result<Option<(TcpStream, SocketAddr)>> {
        match self {
            Self::To(to) => connect_to(to, conditions, asked),
            Self::At(listener) => Ok(accept(listener, conditions, asked)?),
        }
    }

    /// A connection from which a stream can be read. Who waits goes on doing so when somebody
    /// connects and goes without a word or speaks another protocol, as scans of ports and looks at
    /// whether a server lives do, and says so; who is silent is somebody after `patience`. `None` if
    /// somebody ended the wait.
    ///
    /// # Errors
    /// When nobody listens there, or the system refuses.
    pub(crate) fn open_stream(
        &self,
        conditions: &Conditions,
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
                // Who was named is the one, whatever becomes of it.
                Self::To(_) => Ok(()),
                Self::At(_) => socket.wait_for_words(since + patience, conditions, &mut asked),
            };
            match there {
                Ok(()) => return Ok(Some(Incoming { socket, since })),
                Err(TcpError::Silent { peer, cause }) => say(format_args!(
                    "{peer} connected and sent nothing{}; waiting for another sender",
                    in_brackets(cause.as_ref())
                )),
                Err(TcpError::NoStream { peer, fault }) => say(format_args!(
                    "{peer} connected and sent no stream of RTP packets (RFC 4571): {fault}; waiting \
                     for another sender"
                )),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// What the system says of it, if it says anything.
fn in_brackets(cause: Option<&io::Error>) -> String {
    cause.map_or_else(String::new, |cause| format!(" ({cause})"))
}

/// A connection from which a stream is to come.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) socket: TcpSocket,
    /// When it came about.
    pub(crate) since: Time,
}

fn listen(at: &str) -> Result<TcpListener> {
    let bound = match at.parse() {
        Ok(port) => bind_any(port, TcpListener::bind),
        Err(_) => TcpListener::bind(at),
    };
    bound.with_context(|| {
        format!(
            "cannot wait at \"{at}\": give it as PORT or ADDR:PORT, and see with `ss -ltn` whether it \
             is free"
        )
    })
}

/// A connection to who listens there. `None` if somebody ended the wait.
///
/// # Errors
/// It is no HOST:PORT, or nobody listens there.
pub(crate) fn connect_to(
    to: &str,
    conditions: &Conditions,
    mut asked: impl FnMut() -> bool,
) -> Result<Option<(TcpStream, SocketAddr)>> {
    let mend = "give it as HOST:PORT, for example 192.0.2.7:5004 or [2001:db8::7]:5004";
    if !to.contains(':') {
        bail!("\"{to}\" has no port: {mend}");
    }
    let addresses: Vec<SocketAddr> = to
        .to_socket_addrs()
        .with_context(|| format!("\"{to}\" is no address of a host: {mend}"))?
        .collect();
    let mut failure = None;
    for peer in addresses {
        match connect(peer, PATIENCE, conditions, &mut asked) {
            Ok(stream) => return Ok(stream.map(|stream| (stream, peer))),
            Err(e) => failure = Some((peer, e)),
        }
    }
    let Some((peer, e)) = failure else {
        bail!("\"{to}\" has no address: {mend}")
    };
    match e.kind() {
        io::ErrorKind::ConnectionRefused => {
            bail!("nobody listens at {peer}: start the other end first, or mend the address")
        }
        // Somebody is there, and has gone before we looked.
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            let cause = Some(e);
            Err(TcpError::Silent { peer, cause }.into())
        }
        _ => Err(e).with_context(|| format!("{peer} cannot be reached: check address and routes")),
    }
}

/// For a connection to come about.
const PATIENCE: Duration = Duration::from_secs(10);
