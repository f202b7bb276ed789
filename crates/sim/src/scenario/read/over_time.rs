//! Properties of links over time: lists of steps, and recordings.

use core::time::Duration;

use tidegate_core::link::{LossConfig, Steps};
use tidegate_core::units::{Rate, Time};

use super::Sources;
use crate::scenario::error::{Fault, ScenarioError};
use crate::scenario::recorded_path::{self, RecordedPath};
use crate::scenario::table::{Form, Table, Value};
use crate::scenario::{CapacityTrace, RatePlan};

/// Capacity from a list of steps or from a file.
pub(super) fn capacity(
    value: &Value<'_>,
    end: Duration,
    sources: Sources<'_>,
) -> Result<RatePlan, ScenarioError> {
    const WANTED: &str = "a rate as \"4Mb/s\", steps as [[\"0s\", \"4Mb/s\"], [\"20s\", \"1Mb/s\"]], or { trace = \"file\" }";
    match value.kind() {
        Form::Text => Ok(RatePlan::Fixed(value.positive_rate(
            "a link of rate zero carries nothing; for a limited time use outage or steps",
        )?)),
        Form::List => rates(value, end).map(RatePlan::Steps),
        Form::Table => {
            let trace = trace(&value.table(TRACE, WANTED)?)?;
            let (file, text) = opened(&trace, sources)?;
            if RecordedPath::is_format_of(&text) {
                return Ok(RatePlan::Steps(recorded(&trace, &text)?.rates(end)));
            }
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

/// Propagation delay: its minimum, and the variation above that.
pub(super) fn delay(
    value: &Value<'_>,
    end: Duration,
    sources: Sources<'_>,
) -> Result<(Duration, Option<Steps<Duration>>), ScenarioError> {
    const WANTED: &str = "a time span as \"40ms\", steps as [[\"0s\", \"40ms\"], [\"20s\", \"90ms\"]], or { trace = \"file\" }";
    let delays = match value.kind() {
        Form::List => steps(value, end, &DELAYS, Value::duration)?,
        Form::Table => {
            let trace = trace(&value.table(TRACE, WANTED)?)?;
            let (_, text) = opened(&trace, sources)?;
            let delays = recorded(&trace, &text)?.delays(end);
            delays.ok_or_else(|| no_column(&trace, "rtt_ms"))?
        }
        Form::Text | Form::Other => return Ok((value.duration()?, None)),
    };
    Ok(recorded_path::variation(&delays))
}

/// Loss over time, from a list of steps.
pub(super) fn losses(value: &Value<'_>, end: Duration) -> Result<LossConfig, ScenarioError> {
    let losses = steps(value, end, &LOSSES, Value::share)?;
    loss_steps(value, &losses)
}

/// Loss over time, from the recording that `trace` names.
pub(super) fn recorded_loss(
    trace: &Value<'_>,
    end: Duration,
    sources: Sources<'_>,
) -> Result<LossConfig, ScenarioError> {
    let (_, text) = opened(trace, sources)?;
    let losses = recorded(trace, &text)?.losses(end);
    loss_steps(trace, &losses.ok_or_else(|| no_column(trace, "loss"))?)
}

fn loss_steps(value: &Value<'_>, losses: &[(Duration, f64)]) -> Result<LossConfig, ScenarioError> {
    let losses: Vec<_> = losses
        .iter()
        .map(|(at, p)| (Time::ZERO + *at, *p))
        .collect();
    let steps = Steps::new(&losses);
    steps.map(LossConfig::Steps).map_err(|fault| {
        value.range(
            &fault.to_string(),
            "write a step at \"0s\" and sort the steps",
        )
    })
}

/// The value with the name of the file.
fn trace<'a>(table: &Table<'a>) -> Result<Value<'a>, ScenarioError> {
    table.need("trace", "trace = \"file.csv\"")
}

/// Name and text of the file.
fn opened<'a>(trace: &Value<'a>, sources: Sources<'_>) -> Result<(&'a str, String), ScenarioError> {
    let file = trace.text("a file name in quotes")?;
    let text = (sources.open)(file).map_err(|why| {
        trace.fault(Fault::Unreadable {
            file: file.to_owned(),
            why,
        })
    })?;
    Ok((file, text))
}

fn recorded(trace: &Value<'_>, text: &str) -> Result<RecordedPath, ScenarioError> {
    let file = trace.text("a file name in quotes")?.to_owned();
    RecordedPath::parse(text).map_err(|cause| trace.fault(Fault::Recorded { file, cause }))
}

fn no_column(trace: &Value<'_>, column: &str) -> ScenarioError {
    trace.range(
        &format!("the recording has no column {column}"),
        "name a file with the header t_s,mbps,rtt_ms,loss",
    )
}

/// Rates over time. At least one is above zero.
pub(super) fn rates(
    value: &Value<'_>,
    end: Duration,
) -> Result<Vec<(Duration, Rate)>, ScenarioError> {
    let rates = steps(value, end, &RATES, Value::rate)?;
    if rates.iter().all(|(_, rate)| *rate == Rate::ZERO) {
        return Err(value.range(
            "all rates are zero",
            "write at least one step with a rate above zero",
        ));
    }
    Ok(rates)
}

/// Words of errors about the steps of a property.
struct Words {
    property: &'static str,
    list: &'static str,
    step: &'static str,
    example: &'static str,
}

/// Values with the times from which they apply: from zero on, ascending, before `end`.
fn steps<'a, T>(
    value: &Value<'a>,
    end: Duration,
    words: &Words,
    read: impl Fn(&Value<'a>) -> Result<T, ScenarioError>,
) -> Result<Vec<(Duration, T)>, ScenarioError> {
    let mut steps: Vec<(Duration, T)> = Vec::new();
    for item in value.list(words.list)? {
        let pair = item.list(words.step)?;
        let [at, content] = pair.as_slice() else {
            return Err(item.range(
                &format!("a step of {} parts", pair.len()),
                &format!(
                    "write the time and the {}, as {}",
                    words.property, words.example
                ),
            ));
        };
        let moment = at.duration()?;
        match steps.last() {
            None if moment > Duration::ZERO => {
                return Err(at.range(
                    &format!(
                        "the first step is at {moment:?}, so there is no {} before it",
                        words.property
                    ),
                    "start the first step at \"0s\"",
                ));
            }
            Some((last, _)) if moment <= *last => {
                return Err(at.range(
                    &format!("the step at {moment:?} does not follow the one at {last:?}"),
                    "sort the steps by time, without repetition",
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
        steps.push((moment, read(content)?));
    }
    if steps.is_empty() {
        return Err(value.range(
            "there is no step",
            &format!("write a {} from \"0s\" on", words.property),
        ));
    }
    Ok(steps)
}

pub(super) const TRACE: &[&str] = &["trace"];

const RATES: Words = Words {
    property: "rate",
    list: "a list of steps, as [[\"0s\", \"4Mb/s\"], [\"20s\", \"1Mb/s\"]]",
    step: "a step, as [\"20s\", \"1Mb/s\"]",
    example: "[\"20s\", \"1Mb/s\"]",
};

const DELAYS: Words = Words {
    property: "delay",
    list: "a list of steps, as [[\"0s\", \"40ms\"], [\"20s\", \"90ms\"]]",
    step: "a step, as [\"20s\", \"90ms\"]",
    example: "[\"20s\", \"90ms\"]",
};

const LOSSES: Words = Words {
    property: "loss",
    list: "a list of steps, as [[\"0s\", \"0%\"], [\"20s\", \"2%\"]]",
    step: "a step, as [\"20s\", \"2%\"]",
    example: "[\"20s\", \"2%\"]",
};
