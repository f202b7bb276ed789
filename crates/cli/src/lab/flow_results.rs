//! Results of the flows of a run: from their threads and from the emulator's log.

use std::collections::{BTreeMap, VecDeque};

use anyhow::{Context as _, Result, anyhow};
use tidegate_core::control::{Ecn, Kind, Outcome};
use tidegate_core::session::history::PacketRow;
use tidegate_core::units::{Bytes, RemoteTime, Time};
use tidegate_live::emulator::EmulatorLog;
use tidegate_record::{self as record, packet_row};
use tidegate_sim::flow_endpoints::{FlowResult, Passage};
use tidegate_sim::meter::Meter;
use tidegate_sim::runner::RunResult;
use tidegate_sim::topology::{back_of, path_of};

use super::capture::{self, CapturedPacket};
use super::netns_pair::Endpoint;

/// Waits for the thread of an endpoint, adds its events, and returns its results.
///
/// # Errors
/// Those of the thread, or its panic.
pub(super) fn join(
    worker: Endpoint,
    flow: &str,
    side: record::Side,
    events: &mut Vec<record::EventRow>,
) -> Result<FlowResult> {
    let result = worker
        .join()
        .map_err(|_| anyhow!("flow {flow:?}: the {side:?} panicked"))?;
    let (results, said) = result.with_context(|| format!("flow {flow:?}"))?;
    events.extend(said.into_iter().map(|(at, event)| record::EventRow {
        at,
        flow: flow.to_owned(),
        side,
        event,
    }));
    Ok(results)
}

/// Adds results of a kernel TCP flow that only the emulator's log has.
pub(super) fn settle(
    take: &mut RunResult,
    flow: usize,
    log: &EmulatorLog,
) -> (String, Vec<CapturedPacket>) {
    let there = capture::passings(log, path_of(flow));
    let back = capture::passings(log, back_of(flow));
    capture::meter(&mut take.meter, flow, &there, &back);
    let (instance, results) = &mut take.flows[flow];
    if let Some(record) = &mut results.stream {
        record.slots = capture::slots(&there);
    }
    if instance.plan.count == 1 {
        results.packets = capture::packets(&there);
    }
    (instance.name.clone(), there)
}

/// Counts the reports of RTP receivers, which the endpoints do not record.
pub(super) fn count_reports(take: &mut RunResult, log: &EmulatorLog) {
    for (flow, (instance, results)) in take.flows.iter().enumerate() {
        if instance.plan.media.video().is_none() || results.stream.is_some() {
            continue;
        }
        for passing in capture::passings(log, back_of(flow)) {
            if let Some((at, _)) = passing.arrived {
                take.meter.count_returned(flow, at, passing.sent);
            }
        }
    }
}

/// Adds the flow's packets to the meter. Packets that did not arrive by the end are not drops.
pub(super) fn meter(meter: &mut Meter, flow: usize, sender: &FlowResult) {
    for row in sender.packets.iter().map(packet_row) {
        if row.kind == Kind::Dummy {
            meter.dummy_sent(flow, row.sent);
            if let Some(at) = row.arrived {
                meter.dummy_arrived(flow, at);
            }
            continue;
        }
        meter.sent(flow, row.sent, row.size);
        match row.arrived {
            Some(at) => meter.arrived(flow, at, row.size, row.sent),
            None if row.outcome == record::PacketOutcome::Lost => meter.dropped(flow, row.sent),
            None => {}
        }
    }
    for passage in sender.passages.iter().filter(|passage| passage.arrived) {
        meter.count_returned(flow, passage.at, passage.sent);
    }
}

/// Packets of a modelled flow: those that the sender sent, with their arrivals at the receiver.
pub(super) fn passed(sender: &FlowResult, receiver: &FlowResult) -> Vec<PacketRow> {
    // Packets with the same send time arrive in that order, except for lost ones.
    let mut arrivals: BTreeMap<(Time, u32), VecDeque<Time>> = BTreeMap::new();
    for passage in receiver.passages.iter().filter(|passage| passage.arrived) {
        let same = arrivals.entry((passage.sent, passage.size));
        same.or_default().push_back(passage.at);
    }
    let sent = sender.passages.iter().filter(|passage| !passage.arrived);
    let row = |(seq, passage): (usize, &Passage)| {
        let same = arrivals.get_mut(&(passage.at, passage.size));
        let arrived = same.and_then(VecDeque::pop_front);
        PacketRow {
            seq: seq as u64,
            kind: passage.kind,
            size: Bytes(u64::from(passage.size)),
            sent: passage.at,
            outcome: Some(arrived.map_or(Outcome::Lost, |at| Outcome::Received {
                at: RemoteTime(at.as_nanos()),
                ecn: Ecn::NotEct,
            })),
        }
    };
    sent.enumerate().map(row).collect()
}
