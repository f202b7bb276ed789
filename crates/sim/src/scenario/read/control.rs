//! The controller of a flow.

use tidegate_core::control::Prior;
use tidegate_core::controller::ControllerConfig;
use tidegate_core::units::Bytes;

use super::Sources;
use crate::scenario::error::{Fault, ScenarioError};
use crate::scenario::table::{Table, Value};
use crate::scenario::{MediaPlan, TcpSender};
use crate::tcp::{InitialWindow, classic};

pub(super) fn control(
    value: &Value<'_>,
    sources: Sources<'_>,
) -> Result<ControllerConfig, ScenarioError> {
    let read = sources.controllers.read(value.setting()?);
    read.map_err(|error| value.setting_error(error))
}

/// Kinds of flows that control their own rate.
const OWN_CONTROL: [&str; 5] = ["cp", "tcp", "udp", "web", "transport"];

/// The controller, if the kind of the flow does not include one.
pub(super) fn control_of(
    flow: &Table<'_>,
    sources: Sources<'_>,
) -> Result<Option<ControllerConfig>, ScenarioError> {
    let kind = OWN_CONTROL.iter().find(|kind| flow.get(kind).is_some());
    match (flow.get("control"), kind) {
        (None, None) => Ok(Some(ControllerConfig::default())),
        (None, Some(_)) => Ok(None),
        (Some(value), None) => control(&value, sources).map(Some),
        (Some(value), Some(kind)) => Err(value.fault(Fault::Conflict {
            why: format!("a {kind} flow has its own rate control"),
            fix: "remove it, or send bulk or video over RTP".to_owned(),
        })),
    }
}

/// What a flow knows about its path.
pub(super) fn prior_of(flow: &Table<'_>) -> Result<Option<Prior>, ScenarioError> {
    let Some(value) = flow.get("prior") else {
        return Ok(None);
    };
    let mut others = OWN_CONTROL.iter().filter(|kind| **kind != "tcp");
    if others.any(|kind| flow.get(kind).is_some()) {
        return Err(value.fault(Fault::Conflict {
            why: "only a flow with control or tcp has a use for a prior".to_owned(),
            fix: "remove it, or send bulk or video over RTP".to_owned(),
        }));
    }
    let table = value.table(PRIOR, "{ rate = \"500kb/s\", rtt = \"40ms\" }")?;
    let rate = table.need("rate", "rate = \"500kb/s\"")?;
    let rtt = table.need("rtt", "rtt = \"40ms\"")?;
    Ok(Some(Prior {
        rate: rate.positive_rate("a path that carries nothing has no prior")?,
        rtt: rtt.positive_duration("a path has a round-trip time above zero")?,
        confidence: table
            .get("confidence")
            .map_or(Ok(1.0), |value| value.share())?,
    }))
}

/// The window of a TCP that knows its path: congestion avoidance begins at once.
pub(super) fn informed_window(
    flow: &Table<'_>,
    mut media: MediaPlan,
    prior: Option<Prior>,
) -> Result<MediaPlan, ScenarioError> {
    let (Some(prior), MediaPlan::Tcp(plan)) = (prior, &mut media) else {
        return Ok(media);
    };
    let conflict = |why: &str, fix: &str| {
        let value = flow.need("prior", "prior = { rate = \"500kb/s\", rtt = \"40ms\" }")?;
        let (why, fix) = (why.to_owned(), fix.to_owned());
        Err(value.fault(Fault::Conflict { why, fix }))
    };
    let TcpSender::Classic(sender) = &mut plan.sender else {
        return conflict(
            "the TCP of Linux has no prior",
            "remove it, or choose kind = \"reno\", \"newreno\" or \"sack\"",
        );
    };
    if sender.initial_window != classic::Config::default().initial_window {
        return conflict("it is an initial window too", "write one of both");
    }
    let packets = prior.window(Bytes(sender.packet_size.into())) as u32;
    sender.initial_window = InitialWindow::Segments(packets);
    sender.initial_ssthresh = Some(packets.min(sender.window));
    Ok(media)
}

pub(super) const PRIOR: &[&str] = &["rate", "rtt", "confidence"];
