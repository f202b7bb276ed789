//! TCP-friendly rate control (RFC 5348), sender-based.
//!
//! Receivers report the fate of each packet. The sender computes the loss event rate, the receive
//! rate and the round-trip time, as section 7 of the RFC allows. `docs/tfrc.md` describes how
//! reports at arbitrary intervals are combined into the RFC's feedback packet per round trip, and
//! compares the result with the equation and with other implementations.

mod config;
pub mod equation;
pub(crate) mod loss;
pub mod multfrc;
pub mod packet_log;
mod receive;

use core::time::Duration;

use crate::control::{
    Algorithm, Change, Context, Ecn, Measured, Outcome, PacketOutcome, RateControl, RateController,
    Report, Sent, Start, Summary, Target, TimerReason,
};
use crate::path::Path;
use crate::trace::Event;
use crate::units::{Bytes, Rate, Time, nanos};
pub use config::{Flavour, PacketSize, TfrcConfig};
use loss::{LossClass, LossHistory};
use multfrc::Law;
use packet_log::PacketLog;
use receive::{Arrival, Arrivals, Feedback, ReceiveRates, Round};

impl Algorithm for TfrcConfig {
    fn start(&self, start: &Start) -> RateControl {
        let config = &Self {
            report_interval: start.report_interval.unwrap_or(self.report_interval),
            ..self.clone()
        };
        let mut tfrc = Tfrc::new(config, start.now, start.packet_size);
        tfrc.law.set_flows(start.demand.shares);
        RateControl::new(tfrc, start)
    }
}

/// One path under TFRC. Rates are in bytes per second and times in seconds, as in the RFC.
#[derive(Clone, Debug)]
pub(super) struct Tfrc {
    config: TfrcConfig,
    law: Law,
    /// Maximum interval between two reports.
    report_interval: Duration,
    /// `s`.
    size: f64,
    /// `X`.
    rate: f64,
    /// `X_inst / X` (section 4.5); 1 without damping.
    damper: f64,
    /// `X_Bps`, once there was a loss.
    fair: Option<f64>,
    rtt: Option<RoundTrip>,
    packet_log: PacketLog,
    losses: LossHistory,
    /// Loss event rate measured by another party, such as the receiver.
    observed: Option<f64>,
    round: Round,
    arrivals: Arrivals,
    /// Time of the last rate reduction by the no-feedback timer.
    cut: Time,
    received: ReceiveRates,
    /// The largest `X_recv` so far.
    peak: f64,
    /// `tld`: time of the last doubling in slow start.
    doubled: Time,
    /// Expiry of the no-feedback timer.
    silence: Option<Time>,
    /// No packet was sent since the no-feedback timer was set.
    idle: bool,
    /// A packet was sent while more data was waiting, since the last external measurement.
    unlimited: bool,
    /// Allowed sending rate.
    allowed: Rate,
    /// Last rate recorded in the trace.
    published: Rate,
    totals: Summary,
}

impl Tfrc {
    pub(super) fn new(config: &TfrcConfig, now: Time, packet_size: Bytes) -> Self {
        let size = packet_size.get().max(1) as f64;
        let mut tfrc = Self {
            config: config.clone(),
            law: match config.flavour {
                Flavour::Multfrc => Law::Multiple(1.0),
                Flavour::Rfc5348 => Law::Single,
            },
            report_interval: config.report_interval,
            size,
            //= rfc5348-4.2-first-rate
            rate: size,
            damper: 1.0,
            fair: None,
            rtt: None,
            packet_log: PacketLog::default(),
            losses: LossHistory::new(config.discounting),
            observed: None,
            round: Round::new(now),
            arrivals: Arrivals::default(),
            cut: Time::ZERO,
            received: ReceiveRates::new(now),
            peak: 0.0,
            doubled: now,
            silence: None,
            idle: true,
            unlimited: false,
            allowed: Rate::ZERO,
            published: Rate::ZERO,
            totals: Summary::default(),
        };
        tfrc.allowed = tfrc.allow();
        tfrc.published = tfrc.allowed;
        tfrc
    }

    fn on_rtt(&mut self, now: Time, sample: Duration) {
        self.totals.min_rtt = Some(self.totals.min_rtt.map_or(sample, |min| min.min(sample)));
        let sample = seconds(sample).clamp(MIN_RTT, T_MBI);
        if self.rtt.is_some() {
            self.round.on_rtt(sample);
            return;
        }
        let rtt = RoundTrip::new(sample);
        //= rfc5348-4.2-initial-rate
        self.rate = self.initial_rate(rtt);
        self.rtt = Some(rtt);
        self.doubled = now;
        self.round = Round::new(now);
    }

    /// Processes the fate of a packet; returns whether the packet arrived.
    fn on_outcome(
        &mut self,
        now: Time,
        fate: &PacketOutcome,
        rtt: Duration,
        period: Duration,
    ) -> bool {
        let Some(unlimited) = self.packet_log.settle(fate.seq) else {
            return false;
        };
        self.losses.on_outcome(fate.seq);
        let sent = fate.sent.min(now);
        match fate.outcome {
            Outcome::Lost => {
                self.totals.lost = self.totals.lost.saturating_add(1);
                self.on_congestion(fate.seq, sent, rtt);
                false
            }
            Outcome::Received { at, ecn } => {
                self.totals.delivered += fate.size;
                // Packets sent before the no-feedback timer reduced the rate measure the earlier
                // state of the path. They restart the timer, but must not undo the reduction.
                if sent >= self.cut {
                    let arrival = Arrival {
                        seq: fate.seq,
                        sent,
                        at,
                        size: fate.size,
                        unlimited,
                    };
                    let spacing = duration(fate.size.get() as f64 / self.rate);
                    self.arrivals.add(arrival, spacing, period);
                    self.round.on_arrival(unlimited);
                }
                //= rfc5348-5.1-ecn
                if ecn == Ecn::Ce {
                    self.on_congestion(fate.seq, sent, rtt);
                }
                true
            }
        }
    }

    /// A packet has arrived that was reported lost before.
    fn on_spurious(&mut self, fate: &PacketOutcome) {
        self.totals.lost = self.totals.lost.saturating_sub(1);
        self.totals.delivered += fate.size;
        if self.losses.on_spurious(fate.seq) {
            // Slow start continues.
            self.fair = None;
        }
    }

    fn on_congestion(&mut self, seq: u64, sent: Time, rtt: Duration) {
        match self.losses.on_congestion(seq, sent, rtt) {
            LossClass::SameEvent => return,
            LossClass::Another => {}
            LossClass::First => {
                //= rfc5348-6.3.1-first-interval
                // X_recv is used as half of the sending rate before the loss.
                let rtt = self.rtt.unwrap_or(RoundTrip::new(UNKNOWN_RTT));
                let so_far = self.arrivals.rate(self.period());
                //= rfc5348-6.3.1-first-packet
                // TCP would wait for its retransmission timer, which is about half a packet per
                // round trip.
                let least = 0.5 * self.size / rtt.mean;
                let target = self.peak.max(so_far).max(least);
                let p = self.law.loss_event_rate(self.size, rtt.mean, target);
                self.losses.seed(1.0 / p);
            }
        }
        self.round.on_event();
    }

    /// Steps 2 to 5 of RFC 5348 section 4.3.
    fn on_feedback(&mut self, cx: &mut Context<'_>, feedback: &Feedback) {
        let Some(mut rtt) = self.rtt else { return };
        //= rfc5348-4.3-rtt
        if let Some(sample) = feedback.rtt_sample {
            rtt.update(sample);
            self.rtt = Some(rtt);
        }
        let before = self.totals.loss_event_rate;
        //= rfc5348-7-sender-rate
        let p = self.observed.unwrap_or_else(|| self.losses.event_rate());
        self.totals.loss_event_rate = p;
        let worse = feedback.new_event || p > before;
        if worse && p > 0.0 {
            let loss_event_rate = p;
            cx.trace
                .record(cx.now, Event::LossEvent { loss_event_rate });
        }

        let limit = self.receive_limit(cx.now, feedback, worse);
        if p > 0.0 {
            //= rfc5348-4.3-equation-rate
            let lost = self.losses.lost_per_event();
            let fair = self.law.throughput(self.size, rtt.mean, p, lost);
            self.rate = fair.min(limit).max(self.least_rate());
            if self.fair.replace(fair).is_none() {
                let rate = self.allow();
                cx.trace.record(cx.now, Event::SlowStartEnded { rate });
            }
        } else if receive::has_passed(rtt.duration(), self.doubled, cx.now) {
            //= rfc5348-4.3-slow-start
            self.rate = (2.0 * self.rate).min(limit).max(self.initial_rate(rtt));
            self.doubled = cx.now;
        }
        //= rfc5348-4.5-damping
        if self.config.damping {
            self.damper = rtt.damper();
        }
    }

    /// Processes the feedback of a round that is complete.
    fn end_round(&mut self, cx: &mut Context<'_>, rtt: Duration, period: Duration) {
        // A receiver that reports once per round trip sends the RFC's feedback packets itself.
        // Separate rounds here would miss every second report while the round-trip time grows.
        let round = match self.config.report_interval {
            Duration::ZERO => Duration::ZERO,
            _ => rtt,
        };
        if self.rtt.is_some() && self.round.is_due(cx.now, round) {
            let feedback = self.round.close(cx.now, &mut self.arrivals, period);
            self.on_feedback(cx, &feedback);
        }
    }

    /// `recv_limit`: limit of the sending rate by the receive rate.
    fn receive_limit(&mut self, now: Time, feedback: &Feedback, worse: bool) -> f64 {
        let rate = feedback.receive_rate;
        self.peak = self.peak.max(rate);
        if !feedback.data_limited {
            //= rfc5348-4.3-twice-received
            self.received.update(now, rate, self.round_trip());
            return 2.0 * self.received.largest();
        }
        //= rfc5348-8.2.1-data-limited
        if worse {
            //= rfc5348-4.3-data-limited-loss
            self.received.halve();
            self.received.maximize(now, 0.85 * rate);
            self.received.largest()
        } else {
            //= rfc5348-4.3-data-limited
            self.received.maximize(now, rate);
            2.0 * self.received.largest()
        }
    }

    /// RFC 5348 section 4.4: the no-feedback timer expired.
    fn on_silence(&mut self, now: Time) {
        let received = self.received.largest();
        let half = (self.rate / 2.0).max(self.least_rate());
        let recover = self.rtt.map(|rtt| self.initial_rate(rtt));
        let modest = match (recover, self.fair) {
            // The rate is one packet per second or less, which is below any recover_rate.
            (None, _) => true,
            (Some(recover), None) => self.rate < 2.0 * recover,
            (Some(recover), Some(_)) => received < recover,
        };
        if self.idle && modest {
            //= rfc5348-4.4-idle
        } else {
            match self.fair {
                //= rfc5348-4.4-no-rtt
                //= rfc5348-4.4-no-loss
                None => self.rate = half,
                //= rfc5348-4.4-receive-limited
                Some(fair) if fair > 2.0 * received => self.limit_to(now, received, fair),
                //= rfc5348-4.4-equation-limited
                Some(fair) => self.limit_to(now, fair / 2.0, fair),
            }
        }
    }

    //= rfc5348-4.4-update-limits
    fn limit_to(&mut self, now: Time, limit: f64, fair: f64) {
        let limit = limit.max(self.least_rate());
        self.received = ReceiveRates::only(now, limit / 2.0);
        self.rate = fair.min(limit).max(self.least_rate());
    }

    fn set_timer(&mut self, now: Time) {
        self.silence = Some(now + self.patience());
        self.idle = true;
    }

    /// Duration of the no-feedback timer.
    fn patience(&self) -> Duration {
        let spacing = 2.0 * self.size / self.rate;
        if self.rtt.is_none() {
            //= rfc5348-4.2-first-timer
            return duration(FIRST_TIMEOUT.max(spacing));
        }
        //= rfc5348-4.3-rto
        duration((4.0 * seconds(self.period())).max(spacing)).max(MIN_PATIENCE)
    }

    /// `W_init / R`, also the `recover_rate` of section 4.4.
    fn initial_rate(&self, rtt: RoundTrip) -> f64 {
        //= rfc5348-4.2-initial-window
        let window = (4.0 * self.size).min((2.0 * self.size).max(INITIAL_WINDOW));
        window / rtt.mean
    }

    //= rfc5348-4.3-least-rate
    fn least_rate(&self) -> f64 {
        self.size / T_MBI
    }

    /// `R`, or a default before the first sample.
    fn round_trip(&self) -> Duration {
        self.rtt.map_or(duration(UNKNOWN_RTT), RoundTrip::duration)
    }

    /// Period of the control loop: the round-trip time or the report interval, whichever is longer.
    fn period(&self) -> Duration {
        self.round_trip().max(self.report_interval)
    }

    fn allow(&self) -> Rate {
        let rate = (self.rate * self.damper).max(self.least_rate());
        Rate::from_f64(rate * 8.0)
    }

    fn publish(&mut self, cx: &mut Context<'_>) {
        self.allowed = self.allow();
        let (from, to) = (self.published, self.allowed);
        if from != to {
            self.published = to;
            cx.trace.record(cx.now, Event::RateChanged { from, to });
        }
    }
}

impl RateController for Tfrc {
    fn on_sent(&mut self, cx: &mut Context<'_>, packet: &Sent, _: &mut Path) {
        self.packet_log.send(packet.seq, !packet.app_limited);
        self.idle = false;
        self.unlimited |= !packet.app_limited;
        //= rfc5348-4.1-size
        if self.config.packet_size == PacketSize::Mean {
            let change = packet.size.get().max(1) as f64 - self.size;
            if change != 0.0 {
                self.size += change * SIZE_GAIN;
                self.allowed = self.allow();
            }
        }
        if self.silence.is_none() {
            self.silence = Some(cx.now + self.patience());
        }
    }

    fn on_report(&mut self, cx: &mut Context<'_>, report: &Report<'_>, _: &mut Path) {
        if let Some(sample) = report.rtt {
            self.on_rtt(cx.now, sample);
        }
        let (rtt, period) = (self.round_trip(), self.period());
        for fate in report.spurious {
            self.on_spurious(fate);
        }
        let mut arrived = !report.spurious.is_empty();
        for fate in report.packets {
            if self.arrivals.is_after_pause(fate.seq, fate.sent, period) {
                self.end_round(cx, rtt, period);
                // The earliest time at which its report could arrive.
                self.round.restart((fate.sent + rtt).min(cx.now));
            }
            arrived |= self.on_outcome(cx.now, fate, rtt, period);
        }
        if let Some(measured) = report.measured.filter(|_| report.packets.is_empty()) {
            self.observed = Some(valid_loss_event_rate(measured));
            let unlimited = core::mem::take(&mut self.unlimited);
            self.round.on_measured(measured.receive_rate, unlimited);
            arrived = true;
        }
        self.end_round(cx, rtt, period);
        if arrived {
            //= rfc5348-4.3-restart-timer
            self.set_timer(cx.now);
        }
        self.publish(cx);
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>, _: &mut Path) {
        if self.silence.is_none_or(|deadline| cx.now < deadline) {
            return;
        }
        let before = self.rate;
        self.on_silence(cx.now);
        // A larger packet size raises the minimum rate, possibly above the present rate. `allow`
        // applies the minimum. The timer must not raise the rate further.
        self.rate = self.rate.min(before);
        if self.rate < before {
            self.cut = cx.now;
            self.round.forget_arrivals();
            self.arrivals.forget();
            let rate = self.allow();
            cx.trace.record(cx.now, Event::NoFeedback { rate });
        }
        //= rfc5348-4.4-restart-timer
        self.set_timer(cx.now);
        self.publish(cx);
    }

    fn on_change(&mut self, cx: &mut Context<'_>, change: &Change, _: &mut Path) {
        match change {
            Change::Path { packet_size, .. } => {
                let (published, law) = (self.published, self.law);
                *self = Self::new(&self.config, cx.now, *packet_size);
                (self.published, self.law) = (published, law);
                self.publish(cx);
            }
            Change::Reports { interval } => {
                self.report_interval = self.config.report_interval.max(*interval);
                let patience = self.patience();
                self.silence = self.silence.map(|_| cx.now + patience);
            }
            Change::Validated { rate } => {
                let rate = rate.as_f64() / 8.0;
                if self.fair.is_none() && rate > self.rate {
                    self.rate = rate;
                    self.doubled = cx.now;
                    self.publish(cx);
                }
            }
            // The rate follows with the next report.
            Change::Demand(demand) => self.law.set_flows(demand.shares),
            Change::LowerEffort(_) => {}
        }
    }

    fn target(&self) -> Target {
        Target::of(self.allowed)
    }

    fn next_timeout(&self, _: &Path) -> Option<(Time, TimerReason)> {
        self.silence
            .map(|deadline| (deadline, TimerReason::Silence))
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
    /// `R`.
    mean: f64,
    /// `R_sqmean`, the mean of the square roots.
    sqmean: f64,
    latest: f64,
}

impl RoundTrip {
    fn new(sample: f64) -> Self {
        Self {
            mean: sample,
            sqmean: sample.sqrt(),
            latest: sample,
        }
    }

    fn update(&mut self, sample: f64) {
        self.mean = RTT_MEMORY * self.mean + (1.0 - RTT_MEMORY) * sample;
        self.sqmean = RTT_MEMORY * self.sqmean + (1.0 - RTT_MEMORY) * sample.sqrt();
        self.latest = sample;
    }

    fn damper(&self) -> f64 {
        self.sqmean / self.latest.sqrt()
    }

    fn duration(self) -> Duration {
        duration(self.mean)
    }
}

/// Loss event rate of an external measurement; zero if it is not valid.
fn valid_loss_event_rate(measured: Measured) -> f64 {
    match measured.loss_event_rate {
        // The equation is undefined at zero, and NaN is not a measurement.
        p if p > equation::MIN_LOSS => p.min(1.0),
        _ => 0.0,
    }
}

fn seconds(d: Duration) -> f64 {
    nanos(d) as f64 / 1e9
}

/// Converts seconds; saturates, and NaN and negative values become zero.
fn duration(secs: f64) -> Duration {
    Duration::from_nanos((secs * 1e9) as u64)
}

/// At least one packet in this many seconds (`t_mbi`, RFC 5348 section 4.3).
const T_MBI: f64 = 64.0;

/// Duration of the first no-feedback timer, in seconds (RFC 5348 section 4.2).
const FIRST_TIMEOUT: f64 = 2.0;

/// Upper bound of the initial window in bytes, unless two packets are larger (RFC 3390).
const INITIAL_WINDOW: f64 = 4_380.0;

/// Minimum duration of the no-feedback timer. On a path of a few microseconds an idle sender would
/// otherwise wake up a hundred thousand times per second, which no system timer supports. Longer
/// durations are those of RFC 5348.
const MIN_PATIENCE: Duration = Duration::from_millis(1);

/// Weight of the past in the averages of the round-trip time (q and q2 of RFC 5348).
const RTT_MEMORY: f64 = 0.9;

/// Weight of a new sample in the mean packet size: it averages over about 64 packets, which is two
/// or more video frames.
const SIZE_GAIN: f64 = 1.0 / 64.0;

/// Minimum round-trip time in seconds, a tenth of a switch hop. It avoids a division by zero.
const MIN_RTT: f64 = 1e-6;

/// Round-trip time before the first sample, in seconds: the initial rate of one packet per second
/// is one packet per round trip.
const UNKNOWN_RTT: f64 = 1.0;
