//! One connection of a browser, on the client.

use core::time::Duration;

use tidegate_core::control::Ecn;
use tidegate_core::units::Time;

use super::config::Config;
use crate::packet_agent::{Agent, AgentCx, Arrival, Body, Request, Segment};
use crate::tcp::Sink;

/// A connection and the object in transfer.
#[derive(Clone, Debug)]
pub(super) struct Download {
    stage: Stage,
    request: Request,
    /// Time of the next retransmission of the request.
    repeat: Time,
    /// Timeout after that retransmission.
    patience: Duration,
    /// TCP receiver. It counts the segments of this connection from zero.
    sink: Sink,
    /// First segment of the present object, in the numbers of `sink`.
    begin: u32,
    /// The object is complete when `sink` expects this segment.
    end: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Requested, without a response so far.
    Asking,
    Receiving,
    /// The object is complete.
    Done,
}

impl Download {
    /// Opens a connection whose first segment has the number `request.first`.
    pub(super) fn open(config: &Config, cx: &mut AgentCx<'_>, request: Request) -> Self {
        let mut download = Self {
            stage: Stage::Done,
            request,
            repeat: Time::FAR,
            patience: config.retry,
            sink: Sink::new(&config.sink),
            begin: 0,
            // Segment zero may be the SYN.
            end: u32::from(config.tcp.syn),
        };
        download.fetch(config, cx, 0);
        download
    }

    /// Requests another object over the same connection.
    pub(super) fn again(&mut self, config: &Config, cx: &mut AgentCx<'_>, number: u32, bytes: u64) {
        self.request.number = number;
        self.request.bytes = bytes;
        self.fetch(config, cx, self.end);
    }

    fn fetch(&mut self, config: &Config, cx: &mut AgentCx<'_>, begin: u32) {
        self.begin = begin;
        self.end += config.segments(self.request.bytes);
        self.patience = config.retry;
        self.stage = Stage::Asking;
        self.ask(config, cx);
    }

    fn ask(&mut self, config: &Config, cx: &mut AgentCx<'_>) {
        cx.send(config.request, Ecn::NotEct, Body::Request(self.request));
        self.repeat = cx.now + self.patience;
        self.patience = self.patience.saturating_mul(2).min(MAX_PATIENCE);
    }

    /// The present request.
    pub(super) fn request(&self) -> Request {
        self.request
    }

    /// First segment number available to the next connection. Acknowledgements of this one are at
    /// most `end`.
    pub(super) fn after(&self) -> u32 {
        self.request.first + self.end + 1
    }

    /// Whether segment `seq` belongs to this connection.
    pub(super) fn owns(&self, seq: u32) -> bool {
        (self.request.first..self.after()).contains(&seq)
    }

    /// Whether no response to the present request has arrived.
    pub(super) fn is_asking(&self) -> bool {
        self.stage == Stage::Asking
    }

    /// Whether the object is complete.
    pub(super) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Processes a segment that this connection [owns](Self::owns). Returns whether it completed
    /// the object.
    pub(super) fn on_segment(
        &mut self,
        cx: &mut AgentCx<'_>,
        arrival: Arrival,
        segment: Segment,
    ) -> bool {
        let seq = segment.seq - self.request.first;
        // Segments of the previous object may be retransmissions after a lost acknowledgement. They
        // do not answer the present request.
        if self.stage == Stage::Asking && seq >= self.begin {
            self.stage = Stage::Receiving;
            self.repeat = Time::FAR;
        }
        let segment = Segment { seq, ..segment };
        self.with_sink(cx, |sink, cx| {
            sink.on_packet(cx, &arrival, &mut Body::Segment(segment));
        });
        let complete = self.stage == Stage::Receiving && self.sink.next() >= self.end;
        if complete {
            self.stage = Stage::Done;
        }
        complete
    }

    /// Sends a delayed acknowledgement or retransmits the request if due. Returns whether it sent a
    /// request.
    pub(super) fn on_timer(&mut self, config: &Config, cx: &mut AgentCx<'_>) -> bool {
        self.with_sink(cx, Sink::on_timer);
        let late = self.stage == Stage::Asking && self.repeat <= cx.now;
        if late {
            self.ask(config, cx);
        }
        late
    }

    pub(super) fn next_timer(&self) -> Time {
        self.repeat.min(self.sink.next_timer())
    }

    /// Runs `act` on the sink and maps its acknowledgements to the segment numbers of this
    /// connection.
    fn with_sink(&mut self, cx: &mut AgentCx<'_>, act: impl FnOnce(&mut Sink, &mut AgentCx<'_>)) {
        let before = cx.out.len();
        act(&mut self.sink, cx);
        for packet in cx.out.since(before) {
            if let Body::Ack(ack) = &mut packet.body {
                ack.next += self.request.first;
                for block in ack.sack.iter_mut().filter(|block| block.0 < block.1) {
                    block.0 += self.request.first;
                    block.1 += self.request.first;
                }
            }
        }
    }
}

/// Maximum timeout, as TCP's for SYNs.
const MAX_PATIENCE: Duration = Duration::from_mins(1);
