//! All streams of the server: reservation, start and end.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rand_core::Rng as _;
use tidegate_console::context::{LiveContext, secret_seed};
use tidegate_console::progress::{counted, say};
use tidegate_core::control::Prior;
use tidegate_core::controller::ControllerConfig;
use tidegate_core::session::config::{
    KnownPath, MEDIA_TYPE, SenderConfig, Streams as SessionStreams,
};
use tidegate_core::session::relay_reports::RelayReports;
use tidegate_core::session::sender::MediaSender;
use tidegate_core::session::setup::RateSetup;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_core::wire::ntp::Ntp;
use tidegate_core::wire::rtcp::Cname;
use tidegate_knowledge::Cloud;
use tidegate_live::clock::Clock;
use tidegate_live::driver::StopFlag;
use tidegate_live::entropy;
use tidegate_live::udp::{Socket, bind_pair};
use tidegate_media::Title;
use tidegate_rtsp::{ClientPorts, ClientTransport, Playing, Refusal, Reserved, SessionId, Status};

use super::admission::{self, Spenders, StartKind};
use super::interleaved::Relay;
use super::source::Source;
use super::stream::{self, RunningStream, Snapshot};
use super::threads::StreamThreads;
use crate::learning::KnownPaths;
use crate::live;

/// Settings of all streams.
#[derive(Clone, Debug)]
pub(super) struct StreamSettings {
    pub(super) control: ControllerConfig,
    pub(super) delay_bound: Duration,
    pub(super) packet_size: Bytes,
    /// Limit of the number of streams.
    pub(super) streams: usize,
    /// The same for one client.
    pub(super) of_client: usize,
    /// Quantile of the predicted rate that the lowest rendition may need.
    pub(super) admission: Option<f64>,
    /// Encode for each client.
    pub(super) encode: bool,
}

/// The streams by session.
#[derive(Debug)]
pub(super) struct Streams {
    settings: StreamSettings,
    clock: Clock,
    epoch: Ntp,
    cname: Cname,
    open: BTreeMap<SessionId, Stream>,
    /// Streams whose session has ended, until their BYE has left.
    ending: Vec<Stream>,
    threads: StreamThreads,
    known: Option<KnownPaths>,
    spenders: Spenders,
    /// Results of the ended streams.
    pub(super) totals: Totals,
}

/// Results of ended streams.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    pub(super) streams: u64,
    pub(super) frames: u64,
    pub(super) bytes: Bytes,
    pub(super) lateness: super::pacing::Lateness,
}

/// A stream of a session.
#[derive(Debug)]
pub(super) struct Stream {
    /// Where the packets arrive, or the connection that they are interleaved in.
    pub(super) client: SocketAddr,
    is_interleaved: bool,
    pub(super) name: String,
    pub(super) title: Arc<Title>,
    pub(super) start: StartKind,
    ssrc: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Set up; nothing was sent.
    Reserved(Vec<Socket>),
    Running(RunningStream),
    Ended,
}

impl Streams {
    pub(super) fn new(
        settings: StreamSettings,
        context: &LiveContext,
        known: Option<KnownPaths>,
    ) -> Self {
        let mut rng = secret_seed().stream("cname");
        Self {
            settings,
            clock: context.clock,
            epoch: context.epoch,
            cname: live::random_name(&mut rng),
            open: BTreeMap::new(),
            ending: Vec::new(),
            threads: StreamThreads::new(context.clock),
            known,
            spenders: Spenders::default(),
            totals: Totals::default(),
        }
    }

    /// Whether frames are encoded for each client.
    pub(super) fn encodes(&self) -> bool {
        self.settings.encode
    }

    /// Lowest and highest rate of a title, without headers.
    fn rates(&self, title: &Title) -> (Rate, Rate) {
        let highest = title.highest_rate();
        if self.settings.encode {
            let (floor, _) = live::Limits::default().both();
            return (floor, highest.max(floor));
        }
        // Twice the rate of the highest rendition, so that the pacing does not delay its key frames.
        let lowest = title.lowest_rate();
        (lowest, highest.scale(2, 1).max(lowest))
    }

    /// The streams that are set up.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.open.values()
    }

    /// Reserves a stream from `local` to the client of a connection, with the end of the stream at
    /// this connection if it is interleaved.
    pub(super) fn reserve(
        &mut self,
        (name, title): (&str, Arc<Title>),
        (local, peer): (IpAddr, SocketAddr),
        transport: ClientTransport,
    ) -> Result<(Reserved, Option<Relay>), Refusal> {
        let all = self.open.len() + self.ending.len();
        let network = network(peer.ip());
        let streams = self.open.values().chain(&self.ending);
        let of_client = streams.filter(|stream| self::network(stream.client.ip()) == network);
        if all >= self.settings.streams || of_client.count() >= self.settings.of_client {
            return Err(unavailable("too many streams"));
        }
        let session = session_id().map_err(|_| unavailable("no random numbers"))?;
        let mut rng = secret_seed().stream("ssrc");
        let ssrc = rng.next_u32();
        let no_ports = |_| unavailable("no free ports");
        let (client, sockets, server_ports, relay) = match transport {
            ClientTransport::Udp(ports) => {
                let opened = sockets(local, peer.ip(), ports).map_err(no_ports)?;
                ((peer.ip(), ports.rtp).into(), opened.0, opened.1, None)
            }
            ClientTransport::Interleaved(channels) => {
                let reports = RelayReports::new(rng.next_u32(), ssrc, self.epoch);
                let (relay, socket) = Relay::new(session, channels, reports).map_err(no_ports)?;
                (peer, vec![socket], (0, 0), Some(relay))
            }
        };
        let stream = Stream {
            client,
            is_interleaved: relay.is_some(),
            name: name.to_owned(),
            title,
            start: StartKind::Slow,
            ssrc,
            state: State::Reserved(sockets),
        };
        self.open.insert(session, stream);
        let reserved = Reserved {
            session,
            server_ports,
            ssrc,
        };
        Ok((reserved, relay))
    }

    /// Starts or continues a stream. `rtt` is the round-trip time of the RTSP connection.
    pub(super) fn play(
        &mut self,
        session: SessionId,
        from: Option<Duration>,
        rtt: Option<Duration>,
    ) -> Result<Playing, Refusal> {
        let now = self.clock.now();
        let stream = self.open.get(&session).ok_or_else(gone)?;
        let end = stream.title.duration();
        if from.is_some_and(|from| from >= end) {
            return Err(refusal(Status::InvalidRange, "after the end of the title"));
        }
        if let State::Running(running) = &stream.state {
            return self.resume(stream, running, from);
        }
        // What is known of paths is about UDP, and TCP would add what is not.
        let client = (!stream.is_interleaved).then_some(stream.client.ip());
        let (start, prior) = self.start_kind(client, rtt);
        let stream = self.open.get(&session).ok_or_else(gone)?;
        let sender = self.sender(stream, now, prior);
        let known = self.known.as_ref().zip(client);
        let from = from.unwrap_or_default();
        let opened = StopFlag::new().map_err(anyhow::Error::from);
        let opened = opened.and_then(|stop| {
            let source = if self.settings.encode {
                Source::encoded(&stream.title, from, stop.clone())?
            } else {
                Source::stored(&stream.title, from)
            };
            Ok((source, stop))
        });
        let (source, stop) = opened.map_err(|error| {
            say(format_args!("{}: {error:#}", stream.name));
            unavailable("the stream cannot be started")
        })?;
        let from = source.position();
        let timestamp = sender.timestamp(now + source.delay());
        let first = Some((sender.next_sequence(), timestamp));
        let stream = self.open.get_mut(&session).ok_or_else(gone)?;
        let State::Reserved(sockets) = &mut stream.state else {
            return Err(gone());
        };
        let sockets = std::mem::take(sockets);
        let sides = (source, known.map(|(known, client)| known.learner(client)));
        let (driven, running) = stream::Stream::new(sender, sides, (now, stop.clone()));
        let started = self.threads.start(driven, sockets, stop);
        started.map_err(|error| {
            say(format_args!("cannot start a stream: {error}"));
            stream.state = State::Ended;
            unavailable("no thread")
        })?;
        stream.state = State::Running(running);
        stream.start = start;
        let (client, start, how) = (stream.client, start.text(), stream.how());
        say(format_args!("{client} plays {}{how}, {start}", stream.name));
        Ok(Playing {
            from,
            end: Some(end),
            first,
        })
    }

    /// Continues a running stream.
    fn resume(
        &self,
        stream: &Stream,
        running: &RunningStream,
        from: Option<Duration>,
    ) -> Result<Playing, Refusal> {
        let state = running.snapshot();
        let end = Some(stream.title.duration());
        // After the last frame the stream waits for its BYE.
        let is_over = Some(state.position) >= end;
        if is_over || state.ended.is_some() || running.is_finished() {
            return Err(gone());
        }
        if self.settings.encode && from.is_some() {
            let why = "an encoded stream continues at its position";
            return Err(refusal(Status::InvalidRange, why));
        }
        running.play(from);
        let from = from.map(|from| stream.title.key_before(state.rendition, from));
        Ok(Playing {
            from: from.unwrap_or(state.position),
            end,
            first: state.first(self.clock.now()),
        })
    }

    pub(super) fn pause(&self, session: SessionId) {
        if let Some(State::Running(running)) = self.open.get(&session).map(|stream| &stream.state) {
            running.pause();
        }
    }

    /// Ends a stream.
    pub(super) fn tear_down(&mut self, session: SessionId) {
        if let Some(stream) = self.open.remove(&session)
            && let State::Running(running) = &stream.state
        {
            running.close();
            self.ending.push(stream);
        }
    }

    /// Time of the last report of a client.
    pub(super) fn last_received(&self, session: SessionId) -> Option<Time> {
        match &self.open.get(&session)?.state {
            State::Running(running) => running.last_received(),
            _ => None,
        }
    }

    /// Collects the streams that have ended.
    pub(super) fn turn(&mut self) {
        for stream in self.open.values_mut().chain(&mut self.ending) {
            if let State::Running(running) = &stream.state
                && running.is_finished()
            {
                stream.collect(&mut self.totals);
            }
        }
        self.ending
            .retain(|stream| matches!(stream.state, State::Running(_)));
    }

    /// Ends all streams and waits for them.
    pub(super) fn finish(&mut self) {
        let sessions: Vec<SessionId> = self.open.keys().copied().collect();
        for session in sessions {
            self.tear_down(session);
        }
        self.threads.finish();
        for mut stream in std::mem::take(&mut self.ending) {
            stream.collect(&mut self.totals);
        }
        if let Some(known) = self.known.take() {
            known.finish();
        }
    }

    /// Reason to refuse a title to a client, by the prediction of the path.
    pub(super) fn refusal(&self, title: &Title, client: IpAddr) -> Option<String> {
        let quantile = self.settings.admission?;
        if admission::may_try(client, self.clock.now()) {
            return None;
        }
        let found = self.known.as_ref()?.predict(client)?;
        // Predictions are rates on the wire.
        let packet = self.settings.packet_size.get();
        let needed = self.rates(title).0.scale(packet, packet - HEADERS);
        admission::refusal(&found, needed, quantile)
    }

    /// How a stream to `client` over UDP starts, and what it starts from.
    fn start_kind(
        &mut self,
        client: Option<IpAddr>,
        rtt: Option<Duration>,
    ) -> (StartKind, Option<(Prior, Duration)>) {
        let (Some(known), Some(client)) = (&self.known, client) else {
            return (StartKind::Slow, None);
        };
        let Some(found) = known.predict(client) else {
            return (StartKind::Miss, None);
        };
        let Some(prior) = found.prior() else {
            let why = "without a round-trip time";
            return (StartKind::Unused(why), None);
        };
        let rtt = match admission::check(prior, rtt) {
            Ok(rtt) => rtt,
            Err(why) => return (StartKind::Unused(why), None),
        };
        let is_of_cloud = |stream: &&Stream| Cloud::of(stream.client.ip()) == Cloud::of(client);
        let running = self.open.values().filter(is_of_cloud).count();
        if !self.spenders.admit(self.clock.now(), client, running) {
            return (StartKind::Unused("others start from it"), None);
        }
        (StartKind::Informed, Some((prior, rtt)))
    }

    fn sender(&self, stream: &Stream, now: Time, prior: Option<(Prior, Duration)>) -> MediaSender {
        let mut rng = secret_seed().stream("session");
        let mut streams = SessionStreams::with_ssrcs(stream.ssrc, rng.next_u32());
        streams.media_type = MEDIA_TYPE;
        let settings = &self.settings;
        let mut config = SenderConfig::new(streams, self.cname.clone());
        config.epoch = self.epoch;
        config.frame_rate = stream.title.frame_rate();
        config.rates = self.rates(&stream.title);
        config.delay_bound = Some(settings.delay_bound);
        config.packet_size = settings.packet_size;
        // Key frames of a file are where they are.
        config.key_interval = (!settings.encode).then_some(u64::MAX);
        // The description has neither retransmissions nor parity packets.
        config.retransmit = false;
        config.parity = false;
        // Players report on received media only.
        config.greets = false;
        config.known_path = prior.map(|(prior, rtt)| KnownPath {
            rtt,
            rate: prior.rate.scale(1, 2),
        });
        config.log = true;
        let setup = RateSetup {
            prior: prior.map(|(prior, _)| prior),
            ..RateSetup::new(&settings.control, now)
        };
        setup.sender(config, &mut rng)
    }
}

impl Stream {
    /// State of the stream; `None` before it plays and after its end.
    pub(super) fn snapshot(&self) -> Option<Snapshot> {
        match &self.state {
            State::Running(running) => Some(running.snapshot()),
            _ => None,
        }
    }

    /// Transport, for messages.
    fn how(&self) -> &'static str {
        if self.is_interleaved {
            ", over TCP"
        } else {
            ""
        }
    }

    /// Reports the result of a stream that has ended.
    fn collect(&mut self, totals: &mut Totals) {
        let State::Running(running) = std::mem::replace(&mut self.state, State::Ended) else {
            return;
        };
        let last = running.snapshot();
        totals.streams += 1;
        totals.frames += last.frames.0;
        totals.bytes += last.bytes;
        totals.lateness.merge(&last.lateness);
        let (sent, dropped) = last.frames;
        // A stream that has panicked leaves no reason; its thread has printed the panic.
        let why = last.ended.unwrap_or_else(|| "internal error".to_owned());
        let why = if why.is_empty() {
            why
        } else {
            format!("; {why}")
        };
        say(format_args!(
            "{} leaves {}: {} sent, {dropped} dropped{why}",
            self.client,
            self.name,
            counted(sent, "frame"),
        ));
    }
}

/// Sockets from `local` to ports of `client`, and their ports.
fn sockets(
    local: IpAddr,
    client: IpAddr,
    ports: ClientPorts,
) -> io::Result<(Vec<Socket>, (u16, u16))> {
    let (media, control) = bind_pair(local, None, UdpSocket::bind)?;
    let server = (media.local_addr()?.port(), control.local_addr()?.port());
    let media = Socket::connected(media, (client, ports.rtp).into())?;
    let control = Socket::rtcp(control, (client, ports.rtcp).into())?;
    Ok((vec![media, control], server))
}

fn session_id() -> Result<SessionId> {
    let seed = entropy::seed().context("the system provides no random bytes")?;
    let (id, _) = seed.split_at(16);
    let id = id.iter().fold(0, |id, byte| id << 8 | u128::from(*byte));
    Ok(SessionId(id))
}

fn unavailable(why: &str) -> Refusal {
    refusal(Status::ServiceUnavailable, why)
}

fn gone() -> Refusal {
    refusal(Status::NotValidInThisState, "the stream has ended")
}

fn refusal(status: Status, why: &str) -> Refusal {
    Refusal {
        status,
        why: why.to_owned(),
    }
}

/// IPv4, UDP and RTP headers.
const HEADERS: u64 = 40;

/// Addresses that one client may have: an IPv4 address, or an IPv6 /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}
