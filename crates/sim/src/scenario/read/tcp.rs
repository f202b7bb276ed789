//! TCP keys for loss recovery and pacing of the Linux models, and for the writing application.

use core::time::Duration;

use tidegate_core::units::Bytes;

use super::models;
use crate::scenario::error::{Fault, ScenarioError};
use crate::scenario::table::{Table, Value};
use crate::scenario::{SocketPlan, TcpPlan};
use crate::tcp::SourceKind;
use crate::tcp::modern::{self, CongestionConfig, Detection, HyStartConfig};

/// Rejects keys that the ns-2 models do not have.
pub(super) fn refuse_modern(kind: &str, table: &Table<'_>) -> Result<(), ScenarioError> {
    for key in MODERN {
        if let Some(value) = table.get(key) {
            return Err(value.fault(Fault::Conflict {
                why: format!("{kind} is a TCP model of ns-2, which does not have {key}"),
                fix: "remove it, or choose kind = \"cubic\"".to_owned(),
            }));
        }
    }
    Ok(())
}

/// Loss detection, exit from slow start, and pacing.
pub(super) fn modern(
    kind: &str,
    sender: &mut modern::Config,
    table: &Table<'_>,
) -> Result<(), ScenarioError> {
    if let Some(recovery) = table.get("recovery") {
        sender.detection = recovery.choice(
            &["duplicates", "rack"],
            &[Detection::Duplicates, Detection::RackTlp],
        )?;
    }
    let has_rack = sender.detection == Detection::RackTlp;
    sender.tail_probes = has_rack;
    if let Some(probes) = table.get("tail_probes") {
        sender.tail_probes = probes.boolean()?;
        if sender.tail_probes && !has_rack {
            return Err(probes.fault(Fault::Conflict {
                why: "tail loss probes require RACK (RFC 8985)".to_owned(),
                fix: "remove it, or write recovery = \"rack\"".to_owned(),
            }));
        }
    }
    if let Some(pacing) = table.get("pacing") {
        let congestion = &sender.congestion;
        if matches!(
            congestion,
            CongestionConfig::Bbr(_) | CongestionConfig::Prague(_)
        ) {
            return Err(pacing.fault(Fault::Conflict {
                why: format!("{kind} always paces its segments"),
                fix: "remove it, or choose kind = \"cubic\"".to_owned(),
            }));
        }
        sender.pacing = pacing.boolean()?;
    }
    if let Some(value) = table.get("hystart") {
        let CongestionConfig::Cubic(cubic) = &mut sender.congestion else {
            return Err(value.fault(Fault::Conflict {
                why: format!("HyStart belongs to cubic, and this is {kind}"),
                fix: "remove it, or choose kind = \"cubic\"".to_owned(),
            }));
        };
        cubic.hystart = value.boolean()?.then(HyStartConfig::default);
    }
    Ok(())
}

/// The writing application, if there is one; `plan.amount` is the amount of data to send.
pub(super) fn socket(
    table: &Table<'_>,
    plan: &TcpPlan,
    end: Duration,
) -> Result<Option<SocketPlan>, ScenarioError> {
    let (demand, buffer) = (table.get("demand"), table.get("buffer"));
    if demand.is_none() && buffer.is_none() {
        return Ok(None);
    }
    if let (Some(demand), SourceKind::Bytes(_)) = (&demand, plan.amount) {
        return Err(demand.fault(Fault::Conflict {
            why: "with limit, all data is available from the start".to_owned(),
            fix: "write either limit or demand".to_owned(),
        }));
    }
    Ok(Some(SocketPlan {
        demand: match &demand {
            Some(demand) => Some(models::schedule(demand, end)?),
            None => None,
        },
        buffer: match &buffer {
            Some(buffer) => buffer_size(buffer, plan.payload())?,
            None => BUFFER.max(plan.payload()),
        },
    }))
}

fn buffer_size(value: &Value<'_>, segment: Bytes) -> Result<Bytes, ScenarioError> {
    let size = value.size()?;
    if size >= segment {
        return Ok(size);
    }
    Err(value.range(
        &format!(
            "a socket buffer of {} B has no room for a segment, which carries {} B",
            size.0, segment.0
        ),
        "write at least that, as \"64kB\"",
    ))
}

/// Rejects an application if the flow has another data source.
pub(super) fn refuse_socket(value: &Value<'_>, why: &str) -> Result<(), ScenarioError> {
    let Ok(table) = value.table(models::TCP, "a table") else {
        return Ok(());
    };
    for key in ["demand", "buffer"] {
        if let Some(value) = table.get(key) {
            return Err(value.fault(Fault::Conflict {
                why: why.to_owned(),
                fix: "remove it".to_owned(),
            }));
        }
    }
    Ok(())
}

/// Default socket buffer of Linux (`tcp_wmem`).
const BUFFER: Bytes = Bytes(4 << 20);

/// Keys that only the Linux models have.
const MODERN: &[&str] = &["recovery", "tail_probes", "pacing", "hystart"];
