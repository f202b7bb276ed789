//! Simulated path for one controller: pacing, a bottleneck, random loss, and reports.

use core::time::Duration;
use std::collections::VecDeque;

use rand_pcg::Pcg64Mcg;
use tidegate_core::control::{
    Algorithm, Context, Demand, Ecn, FlowId, Kind, Outcome, PacketOutcome, RateControl, Report,
    Sent, Start,
};
use tidegate_core::controller::tfrc::TfrcConfig;
use tidegate_core::random::{Seed, unit};
use tidegate_core::trace::Event;
use tidegate_core::units::{Bytes, Rate, RemoteTime, Time};

/// Parameters of the path. The return path has no loss.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// Round-trip time without queueing.
    pub(crate) rtt: Duration,
    /// Loss probability of a packet behind the bottleneck.
    pub(crate) loss: f64,
    /// Report interval of the receiver.
    pub(crate) report: Duration,
    /// Capacity of the bottleneck.
    pub(crate) capacity: Rate,
    /// Maximum queueing delay; packets with a longer one are dropped.
    pub(crate) queue: Duration,
    /// Start and end of an outage in both directions.
    pub(crate) outage: (Time, Time),
}

impl Path {
    /// A path of unlimited capacity.
    pub(crate) fn new(rtt: Duration) -> Self {
        Self {
            rtt,
            loss: 0.0,
            report: rtt.min(Duration::from_millis(50)),
            capacity: Rate::MAX,
            queue: Duration::MAX,
            outage: (Time::FAR, Time::FAR),
        }
    }
}

/// A backlogged sender with its controller, its path and its receiver.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) controller: RateControl,
    pub(crate) trace: Vec<(Time, Event)>,
    pub(crate) now: Time,
    pub(crate) packets: u64,
    pub(crate) delivered: u64,
    /// Loss events, counted by the definition of RFC 5348 and not by the controller.
    pub(crate) events: u64,
    path: Path,
    loss_rng: Pcg64Mcg,
    controller_rng: Pcg64Mcg,
    last_sent: Option<Time>,
    next_report: Time,
    bottleneck_free: Time,
    in_flight: VecDeque<Arrival>,
    missing: VecDeque<(u64, Time)>,
    reported_up_to: u64,
    event_began: Option<Time>,
    outcomes: Vec<PacketOutcome>,
}

impl Flow {
    pub(crate) fn new(config: &TfrcConfig, path: Path, seed: Seed) -> Self {
        let demand = Demand {
            floor: Rate::ZERO,
            ceiling: Rate::MAX,
            shares: 1,
        };
        Self {
            controller: config.start(&Start::new(Time::ZERO, SIZE, demand)),
            trace: Vec::new(),
            now: Time::ZERO,
            packets: 0,
            delivered: 0,
            events: 0,
            loss_rng: seed.stream("path/loss"),
            controller_rng: seed.stream("controller"),
            last_sent: None,
            next_report: Time::ZERO + path.report,
            bottleneck_free: Time::ZERO,
            in_flight: VecDeque::new(),
            missing: VecDeque::new(),
            reported_up_to: 0,
            event_began: None,
            outcomes: Vec::new(),
            path,
        }
    }

    /// Processes the next event.
    pub(crate) fn step(&mut self) {
        let spacing = SIZE / self.controller.target().send;
        let send = self.last_sent.map_or(self.now, |last| last + spacing);
        let timeout = self.controller.next_timeout().map_or(Time::FAR, |t| t.0);
        self.now = self.now.max(send.min(timeout).min(self.next_report));
        if self.now >= timeout {
            self.with_controller(RateControl::on_timeout);
        } else if self.now >= self.next_report {
            self.report();
        } else {
            self.send();
        }
    }

    pub(crate) fn run_until(&mut self, end: Time) {
        while self.now < end {
            self.step();
        }
    }

    fn send(&mut self) {
        let packet = Sent {
            flow: FlowId(0),
            seq: self.packets,
            size: SIZE,
            kind: Kind::Media,
            app_limited: false,
        };
        self.with_controller(|controller, cx| controller.on_sent(cx, &packet));
        self.packets += 1;
        self.last_sent = Some(self.now);

        let out = self.now.max(self.bottleneck_free) + SIZE / self.path.capacity;
        let fits = out.since(self.now) <= self.path.queue;
        if fits {
            self.bottleneck_free = out;
        }
        let lost = unit(&mut self.loss_rng) < self.path.loss;
        if fits && !lost && !self.is_out(self.now) {
            self.in_flight.push_back(Arrival {
                seq: packet.seq,
                sent: self.now,
                at: out + self.path.rtt / 2,
            });
        } else {
            self.missing.push_back((packet.seq, self.now));
        }
    }

    /// Delivers a report that was sent half a round trip ago.
    fn report(&mut self) {
        self.next_report += self.path.report;
        let written = self.now.before(self.path.rtt / 2);
        if self.is_out(self.now) {
            return;
        }
        let mut outcomes = core::mem::take(&mut self.outcomes);
        outcomes.clear();
        let mut rtt = None;
        while let Some(arrival) = self.in_flight.pop_front_if(|a| a.at <= written) {
            self.delivered += 1;
            self.reported_up_to = arrival.seq;
            rtt = Some(arrival.at.since(arrival.sent) + self.path.rtt / 2);
            let at = RemoteTime(arrival.at.as_nanos() + 1_000_000_000_000);
            let ecn = Ecn::NotEct;
            outcomes.push(fate(
                arrival.seq,
                arrival.sent,
                Outcome::Received { at, ecn },
            ));
        }
        // RFC 5348 section 5.1: a packet is lost once three later packets have arrived.
        while let Some((seq, sent)) = self
            .missing
            .pop_front_if(|(seq, _)| *seq + 3 <= self.reported_up_to)
        {
            outcomes.push(fate(seq, sent, Outcome::Lost));
            if self
                .event_began
                .is_none_or(|began| sent > began + self.path.rtt)
            {
                self.event_began = Some(sent);
                self.events += 1;
            }
        }
        outcomes.sort_unstable_by_key(|fate| fate.seq);
        if let Some(rtt) = rtt {
            let report = Report::new(&outcomes).rtt(rtt);
            self.with_controller(|controller, cx| controller.on_report(cx, &report));
        }
        self.outcomes = outcomes;
    }

    fn with_controller(&mut self, call: impl FnOnce(&mut RateControl, &mut Context<'_>)) {
        let mut cx = Context {
            now: self.now,
            rng: &mut self.controller_rng,
            trace: &mut self.trace,
        };
        call(&mut self.controller, &mut cx);
    }

    fn is_out(&self, at: Time) -> bool {
        at >= self.path.outage.0 && at < self.path.outage.1
    }
}

#[derive(Debug)]
struct Arrival {
    seq: u64,
    sent: Time,
    at: Time,
}

fn fate(seq: u64, sent: Time, outcome: Outcome) -> PacketOutcome {
    PacketOutcome {
        flow: FlowId(0),
        seq,
        size: SIZE,
        sent,
        outcome,
    }
}

pub(crate) const SIZE: Bytes = Bytes(1_000);
