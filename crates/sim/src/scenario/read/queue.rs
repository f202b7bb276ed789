//! Queues of links.

use core::ops::RangeInclusive;
use core::time::Duration;

use tidegate_core::link::{
    CoDelConfig, DelayLaw, DropTailConfig, DualPi2Config, DualScheduler, FqCoDelConfig, Limit,
    PriorityConfig, QueueConfig, RedAdaptation, RedConfig, RedUnit,
};
use tidegate_core::units::{Bytes, Rate};

use super::packet_size;
use crate::scenario::error::{Fault, ScenarioError};
use crate::scenario::table::{Table, Value};
use crate::scenario::topology_text;

/// The queue of a link with this rate and delay, from which RED may compute its parameters.
pub(super) fn queue(
    value: &Value<'_>,
    rate: Option<Rate>,
    delay: Duration,
) -> Result<QueueConfig, ScenarioError> {
    let table = value.table(QUEUE, FORMS)?;
    let mut found = KINDS
        .iter()
        .filter_map(|kind| Some((*kind, table.get(kind)?)));
    let (Some((kind, config)), other) = (found.next(), found.next()) else {
        return Err(table.fault(Fault::Conflict {
            why: "the queue has no type".to_owned(),
            fix: format!("write {FORMS}"),
        }));
    };
    if let Some((other, _)) = other {
        return Err(table.fault(Fault::Conflict {
            why: format!("the queue has two types, {kind} and {other}"),
            fix: "write one of them".to_owned(),
        }));
    }
    let mark_above = table.get("mark_above");
    if let Some(mark) = mark_above.as_ref().filter(|_| kind != "droptail") {
        let fix = match kind {
            "red" | "codel" | "fq_codel" => format!("write ecn = true within {kind} instead"),
            _ => "remove it".to_owned(),
        };
        return Err(mark.fault(Fault::Conflict {
            why: "only a droptail queue has a marking threshold".to_owned(),
            fix,
        }));
    }
    match kind {
        "droptail" => Ok(QueueConfig::DropTail(DropTailConfig {
            limit: config.limit()?,
            mark_above: mark_above.map(|mark| mark.size()).transpose()?,
        })),
        "red" => red(&config, rate, delay).map(QueueConfig::Red),
        "codel" => codel(&config).map(QueueConfig::CoDel),
        "fq_codel" => fq_codel(&config).map(QueueConfig::FqCoDel),
        "dualpi2" => dualpi2(&config).map(QueueConfig::DualPi2),
        _ => Ok(QueueConfig::Priority(PriorityConfig {
            limit: config.limit()?,
        })),
    }
}

/// The value that configures the limit of a queue.
pub(super) fn limit_of<'a>(value: &Value<'a>) -> Result<Value<'a>, ScenarioError> {
    let table = value.table(QUEUE, FORMS)?;
    for (kind, keys) in [("codel", CODEL), ("dualpi2", DUALPI2)] {
        if let Some(config) = table.get(kind) {
            return Ok(config.table(keys, FORMS)?.get("limit").unwrap_or(config));
        }
    }
    let limit = table.get("droptail").or(table.get("priority"));
    Ok(limit.unwrap_or_else(|| value.clone()))
}

fn red(value: &Value<'_>, rate: Option<Rate>, delay: Duration) -> Result<RedConfig, ScenarioError> {
    let table = value.table(
        RED,
        "{ min = \"25 packets\", max = \"125 packets\", limit = \"300 packets\" }",
    )?;
    let mean_packet = match table.get("mean_packet") {
        Some(value) => packet_size(&value)?,
        None => RedConfig::default().mean_packet,
    };
    let standard = match table.get("auto") {
        Some(target) => automatic(&table, &target, rate, delay, mean_packet)?,
        None => thresholds(&table)?,
    };
    let share = |key, standard| table.get(key).map_or(Ok(standard), |value| value.share());
    let weight = share("weight", standard.weight)?;
    if let Some(value) = table.get("weight").filter(|_| weight <= 0.0) {
        return Err(value.range(
            "with a weight of zero the average never changes",
            "write 0.002",
        ));
    }
    let limit = table.need("limit", "limit = \"300 packets\"")?;
    let held = limit.packets()?;
    if f64::from(held) < standard.min_threshold {
        let why = format!(
            "a queue of {} never reaches min ({})",
            topology_text::limit(Limit::Packets(held)),
            standard.min_threshold
        );
        return Err(limit.range(&why, "set limit above max"));
    }
    let in_bytes = flag(&table, "bytes", standard.unit == RedUnit::Bytes)?;
    Ok(RedConfig {
        limit: held,
        weight,
        max_probability: share("max_p", standard.max_probability)?,
        gentle: flag(&table, "gentle", standard.gentle)?,
        wait: flag(&table, "wait", standard.wait)?,
        ecn: flag(&table, "ecn", standard.ecn)?,
        unit: if in_bytes {
            RedUnit::Bytes
        } else {
            RedUnit::Packets
        },
        adaptation: flag(&table, "adaptive", false)?.then(RedAdaptation::default),
        mean_packet,
        ..standard
    })
}

fn thresholds(table: &Table<'_>) -> Result<RedConfig, ScenarioError> {
    let low = table.need("min", "min = \"25 packets\"")?.mean_packets()?;
    let value = table.need("max", "max = \"125 packets\"")?;
    let high = value.mean_packets()?;
    if low >= high {
        return Err(value.range(
            &format!("max ({high}) is not above min ({low})"),
            "set max to at least twice min",
        ));
    }
    Ok(RedConfig {
        min_threshold: low,
        max_threshold: high,
        ..RedConfig::default()
    })
}

fn automatic(
    table: &Table<'_>,
    target: &Value<'_>,
    rate: Option<Rate>,
    delay: Duration,
    mean_packet: Bytes,
) -> Result<RedConfig, ScenarioError> {
    for key in ["min", "max", "weight"] {
        if let Some(given) = table.get(key) {
            return Err(given.fault(Fault::Conflict {
                why: "auto computes min, max and weight".to_owned(),
                fix: format!("remove {key} or auto"),
            }));
        }
    }
    let target = target.positive_duration("the target delay is zero")?;
    let rate = rate.unwrap_or(Rate::ZERO);
    Ok(RedConfig::automatic(rate, delay, target, mean_packet))
}

fn codel(value: &Value<'_>) -> Result<CoDelConfig, ScenarioError> {
    let table = value.table(CODEL, "{ } or { target = \"5ms\", interval = \"100ms\" }")?;
    let standard = CoDelConfig::default();
    Ok(CoDelConfig {
        limit: limit(&table, standard.limit)?,
        law: law(&table, standard.law)?,
    })
}

fn fq_codel(value: &Value<'_>) -> Result<FqCoDelConfig, ScenarioError> {
    let table = value.table(
        FQ_CODEL,
        "{ } or { target = \"5ms\", interval = \"100ms\" }",
    )?;
    let standard = FqCoDelConfig::default();
    let quantum = match table.get("quantum") {
        Some(value) => size_within(&value, Bytes(256)..=Bytes(1_000_000), "\"1514B\"")?,
        None => standard.quantum,
    };
    Ok(FqCoDelConfig {
        limit: match table.get("limit") {
            Some(value) => value.packets()?,
            None => standard.limit,
        },
        memory: match table.get("memory") {
            Some(value) => size_within(&value, Bytes(1_500)..=Bytes(u64::MAX), "\"32MB\"")?,
            None => standard.memory,
        },
        queues: match table.get("queues") {
            Some(value) => value.whole(1..=65_536)? as u32,
            None => standard.queues,
        },
        quantum,
        law: law(&table, standard.law)?,
    })
}

/// The keys that CoDel and FQ-CoDel share.
fn law(table: &Table<'_>, standard: DelayLaw) -> Result<DelayLaw, ScenarioError> {
    Ok(DelayLaw {
        target: span(table, "target", standard.target)?,
        interval: match table.get("interval") {
            Some(value) => value.positive_duration("the interval is zero")?,
            None => standard.interval,
        },
        max_packet: match table.get("max_packet") {
            Some(value) => value.size()?,
            None => standard.max_packet,
        },
        ecn: flag(table, "ecn", standard.ecn)?,
    })
}

fn dualpi2(value: &Value<'_>) -> Result<DualPi2Config, ScenarioError> {
    let table = value.table(DUALPI2, "{ } or { target = \"15ms\", step = \"1ms\" }")?;
    let standard = DualPi2Config::default();
    let gain = |key, standard, example| match table.get(key) {
        Some(value) => value.number(0.0..=1e6, example),
        None => Ok(standard),
    };
    let update = span(&table, "update", standard.update)?;
    if let Some(value) = table.get("update")
        && update < Duration::from_micros(100)
    {
        return Err(value.range(
            &format!("an update interval of {update:?} is below 100us"),
            "write a longer interval, as \"16ms\"",
        ));
    }
    let scheduler = match (table.get("classic_share"), table.get("shift")) {
        (None, None) => standard.scheduler,
        (Some(share), None) => DualScheduler::Weighted {
            classic: share.share()?,
        },
        (None, Some(shift)) => DualScheduler::TimeShifted(shift.duration()?),
        (Some(_), Some(shift)) => {
            return Err(shift.fault(Fault::Conflict {
                why: "a weighted scheduler has no time shift".to_owned(),
                fix: "write either classic_share = \"10%\" or shift = \"30ms\"".to_owned(),
            }));
        }
    };
    Ok(DualPi2Config {
        limit: limit(&table, standard.limit)?,
        target: span(&table, "target", standard.target)?,
        update,
        integral: gain("integral", standard.integral, "0.16")?,
        proportional: gain("proportional", standard.proportional, "3.2")?,
        coupling: gain("coupling", standard.coupling, "2")?,
        step: span(&table, "step", standard.step)?,
        overload: match table.get("overload") {
            Some(value) => value.share()?,
            None => standard.overload,
        },
        scheduler,
        max_packet: match table.get("max_packet") {
            Some(value) => value.size()?,
            None => standard.max_packet,
        },
    })
}

fn limit(table: &Table<'_>, standard: Limit) -> Result<Limit, ScenarioError> {
    table
        .get("limit")
        .map_or(Ok(standard), |value| value.limit())
}

fn span(
    table: &Table<'_>,
    key: &'static str,
    standard: Duration,
) -> Result<Duration, ScenarioError> {
    table
        .get(key)
        .map_or(Ok(standard), |value| value.duration())
}

fn flag(table: &Table<'_>, key: &'static str, standard: bool) -> Result<bool, ScenarioError> {
    table.get(key).map_or(Ok(standard), |value| value.boolean())
}

fn size_within(
    value: &Value<'_>,
    range: RangeInclusive<Bytes>,
    example: &str,
) -> Result<Bytes, ScenarioError> {
    let size = value.size()?;
    if range.contains(&size) {
        return Ok(size);
    }
    let least = range.start().0;
    let why = if size < *range.start() {
        format!("{} B is less than {least} B", size.0)
    } else {
        format!("{} B is more than {} B", size.0, range.end().0)
    };
    Err(value.range(&why, &format!("write a size as {example}")))
}

const FORMS: &str = "{ droptail = \"60kB\" }, { red = { … } }, { codel = { } }, { fq_codel = { } }, { dualpi2 = { } } or { priority = \"60kB\" }";

const KINDS: &[&str] = &[
    "droptail", "red", "codel", "fq_codel", "dualpi2", "priority",
];

pub(super) const QUEUE: &[&str] = &[
    "droptail",
    "mark_above",
    "red",
    "codel",
    "fq_codel",
    "dualpi2",
    "priority",
];

pub(super) const RED: &[&str] = &[
    "min",
    "max",
    "limit",
    "auto",
    "max_p",
    "weight",
    "gentle",
    "wait",
    "ecn",
    "bytes",
    "adaptive",
    "mean_packet",
];

pub(super) const CODEL: &[&str] = &["limit", "target", "interval", "max_packet", "ecn"];

pub(super) const FQ_CODEL: &[&str] = &[
    "limit",
    "memory",
    "queues",
    "quantum",
    "target",
    "interval",
    "max_packet",
    "ecn",
];

pub(super) const DUALPI2: &[&str] = &[
    "limit",
    "target",
    "update",
    "integral",
    "proportional",
    "coupling",
    "step",
    "overload",
    "classic_share",
    "shift",
    "max_packet",
];
