//! The server's side: answers requests over a TCP model.

use std::sync::Arc;

use tidegate_core::units::Time;

use super::config::Config;
use crate::agent::{Ack, Agent, AgentCx, Arrival, Body, Request};
use crate::tcp::classic::Sender;
use crate::tcp::{SourceConfig, SourceKind, State};

/// What answers one browser.
#[derive(Clone, Debug)]
pub struct Server {
    config: Arc<Config>,
    /// Of the latest request.
    number: u32,
    /// Counts segments of its connection from zero.
    sender: Option<Sender>,
    /// On the wire, the number of that segment.
    first: u32,
    /// Of earlier connections.
    past: ServerCounters,
}

/// What a server counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// Connections that were opened.
    pub connections: u64,
    /// Segments sent, SYNs and repeated ones included.
    pub sent: u64,
    /// Of these, sent before.
    pub repeated: u64,
    /// Expiries of the retransmission timer.
    pub timeouts: u64,
}

impl Server {
    pub(super) fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            number: 0,
            sender: None,
            first: 0,
            past: ServerCounters::default(),
        }
    }

    /// What it counted.
    pub fn counters(&self) -> ServerCounters {
        let Some(sender) = &self.sender else {
            return self.past;
        };
        let present = sender.counters();
        ServerCounters {
            connections: self.past.connections + 1,
            sent: self.past.sent + present.sent,
            repeated: self.past.repeated + present.repeated,
            timeouts: self.past.timeouts + present.timeouts,
        }
    }

    /// What the sender of the latest connection believes.
    pub fn state(&self) -> Option<State> {
        self.sender.as_ref().map(Sender::state)
    }

    fn on_request(&mut self, cx: &mut AgentCx<'_>, request: Request) {
        if request.number <= self.number {
            return;
        }
        self.number = request.number;
        if self.sender.is_none() || request.first > self.first {
            self.open(cx, request.first);
        }
        self.with_sender(cx, |sender, cx| {
            sender.write(cx, request.bytes);
        });
    }

    fn open(&mut self, cx: &mut AgentCx<'_>, first: u32) {
        self.past = self.counters();
        self.first = first;
        let source = SourceConfig {
            kind: SourceKind::Stream { buffer: u64::MAX },
            start: cx.now,
            ..SourceConfig::default()
        };
        self.sender = Some(Sender::new(&self.config.tcp, &source));
        self.with_sender(cx, Sender::on_timer);
    }

    fn on_ack(&mut self, cx: &mut AgentCx<'_>, arrival: Arrival, ack: Ack) {
        let Some(next) = ack.next.checked_sub(self.first) else {
            return;
        };
        let own = |seq: u32| seq.saturating_sub(self.first);
        let ack = Ack {
            next,
            sack: ack.sack.map(|(from, to)| (own(from), own(to))),
            ..ack
        };
        self.with_sender(cx, |sender, cx| {
            sender.on_packet(cx, &arrival, Body::Ack(ack));
        });
    }

    /// Lets the sender act, and gives its segments the numbers of this connection.
    fn with_sender(
        &mut self,
        cx: &mut AgentCx<'_>,
        act: impl FnOnce(&mut Sender, &mut AgentCx<'_>),
    ) {
        let before = cx.out.packets.len();
        if let Some(sender) = &mut self.sender {
            act(sender, cx);
        }
        for packet in &mut cx.out.packets[before..] {
            if let Body::Segment(segment) = &mut packet.body {
                segment.seq += self.first;
            }
        }
    }
}

impl Agent for Server {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: Body) {
        match body {
            Body::Request(request) => self.on_request(cx, request),
            Body::Ack(ack) => self.on_ack(cx, *arrival, ack),
            _ => {}
        }
    }

    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        self.with_sender(cx, Sender::on_timer);
    }

    fn next_timer(&self) -> Time {
        let sender = self.sender.as_ref();
        sender.map_or(Time::FAR, Agent::next_timer)
    }

    /// It says nothing unless it is asked.
    fn is_done(&self) -> bool {
        self.next_timer() == Time::FAR
    }
}
