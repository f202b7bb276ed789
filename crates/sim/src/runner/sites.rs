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
            // The ports of a point are the first and the last one, and the two others.
            let back = NodeId(first + 3 - n);
            let flow = if n < 2 { i } else { instances.len() + i };
            nodes.push(Node {
                name: format!("{}/point-{n}", role.name),
                agent: SimFlow::Port(point.port(direction, back)),
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

#[cfg(test)]
mod tests {
    use tidegate_core::aggregate::sender::CpSender;
    use tidegate_core::link::Network;
    use tidegate_core::random::Seed;

    use super::*;
    use crate::world::{Observer, World};

    struct Unobserved;

    impl Observer for Unobserved {}

    /// Two flows with two flowshares over 50 ms each way. Nothing passes from 20 s to 22 s.
    const SITES: &str = r#"name = "sites"
duration = "40s"
[[link]]
name = "there"
rate = "4Mb/s"
delay = "50ms"
loss = 0.01
queue = { droptail = "50 packets" }
outage = [{ at = "20s", lasts = "2s" }]
[[link]]
name = "back"
rate = "4Mb/s"
delay = "50ms"
loss = 0.01
queue = { droptail = "50 packets" }
outage = [{ at = "20s", lasts = "2s" }]
[[aggregation]]
name = "points"
circuit_breaker = false
[[flow]]
name = "cp"
count = 2
path = ["there"]
back = ["back"]
access = { delay = "1ms" }
exit = { delay = "1ms" }
cp = { points = "points", shares = 2, packet = "1000B", both = true }
"#;

    fn sender(world: &World<SimFlow>, node: usize) -> &CpSender {
        match world.agent(NodeId(node)) {
            SimFlow::Coordinated(end) => end.sender().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn endpoints_of_both_sites_are_notified_of_a_lost_point_and_control_themselves() {
        let none = |_: &str| Err("no files".to_owned());
        let scenario = Scenario::parse("sites", SITES, &none).unwrap();
        let instances = topology::flow_instances(&scenario, Seed(1));
        let network = topology::network(&scenario, &instances).unwrap();
        let network = Network::new(&network, Seed(1)).unwrap();
        let encoder = |_: &str, _: &_, _| unreachable!("no flow has video");
        let mut nodes = super::super::nodes(&instances, Seed(1), &encoder).unwrap();
        insert(&mut nodes, &scenario, &instances);
        let mut world = World::new(network, nodes, Seed(1)).unwrap();
        world.run(Time::from_secs(20), &mut Unobserved).unwrap();
        let ends = 0..4;
        let before: Vec<f64> = ends
            .clone()
            .map(|node| sender(&world, node).rate().as_f64())
            .collect();
        for node in ends.clone() {
            let sender = sender(&world, node);
            assert!(!sender.path().unwrap().peer_lost && !sender.is_alone());
        }
        // Three round trips.
        world
            .run(Time::from_millis(20_300), &mut Unobserved)
            .unwrap();
        for node in ends.clone() {
            let sender = sender(&world, node);
            assert!(sender.path().unwrap().peer_lost, "{node}");
            assert!(sender.is_alone(), "{node}");
        }
        // Without feedback the rate is halved every four round trips.
        world.run(Time::from_secs(22), &mut Unobserved).unwrap();
        for node in ends.clone() {
            let rate = sender(&world, node).rate().as_f64();
            assert!(rate < 0.2 * before[node], "{node}: {rate} {before:?}");
        }
        world.run(Time::from_secs(24), &mut Unobserved).unwrap();
        for node in ends {
            let sender = sender(&world, node);
            assert!(!sender.path().unwrap().peer_lost && !sender.is_alone());
        }
    }
}
