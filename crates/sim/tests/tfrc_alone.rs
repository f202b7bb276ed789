//! TFRC alone on the demo's path: how much of min(capacity, equation) it uses.

use core::time::Duration;
use std::path::Path;

use tidegate_core::controller::tfrc::equation;
use tidegate_core::random::Seed;
use tidegate_core::trace::Event;
use tidegate_core::units::Time;
use tidegate_sim::play;
use tidegate_sim::run::{EventRow, PacketOutcome};
use tidegate_sim::scenario::Scenario;

/// What the path carries and what the equation allows, at a moment.
struct Allowed {
    capacity: f64,
    equation: f64,
}

#[test]
fn a_bulk_flow_uses_what_capacity_and_equation_allow() {
    let scenario = path();
    println!("seed   received/allowed   received/capacity");
    let mut ratios = Vec::new();
    for seed in 1..=10 {
        let takes = play::scenario(
            &scenario,
            Seed(seed),
            &|_, _, _| unreachable!(),
            &mut |_| {},
        );
        let take = takes.unwrap().remove(0);
        let (_, takings) = &take.flows[0];
        let (_, _, packets) = takings.rows();
        // Packets that left outside of the outage and of the first two seconds.
        let counted = |at: Time| at >= SETTLED && !(OUTAGE.0..OUTAGE.1).contains(&at);
        let received: u64 = packets
            .iter()
            .filter(|p| p.outcome == PacketOutcome::Received && counted(p.sent))
            .map(|p| p.size.bits())
            .sum();
        let (mut allowed, mut capacity) = (0.0, 0.0);
        let mut at = SETTLED;
        while at < Time::ZERO + scenario.duration {
            if counted(at) {
                let now = allowed_at(&take.events, at);
                allowed += now.capacity.min(now.equation) * STEP.as_secs_f64();
                capacity += now.capacity * STEP.as_secs_f64();
            }
            at += STEP;
        }
        let ratio = received as f64 / allowed;
        println!(
            "{seed:4}   {ratio:16.3}   {:17.3}",
            received as f64 / capacity
        );
        // Above 1 by the queue, which fills while the equation allows more than the capacity and
        // drains at the capacity while it allows less.
        assert!((0.85..=1.03).contains(&ratio), "seed {seed}: {ratio}");
        ratios.push(ratio);
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    println!("mean   {mean:16.3}");
    assert!((0.85..=1.01).contains(&mean), "mean over seeds: {mean}");
}

/// The equation at the loss event rate and the round-trip time that the flow itself measured
/// last, with `t_RTO` = 4R.
fn allowed_at(events: &[EventRow], at: Time) -> Allowed {
    let seconds = at.as_secs_f64();
    let capacity = match seconds {
        ..20.0 => 4e6,
        20.0..40.0 => 1e6,
        _ => 3e6,
    };
    let samples = &events[..events.partition_point(|row| row.at <= at)];
    let last = samples.iter().rev().find_map(|row| match row.event {
        Event::Sample {
            rtt,
            loss_event_rate,
            ..
        } => Some((rtt, loss_event_rate)),
        _ => None,
    });
    let equation = match last {
        Some((rtt, p)) if p > 0.0 => 8.0 * equation::throughput(PACKET, rtt.as_secs_f64(), p),
        _ => f64::INFINITY,
    };
    Allowed { capacity, equation }
}

/// The demo's links with a bulk flow.
fn path() -> Scenario {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/tfrc-alone.toml");
    Scenario::load(&file).unwrap()
}

const PACKET: f64 = 1_200.0;
const SETTLED: Time = Time::from_secs(2);
const OUTAGE: (Time, Time) = (Time::from_secs(50), Time::from_secs(52));
const STEP: Duration = Duration::from_millis(50);
