//! Links: capacity, queue, outages.

use core::time::Duration;

use tidegate_core::link::{
    DropTailConfig, JitterConfig, LossConfig, Outage, QueueConfig, RedConfig, Spread,
};
use tidegate_core::units::{Rate, Time};

use super::{Names, Open, name, packet_size};
use crate::scenario::error::{Fault, ScenarioError};
use crate::scenario::table::{Form, Value};
use crate::scenario::{CapacityTrace, LinkPlan, RatePlan};

/// Where a link leads from and to, if it says so.
pub(super) fn ends(item: &Value<'_>) -> Result<Option<(String, String)>, ScenarioError> {
    let table = item.table(LINK, "a table")?;
    match (table.get("from"), table.get("to")) {
        (None, None) => Ok(None),
        (Some(from), Some(to)) => {
            let (tail, head) = (name(&from)?, name(&to)?);
            if tail == head {
                return Err(to.range(
                    &format!("the link leads from \"{tail}\" to itself"),
                    "let it join two nodes",
                ));
            }
            Ok(Some((tail, head)))
        }
        (Some(half), None) | (None, Some(half)) => Err(half.fault(Fault::Clash {
            why: "a link has two ends".to_owned(),
            mend: "write both from = \"…\" and to = \"…\", or neither".to_owned(),
        })),
    }
}

/// The name of the same link in the other direction, if it has one.
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
    open: Open<'_>,
) -> Result<LinkPlan, ScenarioError> {
    let mut table = item.table(LINK, "a table")?;
    let name = names.take(&table.need("name", "name = \"uplink\"")?)?;
    table.place(format!("link \"{name}\""));
    let rate = table
        .get("rate")
        .map(|value| capacity(&value, end, open))
        .transpose()?;
    let queue = table.get("queue").map(|value| queue(&value)).transpose()?;
    if rate.is_some() && queue.is_none() {
        table.need("queue", "queue = { droptail = \"60kB\" }")?;
    }
    if let (None, Some(value)) = (&rate, table.get("queue")) {
        return Err(value.fault(Fault::Clash {
            why: "a link without a rate never queues".to_owned(),
            mend: "add a rate, as rate = \"4Mb/s\", or remove the queue".to_owned(),
        }));
    }
    let loss = match table.get("loss") {
        Some(loss) => LossConfig::Bernoulli(loss.share()?),
        None => LossConfig::NONE,
    };
    let delay = match table.get("delay") {
        Some(delay) => delay.duration()?,
        None => Duration::ZERO,
    };
    let jitter = table
        .get("jitter")
        .map(|value| jitter(&value))
        .transpose()?;
    let outages = match table.get("outage") {
        Some(list) => outages(&list, end)?,
        None => Vec::new(),
    };
    Ok(LinkPlan {
        name,
        rate,
        delay,
        loss,
        jitter,
        queue,
        outages,
    })
}

fn capacity(value: &Value<'_>, end: Duration, open: Open<'_>) -> Result<RatePlan, ScenarioError> {
    const WANTED: &str = "a rate as \"4Mb/s\", steps as [[\"0s\", \"4Mb/s\"], [\"20s\", \"1Mb/s\"]], or { trace = \"file\" }";
    match value.kind() {
        Form::Text => Ok(RatePlan::Fixed(value.positive_rate(
            "a link of rate zero carries nothing; for a while without capacity use outage or steps",
        )?)),
        Form::List => steps(value, end).map(RatePlan::Steps),
        Form::Table => {
            let table = value.table(TRACE, WANTED)?;
            let trace = table.need("trace", "trace = \"file.mahi\"")?;
            let file = trace.text("a file name in quotes")?;
            let text = open(file).map_err(|why| {
                trace.fault(Fault::Unreadable {
                    file: file.to_owned(),
                    why,
                })
            })?;
            CapacityTrace::parse(file, &text)
                .map(RatePlan::Trace)
                .map_err(|cause| {
                    trace.fault(Fault::Trace {
                        file: file.to_owned(),
                        cause,
                    })
                })
        }
        Form::Other => Err(value.wrong(WANTED)),
    }
}

pub(super) fn steps(
    value: &Value<'_>,
    end: Duration,
) -> Result<Vec<(Duration, Rate)>, ScenarioError> {
    const WANTED: &str = "a list of steps, as [[\"0s\", \"4Mb/s\"], [\"20s\", \"1Mb/s\"]]";
    let mut steps: Vec<(Duration, Rate)> = Vec::new();
    for item in value.list(WANTED)? {
        let pair = item.list("a step, as [\"20s\", \"1Mb/s\"]")?;
        let [at, rate] = pair.as_slice() else {
            return Err(item.range(
                &format!("a step of {} parts", pair.len()),
                "write the moment and the rate, as [\"20s\", \"1Mb/s\"]",
            ));
        };
        let moment = at.duration()?;
        match steps.last() {
            None if moment > Duration::ZERO => {
                return Err(at.range(
                    &format!("the first step is at {moment:?}, so there is no rate before it"),
                    "let the first step be at \"0s\"",
                ));
            }
            Some((last, _)) if moment <= *last => {
                return Err(at.range(
                    &format!("the step at {moment:?} does not follow the one at {last:?}"),
                    "sort the steps by their moments, each once",
                ));
            }
            _ => {}
        }
        if moment >= end {
            return Err(at.range(
                &format!("the step at {moment:?} is not within the run of {end:?}"),
                "move it forward or lengthen the duration",
            ));
        }
        steps.push((moment, rate.rate()?));
    }
    if steps.iter().all(|(_, rate)| *rate == Rate::ZERO) {
        return Err(value.range(
            "the link carries nothing at all",
            "write at least one step with a rate above zero",
        ));
    }
    Ok(steps)
}

pub(super) fn queue(value: &Value<'_>) -> Result<QueueConfig, ScenarioError> {
    let table = value.table(
        QUEUE,
        "{ droptail = \"60kB\" }, { droptail = \"50 packets\" } or { red = { … } }",
    )?;
    match (
        table.get("droptail"),
        table.get("red"),
        table.get("mark_above"),
    ) {
        (Some(limit), None, mark) => Ok(QueueConfig::DropTail(DropTailConfig {
            limit: limit.limit()?,
            mark_above: mark.map(|mark| mark.size()).transpose()?,
        })),
        (None, Some(config), None) => red(&config).map(QueueConfig::Red),
        (None, Some(_), Some(mark)) => Err(mark.fault(Fault::Clash {
            why: "only a droptail queue marks above a size".to_owned(),
            mend: "write ecn = true within red instead".to_owned(),
        })),
        (drop_tail, ..) => Err(table.fault(Fault::Clash {
            why: match drop_tail {
                Some(_) => "it is droptail and red".to_owned(),
                None => "it is neither droptail nor red".to_owned(),
            },
            mend: "write either droptail = \"60kB\" or red = { … }".to_owned(),
        })),
    }
}

fn red(value: &Value<'_>) -> Result<RedConfig, ScenarioError> {
    let table = value.table(
        RED,
        "{ min = \"25 packets\", max = \"125 packets\", limit = \"300 packets\" }",
    )?;
    let low = table.need("min", "min = \"25 packets\"")?.packets()?;
    let value = table.need("max", "max = \"125 packets\"")?;
    let high = value.packets()?;
    if low >= high {
        return Err(value.range(
            &format!("max ({high}) is not above min ({low})"),
            "let max be at least twice min",
        ));
    }
    let standard = RedConfig::default();
    let share = |key, standard| table.get(key).map_or(Ok(standard), |value| value.share());
    let flag = |key, standard| table.get(key).map_or(Ok(standard), |value| value.boolean());
    let weight = share("weight", standard.weight)?;
    if let Some(value) = table.get("weight").filter(|_| weight <= 0.0) {
        return Err(value.range("with a weight of zero the mean never moves", "write 0.002"));
    }
    Ok(RedConfig {
        limit: table.need("limit", "limit = \"300 packets\"")?.packets()?,
        min_threshold: f64::from(low),
        max_threshold: f64::from(high),
        weight,
        max_probability: share("max_p", standard.max_probability)?,
        gentle: flag("gentle", standard.gentle)?,
        wait: flag("wait", standard.wait)?,
        ecn: flag("ecn", standard.ecn)?,
        mean_packet: match table.get("mean_packet") {
            Some(value) => packet_size(&value)?,
            None => standard.mean_packet,
        },
        ..standard
    })
}

fn jitter(value: &Value<'_>) -> Result<JitterConfig, ScenarioError> {
    let table = value.table(
        JITTER,
        "{ max = \"5ms\" } or { mean = \"5ms\", deviation = \"2ms\", max = \"20ms\" }",
    )?;
    let max = table
        .need("max", "max = \"5ms\"")?
        .positive_duration("jitter of zero does nothing")?;
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
        .positive_duration("without a deviation this is no jitter but delay")?;
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
        let over =
            start.saturating_add(lasts.positive_duration("an outage of zero length does nothing")?);
        if over > end {
            return Err(lasts.range(
                &format!("the outage lasts until {over:?}, but the run ends at {end:?}"),
                "move it forward, shorten it or lengthen the duration",
            ));
        }
        let outage = Outage {
            from: Time::ZERO + start,
            to: Time::ZERO + over,
        };
        if outages.last().is_some_and(|last| last.to > outage.from) {
            return Err(at.range(
                &format!("the outage at {start:?} begins before the one above is over"),
                "sort the outages and let them not overlap",
            ));
        }
        outages.push(outage);
    }
    Ok(outages)
}

pub(super) const LINK: &[&str] = &[
    "name", "from", "to", "duplex", "rate", "delay", "jitter", "loss", "queue", "outage",
];

pub(super) const JITTER: &[&str] = &["max", "mean", "deviation", "reorder"];

pub(super) const TRACE: &[&str] = &["trace"];

pub(super) const QUEUE: &[&str] = &["droptail", "mark_above", "red"];

pub(super) const RED: &[&str] = &[
    "min",
    "max",
    "limit",
    "max_p",
    "weight",
    "gentle",
    "wait",
    "ecn",
    "mean_packet",
];

pub(super) const OUTAGE: &[&str] = &["at", "lasts"];
