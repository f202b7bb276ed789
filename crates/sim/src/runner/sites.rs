//! Nodes of the aggregation points on the routes of cluster-to-cluster flows.

use tidegate_core::aggregate::Direction;
use tidegate_core::units::Time;

use super::sim_flow::SimFlow;
use crate::coordination::SharedPoint;
use crate::flow_endpoints::FlowInstance;
use crate::scenario::Scenario;
use crate::topology::{self, Leg};
use crate::world::{Node, NodeId};

/// Appends the ports of all points to `nodes`, which has two nodes for each of `instances`, and
/// leads the packets of the flows through them.
pub(super) fn insert(
    nodes: &mut Vec<Node<SimFlow>>,
    scenario: &Scenario,
    instances: &[FlowInstance],
) {
    let pairs = scenario.aggregations.iter();
    let pair = |config: &crate::coordination::AggregationPlan| {
        [(); 2].map(|()| SharedPoint::new(config.config.clone()))
    };
    let pairs: Vec<[SharedPoint; 2]> = pairs.map(pair).collect();
    for (i, role) in instances.iter().enumerate() {
        let Some(cp) = role.plan.media.cp() else {
            continue;
        };
        let [left, right] = &pairs[cp.points];
        let first = nodes.len();
        let (sender, receiver) = (2 * i, 2 * i + 1);
        nodes[sender].peer = NodeId(first);
        nodes[receiver].peer = NodeId(first + 2);
        // In the order of a packet to the receiver and of its answer.
        let ports = [
            (left, Direction::Outbound, first + 1, Leg::There),
            (right, Direction::Inbound, receiver, Leg::Exit),
            (right, Direction::Outbound, first + 3, Leg::Back),
            (left, Direction::Inbound, sender, Leg::Access),
        ];
        for (n, (point, direction, peer, leg)) in ports.into_iter().enumerate() {
            let flow = if n < 2 { i } else { instances.len() + i };
            nodes.push(Node {
                name: format!("{}/point-{n}", role.name),
                agent: SimFlow::Port(point.port(direction)),
                peer: NodeId(peer),
                route: topology::leg_of(instances, i, leg),
                flow: flow as u32,
                dscp: role.plan.dscp,
                start: Time::ZERO,
                stop: Time::FAR,
            });
        }
    }
}
