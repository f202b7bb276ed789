//! Time that a controller needs per packet.

use core::hint::black_box;
use core::time::Duration;
use std::time::Instant;

use tidegate_core::control::{
    Algorithm as _, Context, Demand, Ecn, FlowId, Kind, Outcome, PacketOutcome, RateControl,
    Report, Sent, Start,
};
use tidegate_core::controller::ControllerConfig;
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate, RemoteTime, Time};

use super::{Row, Unit};
use crate::rmcat::Bound;

/// Row of the cost of a controller: nanoseconds per packet sent, with its share of the reports, of
/// packets of 1,200 bytes at 10 Mb/s with a report every 50 ms and one loss in a hundred.
pub(super) fn row(name: &str, config: &ControllerConfig) -> Row {
    let demand = Demand {
        floor: Rate::kbps(150),
        ceiling: Rate::kbps(20_000),
        shares: 1,
    };
    let mut controller = config.start(&Start::new(Time::ZERO, SIZE, demand));
    let mut outcomes = Vec::with_capacity(PER_REPORT as usize);
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|round| {
            let begin = Instant::now();
            for report in 0..REPORTS {
                step(&mut controller, &mut outcomes, round * REPORTS + report);
            }
            begin.elapsed().as_nanos() as f64 / (REPORTS * PER_REPORT) as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let measured = times[times.len() / 2];
    let gate = Bound::AtMost(150.0);
    Row {
        group: NAME,
        point: String::new(),
        what: "time per packet and its share of a report, median",
        control: name.to_owned(),
        path: None,
        unit: Unit::Ns,
        measured,
        least: times[0],
        most: times[times.len() - 1],
        cells: 1,
        seeds: ROUNDS,
        gate: Some(gate),
        holds: Some(gate.holds(measured)),
        aim: None,
        reached: None,
    }
}

/// The packets of one report, and the report.
fn step(controller: &mut RateControl, outcomes: &mut Vec<PacketOutcome>, report: u64) {
    let mut rng = Seed(1).stream("bench/cost");
    let mut cx = Context {
        now: Time::ZERO,
        rng: &mut rng,
        trace: &mut (),
    };
    let packets = report * PER_REPORT..(report + 1) * PER_REPORT;
    outcomes.clear();
    for seq in packets.clone() {
        cx.now = sent_at(seq);
        let packet = Sent {
            flow: FlowId(0),
            seq,
            size: SIZE,
            kind: Kind::Media,
            app_limited: false,
        };
        controller.on_sent(&mut cx, black_box(&packet));
        let outcome = if seq % 100 == 99 {
            Outcome::Lost
        } else {
            Outcome::Received {
                at: RemoteTime((sent_at(seq) + ONE_WAY).as_nanos()),
                ecn: Ecn::NotEct,
            }
        };
        outcomes.push(PacketOutcome {
            flow: FlowId(0),
            seq,
            size: SIZE,
            sent: sent_at(seq),
            outcome,
        });
    }
    cx.now = sent_at(packets.end) + 2 * ONE_WAY;
    let report = Report::new(outcomes).rtt(2 * ONE_WAY);
    controller.on_report(&mut cx, black_box(&report));
    black_box(controller.target());
}

/// 1,200 bytes at 10 Mb/s.
fn sent_at(seq: u64) -> Time {
    Time::from_micros(seq * 960)
}

/// Name of the group.
pub(super) const NAME: &str = "cost";

const SIZE: Bytes = Bytes(1_200);
const ONE_WAY: Duration = Duration::from_millis(40);
/// About 50 ms.
const PER_REPORT: u64 = 52;
const REPORTS: u64 = 100;
const ROUNDS: u64 = 101;
