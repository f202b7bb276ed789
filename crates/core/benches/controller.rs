//! Cost of a controller per packet: one sent packet and its share of a report.

use core::hint::black_box;
use core::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use tidegate_core::control::{
    Algorithm, Context, Demand, Ecn, FlowId, Kind, Outcome, PacketOutcome, RateControl, Report,
    Sent, Start,
};
use tidegate_core::controller::rap::RapConfig;
use tidegate_core::controller::tfrc::TfrcConfig;
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate, RemoteTime, Time};

/// 20 packets at 2.5 ms, then a report on them: 400 packets and 20 reports per second.
fn step(c: &mut Criterion) {
    let algorithms: [(&str, &dyn Algorithm); 2] = [
        ("rap", &RapConfig::default()),
        ("tfrc", &TfrcConfig::default()),
    ];
    for (name, algorithm) in algorithms {
        let mut group = c.benchmark_group(name);
        group.throughput(criterion::Throughput::Elements(PACKETS));
        for (name, one_loss_in) in [("lossless", 0), ("one loss in 100", 100)] {
            let demand = Demand {
                floor: Rate::kbps(150),
                ceiling: Rate::kbps(4_000),
                shares: 1,
            };
            let start = Start::new(Time::ZERO, SIZE, demand);
            let mut controller = algorithm.start(&start);
            let mut seq = 0;
            group.bench_function(format!("20 packets and their report, {name}"), |b| {
                b.iter(|| round(&mut controller, &mut seq, one_loss_in));
            });
        }
        group.finish();
    }
}

fn round(controller: &mut RateControl, seq: &mut u64, one_loss_in: u64) {
    let mut rng = Seed(1).stream("controller");
    let mut cx = Context {
        now: Time::ZERO,
        rng: &mut rng,
        trace: &mut (),
    };
    let first = *seq;
    for _ in 0..PACKETS {
        cx.now = left(*seq);
        let packet = Sent {
            flow: FlowId(0),
            seq: *seq,
            size: SIZE,
            kind: Kind::Media,
            app_limited: false,
        };
        controller.on_sent(&mut cx, black_box(&packet));
        *seq += 1;
    }
    let outcomes: [PacketOutcome; PACKETS as usize] = core::array::from_fn(|i| {
        let seq = first + i as u64;
        let lost = one_loss_in > 0 && seq % one_loss_in == one_loss_in - 1;
        PacketOutcome {
            flow: FlowId(0),
            seq,
            size: SIZE,
            sent: left(seq),
            outcome: if lost {
                Outcome::Lost
            } else {
                Outcome::Received {
                    at: RemoteTime(left(seq).as_nanos()),
                    ecn: Ecn::NotEct,
                }
            },
        }
    });
    cx.now = left(*seq);
    let report = Report::new(&outcomes).rtt(Duration::from_millis(80));
    controller.on_report(&mut cx, black_box(&report));
    black_box(controller.target());
}

fn left(seq: u64) -> Time {
    Time::from_micros(seq * 2_500)
}

const PACKETS: u64 = 20;
const SIZE: Bytes = Bytes(1_200);

criterion_group!(benches, step);
criterion_main!(benches);
