//! What a peer is told of the flow that it plays.

use core::time::Duration;

use tidegate_core::endpoint::Endpoint;
use tidegate_core::media::FrameRate;
use tidegate_core::random::Seed;
use tidegate_core::units::{Rate, Time};
use tidegate_sim::flow_endpoints::FlowInstance;
use tidegate_sim::scenario::Scenario;

/// A flow, as a peer needs to know it.
#[derive(Clone, Debug)]
pub struct Call {
    /// When it starts.
    pub start: Time,
    /// Whether its packets may be marked rather than dropped.
    pub ecn: bool,
    /// Frames per second of a peer that sends video.
    pub frame_rate: FrameRate,
    /// The lowest rate that such a peer may ask of the encoder.
    pub floor: Rate,
    /// The highest.
    pub ceiling: Rate,
    /// What such a peer believes of the path when it starts; within the two above.
    pub first_rate: Rate,
    /// From when until when its camera is off; in order, without overlap.
    pub pauses: Vec<(Time, Time)>,
    /// Propagation to the receiver and back.
    pub delays: (Duration, Duration),
    /// For the peer's own randomness.
    pub seed: u64,
}

impl Call {
    /// What `scenario` says of `role`, which is number `place` of those that it has.
    pub fn new(
        scenario: &Scenario,
        role: &FlowInstance,
        place: usize,
        first_rate: Rate,
        seed: Seed,
    ) -> Self {
        let flow = &role.plan;
        let (frame_rate, floor, ceiling) = match flow.media.video() {
            Some(video) => (video.frame_rate, video.floor, video.ceiling),
            None => (FrameRate::fps(30), BULK_FLOOR, BULK_CEILING),
        };
        let delay = |links: &[usize]| propagation(scenario, role, links);
        Self {
            start: Time::ZERO + flow.start,
            ecn: flow.ecn.is_capable(),
            frame_rate,
            floor,
            ceiling,
            first_rate: first_rate.clamp(floor, ceiling),
            pauses: flow.media.video().map_or_else(Vec::new, |video| {
                let pauses = video.pauses.iter();
                pauses
                    .map(|(from, to)| (Time::ZERO + *from, Time::ZERO + *to))
                    .collect()
            }),
            delays: (delay(&flow.path), delay(&flow.back)),
            seed: seed
                .0
                .wrapping_mul(FLOWS_PER_SEED)
                .wrapping_add(place as u64),
        }
    }
}

impl Call {
    /// When the pause of the moment `at` is over, if there is one.
    pub fn resumes(&self, at: Time) -> Option<Time> {
        let within = |(from, to): &&(Time, Time)| (*from..*to).contains(&at);
        self.pauses.iter().find(within).map(|(_, to)| *to)
    }
}

/// What the way of `role` over these `links` of the scenario, and over its own, takes without
/// queues, transmission and jitter.
pub fn propagation(scenario: &Scenario, role: &FlowInstance, links: &[usize]) -> Duration {
    let shared = links.iter().map(|link| scenario.links[*link].delay);
    let own = [&role.access, &role.exit].into_iter().flatten();
    shared.chain(own.map(|link| link.delay)).sum()
}

/// One end of a peer's flow.
pub trait Part: Endpoint {
    /// Reason why it cannot go on, if so.
    fn failure(&self) -> Option<&str>;
}

/// Both ends of a peer's flow.
#[derive(Debug)]
pub struct Parts {
    /// Sends media.
    pub sender: Box<dyn Part>,
    /// Receives it and reports.
    pub receiver: Box<dyn Part>,
}

/// As of a scenario's video.
const BULK_FLOOR: Rate = Rate::kbps(150);
/// Up to which pion's estimator goes unless told otherwise; far above what its authors, and
/// str0m's, have in mind.
const BULK_CEILING: Rate = Rate::kbps(50_000);
/// From which a peer that sends video starts unless told otherwise, as libwebrtc does.
pub const FIRST_RATE: Rate = Rate::kbps(300);
/// Flows of one run draw from seeds of their own.
const FLOWS_PER_SEED: u64 = 1_000;

#[cfg(test)]
mod tests {
    use tidegate_sim::topology::flow_instances;

    use super::*;

    const FILE: &str = r#"
name = "two"
duration = "10s"

[[link]]
name = "a"
delay = "3ms"

[[link]]
name = "b"
delay = "4ms"

[[flow]]
name = "video"
path = ["a", "b"]
back = ["b"]
control = "tfrc"
video = { fps = 25, floor = "400kb/s", ceiling = "1Mb/s", pause = [{ at = "3s", lasts = "1s" }] }
delay_bound = "200ms"
start = "2s"

[[flow]]
name = "bulk"
path = ["a"]
back = ["b"]
control = "tfrc"
bulk = { packet = "1200B" }
access = { delay = "1ms" }
"#;

    #[test]
    fn a_call_is_what_the_scenario_says() {
        let scenario = Scenario::parse("two.toml", FILE, &|_| Err(String::new())).unwrap();
        let roles = flow_instances(&scenario, Seed(1));
        let call = |place: usize, first_rate| {
            Call::new(&scenario, &roles[place], place, first_rate, Seed(1))
        };
        let video = call(0, Rate::kbps(300));
        assert_eq!(video.start, Time::from_secs(2));
        assert_eq!(video.frame_rate, FrameRate::fps(25));
        let millis = Duration::from_millis;
        assert_eq!(video.delays, (millis(7), millis(4)));
        assert_eq!(video.resumes(Time::from_secs(3)), Some(Time::from_secs(4)));
        assert_eq!(video.resumes(Time::from_secs(4)), None);
        assert_eq!(video.first_rate, Rate::kbps(400));
        assert_eq!(call(0, Rate::kbps(2_000)).first_rate, Rate::kbps(1_000));
        let bulk = call(1, Rate::kbps(300));
        assert_eq!(bulk.first_rate, Rate::kbps(300));
        assert_eq!(bulk.delays, (millis(4), millis(5)));
        assert_ne!(bulk.seed, video.seed);
    }
}
