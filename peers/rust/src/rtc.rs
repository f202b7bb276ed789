//! str0m: its GCC, with its pacer, its probes and transport-wide feedback every 50 ms.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use str0m::bwe::{Bitrate, BweKind};
use str0m::format::Codec;
use str0m::media::{MediaKind, Pt};
use str0m::net::{Protocol, Receive};
use str0m::rtp::RtpWrite;
use str0m::{Candidate, Event, Input, Output, Rtc, RtcError};
use tidegate_core::control::{Context, TimerReason, sooner};
use tidegate_core::endpoint::{self, Check, Datagram, Endpoint, Transmit};
use tidegate_core::link::{
    LinkConfig, LinkId, NamedLink, Network, NetworkConfig, NetworkError, RouteId,
};
use tidegate_core::random::Seed;
use tidegate_core::units::{Rate, Time};
use tidegate_sim::world::{self, EndpointAgent, NodeId, World, WorldError};

use crate::call::{Call, Part, Parts};
use crate::clock::Clock;
use crate::source::Source;

/// A sender and a receiver that are connected when the call starts.
///
/// # Errors
/// When they do not come to be.
pub fn parts(call: &Call) -> Result<Parts, SetupError> {
    str0m::crypto::from_feature_flags().install_process_default();
    fastrand::seed(call.seed);
    let [mut sender, mut receiver] = connected(call)?;
    let mut direct = sender.rtc.direct_api();
    direct.declare_media(STREAM.into(), MediaKind::Video);
    direct.declare_stream_tx(MEDIA.into(), Some(REPAIR.into()), STREAM.into(), None);
    let mut direct = receiver.rtc.direct_api();
    direct.declare_media(STREAM.into(), MediaKind::Video);
    direct.expect_stream_rx(MEDIA.into(), Some(REPAIR.into()), STREAM.into(), None);
    direct.enable_twcc_feedback();
    let codec = sender
        .rtc
        .codec_config()
        .find(|codec| codec.spec().codec == Codec::Vp8)
        .ok_or(SetupError::NoCodec)?
        .pt();
    sender.media = Some(Media {
        source: Source::new(call),
        target: call.first_rate,
        ceiling: Some(call.ceiling),
        codec,
        seq: 1,
        waiting: VecDeque::new(),
    });
    for party in [&mut sender, &mut receiver] {
        party.clock = Clock::run();
        party.next = party.clock.instant(call.start);
    }
    Ok(Parts {
        sender: Box::new(sender),
        receiver: Box::new(receiver),
    })
}

/// One end of a connection.
struct Party {
    rtc: Rtc,
    media: Option<Media>,
    clock: Clock,
    next: Instant,
    place: SocketAddr,
    peer: SocketAddr,
    failure: Option<String>,
}

/// What a sender has above a receiver.
struct Media {
    source: Source,
    target: Rate,
    /// Not told yet.
    ceiling: Option<Rate>,
    codec: Pt,
    seq: u64,
    /// Packets of the present frame, with the time of its capture.
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    timestamp: u32,
    captured: Instant,
    payload: usize,
    last: bool,
}

impl Party {
    fn new(rtc: Rtc, clock: Clock, place: SocketAddr, peer: SocketAddr) -> Self {
        Self {
            rtc,
            media: None,
            clock,
            next: clock.instant(Time::ZERO),
            place,
            peer,
            failure: None,
        }
    }

    fn receive(&mut self, now: Instant, payload: &[u8]) -> Result<(), RtcError> {
        let receive = Receive {
            proto: Protocol::Udp,
            source: self.peer,
            destination: self.place,
            contents: payload.try_into()?,
        };
        self.rtc.handle_input(Input::Receive(now, receive))
    }

    /// The next datagram. The library wants to be read dry after each packet that it is given.
    fn transmit(&mut self, buffer: &mut Vec<u8>) -> Result<bool, RtcError> {
        loop {
            match self.rtc.poll_output()? {
                Output::Transmit(transmit) => {
                    buffer.extend_from_slice(&transmit.contents);
                    return Ok(true);
                }
                Output::Event(event) => self.hear(&event),
                Output::Timeout(at) => {
                    self.next = at;
                    if !self.write() {
                        return Ok(false);
                    }
                }
            }
        }
    }

    fn hear(&mut self, event: &Event) {
        if let Event::EgressBitrateEstimate(BweKind::Twcc { estimate, .. }) = event
            && let Some(media) = &mut self.media
        {
            media.target = Rate::bps(estimate.as_u64());
        }
    }

    /// Hands over the next packet of the present frame, if there is one.
    fn write(&mut self) -> bool {
        let Some(media) = &mut self.media else {
            return false;
        };
        let Some(packet) = media.waiting.pop_front() else {
            return false;
        };
        // This is what the first probes wait for. Before media there would be a stream of their
        // own, and which of two streams wakes a receiver is up to the order of a hash table.
        if let Some(ceiling) = media.ceiling.take_if(|_| packet.last) {
            self.rtc.bwe().set_desired_bitrate(bitrate(ceiling));
        }
        let mut direct = self.rtc.direct_api();
        let Some(stream) = direct.stream_tx(&MEDIA.into()) else {
            self.failure = Some("the stream to send on is gone".to_owned());
            return false;
        };
        let payload = vec![0; packet.payload];
        let write = RtpWrite::new(
            media.codec,
            media.seq.into(),
            packet.timestamp,
            packet.captured,
            payload,
        );
        stream.write_rtp(write.marker(packet.last).nackable(false));
        media.seq += 1;
        true
    }

    fn fail(&mut self, outcome: Result<(), RtcError>) {
        if let Err(error) = outcome {
            self.failure = Some(error.to_string());
        }
    }
}

impl Media {
    fn capture(&mut self, now: Time, clock: Clock) {
        if let Some(frame) = self.source.poll(now, self.target) {
            let last = frame.payloads.len() - 1;
            let packets = frame.payloads.iter().enumerate();
            self.waiting.extend(packets.map(|(i, payload)| Waiting {
                timestamp: frame.timestamp,
                captured: clock.instant(now),
                payload: *payload,
                last: i == last,
            }));
        }
    }
}

impl Party {
    fn on_datagram(&mut self, cx: &mut Context<'_>, datagram: Datagram<'_>) {
        let outcome = self.receive(self.clock.instant(cx.now), datagram.payload);
        self.fail(outcome);
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        let outcome = self
            .rtc
            .handle_input(Input::Timeout(self.clock.instant(cx.now)));
        self.fail(outcome);
        if let Some(media) = &mut self.media {
            media.capture(cx.now, self.clock);
        }
    }

    fn next_datagram(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Option<Transmit> {
        if !self.rtc.is_alive() {
            self.failure
                .get_or_insert_with(|| "str0m gave the connection up".to_owned());
        }
        if self.failure.is_some() {
            return None;
        }
        match self.transmit(buffer) {
            Ok(true) => Some(Transmit::default()),
            Ok(false) => {
                // It may ask for the present moment again, and mean soon.
                let now = self.clock.instant(cx.now);
                if self.next <= now {
                    self.next = now + TICK;
                }
                None
            }
            Err(error) => {
                self.failure = Some(error.to_string());
                None
            }
        }
    }

    fn timer(&self) -> Option<(Time, TimerReason)> {
        if self.failure.is_some() {
            return None;
        }
        let frame = self
            .media
            .as_ref()
            .map(|media| (media.source.next(), TimerReason::Capture));
        sooner(
            Some((self.clock.time(self.next), TimerReason::Pacing)),
            frame,
        )
    }
}

impl Endpoint for Party {
    fn handle(&mut self, cx: &mut Context<'_>, input: endpoint::Input<'_>) -> Check {
        match input {
            endpoint::Input::Datagram(datagram) => self.on_datagram(cx, datagram),
            endpoint::Input::PeerChanged
            | endpoint::Input::PathChanged
            | endpoint::Input::Stream(_) => {}
            endpoint::Input::Timeout => self.on_timeout(cx),
        }
        Check::default()
    }

    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> endpoint::Output {
        match self.next_datagram(cx, buffer) {
            Some(transmit) => endpoint::Output::Send(transmit),
            None => endpoint::Output::Wait(self.timer()),
        }
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
            .field("place", &self.place)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

/// Sets up a call in the seconds before it starts, in a world without loss and queues.
fn connected(call: &Call) -> Result<[Party; 2], SetupError> {
    let clock = Clock::ahead(call.start, SETUP);
    let build = |bwe: Option<Bitrate>| {
        let config = Rtc::builder().set_rtp_mode(true);
        let config = match bwe {
            Some(rate) => config.enable_bwe(Some(rate)),
            None => config,
        };
        config.build(clock.instant(Time::ZERO))
    };
    let mut sender = build(Some(bitrate(call.first_rate)));
    let mut receiver = build(None);
    introduce(&mut sender, &mut receiver)?;
    let party = |name: &str, endpoint, peer| world::Node {
        name: name.to_owned(),
        agent: EndpointAgent::new(endpoint),
        peer: NodeId(peer),
        route: RouteId(1 - peer),
        flow: 0,
        dscp: 0,
        start: Time::ZERO,
        stop: Time::FAR,
    };
    let parties = vec![
        party("sender", Party::new(sender, clock, SENDER, RECEIVER), 1),
        party("receiver", Party::new(receiver, clock, RECEIVER, SENDER), 0),
    ];
    let network = Network::new(&wires(call), Seed(call.seed)).map_err(SetupError::Network)?;
    let mut world = World::new(network, parties, Seed(call.seed)).map_err(SetupError::World)?;
    world
        .run(Time::ZERO + SETUP, &mut ())
        .map_err(SetupError::World)?;
    let parties: Vec<Party> = world
        .into_agents()
        .into_iter()
        .map(|agent| agent.endpoint)
        .collect();
    let parties: [Party; 2] = parties.try_into().map_err(|_| SetupError::TooSlow)?;
    if parties.iter().any(|party| !party.rtc.is_connected()) {
        return Err(SetupError::TooSlow);
    }
    Ok(parties)
}

fn wires(call: &Call) -> NetworkConfig {
    let wire = |name: &str, delay| NamedLink {
        name: name.to_owned(),
        config: LinkConfig {
            delay,
            ..LinkConfig::default()
        },
    };
    NetworkConfig {
        links: vec![wire("there", call.delays.0), wire("back", call.delays.1)],
        routes: vec![vec![LinkId(0)], vec![LinkId(1)]],
    }
}

/// What signalling would tell each of the other.
fn introduce(sender: &mut Rtc, receiver: &mut Rtc) -> Result<(), SetupError> {
    let here = Candidate::host(SENDER, "udp").map_err(|_| SetupError::Address)?;
    let there = Candidate::host(RECEIVER, "udp").map_err(|_| SetupError::Address)?;
    sender.add_local_candidate(here.clone());
    sender.add_remote_candidate(there.clone());
    receiver.add_local_candidate(there);
    receiver.add_remote_candidate(here);
    tell(sender, receiver);
    tell(receiver, sender);
    for (rtc, leads) in [(sender, true), (receiver, false)] {
        rtc.direct_api().set_ice_controlling(leads);
        rtc.direct_api().start_dtls(leads)?;
    }
    Ok(())
}

/// Tells `one` how to recognise `other`.
fn tell(one: &mut Rtc, other: &mut Rtc) {
    let other = other.direct_api();
    let mut one = one.direct_api();
    one.set_remote_fingerprint(other.local_dtls_fingerprint().clone());
    one.set_remote_ice_credentials(other.local_ice_credentials());
}

fn bitrate(rate: Rate) -> Bitrate {
    Bitrate::from(rate.as_bps())
}

/// Reason why a call was not set up.
#[derive(Debug)]
pub enum SetupError {
    /// An address that is constant is refused.
    Address,
    /// The wires do not stand.
    Network(NetworkError),
    /// The library knows no VP8.
    NoCodec,
    /// The library fails.
    Rtc(RtcError),
    /// The delay of the path leaves no time.
    TooSlow,
    /// A party does not let time go on.
    World(WorldError),
}

impl From<RtcError> for SetupError {
    fn from(error: RtcError) -> Self {
        Self::Rtc(error)
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("str0m refuses the addresses"),
            Self::Network(error) => write!(f, "{error}"),
            Self::NoCodec => f.write_str("str0m knows no VP8"),
            Self::Rtc(error) => write!(f, "{error}"),
            Self::TooSlow => write!(
                f,
                "the call is not set up within {SETUP:?}: use a path of less delay"
            ),
            Self::World(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for SetupError {}

const SENDER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 5_000);
const RECEIVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 5_000);
const STREAM: &str = "video";
const MEDIA: u32 = 42;
const REPAIR: u32 = 44;
/// ICE and DTLS take some round trips.
const SETUP: Duration = Duration::from_secs(8);
/// How soon.
const TICK: Duration = Duration::from_micros(10);
