//! The two ends of a connection: the connecting and the listening one.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rand_core::Rng as _;
use tidegate_core::session::tcp::{PlayerRtcp, TcpReceiver};
use tidegate_live::driver::RunLimits;
use tidegate_live::tcp::{
    Admitted, Listener, Opening, Refusal, TcpError, TcpOptions, TcpSocket, connect,
};

use super::TcpArgs;
use super::encryption::Encryption;
use super::sending::StreamResult;
use crate::lookup::{ADDRESS_ADVICE, host_and_port, lookup};
use crate::recv::address::bind_any;
use tidegate_console::context::{self, LiveContext};
use tidegate_console::describe;
use tidegate_console::exit::EnvironmentError;
use tidegate_console::progress::{counted, say};

/// End of a connection to be made.
#[derive(Debug)]
pub(crate) struct End {
    way: Way,
    encryption: Encryption,
}

/// Way to establish a connection.
#[derive(Debug)]
enum Way {
    /// Connect to an address.
    To(String),
    /// Accept at a port.
    At(TcpListener),
}

impl End {
    /// Connects to `to`, or listens at `at`. Prints the fingerprint and the port of a listening end,
    /// and what is `awaited` there.
    ///
    /// # Errors
    /// Neither is given, the port cannot be bound, or other hosts are reached without TLS.
    pub(crate) fn new(
        to: Option<&str>,
        at: Option<&str>,
        encryption: Encryption,
        awaited: &str,
    ) -> Result<Self> {
        let way = match (to, at) {
            (Some(to), _) => {
                encryption.check_address(to)?;
                Way::To(to.to_owned())
            }
            (None, Some(at)) => {
                let listener = listen(at)?;
                encryption.check_listener(&listener)?;
                if let Some(fingerprint) = encryption.fingerprint() {
                    say(format_args!(
                        "TLS: the other end verifies this one by --tls-fingerprint {fingerprint}"
                    ));
                    if encryption.accepts_all(&listener)? {
                        say(
                            "TLS: every host that reaches this port can connect; to verify the other \
                            end, give --tls-client-fingerprint or --tls-client-ca",
                        );
                    }
                }
                let port = listener
                    .local_addr()
                    .context("the socket has no address")?
                    .port();
                say(format_args!("waiting for {awaited} at port {port}"));
                Way::At(listener)
            }
            (None, None) => bail!("no address of the other end: give an address or a port"),
        };
        Ok(Self { way, encryption })
    }

    /// Calls `play` for the only player, or for each player that connects, until `over` or Ctrl-C.
    /// Its last argument is the number of the player, from 1. A player that accepts no data is not
    /// counted. The clock restarts for each player. A listening end drops a player that does not
    /// acknowledge the data in the socket within the idle timeout, and serves connections in the
    /// order of their first reports, which have to arrive within the same time.
    ///
    /// # Errors
    /// The connection is refused, `play` fails, or the connection to the only player breaks.
    pub(crate) fn each(
        &self,
        around: &mut LiveContext,
        args: &TcpArgs,
        mut over: impl FnMut() -> bool,
        mut play: impl FnMut(&LiveContext, &mut TcpSocket, u32) -> Result<StreamResult>,
    ) -> Result<()> {
        let (options, idle) = (&args.options(), args.idle_timeout());
        let listener = match &self.way {
            Way::To(to) => {
                let asked = || around.interrupts.count() > 0 || over();
                let Some(mut socket) = dial(to, &self.encryption, &around.conditions(), asked)?
                else {
                    return Ok(());
                };
                around.renew();
                socket.configure(options)?;
                return play(around, &mut socket, 1)?.ended;
            }
            Way::At(listener) => {
                start::<PlayerRtcp>(listener, idle, &self.encryption, &around.conditions())?
            }
        };
        let mut player = 1;
        loop {
            let asked = || around.interrupts.count() > 0 || over();
            let refused = |refusal: &Refusal, omitted| {
                say_refusal(refusal, omitted, "waiting for the next player");
            };
            let next = listener.next(&around.conditions(), asked, refused)?;
            let Some(Admitted { mut socket, .. }) = next else {
                return Ok(());
            };
            around.renew();
            socket.limit_stall(idle);
            let (took, ended) = match socket.configure(options) {
                Ok(()) => {
                    let played = play(around, &mut socket, player)?;
                    player += u32::from(played.took);
                    (played.took, played.ended)
                }
                Err(error) => (false, Err(error.into())),
            };
            if let Err(error) = ended {
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
        }
    }

    /// A connection from which a stream can be read. The listening end accepts the first peer that
    /// sends a decodable frame within `patience`. Refusals of others, such as port scans and health
    /// checks, are printed. `None` if the user interrupts the wait.
    ///
    /// # Errors
    /// The connection is refused, or a system call fails.
    pub(crate) fn open_stream(
        &self,
        conditions: &RunLimits,
        patience: Duration,
        asked: impl FnMut() -> bool,
    ) -> Result<Option<Admitted<TcpReceiver>>> {
        match &self.way {
            Way::To(to) => {
                let Some(mut socket) = dial(to, &self.encryption, conditions, asked)? else {
                    return Ok(None);
                };
                let ssrc = context::secret_seed().stream("player").next_u32();
                socket.send_first_report(ssrc)?;
                Ok(Some(Admitted {
                    socket,
                    opening: TcpReceiver::new(),
                    since: conditions.clock.now(),
                }))
            }
            Way::At(listener) => {
                let listener = start(listener, patience, &self.encryption, conditions)?;
                let refused = |refusal: &Refusal, omitted| {
                    say_refusal(refusal, omitted, "waiting for another sender");
                };
                Ok(listener.next(conditions, asked, refused)?)
            }
        }
    }
}

/// Accepts connections of `listener` on a thread.
fn start<O: Opening>(
    listener: &TcpListener,
    limit: Duration,
    encryption: &Encryption,
    conditions: &RunLimits,
) -> Result<Listener<O>> {
    let tls = encryption.server();
    let started = listener
        .try_clone()
        .and_then(|listener| Listener::start(listener, limit, tls, conditions));
    started.context("cannot start the thread that accepts connections")
}

fn say_refusal(refusal: &Refusal, omitted: u64, next: &str) {
    let others = match omitted {
        0 => String::new(),
        many => format!(", after {} like it", counted(many, "connection")),
    };
    say(format_args!("{refusal}{others}; {next}"));
}

/// System error in brackets, if any.
fn in_brackets(cause: Option<&io::Error>) -> String {
    cause.map_or_else(String::new, |cause| format!(" ({cause})"))
}

fn listen(at: &str) -> Result<TcpListener> {
    let bound = match at.parse() {
        Ok(port) => bind_any(port, TcpListener::bind),
        Err(_) => lookup(at).and_then(|found| TcpListener::bind(&found[..])),
    };
    bound.with_context(|| {
        format!(
            "cannot listen at \"{at}\": give it as PORT or ADDR:PORT, and check with `ss -ltn` \
            that it is free"
        )
    })
}

/// Connects to an address, with TLS if it is configured. `None` if the user interrupts the wait.
///
/// # Errors
/// As [`connect_to`]; the address is another host without TLS, or the handshake fails.
pub(crate) fn dial(
    to: &str,
    encryption: &Encryption,
    conditions: &RunLimits,
    mut asked: impl FnMut() -> bool,
) -> Result<Option<TcpSocket>> {
    let Some((stream, peer)) = connect_to(to, conditions, &mut asked)? else {
        return Ok(None);
    };
    encryption.check_peer(peer)?;
    let mut socket = TcpSocket::of_peer(stream, peer, &TcpOptions::default())?;
    if let Some((tls, name)) = encryption.client(to)
        && !socket.secure(tls, name, PATIENCE, conditions, asked)?
    {
        return Ok(None);
    }
    Ok(Some(socket))
}

/// Connects to an address, without options. `None` if the user interrupts the wait.
///
/// # Errors
/// The address is not HOST:PORT, or the connection is refused.
pub(crate) fn connect_to(
    to: &str,
    conditions: &RunLimits,
    mut asked: impl FnMut() -> bool,
) -> Result<Option<(TcpStream, SocketAddr)>> {
    let addresses = host_and_port(to)?;
    let mut failure = None;
    for peer in addresses {
        match connect(peer, PATIENCE, conditions, &mut asked) {
            Ok(stream) => return Ok(stream.map(|stream| (stream, peer))),
            Err(e) => failure = Some((peer, e)),
        }
    }
    let Some((peer, e)) = failure else {
        bail!("\"{to}\" has no address: {ADDRESS_ADVICE}")
    };
    match e.kind() {
        io::ErrorKind::ConnectionRefused => {
            bail!(EnvironmentError::new(format_args!(
                "connection refused by {peer}: start the other end first, or correct the address"
            )))
        }
        // The peer accepted and closed the connection at once.
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            let cause = Some(e);
            Err(TcpError::Silent { peer, cause }.into())
        }
        _ => Err(e).with_context(|| format!("cannot reach {peer}: check address and routes")),
    }
}

/// Limit of a connection attempt, and of a TLS handshake.
const PATIENCE: Duration = Duration::from_secs(10);
