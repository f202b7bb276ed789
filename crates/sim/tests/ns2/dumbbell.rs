//! TFRC and TCP on a dumbbell: a shared link in each direction, and four access links per flow.

use tidegate_core::control::Algorithm as _;
use tidegate_core::controller::Configuration as _;
use tidegate_core::link::{LinkConfig, LinkId, NamedLink, Network, NetworkConfig, RouteId};
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Time};
use tidegate_sim::flow_endpoints::Actor;
use tidegate_sim::model_flow::{self, Receiver, ReceiverConfig, Sender, SenderConfig};
use tidegate_sim::ns2::tfrc::Ns2TfrcConfig;
use tidegate_sim::tcp::classic::{self, Flavour};
use tidegate_sim::tcp::{Sink, SinkConfig, SourceConfig};
use tidegate_sim::world::{Node, NodeId, World};

use crate::lab::start;

/// One flow of packets of 1000 bytes.
pub(crate) struct Flow {
    pub(crate) kind: Kind,
    pub(crate) start: Time,
    /// Links from the sender and to the receiver. Those of the return path are the same in reverse
    /// order.
    pub(crate) access: [LinkConfig; 2],
}

pub(crate) enum Kind {
    Tcp(classic::Config),
    /// As in ns-2.
    Tfrc(Ns2TfrcConfig),
}

/// Senders are the nodes with even numbers, each followed by its receiver.
pub(crate) fn world(bottleneck: &LinkConfig, flows: Vec<Flow>, seed: u64) -> World<Actor> {
    let mut links = vec![bottleneck.clone(), bottleneck.clone()];
    let (mut routes, mut parties) = (Vec::new(), Vec::new());
    for (n, flow) in flows.into_iter().enumerate() {
        let own = links.len();
        let [way_in, way_out] = flow.access.clone();
        let back = [
            LinkConfig {
                jitter: None,
                ..way_out.clone()
            },
            LinkConfig {
                jitter: None,
                ..way_in.clone()
            },
        ];
        links.extend([way_in, way_out]);
        links.extend(back);
        routes.push([own, 0, own + 1].map(LinkId).to_vec());
        routes.push([own + 2, 1, own + 3].map(LinkId).to_vec());
        let ends = ends(&flow);
        parties.extend(ends.into_iter().zip(0..).map(|(agent, side)| Node {
            name: format!("{n}/{side}"),
            agent,
            peer: NodeId(2 * n + 1 - side),
            route: RouteId(2 * n + side),
            flow: n as u32,
            dscp: 0,
            start: Time::ZERO,
            stop: Time::FAR,
        }));
    }
    let named = |(n, config)| NamedLink {
        name: format!("link {n}"),
        config,
    };
    let config = NetworkConfig {
        links: links.into_iter().enumerate().map(named).collect(),
        routes,
    };
    let network = Network::new(&config, Seed(seed)).expect("valid network");
    World::new(network, parties, Seed(seed)).expect("valid nodes")
}

fn ends(flow: &Flow) -> [Actor; 2] {
    match &flow.kind {
        Kind::Tcp(config) => {
            let source = SourceConfig {
                start: flow.start,
                ..SourceConfig::default()
            };
            let sink = SinkConfig {
                sack_blocks: if config.flavour == Flavour::Sack {
                    3
                } else {
                    0
                },
                ..SinkConfig::default()
            };
            [
                Actor::Tcp(Box::new(classic::Sender::new(config, &source))),
                Actor::TcpSink(Box::new(Sink::new(&sink))),
            ]
        }
        Kind::Tfrc(tfrc) => {
            let config = SenderConfig {
                start: flow.start,
                ..model_flow::ends(tfrc.properties(), Bytes(1_000)).0
            };
            let controller = tfrc.start(&start(&config));
            let receiver = Receiver::new(ReceiverConfig::ns2_tfrc());
            [
                Actor::Paced(Box::new(Sender::new(config, controller))),
                Actor::PacedReceiver(Box::new(receiver)),
            ]
        }
    }
}
