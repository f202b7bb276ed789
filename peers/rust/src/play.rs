//! Plays a scenario with a peer in place of our controllers.

use core::convert::Infallible;
use core::fmt;
use core::time::Duration;
use std::path::PathBuf;

use tidegate_core::control::{Cx, Why};
use tidegate_core::controller::ControllerConfig;
use tidegate_core::endpoint::{Datagram, Endpoint, Transmit};
use tidegate_core::link::{Network, NetworkError, StepsError};
use tidegate_core::media::FrameEncoder;
use tidegate_core::random::Seed;
use tidegate_core::session::stream::Direct;
use tidegate_core::units::{Bytes, Rate, Time, nanos};
use tidegate_sim::cast::{Role, SimPlayer};
use tidegate_sim::play;
use tidegate_sim::scenario::{
    EncoderKind, FlowPlan, MediaPlan, Scenario, VideoPlan, back_of, path_of,
};
use tidegate_sim::video_model::{VideoModel, VideoModelConfig};
use tidegate_sim::world::{Party, PartyId, World, WorldError};

use crate::call::{Call, Part};
use crate::meter::{Meter, Span};
use crate::peer::{CastError, Peer};
use crate::result::{BIN, FlowOutcome, Outcome};

/// How peers are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The source of all randomness.
    pub seed: Seed,
    /// From which peers that send video start.
    pub first_rate: Rate,
    /// The program of `peers/pion`, which only that peer needs.
    pub pion: Option<PathBuf>,
}

/// Plays `scenario` once.
///
/// Flows of a fixed rate are background and stay as they are; `peer` takes the place of every
/// other controller. Baselines are not played.
///
/// # Errors
/// When the scenario has what the peer cannot do, or the peer fails.
pub fn scenario(scenario: &Scenario, peer: Peer, options: &Options) -> Result<Outcome, PlayError> {
    check(scenario, peer)?;
    let seed = options.seed;
    let library = peer.library(options.pion.as_deref());
    let library = library.map_err(PlayError::Library)?;
    let network = scenario.network().map_err(PlayError::Steps)?;
    let network = Network::new(&network, seed).map_err(PlayError::Network)?;
    let parties = parties(scenario, peer, options)?;
    let mut world = World::new(network, parties, seed).map_err(PlayError::World)?;
    let mut meter = Meter::new(scenario.flows.len(), scenario.duration);
    let end = Time::ZERO + scenario.duration + TAIL;
    world.run(end, &mut meter).map_err(PlayError::World)?;
    for (party, player) in world.into_endpoints().iter().enumerate() {
        if let Some(why) = player.failure() {
            return Err(PlayError::Failed {
                flow: scenario.flows[party / 2].name.clone(),
                why: why.to_owned(),
            });
        }
    }
    let flows = scenario.flows.iter().enumerate();
    Ok(Outcome {
        scenario: scenario.name.clone(),
        control: peer.name().to_owned(),
        library,
        seed: seed.0,
        duration_ms: scenario.duration.as_millis() as u64,
        flows: flows
            .map(|(place, flow)| outcome(scenario, place, flow, peer, &mut meter))
            .collect(),
    })
}

/// Refuses what would be played wrongly.
fn check(scenario: &Scenario, peer: Peer) -> Result<(), PlayError> {
    // In full, so that what is new in scenarios is not passed over.
    let Scenario {
        name: _,
        about: _,
        duration: _,
        seed: _,
        links: _,
        flows,
        baselines: _,
        expect: _,
    } = scenario;
    if flows.iter().all(is_background) {
        return Err(PlayError::NothingToPlay);
    }
    for flow in flows {
        let unfit = |unfit| PlayError::Unfit {
            flow: flow.name.clone(),
            peer,
            unfit,
        };
        match &flow.media {
            MediaPlan::Video(video) => {
                if is_background(flow) && video.encoder == EncoderKind::X264 {
                    return Err(unfit(Unfit::Encoder));
                }
            }
            MediaPlan::Bulk { packet } => {
                if !is_background(flow) && *packet != PACKET {
                    return Err(unfit(Unfit::Packet(*packet)));
                }
            }
        }
        if flow.ecn && !is_background(flow) && !peer.knows_ecn() {
            return Err(unfit(Unfit::Ecn));
        }
    }
    Ok(())
}

fn is_background(flow: &FlowPlan) -> bool {
    matches!(flow.control, ControllerConfig::Fixed { .. })
}

fn parties(
    scenario: &Scenario,
    peer: Peer,
    options: &Options,
) -> Result<Vec<Party<Player>>, PlayError> {
    let seed = options.seed;
    let mut parties = Vec::with_capacity(scenario.flows.len() * 2);
    for (place, role) in play::roles(scenario).into_iter().enumerate() {
        let flow = &scenario.flows[place];
        let failed = |why: String| PlayError::Failed {
            flow: flow.name.clone(),
            why,
        };
        let (sender, receiver, linger) = if is_background(flow) {
            let sender = background(&role, seed);
            let receiver = Player::Ours(role.receiver(seed));
            (sender, receiver, TAIL)
        } else {
            let call = Call::new(scenario, place, options.first_rate, seed);
            let parts = peer.parts(&call, options.pion.as_deref());
            let parts = parts.map_err(|error| failed(error.to_string()))?;
            let (sender, receiver) = (Player::Peer(parts.sender), Player::Peer(parts.receiver));
            (sender, receiver, Duration::ZERO)
        };
        let first = parties.len();
        let stop = Time::ZERO + flow.stop;
        let party = |side: &str, endpoint, peer: usize, route, stop| Party {
            name: format!("{}/{side}", flow.name),
            endpoint,
            peer: PartyId(peer),
            route,
            start: Time::ZERO + flow.start,
            stop,
        };
        let there = party("sender", sender, first + 1, path_of(place), stop + linger);
        let back = party("receiver", receiver, first, back_of(place), stop + TAIL);
        parties.extend([there, back]);
    }
    Ok(parties)
}

/// A sender of a fixed rate, which is our own.
fn background(role: &Role, seed: Seed) -> Player {
    let pipe = |video: &VideoPlan| -> Result<_, Infallible> {
        let config = VideoModelConfig {
            width: video.width,
            height: video.height,
            frame_rate: video.frame_rate,
        };
        let rng = seed.stream(&format!("video/{}", role.name));
        let encoder: Box<dyn FrameEncoder> = Box::new(VideoModel::new(config, rng));
        Ok(Direct::new(encoder))
    };
    let Ok(sender) = role.sender(seed, pipe);
    Player::Ours(sender)
}

fn outcome(
    scenario: &Scenario,
    place: usize,
    flow: &FlowPlan,
    peer: Peer,
    meter: &mut Meter,
) -> FlowOutcome {
    let path = flow.path.iter().map(|link| scenario.links[*link].delay);
    let propagation: Duration = path.sum();
    let span = Span {
        start: Time::ZERO + flow.start,
        stop: Time::ZERO + flow.stop,
        propagation,
    };
    let control = if is_background(flow) {
        flow.control.name()
    } else {
        peer.name()
    };
    FlowOutcome {
        name: flow.name.clone(),
        control: control.to_owned(),
        start_ms: nanos(flow.start) / 1_000_000,
        stop_ms: nanos(flow.stop) / 1_000_000,
        propagation_ms: propagation.as_secs_f64() * 1e3,
        bins_ms: BIN.as_millis() as u64,
        curves: meter.curves(place),
        summary: meter.summary(place, span),
    }
}

/// One end of a flow.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are a handful of them")]
enum Player {
    Ours(SimPlayer),
    Peer(Box<dyn Part>),
}

impl Player {
    fn failure(&self) -> Option<&str> {
        match self {
            Self::Ours(_) => None,
            Self::Peer(part) => part.failure(),
        }
    }
}

impl Endpoint for Player {
    fn on_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        match self {
            Self::Ours(e) => e.on_datagram(cx, datagram),
            Self::Peer(e) => e.on_datagram(cx, datagram),
        }
    }

    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        match self {
            Self::Ours(e) => e.on_timeout(cx),
            Self::Peer(e) => e.on_timeout(cx),
        }
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buffer: &mut Vec<u8>) -> Option<Transmit> {
        match self {
            Self::Ours(e) => e.poll_transmit(cx, buffer),
            Self::Peer(e) => e.poll_transmit(cx, buffer),
        }
    }

    fn next_timeout(&self) -> Option<(Time, Why)> {
        match self {
            Self::Ours(e) => e.next_timeout(),
            Self::Peer(e) => e.next_timeout(),
        }
    }

    fn is_done(&self) -> bool {
        match self {
            Self::Ours(e) => e.is_done(),
            Self::Peer(e) => e.is_done(),
        }
    }
}

/// Why a scenario was not played.
#[derive(Debug)]
pub enum PlayError {
    /// A flow broke down.
    Failed {
        /// Which.
        flow: String,
        /// How.
        why: String,
    },
    /// The peer cannot be had.
    Library(CastError),
    /// A link cannot be built.
    Network(NetworkError),
    /// All flows are background.
    NothingToPlay,
    /// A link's capacity has steps that do not follow each other.
    Steps(StepsError),
    /// A flow has what the peer cannot do.
    Unfit {
        /// Which.
        flow: String,
        /// The peer.
        peer: Peer,
        /// What.
        unfit: Unfit,
    },
    /// A party does not let time go on.
    World(WorldError),
}

/// What a peer cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It does not answer marks.
    Ecn,
    /// There is no libx264 here.
    Encoder,
    /// Its packets have a size of their own.
    Packet(Bytes),
}

impl fmt::Display for PlayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { flow, why } => write!(f, "flow {flow:?}: {why}"),
            Self::Library(error) => write!(f, "{error}"),
            Self::Network(error) => write!(f, "{error}"),
            Self::NothingToPlay => f.write_str(
                "every flow has a fixed rate: a peer needs one whose control is another",
            ),
            Self::Steps(error) => write!(f, "{error}"),
            Self::Unfit { flow, peer, unfit } => {
                write!(f, "flow {flow:?}: ")?;
                match unfit {
                    Unfit::Ecn => write!(
                        f,
                        "{} does not answer marks: set ecn = false or choose another peer",
                        peer.name()
                    ),
                    Unfit::Encoder => {
                        f.write_str("background video is modelled here: set encoder = \"model\"")
                    }
                    Unfit::Packet(size) => write!(
                        f,
                        "peers choose their packets, of about {} bytes: set packet = \"{0}B\" instead of {}",
                        PACKET.get(),
                        size.get()
                    ),
                }
            }
            Self::World(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for PlayError {}

/// What the packets of peers come near to.
const PACKET: Bytes = Bytes(1_200);
/// After the last packet, what is under way may still arrive.
const TAIL: Duration = Duration::from_secs(2);
