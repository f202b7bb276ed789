//! The sending application: a camera, an encoder, and a socket.

use core::time::Duration;
use std::collections::VecDeque;

use tidegate_core::control::Why;
use tidegate_core::media::{EncodeError, FrameEncoder, FrameOrder, MEDIA_CLOCK};
use tidegate_core::session::assembler::ReceivedFrame;
use tidegate_core::session::sender::SentFrame;
use tidegate_core::symbiosis::{Admit, Symbiosis, TcpEvent, TcpView};
use tidegate_core::trace::{DropCause, Event};
use tidegate_core::units::{Bytes, Rate, Time};

use super::record::{Record, Sample};
use super::transport::Transport;
use super::{Backlog, StreamPlan};
use crate::agent::{Agent, AgentCx, Arrival, Body};
use crate::cast::Takings;
use crate::scenario::{FlowPlan, VideoPlan};
use crate::tcp::Sink;

/// Sends video over TCP.
#[derive(Debug)]
pub struct Sender {
    plan: StreamPlan,
    video: VideoPlan,
    transport: Transport,
    symbiosis: Symbiosis,
    encoder: Box<dyn FrameEncoder>,
    start: Time,
    /// The next frame, and how many there will be.
    next: u64,
    frames: u64,
    /// Captured, and not all of it written.
    waiting: VecDeque<Waiting>,
    /// The next frame that is encoded has to be a key frame.
    key: bool,
    rows: Vec<Row>,
    record: Record,
    blocked_since: Option<Time>,
    sampled: Time,
    error: Option<EncodeError>,
}

/// A frame that waits.
#[derive(Debug)]
struct Waiting {
    frame: u64,
    captured: Time,
    /// Bytes that are not written; none while it is a picture.
    left: Option<u64>,
}

/// A frame, and where it is in the stream.
#[derive(Debug)]
struct Row {
    sent: SentFrame,
    /// One after the segments that carry its first and its last byte.
    segments: Option<(u32, u32)>,
    data: Vec<u8>,
}

impl Sender {
    /// A sender of the flow `flow`, whose video is `video`.
    pub fn new(
        flow: &FlowPlan,
        video: &VideoPlan,
        plan: &StreamPlan,
        encoder: Box<dyn FrameEncoder>,
    ) -> Self {
        let start = Time::ZERO + flow.start;
        let lasts = flow.stop.saturating_sub(flow.start);
        let interval = video.frame_rate.interval();
        let possible = (lasts.as_nanos() / interval.as_nanos().max(1)) as u64;
        let symbiosis = Symbiosis::new(plan.symbiosis(video), start);
        let record = Record {
            targets: vec![(start, symbiosis.target())],
            ..Record::default()
        };
        Self {
            transport: Transport::new(&plan.tcp.sender, flow.ecn, start),
            symbiosis,
            encoder,
            start,
            next: 0,
            frames: plan.frames.map_or(possible, |frames| frames.min(possible)),
            waiting: VecDeque::new(),
            key: true,
            rows: Vec::new(),
            record,
            blocked_since: None,
            sampled: start,
            error: None,
            plan: plan.clone(),
            video: video.clone(),
        }
    }

    /// Why the encoder gave up, if it did.
    pub fn error(&self) -> Option<&EncodeError> {
        self.error.as_ref()
    }

    /// Moves all into `takings`, at the end. `sink` is its receiver.
    pub fn finish(mut self, sink: &Sink, takings: &mut Takings) {
        for waiting in &self.waiting {
            let row = &mut self.rows[waiting.frame as usize].sent;
            row.skipped |= waiting.left.is_none();
            row.dropped = Some(DropCause::Ended);
        }
        for row in self.rows {
            if let Some((first, last)) = row.segments
                && let Some(came) = sink.delivered(first)
            {
                takings.received.push(ReceivedFrame {
                    timestamp: u64::from(row.sent.timestamp),
                    key: row.sent.key,
                    first: came,
                    complete: sink.delivered(last),
                    data: row.data,
                    bytes: row.sent.bits / 8,
                });
            }
            takings.sent.push(row.sent);
        }
        self.record.fill(self.transport.segments(), sink);
        self.record.told = TcpEvent::ALL.iter().map(|e| self.symbiosis.count(*e)).sum();
        if let Some(since) = self.blocked_since {
            self.record.blocked.push((since, Time::FAR));
        }
        takings.stream = Some(self.record);
    }

    fn due(&self) -> Time {
        if self.next >= self.frames || self.error.is_some() {
            return Time::FAR;
        }
        self.start + self.video.frame_rate.at(self.next)
    }

    /// Tells what happened inside of the connection.
    fn tell(&mut self, cx: &mut AgentCx<'_>, events: &[TcpEvent]) {
        for event in events {
            let view = self.transport.view(cx.now);
            self.record.events.push((cx.now, *event));
            if *event != TcpEvent::NewAck {
                self.sample(cx.now, &view);
            }
            self.symbiosis.on_event(cx.now, *event, &view);
        }
        let answers = self.symbiosis.take_answers();
        for answer in &answers {
            cx.record(Event::Plan {
                media: answer.rate,
                capacity: view_rate(&self.transport.view(cx.now)),
                backlog: answer.backlog,
                budget: self.video.delay_bound,
                feasible: answer.feasible,
            });
        }
        self.record.answers.extend(answers);
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
        self.symbiosis.on_timer(cx.now);
        while self.due() <= cx.now {
            self.capture();
        }
        self.pump(cx);
        self.note_target(cx);
        let view = self.transport.view(cx.now);
        if cx.now.since(self.sampled) >= SAMPLE {
            self.sample(cx.now, &view);
        }
        let blocked = !view.has_room(cx.now) || !self.waiting.is_empty();
        match (blocked, self.blocked_since) {
            (true, None) => self.blocked_since = Some(cx.now),
            (false, Some(since)) => {
                self.record.blocked.push((since, cx.now));
                self.blocked_since = None;
            }
            _ => {}
        }
    }

    fn note_target(&mut self, cx: &mut AgentCx<'_>) {
        let target = self.symbiosis.target();
        if let Some((_, last)) = self.record.targets.last()
            && *last != target
        {
            let from = *last;
            cx.record(Event::RateChanged { from, to: target });
            self.record.targets.push((cx.now, target));
        }
    }

    fn capture(&mut self) {
        let (frame, captured) = (self.next, self.due());
        self.next += 1;
        let clock = self.video.frame_rate.at(frame).as_nanos() * u128::from(MEDIA_CLOCK);
        self.rows.push(Row {
            sent: SentFrame {
                frame,
                timestamp: (clock / 1_000_000_000) as u32,
                captured,
                key: false,
                skipped: false,
                target_bits: 0,
                bits: 0,
                left: None,
                dropped: None,
                quality: None,
            },
            segments: None,
            data: Vec::new(),
        });
        let left = match self.plan.backlog {
            Backlog::Pictures => None,
            Backlog::Frames | Backlog::Socket => Some(self.encode(frame, self.symbiosis.target())),
        };
        self.waiting.push_back(Waiting {
            frame,
            captured,
            left,
        });
    }

    /// Returns the size on the stream; nothing if the encoder failed.
    fn encode(&mut self, frame: u64, rate: Rate) -> u64 {
        let row = &mut self.rows[frame as usize];
        let order = FrameOrder {
            frame,
            captured: row.sent.captured,
            rate,
            key: core::mem::take(&mut self.key),
        };
        match self.encoder.encode(&order) {
            Ok(made) => {
                let interval = self.video.frame_rate.interval();
                row.sent.target_bits = (rate * interval).bits();
                row.sent.bits = Bytes(made.data.len() as u64).bits();
                row.sent.key = made.key;
                row.sent.quality = made.quality;
                row.data = made.data;
                row.data.len() as u64 + FRAMING
            }
            Err(error) => {
                if error != EncodeError::EndOfSource {
                    self.error.get_or_insert(error);
                }
                self.frames = self.frames.min(frame);
                0
            }
        }
    }

    /// Writes what the connection should have, and drops what is of no use any more.
    fn pump(&mut self, cx: &mut AgentCx<'_>) {
        while let Some(front) = self.waiting.front() {
            let (frame, captured, left) = (front.frame, front.captured, front.left);
            let view = self.transport.view(cx.now);
            let left = match (left, self.plan.backlog) {
                (None, _) => match self.symbiosis.admit(cx.now, captured, &view) {
                    Admit::Make(rate) => self.encode(frame, rate),
                    Admit::Skip => {
                        let hopeless = self.symbiosis.is_hopeless(cx.now, captured, &view);
                        self.skip(cx, frame, hopeless);
                        continue;
                    }
                    Admit::Wait => return,
                },
                (Some(_), Backlog::Frames)
                    if self.symbiosis.is_hopeless(cx.now, captured, &view) =>
                {
                    self.give_up(cx);
                    continue;
                }
                (Some(_), Backlog::Frames) if !view.has_room(cx.now) => return,
                (Some(left), _) => left,
            };
            if left == 0 {
                // The source has ended.
                self.waiting.clear();
                self.rows.truncate(frame as usize);
                return;
            }
            if !self.write(cx, frame, left) {
                return;
            }
        }
    }

    /// Whether the connection took it: it does once it is open.
    fn write(&mut self, cx: &mut AgentCx<'_>, frame: u64, bytes: u64) -> bool {
        let written = self.transport.write(cx, bytes);
        if written.accepted == 0 {
            self.waiting[0].left = Some(bytes);
            return false;
        }
        // The first byte is in the segment after those that hold what was written before.
        let payload = self.transport.view(cx.now).mss.get().max(1);
        let spans = bytes.div_ceil(payload) as u32;
        let first = written
            .segment
            .saturating_sub(spans.saturating_sub(1))
            .max(1);
        let row = &mut self.rows[frame as usize];
        row.segments = Some((first, written.segment));
        row.sent.left = Some(cx.now);
        self.waiting.pop_front();
        true
    }

    /// Leaves a picture out before it costs a bit.
    fn skip(&mut self, cx: &mut AgentCx<'_>, frame: u64, hopeless: bool) {
        let cause = if hopeless {
            DropCause::Late
        } else {
            DropCause::Skipped
        };
        let row = &mut self.rows[frame as usize].sent;
        row.skipped = true;
        row.dropped = Some(cause);
        cx.record(Event::FrameDropped { frame, cause });
        self.waiting.pop_front();
    }

    /// Drops the oldest encoded frame, and those that wait and refer to it.
    fn give_up(&mut self, cx: &mut AgentCx<'_>) {
        let mut cause = DropCause::Late;
        while let Some(front) = self.waiting.front() {
            let frame = front.frame;
            let row = &mut self.rows[frame as usize].sent;
            if cause == DropCause::Reference && row.key {
                return;
            }
            row.dropped = Some(cause);
            cx.record(Event::FrameDropped { frame, cause });
            self.waiting.pop_front();
            cause = DropCause::Reference;
        }
        self.key = true;
    }
}

impl Agent for Sender {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: Body) {
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
        let own = self.due().min(self.symbiosis.next_timer());
        self.transport.next_timer().min(own)
    }

    fn why(&self) -> Option<Why> {
        Some(Why::Schedule)
    }
}

fn view_rate(view: &TcpView) -> Rate {
    view.cwnd / view.path().rtt
}

/// Length and time stamp of each frame on the stream.
pub const FRAMING: u64 = 8;
/// The state of the connection is kept at this distance.
const SAMPLE: Duration = Duration::from_millis(50);
