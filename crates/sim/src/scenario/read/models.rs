//! Flows of models: paced data, TCP, streams without control.

use core::time::Duration;

use tidegate_core::units::{Bytes, Time};

use super::packet_size;
use crate::paced::Workload;
use crate::scenario::error::ScenarioError;
use crate::scenario::table::{Form, Table, Value};
use crate::scenario::{BulkPlan, TcpPlan};
use crate::tcp::classic::{self, Flavour};
use crate::tcp::{InitialWindow, SinkConfig, SourceKind};
use crate::traffic::udp::{self, Spacing};
use crate::traffic::{Distribution, Schedule, web};

pub(super) fn bulk(value: &Value<'_>, end: Duration) -> Result<BulkPlan, ScenarioError> {
    let table = value.table(BULK, "{ packet = \"1200B\" }")?;
    let packet = packet_size(&table.need("packet", "packet = \"1200B\"")?)?;
    Ok(BulkPlan {
        packet,
        workload: match (table.get("limit"), table.get("demand")) {
            (None, None) => Workload::Greedy,
            (Some(limit), None) => Workload::Packets(limit.size()?.get().div_ceil(packet.get())),
            (None, Some(demand)) => {
                let schedule = schedule(&demand, end)?;
                let mut steps = vec![(Time::ZERO, schedule.first)];
                steps.extend(schedule.steps);
                Workload::Application(steps)
            }
            (Some(_), Some(demand)) => {
                return Err(demand.range(
                    "what is limited in size is there from the start",
                    "write either limit or demand",
                ));
            }
        },
        overhead: overhead(&table)?,
    })
}

pub(super) fn tcp(value: &Value<'_>) -> Result<TcpPlan, ScenarioError> {
    let table = value.table(TCP, "{ kind = \"sack\" }")?;
    let flavours = [Flavour::NewReno, Flavour::Reno, Flavour::Sack];
    let kind = table.need("kind", "kind = \"sack\"")?;
    let mut sender = classic::Config {
        flavour: kind.choice(&["newreno", "reno", "sack"], &flavours)?,
        overhead: overhead(&table)?,
        ..classic::Config::default()
    };
    let whole = |key, range| table.get(key).map(|value| value.whole(range)).transpose();
    if let Some(packet) = table.get("packet") {
        sender.packet_size = packet_size(&packet)?.get() as u32;
    }
    if let Some(window) = table.get("window") {
        sender.window = window.packets()?.max(1);
    }
    if let Some(window) = whole("initial_window", 1..=1_000)? {
        sender.initial_window = InitialWindow::Segments(window as u32);
    }
    if let Some(shortest) = table.get("min_rto") {
        sender.rto.min = shortest.positive_duration("a timeout of zero fires for ever")?;
    }
    if let Some(tick) = table.get("tick") {
        sender.rto.tick = tick.positive_duration("a clock has to tick")?;
    }
    if let Some(on) = table.get("limited_transmit") {
        sender.limited_transmit = on.boolean()?;
    }
    let sack = sender.flavour == Flavour::Sack;
    Ok(TcpPlan {
        sender,
        sink: SinkConfig {
            ack_size: match table.get("ack") {
                Some(size) => size.size()?.get().clamp(1, 1_500) as u32,
                None => SinkConfig::default().ack_size,
            },
            sack_blocks: if sack { 3 } else { 0 },
            delay: match table.get("delayed_ack") {
                Some(delay) => Some(delay.positive_duration("leave it out to delay nothing")?),
                None => None,
            },
            ..SinkConfig::default()
        },
        amount: match table.get("limit") {
            Some(limit) => SourceKind::Bytes(limit.size()?.get()),
            None => SourceKind::Endless,
        },
    })
}

pub(super) fn udp(value: &Value<'_>, end: Duration) -> Result<udp::SourceConfig, ScenarioError> {
    let table = value.table(UDP, "{ rate = \"1Mb/s\", packet = \"1000B\" }")?;
    let rate = table.need("rate", "rate = \"1Mb/s\"")?;
    let config = udp::SourceConfig {
        rate: schedule(&rate, end)?,
        packet: match table.get("packet") {
            Some(packet) => packet_size(&packet)?,
            None => Bytes(1_000),
        },
        spacing: spacing(&table)?,
        ..udp::SourceConfig::default()
    };
    config
        .check()
        .map_err(|fault| rate.range(&fault.to_string(), "change the rate or the packet"))?;
    Ok(config)
}

/// Whoever reads is modelled simply: pages of one object, of a size that is equally likely within
/// a range, and times to think without memory.
pub(super) fn web(value: &Value<'_>) -> Result<web::Config, ScenarioError> {
    let table = value.table(WEB, "{ page = [\"100kB\", \"1MB\"], think = \"10s\" }")?;
    let page = table.need("page", "page = [\"100kB\", \"1MB\"]")?;
    let think = table.need("think", "think = \"10s\"")?;
    let mean = think.positive_duration("who never thinks has a flow of tcp")?;
    let standard = web::Config::default();
    let config = web::Config {
        think: Distribution::Exponential {
            mean: mean.as_secs_f64(),
        },
        objects: Distribution::Constant(1.0),
        size: page_size(&page)?,
        ..standard
    };
    config
        .check()
        .map_err(|fault| value.range(&fault.to_string(), "write sizes as \"100kB\", above zero"))?;
    Ok(config)
}

fn page_size(page: &Value<'_>) -> Result<Distribution, ScenarioError> {
    let bytes = |value: &Value<'_>| value.size().map(|size| size.get() as f64);
    if page.kind() != Form::List {
        return bytes(page).map(Distribution::Constant);
    }
    let ends = page.list("two sizes, as [\"100kB\", \"1MB\"]")?;
    let [least, most] = ends.as_slice() else {
        return Err(page.range(
            &format!("a range of {} parts", ends.len()),
            "write the smallest and the largest, as [\"100kB\", \"1MB\"]",
        ));
    };
    Ok(Distribution::Uniform {
        least: bytes(least)?,
        most: bytes(most)?,
    })
}

fn spacing(table: &Table<'_>) -> Result<Spacing, ScenarioError> {
    let jitter = match table.get("jitter") {
        Some(jitter) => jitter.share()?,
        None => 0.0,
    };
    let Some(value) = table.get("spacing") else {
        return Ok(Spacing::Constant { jitter });
    };
    if value.kind() == Form::Text {
        return value.choice(
            &["constant", "poisson"],
            &[Spacing::Constant { jitter }, Spacing::Poisson],
        );
    }
    let table = value.table(ON_OFF, "{ on = \"500ms\", off = \"1s\" }")?;
    let long = |key, example| {
        let value = table.need(key, example)?;
        value.positive_duration("a time of zero never ends")
    };
    Ok(Spacing::OnOff {
        on: long("on", "on = \"500ms\"")?,
        off: long("off", "off = \"500ms\"")?,
        shape: match table.get("shape") {
            Some(shape) => Some(shape.number(1.0, 100.0)?),
            None => None,
        },
    })
}

/// A rate, or steps of it.
fn schedule(value: &Value<'_>, end: Duration) -> Result<Schedule, ScenarioError> {
    if value.kind() != Form::List {
        return Ok(value
            .positive_rate("a flow of rate zero sends nothing")?
            .into());
    }
    let mut steps = super::link::steps(value, end)?.into_iter();
    let first = steps
        .next()
        .map_or(tidegate_core::units::Rate::ZERO, |(_, rate)| rate);
    Ok(Schedule {
        first,
        steps: steps.map(|(at, rate)| (Time::ZERO + at, rate)).collect(),
    })
}

fn overhead(table: &Table<'_>) -> Result<Duration, ScenarioError> {
    match table.get("overhead") {
        Some(value) => value.duration(),
        None => Ok(Duration::ZERO),
    }
}

pub(super) const BULK: &[&str] = &["packet", "limit", "demand", "overhead"];

pub(super) const TCP: &[&str] = &[
    "kind",
    "packet",
    "ack",
    "window",
    "initial_window",
    "min_rto",
    "tick",
    "limited_transmit",
    "delayed_ack",
    "limit",
    "overhead",
];

pub(super) const UDP: &[&str] = &["rate", "packet", "spacing", "jitter"];

pub(super) const WEB: &[&str] = &["page", "think"];

pub(super) const ON_OFF: &[&str] = &["on", "off", "shape"];
