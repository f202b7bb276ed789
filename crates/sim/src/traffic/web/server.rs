//! Server of a browser: answers requests over a TCP model.

use std::sync::Arc;

use tidegate_core::units::Time;

use super::config::Config;
use crate::packet_agent::{Ack, Agent, AgentCx, Arrival, Body, Request};
use crate::tcp::classic::Sender;
use crate::tcp::{SourceConfig, SourceKind, State};

/// Server of one browser.
#[derive(Clone, Debug)]
pub struct Server {
    config: Arc<Config>,
    /// Group of the latest request.
    group: u32,
    /// Connections of this group, in the order of opening.
    connections: Vec<Connection>,
    /// Counters of closed connections.
    past: ServerCounters,
}

#[derive(Clone, Debug)]
struct Connection {
    /// Number of the latest request.
    number: u32,
    /// First segment number on the wire.
    first: u32,
    /// TCP sender. It counts segments from zero.
    sender: Sender,
}

/// Counters of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// Connections opened.
    pub connections: u64,
    /// Segments sent, including SYNs and retransmissions.
    pub sent: u64,
    /// Retransmitted segments.
    pub repeated: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
}

impl Server {
    pub(super) fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            group: 0,
            connections: Vec::new(),
            past: ServerCounters::default(),
        }
    }

    /// Counters so far.
    pub fn counters(&self) -> ServerCounters {
        let mut sum = self.past;
        for connection in &self.connections {
            let present = connection.sender.counters();
            sum.connections += 1;
            sum.sent += present.sent;
            sum.repeated += present.repeated;
            sum.timeouts += present.timeouts;
        }
        sum
    }

    /// Sender state of the latest connection.
    pub fn state(&self) -> Option<State> {
        let latest = self.connections.last();
        latest.map(|connection| connection.sender.state())
    }

    fn on_request(&mut self, cx: &mut AgentCx<'_>, request: Request) {
        if request.group < self.group {
            return;
        }
        if request.group > self.group {
            self.past = self.counters();
            self.connections.clear();
            self.group = request.group;
        }
        let mut known = self.connections.iter();
        let place = match known.position(|connection| connection.first == request.first) {
            Some(place) if self.connections[place].number >= request.number => return,
            Some(place) => place,
            None => {
                self.open(cx, request.first);
                self.connections.len() - 1
            }
        };
        let connection = &mut self.connections[place];
        connection.number = request.number;
        connection.with_sender(cx, |sender, cx| {
            sender.write(cx, request.bytes);
        });
    }

    fn open(&mut self, cx: &mut AgentCx<'_>, first: u32) {
        let source = SourceConfig {
            kind: SourceKind::Stream { buffer: u64::MAX },
            start: cx.now,
            ..SourceConfig::default()
        };
        let mut connection = Connection {
            number: 0,
            first,
            sender: Sender::new(&self.config.tcp, &source),
        };
        connection.with_sender(cx, Sender::on_timer);
        self.connections.push(connection);
    }

    fn on_ack(&mut self, cx: &mut AgentCx<'_>, arrival: Arrival, ack: Ack) {
        // Segment numbers of connections do not overlap, so the closest one that begins before
        // matches.
        let begun = self.connections.iter_mut();
        let begun = begun.filter(|connection| connection.first <= ack.next);
        if let Some(connection) = begun.max_by_key(|connection| connection.first) {
            connection.on_ack(cx, arrival, ack);
        }
    }
}

impl Connection {
    fn on_ack(&mut self, cx: &mut AgentCx<'_>, arrival: Arrival, ack: Ack) {
        let own = |seq: u32| seq.saturating_sub(self.first);
        let ack = Ack {
            next: own(ack.next),
            sack: ack.sack.map(|(from, to)| (own(from), own(to))),
            ..ack
        };
        self.with_sender(cx, |sender, cx| {
            sender.on_packet(cx, &arrival, &mut Body::Ack(ack));
        });
    }

    /// Runs `act` on the sender and maps its segments to the numbers of this connection.
    fn with_sender(
        &mut self,
        cx: &mut AgentCx<'_>,
        act: impl FnOnce(&mut Sender, &mut AgentCx<'_>),
    ) {
        let before = cx.out.len();
        act(&mut self.sender, cx);
        for packet in cx.out.since(before) {
            if let Body::Segment(segment) = &mut packet.body {
                segment.seq += self.first;
            }
        }
    }
}

impl Agent for Server {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: &mut Body) {
        match body {
            Body::Request(request) => self.on_request(cx, *request),
            Body::Ack(ack) => self.on_ack(cx, *arrival, *ack),
            _ => {}
        }
    }

    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        for connection in &mut self.connections {
            connection.with_sender(cx, Sender::on_timer);
        }
    }

    fn next_timer(&self) -> Time {
        let senders = self.connections.iter();
        let timers = senders.map(|connection| connection.sender.next_timer());
        timers.fold(Time::FAR, Time::min)
    }

    /// The server only responds to requests.
    fn is_done(&self) -> bool {
        self.next_timer() == Time::FAR
    }
}
