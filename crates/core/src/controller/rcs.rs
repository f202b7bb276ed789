//! RCS, a rate control scheme for real-time media over lossy and long paths: additive increase and
//! multiplicative decrease of a paced rate, and low-priority dummy packets that find out whether a
//! loss was caused by congestion.
//!
//! Source: I. F. Akyildiz, Ö. B. Akan, G. Morabito, *A Rate Control Scheme for Adaptive Real-Time
//! Applications in IP Networks With Lossy Links and Long Round Trip Times*, IEEE/ACM Transactions on
//! Networking 13(3), 2005, section III. `docs/rcs.md` lists the readings of its pseudo-code.
//!
//! Every router of the path has to drop dummy packets first (DSCP LE, RFC 8622). The share of the
//! target that dummy packets use is [`Target::filler`]. A session tests the path in band; RAP
//! controls the rate unless it honours dummy packets.

mod fallback;
mod round_trip;

use core::time::Duration;

#[cfg(feature = "serde")]
use super::settings::{positive_duration, positive_rate, share};
use super::{Configuration, Feedback, Properties};
use crate::control::{
    Algorithm, Change, Context, Ecn, Kind, Outcome, PacketOutcome, RateControl, RateController,
    Report, Sent, Spacing, Start, Summary, Target, TimerReason, sooner,
};
use crate::path::Path;
use crate::trace::{ControllerState, Event};
use crate::units::{Bytes, Rate, Time};
use fallback::Treatment;
use round_trip::RoundTrip;

/// Configuration of RCS. Values are clamped to their range.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(default, deny_unknown_fields, expecting = "{ target = \"10Mb/s\" }")
)]
pub struct RcsConfig {
    /// Rate of the stream in its highest quality on the wire, all headers included (`S_Target`).
    /// `None`: the ceiling of the demand.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "positive_rate"))]
    pub target: Option<Rate>,
    /// Round-trip time before the first measurement, from 1 ms to 60 s. `None`: that of the prior,
    /// or else the first data packets measure it.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "positive_duration"))]
    pub rtt: Option<Duration>,
    /// Whether a round trip without any report leads to the state Backoff, which keeps the rate.
    /// Otherwise each further round trip halves it (the comparison of Figure 22a).
    pub backoff: bool,
    /// Time without a report in Backoff after which the state is Initial again (`T_B`), from 1 s to
    /// 1 h.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "positive_duration"))]
    pub backoff_timeout: Duration,
    /// Value of `wdsn` at the beginning of Detected, as a multiple of the packets per round trip of
    /// the halved rate, from 0 to 2. 1 in the paper: so many reported dummy packets are no sign of
    /// unused capacity.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "share"))]
    pub reserve: f64,
}

impl Default for RcsConfig {
    fn default() -> Self {
        Self {
            target: None,
            rtt: None,
            backoff: true,
            backoff_timeout: Duration::from_mins(1),
            reserve: 1.0,
        }
    }
}

impl Configuration for RcsConfig {
    const NAME: &'static str = "rcs";
    const ABOUT: &'static str =
        "dummy packets find out whether a loss was caused by congestion (RCS)";

    fn properties(&self) -> Properties {
        Properties {
            uses_dummies: true,
            feedback: Feedback::EachPacket,
            ..Properties::default()
        }
    }
}

impl Algorithm for RcsConfig {
    fn start(&self, start: &Start) -> RateControl {
        let fallback = Treatment::new(self);
        RateControl::new(Rcs::new(self, start), start)
            .with_fallback(fallback, start)
            .with_dummies()
    }
}

/// State of the source, Figure 1 of the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Initial before there is a round-trip time.
    Unmeasured,
    /// First half of Initial: dummy packets at the target rate.
    Probing {
        began: Time,
        end: Time,
        reported: u64,
    },
    /// Second half of Initial: reports of the dummy packets arrive.
    Collecting {
        began: Time,
        end: Time,
        reported: u64,
    },
    Steady,
    Detected {
        end: Time,
        is_reported: bool,
    },
    Backoff {
        end: Time,
    },
}

/// One path under RCS. Rates are in packets per second.
#[derive(Debug)]
struct Rcs {
    config: RcsConfig,
    /// Mean size of a data packet, in bytes.
    size: f64,
    floor: Rate,
    ceiling: Rate,
    state: State,
    /// Data rate `S`.
    rate: f64,
    /// Number of dummy packets whose reports do not raise the rate (`wdsn`). Negative: none does.
    reserve: i64,
    rtt: RoundTrip,
    /// Time of the next additive increase, in Steady.
    increase: Time,
    /// Data packets since the last increase.
    sent: u32,
    /// Number of the next data packet, and of the first packet whose loss is a new loss event.
    next: u64,
    event: u64,
    /// Newest data packets sent and reported.
    newest: (u64, u64),
    /// Time at which the retransmission timer of TCP would expire, and the time between two reports.
    timeout: Option<Time>,
    interval: Duration,
    published: Rate,
    totals: Summary,
    /// Loss events, and the packets sent.
    events: u64,
}

impl Rcs {
    fn new(config: &RcsConfig, start: &Start) -> Self {
        let within = |value: f64, least: f64, most: f64| value.max(least).min(most);
        let config = RcsConfig {
            backoff_timeout: config
                .backoff_timeout
                .clamp(Duration::from_secs(1), Duration::from_hours(1)),
            reserve: within(config.reserve, 0.0, 2.0),
            ..config.clone()
        };
        let known = config.rtt.or(start.prior.map(|prior| prior.rtt));
        let mut rcs = Self {
            size: bytes(start.packet_size),
            floor: start.demand.floor,
            ceiling: start.demand.ceiling,
            state: State::Unmeasured,
            rate: 0.0,
            reserve: -1,
            rtt: known.map_or_else(RoundTrip::default, RoundTrip::assumed),
            increase: Time::FAR,
            sent: 0,
            next: 0,
            event: 0,
            newest: (0, 0),
            timeout: None,
            interval: Duration::ZERO,
            published: Rate::ZERO,
            totals: Summary::default(),
            events: 0,
            config,
        };
        if known.is_some() {
            rcs.state = rcs.initial(start.now);
        }
        rcs.published = rcs.target().send;
        rcs
    }

    /// Losses of data packets before this number belong to another controller.
    fn skip_to(&mut self, next: u64) {
        (self.next, self.event, self.newest) = (next, next, (next, next));
    }

    /// `S_Target` in packets per second. A target of zero would never send.
    fn most(&self) -> f64 {
        let target = self.config.target.unwrap_or(self.ceiling);
        let most = target.min(MAX_TARGET).as_f64() / (self.size * 8.0);
        most.max(MIN_RATE)
    }

    /// Figure 2. Dummy packets that were sent before do not count.
    fn initial(&mut self, now: Time) -> State {
        self.event = self.next;
        State::Probing {
            began: now,
            end: now + self.rtt.duration(),
            reported: 0,
        }
    }

    fn enter(&mut self, cx: &mut Context<'_>, state: State) {
        self.state = state;
        if state == State::Steady {
            self.increase = cx.now + self.rtt.duration();
            self.sent = 0;
        } else {
            self.increase = Time::FAR;
        }
        let (state, rate) = (self.name(), self.bits(self.rate));
        let reserve = self.reserve;
        let event = Event::StateChanged {
            state,
            rate,
            reserve,
        };
        cx.trace.record(cx.now, event);
    }

    /// `None` before there is a round-trip time.
    const fn name(&self) -> ControllerState {
        match self.state {
            State::Unmeasured | State::Probing { .. } | State::Collecting { .. } => {
                ControllerState::Initial
            }
            State::Steady => ControllerState::Steady,
            State::Detected { .. } => ControllerState::Detected,
            State::Backoff { .. } => ControllerState::Backoff,
        }
    }

    /// Equation (3): one packet per round trip more, up to the target.
    fn grow(&mut self) {
        self.set_rate(self.rate + 1.0 / self.rtt.mean());
    }

    fn set_rate(&mut self, rate: f64) {
        // TCP's window has one packet at least.
        let least = (1.0 / self.rtt.mean()).min(self.most());
        self.rate = rate.clamp(least, self.most().max(least));
    }

    /// Figure 4: the rate is halved, and two dummy packets accompany each data packet.
    fn detect(&mut self, cx: &mut Context<'_>) {
        self.events += 1;
        self.totals.loss_event_rate = self.events as f64 / self.next.max(self.events) as f64;
        let loss_event_rate = self.totals.loss_event_rate;
        cx.trace
            .record(cx.now, Event::LossEvent { loss_event_rate });
        self.event = self.next;
        self.set_rate(self.rate / 2.0);
        let window = self.rtt.mean() * self.rate * self.config.reserve;
        // Rates are halves and sums of 1 / SRTT: rounding errors must not take a packet away.
        self.reserve = (window + 1e-6) as i64;
        let end = cx.now + self.rtt.duration();
        let is_reported = false;
        self.enter(cx, State::Detected { end, is_reported });
        self.timeout = None;
    }

    /// All timed transitions that are due.
    fn advance(&mut self, cx: &mut Context<'_>) {
        while self.deadline().is_some_and(|(at, _)| at <= cx.now) {
            self.transit(cx);
        }
    }

    fn transit(&mut self, cx: &mut Context<'_>) {
        match self.state {
            State::Probing {
                began,
                end,
                reported,
            } if end <= cx.now => {
                let end = end + self.rtt.duration();
                self.state = State::Collecting {
                    began,
                    end,
                    reported,
                };
            }
            State::Collecting { end, reported, .. } if end <= cx.now => {
                self.reserve = -1;
                self.set_rate(reported.max(1) as f64 / self.rtt.mean());
                self.event = self.next;
                self.enter(cx, State::Steady);
            }
            State::Detected { end, is_reported } if end <= cx.now => {
                if is_reported || !self.config.backoff {
                    self.enter(cx, State::Steady);
                    self.rearm(cx.now);
                } else {
                    self.reserve = 0;
                    let end = cx.now + self.config.backoff_timeout;
                    self.enter(cx, State::Backoff { end });
                }
            }
            State::Backoff { end } if end <= cx.now => {
                let state = self.initial(cx.now);
                self.enter(cx, state);
            }
            State::Steady => {
                if self.timeout.is_some_and(|at| at <= cx.now) {
                    return self.detect(cx);
                }
                if self.increase <= cx.now {
                    self.step(cx.now);
                }
            }
            _ => {}
        }
    }

    /// Additive increase. A source that uses less than half of its rate does not test the path.
    fn step(&mut self, now: Time) {
        let window = self.rate * self.rtt.mean();
        if f64::from(self.sent) >= MIN_USE * window {
            self.grow();
        }
        self.sent = 0;
        self.increase += self.rtt.duration();
        if self.increase <= now {
            self.increase = now + self.rtt.duration();
        }
    }

    /// Restarts the retransmission timer, as TCP does on an acknowledgement of new data (RFC 6298
    /// section 5).
    fn rearm(&mut self, now: Time) {
        let (sent, reported) = self.newest;
        self.timeout = (sent > reported).then(|| now + self.rtt.timeout() + self.interval);
    }

    /// A data packet was reported as received.
    fn on_data(&mut self, now: Time, packet: &PacketOutcome) {
        self.totals.delivered += packet.size;
        if let State::Detected { is_reported, .. } = &mut self.state {
            *is_reported = true;
        }
        if packet.seq >= self.newest.1 {
            self.newest.1 = packet.seq.saturating_add(1);
            self.rearm(now);
        }
    }

    /// A dummy packet was reported as received.
    fn on_dummy(&mut self, packet: &PacketOutcome) {
        self.totals.delivered += packet.size;
        match &mut self.state {
            State::Probing {
                began, reported, ..
            }
            | State::Collecting {
                began, reported, ..
            } => *reported += u64::from(packet.sent >= *began),
            State::Detected { is_reported, .. } => *is_reported = true,
            State::Steady if self.reserve == 0 => self.grow(),
            State::Steady => self.reserve -= 1,
            State::Unmeasured | State::Backoff { .. } => {}
        }
    }

    fn on_rtt(&mut self, cx: &mut Context<'_>, sample: Duration) {
        let least = self.totals.min_rtt.map_or(sample, |min| min.min(sample));
        self.totals.min_rtt = Some(least);
        self.rtt.update(sample);
        if self.state == State::Unmeasured {
            let state = self.initial(cx.now);
            self.enter(cx, state);
        }
    }

    fn deadline(&self) -> Option<(Time, TimerReason)> {
        match self.state {
            State::Unmeasured => None,
            State::Probing { end, .. } | State::Collecting { end, .. } => {
                Some((end, TimerReason::Probe))
            }
            State::Steady => {
                let increase = Some((self.increase, TimerReason::Increase));
                sooner(increase, self.timeout.map(|at| (at, TimerReason::Loss)))
            }
            State::Detected { end, .. } => Some((end, TimerReason::Loss)),
            State::Backoff { end } => Some((end, TimerReason::Silence)),
        }
    }

    fn bits(&self, packets: f64) -> Rate {
        Rate::bps((packets * self.size * 8.0 + 0.5) as u64)
    }

    fn publish(&mut self, cx: &mut Context<'_>) {
        let (from, to) = (self.published, self.target().send);
        if from != to {
            self.published = to;
            cx.trace.record(cx.now, Event::RateChanged { from, to });
        }
    }
}

/// Size of a packet, of at most the length of an IP packet.
fn bytes(size: Bytes) -> f64 {
    size.get().clamp(1, 65_535) as f64
}

impl RateController for Rcs {
    fn on_sent(&mut self, cx: &mut Context<'_>, packet: &Sent, _: &mut Path) {
        self.advance(cx);
        if packet.kind == Kind::Dummy {
            return;
        }
        self.next = packet.seq.saturating_add(1);
        self.sent = self.sent.saturating_add(1);
        self.size += (bytes(packet.size) - self.size) * SIZE_GAIN;
        self.newest.0 = packet.seq.saturating_add(1);
        if self.timeout.is_none() {
            self.rearm(cx.now);
        }
    }

    fn on_report(&mut self, cx: &mut Context<'_>, report: &Report<'_>, _: &mut Path) {
        self.advance(cx);
        let (mut is_lost, mut is_any) = (false, false);
        for packet in report.packets {
            let is_new = packet.seq >= self.event;
            match packet.outcome {
                Outcome::Received { ecn, .. } => {
                    is_any = true;
                    self.on_data(cx.now, packet);
                    is_lost |= ecn == Ecn::Ce && is_new;
                }
                Outcome::Lost => {
                    self.totals.lost = self.totals.lost.saturating_add(1);
                    is_lost |= is_new;
                }
            }
        }
        for packet in report.dummies {
            if packet.outcome.is_received() {
                is_any = true;
                self.on_dummy(packet);
            } else {
                self.totals.lost = self.totals.lost.saturating_add(1);
            }
        }
        if let Some(sample) = report.rtt {
            self.on_rtt(cx, sample);
        }
        match self.state {
            State::Backoff { .. } if is_any => {
                // The losses of the interruption are one event.
                self.event = self.next;
                self.enter(cx, State::Steady);
                self.rearm(cx.now);
            }
            State::Steady if is_lost => self.detect(cx),
            _ => {}
        }
        self.publish(cx);
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>, _: &mut Path) {
        self.advance(cx);
        self.publish(cx);
    }

    fn on_change(&mut self, cx: &mut Context<'_>, change: &Change, _: &mut Path) {
        match change {
            Change::Demand(demand) => {
                (self.floor, self.ceiling) = (demand.floor, demand.ceiling);
                if self.rate > 0.0 {
                    self.set_rate(self.rate);
                }
            }
            Change::Path { packet_size, prior } => {
                let demand = crate::control::Demand {
                    floor: self.floor,
                    ceiling: self.ceiling,
                    shares: 1,
                };
                let mut start = Start::new(cx.now, *packet_size, demand);
                start.prior = *prior;
                let (published, next, interval) = (self.published, self.next, self.interval);
                *self = Self::new(&self.config, &start);
                (self.next, self.event, self.published) = (next, next, published);
                self.interval = interval;
            }
            Change::Reports { interval } => self.interval = *interval,
            Change::LowerEffort(_) => return,
            Change::Validated { .. } => {}
        }
        self.advance(cx);
        self.publish(cx);
    }

    fn target(&self) -> Target {
        // Packets may have become larger since the rate was set.
        let data = self.bits(self.rate.min(self.most()));
        // A stream that cannot wait begins at the lowest rate, which its first frame needs twice.
        let lowest = self.floor.scale(2, 1).min(self.bits(self.most()));
        let (media, filler) = match self.state {
            // Data, because other traffic may starve a dummy packet.
            State::Unmeasured => (self.bits(FIRST_RATE.min(self.most())), Rate::ZERO),
            State::Probing { .. } => (lowest, self.bits(self.most())),
            State::Collecting { .. } => (lowest, Rate::ZERO),
            State::Steady => (data, Rate::ZERO),
            State::Detected { .. } => (data, data.scale(2, 1)),
            State::Backoff { .. } => (data, data),
        };
        Target {
            send: media + filler,
            media,
            filler,
            in_flight: None,
            spacing: Spacing::Even,
            burst: 1.0,
        }
    }

    fn next_timeout(&self, _: &Path) -> Option<(Time, TimerReason)> {
        self.deadline()
    }

    fn summary(&self, _: &Path) -> Summary {
        Summary {
            rate: self.bits(self.rate),
            ..self.totals
        }
    }
}

/// Packets per second before the first round-trip time: as RAP and TFRC, far below the rate of any
/// stream.
const FIRST_RATE: f64 = 4.0;
/// Lowest rate: a packet in two seconds, the first interval of RAP.
const MIN_RATE: f64 = 0.5;
/// Highest target rate.
const MAX_TARGET: Rate = Rate::bps(10_000_000_000);
/// Part of a round trip's packets that a source sends to increase its rate, as in RAP.
const MIN_USE: f64 = 0.5;
/// Weight of a packet in the mean size, as in RAP.
const SIZE_GAIN: f64 = 0.1;

#[cfg(test)]
mod tests;
