//! The links of a take in the lab over time, from the emulator's log of arrivals.
//!
//! The emulator and the simulator run the same models, and a parity test holds them together:
//! played again in virtual time, the same arrivals give the same queues, drops and marks.

use core::time::Duration;

use anyhow::Result;
use tidegate_core::control::Ecn;
use tidegate_core::link::{LinkId, Network, NetworkConfig, Packet};
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Time};
use tidegate_live::emulator::EmulatorLog;
use tidegate_sim::run::{LinkLog, LinkSample};
use tidegate_sim::scenario::Scenario;

/// The state of every link at regular times.
pub(super) fn link_samples(
    scenario: &Scenario,
    config: &NetworkConfig,
    seed: Seed,
    log: &EmulatorLog,
    run: &str,
) -> Result<LinkLog> {
    let mut network: Network<Mark> = Network::new(config, seed)?;
    let mut samples = LinkLog::default();
    let mut next = Time::ZERO;
    let mut arrivals = log.arrivals.iter().peekable();
    let end = Time::ZERO + scenario.duration;
    while next <= end {
        while let Some(arrival) = arrivals.next_if(|a| a.at <= next) {
            let mark = Mark {
                size: arrival.size,
                ecn: arrival.ecn,
                dscp: arrival.dscp,
                flow: arrival.flow,
            };
            network.push(arrival.at, arrival.route, mark);
        }
        while network.pop(next).is_some() {}
        for (i, link) in scenario.links.iter().enumerate() {
            let stats = network.stats(LinkId(i), next);
            samples.push(LinkSample {
                at: next,
                run: run.into(),
                link: link.name.as_str().into(),
                queue: network.queued(LinkId(i), next).bytes,
                drops: stats.queue_drops + stats.loss_drops + stats.outage_drops,
                marks: stats.marks,
                delivered: stats.delivered_bytes,
            });
        }
        next += SAMPLE;
    }
    Ok(samples)
}

/// What a link needs to know of a packet.
#[derive(Clone, Copy, Debug)]
struct Mark {
    size: Bytes,
    ecn: Ecn,
    dscp: u8,
    flow: u32,
}

impl Packet for Mark {
    fn size(&self) -> Bytes {
        self.size
    }
    fn ecn(&self) -> Ecn {
        self.ecn
    }
    fn set_ce(&mut self) {
        self.ecn = Ecn::Ce;
    }
    fn flow(&self) -> u32 {
        self.flow
    }
    fn dscp(&self) -> u8 {
        self.dscp
    }
}

/// As in the simulator.
const SAMPLE: Duration = Duration::from_millis(20);
