//! RAP, the rate adaptation protocol: additive increase and multiplicative decrease of a paced
//! rate, with an acknowledgement per packet.
//!
//! Source: R. Rejaie, M. Handley, D. Estrin, *RAP: An End-to-end Rate-based Congestion Control
//! Mechanism for Realtime Streams in the Internet*, INFOCOM 1999. Where the paper leaves a choice,
//! this implementation follows ns-2. `docs/rap.md` lists the exceptions.

mod flight;

use core::time::Duration;

use super::{Configuration, Feedback, Properties, Rescheduling};
use crate::control::{
    Algorithm, Change, Context, Ecn, Kind, Outcome, Prior, RateControl, RateController, Report,
    Sent, Start, Summary, Target, TimerReason, sooner,
};
use crate::path::Path;
use crate::trace::Event;
use crate::units::{Bytes, Rate, Time, nanos};
use flight::Flight;

/// Configuration of RAP. The defaults are those of ns-2, except for `report_interval`. Values are
/// clamped to their range.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(default, deny_unknown_fields, expecting = "{ fine_grain = true }")
)]
pub struct RapConfig {
    /// Scale the gap between packets by the ratio of a short-term to a long-term average of the
    /// round-trip time: slower while a queue grows, faster while it drains (the fine-grain
    /// adaptation of the paper, its section 2.4).
    pub fine_grain: bool,
    /// Rate increase per round trip, in packets per round trip (`alpha`), from 0.001 to 1000.
    pub increase: f64,
    /// Multiplicative decrease factor at a loss event (`beta`), from 0.001 to 0.999.
    pub decrease: f64,
    /// Weight of a new sample in the averages of the round-trip time and of its deviation
    /// (`delta`), from 0.001 to 1. TCP uses 1/8 and 1/4. At 0.5 the average covers two or three
    /// packets.
    pub rtt_gain: f64,
    /// Maximum interval between two reports in normal operation; zero if each packet has its own
    /// report, as in the paper. The interval is added to the time after which a packet without a
    /// report counts as lost.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub report_interval: Duration,
    /// Slow start or informed start, which needs a prior: the packets of the first round trip are those of
    /// its window ([`Prior::window`]), at once and not after a probe.
    pub start: StartRule,
}

/// Start of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum StartRule {
    /// By slow start. If a prior is known, a careful resume precedes it.
    #[default]
    SlowStart,
    /// With the rate of the prior, as published: without a check of its round-trip time, and at the
    /// full rate. By slow start if no prior is known.
    InformedPaper,
}

impl Default for RapConfig {
    fn default() -> Self {
        Self {
            fine_grain: false,
            increase: 1.0,
            decrease: 0.5,
            rtt_gain: 0.5,
            report_interval: Duration::from_millis(50),
            start: StartRule::SlowStart,
        }
    }
}

impl RapConfig {
    /// Configuration of `Agent/RAP` in ns-2: each packet has its own report.
    pub fn per_packet() -> Self {
        Self {
            report_interval: Duration::ZERO,
            ..Self::default()
        }
    }
}

impl Configuration for RapConfig {
    const NAME: &'static str = "rap";
    const ABOUT: &'static str = "additive increase and multiplicative decrease (RAP)";

    fn properties(&self) -> Properties {
        Properties {
            resumes: self.start != StartRule::InformedPaper,
            feedback: Feedback::EachPacket,
            rescheduling: Rescheduling::Steady,
            ..Properties::default()
        }
    }
}

impl Algorithm for RapConfig {
    fn start(&self, start: &Start) -> RateControl {
        let config = Self {
            report_interval: start.report_interval.unwrap_or(self.report_interval),
            ..self.clone()
        };
        let mut rap = Rap::new(&config, start.packet_size);
        if let (StartRule::InformedPaper, Some(prior)) = (self.start, start.prior) {
            rap.start_informed(&prior, start.packet_size);
        }
        RateControl::new(rap, start)
    }
}

/// One path under RAP. Times are in seconds.
#[derive(Clone, Debug)]
pub(super) struct Rap {
    config: RapConfig,
    /// Maximum interval between two reports.
    report_interval: Duration,
    /// Mean size of a packet, in bytes.
    size: f64,
    /// Inter-packet gap.
    gap: f64,
    /// Round-trip time of a prior in seconds, until the first measurement.
    expected_rtt: Option<f64>,
    rtt: RoundTrip,
    /// Packets whose loss is a new loss event.
    flight: Flight,
    /// Next time at which the rate may grow; `None` if no packet was sent since it last grew.
    step: Option<Time>,
    /// Packets sent since the rate last grew.
    sent: u32,
    /// Time of the next check for overdue packets, unless a packet is sent before.
    check: Option<Time>,
    /// Mean number of packets between two loss events.
    interval: Option<f64>,
    /// First packet after the latest loss event.
    event: u64,
    published: Rate,
    totals: Summary,
}

impl Rap {
    pub(super) fn new(config: &RapConfig, packet_size: Bytes) -> Self {
        // `max` and `min` map NaN to the limit, unlike `clamp`.
        let within = |value: f64, least: f64, most: f64| value.max(least).min(most);
        let config = RapConfig {
            increase: within(config.increase, 1e-3, 1e3),
            decrease: within(config.decrease, 1e-3, 0.999),
            rtt_gain: within(config.rtt_gain, 1e-3, 1.0),
            ..config.clone()
        };
        let mut rap = Self {
            report_interval: config.report_interval,
            config,
            size: packet_size.get().max(1) as f64,
            gap: FIRST_GAP,
            expected_rtt: None,
            rtt: RoundTrip::default(),
            flight: Flight::new(),
            step: None,
            sent: 0,
            check: None,
            interval: None,
            event: 0,
            published: Rate::ZERO,
            totals: Summary::default(),
        };
        rap.published = rap.target().send;
        rap
    }

    /// Starts with the window of a prior.
    fn start_informed(&mut self, prior: &Prior, packet_size: Bytes) {
        let rtt = seconds(prior.rtt).clamp(MIN_RTT, MAX_GAP);
        self.expected_rtt = Some(rtt);
        self.rtt.mean = rtt;
        self.gap = (rtt / prior.window(packet_size)).max(MIN_GAP);
        self.published = self.target().send;
    }

    /// Continues at `rate` on a path with this round-trip time.
    pub(super) fn continue_at(&mut self, rate: Rate, rtt: Duration) {
        self.on_rtt(rtt);
        self.gap = (self.size * 8.0 / rate.as_f64().max(1.0)).clamp(MIN_GAP, MAX_GAP);
    }

    fn on_rtt(&mut self, sample: Duration) {
        self.totals.min_rtt = Some(self.totals.min_rtt.map_or(sample, |min| min.min(sample)));
        let first = self.rtt.samples == 0;
        self.rtt.update(
            seconds(sample).clamp(MIN_RTT, MAX_GAP),
            self.config.rtt_gain,
        );
        if first {
            self.gap = match self.expected_rtt.take() {
                // The packets per round trip remain.
                Some(expected) => (self.gap * self.rtt.mean / expected).clamp(MIN_GAP, MAX_GAP),
                // The initial rate is one packet per round trip.
                None => self.rtt.mean,
            };
        }
    }

    /// Whether a packet is overdue: its report should have arrived.
    fn is_overdue(&self, now: Time) -> bool {
        let wait = duration(self.rtt.timeout) + self.report_interval;
        self.flight.oldest().is_some_and(|sent| sent + wait <= now)
    }

    /// Reduces the rate for a loss. Losses of packets sent before belong to the same event.
    fn back_off(&mut self, cx: &mut Context<'_>) {
        self.gap = (self.gap / self.config.decrease).min(MAX_GAP);
        let length = self.flight.next().saturating_sub(self.event).max(1) as f64;
        let interval = self
            .interval
            .map_or(length, |mean| mean + EVENT_GAIN * (length - mean));
        self.interval = Some(interval);
        self.totals.loss_event_rate = 1.0 / interval;
        let loss_event_rate = self.totals.loss_event_rate;
        cx.trace
            .record(cx.now, Event::LossEvent { loss_event_rate });
        self.event = self.flight.next();
        self.flight.clear();
        self.step = Some(cx.now + self.rtt.duration());
    }

    /// Increases the rate after a round trip without a loss event.
    fn grow(&mut self, now: Time) {
        // As in ns-2: a sender that uses less than half of the rate does not probe the path.
        let due = self.rtt.mean / self.gap;
        if f64::from(self.sent) >= MIN_USE * due && self.sent > 0 {
            let faster = self.config.increase * self.gap + self.rtt.mean;
            self.gap = (self.gap * self.rtt.mean / faster).max(MIN_GAP);
        }
        self.step = (self.sent > 0).then(|| now + self.rtt.duration());
        self.sent = 0;
    }

    /// Seconds between two packets.
    fn spacing(&self) -> f64 {
        let ratio = if self.config.fine_grain {
            self.rtt.ratio()
        } else {
            1.0
        };
        (self.gap * ratio).clamp(MIN_GAP, MAX_GAP)
    }

    fn publish(&mut self, cx: &mut Context<'_>) {
        let (from, to) = (self.published, self.target().send);
        if from != to {
            self.published = to;
            cx.trace.record(cx.now, Event::RateChanged { from, to });
        }
    }
}

impl RateController for Rap {
    fn on_sent(&mut self, cx: &mut Context<'_>, packet: &Sent, _: &mut Path) {
        // A path that is tested for RCS. No report on it counts here.
        if packet.kind == Kind::Dummy {
            return;
        }
        if self.is_overdue(cx.now) {
            self.back_off(cx);
            self.publish(cx);
        }
        self.flight.send(packet.seq, cx.now);
        self.sent = self.sent.saturating_add(1);
        self.size += (packet.size.get().max(1) as f64 - self.size) * SIZE_GAIN;
        if self.step.is_none() {
            self.step = Some(cx.now + self.rtt.duration());
        }
        self.check = Some(cx.now + duration(self.spacing() * CHECK_AFTER));
    }

    fn on_report(&mut self, cx: &mut Context<'_>, report: &Report<'_>, _: &mut Path) {
        if let Some(sample) = report.rtt {
            self.on_rtt(sample);
        }
        let mut congested = false;
        for fate in report.packets {
            let open = self.flight.settle(fate.seq);
            match fate.outcome {
                Outcome::Lost => {
                    self.totals.lost = self.totals.lost.saturating_add(1);
                    congested |= open;
                }
                Outcome::Received { ecn, .. } => {
                    self.totals.delivered += fate.size;
                    congested |= open && ecn == Ecn::Ce;
                }
            }
        }
        if congested {
            self.back_off(cx);
        }
        self.publish(cx);
    }

    /// Checks for overdue packets at every call, so a driver may call it before it sends.
    fn on_timeout(&mut self, cx: &mut Context<'_>, _: &mut Path) {
        if self.step.is_some_and(|at| at <= cx.now) {
            self.grow(cx.now);
        }
        if self.is_overdue(cx.now) {
            self.back_off(cx);
        }
        if self.check.is_some_and(|at| at <= cx.now) {
            let again = duration(self.spacing() * CHECK_AFTER).max(MIN_WAIT);
            self.check = self.flight.oldest().map(|_| cx.now + again);
        }
        self.publish(cx);
    }

    fn on_change(&mut self, cx: &mut Context<'_>, change: &Change, _: &mut Path) {
        match change {
            Change::Path { packet_size, .. } => {
                let published = self.published;
                *self = Self::new(&self.config, *packet_size);
                self.published = published;
                self.publish(cx);
            }
            Change::Reports { interval } => {
                self.report_interval = self.config.report_interval.max(*interval);
            }
            Change::Demand(_) | Change::LowerEffort(_) | Change::Validated { .. } => {}
        }
    }

    fn target(&self) -> Target {
        // Rounded down. With a constant round-trip time an increase and a packet are repeatedly due
        // at the same time, and the increase must come first.
        Target::of(Rate::bps((self.size * 8.0 / self.spacing()) as u64))
    }

    fn next_timeout(&self, _: &Path) -> Option<(Time, TimerReason)> {
        let step = self.step.map(|at| (at, TimerReason::Increase));
        sooner(step, self.check.map(|at| (at, TimerReason::Loss)))
    }

    fn summary(&self, _: &Path) -> Summary {
        Summary {
            rate: self.target().send,
            ..self.totals
        }
    }
}

/// Running averages of the round-trip time, in seconds.
#[derive(Clone, Copy, Debug)]
struct RoundTrip {
    samples: u32,
    mean: f64,
    deviation: f64,
    /// Time after which a packet without a report counts as lost.
    timeout: f64,
    /// Short-term and long-term average for the fine-grain adaptation.
    short: f64,
    long: f64,
}

impl Default for RoundTrip {
    /// Initial averages: two seconds, as in ns-2.
    fn default() -> Self {
        Self {
            samples: 0,
            mean: FIRST_GAP,
            deviation: 0.0,
            timeout: FIRST_GAP,
            short: FIRST_GAP,
            long: FIRST_GAP,
        }
    }
}

impl RoundTrip {
    fn update(&mut self, sample: f64, gain: f64) {
        if self.samples == 0 {
            (self.mean, self.short, self.long) = (sample, sample, sample);
        }
        self.samples = self.samples.saturating_add(1);
        let error = sample - self.mean;
        self.mean += gain * error;
        self.deviation += gain * (error.abs() - self.deviation);
        self.timeout = MEANS * self.mean + DEVIATIONS * self.deviation;
        self.short += SHORT_GAIN * (sample - self.short);
        self.long += LONG_GAIN * (sample - self.long);
    }

    fn ratio(&self) -> f64 {
        self.short / self.long
    }

    fn duration(&self) -> Duration {
        duration(self.mean)
    }
}

fn seconds(d: Duration) -> f64 {
    nanos(d) as f64 / 1e9
}

/// Converts seconds to the nearest nanosecond; saturates.
fn duration(secs: f64) -> Duration {
    Duration::from_nanos((secs * 1e9 + 0.5) as u64)
}

/// Gap and round-trip time before the first report, in seconds (ns-2: `ipg_`, `srtt_`).
const FIRST_GAP: f64 = 2.0;

/// Maximum gap between packets: one packet per 64 seconds probes the path, as in TFRC. ns-2 has no
/// maximum, and after a long outage it is idle for as long again.
const MAX_GAP: f64 = 64.0;

/// Minimum gap between packets: 96 Gb/s at 1200 bytes.
const MIN_GAP: f64 = 1e-7;

/// Minimum round-trip time in seconds, a tenth of a switch hop.
const MIN_RTT: f64 = 1e-6;

/// Minimum used fraction of the rate for an increase (ns-2: `dpthresh_` of 50 %).
const MIN_USE: f64 = 0.5;

/// Weights of mean round-trip time and mean deviation in the timeout (ns-2: `mu_`, `phi_`).
const MEANS: f64 = 1.2;
const DEVIATIONS: f64 = 4.0;

/// Weights of a new sample in the averages of the fine-grain adaptation (ns-2: `kfrtt_`, `kxrtt_`).
const SHORT_GAIN: f64 = 0.9;
const LONG_GAIN: f64 = 0.01;

/// Sending a packet includes the check for overdue packets. The separate check is due this many
/// gaps after the last packet.
const CHECK_AFTER: f64 = 65.0 / 64.0;

/// Minimum interval of the check for overdue packets, which limits its cost.
const MIN_WAIT: Duration = Duration::from_millis(1);

/// Weight of the latest interval between two loss events, for the summary only.
const EVENT_GAIN: f64 = 0.25;

/// Weight of a new sample in the mean packet size: it averages over about 64 packets, which is two
/// or more video frames.
const SIZE_GAIN: f64 = 1.0 / 64.0;

#[cfg(test)]
mod tests;
