//! Flow models: paced data, TCP, UDP, web.

use core::time::Duration;
use std::sync::Arc;

use tidegate_core::units::{Bytes, Time};

use super::{packet_size, tcp as options};
use crate::model_flow::Workload;
use crate::scenario::error::ScenarioError;
use crate::scenario::table::{Form, Table, Value};
use crate::scenario::{BulkPlan, TcpPlan, TcpSender};
use crate::tcp::classic::{self, Flavour};
use crate::tcp::modern::{self, CongestionConfig};
use crate::tcp::{InitialWindow, SinkConfig, SourceKind};
use crate::traffic::udp::{self, Spacing};
use crate::traffic::web::{self, Begin, Connections};
use crate::traffic::{Distribution, Schedule};

pub(super) fn bulk(value: &Value<'_>, end: Duration) -> Result<BulkPlan, ScenarioError> {
    let table = value.table(BULK, "{ packet = \"1200B\" }")?;
    let packet = packet_size(&table.need("packet", "packet = \"1200B\"")?)?;
    Ok(BulkPlan {
        packet,
        workload: match (table.get("limit"), table.get("demand")) {
            (None, None) => Workload::Greedy,
            (Some(limit), None) => Workload::Packets(amount(&limit)?.get().div_ceil(packet.get())),
            (None, Some(demand)) => {
                let schedule = schedule(&demand, end)?;
                let mut steps = vec![(Time::ZERO, schedule.first)];
                steps.extend(schedule.steps);
                Workload::Application(steps)
            }
            (Some(_), Some(demand)) => {
                return Err(demand.range(
                    "with limit, all data is available from the start",
                    "write either limit or demand",
                ));
            }
        },
        overhead: overhead(&table)?,
    })
}

/// Amount of data that a flow has to send.
fn amount(limit: &Value<'_>) -> Result<Bytes, ScenarioError> {
    let size = limit.size()?;
    if size > Bytes(0) {
        return Ok(size);
    }
    Err(limit.range(
        "a flow needs data to send",
        "write a size above zero, as \"60kB\", or remove it to send without end",
    ))
}

/// A TCP table, or only its kind.
pub(super) fn tcp_or_kind(value: &Value<'_>) -> Result<TcpPlan, ScenarioError> {
    if value.kind() != Form::Text {
        return tcp(value, Duration::MAX);
    }
    let kind = value.choice(TCP_KINDS, TCP_KINDS)?;
    Ok(TcpPlan {
        sender: standard(kind),
        sink: SinkConfig {
            sack_blocks: sack_blocks(kind),
            accurate_ecn: kind == "prague",
            ..SinkConfig::default()
        },
        amount: SourceKind::Endless,
        socket: None,
    })
}

/// A sender of this kind with its defaults.
fn standard(kind: &str) -> TcpSender {
    let congestion = match kind {
        "bbr" => CongestionConfig::bbr(),
        "cubic" => CongestionConfig::cubic(),
        "linux-reno" => CongestionConfig::reno(),
        "prague" => CongestionConfig::prague(),
        _ => {
            return TcpSender::Classic(classic::Config {
                flavour: match kind {
                    "newreno" => Flavour::NewReno,
                    "reno" => Flavour::Reno,
                    _ => Flavour::Sack,
                },
                ..classic::Config::default()
            });
        }
    };
    TcpSender::Modern(Box::new(modern::Config {
        congestion,
        ..modern::Config::default()
    }))
}

fn sack_blocks(kind: &str) -> u8 {
    if matches!(kind, "newreno" | "reno") {
        0
    } else {
        3
    }
}

pub(super) fn tcp(value: &Value<'_>, end: Duration) -> Result<TcpPlan, ScenarioError> {
    let table = value.table(TCP, "{ kind = \"sack\" }")?;
    let kind = table.need("kind", "kind = \"sack\"")?;
    let kind = kind.choice(TCP_KINDS, TCP_KINDS)?;
    let sender = match standard(kind) {
        TcpSender::Classic(config) => {
            options::refuse_modern(kind, &table)?;
            classic_sender(config, &table).map(TcpSender::Classic)
        }
        TcpSender::Modern(config) => modern_sender(kind, config, &table).map(TcpSender::Modern),
    }?;
    let mut plan = TcpPlan {
        sender,
        sink: SinkConfig {
            ack_size: match table.get("ack") {
                Some(size) => size.size()?.get().clamp(1, 1_500) as u32,
                None => SinkConfig::default().ack_size,
            },
            sack_blocks: sack_blocks(kind),
            accurate_ecn: kind == "prague",
            delay: match table.get("delayed_ack") {
                Some(delay) => Some(delay.positive_duration("remove it to disable delayed ACKs")?),
                None => None,
            },
            ..SinkConfig::default()
        },
        amount: match table.get("limit") {
            Some(limit) => SourceKind::Bytes(amount(&limit)?.get()),
            None => SourceKind::Endless,
        },
        socket: None,
    };
    plan.socket = options::socket(&table, &plan, end)?;
    Ok(plan)
}

fn classic_sender(
    standard: classic::Config,
    table: &Table<'_>,
) -> Result<classic::Config, ScenarioError> {
    let mut sender = classic::Config {
        overhead: overhead(table)?,
        ..standard
    };
    if let Some(packet) = table.get("packet") {
        sender.packet_size = packet_size(&packet)?.get() as u32;
    }
    if let Some(window) = table.get("window") {
        sender.window = window.packets()?.max(1);
    }
    if let Some(window) = initial_window(table)? {
        sender.initial_window = window;
    }
    if let Some(shortest) = table.get("min_rto") {
        let least = shortest.positive_duration("the timeout is zero")?;
        if least < MIN_RTO {
            // As in ns-2 the timer also runs while no data is outstanding.
            return Err(shortest.range(
                "shorter than the clock tick of any TCP",
                "write at least \"1ms\"",
            ));
        }
        sender.rto.min = least;
    }
    if let Some(tick) = table.get("tick") {
        sender.rto.tick = tick.positive_duration("a clock needs a tick above zero")?;
    }
    if let Some(on) = table.get("limited_transmit") {
        sender.limited_transmit = on.boolean()?;
    }
    if let Some(on) = table.get("slow_start_at_threshold") {
        sender.slow_start_at_threshold = on.boolean()?;
    }
    Ok(sender)
}

fn modern_sender(
    kind: &str,
    mut sender: Box<modern::Config>,
    table: &Table<'_>,
) -> Result<Box<modern::Config>, ScenarioError> {
    for key in [
        "tick",
        "overhead",
        "limited_transmit",
        "slow_start_at_threshold",
    ] {
        if let Some(value) = table.get(key) {
            return Err(value.range(
                &format!("{kind} is a TCP model of Linux, which does not have {key}"),
                "remove it, or choose kind = \"sack\"",
            ));
        }
    }
    if let Some(packet) = table.get("packet") {
        sender.packet_size = packet_size(&packet)?.get() as u32;
    }
    if let Some(window) = table.get("window") {
        sender.window = window.packets()?.clamp(1, 1 << 20);
    }
    if let Some(window) = initial_window(table)? {
        sender.initial_window = window;
    }
    if let Some(shortest) = table.get("min_rto") {
        sender.timeout.min = shortest.positive_duration("the timeout is zero")?;
    }
    options::modern(kind, &mut sender, table)?;
    Ok(sender)
}

fn initial_window(table: &Table<'_>) -> Result<Option<InitialWindow>, ScenarioError> {
    let window = table.get("initial_window");
    let window = window.map(|value| value.whole(1..=1_000)).transpose()?;
    Ok(window.map(|window| InitialWindow::Segments(window as u32)))
}

/// Configuration of browsers, one for each of `count` flows.
pub(super) fn browsers(value: &Value<'_>, count: u32) -> Result<Arc<web::Config>, ScenarioError> {
    let table = value.table(WEB, "{ load = \"2Mb/s\" }")?;
    let mut config = web::Config::default();
    if let Some(connections) = table.get("connections") {
        config.connections = connections.choice(
            &["at-once", "object", "page"],
            &[
                Connections::AtOnce,
                Connections::PerObject,
                Connections::PerPage,
            ],
        )?;
    }
    if let Some(begin) = table.get("begin") {
        config.begin = begin.choice(&["page", "thinking"], &[Begin::Page, Begin::Thinking])?;
    }
    if let Some(value) = table.get("tcp") {
        options::refuse_socket(&value, "a web server sends the requested objects")?;
        let plan = tcp_or_kind(&value)?;
        let TcpSender::Classic(sender) = plan.sender else {
            return Err(value.range(
                "web servers use a TCP model of ns-2",
                "choose kind = \"newreno\", \"reno\" or \"sack\"",
            ));
        };
        if plan.amount != SourceKind::Endless {
            return Err(value.range(
                "the size of a web object is set by object or page",
                "remove limit, and write object or page",
            ));
        }
        (config.tcp, config.sink) = (sender, plan.sink);
    }
    web_sizes(&table, &mut config)?;
    if let Some(think) = table.get("think") {
        let mean = think.positive_duration("a browser without think time is a tcp flow")?;
        config.think = Distribution::Exponential {
            mean: mean.as_secs_f64(),
        };
    }
    if let (Some(load), Some(_)) = (table.get("load"), table.get("think")) {
        return Err(load.range(
            "load determines the think time",
            "write either load or think",
        ));
    }
    if let Some(load) = table.get("load") {
        let rate = load.positive_rate("the load is zero")?;
        config = config.with_load(count, rate, PAGE_TIME);
    }
    config.check().map_err(|fault| {
        value.range(
            &fault.to_string(),
            "change the load or the count of browsers",
        )
    })?;
    Ok(Arc::new(config))
}

/// Sizes of pages: of one object or of several.
fn web_sizes(table: &Table<'_>, config: &mut web::Config) -> Result<(), ScenarioError> {
    if let Some(page) = table.get("page") {
        for key in ["objects", "object"] {
            if let Some(value) = table.get(key) {
                return Err(value.range(
                    "page is the size of a page of one object",
                    "write either page, or objects and object",
                ));
            }
        }
        config.objects = Distribution::Constant(1.0);
        config.size = object_size(&page)?;
    }
    if let Some(objects) = table.get("objects") {
        config.objects = Distribution::Constant(objects.whole(1..=1_000)? as f64);
    }
    if let Some(object) = table.get("object") {
        config.size = object_size(&object)?;
    }
    Ok(())
}

pub(super) fn udp(value: &Value<'_>, end: Duration) -> Result<udp::SourceConfig, ScenarioError> {
    let table = value.table(UDP, "{ rate = \"1Mb/s\", packet = \"1000B\" }")?;
    let rate = table.need("rate", "rate = \"1Mb/s\"")?;
    let config = udp::SourceConfig {
        rate: schedule(&rate, end)?,
        packet: match table.get("packet") {
            Some(packet) => udp_packet(&packet)?,
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

/// Smaller packets than those of other flows are allowed: 20 ms of audio are a few dozen bytes. In
/// real networks, 28 bytes are headers, and 33 bytes identify the packet.
fn udp_packet(value: &Value<'_>) -> Result<Bytes, ScenarioError> {
    let size = value.size()?;
    if (Bytes(64)..=Bytes(1_500)).contains(&size) {
        return Ok(size);
    }
    Err(value.range(
        &format!("a packet of {} B", size.0),
        "write a size from \"64B\" to \"1500B\"",
    ))
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
        value.positive_duration("the time is zero")
    };
    Ok(Spacing::OnOff {
        on: long("on", "on = \"500ms\"")?,
        off: long("off", "off = \"500ms\"")?,
        shape: match table.get("shape") {
            Some(shape) => Some(shape.number(1.01..=100.0, "1.5")?),
            None => None,
        },
    })
}

/// A rate, or a list of steps.
pub(super) fn schedule(value: &Value<'_>, end: Duration) -> Result<Schedule, ScenarioError> {
    if value.kind() != Form::List {
        return Ok(value
            .positive_rate("a flow of rate zero sends nothing")?
            .into());
    }
    let mut steps = super::over_time::rates(value, end)?.into_iter();
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

/// A size, or a range of sizes.
fn object_size(size: &Value<'_>) -> Result<Distribution, ScenarioError> {
    let bytes = |value: &Value<'_>| value.size().map(|size| size.get() as f64);
    if size.kind() != Form::List {
        return bytes(size).map(Distribution::Constant);
    }
    let ends = size.list("two sizes, as [\"100kB\", \"1MB\"]")?;
    let [least, most] = ends.as_slice() else {
        return Err(size.range(
            &format!("a range of {} parts", ends.len()),
            "write the smallest and the largest, as [\"100kB\", \"1MB\"]",
        ));
    };
    let (least, most) = (bytes(least)?, bytes(most)?);
    if most <= least {
        return Err(size.range(
            "the largest is not above the smallest",
            "write the smallest first, as [\"100kB\", \"1MB\"]",
        ));
    }
    Ok(Distribution::Uniform { least, most })
}

/// Assumed page load time, from which think times are computed for a load.
const PAGE_TIME: Duration = Duration::from_secs(1);

/// The retransmission timer of the ns-2 models also runs while no data is outstanding. With a
/// time-out of a microsecond it would fire billions of times in an idle hour.
const MIN_RTO: Duration = Duration::from_millis(1);

const TCP_KINDS: &[&str] = &[
    "bbr",
    "cubic",
    "linux-reno",
    "newreno",
    "prague",
    "reno",
    "sack",
];

pub(super) const WEB: &[&str] = &[
    "load",
    "page",
    "objects",
    "object",
    "think",
    "connections",
    "begin",
    "tcp",
];

pub(super) const TCP: &[&str] = &[
    "kind",
    "packet",
    "ack",
    "window",
    "initial_window",
    "min_rto",
    "tick",
    "limited_transmit",
    "slow_start_at_threshold",
    "delayed_ack",
    "limit",
    "demand",
    "buffer",
    "overhead",
    "recovery",
    "tail_probes",
    "pacing",
    "hystart",
];

pub(super) const UDP: &[&str] = &["rate", "packet", "spacing", "jitter"];

pub(super) const ON_OFF: &[&str] = &["on", "off", "shape"];
