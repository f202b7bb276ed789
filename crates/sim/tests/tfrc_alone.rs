//! TFRC alone on the demo's path: its share of min(capacity, equation).
//!
//! Capacity and equation cannot be compared at each point in time, because the queue accepts the
//! excess of the equation over the capacity and delivers it while the equation allows less. The
//! reference is therefore the throughput of a queue of the same size that is fed at exactly the
//! equation's rate.

use core::time::Duration;
use std::path::Path;

use tidegate_core::controller::tfrc::equation;
use tidegate_core::random::Seed;
use tidegate_core::trace::Event;
use tidegate_core::units::Time;
use tidegate_record::{EventRow, PacketOutcome, PacketRow};
use tidegate_sim::runner;
use tidegate_sim::scenario::Scenario;

#[test]
fn bulk_flow_uses_the_minimum_of_capacity_and_equation() {
    let scenario = path();
    println!("seed   received/allowed   after 2 s   received/capacity");
    let mut sums = [0.0; 3];
    for seed in 1..=10 {
        let takes = runner::scenario(
            &scenario,
            Seed(seed),
            &|_, _, _| unreachable!(),
            &mut |_| {},
        );
        let take = takes.unwrap().remove(0);
        let (_, results) = &take.flows[0];
        let (_, _, packets) = results.rows();
        let fair = Fair(&take.events);
        let end = Time::ZERO + scenario.duration;
        let all = Share::of(&packets, &fair, Time::ZERO, end);
        let later = Share::of(&packets, &fair, Time::from_secs(2), end);
        for share in [&all, &later] {
            assert!(
                share.received >= 0.85 * share.allowed
                    && share.received <= share.allowed + 8.0 * PACKET,
                "seed {seed}: {share:?}"
            );
        }
        let row = [
            all.received / all.allowed,
            later.received / later.allowed,
            all.received / all.capacity,
        ];
        println!(
            "{seed:4}   {:16.3}   {:9.3}   {:17.3}",
            row[0], row[1], row[2]
        );
        for (sum, value) in sums.iter_mut().zip(row) {
            *sum += value / 10.0;
        }
    }
    println!(
        "mean   {:16.3}   {:9.3}   {:17.3}",
        sums[0], sums[1], sums[2]
    );
}

/// Throughput of a flow and its reference, outside of the outage, in bits.
#[derive(Debug)]
struct Share {
    /// Received bits of packets that were sent in the interval.
    received: f64,
    /// Bits that would have entered the queue at the equation's rate.
    allowed: f64,
    capacity: f64,
}

impl Share {
    fn of(packets: &[PacketRow], fair: &Fair<'_>, from: Time, to: Time) -> Self {
        let counted = |at: Time| at >= from && !(OUTAGE.0..OUTAGE.1).contains(&at);
        let arrived = |p: &&PacketRow| p.outcome == PacketOutcome::Received && counted(p.sent);
        let received: u64 = packets.iter().filter(arrived).map(|p| p.size.bits()).sum();
        let (mut queue, mut allowed, mut capacity) = (0.0, 0.0, 0.0);
        let mut at = from;
        while at < to {
            if counted(at) {
                let served = capacity_at(at) * STEP.as_secs_f64();
                let offered = fair.rate_at(at) * STEP.as_secs_f64();
                let taken = offered.min(QUEUE - queue + served);
                queue = f64::max(queue + taken - served, 0.0);
                allowed += taken;
                capacity += served;
            } else {
                queue = 0.0;
            }
            at += STEP;
        }
        Self {
            received: received as f64,
            allowed,
            capacity,
        }
    }
}

/// The rate that the equation allows, at the loss event rate and the round-trip time of the flow's
/// own samples. The latter is that of RFC 5348 section 4.3 with a weight of a tenth per report, as
/// the sender computes it for its receiver, without its controller. Both change between two samples
/// only.
struct Fair<'a>(&'a [EventRow]);

impl Fair<'_> {
    /// In bits per second; unlimited before the first loss.
    fn rate_at(&self, at: Time) -> f64 {
        let known = &self.0[..self.0.partition_point(|row| row.at <= at)];
        let sample = known.iter().rev().find_map(|row| match row.event {
            Event::Sample {
                loss_event_rate,
                rtt,
                ..
            } => Some((loss_event_rate, rtt)),
            _ => None,
        });
        match sample {
            Some((p, rtt)) if p > 0.0 => 8.0 * equation::throughput(PACKET, rtt.as_secs_f64(), p),
            _ => f64::INFINITY,
        }
    }
}

/// In bits per second.
fn capacity_at(at: Time) -> f64 {
    match at.as_secs_f64() {
        ..20.0 => 4e6,
        20.0..40.0 => 1e6,
        _ => 3e6,
    }
}

/// The demo's links with a bulk flow.
fn path() -> Scenario {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/tfrc-alone.toml");
    Scenario::load(&file, &tidegate_sim::controllers()).unwrap()
}

const PACKET: f64 = 1_200.0;
/// 60 kB, in bits.
const QUEUE: f64 = 480_000.0;
const OUTAGE: (Time, Time) = (Time::from_secs(50), Time::from_secs(52));
const STEP: Duration = Duration::from_millis(5);
