//! ECN codepoint of a flow's packets, which must match the sender's response to marks.

use std::sync::Arc;

use tidegate_core::control::Ecn;

use crate::scenario::error::{Fault, ScenarioError};
use crate::scenario::table::{Form, Table, Value};
use crate::scenario::{FlowPlan, MediaPlan, TcpPlan};

/// `plan` with the codepoint that `flow` requests.
pub(super) fn with(flow: &Table<'_>, mut plan: FlowPlan) -> Result<FlowPlan, ScenarioError> {
    let scalable = plan.media.tcp().is_some_and(TcpPlan::is_scalable);
    plan.ecn = match flow.get("ecn") {
        Some(value) => asked(&value, &plan, scalable)?,
        None if scalable => Ecn::Ect1,
        None => Ecn::NotEct,
    };
    if let MediaPlan::Web(config) = &mut plan.media
        && plan.ecn.is_capable()
    {
        Arc::make_mut(config).tcp.ecn = true;
    }
    Ok(plan)
}

fn asked(value: &Value<'_>, plan: &FlowPlan, scalable: bool) -> Result<Ecn, ScenarioError> {
    let own = if scalable { Ecn::Ect1 } else { Ecn::Ect0 };
    let asked = match value.kind() {
        Form::Text => value.choice(
            &["off", "ect0", "ect1"],
            &[Ecn::NotEct, Ecn::Ect0, Ecn::Ect1],
        )?,
        Form::Other if value.boolean().is_ok_and(|on| on) => own,
        Form::Other if value.boolean().is_ok() => Ecn::NotEct,
        _ => return Err(value.wrong("true, false, \"off\", \"ect0\" or \"ect1\"")),
    };
    // UDP flows are test traffic, from which no response is expected.
    let unanswered = matches!(plan.media, MediaPlan::Udp(_));
    match asked {
        Ecn::Ect0 if scalable => Err(value.fault(Fault::Conflict {
            why: format!(
                "{} responds to a mark in proportion, and marks of ECT(0) require the \
                 same response as a loss (RFC 3168)",
                plan.control_name()
            ),
            fix: "leave ecn out, or choose kind = \"cubic\"".to_owned(),
        })),
        Ecn::Ect1 if !scalable && !unanswered => Err(value.fault(Fault::Conflict {
            why: format!(
                "{} {}, and ECT(1) requires a response to each mark by a fraction (RFC 9331 section \
                 4.3)",
                sender_name(plan),
                answer(plan)
            ),
            fix: "write ecn = \"ect0\", or send tcp = { kind = \"prague\" } or udp = { … }".to_owned(),
        })),
        codepoint => Ok(codepoint),
    }
}

fn sender_name(plan: &FlowPlan) -> &'static str {
    match &plan.media.tcp() {
        Some(tcp) => tcp.name(),
        None => plan.control_name(),
    }
}

/// Response to marks of a sender that is not scalable.
fn answer(plan: &FlowPlan) -> &'static str {
    match sender_name(plan) {
        "bbr" => "does not respond to marks",
        _ if plan.fixed_rate().is_some() => "does not respond to marks",
        _ => "responds to a mark as to a loss",
    }
}
