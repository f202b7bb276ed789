//! Queue and capacity of a path whose controller has no estimates of it: TFRC, RAP, RCS, a fixed rate.

mod competing_flows;
mod delays;
mod forecast;
mod jitter;
mod meter;
mod queue_response;

use core::time::Duration;

use super::bound::Outlook;
use super::planner::{Decision, PlannerConfig, QueueOwner};
use crate::control::{Context, Report, Sent};
use crate::trace::Event;
use crate::units::{Bytes, Rate, Time};
use competing_flows::{CompetingFlows, QueueState, Transition};
use forecast::Forecast;
use meter::{PathMeter, Reading};

/// Measures the path for a delay bound, and forecasts its capacity.
#[derive(Debug, Default)]
pub(super) struct BlindPath {
    meter: PathMeter,
    competing: CompetingFlows,
    forecast: Forecast,
}

/// State of the delay bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits<'a> {
    pub(super) config: &'a PlannerConfig,
    /// The last plan.
    pub(super) decision: Option<&'a Decision>,
}

impl BlindPath {
    pub(super) fn on_sent(&mut self, now: Time, packet: &Sent) {
        self.meter.on_sent(now, packet);
    }

    pub(super) fn on_report(
        &mut self,
        cx: &mut Context<'_>,
        report: &Report<'_>,
        limits: Limits<'_>,
    ) {
        let Some(reading) = self.meter.on_report(cx.now, report) else {
            return;
        };
        let config = limits.config;
        if !config.yields {
            self.detect_competing_flows(cx, report, &reading, limits);
        }
        if self.competing.is_detected() && self.meter.level() < TOLERATED_NANOS {
            self.forecast
                .observe_idle(cx.now, reading.delivered, config);
        } else {
            self.observe(cx.now, &reading, limits);
        }
    }

    /// Forgets the path, for a new route.
    pub(super) fn restart(&mut self) {
        self.forget_packets();
        self.competing = CompetingFlows::default();
        self.forecast.forget_path();
    }

    /// Forgets the packets, whose outcomes are not all reported.
    pub(super) fn forget_packets(&mut self) {
        self.meter = PathMeter::new();
    }

    /// Sets the upper limit of the capacity: the rate that the controller allows.
    pub(super) fn set_upper(&mut self, upper: Rate) {
        self.forecast.set_upper(upper);
    }

    pub(super) fn outlook(&self, now: Time) -> Outlook {
        let capacity = self.forecast.capacity();
        let (queue, network, needed) = if self.competing.is_detected() {
            let part = if self.competing.is_testing(now) {
                TEST_FRACTION
            } else if self.meter.is_nearly_full() {
                OVERFLOW_FRACTION
            } else {
                1.0
            };
            let needed = self.meter.recent_max_delay();
            (QueueOwner::Competing { part }, Bytes::ZERO, needed)
        } else {
            let network = self.meter.in_network(now, capacity);
            let needed = self.meter.standing(now) + self.meter.jitter_bound();
            (QueueOwner::Own, network, needed)
        };
        Outlook {
            capacity,
            queue,
            network,
            needed,
        }
    }

    /// Queueing delay of the newest packet known to have arrived, in this sender's own queue.
    pub(super) fn queueing_delay(&self) -> Duration {
        self.meter.queueing()
    }

    /// Delay above the minimum of the last minute that lower sending rates do not reduce.
    pub(super) fn standing_delay(&self, now: Time) -> Duration {
        self.meter.standing(now)
    }

    /// Queueing delay of a packet sent at `now` behind this sender's earlier packets.
    pub(super) fn queueing_delay_at(&self, now: Time) -> Duration {
        self.meter.queueing_delay(now, self.forecast.capacity())
    }

    fn detect_competing_flows(
        &mut self,
        cx: &mut Context<'_>,
        report: &Report<'_>,
        reading: &Reading,
        limits: Limits<'_>,
    ) {
        let floor = limits.config.floor;
        let state = QueueState {
            level: self.meter.level_of_all(),
            deviation: self.meter.deviation(),
            grew: reading.grew,
            at_floor: limits
                .decision
                .is_some_and(|d| d.media <= floor.scale(11, 10)),
        };
        let transition = self.competing.on_report(cx.now, report, state);
        match transition {
            Some(Transition::Unresponsive | Transition::Persistent) => {
                self.meter.begin_contention(cx.now);
                if transition == Some(Transition::Unresponsive) {
                    self.forecast.restore(cx.now);
                }
                cx.trace.record(cx.now, Event::QueueContested);
            }
            Some(Transition::Settled) => {
                self.meter.end_contention();
                cx.trace.record(cx.now, Event::QueueSettled);
            }
            None => {}
        }
    }

    /// Whether less than one packet of this sender is in the queue, so that the queue is due to
    /// flows with a larger part of it. Those flows have to yield, and this one does not, until each
    /// has the same number of packets in the queue and with it the same rate at any round-trip
    /// time. This is the law of TCP Vegas (Brakmo and Peterson, "TCP Vegas: End to End Congestion
    /// Avoidance on a Global Internet", 1995) and its equilibrium (Low, Peterson and Wang,
    /// "Understanding TCP Vegas: A Duality Model", 2002). Without it a low-rate stream reacts to
    /// every variation of a queue of other flows and stays at its floor.
    fn has_less_than_a_packet_queued(&self, limits: Limits<'_>) -> bool {
        let level = self.meter.level();
        let config = limits.config;
        let sent = limits
            .decision
            .map_or(self.forecast.capacity(), |d| config.wire(d.media));
        let part = sent * Duration::from_nanos(level.max(0) as u64);
        level < TOLERATED_NANOS && part < config.packet_size
    }

    fn observe(&mut self, now: Time, reading: &Reading, limits: Limits<'_>) {
        let config = limits.config;
        // With `yields` set, the sender reacts to every queue.
        if !config.yields && !reading.grew && self.has_less_than_a_packet_queued(limits) {
            self.forecast.observe_idle(now, reading.delivered, config);
            return;
        }
        let Some(sample) = reading.capacity else {
            if let Some(hint) = reading.hint {
                self.forecast.observe_hint(hint);
            } else if reading.queued {
                self.forecast.observe_steady(now, reading.delivered);
            } else if !reading.grew {
                self.forecast.observe_idle(now, reading.delivered, config);
            }
            return;
        };
        if reading.grew {
            self.forecast.observe_drop(now, sample.rate, config);
        } else if self
            .forecast
            .measured()
            .is_none_or(|c| sample.lower_bound >= c)
        {
            self.forecast
                .observe_capacity(now, sample.lower_bound, config);
        } else {
            self.forecast.observe_steady(now, sample.rate);
        }
    }
}

/// Growth of the queue, in ns, that is tolerated next to competing flows: two frames, as their
/// queue grows as well. At rates below one packet in that time (160 kb/s) the sender cannot cause
/// more.
const TOLERATED_NANOS: i64 = 60_000_000;
/// Fraction of the share used while testing the owner of the queue: low enough for a verdict in
/// half a second.
const TEST_FRACTION: f64 = 0.7;
/// Fraction of the share used when the queue is about to overflow. It reduces the loss of packets
/// that could not be retransmitted in time. Of the frames next to Reno 2.1 % are lost instead of
/// 2.8 % (RFC 8867 section 5.6, ten seeds). A third would give 1.0 %, but leaves no rate next to
/// CUBIC, whose queue is that high for longer.
const OVERFLOW_FRACTION: f64 = 0.7;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Ecn, FlowId, Outcome, PacketOutcome};
    use crate::random::Seed;
    use crate::units::RemoteTime;

    /// The estimate after 1.25 s with 7 ms of queue, starting from `capacity`.
    fn after_a_short_queue(capacity: Rate) -> Rate {
        let config = PlannerConfig::new(Rate::kbps(150), Rate::kbps(4_000));
        let limits = Limits {
            config: &config,
            decision: None,
        };
        let mut path = BlindPath::default();
        path.set_upper(Rate::kbps(2_000));
        path.forecast.observe_drop(Time::ZERO, capacity, &config);
        for n in (0..60).step_by(2) {
            let queue = if n < 10 { 0 } else { 7 };
            let outcomes = [n, n + 1].map(|seq| PacketOutcome {
                flow: FlowId(0),
                seq,
                size: Bytes(1_250),
                sent: Time::from_millis(seq * 25),
                outcome: Outcome::Received {
                    at: RemoteTime((seq * 25 + 20 + queue) * 1_000_000),
                    ecn: Ecn::NotEct,
                },
            });
            let mut cx = Context {
                now: Time::from_millis(n * 25 + 75),
                rng: &mut Seed(1).stream("blind"),
                trace: &mut (),
            };
            path.on_report(&mut cx, &Report::new(&outcomes), limits);
        }
        path.forecast.measured().unwrap()
    }

    /// In 7 ms, 1.4 Mb/s are a packet of 1,200 bytes and 0.3 Mb/s a fifth of one.
    #[test]
    fn a_short_queue_lowers_a_high_rate_but_not_a_low_rate() {
        let (thick, thin) = (Rate::kbps(2_000), Rate::kbps(400));
        assert!(after_a_short_queue(thick) < thick);
        assert!(after_a_short_queue(thin) > thin.scale(11, 10));
    }
}
