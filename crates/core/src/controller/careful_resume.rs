//! Careful resume: start from what earlier sessions learnt, with any controller (RFC 9959).
//!
//! The controller starts as without a prior. Once a report confirms the path, half of the prior's rate
//! is probed for a round trip, paced. If it is delivered without congestion, it holds until the
//! controller itself has reached it; otherwise the rate is half of what was delivered. The phases are
//! those of the RFC, which describes them for a congestion window; here they limit a rate.

use core::time::Duration;

use crate::control::{
    Change, Context, Ecn, Kind, Outcome, Prior, Report, Sent, Target, TimerReason,
};
use crate::trace::{Event, Trace};
use crate::units::{Bytes, Rate, Time};

/// Raises or lowers the target of a controller until the prior has been probed.
#[derive(Debug)]
pub(crate) struct CarefulResume {
    packet_size: Bytes,
    phase: Phase,
    /// Least round-trip time so far.
    rtt: Option<Duration>,
    /// Sequence number of the next packet.
    next: u64,
    /// Last rate recorded in the trace.
    published: Rate,
}

/// Phases of RFC 9959 section 3.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The first packets confirm the path.
    Reconnaissance(Prior),
    /// The probe is sent.
    Unvalidated(Probe),
    /// The packets of the probe are acknowledged.
    Validating(Probe),
    /// The path delivered `rate`.
    Holding { rate: Rate, until: Time },
    /// The probe met congestion. Its packets are before `end`.
    Retreat { rate: Rate, end: u64, until: Time },
    /// The controller alone decides.
    Normal,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Probe {
    rate: Rate,
    began: Time,
    /// First packet, and the one after the last.
    packets: (u64, u64),
    delivered: Bytes,
}

impl CarefulResume {
    /// A resume from `prior`, if there is one, before a controller that starts at the rate `own`. A prior of
    /// too little confidence is not used.
    pub(crate) fn new(packet_size: Bytes, prior: Option<Prior>, own: Rate) -> Self {
        Self {
            packet_size,
            phase: Phase::of(prior),
            rtt: None,
            next: 0,
            published: own,
        }
    }

    /// Whether the controller does not decide alone.
    pub(crate) fn is_on(&self) -> bool {
        self.phase != Phase::Normal
    }

    /// A packet was sent. `own` is the controller's target.
    pub(crate) fn on_sent(&mut self, cx: &mut Context<'_>, packet: &Sent, own: &Target) {
        if packet.kind == Kind::Dummy {
            return;
        }
        self.next = packet.seq.saturating_add(1);
        let rtt = self.round_trip();
        if let Phase::Unvalidated(probe) = &mut self.phase {
            // The probe lasts for a round trip; later packets continue at its rate.
            if cx.now.since(probe.began) <= rtt {
                probe.packets.1 = packet.seq.saturating_add(1);
            }
        }
        if self.is_on() {
            self.record(cx, own);
        }
    }

    /// Feedback that the controller has processed; `own` is its rate. Returns what the probe found, for
    /// the controller. [`record`](Self::record) follows.
    pub(crate) fn on_report(
        &mut self,
        now: Time,
        report: &Report<'_>,
        own: Rate,
    ) -> Option<Change> {
        let before = self.phase;
        self.on_outcomes(now, report, own);
        if let Some(sample) = report.rtt {
            self.on_rtt(now, sample, own);
        }
        match (self.phase, before) {
            (Phase::Holding { .. }, Phase::Holding { .. }) => None,
            (Phase::Holding { rate, .. }, _) => Some(Change::Validated { rate }),
            _ => None,
        }
    }

    /// The deadline of [`next_timeout`](Self::next_timeout) may have passed.
    pub(crate) fn on_timeout(&mut self, cx: &mut Context<'_>, own: &Target) {
        let is_on = self.is_on();
        if self.next_timeout().is_some_and(|(at, _)| cx.now >= at) {
            self.phase = Phase::Normal;
        }
        if is_on {
            self.record(cx, own);
        }
    }

    /// A new path may have a prior. `own` is the rate of the controller on it.
    pub(crate) fn on_change(&mut self, change: &Change, own: Rate) {
        if let Change::Path { packet_size, prior } = change {
            self.packet_size = *packet_size;
            self.published = own;
            self.phase = Phase::of(*prior);
            self.rtt = None;
        }
    }

    /// The target for the controller's `own` one.
    pub(crate) fn limit(&self, own: Target) -> Target {
        let at_least = |rate: Rate| {
            if rate <= own.send {
                return own;
            }
            Target {
                send: rate,
                media: rate.max(own.media),
                // Without a limit in flight, which the controller has not searched for yet.
                in_flight: None,
                ..own
            }
        };
        match self.phase {
            Phase::Unvalidated(probe) | Phase::Validating(probe) => at_least(probe.rate),
            Phase::Holding { rate, .. } => at_least(rate),
            Phase::Retreat { rate, .. } => Target {
                send: own.send.min(rate),
                media: own.media.min(rate),
                filler: Rate::ZERO,
                ..own
            },
            Phase::Reconnaissance(_) | Phase::Normal => own,
        }
    }

    /// Deadline of the probe: no report came for four round trips.
    pub(crate) fn next_timeout(&self) -> Option<(Time, TimerReason)> {
        let at = match self.phase {
            Phase::Unvalidated(probe) | Phase::Validating(probe) => {
                probe.began + self.round_trip() * 4 + REPORT_DELAY
            }
            Phase::Holding { until, .. } | Phase::Retreat { until, .. } => until,
            Phase::Reconnaissance(_) | Phase::Normal => return None,
        };
        Some((at, TimerReason::Silence))
    }

    /// Calls the controller with a trace that does not record its rate, which is not the one in force
    /// before [`Phase::Normal`].
    pub(crate) fn without_rates(&self, cx: &mut Context<'_>, call: impl FnOnce(&mut Context<'_>)) {
        if !self.is_on() {
            return call(cx);
        }
        let mut trace = WithoutRates(&mut *cx.trace);
        call(&mut Context {
            now: cx.now,
            rng: &mut *cx.rng,
            trace: &mut trace,
        });
    }

    /// Records a change of the rate in force.
    pub(crate) fn record(&mut self, cx: &mut Context<'_>, own: &Target) {
        let (from, to) = (self.published, self.limit(*own).send);
        if from != to {
            self.published = to;
            cx.trace.record(cx.now, Event::RateChanged { from, to });
        }
    }

    fn on_rtt(&mut self, now: Time, sample: Duration, own: Rate) {
        let rtt = self.rtt.map_or(sample, |least| least.min(sample));
        self.rtt = Some(rtt);
        let Phase::Reconnaissance(prior) = self.phase else {
            return;
        };
        let rate = prior.rate.scale(1, 2);
        // RFC 9959 section 3.2: another path, or a rate that the controller reaches by itself in the
        // round trip of the probe.
        let fits = rtt >= prior.rtt / 2 && rtt <= prior.rtt * MAX_RTT;
        let is_faster = rate >= own.scale(2, 1);
        self.phase = if fits && is_faster {
            Phase::Unvalidated(Probe {
                rate,
                began: now,
                packets: (self.next, self.next),
                delivered: Bytes::ZERO,
            })
        } else {
            Phase::Normal
        };
    }

    /// Updates the phase for the outcomes of a report.
    fn on_outcomes(&mut self, now: Time, report: &Report<'_>, own: Rate) {
        let is_congested = report.packets.iter().any(|fate| match fate.outcome {
            Outcome::Lost => true,
            Outcome::Received { ecn, .. } => ecn == Ecn::Ce,
        });
        let newest = report.packets.last().map(|fate| fate.seq);
        match &mut self.phase {
            Phase::Unvalidated(probe) | Phase::Validating(probe) => {
                let of_probe = |seq: u64| seq >= probe.packets.0;
                let own = report.packets.iter().filter(|fate| of_probe(fate.seq));
                let arrived = own.filter(|fate| fate.outcome.is_received());
                probe.delivered += arrived.map(|fate| fate.size).sum();
            }
            _ => {}
        }
        let rtt = self.round_trip();
        match self.phase {
            Phase::Reconnaissance(_) | Phase::Holding { .. } if is_congested => {
                self.phase = Phase::Normal;
            }
            Phase::Unvalidated(probe) | Phase::Validating(probe) if is_congested => {
                self.phase = self.retreat(now, probe);
            }
            Phase::Unvalidated(probe) if newest.is_some_and(|seq| seq >= probe.packets.0) => {
                self.phase = Phase::Validating(probe);
                self.validate(now, newest);
            }
            Phase::Validating(_) => self.validate(now, newest),
            Phase::Holding { rate, until } if own >= rate || now >= until => {
                self.phase = Phase::Normal;
            }
            Phase::Retreat { end, until, .. } => {
                let is_over = newest.is_some_and(|seq| seq + 1 >= end) || now >= until;
                if is_over {
                    self.phase = Phase::Normal;
                }
            }
            Phase::Unvalidated(probe) if now.since(probe.began) > rtt * 4 => {
                self.phase = Phase::Normal;
            }
            _ => {}
        }
    }

    /// The probe ends once its last packet is acknowledged.
    fn validate(&mut self, now: Time, newest: Option<u64>) {
        let Phase::Validating(probe) = self.phase else {
            return;
        };
        if newest.is_some_and(|seq| seq + 1 >= probe.packets.1) {
            let rtt = self.round_trip();
            // The application may have sent less than the probe permits. A round trip need not be a
            // whole number of packets.
            let rate = ((probe.delivered + self.packet_size) / rtt).min(probe.rate);
            self.phase = Phase::Holding {
                rate,
                until: now + rtt * HOLD,
            };
        }
    }

    /// RFC 9959 section 3.5: half of what the path delivered.
    fn retreat(&self, now: Time, probe: Probe) -> Phase {
        let rtt = self.round_trip();
        let span = now.since(probe.began).max(rtt);
        // The packets of the first round trip were answered after it.
        let span = span.saturating_sub(rtt).max(rtt);
        let half = (probe.delivered / span).scale(1, 2);
        Phase::Retreat {
            rate: half.max(self.packet_size / rtt),
            end: probe.packets.1.max(self.next),
            until: now + rtt * 4,
        }
    }

    fn round_trip(&self) -> Duration {
        self.rtt.unwrap_or(UNKNOWN_RTT).max(MIN_RTT)
    }
}

/// Records all events but changes of the rate.
struct WithoutRates<'a>(&'a mut dyn Trace);

impl Trace for WithoutRates<'_> {
    fn record(&mut self, at: Time, event: Event) {
        if !matches!(event, Event::RateChanged { .. }) {
            self.0.record(at, event);
        }
    }
}

impl Phase {
    fn of(prior: Option<Prior>) -> Self {
        let usable = prior.filter(|prior| prior.confidence >= MIN_CONFIDENCE);
        usable.map_or(Self::Normal, Self::Reconnaissance)
    }
}

/// Largest ratio of the round-trip time to that of the prior (RFC 9959 section 3.2).
const MAX_RTT: u32 = 10;

/// Least confidence of a prior that is used.
const MIN_CONFIDENCE: f64 = 0.2;

/// Round trips for which the delivered rate holds while the controller is slower. Ten doublings reach
/// any rate from the initial window.
const HOLD: u32 = 10;

/// Longest regular interval between two reports.
const REPORT_DELAY: Duration = Duration::from_millis(100);

/// Round-trip time before the first sample.
const UNKNOWN_RTT: Duration = Duration::from_secs(1);

/// Shorter round-trip times count as this one, so that rates stay finite.
const MIN_RTT: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests;
