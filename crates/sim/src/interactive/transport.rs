//! A TCP model as seen by an application: a socket, its state, and events.

use core::time::Duration;

use tidegate_core::control::Ecn;
use tidegate_core::tcp_rate::{CongestionControl, TcpEvent, TcpView};
use tidegate_core::units::{Bytes, Rate, Time};

use crate::packet_agent::{Agent as _, AgentCx, Arrival, Body};
use crate::scenario::TcpSender;
use crate::tcp::modern::{Algorithm, BbrMode, Congestion as _};
use crate::tcp::{SourceConfig, SourceKind, classic, modern};

/// A TCP sender of either kind.
#[derive(Debug)]
pub(super) struct Transport {
    sender: Model,
    /// Payload of a full segment, and the receive window in segments.
    mss: u32,
    window: u32,
    /// Set after a timeout, while no segment from this number on is acknowledged.
    stalled: Option<u32>,
    /// Time of the last acknowledgement, or of the first transmission with nothing in flight.
    last_ack: Time,
    /// Last known value; the models discard it after many timeouts.
    srtt: Duration,
    /// First transmission and payload of each segment, by number.
    segments: Vec<(Time, u32)>,
}

#[derive(Debug)]
enum Model {
    Classic(Box<classic::Sender>),
    Modern(Box<modern::Sender>),
}

/// State by which changes of the sender are detected.
#[derive(Clone, Copy)]
struct Snapshot {
    acks: u64,
    acked: u32,
    timeouts: u64,
    repairs: u64,
    recovering: bool,
    slow: bool,
}

impl Transport {
    /// Opens a connection at `start` for an application that writes.
    pub(super) fn new(plan: &TcpSender, ecn: Ecn, start: Time) -> Self {
        let ecn = ecn.is_capable();
        let source = SourceConfig {
            kind: SourceKind::Stream { buffer: u64::MAX },
            start,
            stop: Time::FAR,
        };
        let (sender, packet, header, window) = match plan {
            TcpSender::Classic(config) => {
                let config = classic::Config { ecn, ..*config };
                let sender = classic::Sender::new(&config, &source);
                let model = Model::Classic(Box::new(sender));
                (model, config.packet_size, config.header_size, config.window)
            }
            TcpSender::Modern(config) => {
                let config = modern::Config { ecn, ..**config };
                let sender = modern::Sender::new(&config, &source);
                let sender = sender.expect("the plan has been validated");
                let model = Model::Modern(Box::new(sender));
                (model, config.packet_size, config.header_size, config.window)
            }
        };
        Self {
            sender,
            mss: packet.saturating_sub(header).max(1),
            window,
            stalled: None,
            last_ack: start,
            srtt: Duration::ZERO,
            segments: Vec::new(),
        }
    }

    pub(super) fn on_packet(
        &mut self,
        cx: &mut AgentCx<'_>,
        arrival: Arrival,
        body: &mut Body,
    ) -> Vec<TcpEvent> {
        self.watch(cx, |sender, cx| match sender {
            Model::Classic(sender) => sender.on_packet(cx, &arrival, body),
            Model::Modern(sender) => sender.on_packet(cx, &arrival, body),
        })
    }

    pub(super) fn on_timer(&mut self, cx: &mut AgentCx<'_>) -> Vec<TcpEvent> {
        self.watch(cx, |sender, cx| match sender {
            Model::Classic(sender) => sender.on_timer(cx),
            Model::Modern(sender) => sender.on_timer(cx),
        })
    }

    pub(super) fn next_timer(&self) -> Time {
        match &self.sender {
            Model::Classic(sender) => sender.next_timer(),
            Model::Modern(sender) => sender.next_timer(),
        }
    }

    /// Accepts all of `bytes`, or none before the connection is open. Returns the number accepted.
    pub(super) fn write(&mut self, cx: &mut AgentCx<'_>, bytes: u64) -> u64 {
        if self.view(cx.now).unacked == Bytes::ZERO {
            self.last_ack = cx.now;
        }
        let written = match &mut self.sender {
            Model::Classic(sender) => sender.write(cx, bytes),
            Model::Modern(sender) => sender.write(cx, bytes),
        };
        self.note_segments(cx.now);
        written.accepted
    }

    /// First transmission and payload of each segment, by number. Number 0 is the SYN.
    pub(super) fn segments(&self) -> &[(Time, u32)] {
        &self.segments
    }

    /// State of the connection.
    pub(super) fn view(&self, now: Time) -> TcpView {
        let state = self.state();
        let source = match &self.sender {
            Model::Classic(sender) => sender.source(),
            Model::Modern(sender) => sender.source(),
        };
        let (unsent, unacked, written) = source.stream().map_or((0, 0, 0), |stream| {
            (stream.unsent(), stream.unacked(), stream.written())
        });
        let segments = |n: f64| {
            let n = n.min(f64::from(self.window)) as u64;
            Bytes(n * u64::from(self.mss))
        };
        TcpView {
            control: self.control(now),
            mss: Bytes(u64::from(self.mss)),
            srtt: self.srtt,
            cwnd: segments(state.cwnd.max(1.0)),
            ssthresh: segments(state.ssthresh),
            unacked: Bytes(unacked - unsent),
            unsent: Bytes(unsent),
            sent: Bytes(written - unsent),
            next_timeout: match &self.sender {
                Model::Classic(sender) => sender.next_timeout(),
                Model::Modern(sender) => sender.next_timeout(),
            },
            unacked_since: (unacked > unsent).then_some(self.last_ack),
            stalled: self.stalled.is_some(),
            oldest_sent: None,
            resumed: None,
        }
    }

    fn control(&self, now: Time) -> CongestionControl {
        let Model::Modern(sender) = &self.sender else {
            return CongestionControl::Reno;
        };
        match sender.algorithm() {
            // Prague grows, and reacts to losses, as Reno does. Reductions for marks are small.
            Algorithm::Prague(_) | Algorithm::Reno(_) => CongestionControl::Reno,
            Algorithm::Cubic(_) => CongestionControl::Cubic,
            Algorithm::Bbr(bbr) => CongestionControl::Bbr {
                bandwidth: bbr.pacing().map_or(Rate::ZERO, |pacing| {
                    // The delivery rate, limited by the pacing rate, which is lower in recovery and
                    // in startup.
                    let payload = u64::from(self.mss);
                    let packet = payload + HEADERS;
                    bbr.bandwidth().min(pacing).scale(payload, packet)
                }),
                min_rtt: bbr.min_rtt().unwrap_or_default(),
                next_probe: bbr.next_probe(now),
                starting: bbr.mode() == BbrMode::Startup,
            },
        }
    }

    fn state(&self) -> crate::tcp::State {
        match &self.sender {
            Model::Classic(sender) => sender.state(),
            Model::Modern(sender) => sender.state(),
        }
    }

    fn snapshot(&self) -> Snapshot {
        let counters = match &self.sender {
            Model::Classic(sender) => sender.counters(),
            Model::Modern(sender) => sender.counters(),
        };
        let state = self.state();
        Snapshot {
            acks: counters.acks,
            acked: counters.acked,
            timeouts: counters.timeouts,
            repairs: counters.fast_retransmits,
            recovering: state.recovering,
            slow: state.cwnd < state.ssthresh,
        }
    }

    /// Runs `act` on the sender and returns the resulting events of Table 1.
    fn watch(
        &mut self,
        cx: &mut AgentCx<'_>,
        what: impl FnOnce(&mut Model, &mut AgentCx<'_>),
    ) -> Vec<TcpEvent> {
        //= itcp-2.2-events
        let before = self.snapshot();
        what(&mut self.sender, cx);
        let after = self.snapshot();
        self.note_segments(cx.now);
        if after.acks > before.acks {
            self.last_ack = cx.now;
        }
        if let Some(srtt) = self.state().srtt {
            self.srtt = srtt;
        }
        if after.timeouts > before.timeouts {
            self.stalled = Some(after.acked);
        } else if self.stalled.is_some_and(|una| after.acked > una) {
            self.stalled = None;
        }
        let ack = after.acks > before.acks;
        let new = after.acked > before.acked;
        let happened = |event| match event {
            TcpEvent::TimedOut => after.timeouts > before.timeouts,
            TcpEvent::NewAck => new && !before.recovering,
            TcpEvent::ThresholdReached => before.slow && !after.slow && new,
            TcpEvent::ThirdDuplicate => after.repairs > before.repairs,
            TcpEvent::FurtherDuplicate => ack && !new && before.recovering && after.recovering,
            TcpEvent::Repaired => new && before.recovering && !after.recovering,
        };
        let events = TcpEvent::ALL.into_iter();
        events.filter(|event| happened(*event)).collect()
    }

    fn note_segments(&mut self, now: Time) {
        let source = match &self.sender {
            Model::Classic(sender) => sender.source(),
            Model::Modern(sender) => sender.source(),
        };
        let Some(stream) = source.stream() else {
            return;
        };
        for seq in self.segments.len() as u32..stream.sent() {
            let header = source.wire_size(0);
            let payload = source.wire_size(seq).saturating_sub(header);
            self.segments.push((now, payload));
        }
    }
}

/// IPv4 and TCP with timestamps, as in the modern model.
const HEADERS: u64 = 52;
