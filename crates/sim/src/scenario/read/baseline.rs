//! Baselines: the video of a flow, sent in another way.

use super::control::control;
use super::flow::transport;
use super::{Names, Sources};
use crate::scenario::error::{Fault, ScenarioError};
use crate::scenario::table::{Table, Value};
use crate::scenario::{BaselinePlan, BaselineSender, FlowPlan, MediaPlan, Scenario};

pub(super) fn baseline(
    item: &Value<'_>,
    scenario: &Scenario,
    names: &mut Names,
    sources: Sources<'_>,
) -> Result<BaselinePlan, ScenarioError> {
    let mut table = item.table(BASELINE, "a table")?;
    let name = names.take(&table.need("name", "name = \"fixed-mean\"")?)?;
    table.place(format!("baseline \"{name}\""));
    let value = table.need("of", "of = \"camera\"")?;
    let flow = value.text("the name of a flow in quotes")?;
    let rtp = |flow: &FlowPlan| flow.media.video().is_some_and(|v| v.stream.is_none());
    let alone = |flow: &FlowPlan| rtp(flow) && flow.count == 1;
    let videos = scenario.flows.iter().filter(|flow| alone(flow));
    let mut flows = scenario.flows.iter();
    let Some(of) = flows.position(|known| known.name == flow && alone(known)) else {
        return Err(value.fault(Fault::Name {
            what: "single flow with video",
            value: flow.to_owned(),
            known: videos.map(|flow| flow.name.clone()).collect(),
        }));
    };
    let sender = sender(&table, &scenario.flows[of], sources)?;
    let plan = BaselinePlan { name, of, sender };
    Ok(plan)
}

fn sender(
    table: &Table<'_>,
    of: &FlowPlan,
    sources: Sources<'_>,
) -> Result<BaselineSender, ScenarioError> {
    let mut given = SENDERS
        .iter()
        .filter_map(|key| Some((*key, table.get(key)?)));
    let (key, value) = match (given.next(), given.next()) {
        (Some(only), None) => only,
        (first, _) => {
            let why = match first {
                None => "nothing differs from the flow",
                Some(_) => "it is sent in two ways",
            };
            return Err(table.fault(Fault::Conflict {
                why: why.to_owned(),
                fix: "write one of rate = \"mean\", control = \"tfrc\" and transport = { … }"
                    .to_owned(),
            }));
        }
    };
    match key {
        "rate" => rate(&value),
        "control" => control(&value, sources).map(BaselineSender::Control),
        _ => {
            let MediaPlan::Video(video) = &of.media else {
                unreachable!("the flow of a baseline carries video");
            };
            transport(&value, video).map(BaselineSender::Transport)
        }
    }
}

fn rate(value: &Value<'_>) -> Result<BaselineSender, ScenarioError> {
    match value.text("\"mean\" or a rate, as \"2Mb/s\"")? {
        "mean" => Ok(BaselineSender::Mean),
        word if word.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            Err(value.fault(Fault::Choice {
                value: word.to_owned(),
                allowed: &["mean", "2Mb/s"],
            }))
        }
        _ => {
            let rate = value.positive_rate("a stream of rate zero sends nothing")?;
            Ok(BaselineSender::Fixed(rate))
        }
    }
}

/// Keys of which a baseline has exactly one.
const SENDERS: [&str; 3] = ["rate", "control", "transport"];

pub(super) const BASELINE: &[&str] = &["name", "of", "rate", "control", "transport"];
