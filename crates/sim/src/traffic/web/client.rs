//! The browser's side: thinks, asks, receives.

use core::time::Duration;
use std::sync::Arc;

use tidegate_core::control::{Ecn, Why};
use tidegate_core::random::unit;
use tidegate_core::units::Time;

use super::config::{Config, Connections};
use crate::agent::{Agent, AgentCx, Arrival, Body, Request, Segment};
use crate::tcp::Sink;
use crate::traffic::{Spans, secs};

/// A browser and the person before it.
///
/// It starts in the middle of a think time, so that many who start together do not ask together,
/// and ask as often as later on.
#[derive(Clone, Debug)]
pub struct Client {
    config: Arc<Config>,
    stage: Stage,
    /// When to do something by itself.
    wake: Time,
    request: Request,
    /// How long to wait for an answer before the request is repeated.
    patience: Duration,
    /// Objects of this page that were not asked for yet.
    waiting: u32,
    page_began: Time,
    /// Counts segments of this connection from zero.
    sink: Sink,
    /// The first segment of the present object, as the sink counts.
    begin: u32,
    /// The object is complete when the sink waits for this segment.
    end: u32,
    counters: ClientCounters,
    page_times: Spans,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not begun.
    Absent,
    /// Asked, and heard nothing so far.
    Asking,
    Receiving,
    Thinking,
}

/// What a client counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounters {
    /// Pages that arrived whole.
    pub pages: u64,
    /// Objects that arrived whole.
    pub objects: u64,
    /// Their payload.
    pub bytes: u64,
    /// Requests that were sent again.
    pub repeated: u64,
    /// Segments that arrived, those included that came twice or too late.
    pub segments: u64,
}

impl Client {
    pub(super) fn new(config: Arc<Config>) -> Self {
        Self {
            stage: Stage::Absent,
            wake: Time::ZERO,
            request: Request {
                number: 0,
                first: 0,
                bytes: 0,
            },
            patience: config.retry,
            waiting: 0,
            page_began: Time::ZERO,
            sink: Sink::new(&config.sink),
            begin: 0,
            end: 0,
            counters: ClientCounters::default(),
            page_times: Spans::default(),
            config,
        }
    }

    /// What it counted.
    pub fn counters(&self) -> ClientCounters {
        self.counters
    }

    /// From the first request to the last byte, of pages that arrived whole.
    pub fn page_times(&self) -> &Spans {
        &self.page_times
    }

    fn think(&mut self, now: Time, seconds: f64) {
        self.stage = Stage::Thinking;
        self.wake = now + secs(seconds);
    }

    fn begin_page(&mut self, cx: &mut AgentCx<'_>) {
        let objects = self.config.objects.draw(cx.rng) + unit(cx.rng);
        self.waiting = (objects as u32).clamp(1, MOST_OBJECTS);
        self.page_began = cx.now;
        self.begin_object(cx, true);
    }

    fn begin_object(&mut self, cx: &mut AgentCx<'_>, fresh: bool) {
        self.waiting -= 1;
        self.begin = self.end;
        if fresh {
            // Acknowledgements of the connection before name `end` at most.
            self.request.first += self.end + 1;
            self.sink = Sink::new(&self.config.sink);
            self.begin = 0;
            // Segment zero may stand for the SYN.
            self.end = u32::from(self.config.tcp.syn);
        }
        self.request.number += 1;
        self.request.bytes = self.config.object(self.config.size.draw(cx.rng));
        self.end += self.config.segments(self.request.bytes);
        self.patience = self.config.retry;
        self.stage = Stage::Asking;
        self.ask(cx);
    }

    fn ask(&mut self, cx: &mut AgentCx<'_>) {
        cx.send(
            self.config.request,
            Ecn::NotEct,
            Body::Request(self.request),
        );
        self.wake = cx.now + self.patience;
        self.patience = self.patience.saturating_mul(2).min(MOST_PATIENCE);
    }

    /// Lets the sink act, and gives its acknowledgements the numbers of this connection.
    fn with_sink(&mut self, cx: &mut AgentCx<'_>, act: impl FnOnce(&mut Sink, &mut AgentCx<'_>)) {
        let before = cx.out.packets.len();
        act(&mut self.sink, cx);
        for packet in &mut cx.out.packets[before..] {
            if let Body::Ack(ack) = &mut packet.body {
                ack.next += self.request.first;
                for block in ack.sack.iter_mut().filter(|block| block.0 < block.1) {
                    block.0 += self.request.first;
                    block.1 += self.request.first;
                }
            }
        }
    }

    fn object_arrived(&mut self, cx: &mut AgentCx<'_>) {
        self.counters.objects += 1;
        self.counters.bytes += self.request.bytes;
        if self.waiting > 0 {
            self.begin_object(cx, self.config.connections == Connections::PerObject);
            return;
        }
        self.counters.pages += 1;
        self.page_times.add(cx.now.since(self.page_began));
        self.think(cx.now, self.config.think.draw(cx.rng));
    }
}

impl Agent for Client {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: Body) {
        let Body::Segment(segment) = body else {
            return;
        };
        self.counters.segments += 1;
        let Some(seq) = segment.seq.checked_sub(self.request.first) else {
            return;
        };
        // What belongs to the object before may be repeated for want of an acknowledgement; that
        // says nothing of the present request.
        if self.stage == Stage::Asking && seq >= self.begin {
            self.stage = Stage::Receiving;
            self.wake = Time::FAR;
        }
        let segment = Segment { seq, ..segment };
        self.with_sink(cx, |sink, cx| {
            sink.on_packet(cx, arrival, Body::Segment(segment));
        });
        if self.stage == Stage::Receiving && self.sink.next() >= self.end {
            self.object_arrived(cx);
        }
    }

    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        self.with_sink(cx, Sink::on_timer);
        if self.wake > cx.now {
            return;
        }
        match self.stage {
            Stage::Absent => self.think(cx.now, self.config.think.draw_rest(cx.rng)),
            Stage::Asking => {
                self.counters.repeated += 1;
                self.ask(cx);
            }
            Stage::Receiving => {}
            Stage::Thinking => self.begin_page(cx),
        }
    }

    fn next_timer(&self) -> Time {
        self.wake.min(self.sink.next_timer())
    }

    fn why(&self) -> Option<Why> {
        Some(match self.stage {
            Stage::Absent | Stage::Thinking => Why::Schedule,
            Stage::Asking => Why::Silence,
            Stage::Receiving => Why::Feedback,
        })
    }
}

/// As TCP's timeout for SYNs.
const MOST_PATIENCE: Duration = Duration::from_mins(1);
/// So that the segments of a page have numbers.
const MOST_OBJECTS: u32 = 1_000;
