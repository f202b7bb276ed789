//! Observer that records a run.

use std::sync::Arc;

use tidegate_core::session::config::PROBE_TYPE;
use tidegate_core::trace::Event;
use tidegate_core::units::Time;
use tidegate_record as record;

use super::Keep;
use super::packet_log::PacketLog;
use crate::flow_endpoints::FlowInstance;
use crate::meter::Meter;
use crate::packet_agent::Body;
use crate::scenario::Scenario;
use crate::world::{Flight, NodeId, Observer, Sample};

/// Records the events of a run.
pub(super) struct Recorder<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) flow_instances: &'a [FlowInstance],
    pub(super) keep: Keep,
    pub(super) meter: Meter,
    /// Packet log per flow instance; empty if no flow needs one, which skips the lookup.
    pub(super) logs: Vec<Option<PacketLog>>,
    pub(super) events: Vec<record::EventRow>,
    pub(super) links: record::LinkLog,
    /// Names in sample events: of the first flow instance and of the links.
    names: Vec<Arc<str>>,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(scenario: &'a Scenario, instances: &'a [FlowInstance], keep: Keep) -> Self {
        let log = |role| log(role).filter(|_| keep.packets);
        let mut logs: Vec<_> = instances.iter().map(log).collect();
        if logs.iter().all(Option::is_none) {
            logs.clear();
        }
        let first = instances.first().map_or("", |role| &role.name);
        let links = scenario.links.iter().map(|link| link.name.as_str());
        let names = core::iter::once(first).chain(links);
        Self {
            scenario,
            flow_instances: instances,
            keep,
            meter: Meter::new(instances.len(), scenario.window(), keep.bin),
            logs,
            events: Vec::new(),
            links: record::LinkLog::default(),
            names: names.map(Arc::from).collect(),
        }
    }
}

impl Observer for Recorder<'_> {
    fn event(&mut self, node: NodeId, at: Time, event: Event) {
        // Aggregation points are not part of a flow.
        let Some(role) = self.flow_instances.get(node.0 / 2) else {
            return;
        };
        // Events of multiplied flows have no reader and would dominate the run folder.
        if role.plan.count > 1 || !self.keep.events {
            return;
        }
        self.events.push(record::EventRow {
            at,
            flow: role.name.clone(),
            side: if node.0.is_multiple_of(2) {
                record::Side::Sender
            } else {
                record::Side::Receiver
            },
            event,
        });
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "so that a flight stays in registers")]
    fn sent(&mut self, at: Time, flight: Flight<'_>) {
        if flight.node.0.is_multiple_of(2) {
            let flow = flight.node.0 / 2;
            if flow >= self.flow_instances.len() {
                return;
            }
            if is_dummy(flight.body) {
                return self.meter.dummy_sent(flow, at);
            }
            self.meter.sent(flow, at, flight.size);
            if let Some(Some(log)) = self.logs.get_mut(flow) {
                log.sent(at, flight.size);
            }
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "so that a flight stays in registers")]
    fn arrived(&mut self, at: Time, flight: Flight<'_>) {
        let flow = flight.node.0 / 2;
        if flow >= self.flow_instances.len() {
            return;
        }
        let entered = entered(&flight);
        if flight.node.0.is_multiple_of(2) {
            self.meter.count_returned(flow, at, entered);
        } else if is_dummy(flight.body) {
            self.meter.dummy_arrived(flow, at);
        } else {
            self.meter.arrived(flow, at, flight.size, entered);
            if let Some(Some(log)) = self.logs.get_mut(flow) {
                log.arrived(at, entered, flight.ecn);
            }
        }
    }

    #[inline]
    fn prefetch_early(&mut self, node: NodeId) {
        self.meter.prefetch_early(node.0 / 2);
    }

    #[inline]
    fn prefetch(&mut self, node: NodeId) {
        if node.0 / 2 >= self.flow_instances.len() {
            return;
        }
        self.meter.prefetch(node.0 / 2);
    }

    /// Recorded events and packets have to be in order; counters need not be.
    fn wants_order(&self) -> bool {
        let single = self.flow_instances.iter().any(|role| role.plan.count == 1);
        !self.logs.is_empty() || self.keep.events && single
    }

    fn sample(&mut self, sample: &Sample) {
        let stats = sample.stats;
        self.links.push(record::LinkSample {
            at: sample.at,
            run: self.names[0].clone(),
            link: self.names[1 + sample.link.0].clone(),
            queue: sample.queued.bytes,
            drops: stats.queue_drops + stats.loss_drops + stats.outage_drops,
            marks: stats.marks,
            delivered: stats.delivered_bytes,
            causes: Some(record::DropCauses {
                random: stats.loss_drops,
                outage: stats.outage_drops,
            }),
        });
    }
}

/// Departure from the sender. An aggregation point sends the packets that it forwards again.
#[inline]
fn entered(flight: &Flight<'_>) -> Time {
    match flight.body {
        Body::Coordinated { sent, .. } => *sent,
        _ => flight.entered,
    }
}

#[inline]
fn is_dummy(body: &Body) -> bool {
    match body {
        Body::Data { is_dummy, .. } => *is_dummy,
        Body::Datagram(payload) => is_probe(payload),
        _ => false,
    }
}

/// Whether a datagram of a session is a probe, by its payload type.
#[inline]
fn is_probe(payload: &[u8]) -> bool {
    payload
        .get(1)
        .is_some_and(|octet| octet & 0x7f == PROBE_TYPE.get())
}

/// Packet log of a single modelled flow. Endpoints log their own packets, and multiplied flows are
/// only counted.
fn log(role: &FlowInstance) -> Option<PacketLog> {
    let mut rtp = role.plan.media.video().into_iter();
    let modelled = rtp.all(|video| video.stream.is_some());
    (role.plan.count == 1 && modelled).then(PacketLog::default)
}
