//! Runs a scenario in simulated time.

mod packet_log;
mod recorder;
mod sim_flow;
mod sites;

use core::time::Duration;

use tidegate_core::endpoint::LOWER_EFFORT;
use tidegate_core::link::{DropReason, LinkEvent, LinkId, Network, NetworkError, StepsError};
use tidegate_core::media::{EncodeError, FrameEncoder};
use tidegate_core::random::Seed;
use tidegate_core::units::Time;
use tidegate_record::{self as record, BIN};

use crate::flow_endpoints::{Actor, FlowInstance, FlowResult, Player};
use crate::meter::Meter;
use crate::scenario::{BaselinePlan, BaselineSender, Scenario, VideoPlan};
use crate::topology::{self, back_of, path_of};
use crate::world::{Node, NodeId, SimPacket, World, WorldError};

use recorder::Recorder;
use sim_flow::{SimFlow, members};

/// Creates the encoder of a video flow.
pub type MakeEncoder<'a> =
    &'a dyn Fn(&str, &VideoPlan, Seed) -> Result<Box<dyn FrameEncoder>, EncodeError>;

/// Result of one run: all flows of a scenario together, or one baseline alone.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Flows and their records.
    pub flows: Vec<(FlowInstance, FlowResult)>,
    /// Events of the flows.
    pub events: Vec<record::EventRow>,
    /// Time series of the links.
    pub links: record::LinkLog,
    /// Counters of each flow, in the order of `flows`.
    pub meter: Meter,
    /// Number of link traversals of packets, as a measure of work.
    pub hops: u64,
}

/// Runs the flows of `scenario` together, then each baseline alone, all with `seed`. `progress`
/// receives the completed share of the work, in 0..=1.
///
/// # Errors
/// If a network, an encoder or a node fails. The message names it.
pub fn scenario(
    scenario: &Scenario,
    seed: Seed,
    encoder: MakeEncoder<'_>,
    progress: &mut dyn FnMut(f64),
) -> Result<Vec<RunResult>, PlayError> {
    let runs = 1 + scenario.baselines.len();
    let mut within = |run: usize, share: f64| progress((run as f64 + share) / runs as f64);
    let instances = topology::flow_instances(scenario, seed);
    let stage = Recorder::new(scenario, &instances, Keep::ALL);
    let first = take(stage, seed, encoder, &mut |share| within(0, share))?;
    let mut takes = vec![first];
    for (i, plan) in scenario.baselines.iter().enumerate() {
        let role = baseline(scenario, plan, &takes[0], seed);
        let instances = [role];
        let stage = Recorder::new(scenario, &instances, Keep::ALL);
        let take = take(stage, seed, encoder, &mut |share| within(i + 1, share))?;
        takes.push(take);
    }
    Ok(takes)
}

/// The flow instance of a baseline, from the completed run of the flow that it replaces.
pub fn baseline(
    scenario: &Scenario,
    plan: &BaselinePlan,
    first: &RunResult,
    seed: Seed,
) -> FlowInstance {
    let flow = &scenario.flows[plan.of];
    let rate = match (&plan.sender, flow.media.video()) {
        (BaselineSender::Control(_) | BaselineSender::Transport(_), _) => None,
        (BaselineSender::Fixed(rate), _) => Some(*rate),
        (BaselineSender::Mean, Some(video)) => {
            let mut flows = first.flows.iter();
            let played = flows.find(|(role, _)| role.name == flow.name);
            let (_, result) = played.expect("the flow of a baseline has run");
            Some(result.mean_media_rate(video))
        }
        (BaselineSender::Mean, None) => unreachable!("the flow of a baseline carries video"),
    };
    topology::baseline(scenario, plan, rate, seed)
}

/// Runs the flows of `scenario` together with `seed`, without its baselines, and keeps only the
/// records selected by `keep`: for sweeps that need only metrics.
///
/// # Errors
/// As [`scenario`].
pub fn flows(
    scenario: &Scenario,
    seed: Seed,
    keep: Keep,
    encoder: MakeEncoder<'_>,
) -> Result<RunResult, PlayError> {
    let instances = topology::flow_instances(scenario, seed);
    let stage = Recorder::new(scenario, &instances, keep);
    take(stage, seed, encoder, &mut |_| {})
}

/// Records to keep in addition to the counters of the meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// All packets of modelled flows with a count of one.
    pub packets: bool,
    /// Events of flows with a count of one.
    pub events: bool,
    /// Records of the links.
    pub links: LinkRecords,
    /// Bin length of the flow counters, above zero.
    pub bin: Duration,
}

/// Records of the links of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkRecords {
    /// Counters only.
    None,
    /// Time series.
    Series,
    /// Time of each packet in the queues and transmitters of links with a rate, in the meter.
    Waits,
}

impl Keep {
    /// All records of a run folder.
    pub const ALL: Self = Self {
        packets: true,
        events: true,
        links: LinkRecords::Series,
        bin: BIN,
    };

    /// Counters only.
    pub const COUNTERS: Self = Self {
        packets: false,
        events: false,
        links: LinkRecords::None,
        bin: BIN,
    };
}

impl Default for Keep {
    /// Counters only.
    fn default() -> Self {
        Self::COUNTERS
    }
}

/// Runs the flow instances of `stage` together.
fn take(
    mut stage: Recorder<'_>,
    seed: Seed,
    encoder: MakeEncoder<'_>,
    progress: &mut dyn FnMut(f64),
) -> Result<RunResult, PlayError> {
    let (scenario, instances) = (stage.scenario, stage.flow_instances);
    let network = topology::network(scenario, instances).map_err(PlayError::Steps)?;
    let mut network =
        Network::with_links(&network, seed, scenario.link_form).map_err(PlayError::Network)?;
    let links = network.len();
    for link in (0..links).map(LinkId) {
        let plan = scenario.links.get(link.0);
        let observed = stage.keep.links == LinkRecords::Waits;
        if observed && plan.is_some_and(|plan| plan.rate.is_some()) {
            network.observe(link, MAX_NOTES);
        } else {
            network.observe_drops(link, MAX_NOTES);
        }
    }
    let mut nodes = nodes(instances, seed, encoder)?;
    sites::insert(&mut nodes, scenario, instances);
    let mut world = World::new(network, nodes, seed).map_err(PlayError::World)?;
    if stage.keep.links == LinkRecords::Series {
        world.sample_every(SAMPLE, scenario.links.len());
    }
    let end = Time::ZERO + scenario.duration;
    let mut result: Vec<FlowResult> = instances.iter().map(|_| FlowResult::default()).collect();
    let mut at = Time::ZERO;
    while at < end + TAIL {
        at = (at + SLICE).min(end + TAIL);
        world.run(at, &mut stage).map_err(PlayError::World)?;
        for (i, result) in result.iter_mut().enumerate() {
            world.agent_mut(NodeId(i * 2)).drain(result);
            world.agent_mut(NodeId(i * 2 + 1)).drain(result);
        }
        count_notes(world.network(), &mut stage.meter, instances);
        progress(at.as_secs_f64() / (end + TAIL).as_secs_f64());
    }
    let reached = world.now();
    let hops = (0..links)
        .map(|link| world.network().stats(LinkId(link), reached).delivered)
        .sum();
    for (log, result) in stage.logs.into_iter().zip(&mut result) {
        result
            .packets
            .extend(log.into_iter().flat_map(|l| l.finish(end)));
    }
    finish(world, instances, &mut result)?;
    Ok(RunResult {
        flows: instances.iter().cloned().zip(result).collect(),
        events: stage.events,
        links: stage.links,
        meter: stage.meter,
        hops,
    })
}

/// Completes the results by the final state of the nodes.
fn finish(
    world: World<SimFlow>,
    instances: &[FlowInstance],
    results: &mut [FlowResult],
) -> Result<(), PlayError> {
    let reached = world.now();
    for (i, result) in results.iter_mut().enumerate() {
        result.done = world.done_at(NodeId(i * 2));
    }
    let mut members = world.into_agents().into_iter();
    for (role, result) in instances.iter().zip(results) {
        let pair = members.next().zip(members.next());
        let (sender, receiver) = pair.expect("two nodes for each role");
        if let Some(error) = collect(reached, sender, receiver, result) {
            return Err(PlayError::Encoder {
                flow: role.name.clone(),
                error,
            });
        }
    }
    Ok(())
}

/// Two nodes per flow instance, the sender first.
fn nodes(
    flow_instances: &[FlowInstance],
    seed: Seed,
    encoder: MakeEncoder<'_>,
) -> Result<Vec<Node<SimFlow>>, PlayError> {
    let mut nodes = Vec::with_capacity(flow_instances.len() * 2);
    for (i, role) in flow_instances.iter().enumerate() {
        let encoder = |video: &VideoPlan| encoder(&role.name, video, seed);
        let (sender, receiver) = members(role, i, seed, encoder)?;
        let node = |name: &str, agent, peer, route, flow| Node {
            name: format!("{}/{name}", role.name),
            agent,
            peer: NodeId(peer),
            route,
            flow: flow as u32,
            dscp: role.plan.dscp,
            start: Time::ZERO + role.plan.start,
            stop: Time::ZERO + role.plan.stop + TAIL,
        };
        // Queues and counters treat the reverse direction as a flow of its own.
        let back = flow_instances.len() + i;
        nodes.push(node("sender", sender, 2 * i + 1, path_of(i), i));
        nodes.push(node("receiver", receiver, 2 * i, back_of(i), back));
    }
    Ok(nodes)
}

/// Counts the drops of all links since the last call, and the time in the links that are observed.
fn count_notes(network: &mut Network<SimPacket>, meter: &mut Meter, instances: &[FlowInstance]) {
    for link in (0..network.len()).map(LinkId) {
        while let Some(note) = network.pop_note(link) {
            let flow = note.flow as usize;
            // A dummy packet.
            let own = instances.get(flow).map(|flow| flow.plan.dscp);
            if note.dscp == LOWER_EFFORT && own != Some(LOWER_EFFORT) {
                continue;
            }
            match note.happening {
                LinkEvent::Dropped(reason) => {
                    meter.dropped(flow, note.at);
                    if reason == DropReason::Queue {
                        meter.overflowed(flow, note.at);
                    }
                }
                LinkEvent::Departed { waited, served } => {
                    meter.waited(flow, note.at, waited + served);
                }
                LinkEvent::Enqueued | LinkEvent::Marked => {}
            }
        }
    }
}

/// Collects the remaining records at the end of the run, at `now`. Returns the error of a failed
/// encoder.
fn collect(
    now: Time,
    sender: SimFlow,
    receiver: SimFlow,
    result: &mut FlowResult,
) -> Option<EncodeError> {
    match (sender, receiver) {
        (SimFlow::Stream(sender), SimFlow::Model(Actor::TcpSink(sink))) => {
            let error = sender.error().cloned();
            sender.finish(now, &sink, result);
            error
        }
        (SimFlow::Real(mut sender), SimFlow::Real(mut receiver)) => {
            sender.endpoint.finish(result);
            receiver.endpoint.finish(result);
            match &sender.endpoint {
                Player::Video(streamer) => streamer.error().cloned(),
                Player::Model(_) | Player::Receiver(_) => None,
            }
        }
        _ => None,
    }
}

/// Error of a run of a scenario.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlayError {
    /// An encoder failed.
    #[error("flow {flow:?}: {error}")]
    Encoder {
        /// Name of the flow.
        flow: String,
        /// Error of the encoder.
        error: EncodeError,
    },
    /// Invalid link.
    #[error("{0}")]
    Network(NetworkError),
    /// The capacity steps of a link are not in order.
    #[error("{0}")]
    Steps(StepsError),
    /// A node keeps the clock from advancing.
    #[error("{0}")]
    World(WorldError),
}

/// Sampling interval of the links.
const SAMPLE: Duration = Duration::from_millis(20);
/// Interval at which records are collected.
const SLICE: Duration = Duration::from_secs(1);
/// Time after the last capture in which packets in flight may arrive.
const TAIL: Duration = Duration::from_secs(2);
/// Maximum number of logged drops of a link per slice: more than 10 Gb/s can lose.
const MAX_NOTES: usize = 1_000_000;

#[cfg(test)]
mod tests;
