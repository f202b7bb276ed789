//! A session over QUIC: another transport is one type that implements [`Transport`].

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, Event,
    ServerConfig,
};
use rand_core::Rng;
use rustls::pki_types::PrivateKeyDer;
use tidegate_core::control::Ecn;
use tidegate_core::controller::fixed::FixedConfig;
use tidegate_core::endpoint::{self, Datagram, Input, Output};
use tidegate_core::media::{EncodeError, Encoded, FrameEncoder, FrameOrder, FrameRate};
use tidegate_core::random::Seed;
use tidegate_core::session::config::{ReceiverConfig, SenderConfig, Streams};
use tidegate_core::session::receiver::MediaReceiver;
use tidegate_core::session::setup::RateSetup;
use tidegate_core::session::stream::{Direct, Streamer};
use tidegate_core::trace::Trace;
use tidegate_core::units::{Bytes as Size, Rate, Time};
use tidegate_core::wire::rtcp::Cname;
use tidegate_live::clock::Clock;
use tidegate_live::driver::{DriverReport, EndReason, RunLimits, StopFlag, drive_over};
use tidegate_live::transport::{Failure, Received, Transport};

/// One connection, whose unreliable datagrams (RFC 9221) carry RTP and RTCP.
#[derive(Debug)]
struct QuicTransport {
    socket: UdpSocket,
    peer: SocketAddr,
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    is_connected: bool,
    lost: Option<String>,
    clock: Clock,
    next: Option<Time>,
}

impl QuicTransport {
    fn new(socket: UdpSocket, peer: SocketAddr, server: Option<ServerConfig>) -> Self {
        let config = Arc::new(EndpointConfig::default());
        Self {
            socket,
            peer,
            endpoint: Endpoint::new(config, server.map(Arc::new), false, None),
            connection: None,
            is_connected: false,
            lost: None,
            clock: Clock::start(),
            next: None,
        }
    }

    fn connect(&mut self, config: ClientConfig) {
        let connection = self
            .endpoint
            .connect(Instant::now(), config, self.peer, HOST);
        self.connection = Some(connection.unwrap());
    }

    /// Waits for the end of the handshake.
    fn establish(mut self) -> Self {
        self.serve().unwrap();
        while !self.is_connected {
            assert_eq!(self.lost, None);
            let wait = self.next.map_or(GUARD, |next| self.clock.until(next));
            let wait = wait.max(Duration::from_millis(1));
            self.socket.set_read_timeout(Some(wait)).unwrap();
            self.read().unwrap();
            self.on_timer(self.clock.now()).unwrap();
        }
        self.socket.set_nonblocking(true).unwrap();
        self
    }

    /// Reads a packet; false if there is none.
    fn read(&mut self) -> io::Result<bool> {
        let (mut packet, mut answer) = (BytesMut::zeroed(2_048), Vec::new());
        let (length, source) = match self.socket.recv_from(&mut packet) {
            Ok(received) => received,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(e) => return Err(e),
        };
        packet.truncate(length);
        let now = Instant::now();
        let event = self
            .endpoint
            .handle(now, source, None, None, packet, &mut answer);
        match event {
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let Some((_, connection)) = &mut self.connection {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                let accepted = self.endpoint.accept(incoming, now, &mut answer, None);
                let accepted = accepted.map_err(|e| io::Error::other(e.cause))?;
                self.connection = Some(accepted);
            }
            Some(DatagramEvent::Response(response)) => {
                self.socket.send_to(&answer[..response.size], source)?;
            }
            None => {}
        }
        self.serve()?;
        Ok(true)
    }

    /// Sends what the connection has to send, and asks for its next timer.
    fn serve(&mut self) -> io::Result<()> {
        let Some((handle, connection)) = &mut self.connection else {
            return Ok(());
        };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        while let Some(event) = connection.poll() {
            match event {
                Event::Connected => self.is_connected = true,
                Event::ConnectionLost { reason } => self.lost = Some(reason.to_string()),
                _ => {}
            }
        }
        let mut packet = Vec::new();
        while let Some(transmit) = connection.poll_transmit(Instant::now(), 1, &mut packet) {
            self.socket.send_to(&packet[..transmit.size], self.peer)?;
            packet.clear();
        }
        let next = connection.poll_timeout();
        let now = self.clock.now();
        self.next = next.map(|next| now + next.saturating_duration_since(Instant::now()));
        Ok(())
    }
}

impl Transport for QuicTransport {
    fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        core::iter::once(self.socket.as_fd())
    }

    fn receive<'a>(
        &'a mut self,
        _: usize,
        clock: Clock,
        buffer: &'a mut [u8],
    ) -> Result<Option<Received<'a>>, Failure> {
        loop {
            let connection = self.connection.as_mut();
            let datagram = connection.and_then(|(_, connection)| connection.datagrams().recv());
            if let Some(datagram) = datagram {
                let payload = &mut buffer[..datagram.len()];
                payload.copy_from_slice(&datagram);
                let (ecn, dscp) = (Ecn::NotEct, 0);
                return Ok(Some(Received {
                    at: clock.now(),
                    is_new_peer: false,
                    input: Input::Datagram(Datagram { ecn, dscp, payload }),
                }));
            }
            if let Some(reason) = self.lost.take() {
                return Err(Failure::Broken(io::Error::other(reason)));
            }
            if !self.read().map_err(Failure::Lost)? {
                return Ok(None);
            }
        }
    }

    fn transmit(&mut self, _: Output, payload: &[u8]) -> Result<usize, Failure> {
        if let Some((_, connection)) = &mut self.connection {
            let data = Bytes::copy_from_slice(payload);
            let sent = connection.datagrams().send(data, true);
            sent.map_err(|e| Failure::Lost(io::Error::other(e)))?;
        }
        self.serve().map_err(Failure::Lost)?;
        Ok(payload.len())
    }

    fn timer(&self) -> Option<Time> {
        self.next
    }

    fn on_timer(&mut self, _: Time) -> Result<(), Failure> {
        if let Some((_, connection)) = &mut self.connection {
            connection.handle_timeout(Instant::now());
        }
        self.serve().map_err(Failure::Lost)
    }

    fn peer(&self) -> Option<SocketAddr> {
        Some(self.peer)
    }
}

/// A server with a certificate of its own, and a client that trusts it.
fn tls() -> (ServerConfig, ClientConfig) {
    let issued = rcgen::generate_simple_self_signed([HOST.to_owned()]).unwrap();
    let certificate = issued.cert.der().clone();
    let key = PrivateKeyDer::try_from(issued.signing_key.serialize_der()).unwrap();
    let server = ServerConfig::with_single_cert(vec![certificate.clone()], key).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
    (server, client)
}

/// Encodes each frame to three packets.
#[derive(Debug)]
struct Blank;

impl FrameEncoder for Blank {
    fn encode(&mut self, order: &FrameOrder) -> Result<Encoded, EncodeError> {
        let sets = [0, 0, 0, 1, 0x67, 0x42, 0xc0, 0x1f, 0, 0, 0, 1, 0x68, 0xce];
        let mut data = if order.key { sets.to_vec() } else { Vec::new() };
        data.extend([0, 0, 0, 1, if order.key { 0x65 } else { 0x41 }, 0x88]);
        data.resize(3_000, 0x5a);
        Ok(Encoded {
            frame: order.frame,
            captured: order.captured,
            key: order.key,
            leading: false,
            data,
            quality: None,
        })
    }

    fn frame_rate(&self) -> FrameRate {
        FrameRate::fps(30)
    }
}

/// Drives an endpoint over the transport to its end.
fn play<E: endpoint::Endpoint>(
    transport: QuicTransport,
    endpoint: &mut E,
    mut on_turn: impl FnMut(&mut E),
) -> DriverReport {
    let limits = RunLimits {
        clock: transport.clock,
        until: Some(Time::ZERO + GUARD),
        stop: StopFlag::new().unwrap(),
    };
    let (mut rng, mut trace) = (Seed(2).stream("quic"), ());
    let shared: (&mut dyn Rng, &mut dyn Trace) = (&mut rng, &mut trace);
    let (_, result) = drive_over(transport, endpoint, &limits, shared, |endpoint, _| {
        on_turn(endpoint);
        ControlFlow::Continue(())
    })
    .unwrap();
    result.unwrap()
}

#[test]
fn frames_arrive_and_reports_return_over_quic() {
    let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let (here, there) = (near.local_addr().unwrap(), far.local_addr().unwrap());
    let name = |text: &str| Cname::new(text).unwrap();
    let (server, client) = tls();
    let receiving = thread::spawn(move || {
        let transport = QuicTransport::new(far, here, Some(server)).establish();
        let config = ReceiverConfig::new(7, name("receiver@test"), Duration::from_secs(1));
        let (mut receiver, mut whole) = (MediaReceiver::new(config), 0);
        let report = play(transport, &mut receiver, |receiver| {
            let frames = std::iter::from_fn(|| receiver.poll_frame());
            whole += frames.filter(|frame| frame.complete.is_some()).count();
        });
        (report, whole)
    });
    let mut transport = QuicTransport::new(near, there, None);
    transport.connect(client);
    let mut config = SenderConfig::new(Streams::with_ssrcs(1, 2), name("sender@test"));
    config.frames = Some(FRAMES as u64);
    // QUIC needs some bytes of its least packet of 1,200 bytes.
    config.packet_size = Size(1_100);
    let transport = transport.establish();
    let (rate, now) = (Rate::kbps(4_000), transport.clock.now());
    let control = FixedConfig { rate };
    let sender = RateSetup::new(&control, now).sender(config, &mut Seed(1).stream("session"));
    let mut sender = Streamer::new(sender, Direct::new(Blank));
    let sent = play(transport, &mut sender, |_| {});
    let (received, whole) = receiving.join().unwrap();
    assert_eq!((sent.why, received.why), (EndReason::Done, EndReason::Done));
    assert_eq!(whole, FRAMES);
    assert!(sender.sender().status().rtt.is_some(), "no report returned");
}

const HOST: &str = "localhost";
const FRAMES: usize = 50;
/// Ends a test that hangs. No result depends on it.
const GUARD: Duration = Duration::from_mins(1);
