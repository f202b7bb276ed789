//! Cost of a TCP connection per segment: sender and sink, over a wire of 50 ms in each direction.

use core::time::Duration;
use std::collections::VecDeque;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rand_pcg::Pcg64Mcg;
use tidegate_core::units::Time;
use tidegate_sim::packet_agent::{Agent, AgentCx, Arrival, Body, Outbox, Outgoing};
use tidegate_sim::tcp::modern::{Config, CongestionConfig, Sender};
use tidegate_sim::tcp::{Sink, SinkConfig, SourceConfig};

struct Wire {
    sender: Sender,
    sink: Sink,
    now: Time,
    rng: Pcg64Mcg,
    out: Outbox,
    /// Packets in flight, in both directions.
    ways: [VecDeque<(Time, Outgoing)>; 2],
    /// One segment in this many is lost; zero: none.
    loss: u32,
    sent: u32,
}

impl Wire {
    fn new(congestion: CongestionConfig, loss: u32) -> Self {
        let config = Config {
            congestion,
            window: 1_000,
            ..Config::default()
        };
        let sink = SinkConfig {
            delay: Some(Duration::from_millis(40)),
            ..SinkConfig::default()
        };
        let mut wire = Self {
            sender: Sender::new(&config, &SourceConfig::default()).unwrap(),
            sink: Sink::new(&sink),
            now: Time::ZERO,
            rng: Pcg64Mcg::new(1),
            out: Outbox::default(),
            ways: [VecDeque::new(), VecDeque::new()],
            loss,
            sent: 0,
        };
        wire.deliver(100_000);
        wire
    }

    /// Runs until this many further segments have arrived in order.
    fn deliver(&mut self, segments: u32) {
        let goal = self.sink.next() + segments;
        while self.sink.next() < goal {
            self.step();
        }
    }

    fn step(&mut self) {
        let first = |way: &VecDeque<(Time, Outgoing)>| way.front().map_or(Time::FAR, |p| p.0);
        let arrivals = [first(&self.ways[0]), first(&self.ways[1])];
        let timers = [self.sender.next_timer(), self.sink.next_timer()];
        self.now = arrivals
            .into_iter()
            .chain(timers)
            .fold(Time::FAR, Time::min);
        for side in 0..2 {
            if timers[side] <= self.now {
                self.call(side, |agent, cx| agent.on_timer(cx));
            }
            // Packets in the forward direction reach the sink.
            if arrivals[side] <= self.now
                && let Some((_, mut packet)) = self.ways[side].pop_front()
            {
                let arrival = Arrival {
                    size: packet.size,
                    ecn: packet.ecn,
                    dscp: 0,
                };
                self.call(1 - side, |agent, cx| {
                    agent.on_packet(cx, &arrival, &mut packet.body);
                });
            }
        }
    }

    fn call(&mut self, side: usize, act: impl FnOnce(&mut dyn Agent, &mut AgentCx<'_>)) {
        let mut trace = ();
        let mut cx = AgentCx::new(self.now, &mut self.rng, &mut trace, &mut self.out);
        if side == 0 {
            act(&mut self.sender, &mut cx);
        } else {
            act(&mut self.sink, &mut cx);
        }
        for packet in self.out.drain() {
            self.sent += u32::from(matches!(packet.body, Body::Segment(_)));
            let lost = side == 0 && self.loss > 0 && self.sent.is_multiple_of(self.loss);
            if !lost {
                let at = self.now + Duration::from_millis(50);
                self.ways[side].push_back((at, packet));
            }
        }
    }
}

fn segments(c: &mut Criterion) {
    let mut group = c.benchmark_group("tcp modern");
    group.throughput(Throughput::Elements(SEGMENTS.into()));
    for (name, congestion) in [
        ("reno", CongestionConfig::reno()),
        ("cubic", CongestionConfig::cubic()),
        ("bbr", CongestionConfig::bbr()),
    ] {
        for loss in [0, 1_000, 50] {
            let mut wire = Wire::new(congestion, loss);
            group.bench_function(format!("{name}, one in {loss} lost"), |b| {
                b.iter(|| wire.deliver(SEGMENTS));
            });
        }
    }
    group.finish();
}

const SEGMENTS: u32 = 10_000;

criterion_group!(benches, segments);
criterion_main!(benches);
