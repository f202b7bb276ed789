//! The server's side: answers requests over a TCP model.

use std::sync::Arc;

use tidegate_core::units::Time;

use super::config::Config;
use crate::agent::{Agent, AgentCx, Arrival, Body, Request};
use crate::tcp::classic::Sender;
use crate::tcp::{SourceConfig, SourceKind, State};

/// What answers one browser.
#[derive(Clone, Debug)]
pub struct Server {
    config: Arc<Config>,
    /// Of the latest request.
    number: u32,
    sender: Option<Sender>,
    /// When the connection began: acknowledgements of earlier segments belong to an earlier one.
    opened: Time,
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
            opened: Time::ZERO,
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
        if request.fresh {
            self.open(cx);
        }
        if let Some(sender) = &mut self.sender {
            sender.write(cx, request.bytes);
        }
    }

    fn open(&mut self, cx: &mut AgentCx<'_>) {
        self.past = self.counters();
        self.opened = cx.now;
        let source = SourceConfig {
            kind: SourceKind::Stream { buffer: u64::MAX },
            start: cx.now,
            ..SourceConfig::default()
        };
        let mut sender = Sender::new(&self.config.tcp, &source);
        sender.on_timer(cx);
        self.sender = Some(sender);
    }
}

impl Agent for Server {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: Body) {
        match body {
            Body::Request(request) => self.on_request(cx, request),
            Body::Ack(ack) => {
                // A sink that has nothing in order yet echoes time zero.
                let earlier = ack.echo < self.opened && ack.next > 0;
                if let Some(sender) = &mut self.sender
                    && !earlier
                {
                    sender.on_packet(cx, arrival, body);
                }
            }
            _ => {}
        }
    }

    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        if let Some(sender) = &mut self.sender {
            sender.on_timer(cx);
        }
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
