//! Links: capacity, jitter, loss, outages.

use core::num::NonZeroU32;
use core::time::Duration;

use tidegate_core::link::{
    Capacity, GilbertElliott, JitterConfig, LossConfig, LossFault, LowerEffortPolicy, Outage,
    Spread,
};
use tidegate_core::units::{Rate, Time};

use super::queue::queue;
use super::{Names, Sources, name, over_time};
use crate::scenario::error::{Fault, ScenarioError};
use crate::scenario::table::{Form, Table, Value};
use crate::scenario::{LinkPlan, RatePlan};

/// The nodes at both ends of a link, if it names them.
pub(super) fn ends(item: &Value<'_>) -> Result<Option<(String, String)>, ScenarioError> {
    let table = item.table(LINK, "a table")?;
    match (table.get("from"), table.get("to")) {
        (None, None) => Ok(None),
        (Some(from), Some(to)) => {
            let (tail, head) = (name(&from)?, name(&to)?);
            if tail == head {
                return Err(to.range(
                    &format!("the link leads from \"{tail}\" to itself"),
                    "name two different nodes",
                ));
            }
            Ok(Some((tail, head)))
        }
        (Some(half), None) | (None, Some(half)) => Err(half.fault(Fault::Conflict {
            why: "a link has two ends".to_owned(),
            fix: "write both from = \"…\" and to = \"…\", or neither".to_owned(),
        })),
    }
}

/// Name of the link in the other direction, if it has one.
pub(super) fn duplex(item: &Value<'_>, names: &mut Names) -> Result<Option<String>, ScenarioError> {
    let table = item.table(LINK, "a table")?;
    match table.get("duplex") {
        Some(value) if value.boolean()? => {
            let name = table.need("name", "name = \"uplink\"")?;
            names
                .take_as(&name, &|name| format!("{name}-back"))
                .map(Some)
        }
        _ => Ok(None),
    }
}

pub(super) fn link(
    item: &Value<'_>,
    end: Duration,
    names: &mut Names,
    sources: Sources<'_>,
) -> Result<LinkPlan, ScenarioError> {
    let mut table = item.table(LINK, "a table")?;
    let name = names.take(&table.need("name", "name = \"uplink\"")?)?;
    table.place(format!("link \"{name}\""));
    let rate = table
        .get("rate")
        .map(|value| over_time::capacity(&value, end, sources))
        .transpose()?;
    let (delay, delay_variation) = match table.get("delay") {
        Some(value) => over_time::delay(&value, end, sources)?,
        None => (Duration::ZERO, None),
    };
    let nominal = rate.as_ref().and_then(nominal);
    let queue = table
        .get("queue")
        .map(|value| queue(&value, nominal, delay))
        .transpose()?;
    if rate.is_some() && queue.is_none() {
        table.need("queue", "queue = { droptail = \"60kB\" }")?;
    }
    if let (None, Some(value)) = (&rate, table.get("queue")) {
        return Err(value.fault(Fault::Conflict {
            why: "a link without a rate never queues".to_owned(),
            fix: "add a rate, as rate = \"4Mb/s\", or remove the queue".to_owned(),
        }));
    }
    let loss = match table.get("loss") {
        Some(value) => loss(&value, end, sources)?,
        None => LossConfig::NONE,
    };
    let jitter = table
        .get("jitter")
        .map(|value| jitter(&value))
        .transpose()?;
    let outages = match table.get("outage") {
        Some(list) => outages(&list, end)?,
        None => Vec::new(),
    };
    let lower_effort = match table.get("lower_effort") {
        Some(value) => lower_effort(&value)?,
        None => LowerEffortPolicy::Honour,
    };
    Ok(LinkPlan {
        name,
        rate,
        delay,
        delay_variation,
        loss,
        jitter,
        queue,
        outages,
        lower_effort,
    })
}

fn lower_effort(value: &Value<'_>) -> Result<LowerEffortPolicy, ScenarioError> {
    value.choice(
        &["honour", "ignore", "remark", "drop"],
        &[
            LowerEffortPolicy::Honour,
            LowerEffortPolicy::Ignore,
            LowerEffortPolicy::Remark,
            LowerEffortPolicy::Drop,
        ],
    )
}

/// Rate for queues that configure themselves.
fn nominal(rate: &RatePlan) -> Option<Rate> {
    match rate {
        RatePlan::Fixed(rate) => Some(*rate),
        RatePlan::Steps(steps) => {
            let mut rates = steps.iter().map(|(_, rate)| *rate);
            rates.find(|rate| *rate > Rate::ZERO)
        }
        RatePlan::Trace(trace) => Capacity::Trace(trace.trace.clone()).nominal(),
    }
}

fn loss(
    value: &Value<'_>,
    end: Duration,
    sources: Sources<'_>,
) -> Result<LossConfig, ScenarioError> {
    match value.kind() {
        Form::List => return over_time::losses(value, end),
        Form::Text | Form::Other => return value.share().map(LossConfig::Bernoulli),
        Form::Table => {}
    }
    let table = value.table(LOSS, "a share as \"1%\", or { mean = \"1%\", burst = 4 }")?;
    if let Some(trace) = table.get("trace") {
        if let Some(other) = LOSS.iter().filter_map(|key| table.get(key)).nth(1) {
            return Err(other.fault(Fault::Conflict {
                why: "a recording defines the loss completely".to_owned(),
                fix: "remove it, or trace".to_owned(),
            }));
        }
        return over_time::recorded_loss(&trace, end, sources);
    }
    if let Some(every) = table.get("every") {
        if let Some(other) = LOSS[2..].iter().find_map(|key| table.get(key)) {
            return Err(other.fault(Fault::Conflict {
                why: "loss is either regular or random".to_owned(),
                fix: "remove it, or every".to_owned(),
            }));
        }
        let packets = every.whole(1..=u64::from(u32::MAX))?;
        let packets = NonZeroU32::new(packets as u32).unwrap_or(NonZeroU32::MIN);
        return Ok(LossConfig::Every(packets));
    }
    if table.get("mean").is_some() || table.get("burst").is_some() {
        let odd = ["to_bad", "to_good", "loss_good", "loss_bad"];
        if let Some(other) = odd.iter().find_map(|key| table.get(key)) {
            return Err(other.fault(Fault::Conflict {
                why: "mean and burst define the model completely".to_owned(),
                fix: "write either mean and burst, or to_bad, to_good, loss_bad and loss_good"
                    .to_owned(),
            }));
        }
        return bursts(&table);
    }
    let share = |key, example| table.need(key, example)?.share();
    Ok(LossConfig::GilbertElliott(GilbertElliott {
        to_bad: share("to_bad", "to_bad = \"0.5%\"")?,
        to_good: share("to_good", "to_good = \"25%\"")?,
        loss_bad: match table.get("loss_bad") {
            Some(value) => value.share()?,
            None => 1.0,
        },
        loss_good: match table.get("loss_good") {
            Some(value) => value.share()?,
            None => 0.0,
        },
    }))
}

fn bursts(table: &Table<'_>) -> Result<LossConfig, ScenarioError> {
    let mean = table.need("mean", "mean = \"1%\"")?;
    let burst = table.need("burst", "burst = 4")?;
    let (share, length) = (mean.share()?, burst.number(1.0..=1e9, "4")?);
    let model = GilbertElliott::bursts(share, length).map_err(|fault| match fault {
        LossFault::TooOften { .. } => burst.range(
            &format!("bursts of {length} packets cannot lose a share of {share}"),
            &format!(
                "write {} or more",
                (1_000.0 * share / (1.0 - share)).ceil() / 1_000.0
            ),
        ),
        LossFault::Burst(_) | LossFault::Probability(_) => mean.range(
            "the share of losses is 1",
            "write a share below 1, as \"1%\"",
        ),
    })?;
    Ok(LossConfig::GilbertElliott(model))
}

fn jitter(value: &Value<'_>) -> Result<JitterConfig, ScenarioError> {
    let table = value.table(
        JITTER,
        "{ max = \"5ms\" } or { mean = \"5ms\", deviation = \"2ms\", max = \"20ms\" }",
    )?;
    let max = table
        .need("max", "max = \"5ms\"")?
        .positive_duration("the jitter is zero")?;
    let reorder = match table.get("reorder") {
        Some(reorder) => reorder.boolean()?,
        None => false,
    };
    if table.get("mean").is_none() && table.get("deviation").is_none() {
        let spread = Spread::Uniform { max };
        return Ok(JitterConfig { spread, reorder });
    }
    let value = table.need("mean", "mean = \"5ms\"")?;
    let mean = value.duration()?;
    if mean > max {
        return Err(value.range(
            &format!("the mean, {mean:?}, is above the longest delay, {max:?}"),
            "lower it or raise max",
        ));
    }
    let deviation = table
        .need("deviation", "deviation = \"2ms\"")?
        .positive_duration("without a deviation the jitter is a constant delay")?;
    let spread = Spread::Normal {
        mean,
        deviation,
        max,
    };
    Ok(JitterConfig { spread, reorder })
}

fn outages(list: &Value<'_>, end: Duration) -> Result<Vec<Outage>, ScenarioError> {
    const WANTED: &str = "a list, as [{ at = \"50s\", lasts = \"2s\" }]";
    let mut outages: Vec<Outage> = Vec::new();
    for item in list.list(WANTED)? {
        let table = item.table(OUTAGE, "{ at = \"50s\", lasts = \"2s\" }")?;
        let at = table.need("at", "at = \"50s\"")?;
        let lasts = table.need("lasts", "lasts = \"2s\"")?;
        let start = at.duration()?;
        let over = start.saturating_add(lasts.positive_duration("the outage has zero length")?);
        if over > end {
            return Err(lasts.range(
                &format!("the outage ends at {over:?}, but the run ends at {end:?}"),
                "move it forward, shorten it or lengthen the duration",
            ));
        }
        let outage = Outage {
            from: Time::ZERO + start,
            to: Time::ZERO + over,
        };
        if outages.last().is_some_and(|last| last.to > outage.from) {
            return Err(at.range(
                &format!("the outage at {start:?} begins before the previous one ends"),
                "sort the outages and remove overlaps",
            ));
        }
        outages.push(outage);
    }
    Ok(outages)
}

pub(super) const LINK: &[&str] = &[
    "name",
    "from",
    "to",
    "duplex",
    "rate",
    "delay",
    "jitter",
    "loss",
    "queue",
    "outage",
    "lower_effort",
];

pub(super) const JITTER: &[&str] = &["max", "mean", "deviation", "reorder"];

pub(super) const LOSS: &[&str] = &[
    "trace",
    "every",
    "mean",
    "burst",
    "to_bad",
    "to_good",
    "loss_bad",
    "loss_good",
];

pub(super) const OUTAGE: &[&str] = &["at", "lasts"];
