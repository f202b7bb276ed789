//! Keys of TCP that say how a sender of today repairs and spaces, and how an application writes.

use core::time::Duration;

use tidegate_core::units::Bytes;

use super::models;
use crate::scenario::error::{Fault, ScenarioError};
use crate::scenario::table::{Table, Value};
use crate::scenario::{SocketPlan, TcpPlan};
use crate::tcp::SourceKind;
use crate::tcp::modern::{self, CongestionConfig, Detection, HyStartConfig};

/// What senders as in ns-2 lack.
pub(super) fn refuse_modern(kind: &str, table: &Table<'_>) -> Result<(), ScenarioError> {
    for key in MODERN {
        if let Some(value) = table.get(key) {
            return Err(value.fault(Fault::Clash {
                why: format!("{kind} is as in ns-2, which has no {key}"),
                mend: "remove it, or choose kind = \"cubic\"".to_owned(),
            }));
        }
    }
    Ok(())
}

/// How losses are found, slow start ends and segments are spaced.
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
            return Err(probes.fault(Fault::Clash {
                why: "only TCP with RACK probes tails (RFC 8985)".to_owned(),
                mend: "remove it, or write recovery = \"rack\"".to_owned(),
            }));
        }
    }
    if let Some(pacing) = table.get("pacing") {
        let congestion = &sender.congestion;
        if matches!(
            congestion,
            CongestionConfig::Bbr(_) | CongestionConfig::Prague(_)
        ) {
            return Err(pacing.fault(Fault::Clash {
                why: format!("{kind} always spaces its segments"),
                mend: "remove it, or choose kind = \"cubic\"".to_owned(),
            }));
        }
        sender.pacing = pacing.boolean()?;
    }
    if let Some(value) = table.get("hystart") {
        let CongestionConfig::Cubic(cubic) = &mut sender.congestion else {
            return Err(value.fault(Fault::Clash {
                why: format!(
                    "only cubic leaves slow start when the delay rises, and this is {kind}"
                ),
                mend: "remove it, or choose kind = \"cubic\"".to_owned(),
            }));
        };
        cubic.hystart = value.boolean()?.then(HyStartConfig::default);
    }
    Ok(())
}

/// The application that writes, if there is one; `amount` is all that there is to send.
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
        return Err(demand.fault(Fault::Clash {
            why: "what is limited in size is there from the start".to_owned(),
            mend: "write either limit or demand".to_owned(),
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

/// Refuses an application where something else says what is sent.
pub(super) fn refuse_socket(value: &Value<'_>, why: &str) -> Result<(), ScenarioError> {
    let Ok(table) = value.table(models::TCP, "a table") else {
        return Ok(());
    };
    for key in ["demand", "buffer"] {
        if let Some(value) = table.get(key) {
            return Err(value.fault(Fault::Clash {
                why: why.to_owned(),
                mend: "remove it".to_owned(),
            }));
        }
    }
    Ok(())
}

/// What Linux lets a socket hold unless told (`tcp_wmem`).
const BUFFER: Bytes = Bytes(4 << 20);

/// What only senders as in Linux have.
const MODERN: &[&str] = &["recovery", "tail_probes", "pacing", "hystart"];
