//! Video over TCP.

use core::time::Duration;

use tidegate_core::session::tcp::Place;
use tidegate_core::tcp_rate::Law;
use tidegate_core::tcp_rate::{Backoff, Flags, Mode, Subscription, TcpEvent, TcpRateConfig};

use super::models;
use crate::interactive::StreamPlan;
use crate::scenario::TcpSender;
use crate::scenario::error::{Fault, ScenarioError};
use crate::scenario::table::{Table, Value};

pub(super) fn transport(value: &Value<'_>) -> Result<StreamPlan, ScenarioError> {
    let table = value.table(TRANSPORT, "{ tcp = \"cubic\", mode = \"iopt\" }")?;
    let tcp = table.need("tcp", "tcp = \"cubic\"")?;
    super::tcp::refuse_socket(
        &tcp,
        "the encoder generates the data, and the sender has its own backlog",
    )?;
    let mut tcp = models::tcp_or_kind(&tcp)?;
    let mode = mode(&table)?;
    let rto_max = rto_max(&table)?;
    let linear = linear(&table, &tcp.sender)?;
    match &mut tcp.sender {
        TcpSender::Classic(config) => {
            config.rto.max = rto_max.unwrap_or(config.rto.max);
        }
        TcpSender::Modern(config) => {
            config.timeout.max = rto_max.unwrap_or(config.timeout.max);
            config.timeout.linear = linear;
        }
    }
    Ok(StreamPlan {
        tcp,
        mode,
        subscribed: match table.get("subscribe") {
            Some(list) => subscription(&list)?,
            None if mode.is_exact() => Subscription::ALL,
            None => Subscription::TIME_OUT,
        },
        backlog: match table.get("backlog") {
            Some(place) => place.choice(
                &["frames", "pictures", "socket"],
                &[Place::Frames, Place::Pictures, Place::Socket],
            )?,
            None if mode.is_exact() => Place::Pictures,
            None => Place::Socket,
        },
        reaction: match table.get("reaction") {
            Some(reaction) => reaction.duration()?,
            None => Duration::ZERO,
        },
        margin: match table.get("margin") {
            Some(margin) => margin.share()?,
            None => TcpRateConfig::MARGIN,
        },
        drain: match table.get("drain") {
            Some(drain) => Some(drain.positive_duration("the drain time is zero")?),
            None => None,
        },
        frames: match table.get("frames") {
            Some(frames) => Some(frames.whole(1..=10_000_000)?),
            None => None,
        },
    })
}

fn rto_max(table: &Table<'_>) -> Result<Option<Duration>, ScenarioError> {
    let Some(span) = table.get("rto_max") else {
        return Ok(None);
    };
    let longest = span.positive_duration("the time-out is zero")?;
    let allowed = Duration::from_secs(1)..=Duration::from_mins(2);
    if allowed.contains(&longest) {
        Ok(Some(longest))
    } else {
        Err(span.range(
            "the kernel accepts 1 s to 120 s",
            "write a time span in this range",
        ))
    }
}

/// Whether consecutive timeouts grow linearly. All modes share the default, exponential growth as in
/// RFC 6298, so that a comparison of modes is one of their rates.
fn linear(table: &Table<'_>, sender: &TcpSender) -> Result<bool, ScenarioError> {
    let Some(backoff) = table.get("rto_backoff") else {
        return Ok(false);
    };
    let linear = backoff.choice(&["exponential", "linear"], &[false, true])?;
    if linear && !matches!(sender, TcpSender::Modern(_)) {
        return Err(backoff.fault(Fault::Conflict {
            why: "the TCP models of ns-2 have exponential back-off".to_owned(),
            fix: "remove it, or choose a TCP model of Linux, as \"cubic\"".to_owned(),
        }));
    }
    Ok(linear)
}

fn mode(table: &Table<'_>) -> Result<Mode, ScenarioError> {
    let law = match table.get("law") {
        Some(law) => law.choice(
            &["exact", "paper", "paper-m"],
            &[Law::Exact, Law::Paper, Law::PaperM],
        )?,
        None => Law::Exact,
    };
    let backoff = match table.get("recovery") {
        Some(form) => form.choice(&["additive", "fixed"], &[Backoff::REPORT, Backoff::PAPER])?,
        None => Backoff::PAPER,
    };
    let backoff = tuned(table, backoff)?;
    let mode = match (table.get("mode"), table.get("flags")) {
        (_, None) => table.need("mode", "mode = \"iopt\"")?.choice(
            &["classic", "iexp", "ioff", "iopt"],
            &[
                Mode::Classic,
                Mode::Iexp(backoff),
                Mode::Ioff,
                Mode::Iopt(law),
            ],
        )?,
        (None, Some(value)) => Mode::of_flags(flags(&value)?, backoff, law),
        (Some(mode), Some(_)) => {
            return Err(mode.range("flags also select the mode", "write one of the two"));
        }
    };
    let belongs: &[(&'static str, bool, &str)] = &[
        ("law", matches!(mode, Mode::Iopt(_)), "iopt"),
        ("recovery", matches!(mode, Mode::Iexp(_)), "iexp"),
        ("ratio", matches!(mode, Mode::Iexp(_)), "iexp"),
        (
            "hold",
            matches!(mode, Mode::Iexp(Backoff::Fixed { .. })),
            "iexp with recovery = \"fixed\"",
        ),
        (
            "step",
            matches!(mode, Mode::Iexp(Backoff::Additive { .. })),
            "iexp with recovery = \"additive\"",
        ),
        ("drain", mode.is_exact(), "iopt with law = \"exact\""),
        ("margin", mode.is_exact(), "iopt with law = \"exact\""),
    ];
    for (key, fits, whose) in belongs {
        if let Some(value) = table.get(key).filter(|_| !fits) {
            return Err(value.fault(Fault::Conflict {
                why: format!("only {whose} has this option"),
                fix: "remove it, or choose that mode".to_owned(),
            }));
        }
    }
    Ok(mode)
}

/// The published parameters, with changes by the scenario.
fn tuned(table: &Table<'_>, backoff: Backoff) -> Result<Backoff, ScenarioError> {
    let number = |key, range, example, standard| match table.get(key) {
        Some(value) => value.number(range, example),
        None => Ok(standard),
    };
    Ok(match backoff {
        Backoff::Fixed { ratio, hold } => Backoff::Fixed {
            ratio: number("ratio", 0.01..=0.99, "0.35", ratio)?,
            hold: match table.get("hold") {
                Some(hold) => hold.positive_duration("the reduction has zero length")?,
                None => hold,
            },
        },
        Backoff::Additive { ratio, step } => Backoff::Additive {
            ratio: number("ratio", 0.01..=0.99, "0.55", ratio)?,
            step: number("step", 0.001..=10.0, "0.01", step)?,
        },
    })
}

fn flags(value: &Value<'_>) -> Result<Flags, ScenarioError> {
    let table = value.table(
        FLAGS,
        "{ itcp = true, event = true, symb = true, opt = true }",
    )?;
    let flag = |key| match table.get(key) {
        Some(value) => value.boolean(),
        None => Ok(false),
    };
    Ok(Flags {
        itcp: flag("itcp")?,
        event: flag("event")?,
        symb: flag("symb")?,
        opt: flag("opt")?,
    })
}

fn subscription(list: &Value<'_>) -> Result<Subscription, ScenarioError> {
    let items = list.list("a list, as [\"timed-out\", \"third-duplicate\"]")?;
    let event = |item: &Value<'_>| {
        item.choice(
            &["repaired", "third-duplicate", "timed-out"],
            &[
                TcpEvent::Repaired,
                TcpEvent::ThirdDuplicate,
                TcpEvent::TimedOut,
            ],
        )
    };
    let events: Vec<TcpEvent> = items.iter().map(event).collect::<Result<_, _>>()?;
    Ok(Subscription::of(&events))
}

pub(super) const TRANSPORT: &[&str] = &[
    "tcp",
    "mode",
    "flags",
    "law",
    "recovery",
    "ratio",
    "hold",
    "step",
    "subscribe",
    "backlog",
    "reaction",
    "margin",
    "drain",
    "frames",
    "rto_backoff",
    "rto_max",
];

pub(super) const FLAGS: &[&str] = &["itcp", "event", "symb", "opt"];
