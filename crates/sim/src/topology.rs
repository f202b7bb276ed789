//! From a scenario to flow instances and their network: a flow with a `count` is expanded, random
//! start times and delays are drawn, and each flow gets its own access links.

use core::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::link::{
    Capacity, LinkConfig, LinkId, NamedLink, NetworkConfig, RouteId, StepsError,
};
use tidegate_core::random::{Seed, unit};
use tidegate_core::units::Rate;

use crate::flow_endpoints::FlowInstance;
use crate::scenario::{AccessPlan, BaselinePlan, FlowPlan, Scenario};

/// The flow instances of `scenario`. Start times and delays are drawn from the streams
/// `flow/<name>` of `seed`, so that adding a flow does not change the others.
pub fn flow_instances(scenario: &Scenario, seed: Seed) -> Vec<FlowInstance> {
    let flows = scenario.flows.iter();
    flows
        .flat_map(|plan| (1..=plan.count).map(move |number| role(plan, number, seed)))
        .collect()
}

/// The flow instance of a baseline, which sends at a fixed `rate` if there is one.
pub fn baseline(
    scenario: &Scenario,
    plan: &BaselinePlan,
    rate: Option<Rate>,
    seed: Seed,
) -> FlowInstance {
    FlowInstance {
        name: plan.name.clone(),
        class: plan.name.clone(),
        baseline: rate,
        ..role(&scenario.baseline_flow(plan), 1, seed)
    }
}

/// The network of `instances`: the shared links in the order of the scenario, then the access links of
/// the flows. Each flow instance has two routes, [`path_of`] and [`back_of`].
///
/// # Errors
/// [`StepsError`] if the steps of a rate are not in order. Plans read from a file have ordered
/// steps.
pub fn network(
    scenario: &Scenario,
    instances: &[FlowInstance],
) -> Result<NetworkConfig, StepsError> {
    let mut links = Vec::with_capacity(scenario.links.len());
    for link in &scenario.links {
        links.push(NamedLink {
            name: link.name.clone(),
            config: link.config()?,
        });
    }
    let mut routes = Vec::with_capacity(2 * instances.len());
    let mut legs: Vec<Vec<LinkId>> = Vec::new();
    for role in instances {
        let mut own = |end: &str, config: &Option<LinkConfig>| -> Option<LinkId> {
            links.push(NamedLink {
                name: format!("{}.{end}", role.of),
                config: config.clone()?,
            });
            Some(LinkId(links.len() - 1))
        };
        let [access, exit] = [("access", &role.access), ("exit", &role.exit)];
        let there = (own(access.0, access.1), own(exit.0, exit.1));
        let back = (own("exit-back", exit.1), own("access-back", access.1));
        let route = |first: Option<LinkId>, shared: &[usize], last: Option<LinkId>| {
            let shared = shared.iter().map(|link| LinkId(*link));
            first.into_iter().chain(shared).chain(last).collect()
        };
        if role.plan.media.cp().is_some() {
            // From an endpoint to its aggregation point. The point sends the packet further.
            routes.push(route(there.0, &[], None));
            routes.push(route(back.0, &[], None));
            legs.push(route(None, &role.plan.path, None));
            legs.push(route(None, &[], there.1));
            legs.push(route(None, &role.plan.back, None));
            legs.push(route(None, &[], back.1));
        } else {
            routes.push(route(there.0, &role.plan.path, there.1));
            routes.push(route(back.0, &role.plan.back, back.1));
        }
    }
    routes.append(&mut legs);
    Ok(NetworkConfig { links, routes })
}

/// Route to the receiver of a flow instance, by its index.
pub fn path_of(role: usize) -> RouteId {
    RouteId(2 * role)
}

/// Route back to the sender of a flow instance, by its index.
pub fn back_of(role: usize) -> RouteId {
    RouteId(2 * role + 1)
}

/// Part of the route of a cluster-to-cluster flow that begins at an aggregation point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leg {
    /// Over the shared links to the other point.
    There,
    /// Over the exit link to the receiver.
    Exit,
    /// Over the shared links back.
    Back,
    /// Over the access link to the sender.
    Access,
}

/// Route of a leg of the cluster-to-cluster flow `role`, by its index.
pub fn leg_of(instances: &[FlowInstance], role: usize, leg: Leg) -> RouteId {
    let before = instances[..role].iter();
    let before = before.filter(|role| role.plan.media.cp().is_some()).count();
    RouteId(2 * instances.len() + 4 * before + leg as usize)
}

fn role(plan: &FlowPlan, number: u32, seed: Seed) -> FlowInstance {
    let name = plan.name_of(number);
    let mut rng = seed.stream(&format!("flow/{name}"));
    let first = plan.start + plan.start_step * (number - 1);
    let start = drawn(first, plan.start_spread, &mut rng);
    // Drawn even without a link, so that adding one does not change the other draws.
    let mut own = |link: &Option<AccessPlan>| {
        let fraction = unit(&mut rng);
        link.as_ref().map(|link| access(link, fraction))
    };
    let (access, exit) = (own(&plan.access), own(&plan.exit));
    FlowInstance {
        of: name.clone(),
        name,
        class: plan.name.clone(),
        plan: FlowPlan {
            start,
            start_spread: Duration::ZERO,
            start_step: Duration::ZERO,
            ..plan.clone()
        },
        baseline: None,
        access,
        exit,
    }
}

fn drawn(from: Duration, spread: Duration, rng: &mut Pcg64Mcg) -> Duration {
    from + spread.mul_f64(unit(rng))
}

fn access(plan: &AccessPlan, fraction: f64) -> LinkConfig {
    LinkConfig {
        capacity: plan.rate.map_or(Capacity::Unlimited, Capacity::Fixed),
        queue: plan.queue,
        delay: plan.delay + plan.delay_spread.mul_f64(fraction),
        ..LinkConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flows: &str) -> Result<Scenario, String> {
        let text = format!("{HEAD}{flows}");
        Scenario::parse("t.toml", &text, &|_| Err("no files here".to_owned()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_dumbbell_has_links_for_each_flow() {
        let plan = parse(
            r#"[[flow]]
name = "many"
count = 3
from = "left"
to = "far"
access = { rate = "100Mb/s", delay = "1ms" }
exit = { delay = ["1ms", "20ms"] }
start = ["0s", "5s"]
control = "tfrc"
bulk = { packet = "1000B" }
"#,
        )
        .unwrap();
        let flows = flow_instances(&plan, Seed(1));
        let names: Vec<&str> = flows.iter().map(|role| role.name.as_str()).collect();
        assert_eq!(names, ["many-1", "many-2", "many-3"]);
        assert!(flows.iter().all(|role| role.class == "many"));
        let starts: Vec<Duration> = flows.iter().map(|role| role.plan.start).collect();
        assert!(starts.iter().all(|at| *at < Duration::from_secs(5)));
        assert_ne!(starts[0], starts[1]);
        let net = network(&plan, &flows).unwrap();
        // Four shared links, and four per flow.
        assert_eq!(net.links.len(), 4 + 3 * 4);
        let way = |route: RouteId| -> Vec<&str> {
            let links = net.routes[route.0].iter();
            links.map(|link| net.links[link.0].name.as_str()).collect()
        };
        let there = ["many-2.access", "bottleneck", "last", "many-2.exit"];
        assert_eq!(way(path_of(1)), there);
        let back = [
            "many-2.exit-back",
            "last-back",
            "bottleneck-back",
            "many-2.access-back",
        ];
        assert_eq!(way(back_of(1)), back);
        let exits = net.links.iter().filter(|link| link.name.ends_with("exit"));
        let delays: Vec<Duration> = exits.map(|link| link.config.delay).collect();
        let range = Duration::from_millis(1)..=Duration::from_millis(20);
        assert!(delays.iter().all(|delay| range.contains(delay)));
        assert_eq!(flow_instances(&plan, Seed(1))[1].access, flows[1].access);
        assert_ne!(
            flow_instances(&plan, Seed(2))[1].plan.start,
            flows[1].plan.start
        );
    }

    #[test]
    fn paths_without_links_or_without_an_end_are_rejected() {
        let flow = |way: &str| {
            parse(&format!(
                "[[link]]\nname = \"off\"\nfrom = \"left\"\nto = \"island\"\n\
                 [[flow]]\nname = \"a\"\n{way}\ncontrol = \"tfrc\"\nbulk = {{ packet = \"1000B\" }}\n"
            ))
            .unwrap_err()
        };
        assert_eq!(
            flow("from = \"left\"\nto = \"island\""),
            "t.toml:24: flow \"a\": to: no links lead from \"island\" to \"left\"; add a [[link]] \
             that joins them, or duplex = true to one that leads only there"
        );
        assert_eq!(
            flow("from = \"left\"\nto = \"lefd\""),
            "t.toml:24: flow \"a\": to: there is no node \"lefd\"; use \"far\" or \
             \"island\" or \"left\" or \"right\""
        );
        assert_eq!(
            flow("from = \"left\""),
            "t.toml:23: flow \"a\": from: a route needs both ends; write both from = \"…\" and \
             to = \"…\", or path and back"
        );
        assert_eq!(
            flow("from = \"left\"\nto = \"left\""),
            "t.toml:24: flow \"a\": to: the flow ends where it begins, at \"left\"; choose \
             another node"
        );
    }

    const HEAD: &str = r#"name = "t"
duration = "60s"
[[link]]
name = "bottleneck"
from = "left"
to = "right"
duplex = true
rate = "15Mb/s"
delay = "50ms"
queue = { droptail = "50 packets" }
[[link]]
name = "last"
from = "right"
to = "far"
duplex = true
delay = "1ms"
"#;
}
