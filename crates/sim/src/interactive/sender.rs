//! Driver of a [`TcpStreamer`] over a TCP model.

use core::time::Duration;

use tidegate_core::control::{Context, TimerReason};
use tidegate_core::endpoint::{Endpoint, Input, Output, StreamInput};
use tidegate_core::media::{EncodeError, FrameEncoder};
use tidegate_core::session::sender::SentFrame;
use tidegate_core::session::stream::Direct;
use tidegate_core::session::tcp::TcpStreamer;
use tidegate_core::tcp_rate::{TcpEvent, TcpView};
use tidegate_core::trace::Event;
use tidegate_core::units::{Bytes, Time};
use tidegate_core::wire::ntp::Ntp;

use super::StreamPlan;
use super::record::{Record, Sample};
use super::transport::Transport;
use crate::flow_endpoints::FlowResult;
use crate::packet_agent::{Agent, AgentCx, Arrival, Body};
use crate::scenario::{FlowPlan, VideoPlan};
use crate::tcp::Sink;

/// Sends video over TCP.
#[derive(Debug)]
pub struct Sender {
    streamer: TcpStreamer<Direct<Box<dyn FrameEncoder>>>,
    transport: Transport,
    /// Bytes written, in pieces; the model carries lengths only.
    stream: Vec<Box<[u8]>>,
    rows: Vec<SentFrame>,
    events: Vec<(Time, Event)>,
    record: Record,
    blocked_since: Option<Time>,
    sampled: Time,
}

impl Sender {
    /// A sender of `flow` with the video `video`.
    pub fn new(
        flow: &FlowPlan,
        video: &VideoPlan,
        plan: &StreamPlan,
        encoder: Box<dyn FrameEncoder>,
    ) -> Self {
        let start = Time::ZERO + flow.start;
        let sender = plan.sender(flow, video, Ntp(0));
        let record = Record {
            targets: vec![(start, sender.target())],
            ..Record::default()
        };
        Self {
            streamer: TcpStreamer::new(sender, Direct::new(encoder)),
            transport: Transport::new(&plan.tcp.sender, flow.ecn, start),
            stream: Vec::new(),
            rows: Vec::new(),
            events: Vec::new(),
            record,
            blocked_since: None,
            sampled: start,
        }
    }

    /// Error of a failed encoder.
    pub fn error(&self) -> Option<&EncodeError> {
        self.streamer.error()
    }

    /// Moves all records into `result` at the end, at `now`. `sink` is the receiver of the
    /// connection.
    pub fn finish(mut self, now: Time, sink: &Sink, result: &mut FlowResult) {
        let sender = &mut self.streamer.sender;
        sender.on_closed(now);
        sender.drain(&mut self.rows, &mut self.events);
        self.rows.sort_by_key(|row| row.frame);
        self.record.rate_reductions = sender.take_rate_reductions();
        self.record.note_frames(&self.rows);
        self.record.fill(self.transport.segments(), sink);
        if let Some(since) = self.blocked_since {
            self.record.blocked.push((since, Time::FAR));
        }
        result
            .received
            .extend(self.record.received_frames(self.stream));
        result.sent.append(&mut self.rows);
        result.stream = Some(self.record);
    }

    /// Delivers the events of the connection to the application.
    fn tell(&mut self, cx: &mut AgentCx<'_>, events: &[TcpEvent]) {
        if events.is_empty() {
            return;
        }
        let now = cx.now;
        let subscribed = self.streamer.sender.subscribed();
        let view = self.transport.view(now);
        for event in events {
            self.record.events.push((now, *event));
            if *event != TcpEvent::NewAck {
                self.sample(now, &view);
            }
            if subscribed.contains(*event) {
                self.record.delivered += 1;
                pass(
                    &mut self.streamer,
                    cx,
                    StreamInput::Event(event.at(now), &view),
                );
            }
        }
    }

    fn sample(&mut self, now: Time, view: &TcpView) {
        self.sampled = now;
        self.record.samples.push(Sample {
            at: now,
            cwnd: view.cwnd,
            ssthresh: view.ssthresh,
            srtt: view.srtt,
            backlog: view.backlog(),
        });
    }

    fn turn(&mut self, cx: &mut AgentCx<'_>) {
        loop {
            let view = self.transport.view(cx.now);
            let queue = StreamInput::Queue {
                unsent: view.unsent,
                unacknowledged: view.unacked,
            };
            pass(&mut self.streamer, cx, queue);
            pass(&mut self.streamer, cx, StreamInput::View(&view));
            let mut context = context(cx);
            self.streamer.handle(&mut context, Input::Timeout);
            let mut bytes = Vec::new();
            let output = self.streamer.poll(&mut context, &mut bytes);
            if output != Output::Write || !self.write(cx, &bytes) {
                break self.note(cx, &view);
            }
        }
    }

    /// Returns whether the connection accepted data. An open connection accepts everything.
    fn write(&mut self, cx: &mut AgentCx<'_>, bytes: &[u8]) -> bool {
        let count = self.transport.write(cx, bytes.len() as u64) as usize;
        pass(&mut self.streamer, cx, StreamInput::Written(count));
        if count > 0 {
            self.stream.push(bytes[..count].into());
        }
        count > 0
    }

    /// Records the decisions of the sender and the state of the connection.
    fn note(&mut self, cx: &mut AgentCx<'_>, view: &TcpView) {
        let sender = &mut self.streamer.sender;
        sender.drain(&mut self.rows, &mut self.events);
        for (_, event) in self.events.drain(..) {
            cx.record(event);
        }
        let target = sender.target();
        if self.record.targets.last().is_some_and(|l| l.1 != target) {
            self.record.targets.push((cx.now, target));
        }
        let waits = sender.waits_for_room() || sender.backlog().queued > Bytes(0);
        match (!view.has_room(cx.now) || waits, self.blocked_since) {
            (true, None) => self.blocked_since = Some(cx.now),
            (false, Some(since)) => {
                self.record.blocked.push((since, cx.now));
                self.blocked_since = None;
            }
            _ => {}
        }
        if cx.now.since(self.sampled) >= SAMPLE {
            self.sample(cx.now, view);
        }
    }
}

impl Agent for Sender {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: &mut Body) {
        let events = self.transport.on_packet(cx, *arrival, body);
        self.tell(cx, &events);
        self.turn(cx);
    }

    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        if self.transport.next_timer() <= cx.now {
            let events = self.transport.on_timer(cx);
            self.tell(cx, &events);
        }
        self.turn(cx);
    }

    fn next_timer(&self) -> Time {
        let own = self.streamer.sender.next_timeout().unwrap_or(Time::FAR);
        self.transport.next_timer().min(own)
    }

    fn why(&self) -> Option<TimerReason> {
        Some(TimerReason::Schedule)
    }
}

fn pass(streamer: &mut impl Endpoint, cx: &mut AgentCx<'_>, input: StreamInput<'_>) {
    streamer.handle(&mut context(cx), Input::Stream(input));
}

fn context<'a>(cx: &'a mut AgentCx<'_>) -> Context<'a> {
    Context {
        now: cx.now,
        rng: cx.rng,
        trace: cx.trace,
    }
}

/// Sampling interval of the connection.
const SAMPLE: Duration = Duration::from_millis(50);
