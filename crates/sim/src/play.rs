//! Plays a scenario in virtual time.

use core::fmt;
use core::time::Duration;

use tidegate_core::link::{Network, NetworkError, StepsError};
use tidegate_core::media::{EncodeError, FrameEncoder};
use tidegate_core::random::Seed;
use tidegate_core::session::stream::Direct;
use tidegate_core::trace::Event;
use tidegate_core::units::Time;

use crate::cast::{Player, Role, SimPlayer, Takings};
use crate::run;
use crate::scenario::{BaselinePlan, BaselineRate, Scenario, VideoPlan};
use crate::staging::{self, back_of, path_of};
use crate::world::{Observer, Party, PartyId, Sample, Wired, World, WorldError};

/// Makes the encoder of a video flow.
pub type MakeEncoder<'a> =
    &'a dyn Fn(&str, &VideoPlan, Seed) -> Result<Box<dyn FrameEncoder>, EncodeError>;

/// What was played: all flows of a scenario together, or one baseline alone.
#[derive(Debug)]
pub struct Take {
    /// The flows, with what they left behind.
    pub flows: Vec<(Role, Takings)>,
    /// What they said.
    pub events: Vec<run::EventRow>,
    /// The links over time.
    pub links: Vec<run::LinkSample>,
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
) -> Result<Vec<Take>, PlayError> {
    let runs = 1 + scenario.baselines.len();
    let mut within = |run: usize, share: f64| progress((run as f64 + share) / runs as f64);
    let first = take(
        scenario,
        &staging::roles(scenario, seed),
        seed,
        encoder,
        &mut |share| {
            within(0, share);
        },
    )?;
    let mut takes = vec![first];
    for (i, plan) in scenario.baselines.iter().enumerate() {
        let role = baseline(scenario, plan, &takes[0], seed);
        let take = take(scenario, &[role], seed, encoder, &mut |share| {
            within(i + 1, share);
        })?;
        takes.push(take);
    }
    Ok(takes)
}

/// The role of a baseline, once the flow that it stands in for has been played.
pub fn baseline(scenario: &Scenario, plan: &BaselinePlan, first: &Take, seed: Seed) -> Role {
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
    staging::baseline(scenario, plan, rate, seed)
}

/// Plays `roles` together.
fn take(
    scenario: &Scenario,
    roles: &[Role],
    seed: Seed,
    encoder: MakeEncoder<'_>,
    progress: &mut dyn FnMut(f64),
) -> Result<Take, PlayError> {
    let network = staging::network(scenario, roles).map_err(PlayError::Steps)?;
    let network = Network::new(&network, seed).map_err(PlayError::Network)?;
    let mut parties: Vec<Party<Wired<SimPlayer>>> = Vec::with_capacity(roles.len() * 2);
    for (i, role) in roles.iter().enumerate() {
        let encoder = |video: &VideoPlan| encoder(&role.name, video, seed).map(Direct::new);
        let sender = role
            .sender(seed, encoder)
            .map_err(|error| PlayError::Encoder {
                flow: role.name.clone(),
                error,
            })?;
        let first = parties.len();
        let party = |name: &str, endpoint, peer, route| Party {
            name: format!("{}/{name}", role.name),
            agent: Wired(endpoint),
            flow: first as u32 / 2,
            dscp: 0,
            peer: PartyId(peer),
            route,
            start: Time::ZERO + role.plan.start,
            stop: Time::ZERO + role.plan.stop + TAIL,
        };
        parties.push(party("sender", sender, first + 1, path_of(i)));
        parties.push(party("receiver", role.receiver(seed), first, back_of(i)));
    }
    let mut world = World::new(network, parties, seed).map_err(PlayError::World)?;
    world.sample_every(SAMPLE, scenario.links.len());
    let mut stage = Stagehand {
        scenario,
        roles,
        events: Vec::new(),
        links: Vec::new(),
    };
    let mut takings: Vec<Takings> = roles.iter().map(|_| Takings::default()).collect();
    let end = Time::ZERO + scenario.duration + TAIL;
    let mut at = Time::ZERO;
    while at < end {
        at = (at + SLICE).min(end);
        world.run(at, &mut stage).map_err(PlayError::World)?;
        for (i, takings) in takings.iter_mut().enumerate() {
            world.agent_mut(PartyId(i * 2)).0.drain(takings);
            world.agent_mut(PartyId(i * 2 + 1)).0.drain(takings);
        }
        progress(at.as_secs_f64() / end.as_secs_f64());
    }
    for (i, Wired(mut player)) in world.into_agents().into_iter().enumerate() {
        player.finish(&mut takings[i / 2]);
        if let Player::Video(streamer) = &player
            && let Some(error) = streamer.error()
        {
            return Err(PlayError::Encoder {
                flow: roles[i / 2].name.clone(),
                error: error.clone(),
            });
        }
    }
    Ok(Take {
        flows: roles.iter().cloned().zip(takings).collect(),
        events: stage.events,
        links: stage.links,
    })
}

/// Writes down what happens.
struct Stagehand<'a> {
    scenario: &'a Scenario,
    roles: &'a [Role],
    events: Vec<run::EventRow>,
    links: Vec<run::LinkSample>,
}

impl Observer for Stagehand<'_> {
    fn event(&mut self, party: PartyId, at: Time, event: Event) {
        self.events.push(run::EventRow {
            at,
            flow: self.roles[party.0 / 2].name.clone(),
            side: if party.0.is_multiple_of(2) {
                run::Side::Sender
            } else {
                run::Side::Receiver
            },
            event,
        });
    }

    fn sample(&mut self, sample: &Sample) {
        let stats = sample.stats;
        self.links.push(run::LinkSample {
            at: sample.at,
            run: self.roles[0].name.clone(),
            link: self.scenario.links[sample.link.0].name.clone(),
            queue: sample.queued.bytes,
            drops: stats.queue_drops + stats.loss_drops + stats.outage_drops,
            marks: stats.marks,
            delivered: stats.delivered_bytes,
        });
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
/// Rows are taken out at this distance.
const SLICE: Duration = Duration::from_secs(1);
/// After the last capture, what is under way may still arrive.
const TAIL: Duration = Duration::from_secs(2);
