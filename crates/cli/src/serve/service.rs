//! RTSP connections: titles and streams as the host of each.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use tidegate_console::progress::say;
use tidegate_core::session::config::MEDIA_TYPE;
use tidegate_core::trace::RecordLimiter;
use tidegate_core::units::Time;
use tidegate_core::wire::sdp::{Feedback, Sdp};
use tidegate_live::tcp::{Service, ServiceRefusal};
use tidegate_media::Title;
use tidegate_rtsp::{
    ClientTransport, Connection, Description, Host, Limits, Playing, Refusal, Reserved, SessionId,
    Status,
};

use super::catalogue::{Catalogue, TitleFault};
use super::interleaved::Relay;
use super::streams::Streams;

/// The RTSP server.
#[derive(Debug)]
pub(super) struct RtspService {
    catalogue: Catalogue,
    streams: Streams,
    /// Limits the log lines that clients cause.
    limiter: RecordLimiter,
}

/// A connection with its addresses.
#[derive(Debug)]
pub(super) struct Client {
    connection: Connection,
    local: SocketAddr,
    peer: SocketAddr,
    /// Round-trip time of the connection, if known.
    rtt: Option<Duration>,
    /// Ends of the interleaved streams.
    relays: Vec<Relay>,
    /// Packet of one of them that is being written, the session, and the number of written bytes.
    packet: Vec<u8>,
    packet_of: Option<SessionId>,
    written: usize,
    /// Time from which on it is written.
    since: Time,
}

impl Client {
    /// Time at which the connection is given up, because it takes no packet.
    fn stuck_at(&self) -> Option<Time> {
        (!self.packet.is_empty()).then(|| self.since + STUCK)
    }
}

impl RtspService {
    pub(super) fn new(catalogue: Catalogue, streams: Streams) -> Self {
        Self {
            catalogue,
            streams,
            limiter: RecordLimiter::default(),
        }
    }

    pub(super) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    pub(super) fn streams(&self) -> &Streams {
        &self.streams
    }

    pub(super) fn streams_mut(&mut self) -> &mut Streams {
        &mut self.streams
    }

    /// Passes an input to a connection, with this server as its host.
    fn with(
        &mut self,
        now: Time,
        client: &mut Client,
        input: impl FnOnce(&mut Connection, &mut dyn Host),
    ) {
        let mut host = ClientHost {
            service: self,
            now,
            local: client.local,
            peer: client.peer,
            rtt: client.rtt,
            relays: &mut client.relays,
        };
        input(&mut client.connection, &mut host);
    }

    /// Prints a line that a client has caused.
    fn log(&mut self, now: Time, line: &str) {
        if let Some(omitted) = self.limiter.admit(now) {
            let omitted = match omitted {
                0 => String::new(),
                omitted => format!(" ({omitted} lines before omitted)"),
            };
            say(format_args!("{line}{omitted}"));
        }
    }
}

impl Service for RtspService {
    type Connection = Client;

    fn accept(&mut self, now: Time, local: SocketAddr, peer: SocketAddr) -> Client {
        Client {
            connection: Connection::new(peer.ip(), Limits::default(), now),
            local,
            peer,
            rtt: None,
            relays: Vec::new(),
            packet: Vec::new(),
            packet_of: None,
            written: 0,
            since: Time::ZERO,
        }
    }

    fn on_refused(&mut self, now: Time, peer: SocketAddr, refusal: ServiceRefusal) {
        let what = match refusal {
            ServiceRefusal::Connections => "there are too many connections",
            ServiceRefusal::OfNetwork => "it has too many connections",
        };
        self.log(now, &format!("{peer} refused: {what}"));
    }

    fn room(&self, client: &Client) -> usize {
        client.connection.room()
    }

    fn on_rtt(&mut self, client: &mut Client, rtt: Duration) {
        client.rtt = Some(rtt);
    }

    fn on_bytes(&mut self, now: Time, client: &mut Client, bytes: &[u8]) {
        self.with(now, client, |connection, host| {
            connection.on_bytes(now, bytes, host);
        });
    }

    fn output<'a>(&self, client: &'a Client) -> &'a [u8] {
        match client.packet.get(client.written..) {
            Some(rest) if !rest.is_empty() => rest,
            _ => client.connection.output(),
        }
    }

    fn sources(&self, client: &Client) -> Vec<RawFd> {
        client.relays.iter().map(Relay::source).collect()
    }

    fn load(&mut self, now: Time, client: &mut Client) -> bool {
        client.since = now;
        let packet = &mut client.packet;
        let loaded = client.relays.iter().find(|relay| relay.read(packet));
        client.packet_of = loaded.map(|relay| relay.session);
        loaded.is_some()
    }

    fn on_written(&mut self, now: Time, client: &mut Client, count: usize) {
        if !client.packet.is_empty() {
            client.written += count;
            if client.written >= client.packet.len() {
                let mut relays = client.relays.iter_mut();
                // The session may have ended since.
                if let Some(relay) = relays.find(|relay| client.packet_of == Some(relay.session)) {
                    relay.on_accepted(now, &client.packet);
                }
                client.packet.clear();
                client.written = 0;
            }
            return;
        }
        self.with(now, client, |connection, host| {
            connection.on_written(now, count, host);
        });
    }

    fn on_timeout(&mut self, now: Time, client: &mut Client) {
        for relay in &mut client.relays {
            relay.on_timeout(now);
        }
        if client.stuck_at().is_some_and(|at| at <= now) {
            client.packet.clear();
            client.written = 0;
            self.with(now, client, |connection, host| connection.close(host));
        }
        self.with(now, client, |connection, host| {
            connection.on_timeout(now, host);
        });
    }

    fn next_timeout(&self, client: &Client) -> Option<Time> {
        let last_received = |session| self.streams.last_received(session);
        let reports = client.relays.iter().filter_map(Relay::next_timeout);
        let own = client.connection.next_timeout(&last_received);
        reports.chain(own).chain(client.stuck_at()).min()
    }

    fn is_over(&self, client: &Client) -> bool {
        client.connection.is_over()
    }

    fn on_closed(&mut self, now: Time, mut client: Client) {
        self.with(now, &mut client, |connection, host| connection.close(host));
    }
}

/// The server, for one connection.
struct ClientHost<'a> {
    service: &'a mut RtspService,
    now: Time,
    local: SocketAddr,
    peer: SocketAddr,
    rtt: Option<Duration>,
    relays: &'a mut Vec<Relay>,
}

impl ClientHost<'_> {
    /// A title that can be sent to this client.
    fn title(&mut self, name: &str) -> Result<Arc<Title>, Refusal> {
        let title = self.readable(name)?;
        let refusal = self.service.streams.refusal(&title, self.peer.ip());
        if let Some(why) = refusal {
            let line = format!("{} asks for {name:?}: {why}: refused", self.peer);
            self.service.log(self.now, &line);
            let status = Status::NotEnoughBandwidth;
            return Err(Refusal { status, why });
        }
        Ok(title)
    }

    fn readable(&mut self, name: &str) -> Result<Arc<Title>, Refusal> {
        self.service.catalogue.title(name).map_err(|fault| {
            let (status, what) = match fault {
                TitleFault::Missing => (Status::NotFound, "there is no such title"),
                TitleFault::Broken => (Status::UnsupportedMediaType, "the title cannot be read"),
            };
            let line = format!("{} asks for {name:?}: {what}", self.peer);
            self.service.log(self.now, &line);
            let why = what.to_owned();
            Refusal { status, why }
        })
    }
}

impl Host for ClientHost<'_> {
    fn describe(&mut self, name: &str) -> Result<Description, Refusal> {
        let title = self.title(name)?;
        let sets = title.renditions()[0].parameter_sets();
        let sets = sets.filter(|_| !self.service.streams.encodes());
        let any: std::net::IpAddr = if self.peer.is_ipv4() {
            std::net::Ipv4Addr::UNSPECIFIED.into()
        } else {
            std::net::Ipv6Addr::UNSPECIFIED.into()
        };
        let sdp = Sdp {
            session: 0,
            address: any,
            port: 0,
            payload_type: MEDIA_TYPE,
            rtx: None,
            parity: None,
            probe: None,
            // Those of an encoder are in the stream.
            parameter_sets: sets.cloned(),
            frame_rate: Some(title.frame_rate()),
            source: None,
            source_filter: Vec::new(),
            crypto: Vec::new(),
            feedback: Feedback::default(),
            rtcp_mux: false,
            rtcp_port: None,
            rtcp_reduced_size: false,
        };
        let duration = Some(title.duration());
        Ok(Description { sdp, duration })
    }

    fn set_up(&mut self, name: &str, transport: ClientTransport) -> Result<Reserved, Refusal> {
        let title = self.title(name)?;
        let ends = (self.local.ip(), self.peer);
        let reserved = self.service.streams.reserve((name, title), ends, transport);
        if let Err(refusal) = &reserved {
            let line = format!("{} asks for {name:?}: {}", self.peer, refusal.why);
            self.service.log(self.now, &line);
        }
        let (reserved, relay) = reserved?;
        self.relays.extend(relay);
        Ok(reserved)
    }

    fn play(&mut self, session: SessionId, from: Option<Duration>) -> Result<Playing, Refusal> {
        self.service.streams.play(session, from, self.rtt)
    }

    fn pause(&mut self, session: SessionId) {
        self.service.streams.pause(session);
    }

    fn tear_down(&mut self, session: SessionId) {
        self.service.streams.tear_down(session);
        self.relays.retain(|relay| relay.session != session);
    }

    fn last_received(&self, session: SessionId) -> Option<Time> {
        self.service.streams.last_received(session)
    }
}

/// As long as a stream waits for an answer (`SenderConfig::patience`).
const STUCK: Duration = Duration::from_secs(20);
