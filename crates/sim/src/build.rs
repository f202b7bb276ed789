//! From a scenario to the network that it describes, for the simulator and the emulator alike.

use core::time::Duration;

use tidegate_core::link::{
    Capacity, DropTailConfig, LinkConfig, LinkId, NamedLink, NetworkConfig, Outage as LinkOutage,
    QueueConfig, RedConfig, Steps, Trace,
};
use tidegate_core::units::{Bytes, Time};

use crate::run;
use crate::scenario::{Limit, LinkPlan, QueuePlan, RatePlan, Scenario};

/// The links of `scenario`, and for each flow the routes there and back, in this order.
pub fn network(scenario: &Scenario) -> NetworkConfig {
    let links = scenario.links.iter().map(|plan| NamedLink {
        name: plan.name.clone(),
        config: link(plan),
    });
    let route = |hops: &[usize]| hops.iter().map(|hop| LinkId(*hop)).collect();
    let flows = scenario.flows.iter();
    NetworkConfig {
        links: links.collect(),
        routes: flows
            .flat_map(|flow| [route(&flow.path), route(&flow.back)])
            .collect(),
    }
}

/// What the manifest of a run says of the links.
pub fn link_infos(scenario: &Scenario) -> Vec<run::LinkInfo> {
    let info = |plan: &LinkPlan| run::LinkInfo {
        name: plan.name.clone(),
        capacity: capacity_steps(plan, scenario.duration),
        queue: plan.queue.map_or_else(|| "none".to_owned(), describe),
        delay: plan.delay,
        loss: plan.loss,
        outages: plan
            .outages
            .iter()
            .map(|o| run::Outage {
                from: Time::ZERO + o.at,
                to: Time::ZERO + o.at + o.lasts,
            })
            .collect(),
    };
    scenario.links.iter().map(info).collect()
}

fn link(plan: &LinkPlan) -> LinkConfig {
    LinkConfig {
        capacity: capacity(plan),
        queue: plan.queue.map_or(LinkConfig::default().queue, queue),
        outages: plan
            .outages
            .iter()
            .map(|o| LinkOutage {
                from: Time::ZERO + o.at,
                to: Time::ZERO + o.at + o.lasts,
            })
            .collect(),
        loss: plan.loss,
        delay: plan.delay,
    }
}

fn capacity(plan: &LinkPlan) -> Capacity {
    match &plan.rate {
        None => Capacity::Unlimited,
        Some(RatePlan::Fixed(rate)) => Capacity::Fixed(*rate),
        Some(RatePlan::Steps(steps)) => {
            let steps: Vec<_> = steps.iter().map(|(at, r)| (Time::ZERO + *at, *r)).collect();
            Capacity::Steps(
                Steps::new(&steps).expect("a scenario's steps begin at zero and increase"),
            )
        }
        Some(RatePlan::Trace(trace)) => {
            let text: String = trace
                .opportunities
                .iter()
                .map(|ms| format!("{ms}\n"))
                .collect();
            Capacity::Trace(Trace::parse(&text).expect("a scenario's trace increases"))
        }
    }
}

fn queue(plan: QueuePlan) -> QueueConfig {
    match plan {
        QueuePlan::DropTail(Limit::Bytes(bytes)) => {
            QueueConfig::DropTail(DropTailConfig::bytes(bytes))
        }
        QueuePlan::DropTail(Limit::Packets(packets)) => {
            QueueConfig::DropTail(DropTailConfig::packets(packets))
        }
        QueuePlan::Red(red) => QueueConfig::Red(RedConfig {
            limit: match red.limit {
                Limit::Packets(packets) => packets,
                Limit::Bytes(bytes) => (bytes.get() / TYPICAL.get()).max(1) as u32,
            },
            min_threshold: red.min.get() as f64 / TYPICAL.get() as f64,
            max_threshold: red.max.get() as f64 / TYPICAL.get() as f64,
            weight: red.weight,
            max_probability: red.max_p,
            ecn: red.ecn,
            mean_packet: TYPICAL,
            ..RedConfig::default()
        }),
    }
}

fn describe(plan: QueuePlan) -> String {
    match plan {
        QueuePlan::DropTail(limit) => format!("droptail {limit}"),
        QueuePlan::Red(red) if red.ecn => format!("RED with ECN, {}", red.limit),
        QueuePlan::Red(red) => format!("RED, {}", red.limit),
    }
}

fn capacity_steps(plan: &LinkPlan, duration: Duration) -> Vec<run::CapacityStep> {
    let step = |from: Time, rate| run::CapacityStep { from, rate };
    match &plan.rate {
        None => vec![step(Time::ZERO, None)],
        Some(RatePlan::Fixed(rate)) => vec![step(Time::ZERO, Some(*rate))],
        Some(RatePlan::Steps(steps)) => {
            let steps = steps.iter().map(|(at, r)| step(Time::ZERO + *at, Some(*r)));
            steps.collect()
        }
        Some(RatePlan::Trace(_)) => {
            let capacity = capacity(plan);
            let count = duration.as_nanos().div_ceil(BIN.as_nanos()) as u32;
            let bins = (0..count).map(|bin| Time::ZERO + BIN * bin);
            bins.map(|from| {
                let bytes = capacity.offered(from, from + BIN).unwrap_or(Bytes::ZERO);
                step(from, Some(bytes / BIN))
            })
            .collect()
        }
    }
}

/// Thresholds of RED are in bytes in scenarios and in packets of this size in the model.
const TYPICAL: Bytes = Bytes(1_200);
/// A recorded capacity is drawn as means over this span (RFC 8868 uses the same for rates).
const BIN: Duration = Duration::from_millis(200);
