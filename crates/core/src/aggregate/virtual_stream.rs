//! The virtual packet stream of one flowshare, and its controller.
//!
//! A controller of this crate runs at a sender: it sees packets leave, and their outcomes a round
//! trip later. Here it runs at the receiving point. As many virtual packets as one flow would have
//! in flight have always been sent; each event of the stream is the outcome of the oldest one, and
//! sends the next.

use core::time::Duration;

use super::gaps::PacketEvent;
use crate::control::{
    Algorithm as _, Change, Context, Demand, FlowId, Kind, Outcome, PacketOutcome, RateControl,
    Report, Sent, Start, TimerReason,
};
use crate::controller::{ControllerConfig, Feedback};
use crate::units::{Bytes, Rate, RemoteTime, Time};
use crate::wire::cp::Shares;

/// A controller that is driven by sampled packet events.
#[derive(Debug)]
pub(super) struct VirtualStream {
    controller: RateControl,
    reporting: Reporting,
    /// Flowshares that MulTFRC controls together; `None` for controllers of one flow.
    joint: Option<u32>,
    /// Next virtual packet to send, and next one whose outcome is open.
    sent: u64,
    settled: u64,
    /// Outcomes since the latest report.
    batch: Vec<PacketOutcome>,
    reported: Time,
    /// Latest report that was caused by a loss.
    expedited: Option<Time>,
}

/// Times at which the controller gets a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reporting {
    /// At each event.
    EachPacket,
    /// Once per round trip, and at a loss a round trip after the previous one, as TFRC receivers
    /// report.
    EachRoundTrip,
}

/// State of the path for the next event.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathView {
    /// Smoothed round-trip time, once known.
    pub(super) rtt: Option<Duration>,
    /// Bandwidth of the stream.
    pub(super) rate: Rate,
    /// Mean size of a packet.
    pub(super) size: Bytes,
    /// Flowshares whose packets are in the stream.
    pub(super) shares: Shares,
}

impl VirtualStream {
    /// A stream of packets of this size, which begins now.
    pub(super) fn new(control: &ControllerConfig, now: Time, size: Bytes) -> Self {
        let properties = control.properties();
        let mut start = Start::new(now, size, demand(1));
        let reporting = match properties.feedback {
            Feedback::EachRoundTrip | Feedback::OnArrival => {
                start.report_interval = Some(Duration::ZERO);
                Reporting::EachRoundTrip
            }
            Feedback::EachPacket | Feedback::Times => {
                start.report_interval = Some(PATIENCE);
                Reporting::EachPacket
            }
        };
        Self {
            controller: control.start(&start),
            reporting,
            joint: properties.joins_shares.then_some(1),
            sent: 0,
            settled: 0,
            batch: Vec::new(),
            reported: now,
            expedited: None,
        }
    }

    /// Available bandwidth of one flowshare.
    pub(super) fn available(&self) -> Rate {
        let rate = self.controller.target().send;
        rate.scale(1, self.joint.unwrap_or(1).into())
    }

    /// A packet of the stream arrived or was lost. Returns whether a report is due.
    pub(super) fn on_event(
        &mut self,
        cx: &mut Context<'_>,
        event: PacketEvent,
        path: PathView,
    ) -> bool {
        let shares = u32::from(path.shares.get());
        if self.joint.is_some_and(|joint| joint != shares) {
            self.joint = Some(shares);
            let change = Change::Demand(demand(shares));
            self.controller.on_change(cx, &change);
        }
        self.send(cx, path);
        let rtt = path.rtt.unwrap_or_default();
        let (at, outcome) = match event {
            PacketEvent::Lost(at) => (at, Outcome::Lost),
            PacketEvent::Received(arrival) => {
                let at = RemoteTime(arrival.at.as_nanos());
                let ecn = arrival.ecn;
                (arrival.at, Outcome::Received { at, ecn })
            }
        };
        self.batch.push(PacketOutcome {
            flow: FlowId(0),
            seq: self.settled,
            size: path.size,
            sent: at.before(rtt),
            outcome,
        });
        self.settled += 1;
        if self.batch.len() >= MAX_OUTCOMES || self.reporting == Reporting::EachPacket {
            return true;
        }
        let is_loss = outcome == Outcome::Lost;
        let recent = self.expedited.is_some_and(|last| cx.now.since(last) < rtt);
        if is_loss && !recent {
            self.expedited = Some(cx.now);
            return true;
        }
        self.is_due(cx.now, rtt)
    }

    /// Whether a round trip has passed since the latest report.
    fn is_due(&self, now: Time, rtt: Duration) -> bool {
        !self.batch.is_empty() && now.since(self.reported) >= rtt
    }

    /// Virtual packets in flight of a flow with the bandwidth of the stream.
    fn send(&mut self, cx: &mut Context<'_>, path: PathView) {
        let window = path.rate * path.rtt.unwrap_or_default();
        let window = window.get() / path.size.get().max(1);
        let window = window.clamp(1, MAX_IN_FLIGHT);
        while self.sent - self.settled < window {
            let packet = Sent {
                flow: FlowId(0),
                seq: self.sent,
                size: path.size,
                kind: Kind::Media,
                app_limited: false,
            };
            self.controller.on_sent(cx, &packet);
            self.sent += 1;
        }
    }

    /// Gives the controller the outcomes since the latest report.
    pub(super) fn report(&mut self, cx: &mut Context<'_>, rtt: Option<Duration>) {
        let mut report = Report::new(&self.batch);
        report.rtt = rtt;
        self.controller.on_report(cx, &report);
        self.batch.clear();
        self.reported = cx.now;
    }

    /// Runs the controller's timer if it is due.
    pub(super) fn on_timeout(&mut self, cx: &mut Context<'_>) {
        if self
            .controller
            .next_timeout()
            .is_some_and(|(at, _)| at <= cx.now)
        {
            self.controller.on_timeout(cx);
        }
    }

    /// Whether outcomes have waited for a round trip.
    pub(super) fn is_overdue(&self, now: Time, rtt: Option<Duration>) -> bool {
        self.is_due(now, rtt.unwrap_or_default())
    }

    /// Next deadline of the controller or of a report.
    pub(super) fn deadline(&self, rtt: Option<Duration>) -> Time {
        let timer: Option<(Time, TimerReason)> = self.controller.next_timeout();
        let timer = timer.map_or(Time::FAR, |(at, _)| at);
        if self.batch.is_empty() {
            return timer;
        }
        timer.min(self.reported + rtt.unwrap_or_default())
    }
}

/// Demand for as much as the path allows to this number of flowshares.
fn demand(shares: u32) -> Demand {
    Demand {
        floor: Rate::ZERO,
        ceiling: Rate::MAX,
        shares,
    }
}

/// RAP takes a packet for lost whose report is overdue. Events of the virtual stream are less regular
/// than the reports of a paced flow, because the flows of the application are not coordinated.
const PATIENCE: Duration = Duration::from_secs(1);
/// Outcomes in a report: more packets than a flowshare has in a round trip are reported in parts.
const MAX_OUTCOMES: usize = 4_096;
/// Half of the packets that TFRC can have in flight.
const MAX_IN_FLIGHT: u64 = 8_192;
