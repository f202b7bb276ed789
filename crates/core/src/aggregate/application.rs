//! State of one application at an aggregation point: stamps, counts and samples its packets.

use core::time::Duration;

use super::arrivals::MeanSize;
use super::bfld::Sampler;
use super::flows::Flows;
use super::gaps::{Arrival, Gaps, PacketEvent, Place};
use super::round_trip::{Sample, Timestamps};
use super::sampled::{Counts, SampledApplication};
use super::{AggregateConfig, ApplicationState};
use crate::control::Context;
use crate::random::unit;
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
    shares: Shares,
    stamps: Timestamps,
    departing: Departing,
    arriving: Arriving,
    peer: Peer,
    control: SampledApplication,
}

/// Packets to the other site.
#[derive(Debug, Default)]
struct Departing {
    next: u32,
    packets: u64,
    bytes: Bytes,
    size: MeanSize,
    flows: Flows,
    /// Time of the latest packet that was let pass although the application must stop.
    passed: Option<Time>,
}

/// Packets from the other site.
#[derive(Debug)]
struct Arriving {
    gaps: Gaps,
    sampler: Sampler,
    counts: Counts,
    size: MeanSize,
    events: Vec<PacketEvent>,
}

/// What the other aggregation point reports about the packets to it.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    loss: LossCode,
    available: RateCode,
    stop: bool,
    /// Smoothed time between two probes, in seconds.
    interval: f64,
    /// Departure of the first packet since the latest probe.
    unanswered: Option<Time>,
    /// The latest packet from the other site had no probe.
    is_absent: bool,
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
            shares: Shares::ONE,
            stamps: Timestamps::default(),
            departing: Departing::default(),
            arriving: Arriving {
                gaps: Gaps::new(config.reordering),
                sampler: Sampler::new(config.sampling),
                counts: Counts::default(),
                size: MeanSize::default(),
                events: Vec::new(),
            },
            peer: Peer::default(),
            control: SampledApplication::new(config, now),
        }
    }

    pub(super) fn created(&self) -> Time {
        self.created
    }

    /// Whether the other site has answered.
    pub(super) fn is_established(&self) -> bool {
        self.arriving.counts.last_probe.is_some()
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
        let departing = &mut self.departing;
        departing.flows.add(now, header.flow);
        if self.peer.stop {
            if departing.passed.is_some_and(|at| now.since(at) < TRICKLE) {
                return None;
            }
            departing.passed = Some(now);
        }
        departing.packets += 1;
        departing.bytes += size;
        departing.size.add(size);
        self.control.on_sent(now, departing.bytes);
        self.peer.unanswered.get_or_insert(now);
        let seq = departing.next;
        departing.next = seq.wrapping_add(1) & 0xff_ffff;
        Some(Cp {
            shares,
            role: Role::Probe(Probe {
                seq,
                stamp: Stamp::at(now),
                echo: self.stamps.echo(now),
                loss: LossCode::of(self.control.loss()),
                available: RateCode::of(self.control.available()),
                stop: self.control.is_stopped(),
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
            let path = self.control.round_trip();
            let sample = probe.echo.map(|echo| self.stamps.on_echo(now, echo, path));
            faults.is_invalid_echo = sample == Some(Sample::Invalid);
            let counts = &mut self.arriving.counts;
            if let Some(Sample::Valid { ticks }) = sample {
                counts.rtt_ticks += ticks;
                counts.rtt_samples += 1;
            }
            if is_newest {
                self.latest = now;
                self.stamps.on_stamp(now, probe.stamp);
                self.peer
                    .on_probe(now, probe, counts.last_probe.replace(now));
            }
            self.control.on_counts(cx, *counts, shares);
            if !self.control.is_stopped() {
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
        let Arriving {
            sampler,
            counts,
            size,
            ..
        } = &mut self.arriving;
        match event {
            PacketEvent::Received(arrival) => {
                size.add(arrival.size);
                counts.received += 1;
                counts.received_bytes += arrival.size;
            }
            PacketEvent::Lost(_) => {
                counts.lost += 1;
                counts.received_bytes += size.get().unwrap_or_default();
            }
        }
        self.control.on_counts(cx, *counts, shares);
        // The equation is about data packets.
        let Some(size) = size.get() else {
            return;
        };
        let fraction = self.control.sample(cx.now, size);
        if sampler.select(fraction, || unit(cx.rng)) {
            self.control.on_event(cx, event, size);
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
        let round_trip = self.control.round_trip();
        let departing = &self.departing;
        Cp {
            shares: self.shares,
            role: Role::Report(PathReport {
                rtt: round_trip.mean().map(Stamp::span).unwrap_or_default(),
                deviation: Delay::of(round_trip.deviation()),
                loss: self.peer.loss,
                available: self.peer.available,
                used: RateCode::of(self.control.used(now)),
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
        let Some(unanswered) = self.peer.unanswered.filter(|_| self.is_established()) else {
            return false;
        };
        // A sparse application is answered late.
        let gap = Duration::from_nanos((4e9 * self.peer.interval) as u64);
        now.since(unanswered) > self.control.lost_after() + gap
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.departing.flows.review(cx.now);
        self.control.end_round(cx);
    }

    pub(super) fn deadline(&self, idle: Duration) -> Time {
        self.control.deadline().min(self.expires(idle))
    }

    pub(super) fn state(&self, now: Time) -> ApplicationState {
        let (counts, estimate) = (&self.arriving.counts, self.control.estimate(now));
        ApplicationState {
            shares: self.shares,
            flows: self.departing.flows.count(),
            rtt: estimate.rtt.unwrap_or_default(),
            sent: self.departing.packets,
            received: counts.received,
            lost: counts.lost,
            sending: estimate.used,
            remote_loss: self.peer.loss.to_rate(),
            remote_available: self.peer.available.to_rate(),
            loss: estimate.loss,
            available: estimate.available,
            arriving: estimate.arriving,
            fraction: estimate.fraction,
            peer_lost: self.is_peer_lost(now),
            is_stopped: self.peer.stop || estimate.stop,
        }
    }
}

impl Peer {
    /// A probe has arrived; `last` is the time of the one before.
    fn on_probe(&mut self, now: Time, probe: &Probe, last: Option<Time>) {
        if let Some(last) = last {
            let interval = now.since(last).as_secs_f64();
            self.interval += (interval - self.interval) * INTERVAL_GAIN;
        }
        self.unanswered = None;
        self.loss = probe.loss;
        self.stop = probe.stop;
        // Zero is unknown, and no reason to forget an earlier value.
        if probe.available.to_rate() > Rate::ZERO {
            self.available = probe.available;
        }
    }
}

/// Distance of the packets of an application that must stop. They find out when it may continue.
const TRICKLE: Duration = Duration::from_secs(1);
/// Weight of the latest interval between two probes.
const INTERVAL_GAIN: f64 = 1.0 / 16.0;
