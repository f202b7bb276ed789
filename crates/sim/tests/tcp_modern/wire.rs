//! One flow over a wire with a configurable fate of each packet.

use core::time::Duration;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use rand_pcg::Pcg64Mcg;
use tidegate_core::control::Ecn;
use tidegate_core::random::Seed;
use tidegate_core::units::Time;
use tidegate_sim::packet_agent::{Ack, Agent, AgentCx, Arrival, Body, Outbox, Outgoing};
use tidegate_sim::tcp::modern::{Config, Sender};
use tidegate_sim::tcp::{Sink, SinkConfig, SourceConfig};

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Data,
    Acks,
}

/// Data of a packet for the fate function.
#[derive(Debug)]
pub(crate) struct Sent<'a> {
    pub(crate) way: Way,
    pub(crate) at: Time,
    /// Number of earlier packets in the same direction.
    pub(crate) number: u64,
    pub(crate) packet: &'a Outgoing,
}

/// Delay of each packet; `None`: the packet is lost.
pub(crate) type Fate<'a> = dyn FnMut(&Sent<'_>) -> Option<Duration> + 'a;

pub(crate) struct Wire<'a> {
    pub(crate) now: Time,
    pub(crate) sender: Sender,
    pub(crate) sink: Sink,
    fate: Box<Fate<'a>>,
    flying: BinaryHeap<Reverse<(Time, u64, Slot)>>,
    sent: [u64; 2],
    order: u64,
    rng: Pcg64Mcg,
    out: Outbox,
}

/// A packet in flight; comparison uses only time and order.
#[derive(Debug)]
struct Slot(Way, Outgoing);

impl PartialEq for Slot {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Slot {}

impl PartialOrd for Slot {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slot {
    fn cmp(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}

impl<'a> Wire<'a> {
    pub(crate) fn new(
        config: &Config,
        source: &SourceConfig,
        sink: &SinkConfig,
        fate: impl FnMut(&Sent<'_>) -> Option<Duration> + 'a,
    ) -> Self {
        Self {
            now: Time::ZERO,
            sender: Sender::new(config, source).unwrap(),
            sink: Sink::new(sink),
            fate: Box::new(fate),
            flying: BinaryHeap::new(),
            sent: [0; 2],
            order: 0,
            rng: Seed(1).stream("agent"),
            out: Outbox::default(),
        }
    }

    /// Processes the next event. Returns whether there was one up to `end`.
    pub(crate) fn step(&mut self, end: Time) -> bool {
        let arrival = self.flying.peek().map_or(Time::FAR, |next| next.0.0);
        let (sender, sink) = (self.sender.next_timer(), self.sink.next_timer());
        let next = arrival.min(sender).min(sink);
        if next == Time::FAR || next > end {
            return false;
        }
        self.now = next.max(self.now);
        if arrival == next
            && let Some(Reverse((_, _, Slot(way, mut packet)))) = self.flying.pop()
        {
            let header = Arrival {
                size: packet.size,
                ecn: packet.ecn,
                dscp: 0,
            };
            self.act(opposite(way), |agent, cx| {
                agent.on_packet(cx, &header, &mut packet.body);
            });
        } else if sender == next {
            self.act(Way::Data, |agent, cx| agent.on_timer(cx));
        } else {
            self.act(Way::Acks, |agent, cx| agent.on_timer(cx));
        }
        true
    }

    pub(crate) fn run(&mut self, end: Time) {
        while self.step(end) {}
        if end < Time::FAR {
            self.now = end;
        }
    }

    /// Calls both timers, due or not.
    pub(crate) fn run_timers(&mut self) {
        for way in [Way::Data, Way::Acks] {
            self.act(way, |agent, cx| agent.on_timer(cx));
        }
    }

    /// Delivers a forged acknowledgement to the sender.
    pub(crate) fn forge_ack(&mut self, ack: Ack) {
        let arrival = Arrival {
            size: 40,
            ecn: Ecn::NotEct,
            dscp: 0,
        };
        self.act(Way::Data, |agent, cx| {
            agent.on_packet(cx, &arrival, &mut Body::Ack(ack));
        });
    }

    /// Writes data of the application.
    pub(crate) fn write(&mut self, bytes: u64) {
        let mut trace = ();
        let mut cx = AgentCx::new(self.now, &mut self.rng, &mut trace, &mut self.out);
        self.sender.write(&mut cx, bytes);
        self.post(Way::Data);
    }

    /// Calls the node that sends packets in direction `way`.
    fn act(&mut self, way: Way, act: impl FnOnce(&mut dyn Agent, &mut AgentCx<'_>)) {
        let mut trace = ();
        let mut cx = AgentCx::new(self.now, &mut self.rng, &mut trace, &mut self.out);
        match way {
            Way::Data => act(&mut self.sender, &mut cx),
            Way::Acks => act(&mut self.sink, &mut cx),
        }
        self.post(way);
    }

    fn post(&mut self, way: Way) {
        for packet in self.out.drain() {
            let number = &mut self.sent[way as usize];
            let sent = Sent {
                way,
                at: self.now,
                number: *number,
                packet: &packet,
            };
            *number += 1;
            if let Some(delay) = (self.fate)(&sent) {
                self.order += 1;
                self.flying
                    .push(Reverse((self.now + delay, self.order, Slot(way, packet))));
            }
        }
    }
}

fn opposite(way: Way) -> Way {
    match way {
        Way::Data => Way::Acks,
        Way::Acks => Way::Data,
    }
}

/// The segment in a packet, and whether it is a retransmission.
pub(crate) fn segment(sent: &Sent<'_>) -> Option<(u32, bool)> {
    match sent.packet.body {
        Body::Segment(segment) => Some((segment.seq, segment.again)),
        _ => None,
    }
}
