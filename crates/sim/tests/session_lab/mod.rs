//! A sender and a receiver with a path in each direction, with optional absence of the receiver and
//! reordering of packets.
#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test program uses a part of it"
)]

mod plain;

use std::collections::BTreeMap;
use std::time::Duration;

use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;
use tidegate_core::control::{Context, Ecn, TimerReason, sooner};
use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::tfrc::TfrcConfig;
use tidegate_core::endpoint::{Check, Datagram, Endpoint, Input, OVERHEAD, Output};
use tidegate_core::link::{
    Capacity, DropTailConfig, LinkConfig, LinkId, LinkStats, NamedLink, Network, NetworkConfig,
    Outage, QueueConfig, RouteId,
};
use tidegate_core::media::FrameRate;
use tidegate_core::random::Seed;
use tidegate_core::session::config::{
    FeedbackMode, PROBE_TYPE, REPAIR_TYPE, ReceiverConfig, SenderConfig, Streams,
};
use tidegate_core::session::history::PacketRow;
use tidegate_core::session::jitter_buffer::ReceivedFrame;
use tidegate_core::session::receiver::MediaReceiver;
use tidegate_core::session::sender::{SenderFailure, SentFrame};
use tidegate_core::session::setup::RateSetup;
use tidegate_core::session::stream::{Direct, Streamer};
use tidegate_core::trace::{DropCause, Event};
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_core::wire::rtcp::{self, Cname};
use tidegate_core::wire::rtp::RtpPacket;
use tidegate_sim::video_model::{VideoModel, VideoModelConfig};
use tidegate_sim::world::{EndpointAgent, Flight, Node, NodeId, Observer, World};

pub(crate) use plain::PlainFeedback;
use plain::PlainReceiver;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub(crate) struct SessionSetup {
    pub(crate) uplink: LinkConfig,
    pub(crate) downlink: LinkConfig,
    pub(crate) control: ControllerConfig,
    pub(crate) bound: Option<Duration>,
    pub(crate) floor: Rate,
    pub(crate) ceiling: Rate,
    pub(crate) seconds: u64,
    /// Frames per second.
    pub(crate) fps: u32,
    pub(crate) ecn: bool,
    pub(crate) parity: bool,
    pub(crate) patience: Duration,
    pub(crate) feedback: FeedbackMode,
    /// A receiver with this feedback replaces ours.
    pub(crate) plain: Option<PlainFeedback>,
    /// The receiver's process is dead in this interval; a new process replaces it.
    pub(crate) away: Option<(Time, Time)>,
    /// The address of the sender's host changes at this time.
    pub(crate) moved: Option<Time>,
    /// The receiver's decoder fails at this time.
    pub(crate) trouble: Option<Time>,
    /// From these times on, the path loses larger IP packets without a message.
    pub(crate) holes: Vec<(Time, Bytes)>,
    pub(crate) packet_size: Bytes,
    /// Maximum random delay of each packet at the end of the path.
    pub(crate) jitter: Duration,
    pub(crate) seed: u64,
}

impl SessionSetup {
    /// 4 Mb/s with a queue of 60 kB, 40 ms each way, a bound of 400 ms, for 20 s.
    pub(crate) fn new() -> Self {
        let link = |capacity| LinkConfig {
            capacity,
            queue: QueueConfig::DropTail(DropTailConfig::bytes(Bytes(60_000))),
            delay: Duration::from_millis(40),
            ..LinkConfig::default()
        };
        Self {
            uplink: link(Capacity::Fixed(Rate::kbps(4_000))),
            downlink: link(Capacity::Unlimited),
            control: ControllerConfig::from(TfrcConfig::default()),
            bound: Some(Duration::from_millis(400)),
            floor: Rate::kbps(150),
            ceiling: Rate::kbps(6_000),
            seconds: 20,
            fps: 30,
            ecn: false,
            parity: true,
            patience: Duration::from_secs(20),
            feedback: FeedbackMode::PerPacket,
            plain: None,
            away: None,
            moved: None,
            trouble: None,
            holes: Vec::new(),
            packet_size: Bytes(1_200),
            jitter: Duration::ZERO,
            seed: 1,
        }
    }

    /// Runs to the end, and for `more` after the last capture.
    pub(crate) fn run(&self, more: Duration) -> SessionRun {
        let network = NetworkConfig {
            links: [("up", &self.uplink), ("down", &self.downlink)]
                .map(|(name, config)| NamedLink {
                    name: name.into(),
                    config: config.clone(),
                })
                .into(),
            routes: vec![vec![LinkId(0)], vec![LinkId(1)]],
        };
        let seed = Seed(self.seed);
        let network = Network::new(&network, seed).expect("valid network");
        let party = |name: &str, endpoint, peer| Node {
            name: name.into(),
            agent: EndpointAgent::new(endpoint),
            flow: 0,
            dscp: 0,
            peer: NodeId(peer),
            // The first route is that of the sender.
            route: RouteId(1 - peer),
            start: Time::ZERO,
            stop: Time::FAR,
        };
        let receiver = match self.plain {
            Some(feedback) => Peer::Plain(Box::new(PlainReceiver::new(feedback))),
            None => Peer::Receiver(Box::new(self.ear(seed))),
        };
        let parties = vec![
            party("sender", Peer::Sender(Box::new(self.sender(seed))), 1),
            party("receiver", receiver, 0),
        ];
        let mut world = World::new(network, parties, seed).expect("valid world");
        let mut log = Log::default();
        let end = Time::from_secs(self.seconds) + more;
        let ended = world
            .run(end, &mut log)
            .unwrap_or_else(|error| panic!("{error}"));
        let links = [0, 1].map(|link| world.network().stats(LinkId(link), ended));
        let mut played = SessionRun {
            log,
            links,
            bound: self.bound,
            sent: Vec::new(),
            packets: Vec::new(),
            received: Vec::new(),
            failure: None,
            done: None,
        };
        for EndpointAgent { endpoint: node, .. } in world.into_agents() {
            match node {
                Peer::Sender(mut streamer) => {
                    let sender = streamer.inner.sender_mut();
                    played.failure = sender.failure();
                    played.done = sender.is_done().then_some(ended);
                    sender.finish_rows(&mut played.sent, &mut played.packets);
                }
                Peer::Receiver(mut ear) => {
                    ear.inner.finish();
                    ear.fetch();
                    played.received = ear.frames;
                }
                Peer::Plain(_) => {}
            }
        }
        played
    }

    fn sender(&self, seed: Seed) -> TestSender {
        let mut rng = seed.stream("session");
        let streams = Streams::with_ssrcs(rng.next_u32(), rng.next_u32());
        let mut config = SenderConfig::new(streams, name("sender@lab"));
        config.rates = (self.floor, self.ceiling);
        config.delay_bound = self.bound;
        config.ecn = self.ecn;
        config.packet_size = self.packet_size;
        config.parity = self.parity;
        config.patience = self.patience;
        config.transport_cc = self.plain.is_some_and(|plain| plain.transport.is_some());
        config.frame_rate = FrameRate::fps(self.fps);
        config.frames = Some(self.seconds * u64::from(self.fps));
        config.log = true;
        let model = VideoModelConfig {
            width: 640,
            height: 360,
            frame_rate: FrameRate::fps(self.fps),
        };
        let model = VideoModel::new(model, seed.stream("video"));
        let sender = RateSetup::new(&self.control, Time::ZERO).sender(config, &mut rng);
        TestSender {
            inner: Streamer::new(sender, Direct::new(model)),
            moved: self.moved,
        }
    }

    fn ear(&self, seed: Seed) -> TestReceiver {
        let hold = self.bound.unwrap_or(Duration::from_secs(2));
        let receiver = |ssrc| {
            let mut config = ReceiverConfig::new(ssrc, name("receiver@lab"), hold);
            config.feedback = self.feedback;
            MediaReceiver::new(config)
        };
        TestReceiver {
            inner: receiver(7),
            next: Some(receiver(8)),
            away: self.away,
            trouble: self.trouble,
            holes: self.holes.clone(),
            jitter: self.jitter,
            rng: seed.stream("jitter"),
            held: BTreeMap::new(),
            frames: Vec::new(),
        }
    }
}

/// Results of a run.
#[derive(Debug)]
pub(crate) struct SessionRun {
    pub(crate) log: Log,
    pub(crate) links: [LinkStats; 2],
    pub(crate) bound: Option<Duration>,
    pub(crate) sent: Vec<SentFrame>,
    pub(crate) packets: Vec<PacketRow>,
    pub(crate) received: Vec<ReceivedFrame>,
    pub(crate) failure: Option<SenderFailure>,
    /// End of the run, if the sender had finished.
    pub(crate) done: Option<Time>,
}

impl SessionRun {
    /// Completion times of the decodable frames, by frame number.
    pub(crate) fn whole(&self) -> BTreeMap<u64, (SentFrame, Time)> {
        let by_timestamp: BTreeMap<u32, &SentFrame> =
            self.sent.iter().map(|f| (f.timestamp, f)).collect();
        let whole = self.received.iter().filter_map(|f| {
            let sent = **by_timestamp.get(&(f.timestamp as u32))?;
            Some((sent.frame, (sent, f.complete?)))
        });
        whole.collect()
    }

    /// Share of the frames captured in this span that were decodable within the bound.
    pub(crate) fn on_time(&self, from: u64, to: u64) -> f64 {
        let span = Time::from_secs(from)..Time::from_secs(to);
        let whole = self.whole();
        let bound = self.bound.unwrap_or(Duration::MAX);
        let captured = self.sent.iter().filter(|f| span.contains(&f.captured));
        let (mut all, mut good) = (0, 0);
        for frame in captured {
            all += 1;
            good += u32::from(
                whole
                    .get(&frame.frame)
                    .is_some_and(|(_, at)| at.since(frame.captured) <= bound),
            );
        }
        f64::from(good) / f64::from(all.max(1))
    }

    /// Times of the sender's events for which `pick` returns a value.
    pub(crate) fn events<T>(&self, pick: impl Fn(Event) -> Option<T>) -> Vec<(Time, T)> {
        let events = self.log.events.iter().filter(|(party, ..)| party.0 == 0);
        events
            .filter_map(|(_, at, event)| Some((*at, pick(*event)?)))
            .collect()
    }

    /// The first of these events at `from` or later.
    pub(crate) fn first<T>(
        &self,
        from: Time,
        pick: impl Fn(Event) -> Option<T>,
    ) -> Option<(Time, T)> {
        self.events(pick).into_iter().find(|(at, _)| *at >= from)
    }

    /// Number of frames dropped for this reason.
    pub(crate) fn dropped(&self, cause: DropCause) -> usize {
        let dropped = self.sent.iter().filter(|f| f.dropped == Some(cause));
        dropped.count()
    }

    /// Rate on the wire of the RTP packets that arrived between two seconds.
    pub(crate) fn arrival_rate(&self, from: u64, to: u64) -> Rate {
        let span = Time::from_secs(from)..Time::from_secs(to);
        let arrived = self.log.arrivals.iter().filter(|(at, _)| span.contains(at));
        let bytes: u64 = arrived.map(|(_, size)| size.get()).sum();
        Bytes(bytes) / Duration::from_secs(to - from)
    }

    /// Rate of media and retransmissions on the wire between two seconds.
    pub(crate) fn wire_rate(&self, from: u64, to: u64) -> Rate {
        let span = Time::from_secs(from)..Time::from_secs(to);
        let flights = self.log.rtp.iter().filter(|f| span.contains(&f.at));
        let bytes: u64 = flights.map(|f| f.size.get()).sum();
        Bytes(bytes) / Duration::from_secs(to - from)
    }
}

/// Records of an observer.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) events: Vec<(NodeId, Time, Event)>,
    /// RTP packets at transmission.
    pub(crate) rtp: Vec<Rtp>,
    /// RTP packets at arrival.
    pub(crate) arrivals: Vec<(Time, Bytes)>,
    /// RTCP packets at transmission, by node.
    pub(crate) reports: [u64; 2],
    /// FNV-1a over all sent and received packets with their times.
    pub(crate) hash: u64,
}

/// An RTP packet at transmission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtp {
    pub(crate) at: Time,
    pub(crate) size: Bytes,
    pub(crate) repair: bool,
    pub(crate) probe: bool,
    pub(crate) timestamp: u32,
}

impl Log {
    fn mix(&mut self, at: Time, flight: Flight<'_>) {
        let head = at
            .as_nanos()
            .to_le_bytes()
            .into_iter()
            .chain([flight.ecn.bits()]);
        for byte in head.chain(flight.payload().iter().copied()) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

impl Observer for Log {
    fn event(&mut self, party: NodeId, at: Time, event: Event) {
        self.events.push((party, at, event));
    }

    fn sent(&mut self, at: Time, flight: Flight<'_>) {
        self.mix(at, flight);
        if rtcp::is_rtcp(flight.payload()) {
            self.reports[flight.node.0] += 1;
            return;
        }
        let header = RtpPacket::new_checked(flight.payload())
            .expect("RTP")
            .header();
        self.rtp.push(Rtp {
            at,
            size: flight.size,
            repair: header.payload_type == REPAIR_TYPE,
            probe: header.payload_type == PROBE_TYPE,
            timestamp: header.timestamp,
        });
    }

    fn arrived(&mut self, at: Time, flight: Flight<'_>) {
        self.mix(at, flight);
        if !rtcp::is_rtcp(flight.payload()) {
            self.arrivals.push((at, flight.size));
        }
    }
}

#[derive(Debug)]
enum Peer {
    Sender(Box<TestSender>),
    Receiver(Box<TestReceiver>),
    Plain(Box<PlainReceiver>),
}

/// A sender whose address may change.
#[derive(Debug)]
struct TestSender {
    inner: Streamer<Direct<VideoModel>>,
    moved: Option<Time>,
}

impl Endpoint for TestSender {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        if self.moved.take_if(|at| *at <= cx.now).is_some() {
            self.inner.handle(cx, Input::PathChanged);
        }
        self.inner.handle(cx, input)
    }

    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        match self.inner.poll(cx, buffer) {
            Output::Wait(timer) => {
                let moved = self.moved.map(|at| (at, TimerReason::Schedule));
                Output::Wait(sooner(timer, moved))
            }
            output => output,
        }
    }
}

/// A receiver with optional absence and decoder failure.
#[derive(Debug)]
struct TestReceiver {
    inner: MediaReceiver,
    next: Option<MediaReceiver>,
    away: Option<(Time, Time)>,
    trouble: Option<Time>,
    holes: Vec<(Time, Bytes)>,
    jitter: Duration,
    rng: Pcg64Mcg,
    held: BTreeMap<(Time, u64), (Ecn, Vec<u8>)>,
    frames: Vec<ReceivedFrame>,
}

impl TestReceiver {
    fn is_away(&self, now: Time) -> bool {
        self.away.is_some_and(|(from, to)| from <= now && now < to)
    }

    /// Replaces a dead process by a new one.
    fn come_back(&mut self, now: Time) {
        if self.away.is_some_and(|(_, to)| to <= now) {
            self.away = None;
            self.fetch();
            self.inner = self.next.take().expect("the receiver is absent only once");
        }
    }

    fn fetch(&mut self) {
        self.frames
            .extend(core::iter::from_fn(|| self.inner.poll_frame()));
    }
}

impl TestReceiver {
    fn on_datagram(&mut self, cx: &mut Context<'_>, datagram: Datagram<'_>) {
        self.come_back(cx.now);
        let size = Bytes(datagram.payload.len() as u64) + OVERHEAD;
        let hole = self.holes.iter().rev().find(|(from, _)| *from <= cx.now);
        if self.is_away(cx.now) || hole.is_some_and(|(_, most)| size > *most) {
            return;
        }
        if self.jitter.is_zero() {
            self.inner.handle(cx, Input::Datagram(datagram));
            return;
        }
        let wait = self.rng.next_u64() % (self.jitter.as_nanos() as u64);
        let at = cx.now + Duration::from_nanos(wait);
        let packet = (datagram.ecn, datagram.payload.to_vec());
        self.held.insert((at, self.rng.next_u64()), packet);
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.come_back(cx.now);
        if self.is_away(cx.now) {
            return;
        }
        while let Some(entry) = self.held.first_entry()
            && entry.key().0 <= cx.now
        {
            let (ecn, payload) = entry.remove();
            let payload = &payload;
            let datagram = Datagram {
                ecn,
                dscp: 0,
                payload,
            };
            self.inner.handle(cx, Input::Datagram(datagram));
        }
        if self.trouble.is_some_and(|at| at <= cx.now) {
            self.trouble = None;
            self.inner.on_decoder_trouble(cx.now);
        }
        self.inner.handle(cx, Input::Timeout);
        self.fetch();
    }

    /// The next timer, if the receiver itself has `own`.
    fn timer(&self, own: Option<(Time, TimerReason)>) -> Option<(Time, TimerReason)> {
        let held = self.held.keys().next().map(|(at, _)| *at);
        let next = [own.map(|(at, _)| at), held, self.trouble];
        let next = next.into_iter().flatten().min();
        let next = match self.away {
            // A dead receiver has no deadlines; the new process wakes up at the end of the absence.
            Some((from, to)) => next.filter(|at| *at < from).or(Some(to)),
            None => next,
        };
        let why = own.map_or(TimerReason::Schedule, |(_, why)| why);
        next.map(|at| (at, why))
    }
}

impl Endpoint for TestReceiver {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        match input {
            Input::Datagram(datagram) => self.on_datagram(cx, datagram),
            Input::PeerChanged | Input::PathChanged | Input::Stream(_) => {}
            Input::Timeout => self.on_timeout(cx),
        }
        Check::default()
    }

    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        if self.is_away(cx.now) {
            return Output::Wait(self.timer(None));
        }
        match self.inner.poll(cx, buffer) {
            Output::Done(own) if self.away.is_some() => Output::Wait(self.timer(own)),
            Output::Done(own) => Output::Done(self.timer(own)),
            Output::Wait(own) => Output::Wait(self.timer(own)),
            output => output,
        }
    }
}

impl Endpoint for Peer {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        match self {
            Self::Sender(e) => e.handle(cx, input),
            Self::Receiver(e) => e.handle(cx, input),
            Self::Plain(e) => e.handle(cx, input),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        match self {
            Self::Sender(e) => e.poll(cx, buffer),
            Self::Receiver(e) => e.poll(cx, buffer),
            Self::Plain(e) => e.poll(cx, buffer),
        }
    }
}

/// A single outage.
pub(crate) fn dark(from_ms: u64, to_ms: u64) -> Vec<Outage> {
    vec![Outage {
        from: Time::from_millis(from_ms),
        to: Time::from_millis(to_ms),
    }]
}

fn name(name: &str) -> Cname {
    Cname::new(name).expect("valid CNAME")
}
