//! Routes of flows: listed link by link, or computed between two nodes.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::scenario::Scenario;
use crate::scenario::error::{Fault, ScenarioError};
use crate::scenario::table::{Table, Value};

/// Nodes at the ends of each link that names them: from and to.
#[derive(Debug, Default)]
pub(super) struct Nodes(Vec<Option<(String, String)>>);

impl Nodes {
    /// Adds the ends of the next link.
    pub(super) fn push(&mut self, ends: Option<(String, String)>) {
        self.0.push(ends);
    }

    fn known(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .0
            .iter()
            .flatten()
            .flat_map(|(from, to)| [from.clone(), to.clone()])
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The route with the least delay. Ties are resolved by the number of links, then by the order
    /// of links in the file.
    fn way(&self, scenario: &Scenario, from: &str, to: &str) -> Option<Vec<usize>> {
        let mut best: BTreeMap<&str, (Duration, usize, Vec<usize>)> = BTreeMap::new();
        best.insert(from, (Duration::ZERO, 0, Vec::new()));
        // Bellman-Ford: a route without loops has fewer links than the network.
        for _ in 0..self.0.len() {
            let mut changed = false;
            for (link, ends) in self.0.iter().enumerate() {
                let Some((tail, head)) = ends else { continue };
                let Some((delay, hops, links)) = best.get(tail.as_str()) else {
                    continue;
                };
                let mut links = links.clone();
                links.push(link);
                let way = (*delay + scenario.links[link].delay, hops + 1, links);
                if best.get(head.as_str()).is_none_or(|known| way < *known) {
                    best.insert(head, way);
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        best.remove(to).map(|(_, _, links)| links)
    }
}

/// The links to the receiver and back.
pub(super) fn of_flow(
    table: &Table<'_>,
    scenario: &Scenario,
    nodes: &Nodes,
) -> Result<(Vec<usize>, Vec<usize>), ScenarioError> {
    let (Some(from), Some(to)) = (table.get("from"), table.get("to")) else {
        if let Some(half) = table.get("from").or(table.get("to")) {
            return Err(half.fault(Fault::Conflict {
                why: "a route needs both ends".to_owned(),
                fix: "write both from = \"…\" and to = \"…\", or path and back".to_owned(),
            }));
        }
        return Ok((
            listed(&table.need("path", "path = [\"uplink\"]")?, scenario)?,
            listed(&table.need("back", "back = [\"downlink\"]")?, scenario)?,
        ));
    };
    if let Some(path) = table.get("path").or(table.get("back")) {
        return Err(path.fault(Fault::Conflict {
            why: "from and to already define the route".to_owned(),
            fix: "write either from and to, or path and back".to_owned(),
        }));
    }
    let (tail, head) = (node(&from, nodes)?, node(&to, nodes)?);
    if tail == head {
        return Err(to.range(
            &format!("the flow ends where it begins, at \"{head}\""),
            "choose another node",
        ));
    }
    let way = |tail: &str, head: &str| {
        nodes.way(scenario, tail, head).ok_or_else(|| {
            to.range(
                &format!("no links lead from \"{tail}\" to \"{head}\""),
                "add a [[link]] that joins them, or duplex = true to one that leads only there",
            )
        })
    };
    Ok((way(tail, head)?, way(head, tail)?))
}

fn node<'a>(value: &Value<'a>, nodes: &Nodes) -> Result<&'a str, ScenarioError> {
    let name = value.text("the name of a node in quotes, as \"left\"")?;
    let known = nodes.known();
    if known.iter().any(|node| node == name) {
        return Ok(name);
    }
    Err(value.fault(Fault::Name {
        what: "node",
        value: name.to_owned(),
        known,
    }))
}

fn listed(value: &Value<'_>, scenario: &Scenario) -> Result<Vec<usize>, ScenarioError> {
    const WANTED: &str = "a list of link names, as [\"uplink\"]";
    let mut route = Vec::new();
    for item in value.list(WANTED)? {
        let name = item.text("a link name in quotes")?;
        let found = scenario.links.iter().position(|link| link.name == name);
        let Some(link) = found else {
            return Err(item.fault(Fault::Name {
                what: "link",
                value: name.to_owned(),
                known: scenario
                    .links
                    .iter()
                    .map(|link| link.name.clone())
                    .collect(),
            }));
        };
        if route.contains(&link) {
            return Err(item.range(
                &format!("the link \"{name}\" occurs twice"),
                "list each link once, in order of travel",
            ));
        }
        route.push(link);
    }
    if route.is_empty() {
        return Err(value.range("the list is empty", "name at least one, as [\"uplink\"]"));
    }
    Ok(route)
}
