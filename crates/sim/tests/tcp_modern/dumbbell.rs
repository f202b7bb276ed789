//! Flows over one bottleneck.

use core::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::control::Ecn;
use tidegate_core::link::{
    Capacity, DropTailConfig, Hop, Limit, Link, LinkConfig, LossConfig, Packet, QueueConfig,
};
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_sim::packet_agent::{Agent, AgentCx, Arrival, Outbox, Outgoing};
use tidegate_sim::tcp::modern::{Config, Sender};
use tidegate_sim::tcp::{Sink, SinkConfig, SourceConfig};

/// A bottleneck, and a return path with the same delay that is never full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) rate: Rate,
    pub(crate) rtt: Duration,
    /// In packets.
    pub(crate) queue: u32,
    /// Loss rate of data, after the queue.
    pub(crate) loss: f64,
    /// Loss rate of acknowledgements.
    pub(crate) ack_loss: f64,
    /// Marks packets while the queue is longer than this.
    pub(crate) mark_above: Option<Bytes>,
    pub(crate) seed: u64,
}

impl Path {
    /// A path with a queue of `products` bandwidth-delay products.
    pub(crate) fn new(mbps: u64, rtt_ms: u64, products: f64) -> Self {
        let (rate, rtt) = (Rate::kbps(mbps * 1_000), Duration::from_millis(rtt_ms));
        let bdp = (rate * rtt).get() as f64 / 1_500.0;
        Self {
            rate,
            rtt,
            queue: ((products * bdp + 0.5) as u32).max(2),
            loss: 0.0,
            ack_loss: 0.0,
            mark_above: None,
            seed: 1,
        }
    }
}

/// One flow: its sender, its receiver, and its additional round-trip delay.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) sender: Sender,
    pub(crate) sink: Sink,
    rngs: [Pcg64Mcg; 2],
}

/// State of the dumbbell.
#[derive(Debug)]
pub(crate) struct Dumbbell {
    pub(crate) now: Time,
    pub(crate) flows: Vec<Flow>,
    pub(crate) link: Link<Cell>,
    back: Link<Cell>,
    /// Integral of the queue length over time.
    area: Option<f64>,
    out: Outbox,
}

/// Measurements of an interval.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    /// Payload delivered in order by all flows, in b/s.
    pub(crate) goodput: f64,
    /// Mean number of waiting packets.
    pub(crate) queue: f64,
    pub(crate) drops: u64,
}

#[derive(Debug)]
pub(crate) struct Cell {
    flow: usize,
    packet: Outgoing,
}

impl Packet for Cell {
    fn size(&self) -> Bytes {
        Bytes(u64::from(self.packet.size))
    }

    fn ecn(&self) -> Ecn {
        self.packet.ecn
    }

    fn set_ce(&mut self) {
        self.packet.ecn = Ecn::Ce;
    }
}

impl Dumbbell {
    pub(crate) fn new(path: &Path, sink: &SinkConfig, flows: &[(Config, SourceConfig)]) -> Self {
        let seed = Seed(path.seed);
        let forth = LinkConfig {
            capacity: Capacity::Fixed(path.rate),
            queue: QueueConfig::DropTail(DropTailConfig {
                limit: Limit::Packets(path.queue),
                mark_above: path.mark_above,
            }),
            loss: LossConfig::Bernoulli(path.loss),
            delay: path.rtt / 2,
            ..LinkConfig::default()
        };
        let back = LinkConfig {
            loss: LossConfig::Bernoulli(path.ack_loss),
            delay: path.rtt / 2,
            ..LinkConfig::default()
        };
        let flow = |(n, (config, source)): (usize, &(Config, SourceConfig))| Flow {
            sender: Sender::new(config, source).unwrap(),
            sink: Sink::new(sink),
            rngs: [0, 1].map(|side| seed.stream(&format!("agent/{n}/{side}"))),
        };
        Self {
            now: Time::ZERO,
            flows: flows.iter().enumerate().map(flow).collect(),
            link: Link::new(&forth, seed, "forth").unwrap(),
            back: Link::new(&back, seed, "back").unwrap(),
            area: None,
            out: Outbox::default(),
        }
    }

    /// Runs until `end`, or until there are no further events.
    pub(crate) fn run(&mut self, end: Time) {
        while let Some(next) = self.next().filter(|next| *next <= end) {
            self.go_to(next);
            while let Some((at, mut cell)) = self.link.pop(next) {
                let ecn = cell.packet.ecn;
                self.act(cell.flow, 1, at, |sink, _, cx| {
                    sink.on_packet(cx, &arrival(&cell.packet, ecn), &mut cell.packet.body);
                });
            }
            while let Some((at, mut cell)) = self.back.pop(next) {
                let ecn = cell.packet.ecn;
                self.act(cell.flow, 0, at, |_, sender, cx| {
                    sender.on_packet(cx, &arrival(&cell.packet, ecn), &mut cell.packet.body);
                });
            }
            for flow in 0..self.flows.len() {
                if self.flows[flow].sender.next_timer() <= next {
                    self.act(flow, 0, next, |_, sender, cx| sender.on_timer(cx));
                }
                if self.flows[flow].sink.next_timer() <= next {
                    self.act(flow, 1, next, |sink, _, cx| sink.on_timer(cx));
                }
            }
        }
        if end < Time::FAR {
            self.go_to(end);
        }
    }

    /// Runs until `end` and returns the measurements from now on.
    pub(crate) fn measure(&mut self, end: Time) -> Measured {
        let (start, drops) = (self.now, self.link.stats().queue_drops);
        let before: u64 = self.delivered().iter().sum();
        self.area = Some(0.0);
        self.run(end);
        let area = self.area.take().unwrap_or_default();
        let span = end.since(start).as_secs_f64();
        let after: u64 = self.delivered().iter().sum();
        Measured {
            goodput: (after - before) as f64 * PAYLOAD_BITS / span,
            queue: area / span,
            drops: self.link.stats().queue_drops - drops,
        }
    }

    /// Number of segments that each flow delivered in order.
    pub(crate) fn delivered(&self) -> Vec<u64> {
        self.flows
            .iter()
            .map(|flow| u64::from(flow.sink.next()))
            .collect()
    }

    fn next(&self) -> Option<Time> {
        let links = [&self.link, &self.back].map(Hop::next_departure);
        let timers = self
            .flows
            .iter()
            .flat_map(|flow| [flow.sender.next_timer(), flow.sink.next_timer()]);
        let next = links.into_iter().flatten().chain(timers).min()?;
        (next < Time::FAR).then_some(next.max(self.now))
    }

    fn go_to(&mut self, now: Time) {
        // The time for counting waiting packets is proportional to the length of the queue.
        if let Some(area) = &mut self.area {
            *area += self.link.queued().packets as f64 * now.since(self.now).as_secs_f64();
        }
        self.now = now;
    }

    /// Calls the sender (side 0) or the sink, and sends its packets.
    fn act(
        &mut self,
        flow: usize,
        side: usize,
        at: Time,
        act: impl FnOnce(&mut Sink, &mut Sender, &mut AgentCx<'_>),
    ) {
        let party = &mut self.flows[flow];
        let mut trace = ();
        let mut cx = AgentCx::new(at, &mut party.rngs[side], &mut trace, &mut self.out);
        act(&mut party.sink, &mut party.sender, &mut cx);
        let link = if side == 0 {
            &mut self.link
        } else {
            &mut self.back
        };
        for packet in self.out.drain() {
            link.push(at, Cell { flow, packet });
        }
    }
}

fn arrival(packet: &Outgoing, ecn: Ecn) -> Arrival {
    Arrival {
        size: packet.size,
        ecn,
        dscp: 0,
    }
}

/// As in Linux: every second segment, or after 40 ms.
pub(crate) fn delayed() -> SinkConfig {
    SinkConfig {
        ack_size: 52,
        delay: Some(Duration::from_millis(40)),
        ..SinkConfig::default()
    }
}

/// Payload of segments of 1500 bytes with 52 bytes of headers.
pub(crate) const PAYLOAD_BITS: f64 = 1_448.0 * 8.0;
