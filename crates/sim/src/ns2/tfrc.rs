//! TFRC before RFC 5348: RFC 3448, and ns-2 where the RFC does not specify the behaviour.
//!
//! `docs/tfrc.md` lists the differences from the product's TFRC and their size. Rates are in bytes per second and times in seconds.

mod config;
mod equation;
mod headers;
mod informed;
mod round_trip;
mod throughput;
mod wali;

use core::time::Duration;

use tidegate_core::control::{
    Change, Context, Ecn, Measured, Outcome, PacketOutcome, Prior, RateController, Report, Sent,
    Summary, Target, TimerReason,
};
use tidegate_core::controller::tfrc::packet_log::PacketLog;
use tidegate_core::controller::tfrc::{PacketSize, equation::MIN_LOSS};
use tidegate_core::path::Path;
use tidegate_core::trace::Event;
use tidegate_core::units::{Bytes, Rate, RemoteTime, Time, nanos};

pub use config::{Ns2TfrcConfig, TFRC};
use equation::Equation;
use headers::Headers;
use informed::{EarlyReport, Informed, Step};
use round_trip::RoundTrip;
use throughput::Throughput;
use wali::Wali;

/// One path under the older TFRC.
#[derive(Clone, Debug)]
struct Tfrc {
    config: Ns2TfrcConfig,
    /// `s`.
    size: f64,
    /// Allowed rate.
    rate: f64,
    /// Present rate of a sender in slow start, at most `rate`.
    reached: f64,
    /// Increase of `reached` per packet.
    ramp: f64,
    /// Rate for the spacing of the next packet: `rate` with all corrections.
    instant: f64,
    slow_start: bool,
    informed: Informed,
    /// Time of the last change of the rate, other than at the end of slow start.
    changed: Time,
    rtt: Option<RoundTrip>,
    headers: Headers,
    packet_log: PacketLog,
    losses: Wali,
    /// Losses and marks without a later arrival.
    pending: Vec<(u64, Time)>,
    /// First loss of the latest event: sending time, and the round of its detection.
    last_event: Option<(Time, u32)>,
    arrivals: Throughput,
    gathered: Gathered,
    silence: Option<Time>,
    limited: Limited,
    published: Rate,
    totals: Summary,
}

impl Tfrc {
    fn new(config: &Ns2TfrcConfig, now: Time, packet_size: Bytes, prior: Option<Prior>) -> Self {
        let size = packet_size.get().max(1) as f64;
        let informed = Informed::new(config.start, prior);
        let first = informed.first_rate();
        let first = first.unwrap_or(config.first_rate.as_f64() / 8.0);
        let first = first.max(size / T_MBI);
        let mut config = config.clone();
        config.rtt_memory = share(config.rtt_memory);
        let mut tfrc = Self {
            losses: Wali::new(&config),
            config,
            size,
            rate: first,
            reached: first,
            ramp: 0.0,
            instant: first,
            slow_start: informed == Informed::Over,
            informed,
            changed: now,
            rtt: None,
            headers: Headers::new(),
            packet_log: PacketLog::default(),
            pending: Vec::new(),
            last_event: None,
            arrivals: Throughput::default(),
            gathered: Gathered::new(now),
            silence: None,
            limited: Limited::default(),
            published: Rate::ZERO,
            totals: Summary::default(),
        };
        tfrc.published = tfrc.target().send;
        tfrc
    }

    /// Processes the fate of a packet; returns whether the packet arrived.
    fn on_outcome(&mut self, now: Time, fate: &PacketOutcome) -> bool {
        if self.packet_log.settle(fate.seq).is_none() {
            return false;
        }
        self.losses.on_outcome(fate.seq);
        let sent = fate.sent.min(now);
        match fate.outcome {
            Outcome::Lost => {
                self.totals.lost = self.totals.lost.saturating_add(1);
                self.pending.push((fate.seq, sent));
                false
            }
            Outcome::Received { at, ecn } => {
                self.totals.delivered += fate.size;
                self.arrivals.add(at);
                self.gathered.newest = Some((at, fate.sent));
                if ecn == Ecn::Ce {
                    self.pending.push((fate.seq, sent));
                }
                self.judge(fate.seq, sent, at);
                true
            }
        }
    }

    /// Determines which of the pending losses begin a loss event. Packet `by`, sent at `shown` and
    /// received at `at`, is the first arrival after them. A receiver uses the header of that
    /// packet.
    fn judge(&mut self, by: u64, shown: Time, at: RemoteTime) {
        if self.pending.is_empty() {
            return;
        }
        let header = self.headers.of(by);
        if self.losses.is_empty() && self.informed.is_early() {
            // The loss event rate that was seen, which the paper calls too pessimistic.
            let (seq, _) = self.pending[0];
            let p = 1.0 / seq.saturating_add(1) as f64;
            self.losses.seed(p);
            self.gathered.first_p = Some(p);
            self.gathered.new_event = true;
            self.last_event = Some((shown, header.round));
            self.pending.clear();
            return;
        }
        if self.losses.is_empty() {
            let rate = self.arrivals.rate(at, header.rtt) * self.size;
            let p = self.equation(header.rtt).inverse(rate);
            self.losses.seed(p);
            self.gathered.first_p = Some(p);
            self.gathered.new_event = true;
            self.last_event = Some((shown, header.round));
            self.pending.clear();
            return;
        }
        let rtt = duration(header.rtt);
        for (seq, sent) in self.pending.drain(..) {
            // As in ns-2 (`PreciseLoss_`): between two events the sender has received a report. The
            // round-trip time may have grown since it was sent in a header.
            let new = self
                .last_event
                .is_none_or(|(last, round)| sent > last + rtt && header.round > round);
            if new && self.losses.begin(seq) {
                self.last_event = Some((sent, header.round));
                self.gathered.new_event = true;
            }
        }
    }

    fn on_feedback(&mut self, cx: &mut Context<'_>) {
        let gathered = core::mem::replace(&mut self.gathered, Gathered::new(cx.now));
        let received = self.receive_rate(cx.now, &gathered);
        let first = self.rtt.is_none();
        let options = &self.config;
        if let Some(sample) = gathered.rtt_sample() {
            match &mut self.rtt {
                Some(rtt) => rtt.update(sample, options.rtt_memory, options.tick),
                None => self.rtt = Some(RoundTrip::new(sample, options.tick)),
            }
        }
        let Some(rtt) = self.rtt.map(|rtt| rtt.mean) else {
            return;
        };
        self.set_timer(cx.now);
        self.headers.next_round(rtt);
        let p = match (gathered.measured, gathered.first_p) {
            (Some((_, p)), _) | (None, Some(p)) => p,
            (None, None) => self.losses.event_rate(),
        };
        let worse = gathered.new_event || p > self.totals.loss_event_rate;
        self.totals.loss_event_rate = p;
        if worse && p > 0.0 {
            let loss_event_rate = p;
            cx.trace
                .record(cx.now, Event::LossEvent { loss_event_rate });
        }
        if !self.slow_start {
            let fair = (p > 0.0).then(|| self.equation(rtt).rate(p));
            let (next, step) = self.informed.on_report(&EarlyReport {
                now: cx.now,
                is_first: first,
                rtt,
                received,
                fair,
            });
            self.informed = next;
            self.step(cx.now, step, p, received, rtt);
        } else if first || p <= 0.0 {
            self.grow(cx.now, 2.0 * received, rtt);
        } else {
            self.slow_start = false;
            self.rate = self.equation(rtt).rate(p).max(self.least_rate());
            let rate = Rate::from_f64(self.rate * 8.0);
            cx.trace.record(cx.now, Event::SlowStartEnded { rate });
        }
        self.instant = self.damped();
    }

    /// After slow start, or instead of it.
    fn step(&mut self, now: Time, step: Step, p: f64, received: f64, rtt: f64) {
        match step {
            Step::Normal => self.follow(now, p, 2.0 * received, rtt),
            Step::Rate(rate) | Step::FirstLossRate(rate) => {
                self.rate = rate.max(self.least_rate());
                self.changed = now;
            }
        }
        if let Step::FirstLossRate(rate) = step {
            let p = self.equation(rtt).inverse(rate);
            self.losses.seed(p);
        }
    }

    /// Receive rate in bytes per second, as the receiver would have computed it for the latest
    /// report.
    fn receive_rate(&mut self, now: Time, gathered: &Gathered) -> f64 {
        if let Some((rate, _)) = gathered.measured {
            return rate;
        }
        let Some((at, sent)) = gathered.newest else {
            return 0.0;
        };
        // The sample excludes the holding time of the receiver. The holding time is therefore the
        // time since the packet was sent, minus the sample.
        let held = gathered
            .rtt
            .map_or(Duration::ZERO, |rtt| now.since(sent).saturating_sub(rtt));
        let report = RemoteTime(at.0.saturating_add(nanos(held)));
        self.arrivals.feedback(report, self.headers.told()) * self.size
    }

    /// Slow start; `limit` is twice the receive rate.
    fn grow(&mut self, now: Time, limit: f64, rtt: f64) {
        let (packet, window) = (self.size / rtt, self.initial_window());
        let (initial, round) = (window * packet, self.headers.round());
        let before = self.rate;
        // The first receive rate is that of a single packet.
        let early = round <= 1 || (round == 2 && window > 1.0);
        self.rate = if early || (limit < initial && self.was_limited(now, rtt)) {
            before.max(initial)
        } else if before > limit {
            limit / 2.0
        } else if before < limit && now.since(self.changed) + HAIR > duration(rtt) {
            (self.config.slow_start_factor.max(1.0) * before)
                .min(limit)
                .max(packet)
        } else {
            return;
        };
        self.changed = now;
        self.reached = before.min(self.rate);
        // The packets of one round trip at the new rate make up the difference.
        self.ramp = (self.rate - self.reached) * packet / self.rate;
    }

    /// After slow start: increases by one packet per round trip up to the rate of the equation,
    /// decreases to it immediately. `limit` is an upper bound, but not below one packet per round
    /// trip.
    fn follow(&mut self, now: Time, p: f64, limit: f64, rtt: f64) {
        let packet = self.size / rtt;
        let fair = self.equation(rtt).rate(p);
        let mut most = limit.max(packet);
        if fair > self.rate {
            if self.was_limited(now, rtt) {
                most = limit.max(self.initial_window() * packet);
            }
            let passed = (seconds(now.since(self.changed)) / rtt).min(2.0);
            self.rate = (self.rate + packet * passed).min(most).min(fair);
        } else {
            self.rate = fair.min(most);
        }
        self.rate = self.rate.max(self.least_rate());
        self.changed = now;
    }

    /// The no-feedback timer expired.
    fn on_silence(&mut self) {
        let half = (self.rate / 2.0).max(self.least_rate());
        if !self.limited.now {
            self.rate = half;
        } else if let Some(rtt) = self.rtt {
            // An idle sender keeps at least the initial window per round trip.
            let initial = self.initial_window() * self.size / rtt.mean;
            self.rate = half.max(self.rate.min(initial));
        }
        self.headers.next_round(self.headers.told());
        self.instant = self.instant.min(self.damped());
    }

    fn set_timer(&mut self, now: Time) {
        let known = self.rtt.map(|rtt| rtt.mean).or(self.informed.rtt());
        let round = known
            .unwrap_or(0.0)
            .max(seconds(self.config.report_interval));
        let span = if known.is_some() { 2.0 * round } else { 0.0 };
        let span = duration(span.max(2.0 * self.size / self.rate));
        self.silence = Some(now + span.max(MIN_PATIENCE));
    }

    /// The rate with the correction for the latest round-trip sample (`ca_`).
    fn damped(&self) -> f64 {
        match self.rtt {
            Some(rtt) if self.config.damping => self.rate * rtt.root / rtt.latest.sqrt(),
            _ => self.rate,
        }
    }

    fn equation(&self, rtt: f64) -> Equation {
        Equation {
            size: self.size,
            rtt,
            rto: self.rtt.map_or(0.0, |now| now.rto(self.config.tick)),
        }
    }

    /// Initial window in packets.
    fn initial_window(&self) -> f64 {
        match self.config.initial_window {
            Some(packets) => packets.max(1.0),
            None if self.size <= 1_095.0 => 4.0,
            None if self.size < 2_190.0 => 3.0,
            None => 2.0,
        }
    }

    /// Whether the sender was application-limited within the last one and a half round trips.
    fn was_limited(&self, now: Time, rtt: f64) -> bool {
        let ended = self.limited.ended;
        self.limited.now || ended.is_some_and(|at| now.since(at) < duration(1.5 * rtt))
    }

    /// Minimum rate of RFC 3448; ns-2 has none.
    fn least_rate(&self) -> f64 {
        self.size / T_MBI
    }

    fn publish(&mut self, cx: &mut Context<'_>) {
        let (from, to) = (self.published, self.target().send);
        if from != to {
            self.published = to;
            cx.trace.record(cx.now, Event::RateChanged { from, to });
        }
    }
}

impl RateController for Tfrc {
    fn on_sent(&mut self, cx: &mut Context<'_>, packet: &Sent, _: &mut Path) {
        self.packet_log.send(packet.seq, !packet.app_limited);
        self.headers.next = self.headers.next.max(packet.seq.saturating_add(1));
        if self.limited.now {
            self.limited.ended = Some(cx.now);
        }
        self.limited.now = packet.app_limited;
        self.informed.on_sent(cx.now);
        if self.config.packet_size == PacketSize::Mean {
            self.size += (packet.size.get().max(1) as f64 - self.size) * SIZE_GAIN;
        }
        if self.silence.is_none() {
            self.set_timer(cx.now);
        }
        let ramps = self.config.slow_increase && self.slow_start;
        if ramps && self.headers.round() > 2 && self.reached < self.rate {
            self.reached += self.ramp;
            self.instant = self.reached;
        } else {
            self.instant = self.damped();
        }
        self.publish(cx);
    }

    fn on_report(&mut self, cx: &mut Context<'_>, report: &Report<'_>, _: &mut Path) {
        self.gathered.rtt = report.rtt;
        if let Some(sample) = report.rtt {
            self.totals.min_rtt = Some(self.totals.min_rtt.map_or(sample, |min| min.min(sample)));
            self.gathered.on_rtt(seconds(sample).clamp(MIN_RTT, T_MBI));
        }
        let mut arrived = false;
        for fate in report.packets {
            arrived |= self.on_outcome(cx.now, fate);
        }
        // Losses that a driver declares without a later arrival.
        let at = self.arrivals.newest().unwrap_or(RemoteTime(0));
        self.judge(self.headers.next, cx.now, at);
        if let Some(measured) = report.measured.filter(|_| report.packets.is_empty()) {
            let rate = measured.receive_rate.as_f64() / 8.0;
            self.gathered.measured = Some((rate, valid_loss_event_rate(measured)));
            arrived = true;
        }
        self.gathered.arrived |= arrived;
        if arrived {
            self.set_timer(cx.now);
        }
        let rtt = self.rtt.map_or(Duration::ZERO, |rtt| duration(rtt.mean));
        let due = self.config.report_interval.is_zero()
            || self.gathered.new_event
            || has_passed(rtt, self.gathered.began, cx.now);
        if self.gathered.arrived && due {
            self.on_feedback(cx);
        }
        self.publish(cx);
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>, _: &mut Path) {
        if self.silence.is_none_or(|deadline| cx.now < deadline) {
            return;
        }
        let before = self.rate;
        self.on_silence();
        if self.rate < before {
            let rate = self.target().send;
            cx.trace.record(cx.now, Event::NoFeedback { rate });
        }
        self.set_timer(cx.now);
        self.publish(cx);
    }

    fn on_change(&mut self, cx: &mut Context<'_>, change: &Change, _: &mut Path) {
        match change {
            Change::Path { packet_size, prior } => {
                let published = self.published;
                *self = Self::new(&self.config, cx.now, *packet_size, *prior);
                self.published = published;
                self.publish(cx);
            }
            Change::Validated { rate } if self.slow_start => {
                let rate = rate.as_f64() / 8.0;
                if rate > self.rate {
                    (self.rate, self.reached) = (rate, rate);
                    self.instant = self.damped();
                    self.changed = cx.now;
                    self.publish(cx);
                }
            }
            _ => {}
        }
    }

    fn target(&self) -> Target {
        // Rounded down. If a round trip is a multiple of the packet spacing, a report and a packet
        // are due at the same time, and the report must be processed first.
        Target::of(Rate::bps(
            (self.instant.max(self.least_rate()) * 8.0) as u64,
        ))
    }

    fn next_timeout(&self, _: &Path) -> Option<(Time, TimerReason)> {
        self.silence
            .map(|deadline| (deadline, TimerReason::Silence))
    }

    fn summary(&self, _: &Path) -> Summary {
        let mut summary = self.totals;
        summary.rate = self.target().send;
        summary
    }
}

/// Reports since the last feedback packet.
#[derive(Clone, Copy, Debug)]
struct Gathered {
    began: Time,
    arrived: bool,
    new_event: bool,
    rtt_sum: f64,
    rtt_samples: u32,
    /// Arrival time and sending time of the newest packet that arrived.
    newest: Option<(RemoteTime, Time)>,
    /// Round-trip sample of the latest report, if any.
    rtt: Option<Duration>,
    /// Loss event rate at the first loss, from the inverse of the equation.
    first_p: Option<f64>,
    /// External measurement: receive rate and loss event rate.
    measured: Option<(f64, f64)>,
}

impl Gathered {
    fn new(began: Time) -> Self {
        Self {
            began,
            arrived: false,
            new_event: false,
            rtt_sum: 0.0,
            rtt_samples: 0,
            newest: None,
            rtt: None,
            first_p: None,
            measured: None,
        }
    }

    fn on_rtt(&mut self, sample: f64) {
        self.rtt_sum += sample;
        self.rtt_samples = self.rtt_samples.saturating_add(1);
    }

    fn rtt_sample(&self) -> Option<f64> {
        (self.rtt_samples > 0).then(|| self.rtt_sum / f64::from(self.rtt_samples))
    }
}

/// Whether the sender is application-limited.
#[derive(Clone, Copy, Debug, Default)]
struct Limited {
    /// No more data was waiting when the latest packet was sent.
    now: bool,
    /// Last end of an application-limited period.
    ended: Option<Time>,
}

/// Clamps to 0..=1; NaN becomes zero.
fn share(value: f64) -> f64 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}

/// Tolerance for reports that arrive slightly less than a round trip after the last one.
const HAIR: Duration = Duration::from_micros(1);

/// Loss event rate of an external measurement; zero if it is not valid.
fn valid_loss_event_rate(measured: Measured) -> f64 {
    match measured.loss_event_rate {
        // The equation is undefined at zero, and NaN is not a measurement.
        p if p > MIN_LOSS => p.min(1.0),
        _ => 0.0,
    }
}

/// Whether a round trip has passed, to within the jitter of a report.
fn has_passed(rtt: Duration, since: Time, now: Time) -> bool {
    now.since(since) >= rtt.saturating_sub(rtt / 64)
}

fn seconds(d: Duration) -> f64 {
    nanos(d) as f64 / 1e9
}

/// Converts seconds; saturates, and NaN and negative values become zero.
fn duration(secs: f64) -> Duration {
    Duration::from_nanos((secs * 1e9) as u64)
}

/// At least one packet in this many seconds (`t_mbi`, RFC 3448 section 4.3).
const T_MBI: f64 = 64.0;

/// Weight of a new sample in the mean packet size, as in the product's TFRC.
const SIZE_GAIN: f64 = 1.0 / 64.0;

/// Minimum round-trip time in seconds. It avoids a division by zero.
const MIN_RTT: f64 = 1e-6;

/// Minimum duration of the no-feedback timer.
const MIN_PATIENCE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
