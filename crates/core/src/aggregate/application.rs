//! State of one application at an aggregation point.

use core::time::Duration;

use super::arrivals::{LossMeter, MeanSize, RateMeter};
use super::bfld::{Sampler, Sampling};
use super::flows::Flows;
use super::gaps::{Arrival, Gaps, PacketEvent, Place};
use super::round_trip::{RoundTrip, Sample};
use super::virtual_stream::{PathView, VirtualStream};
use super::{AggregateConfig, ApplicationState};
use crate::control::Context;
use crate::controller::ControllerConfig;
use crate::random::unit;
use crate::session::breaker::{Breaker, ReportView};
use crate::trace::Event;
use crate::units::{Bytes, Rate, Time};
use crate::wire::cp::{
    Cp, Delay, LossCode, PathReport, Probe, RateCode, Role, Shares, Stamp, packet_size,
};

/// An application between two sites. Everything is created by its first packet and deleted by
/// silence.
#[derive(Debug)]
pub(super) struct Application {
    created: Time,
    /// Latest packet in either direction.
    latest: Time,
    round_trip: RoundTrip,
    shares: Shares,
    departing: Departing,
    arriving: Arriving,
    peer: Peer,
}

/// Packets to the other site.
#[derive(Debug)]
struct Departing {
    next: u32,
    packets: u64,
    rate: RateMeter,
    size: MeanSize,
    flows: Flows,
    /// Time of the latest packet that was let pass although the application must stop.
    passed: Option<Time>,
}

/// Packets from the other site, and the control of their rate.
#[derive(Debug)]
struct Arriving {
    sampling: Sampling,
    sampler: Sampler,
    gaps: Gaps,
    rate: RateMeter,
    loss: LossMeter,
    received: u64,
    lost: u64,
    size: MeanSize,
    control: ControllerConfig,
    /// The stream, once a data packet has arrived.
    stream: Option<VirtualStream>,
    breaker: Option<Stop>,
    events: Vec<PacketEvent>,
}

/// What the other aggregation point reports about the packets to it.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    loss: LossCode,
    available: RateCode,
    stop: bool,
    /// Arrival of the latest probe.
    heard: Option<Time>,
    /// Smoothed time between two probes, in seconds.
    interval: f64,
    /// Departure of the first packet since then.
    unanswered: Option<Time>,
    /// The latest packet from the other site had no probe.
    is_absent: bool,
}

/// Circuit breaker of an aggregate. It judges one of so many packets as the application has
/// flowshares, so that its limit is that of so many flows.
#[derive(Debug)]
pub(super) struct Stop {
    breaker: Breaker,
    packets: u64,
    /// Current interval: its begin, its lost packets, and all.
    began: Time,
    lost: u64,
    total: u64,
}

/// Irregularities of a packet from the other site.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) is_late: bool,
    pub(super) is_jump: bool,
    pub(super) is_invalid_echo: bool,
}

impl Application {
    pub(super) fn new(config: &AggregateConfig, now: Time) -> Self {
        Self {
            created: now,
            latest: now,
            round_trip: RoundTrip::default(),
            shares: Shares::ONE,
            departing: Departing {
                next: 0,
                packets: 0,
                rate: RateMeter::new(now),
                size: MeanSize::default(),
                flows: Flows::default(),
                passed: None,
            },
            arriving: Arriving {
                sampling: config.sampling,
                sampler: Sampler::new(config.sampling),
                gaps: Gaps::new(config.reordering),
                rate: RateMeter::new(now),
                loss: LossMeter::new(now),
                received: 0,
                lost: 0,
                size: MeanSize::default(),
                control: config.control.clone(),
                stream: None,
                breaker: config.circuit_breaker.then(|| Stop::new(now)),
                events: Vec::new(),
            },
            peer: Peer::default(),
        }
    }

    pub(super) fn created(&self) -> Time {
        self.created
    }

    /// Whether the other site has answered.
    pub(super) fn is_established(&self) -> bool {
        self.peer.heard.is_some()
    }

    /// Time at which the state expires without further packets.
    pub(super) fn expires(&self, idle: Duration) -> Time {
        self.latest + idle
    }

    /// A packet of an endpoint departs. Returns its header, or none if it must be dropped.
    pub(super) fn on_outbound(
        &mut self,
        now: Time,
        header: &Cp,
        shares: Shares,
        size: Bytes,
    ) -> Option<Cp> {
        self.latest = now;
        self.shares = shares;
        self.departing.flows.add(now, header.flow);
        if self.peer.stop {
            let passed = self.departing.passed;
            if passed.is_some_and(|at| now.since(at) < TRICKLE) {
                return None;
            }
            self.departing.passed = Some(now);
        }
        let window = self.window();
        self.departing.rate.add(now, size, window);
        self.departing.size.add(size);
        self.peer.unanswered.get_or_insert(now);
        self.departing.packets += 1;
        let seq = self.departing.next;
        self.departing.next = seq.wrapping_add(1) & 0xff_ffff;
        let arriving = &self.arriving;
        Some(Cp {
            shares,
            role: Role::Probe(Probe {
                seq,
                stamp: Stamp::at(now),
                echo: self.round_trip.echo(now),
                loss: LossCode::of(arriving.loss.rate()),
                available: RateCode::of(arriving.available()),
                stop: arriving.breaker.as_ref().is_some_and(Stop::is_open),
            }),
            ..*header
        })
    }

    /// A packet of the other aggregation point arrives.
    pub(super) fn on_probe(
        &mut self,
        cx: &mut Context<'_>,
        probe: &Probe,
        shares: Shares,
        arrival: Arrival,
    ) -> Faults {
        let now = cx.now;
        let mut events = core::mem::take(&mut self.arriving.events);
        let place = self
            .arriving
            .gaps
            .on_arrival(probe.seq, arrival, &mut events);
        let mut faults = Faults {
            is_late: place == Place::Late,
            is_jump: place == Place::Jump,
            is_invalid_echo: false,
        };
        if let Place::Expected { is_newest } = place {
            if let Some(echo) = probe.echo {
                let sample = self.round_trip.on_echo(now, echo);
                faults.is_invalid_echo = sample == Sample::Invalid;
            }
            if is_newest {
                self.latest = now;
                self.round_trip.on_stamp(now, probe.stamp);
                self.peer.on_probe(now, probe);
            }
            if !self.arriving.stream_is_stopped(now) {
                for event in events.drain(..) {
                    self.on_event(cx, event, shares);
                }
            }
        }
        events.clear();
        self.arriving.events = events;
        faults
    }

    /// A packet of the other site arrived, or was found to be lost.
    fn on_event(&mut self, cx: &mut Context<'_>, event: PacketEvent, shares: Shares) {
        let window = self.window();
        let arriving = &mut self.arriving;
        let is_lost = matches!(event, PacketEvent::Lost(_));
        let size = match event {
            PacketEvent::Received(arrival) => {
                arriving.size.add(arrival.size);
                arrival.size
            }
            PacketEvent::Lost(_) => arriving.size.get().unwrap_or_default(),
        };
        // The bandwidth that the application generates includes lost packets.
        arriving.rate.add(cx.now, size, window);
        arriving.loss.add(cx.now, is_lost);
        arriving.received += u64::from(!is_lost);
        arriving.lost += u64::from(is_lost);
        if let Some(stop) = &mut arriving.breaker {
            let rtt = self.round_trip.mean();
            stop.on_packet(cx, is_lost, size, shares, rtt);
        }
        // The equation is about data packets.
        let Some(size) = arriving.size.get() else {
            return;
        };
        let control = &arriving.control;
        let stream = arriving
            .stream
            .get_or_insert_with(|| VirtualStream::new(control, cx.now, size));
        let (used, available) = (arriving.rate.rate(cx.now), stream.available());
        let fraction = arriving.sampler.fraction(available, used);
        if !arriving.sampler.select(fraction, || unit(cx.rng)) {
            return;
        }
        let (rate, shares) = match arriving.sampling {
            Sampling::All => (used, shares),
            Sampling::Bfld | Sampling::BfldIndependent => (used.min(available), Shares::ONE),
        };
        let path = PathView {
            rtt: self.round_trip.mean(),
            rate,
            size,
            shares,
        };
        if stream.on_event(cx, event, path) {
            let sample = self.round_trip.end_round();
            stream.report(cx, sample);
        }
    }

    /// The header for an endpoint of this site, in place of that of a packet from the other site.
    /// `is_stamped`: the packet had a probe of the other aggregation point.
    pub(super) fn report(&mut self, now: Time, header: &Cp, is_stamped: bool) -> Cp {
        self.peer.is_absent = !is_stamped;
        self.report_to(now, header)
    }

    /// A notification for the source of a packet, if the other aggregation point does not answer.
    pub(super) fn notice(&self, now: Time, header: &Cp) -> Option<Cp> {
        self.is_peer_lost(now).then(|| self.report_to(now, header))
    }

    fn report_to(&self, now: Time, header: &Cp) -> Cp {
        let rtt = self.round_trip.mean().map(Stamp::span).unwrap_or_default();
        let departing = &self.departing;
        Cp {
            shares: self.shares,
            role: Role::Report(PathReport {
                rtt,
                deviation: Delay::of(self.round_trip.deviation()),
                loss: self.peer.loss,
                available: self.peer.available,
                used: RateCode::of(departing.rate.rate(now)),
                packet_size: packet_size(departing.size.get().unwrap_or_default()),
                flows: departing.flows.count(),
                peer_lost: self.is_peer_lost(now),
                stop: self.peer.stop,
            }),
            ..*header
        }
    }

    /// Whether the other aggregation point no longer answers, or does not write probes.
    fn is_peer_lost(&self, now: Time) -> bool {
        if self.peer.is_absent {
            return true;
        }
        let (Some(_), Some(unanswered)) = (self.peer.heard, self.peer.unanswered) else {
            return false;
        };
        let rtt = self.round_trip.mean().unwrap_or_default();
        // A sparse application is answered late.
        let gap = Duration::from_nanos((4e9 * self.peer.interval) as u64);
        let deviation = (4 * self.round_trip.deviation()).min(rtt / 2);
        now.since(unanswered) > 2 * rtt + deviation + gap
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.departing.flows.review(cx.now);
        let Some(stream) = &mut self.arriving.stream else {
            return;
        };
        if stream.is_overdue(cx.now, self.round_trip.mean()) {
            let sample = self.round_trip.end_round();
            stream.report(cx, sample);
        }
        stream.on_timeout(cx);
    }

    pub(super) fn deadline(&self, idle: Duration) -> Time {
        let rtt = self.round_trip.mean();
        let stream = self.arriving.stream.as_ref();
        let timer = stream.map_or(Time::FAR, |stream| stream.deadline(rtt));
        timer.min(self.expires(idle))
    }

    pub(super) fn state(&self, now: Time) -> ApplicationState {
        let arriving = &self.arriving;
        let (used, available) = (arriving.rate.rate(now), arriving.available());
        ApplicationState {
            shares: self.shares,
            flows: self.departing.flows.count(),
            rtt: self.round_trip.mean().unwrap_or_default(),
            sent: self.departing.packets,
            received: arriving.received,
            lost: arriving.lost,
            sending: self.departing.rate.rate(now),
            remote_loss: self.peer.loss.to_rate(),
            remote_available: self.peer.available.to_rate(),
            loss: arriving.loss.rate(),
            available,
            arriving: used,
            fraction: arriving.sampler.fraction(available, used),
            peer_lost: self.is_peer_lost(now),
            is_stopped: self.peer.stop || arriving.breaker.as_ref().is_some_and(Stop::is_open),
        }
    }

    fn window(&self) -> Duration {
        window(self.round_trip.mean())
    }
}

/// Window of the bandwidth: short enough for slow start, long enough for several packets.
pub(super) fn window(rtt: Option<Duration>) -> Duration {
    (2 * rtt.unwrap_or(UNKNOWN_RTT)).max(LEAST_WINDOW)
}

impl Arriving {
    /// Available bandwidth of a flowshare; zero before the first data packet.
    fn available(&self) -> Rate {
        let stream = self.stream.as_ref();
        stream.map_or(Rate::ZERO, VirtualStream::available)
    }

    /// Whether the circuit breaker is open. Packets after its pause close it.
    fn stream_is_stopped(&mut self, now: Time) -> bool {
        let Some(stop) = self.breaker.as_mut().filter(|stop| stop.is_open()) else {
            return false;
        };
        !stop.on_answer(now)
    }
}

impl Peer {
    fn on_probe(&mut self, now: Time, probe: &Probe) {
        if let Some(heard) = self.heard {
            let interval = now.since(heard).as_secs_f64();
            self.interval += (interval - self.interval) * INTERVAL_GAIN;
        }
        self.heard = Some(now);
        self.unanswered = None;
        self.loss = probe.loss;
        self.stop = probe.stop;
        // Zero is unknown, and no reason to forget an earlier value.
        if probe.available.to_rate() > Rate::ZERO {
            self.available = probe.available;
        }
    }
}

impl Stop {
    pub(super) fn new(now: Time) -> Self {
        Self {
            breaker: Breaker::new(BREAKER_INTERVAL),
            packets: 0,
            began: now,
            lost: 0,
            total: 0,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.breaker.tripped().is_some()
    }

    /// A packet after the pause closes the breaker. Returns whether it is closed.
    pub(super) fn on_answer(&mut self, now: Time) -> bool {
        self.breaker.on_answer(now)
    }

    fn on_packet(
        &mut self,
        cx: &mut Context<'_>,
        is_lost: bool,
        size: Bytes,
        shares: Shares,
        rtt: Option<Duration>,
    ) {
        self.on_packets(cx, (1, u64::from(is_lost)), size, shares, rtt);
    }

    /// Packets arrived or were lost: their number, and that of the lost ones.
    pub(super) fn on_packets(
        &mut self,
        cx: &mut Context<'_>,
        (packets, lost): (u64, u64),
        size: Bytes,
        shares: Shares,
        rtt: Option<Duration>,
    ) {
        let shares = u64::from(shares.get());
        let judged = (self.packets + packets) / shares - self.packets / shares;
        for _ in 0..judged {
            self.breaker.on_sent(cx.now, size);
        }
        self.packets += packets;
        self.lost += lost;
        self.total += packets;
        let Some(rtt) = rtt.filter(|_| cx.now.since(self.began) >= BREAKER_INTERVAL) else {
            return;
        };
        let report = ReportView {
            highest: self.packets as u32,
            loss: self.lost as f64 / self.total as f64,
            rtt,
        };
        (self.began, self.lost, self.total) = (cx.now, 0, 0);
        if let Some(cause) = self.breaker.on_report(cx.now, report) {
            cx.trace.record(cx.now, Event::BreakerTripped { cause });
        }
    }
}

/// Distance of the packets of an application that must stop. They find out when it may continue.
const TRICKLE: Duration = Duration::from_secs(1);
/// Interval in which the circuit breaker compares bandwidth and losses.
const BREAKER_INTERVAL: Duration = Duration::from_secs(1);
/// Round-trip time before the first sample.
pub(super) const UNKNOWN_RTT: Duration = Duration::from_millis(100);
const LEAST_WINDOW: Duration = Duration::from_millis(50);
/// Weight of the latest interval between two probes.
const INTERVAL_GAIN: f64 = 1.0 / 16.0;
