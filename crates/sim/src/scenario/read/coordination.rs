//! Aggregation points, and flows of the Coordination Protocol.

use core::time::Duration;

use tidegate_core::aggregate::{AggregateConfig, Sampling};
use tidegate_core::endpoint::OVERHEAD;
use tidegate_core::units::Bytes;
use tidegate_core::wire::cp::{ApplicationId, LEN, MAX_SHARES, Shares};

use super::{Names, Sources, control, packet_size};
use crate::coordination::{AggregationPlan, Answers, CpPlan};
use crate::scenario::Scenario;
use crate::scenario::error::{Fault, ScenarioError};
use crate::scenario::table::{Table, Value};

pub(super) fn aggregation(
    item: &Value<'_>,
    names: &mut Names,
    sources: Sources<'_>,
) -> Result<AggregationPlan, ScenarioError> {
    let mut table = item.table(AGGREGATION, "a table")?;
    let name = names.take(&table.need("name", "name = \"sites\"")?)?;
    table.place(format!("aggregation \"{name}\""));
    let mut config = AggregateConfig::default();
    if let Some(value) = table.get("control") {
        config.control = control::control(&value, sources)?;
    }
    if let Some(value) = table.get("sampling") {
        config.sampling = value.choice(
            &["bfld", "bfld-independent", "all"],
            &[Sampling::Bfld, Sampling::BfldIndependent, Sampling::All],
        )?;
    }
    if let Some(value) = table.get("max_shares") {
        config.max_shares = value.whole(1..=MAX_SHARES.into())? as u8;
    }
    if let Some(value) = table.get("reordering") {
        config.reordering = value.whole(1..=64)? as u32;
    }
    if let Some(value) = table.get("circuit_breaker") {
        config.circuit_breaker = value.boolean()?;
    }
    Ok(AggregationPlan { name, config })
}

pub(super) fn cp(
    value: &Value<'_>,
    flow: &Table<'_>,
    count: u32,
    scenario: &Scenario,
) -> Result<CpPlan, ScenarioError> {
    let table = value.table(CP, "{ points = \"sites\", packet = \"1000B\" }")?;
    for key in ["access", "exit"] {
        flow.need(key, "access = { delay = \"1ms\" }, and the same for exit")?;
    }
    let name = table.need("points", "points = \"sites\"")?;
    let wanted = name.text("the name of an aggregation in quotes")?;
    let mut known = scenario.aggregations.iter();
    let Some(points) = known.position(|plan| plan.name == wanted) else {
        return Err(name.fault(Fault::Name {
            what: "aggregation",
            value: wanted.to_owned(),
            known: scenario
                .aggregations
                .iter()
                .map(|plan| plan.name.clone())
                .collect(),
        }));
    };
    let packet = packet_size(&table.need("packet", "packet = \"1000B\"")?)?;
    let shares = match table.get("shares") {
        Some(value) => value.whole(1..=MAX_SHARES.into())? as u8,
        None => 1,
    };
    let both = match table.get("both") {
        Some(value) => value.boolean()?,
        None => false,
    };
    Ok(CpPlan {
        points,
        application: ApplicationId(match table.get("application") {
            Some(value) => value.whole(0..=u16::MAX.into())? as u16,
            None => 1,
        }),
        shares: Shares::new(shares).unwrap_or(Shares::ONE),
        part: match table.get("part") {
            Some(value) => value.number(1e-6..=64.0, "0.5")?,
            None => f64::from(shares) / f64::from(count),
        },
        packet,
        answers: if both {
            Answers::Data
        } else {
            Answers::Each(answer(&table)?)
        },
        overhead: match table.get("overhead") {
            Some(value) => value.duration()?,
            None => Duration::ZERO,
        },
    })
}

/// Size of answers: at least that of a header.
fn answer(table: &Table<'_>) -> Result<Bytes, ScenarioError> {
    let least = OVERHEAD + Bytes(LEN as u64);
    let Some(value) = table.get("answer") else {
        return Ok(least);
    };
    let size = value.size()?;
    if size < least || size > Bytes(1_500) {
        return Err(value.range(
            &format!("an answer of {} B", size.0),
            "write a size from \"48B\", which is the headers, to \"1500B\"",
        ));
    }
    Ok(size)
}

/// Rejects aggregation points that no flow uses.
pub(super) fn check_used(scenario: &Scenario, items: &[Value<'_>]) -> Result<(), ScenarioError> {
    for (n, item) in items.iter().enumerate() {
        let mut flows = scenario.flows.iter();
        if !flows.any(|flow| flow.media.cp().is_some_and(|cp| cp.points == n)) {
            return Err(item.fault(Fault::Conflict {
                why: format!(
                    "no flow uses the aggregation \"{}\"",
                    scenario.aggregations[n].name
                ),
                fix: "name it in the cp of a flow, or remove it".to_owned(),
            }));
        }
    }
    Ok(())
}

pub(super) const AGGREGATION: &[&str] = &[
    "name",
    "control",
    "sampling",
    "max_shares",
    "reordering",
    "circuit_breaker",
];

pub(super) const CP: &[&str] = &[
    "points",
    "application",
    "shares",
    "part",
    "packet",
    "answer",
    "both",
    "overhead",
];
