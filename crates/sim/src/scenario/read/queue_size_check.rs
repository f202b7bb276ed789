//! Whether the packets of flows fit into the queues that they pass: a packet that is larger than
//! the limit of a queue is always dropped.

use core::ops::Range;

use tidegate_core::link::QueueConfig;
use tidegate_core::units::Bytes;

use super::flow::{ACCESS, FLOW};
use super::link::LINK;
use super::queue;
use crate::scenario::error::{Fault, ScenarioError};
use crate::scenario::table::Value;
use crate::scenario::{FlowPlan, Scenario, network};

/// Checks the queues of links, each with the range of its directions in the plan.
pub(super) fn in_links(
    scenario: &Scenario,
    directions: &[(Value<'_>, Range<usize>)],
) -> Result<(), ScenarioError> {
    for (item, links) in directions {
        let plan = &scenario.links[links.start];
        let Some(queue) = &plan.queue else { continue };
        let mut table = item.table(LINK, "a table")?;
        table.place(format!("link \"{}\"", plan.name));
        let value = table.need("queue", "queue = { droptail = \"60kB\" }")?;
        let over = |road: &[usize]| road.iter().any(|link| links.contains(link));
        for flow in &scenario.flows_and_baselines() {
            if over(&flow.path) {
                fits(&value, queue, flow.media.largest_packet(), flow)?;
            }
            if over(&flow.back) {
                fits(&value, queue, flow.media.least_answer(), flow)?;
            }
        }
    }
    Ok(())
}

/// Checks the queues of the access and exit links of a flow.
pub(super) fn in_own_links(flow: &FlowPlan, item: &Value<'_>) -> Result<(), ScenarioError> {
    let mut table = item.table(FLOW, "a table")?;
    table.place(format!("flow \"{}\"", flow.name));
    for (key, plan) in [("access", &flow.access), ("exit", &flow.exit)] {
        let (Some(plan), Some(value)) = (plan, table.get(key)) else {
            continue;
        };
        if let Some(value) = value.table(ACCESS, "a table")?.get("queue") {
            fits(&value, &plan.queue, flow.media.largest_packet(), flow)?;
        }
    }
    Ok(())
}

fn fits(
    value: &Value<'_>,
    queue: &QueueConfig,
    packet: Bytes,
    flow: &FlowPlan,
) -> Result<(), ScenarioError> {
    let Some(limit) = network::byte_limit(queue).filter(|limit| *limit < packet) else {
        return Ok(());
    };
    Err(queue::limit_of(value)?.fault(Fault::Conflict {
        why: format!(
            "{} B {} no packet of {} B, which the flow \"{}\" sends",
            limit.0,
            if limit.0 == 1 { "holds" } else { "hold" },
            packet.0,
            flow.name
        ),
        fix: "increase the queue size, as \"60kB\"".to_owned(),
    }))
}
