//! Paced flows over links, with a separate event loop.

use core::time::Duration;
use std::collections::BTreeSet;

use rand_pcg::Pcg64Mcg;
use tidegate_core::control::{Demand, Ecn, RateControl, Start};
use tidegate_core::link::{
    Capacity, Delivery, DropTailConfig, LinkConfig, LinkId, NamedLink, Network, NetworkConfig,
    Packet, QueueConfig, RouteId,
};
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_sim::model_flow::{Receiver, ReceiverConfig, Sender, SenderConfig};
use tidegate_sim::packet_agent::{Agent, AgentCx, Arrival, Outbox, Outgoing};

/// Senders and receivers of some flows, and the network between them.
pub(crate) struct Lab {
    pub(crate) network: Network<PacketHandle>,
    pub(crate) flows: Vec<Flow>,
    seed: Seed,
    out: Outbox,
    pub(crate) now: Time,
}

/// One flow.
pub(crate) struct Flow {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    routes: [RouteId; 2],
    rngs: [Pcg64Mcg; 2],
    /// Data packets that are lost at the end of the path, by their order of arrival there.
    pub(crate) dropped: BTreeSet<u64>,
    reached: u64,
    /// Send times of packets, if recorded.
    pub(crate) log: Option<Vec<Time>>,
}

/// A packet in flight.
#[derive(Debug)]
pub(crate) struct PacketHandle {
    flow: usize,
    packet: Outgoing,
}

impl Packet for PacketHandle {
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

impl Lab {
    /// Links without flows.
    pub(crate) fn new(links: Vec<(&str, LinkConfig)>, routes: &[&[usize]], seed: u64) -> Self {
        let config = NetworkConfig {
            links: links
                .into_iter()
                .map(|(name, config)| NamedLink {
                    name: name.to_owned(),
                    config,
                })
                .collect(),
            routes: routes
                .iter()
                .map(|route| route.iter().copied().map(LinkId).collect())
                .collect(),
        };
        Self {
            network: Network::new(&config, Seed(seed)).expect("valid network"),
            flows: Vec::new(),
            seed: Seed(seed),
            out: Outbox::default(),
            now: Time::ZERO,
        }
    }

    /// Adds a flow over a forward and a return route.
    pub(crate) fn add(
        &mut self,
        config: SenderConfig,
        controller: RateControl,
        receiver: ReceiverConfig,
        routes: [usize; 2],
    ) {
        let n = self.flows.len();
        let stream = |side: &str| self.seed.stream(&format!("{side}/{n}"));
        self.flows.push(Flow {
            sender: Sender::new(config, controller),
            receiver: Receiver::new(receiver),
            routes: routes.map(RouteId),
            rngs: [stream("sender"), stream("receiver")],
            dropped: BTreeSet::new(),
            reached: 0,
            log: None,
        });
    }

    /// Processes all events up to and including `until`.
    pub(crate) fn run(&mut self, until: Time) {
        loop {
            let timers = self.flows.iter().map(Flow::next_timer).min();
            let departure = self.network.next_departure();
            let next = timers.into_iter().chain(departure).min();
            let Some(now) = next
                .map(|next| next.max(self.now))
                .filter(|next| *next <= until)
            else {
                break;
            };
            self.now = now;
            while let Some(Delivery { packet, route, .. }) = self.network.pop(now) {
                let PacketHandle { flow, packet } = packet;
                let end = usize::from(route == self.flows[flow].routes[0]);
                self.give(flow, end, Some(packet));
            }
            for flow in 0..self.flows.len() {
                if self.flows[flow].sender.next_timer() <= now {
                    self.give(flow, 0, None);
                }
                if self.flows[flow].receiver.next_timer() <= now {
                    self.give(flow, 1, None);
                }
            }
        }
        self.now = until;
    }

    fn give(&mut self, n: usize, end: usize, packet: Option<Outgoing>) {
        let flow = &mut self.flows[n];
        if end == 1 && packet.is_some() {
            flow.reached += 1;
            if flow.dropped.contains(&(flow.reached - 1)) {
                return;
            }
        }
        let mut silence = ();
        let mut cx = AgentCx::new(self.now, &mut flow.rngs[end], &mut silence, &mut self.out);
        let agent: &mut dyn Agent = match end {
            0 => &mut flow.sender,
            _ => &mut flow.receiver,
        };
        match packet {
            Some(Outgoing {
                size,
                ecn,
                mut body,
                ..
            }) => {
                agent.on_packet(&mut cx, &Arrival { size, ecn, dscp: 0 }, &mut body);
            }
            None => agent.on_timer(&mut cx),
        }
        for packet in self.out.drain() {
            if let Some(log) = flow.log.as_mut().filter(|_| end == 0) {
                log.push(self.now);
            }
            let route = flow.routes[end];
            self.network
                .push(self.now, route, PacketHandle { flow: n, packet });
        }
    }
}

impl Flow {
    fn next_timer(&self) -> Time {
        self.sender.next_timer().min(self.receiver.next_timer())
    }
}

/// A link with a tail-drop queue of this many packets as counted by ns-2, which includes the packet
/// in transmission.
pub(crate) fn link(rate: Rate, delay: Duration, limit: u32) -> LinkConfig {
    LinkConfig {
        capacity: Capacity::Fixed(rate),
        queue: QueueConfig::DropTail(DropTailConfig::packets(limit - 1)),
        delay,
        ..LinkConfig::default()
    }
}

/// A greedy flow's start.
pub(crate) fn start(config: &SenderConfig) -> Start {
    let demand = Demand {
        floor: Rate::ZERO,
        ceiling: Rate::MAX,
        shares: 1,
    };
    Start::new(config.start, config.size, demand)
}
