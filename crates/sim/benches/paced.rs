//! Cost of a model flow per packet: the packet over a path of 50 ms, and its share of a report over
//! a return path of 50 ms. The paths are plain queues without link models.

use core::time::Duration;
use std::collections::VecDeque;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rand_pcg::Pcg64Mcg;
use tidegate_core::control::{Algorithm as _, Demand, Start};
use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::fixed::FixedConfig;
use tidegate_core::controller::rap::RapConfig;
use tidegate_core::controller::tfrc::TfrcConfig;
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_sim::model_flow::{Receiver, ReceiverConfig, Sender, ends};
use tidegate_sim::ns2::tfrc::Ns2TfrcConfig;
use tidegate_sim::packet_agent::{Agent, AgentCx, Arrival, Outbox, Outgoing};

fn packets(c: &mut Criterion) {
    let mut group = c.benchmark_group("paced");
    group.throughput(Throughput::Elements(PACKETS));
    let fixed = ControllerConfig::from(FixedConfig {
        rate: Rate::kbps(8_000),
    });
    let older = Ns2TfrcConfig::native().into();
    let rap = RapConfig::default().into();
    let flows = [
        ("fixed, each packet", fixed.clone(), ReceiverConfig::rap()),
        ("fixed, each round trip", fixed, ReceiverConfig::tfrc()),
        ("rap", rap, ReceiverConfig::rap()),
        ("tfrc", TfrcConfig::default().into(), ReceiverConfig::tfrc()),
        ("tfrc as in ns-2", older, ReceiverConfig::ns2_tfrc()),
    ];
    for (name, control, receiver) in flows {
        let mut pair = Pair::new(&control, receiver);
        pair.play(10 * PACKETS);
        group.bench_function(name, |b| b.iter(|| pair.play(PACKETS)));
    }
    group.finish();
}

/// A sender, a receiver, and the packets in flight to each.
struct Pair {
    ends: [Box<dyn Agent>; 2],
    ways: [VecDeque<(Time, Outgoing)>; 2],
    rng: Pcg64Mcg,
    out: Outbox,
    count: u64,
}

impl Pair {
    fn new(control: &ControllerConfig, receiver: ReceiverConfig) -> Self {
        let (config, _) = ends(control.properties(), Bytes(1_000));
        let demand = Demand {
            floor: Rate::ZERO,
            ceiling: Rate::MAX,
            shares: 1,
        };
        let mut start = Start::new(Time::ZERO, config.size, demand);
        start.report_interval = Some(Duration::ZERO);
        let controller = control.start(&start);
        Self {
            ends: [
                Box::new(Sender::new(config, controller)),
                Box::new(Receiver::new(receiver)),
            ],
            ways: [VecDeque::new(), VecDeque::new()],
            rng: Seed(1).stream("pair"),
            out: Outbox::default(),
            count: 0,
        }
    }

    fn play(&mut self, packets: u64) {
        let until = self.count + packets;
        while self.count < until {
            let arrival = |end: usize| self.ways[end].front().map_or(Time::FAR, |way| way.0);
            let moments = [
                arrival(0),
                self.ends[0].next_timer(),
                arrival(1),
                self.ends[1].next_timer(),
            ];
            let now = moments.into_iter().min().unwrap_or(Time::FAR);
            let end = usize::from(moments[0] > now && moments[1] > now);
            let mut silence = ();
            let mut cx = AgentCx::new(now, &mut self.rng, &mut silence, &mut self.out);
            if let Some((_, packet)) = self.ways[end].pop_front_if(|way| way.0 <= now) {
                let Outgoing {
                    size,
                    ecn,
                    mut body,
                    ..
                } = packet;
                self.ends[end].on_packet(&mut cx, &Arrival { size, ecn, dscp: 0 }, &mut body);
            } else {
                self.ends[end].on_timer(&mut cx);
            }
            for packet in self.out.drain() {
                self.count += u64::from(end == 0);
                // One packet in 1024 is lost, so that reports contain losses.
                if end == 1 || !self.count.is_multiple_of(1_024) {
                    self.ways[1 - end].push_back((now + DELAY, packet));
                }
            }
        }
    }
}

const PACKETS: u64 = 1_000;
const DELAY: Duration = Duration::from_millis(50);

criterion_group!(benches, packets);
criterion_main!(benches);
