//! quinn: a whole QUIC connection, greedy with unreliable datagrams (RFC 9221).
//!
//! What a controller gets is the pacer's, the loss detection's and the acknowledgements' doing as
//! well, so all of them run. Datagrams are sent once, as live media are: nothing waits for a
//! repair and no flow control stands in the way.

use core::fmt;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use quinn_proto::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, EcnCodepoint, EndpointConfig, Event,
    ServerConfig, TransportConfig,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tidegate_core::control::{Context, Ecn, TimerReason};
use tidegate_core::endpoint::{Check, Datagram, Endpoint, Input, Output, Transmit};
use tidegate_core::units::Time;

use crate::call::{Call, Part, Parts};
use crate::clock::Clock;

/// A controller that quinn has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// An early form of BBR.
    Bbr,
    /// CUBIC (RFC 9438).
    Cubic,
    /// That of RFC 9002.
    NewReno,
}

/// A client that sends and a server that receives. The connection is set up over the network,
/// from the start of the call on.
///
/// # Errors
/// When the certificate or its use fails.
pub fn parts(call: &Call, controller: Controller) -> Result<Parts, TlsError> {
    let transport = Arc::new(transport(controller));
    let (mut server, mut client) = tls()?;
    server.transport_config(Arc::clone(&transport));
    client.transport_config(transport);
    let endpoint = |side: u8, server: Option<ServerConfig>| {
        let mut seed = [side; 32];
        seed[..8].copy_from_slice(&call.seed.to_le_bytes());
        let config = Arc::new(EndpointConfig::default());
        quinn_proto::Endpoint::new(config, server.map(Arc::new), false, Some(seed))
    };
    let party = |endpoint, state| Party {
        endpoint,
        state,
        answers: VecDeque::new(),
        next: Time::ZERO,
        clock: Clock::run(),
        call: call.clone(),
        failure: None,
    };
    Ok(Parts {
        sender: Box::new(party(endpoint(1, None), State::Calls(client))),
        receiver: Box::new(party(endpoint(2, Some(server)), State::Waits)),
    })
}

/// A client or a server with one connection.
struct Party {
    endpoint: quinn_proto::Endpoint,
    state: State,
    /// Datagrams of the endpoint itself, which belong to no connection.
    answers: VecDeque<(Option<EcnCodepoint>, Vec<u8>)>,
    next: Time,
    clock: Clock,
    call: Call,
    failure: Option<String>,
}

#[expect(clippy::large_enum_variant, reason = "there is one per party")]
enum State {
    /// A client that has not begun.
    Calls(ClientConfig),
    /// A server that nobody has called.
    Waits,
    /// Either, from its first packet on.
    Runs(Session),
}

struct Session {
    handle: ConnectionHandle,
    connection: Connection,
    /// Whether datagrams go out: at a client, once the handshake is over.
    feeds: bool,
    client: bool,
}

impl Party {
    fn begin(&mut self, now: Time) {
        let State::Calls(config) = &self.state else {
            return;
        };
        let now = self.clock.instant(now);
        match self.endpoint.connect(now, config.clone(), PEER, HOST) {
            Ok((handle, connection)) => {
                self.state = State::Runs(Session {
                    handle,
                    connection,
                    feeds: false,
                    client: true,
                });
            }
            Err(error) => self.failure = Some(error.to_string()),
        }
    }

    fn accept(&mut self, incoming: quinn_proto::Incoming, now: Time) {
        let mut answer = Vec::new();
        let accepted = self
            .endpoint
            .accept(incoming, self.clock.instant(now), &mut answer, None);
        match accepted {
            Ok((handle, connection)) => {
                self.state = State::Runs(Session {
                    handle,
                    connection,
                    feeds: false,
                    client: false,
                });
            }
            Err(error) => self.failure = Some(error.cause.to_string()),
        }
    }
}

impl Session {
    /// Lets connection and endpoint tell each other what they have to.
    fn settle(&mut self, endpoint: &mut quinn_proto::Endpoint) -> Result<(), String> {
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => self.feeds = self.client,
                Event::ConnectionLost { reason } => return Err(reason.to_string()),
                _ => {}
            }
        }
        while self.connection.datagrams().recv().is_some() {}
        Ok(())
    }

    /// Keeps the send buffer full, so that only the controller holds packets back.
    fn feed(&mut self) {
        let mut datagrams = self.connection.datagrams();
        let size = datagrams.max_size().unwrap_or(0);
        while self.feeds && datagrams.send_buffer_space() >= size {
            if datagrams.send(zeros(size), false).is_err() {
                break;
            }
        }
    }
}

impl Party {
    fn on_datagram(&mut self, cx: &mut Context<'_>, datagram: Datagram<'_>) {
        let ecn = EcnCodepoint::from_bits(datagram.ecn.bits());
        let data = BytesMut::from(datagram.payload);
        let now = self.clock.instant(cx.now);
        let mut answer = Vec::new();
        let event = self
            .endpoint
            .handle(now, PEER, None, ecn, data, &mut answer);
        match event {
            None => {}
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let State::Runs(session) = &mut self.state {
                    session.connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.accept(incoming, cx.now),
            Some(DatagramEvent::Response(transmit)) => {
                answer.truncate(transmit.size);
                self.answers.push_back((transmit.ecn, answer));
            }
        }
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.begin(cx.now);
        if let State::Runs(session) = &mut self.state {
            session
                .connection
                .handle_timeout(self.clock.instant(cx.now));
        }
    }

    fn transmit(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let ecn = |codepoint: Option<EcnCodepoint>| match codepoint {
            Some(codepoint) if self.call.ecn => Ecn::from_bits(codepoint as u8),
            _ => Ecn::NotEct,
        };
        if let Some((codepoint, answer)) = self.answers.pop_front() {
            buffer.extend_from_slice(&answer);
            return Some(Transmit {
                ecn: ecn(codepoint),
                dscp: 0,
            });
        }
        self.next = Time::FAR;
        let State::Runs(session) = &mut self.state else {
            return None;
        };
        if self.failure.is_some() {
            return None;
        }
        self.failure = session.settle(&mut self.endpoint).err();
        let pause = self.call.resumes(cx.now);
        if pause.is_none() {
            session.feed();
        }
        let now = self.clock.instant(cx.now);
        if let Some(transmit) = session.connection.poll_transmit(now, 1, buffer) {
            return Some(Transmit {
                ecn: ecn(transmit.ecn),
                dscp: 0,
            });
        }
        if let Some(next) = session.connection.poll_timeout() {
            self.next = self.clock.time(next);
        }
        self.next = self.next.min(pause.unwrap_or(Time::FAR));
        None
    }
}

impl Endpoint for Party {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        match input {
            Input::Datagram(datagram) => self.on_datagram(cx, datagram),
            Input::PeerChanged | Input::PathChanged | Input::Stream(_) => {}
            Input::Timeout => self.on_timeout(cx),
        }
        Check::default()
    }

    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        if let Some(transmit) = self.transmit(cx, buffer) {
            return Output::Send(transmit);
        }
        let pending = self.failure.is_none() && !matches!(self.state, State::Waits);
        let timer = (self.next, TimerReason::Pacing);
        Output::Wait((pending && self.next < Time::FAR).then_some(timer))
    }
}

impl Part for Party {
    fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

impl fmt::Debug for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Party")
            .field("next", &self.next)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

fn transport(controller: Controller) -> TransportConfig {
    let factory: Arc<dyn ControllerFactory + Send + Sync> = match controller {
        Controller::Bbr => Arc::new(BbrConfig::default()),
        Controller::Cubic => Arc::new(CubicConfig::default()),
        Controller::NewReno => Arc::new(NewRenoConfig::default()),
    };
    let mut transport = TransportConfig::default();
    transport
        .congestion_controller_factory(factory)
        // Paths of scenarios do not change, and outages may be long.
        .max_idle_timeout(None)
        .mtu_discovery_config(None)
        .initial_mtu(DATAGRAM)
        .datagram_send_buffer_size(4 * usize::from(DATAGRAM))
        .datagram_receive_buffer_size(Some(1_000_000));
    transport
}

/// A server with a certificate of its own making and a client that trusts it. Ed25519, whose
/// signatures are all equally long: so are the packets of the handshake.
fn tls() -> Result<(ServerConfig, ClientConfig), TlsError> {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
    let mut params = rcgen::CertificateParams::new(vec![HOST.to_owned()])?;
    params.serial_number = Some(rcgen::SerialNumber::from(1));
    let certificate = CertificateDer::from(params.self_signed(&key)?.der().to_vec());
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(TlsError::Key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());

    let mut server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)?;
    server.max_early_data_size = u32::MAX;
    let server = QuicServerConfig::try_from(server).map_err(|_| TlsError::Suite)?;

    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate)?;
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = QuicClientConfig::try_from(client).map_err(|_| TlsError::Suite)?;
    Ok((
        ServerConfig::with_crypto(Arc::new(server)),
        ClientConfig::new(Arc::new(client)),
    ))
}

fn zeros(size: usize) -> Bytes {
    Bytes::from_static(&ZEROS[..size.min(ZEROS.len())])
}

/// Reason why a connection cannot be prepared.
#[derive(Debug)]
pub enum TlsError {
    /// The certificate cannot be made.
    Certificate(rcgen::Error),
    /// Its key cannot be read back.
    Key(&'static str),
    /// The library of TLS has no cipher suite for the first packets of QUIC.
    Suite,
    /// TLS does not take the certificate or the version.
    Tls(rustls::Error),
}

impl From<rcgen::Error> for TlsError {
    fn from(error: rcgen::Error) -> Self {
        Self::Certificate(error)
    }
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        Self::Tls(error)
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(error) => write!(f, "no certificate can be made: {error}"),
            Self::Key(error) => write!(f, "the key of the certificate is unreadable: {error}"),
            Self::Suite => f.write_str("no cipher suite for the first packets of QUIC"),
            Self::Tls(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for TlsError {}

const HOST: &str = "peer";
/// Where the other side of a connection seems to be.
const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 4_433);
/// The least that a path of QUIC must carry (RFC 9000 section 14), and what leaves room for
/// tunnels. With the headers of IP and UDP it is 1228 bytes.
const DATAGRAM: u16 = 1_200;
static ZEROS: [u8; DATAGRAM as usize] = [0; DATAGRAM as usize];
