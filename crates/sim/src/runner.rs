//! Plays a scenario in virtual time.

mod packet_log;
mod recorder;
mod sim_flow;

use core::fmt;
use core::time::Duration;

use tidegate_core::link::{DropReason, LinkEvent, LinkId, Network, NetworkError, StepsError};
use tidegate_core::media::{EncodeError, FrameEncoder};
use tidegate_core::random::Seed;
use tidegate_core::units::Time;

use crate::flow_endpoints::{Actor, FlowInstance, FlowResult, Player};
use crate::meter::Meter;
use crate::run;
use crate::scenario::{BaselinePlan, BaselineRate, Scenario, VideoPlan};
use crate::topology::{self, back_of, path_of};
use crate::world::{Node, NodeId, SimPacket, World, WorldError};

use recorder::Recorder;
use sim_flow::{SimFlow, members};

/// Makes the encoder of a video flow.
pub type MakeEncoder<'a> =
    &'a dyn Fn(&str, &VideoPlan, Seed) -> Result<Box<dyn FrameEncoder>, EncodeError>;

/// What was played: all flows of a scenario together, or one baseline alone.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The flows, with what they left behind.
    pub flows: Vec<(FlowInstance, FlowResult)>,
    /// What they said.
    pub events: Vec<run::EventRow>,
    /// The links over time.
    pub links: run::LinkLog,
    /// What was counted of each flow, in the order of `flows`.
    pub meter: Meter,
    /// How many packets came out of links: the work that was done.
    pub hops: u64,
}

/// Plays the flows of `scenario` together and then each baseline alone, all with `seed`.
/// `progress` is told how much of the whole is done, in 0..=1.
///
/// # Errors
/// When a network, an encoder or a party fails; the message names it.
pub fn scenario(
    scenario: &Scenario,
    seed: Seed,
    encoder: MakeEncoder<'_>,
    progress: &mut dyn FnMut(f64),
) -> Result<Vec<RunResult>, PlayError> {
    let runs = 1 + scenario.baselines.len();
    let mut within = |run: usize, share: f64| progress((run as f64 + share) / runs as f64);
    let roles = topology::roles(scenario, seed);
    let stage = Recorder::new(scenario, &roles, Keep::ALL);
    let first = take(stage, seed, encoder, &mut |share| within(0, share))?;
    let mut takes = vec![first];
    for (i, plan) in scenario.baselines.iter().enumerate() {
        let role = baseline(scenario, plan, &takes[0], seed);
        let roles = [role];
        let stage = Recorder::new(scenario, &roles, Keep::ALL);
        let take = take(stage, seed, encoder, &mut |share| within(i + 1, share))?;
        takes.push(take);
    }
    Ok(takes)
}

/// The role of a baseline, once the flow that it stands in for has been played.
pub fn baseline(
    scenario: &Scenario,
    plan: &BaselinePlan,
    first: &RunResult,
    seed: Seed,
) -> FlowInstance {
    let flow = &scenario.flows[plan.of];
    let rate = match (plan.rate, flow.media.video()) {
        (BaselineRate::Fixed(rate), _) => rate,
        (BaselineRate::Mean, Some(video)) => {
            let mut flows = first.flows.iter();
            let played = flows.find(|(role, _)| role.name == flow.name);
            let (_, takings) = played.expect("the flow of a baseline has been played");
            takings.mean_media_rate(video)
        }
        (BaselineRate::Mean, None) => unreachable!("a baseline stands in for a video"),
    };
    topology::baseline(scenario, plan, rate, seed)
}

/// Plays the flows of `scenario` together with `seed`, without its baselines, and keeps less of it: for
/// many runs of which only numbers are wanted.
///
/// # Errors
/// As [`scenario`].
pub fn flows(
    scenario: &Scenario,
    seed: Seed,
    keep: Keep,
    encoder: MakeEncoder<'_>,
) -> Result<RunResult, PlayError> {
    let roles = topology::roles(scenario, seed);
    let stage = Recorder::new(scenario, &roles, keep);
    take(stage, seed, encoder, &mut |_| {})
}

/// What is kept of a run beside what the meter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Every packet of a single modelled flow.
    pub packets: bool,
    /// What single flows say.
    pub events: bool,
    /// The links over time.
    pub links: bool,
    /// The length of the bins in which flows are counted, above zero.
    pub bin: Duration,
}

impl Keep {
    /// Everything.
    pub const ALL: Self = Self {
        packets: true,
        events: true,
        links: true,
        bin: BIN,
    };
}

impl Default for Keep {
    /// Nothing else.
    fn default() -> Self {
        Self {
            packets: false,
            events: false,
            links: false,
            bin: BIN,
        }
    }
}

/// Plays the roles of `stage` together.
fn take(
    mut stage: Recorder<'_>,
    seed: Seed,
    encoder: MakeEncoder<'_>,
    progress: &mut dyn FnMut(f64),
) -> Result<RunResult, PlayError> {
    let (scenario, roles) = (stage.scenario, stage.roles);
    let network = topology::network(scenario, roles).map_err(PlayError::Steps)?;
    let mut network = Network::new(&network, seed).map_err(PlayError::Network)?;
    let links = network.len();
    for link in (0..links).map(LinkId) {
        network.observe_drops(link, MOST_DROPS);
    }
    let parties = parties(roles, seed, encoder)?;
    let mut world = World::new(network, parties, seed).map_err(PlayError::World)?;
    if stage.keep.links {
        world.sample_every(SAMPLE, scenario.links.len());
    }
    let end = Time::ZERO + scenario.duration;
    let mut takings: Vec<FlowResult> = roles.iter().map(|_| FlowResult::default()).collect();
    let mut at = Time::ZERO;
    while at < end + TAIL {
        at = (at + SLICE).min(end + TAIL);
        world.run(at, &mut stage).map_err(PlayError::World)?;
        for (i, takings) in takings.iter_mut().enumerate() {
            world.agent_mut(NodeId(i * 2)).drain(takings);
            world.agent_mut(NodeId(i * 2 + 1)).drain(takings);
        }
        count_drops(world.network(), &mut stage.meter);
        progress(at.as_secs_f64() / (end + TAIL).as_secs_f64());
    }
    let reached = world.now();
    let hops = (0..links)
        .map(|link| world.network().stats(LinkId(link), reached).delivered)
        .sum();
    for (ledger, takings) in stage.ledgers.into_iter().zip(&mut takings) {
        takings
            .packets
            .extend(ledger.into_iter().flat_map(|l| l.finish(end)));
    }
    for (i, takings) in takings.iter_mut().enumerate() {
        takings.done = world.done_at(NodeId(i * 2));
    }
    let mut members = world.into_agents().into_iter();
    for (role, takings) in roles.iter().zip(&mut takings) {
        let pair = members.next().zip(members.next());
        let (sender, receiver) = pair.expect("two parties for each role");
        if let Some(error) = collect(reached, sender, receiver, takings) {
            return Err(PlayError::Encoder {
                flow: role.name.clone(),
                error,
            });
        }
    }
    Ok(RunResult {
        flows: roles.iter().cloned().zip(takings).collect(),
        events: stage.events,
        links: stage.links,
        meter: stage.meter,
        hops,
    })
}

/// Two for each role, its sender first.
fn parties(
    roles: &[FlowInstance],
    seed: Seed,
    encoder: MakeEncoder<'_>,
) -> Result<Vec<Node<SimFlow>>, PlayError> {
    let mut parties = Vec::with_capacity(roles.len() * 2);
    for (i, role) in roles.iter().enumerate() {
        let encoder = |video: &VideoPlan| encoder(&role.name, video, seed);
        let (sender, receiver) = members(role, seed, encoder)?;
        let party = |name: &str, agent, peer, route, flow| Node {
            name: format!("{}/{name}", role.name),
            agent,
            peer: NodeId(peer),
            route,
            flow: flow as u32,
            dscp: 0,
            start: Time::ZERO + role.plan.start,
            stop: Time::ZERO + role.plan.stop + TAIL,
        };
        // What goes back is a flow of its own to queues and counters.
        let back = roles.len() + i;
        parties.push(party("sender", sender, 2 * i + 1, path_of(i), i));
        parties.push(party("receiver", receiver, 2 * i, back_of(i), back));
    }
    Ok(parties)
}

/// Counts what links have dropped since the last time.
fn count_drops(network: &mut Network<SimPacket>, meter: &mut Meter) {
    for link in (0..network.len()).map(LinkId) {
        while let Some(note) = network.pop_note(link) {
            let flow = note.flow as usize;
            meter.dropped(flow, note.at);
            if note.happening == LinkEvent::Dropped(DropReason::Queue) {
                meter.overflowed(flow, note.at);
            }
        }
    }
}

/// Takes out what is left at the end, which is `now`; why the encoder gave up, if it did.
fn collect(
    now: Time,
    sender: SimFlow,
    receiver: SimFlow,
    takings: &mut FlowResult,
) -> Option<EncodeError> {
    match (sender, receiver) {
        (SimFlow::Stream(sender), SimFlow::Model(Actor::TcpSink(sink))) => {
            let error = sender.error().cloned();
            sender.finish(now, &sink, takings);
            error
        }
        (SimFlow::Real(mut sender), SimFlow::Real(mut receiver)) => {
            sender.0.finish(takings);
            receiver.0.finish(takings);
            match &sender.0 {
                Player::Video(streamer) => streamer.error().cloned(),
                Player::Model(_) | Player::Receiver(_) => None,
            }
        }
        _ => None,
    }
}

/// Why a scenario could not be played.
#[derive(Debug)]
#[non_exhaustive]
pub enum PlayError {
    /// An encoder failed.
    Encoder {
        /// Whose.
        flow: String,
        /// How.
        error: EncodeError,
    },
    /// A link cannot be built.
    Network(NetworkError),
    /// A link's capacity has steps that do not follow each other.
    Steps(StepsError),
    /// A party does not let time go on.
    World(WorldError),
}

impl fmt::Display for PlayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encoder { flow, error } => write!(f, "flow {flow:?}: {error}"),
            Self::Network(error) => write!(f, "{error}"),
            Self::Steps(error) => write!(f, "{error}"),
            Self::World(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for PlayError {}

/// The state of links is kept at this distance.
const SAMPLE: Duration = Duration::from_millis(20);
/// Flows are counted in bins of this length (RFC 8868 section 4).
pub const BIN: Duration = Duration::from_millis(200);
/// Rows are taken out at this distance.
const SLICE: Duration = Duration::from_secs(1);
/// After the last capture, what is under way may still arrive.
const TAIL: Duration = Duration::from_secs(2);
/// Drops of one link that are kept between two of these moments: more than 10 Gb/s can lose.
const MOST_DROPS: usize = 1_000_000;

#[cfg(test)]
mod tests;
