//! Cost of a packet at a link: one push and one pop.

use core::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use tidegate_core::control::Ecn;
use tidegate_core::link::{
    Capacity, CoDelConfig, DropTailConfig, DualPi2Config, FqCoDelConfig, Hop as _, Link,
    LinkConfig, LossConfig, Packet, QueueConfig, RedConfig,
};
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate, Time};

/// Size of the simulator's packets, which fit into a cache line.
#[derive(Debug)]
struct PacketHandle {
    flow: u32,
    ecn: Ecn,
    _rest: [u64; 7],
}

impl Packet for PacketHandle {
    fn size(&self) -> Bytes {
        Bytes(1_000)
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
}

/// 1 Gb/s: 1000 bytes take 8 us, and 1250 packets are in propagation.
fn gigabit(queue: QueueConfig) -> LinkConfig {
    LinkConfig {
        capacity: Capacity::Fixed(Rate::kbps(1_000_000)),
        queue,
        delay: Duration::from_millis(10),
        ..LinkConfig::default()
    }
}

fn hops(c: &mut Criterion) {
    let mut group = c.benchmark_group("link");
    group.throughput(criterion::Throughput::Elements(1));
    let tail = QueueConfig::DropTail(DropTailConfig::packets(100));
    let wire = LinkConfig {
        delay: Duration::from_millis(10),
        ..LinkConfig::default()
    };
    hop(&mut group, "unlimited wire", &wire, 8_000);
    hop(&mut group, "drop-tail, idle", &gigabit(tail), 8_001);
    hop(&mut group, "drop-tail, full", &gigabit(tail), 8_000);
    let lossy = LinkConfig {
        loss: LossConfig::Bernoulli(0.001),
        ..gigabit(tail)
    };
    hop(&mut group, "drop-tail, full, lossy", &lossy, 8_000);
    let red = QueueConfig::Red(RedConfig::default());
    hop(&mut group, "RED, 5% too much", &gigabit(red), 7_619);
    let codel = QueueConfig::CoDel(CoDelConfig::default());
    hop(&mut group, "CoDel, 5% too much", &gigabit(codel), 7_619);
    let fair = QueueConfig::FqCoDel(FqCoDelConfig::default());
    hop(
        &mut group,
        "FQ-CoDel, 20 flows, 5% too much",
        &gigabit(fair),
        7_619,
    );
    let dual = QueueConfig::DualPi2(DualPi2Config::default());
    hop(&mut group, "DualPI2, 5% too much", &gigabit(dual), 7_619);
    group.finish();
}

/// One packet per `gap` ns, after a burst that fills any queue.
fn hop(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, config: &LinkConfig, gap: u64) {
    let mut link: Link<PacketHandle> = Link::new(config, Seed(1), "l").unwrap();
    let parcel = |i: u32| PacketHandle {
        flow: i % 20,
        ecn: Ecn::NotEct,
        _rest: [0; 7],
    };
    (0..100).for_each(|i| link.push(Time::ZERO, parcel(i)));
    let (mut now, mut i) = (0, 0);
    // Packets are reused, as in a network where they pass from link to link.
    let mut spare = None;
    group.bench_function(name, |b| {
        b.iter(|| {
            now += gap;
            i += 1;
            let packet = spare.take().unwrap_or_else(|| parcel(i));
            link.push(Time::from_nanos(now), packet);
            while link
                .next_departure()
                .is_some_and(|at| at <= Time::from_nanos(now))
            {
                spare = link.pop(Time::from_nanos(now)).map(|(_, packet)| packet);
            }
        });
    });
}

criterion_group!(benches, hops);
criterion_main!(benches);
