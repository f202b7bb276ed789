//! Plays a scenario with a peer in place of our controllers.

use core::convert::Infallible;
use core::fmt;
use core::time::Duration;
use std::path::PathBuf;

use tidegate_core::control::{Context, TimerReason};
use tidegate_core::endpoint::{Check, Endpoint, Input, Output};
use tidegate_core::link::{Network, NetworkError, StepsError};
use tidegate_core::random::Seed;
use tidegate_core::session::stream::Direct;
use tidegate_core::units::{Bytes, Rate, Time, nanos};
use tidegate_sim::flow_endpoints::{Actor, FlowInstance, SimPlayer};
use tidegate_sim::model_flow::Workload;
use tidegate_sim::packet_agent::{Agent, AgentCx, Arrival, Body};
use tidegate_sim::scenario::{BulkPlan, EncoderKind, FlowPlan, MediaPlan, Scenario, VideoPlan};
use tidegate_sim::topology::{self, back_of, path_of};
use tidegate_sim::world::{EndpointAgent, Node, NodeId, World, WorldError};

use crate::call::{Call, Part, propagation};
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
/// TCP, UDP, browsers and flows of a fixed rate are background and stay as they are; `peer` takes
/// the place of every other controller. Baselines are not played.
///
/// # Errors
/// When the scenario has what the peer cannot do, or the peer fails.
pub fn scenario(scenario: &Scenario, peer: Peer, options: &Options) -> Result<Outcome, PlayError> {
    check(scenario, peer)?;
    let seed = options.seed;
    let library = peer.library(options.pion.as_deref());
    let library = library.map_err(PlayError::Library)?;
    let roles = topology::flow_instances(scenario, seed);
    let network = topology::network(scenario, &roles).map_err(PlayError::Steps)?;
    let network = Network::new(&network, seed).map_err(PlayError::Network)?;
    let parties = parties(scenario, &roles, peer, options)?;
    let mut world = World::new(network, parties, seed).map_err(PlayError::World)?;
    let mut meter = Meter::new(roles.len(), scenario.duration);
    let end = Time::ZERO + scenario.duration + TAIL;
    world.run(end, &mut meter).map_err(PlayError::World)?;
    for (party, member) in world.into_agents().iter().enumerate() {
        if let Some(why) = member.failure() {
            return Err(PlayError::Failed {
                flow: roles[party / 2].name.clone(),
                why: why.to_owned(),
            });
        }
    }
    let flows = roles.iter().enumerate();
    Ok(Outcome {
        scenario: scenario.name.clone(),
        control: peer.name().to_owned(),
        library,
        source: peer.source().to_owned(),
        seed: seed.0,
        duration_ms: scenario.duration.as_millis() as u64,
        flows: flows
            .map(|(place, role)| outcome(scenario, place, role, peer, &mut meter))
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
        measure: _,
        links: _,
        flows,
        // Those of `cp` flows, which are refused.
        aggregations: _,
        baselines: _,
        expect: _,
        link_form: _,
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
                if is_background(flow) && matches!(video.encoder, EncoderKind::Real(_)) {
                    return Err(unfit(Unfit::Encoder));
                }
            }
            MediaPlan::Bulk(bulk) => {
                if !is_background(flow) {
                    greedy(bulk).map_err(unfit)?;
                }
            }
            MediaPlan::Cp(_) => return Err(unfit(Unfit::Coordinated)),
            MediaPlan::Tcp(_) | MediaPlan::Udp(_) | MediaPlan::Web(_) => {}
        }
        if flow.ecn.is_capable() && !is_background(flow) && !peer.knows_ecn() {
            return Err(unfit(Unfit::Ecn));
        }
    }
    Ok(())
}

/// Whether bulk data are such as peers send.
fn greedy(bulk: &BulkPlan) -> Result<(), Unfit> {
    let BulkPlan {
        packet,
        workload,
        overhead,
    } = bulk;
    match workload {
        Workload::Greedy => {}
        Workload::Packets(_) => return Err(Unfit::Key("limit")),
        Workload::Application(_) => return Err(Unfit::Key("demand")),
    }
    if !overhead.is_zero() {
        return Err(Unfit::Key("overhead"));
    }
    if *packet == PACKET {
        Ok(())
    } else {
        Err(Unfit::Packet(*packet))
    }
}

/// A flow that has no controller to replace.
fn is_background(flow: &FlowPlan) -> bool {
    flow.control.is_none() || flow.fixed_rate().is_some()
}

fn parties(
    scenario: &Scenario,
    roles: &[FlowInstance],
    peer: Peer,
    options: &Options,
) -> Result<Vec<Node<Member>>, PlayError> {
    let mut parties = Vec::with_capacity(roles.len() * 2);
    for (place, role) in roles.iter().enumerate() {
        let (sender, receiver, linger) = if is_background(&role.plan) {
            let (sender, receiver) = background(role, options.seed);
            (sender, receiver, TAIL)
        } else {
            let failed = |why: String| PlayError::Failed {
                flow: role.name.clone(),
                why,
            };
            let call = Call::new(scenario, role, place, options.first_rate, options.seed);
            let parts = peer.parts(&call, options.pion.as_deref());
            let parts = parts.map_err(|error| failed(error.to_string()))?;
            let real = |part| Member::Real(Box::new(EndpointAgent::new(Player::Peer(part))));
            (real(parts.sender), real(parts.receiver), Duration::ZERO)
        };
        let first = parties.len();
        let stop = Time::ZERO + role.plan.stop;
        let party = |side: &str, agent, peer: usize, route, flow: usize, stop| Node {
            name: format!("{}/{side}", role.name),
            agent,
            peer: NodeId(peer),
            route,
            flow: flow as u32,
            dscp: 0,
            start: Time::ZERO + role.plan.start,
            stop,
        };
        // What goes back is a flow of its own to queues, as in runs of ours.
        let (to, from) = (place, roles.len() + place);
        let (there, back) = (path_of(place), back_of(place));
        parties.extend([
            party("sender", sender, first + 1, there, to, stop + linger),
            party("receiver", receiver, first, back, from, stop + TAIL),
        ]);
    }
    Ok(parties)
}

/// Both ends of a flow of ours.
fn background(role: &FlowInstance, seed: Seed) -> (Member, Member) {
    if let Some((sender, receiver)) = role.actors() {
        return (Member::Model(sender), Member::Model(receiver));
    }
    let pipe = |video: &VideoPlan| -> Result<_, Infallible> {
        let encoder = video.modelled(&role.name, seed);
        Ok(Direct::new(encoder.expect("x264 is refused before")))
    };
    let Ok(sender) = role.sender(seed, pipe);
    let real = |player| Member::Real(Box::new(EndpointAgent::new(Player::Ours(player))));
    (real(sender), real(role.receiver(seed)))
}

fn outcome(
    scenario: &Scenario,
    place: usize,
    role: &FlowInstance,
    peer: Peer,
    meter: &mut Meter,
) -> FlowOutcome {
    let flow = &role.plan;
    let propagation = propagation(scenario, role, &flow.path);
    let span = Span {
        start: Time::ZERO + flow.start,
        stop: Time::ZERO + flow.stop,
        propagation,
    };
    let control = if is_background(flow) {
        flow.control_name()
    } else {
        peer.name()
    };
    FlowOutcome {
        name: role.name.clone(),
        control: control.to_owned(),
        start_ms: nanos(flow.start) / 1_000_000,
        stop_ms: nanos(flow.stop) / 1_000_000,
        propagation_ms: propagation.as_secs_f64() * 1e3,
        bins_ms: BIN.as_millis() as u64,
        curves: meter.curves(place),
        summary: meter.summary(place, span),
    }
}

/// One end of a flow: a model, or what sends datagrams.
#[derive(Debug)]
enum Member {
    Model(Actor),
    Real(Box<EndpointAgent<Player>>),
}

impl Member {
    fn failure(&self) -> Option<&str> {
        match self {
            Self::Model(_) => None,
            Self::Real(player) => player.endpoint.failure(),
        }
    }
}

impl Agent for Member {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: &mut Body) {
        match self {
            Self::Model(actor) => actor.on_packet(cx, arrival, body),
            Self::Real(player) => player.on_packet(cx, arrival, body),
        }
    }

    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        match self {
            Self::Model(actor) => actor.on_timer(cx),
            Self::Real(player) => player.on_timer(cx),
        }
    }

    fn next_timer(&self) -> Time {
        match self {
            Self::Model(actor) => actor.next_timer(),
            Self::Real(player) => player.next_timer(),
        }
    }

    fn why(&self) -> Option<TimerReason> {
        match self {
            Self::Model(actor) => actor.why(),
            Self::Real(player) => player.why(),
        }
    }

    fn is_done(&self) -> bool {
        match self {
            Self::Model(actor) => actor.is_done(),
            Self::Real(player) => player.is_done(),
        }
    }
}

/// One end of a flow of datagrams.
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
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        match self {
            Self::Ours(e) => e.handle(cx, input),
            Self::Peer(e) => e.handle(cx, input),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        match self {
            Self::Ours(e) => e.poll(cx, buffer),
            Self::Peer(e) => e.poll(cx, buffer),
        }
    }
}

/// Reason why a scenario was not played.
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
    /// Aggregation points control the rate.
    Coordinated,
    /// It does not answer marks.
    Ecn,
    /// There is no libx264 here.
    Encoder,
    /// Its sources are greedy and its own; this key of `bulk` says otherwise.
    Key(&'static str),
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
                "no flow has a controller that a peer could replace: give one control = \"tfrc\"",
            ),
            Self::Steps(error) => write!(f, "{error}"),
            Self::Unfit { flow, peer, unfit } => {
                write!(f, "flow {flow:?}: ")?;
                match unfit {
                    Unfit::Coordinated => {
                        f.write_str("peers cannot be beside aggregation points: remove the cp flow")
                    }
                    Unfit::Ecn => write!(
                        f,
                        "{} does not answer marks: set ecn = false or choose another peer",
                        peer.name()
                    ),
                    Unfit::Encoder => {
                        f.write_str("background video is modelled here: set encoder = \"model\"")
                    }
                    Unfit::Key(key) => write!(
                        f,
                        "peers always have more to send, and hold nothing back: remove {key}"
                    ),
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
