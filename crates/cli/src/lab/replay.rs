//! Link states over time in a lab run, computed from the emulator's log of arrivals.
//!
//! The emulator and the simulator run the same link models; a parity test compares them. A replay
//! of the same arrivals in virtual time yields the same queues, drops and marks.

use core::time::Duration;

use anyhow::Result;
use tidegate_core::link::{LinkId, Network, NetworkConfig};
use tidegate_core::random::Seed;
use tidegate_core::units::Time;
use tidegate_live::emulator::{Arrival, EmulatorLog};
use tidegate_record::{DropCauses, LinkLog, LinkSample};
use tidegate_sim::scenario::Scenario;

/// The state of every link at regular intervals.
pub(super) fn link_samples(
    scenario: &Scenario,
    config: &NetworkConfig,
    seed: Seed,
    log: &EmulatorLog,
    run: &str,
) -> Result<LinkLog> {
    let mut network: Network<Arrival> = Network::new(config, seed)?;
    let mut samples = LinkLog::default();
    let mut next = Time::ZERO;
    let mut arrivals = log.arrivals.iter().peekable();
    let end = Time::ZERO + scenario.duration;
    while next <= end {
        while let Some(arrival) = arrivals.next_if(|a| a.at <= next) {
            network.push(arrival.at, arrival.route, *arrival);
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
                causes: Some(DropCauses {
                    random: stats.loss_drops,
                    outage: stats.outage_drops,
                }),
            });
        }
        next += SAMPLE;
    }
    Ok(samples)
}

/// Sampling interval, as in the simulator.
const SAMPLE: Duration = Duration::from_millis(20);
