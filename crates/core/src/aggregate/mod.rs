//! Aggregation point of the Coordination Protocol: rate control of all flows between two sites
//! together.
//!
//! An [`AggregationPoint`] is the edge router of a site, without the network. Each packet of an
//! application passes [`AggregationPoint::forward`], which rewrites its CP header in place. The
//! points of two sites measure the path with these packets: round-trip time, losses, packet sizes.
//! A [`RateController`](crate::control::RateController) at the receiving point computes the
//! bandwidth of one TCP-friendly flow, the flowshare, from a *virtual packet stream*:
//! [`Sampling::Bfld`] samples the packets of the application so that the stream is that of one flow,
//! whatever the application sends. The result reaches the sending endpoints in the headers of the
//! packets in the opposite direction. `docs/coordination-protocol.md` describes the protocol.
//!
//! Source: D. E. Ott, T. Sparks, K. Mayer-Patel, *Aggregate Congestion Control for Distributed
//! Multimedia Applications*, INFOCOM 2004.

pub mod allocation;
mod application;
mod arrivals;
mod bfld;
pub mod bridge;
pub mod estimates;
mod flows;
mod gaps;
mod round_trip;
pub mod sampled;
pub mod sender;
pub mod sites;
mod virtual_stream;

use core::time::Duration;
use std::collections::BTreeMap;

use crate::control::{Context, Ecn, TimerReason};
use crate::controller::ControllerConfig;
use crate::controller::tfrc::TfrcConfig;
use crate::units::{Bytes, Rate, Time};
use crate::wire::cp::{ApplicationId, Cp, LEN, MAX_SHARES, Role, Shares};
use application::Application;
pub use bfld::{Sampling, fraction, is_sampled};
pub use gaps::{Arrival, PacketEvent};

/// Configuration of an [`AggregationPoint`].
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct AggregateConfig {
    /// Controller of the virtual packet stream of each application.
    pub control: ControllerConfig,
    /// Packets of the application that are in the virtual packet stream.
    pub sampling: Sampling,
    /// Largest number of flowshares of an application, 1 to 64. Others count as the closest one.
    pub max_shares: u8,
    /// A packet is lost once so many later packets have arrived, at least 1: 3 as in RFC 5348
    /// section 5.1, 1 in the paper, where each gap is a loss.
    pub reordering: u32,
    /// Largest number of applications at one time. Further ones are forwarded without control.
    pub max_applications: usize,
    /// State of an application without packets for so long is deleted.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "idle_ms", with = "crate::trace::ms")
    )]
    pub idle: Duration,
    /// Treatment of packets of unknown applications and with invalid headers.
    pub strangers: Policy,
    /// Whether persistent congestion stops an application (RFC 8084).
    pub circuit_breaker: bool,
}

impl Default for AggregateConfig {
    fn default() -> Self {
        Self {
            control: TfrcConfig::default().into(),
            sampling: Sampling::Bfld,
            max_shares: MAX_SHARES,
            reordering: 3,
            max_applications: 256,
            idle: Duration::from_secs(30),
            strangers: Policy::Forward,
            circuit_breaker: true,
        }
    }
}

/// Treatment of packets without rate control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Policy {
    /// Drop them.
    Drop,
    /// Forward them unchanged.
    #[default]
    Forward,
}

/// Edge router of a site: rewrites the CP headers of the packets that it forwards.
#[derive(Debug)]
pub struct AggregationPoint {
    config: AggregateConfig,
    applications: BTreeMap<ApplicationKey, Application>,
    /// A lower bound of the next deadline of all applications.
    deadline: Time,
    counters: Counters,
}

/// An application between this site and another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApplicationKey {
    /// The other site.
    pub site: SiteId,
    /// Application, from the header.
    pub application: ApplicationId,
}

/// Another site, as configured by host pairs and ports. The driver assigns the numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(pub u32);

/// A packet on its way through an aggregation point.
#[derive(Debug)]
pub struct Packet<'a> {
    /// The other site.
    pub site: SiteId,
    /// Direction of the packet.
    pub direction: Direction,
    /// Size on the wire, all headers included.
    pub size: Bytes,
    /// ECN field.
    pub ecn: Ecn,
    /// UDP payload. Its first 20 bytes are rewritten.
    pub payload: &'a mut [u8],
}

/// Direction of a packet through an aggregation point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the other site to an endpoint of this site.
    Inbound,
    /// From an endpoint of this site to the other site.
    Outbound,
}

/// Treatment of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Forward it.
    Forward,
    /// Forward it, and send a UDP payload of these bytes back to its source. No other packets
    /// originate from an aggregation point, so it never sends more than it forwards.
    Notify([u8; LEN]),
    /// Drop it.
    Drop(DropCause),
}

/// Reason to drop a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropCause {
    /// The circuit breaker of the application is open.
    Stopped,
    /// An unknown application or an invalid header, by [`AggregateConfig::strangers`].
    Stranger,
}

/// Numbers of packets since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets whose headers were rewritten.
    pub rewritten: u64,
    /// Packets without a valid header, or with a role that their direction does not have.
    pub invalid: u64,
    /// Packets of an application that found no space in the table.
    pub refused: u64,
    /// Packets from another site for an application of which no endpoint here has sent a packet.
    pub unknown: u64,
    /// Duplicates, replays, and packets that arrived after they counted as lost.
    pub late: u64,
    /// Packets whose sequence number does not continue the stream.
    pub jumps: u64,
    /// Echoes of timestamps that this point cannot have sent.
    pub invalid_echoes: u64,
    /// Packets dropped by circuit breakers.
    pub stopped: u64,
    /// Notifications to endpoints.
    pub notified: u64,
    /// Applications deleted because of their silence, or replaced before the other site answered.
    pub expired: u64,
}

/// State of an application, for monitoring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ApplicationState {
    /// Flowshares that the application may use.
    pub shares: Shares,
    /// Active flows of this site, at most 255.
    pub flows: u8,
    /// Smoothed round-trip time between the points; zero before the first sample.
    pub rtt: Duration,
    /// Packets forwarded to the other site.
    pub sent: u64,
    /// Packets of the other site that arrived in the stream, and those that it lost.
    pub received: u64,
    /// See `received`.
    pub lost: u64,
    /// Bandwidth that the application sends to the other site.
    pub sending: Rate,
    /// Loss rate and available bandwidth of a flowshare to the other site, as its point reports.
    pub remote_loss: f64,
    /// See `remote_loss`; zero if unknown.
    pub remote_available: Rate,
    /// Smoothed loss rate of the packets from the other site, in 0..=1.
    pub loss: f64,
    /// Available bandwidth of one flowshare from the other site.
    pub available: Rate,
    /// Bandwidth that the application sends from the other site, lost packets included.
    pub arriving: Rate,
    /// Fraction of its packets in the virtual packet stream.
    pub fraction: f64,
    /// Whether the other aggregation point does not answer.
    pub peer_lost: bool,
    /// Whether the circuit breaker of either direction is open.
    pub is_stopped: bool,
}

impl AggregationPoint {
    /// An aggregation point without applications.
    pub fn new(config: AggregateConfig) -> Self {
        let config = AggregateConfig {
            max_shares: config.max_shares.clamp(1, MAX_SHARES),
            reordering: config.reordering.clamp(1, MAX_REORDERING),
            ..config
        };
        Self {
            config,
            applications: BTreeMap::new(),
            deadline: Time::FAR,
            counters: Counters::default(),
        }
    }

    /// Processes a packet and rewrites its header.
    pub fn forward(&mut self, cx: &mut Context<'_>, mut packet: Packet<'_>) -> Verdict {
        let Ok((header, _)) = Cp::parse(packet.payload) else {
            return self.reject();
        };
        let key = ApplicationKey {
            site: packet.site,
            application: header.application,
        };
        match packet.direction {
            Direction::Outbound if header.role == Role::Origin => {
                self.outbound(cx, key, header, &mut packet)
            }
            Direction::Inbound if !matches!(header.role, Role::Report(_)) => {
                self.inbound(cx, key, header, &mut packet)
            }
            Direction::Inbound | Direction::Outbound => self.reject(),
        }
    }

    /// Runs the timers of all applications, and deletes those that have expired.
    pub fn on_timeout(&mut self, cx: &mut Context<'_>) {
        if cx.now < self.deadline {
            return;
        }
        let (idle, now) = (self.config.idle, cx.now);
        let before = self.applications.len();
        self.applications
            .retain(|_, application| application.expires(idle) > now);
        self.counters.expired += (before - self.applications.len()) as u64;
        self.deadline = Time::FAR;
        for application in self.applications.values_mut() {
            application.on_timeout(cx);
            self.deadline = self.deadline.min(application.deadline(idle));
        }
    }

    /// Next call of [`on_timeout`](Self::on_timeout).
    pub fn next_timeout(&self) -> Option<(Time, TimerReason)> {
        (self.deadline < Time::FAR).then_some((self.deadline, TimerReason::Silence))
    }

    /// Numbers of packets since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// State of all applications in the order of their keys.
    pub fn applications(
        &self,
        now: Time,
    ) -> impl Iterator<Item = (ApplicationKey, ApplicationState)> {
        let each = self.applications.iter();
        each.map(move |(key, application)| (*key, application.state(now)))
    }

    fn outbound(
        &mut self,
        cx: &mut Context<'_>,
        key: ApplicationKey,
        header: Cp,
        packet: &mut Packet<'_>,
    ) -> Verdict {
        if !self.applications.contains_key(&key) && !self.admit(cx.now, key) {
            self.counters.refused += 1;
            return self.stranger();
        }
        let Some(application) = self.applications.get_mut(&key) else {
            return Verdict::Forward;
        };
        let wanted = header.shares.min(self.config.shares());
        let Some(probe) = application.on_outbound(cx.now, &header, wanted, packet.size) else {
            self.counters.stopped += 1;
            return Verdict::Drop(DropCause::Stopped);
        };
        self.counters.rewritten += 1;
        probe.rewrite(packet.payload);
        let notice = application.notice(cx.now, &header);
        self.deadline = self.deadline.min(application.deadline(self.config.idle));
        match notice {
            Some(notice) => {
                self.counters.notified += 1;
                Verdict::Notify(notice.to_bytes())
            }
            None => Verdict::Forward,
        }
    }

    fn inbound(
        &mut self,
        cx: &mut Context<'_>,
        key: ApplicationKey,
        header: Cp,
        packet: &mut Packet<'_>,
    ) -> Verdict {
        let Some(application) = self.applications.get_mut(&key) else {
            self.counters.unknown += 1;
            return self.stranger();
        };
        if let Role::Probe(probe) = header.role {
            let wanted = header.shares.min(self.config.shares());
            let arrival = Arrival {
                at: cx.now,
                size: packet.size,
                ecn: packet.ecn,
            };
            let faults = application.on_probe(cx, &probe, wanted, arrival);
            self.counters.late += u64::from(faults.is_late);
            self.counters.jumps += u64::from(faults.is_jump);
            self.counters.invalid_echoes += u64::from(faults.is_invalid_echo);
        }
        self.counters.rewritten += 1;
        let is_stamped = matches!(header.role, Role::Probe(_));
        let report = application.report(cx.now, &header, is_stamped);
        report.rewrite(packet.payload);
        self.deadline = self.deadline.min(application.deadline(self.config.idle));
        Verdict::Forward
    }

    /// Creates the state of an application, if there is space. Endpoints of this site could name
    /// any number of applications. Those that the other site has answered keep their place; the
    /// others have a quarter of the table, in which a new one replaces the oldest.
    fn admit(&mut self, now: Time, key: ApplicationKey) -> bool {
        let unanswered = |application: &&Application| !application.is_established();
        let open = self.applications.values().filter(unanswered).count();
        let is_full = self.applications.len() >= self.config.max_applications;
        if is_full || open >= (self.config.max_applications / 4).max(1) {
            let entries = self.applications.iter();
            let oldest = entries
                .filter(|(_, application)| !application.is_established())
                .min_by_key(|(_, application)| application.created());
            let Some(oldest) = oldest.map(|(key, _)| *key) else {
                return false;
            };
            self.applications.remove(&oldest);
            self.counters.expired += 1;
        }
        self.applications
            .insert(key, Application::new(&self.config, now));
        true
    }

    /// Treatment of a packet without a valid header.
    fn reject(&mut self) -> Verdict {
        self.counters.invalid += 1;
        self.stranger()
    }

    fn stranger(&self) -> Verdict {
        match self.config.strangers {
            Policy::Forward => Verdict::Forward,
            Policy::Drop => Verdict::Drop(DropCause::Stranger),
        }
    }
}

impl AggregateConfig {
    fn shares(&self) -> Shares {
        Shares::new(self.max_shares).unwrap_or(Shares::ONE)
    }
}

/// Largest tolerance of reordering in packets. A packet that waits longer delays the virtual
/// stream.
const MAX_REORDERING: u32 = 64;

#[cfg(test)]
mod tests;
