//! BBR, version 1 (Cardwell et al., "BBR: Congestion-Based Congestion Control", 2016), with the
//! later additions of Linux except for policer detection.

use core::time::Duration;

use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;
use tidegate_core::units::{Bytes, Rate, Time};

use super::congestion::{Acked, Congestion, Phase, Signal, Window};
use super::windowed::Windowed;

/// Parameters of [`Bbr`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BbrConfig {
    /// Pacing gain of startup; drain uses its inverse. 2/ln 2 doubles the rate once per round trip.
    pub high_gain: f64,
    /// Window gain while probing for bandwidth, in bandwidth-delay products.
    pub cwnd_gain: f64,
    /// Share by which the pacing rate is below the estimate, so that a queue drains.
    pub margin: f64,
    /// Window of the maximum filter of the delivery rate, in round trips.
    pub bandwidth_rounds: u64,
    /// Window of the minimum filter of the round-trip time.
    pub min_rtt_window: Duration,
    /// Duration of the phase with a window of four segments, which measures the minimum again.
    pub probe_rtt: Duration,
    /// Whether the window allows for aggregated acknowledgements.
    pub aggregation: bool,
}

impl Default for BbrConfig {
    fn default() -> Self {
        Self {
            high_gain: 2.885,
            cwnd_gain: 2.0,
            margin: 0.01,
            bandwidth_rounds: 10,
            min_rtt_window: Duration::from_secs(10),
            probe_rtt: Duration::from_millis(200),
            aggregation: true,
        }
    }
}

/// Sends at the maximum measured delivery rate, with a window of a few bandwidth-delay products.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, as the description of the algorithm has them"
)]
pub struct Bbr {
    config: BbrConfig,
    packet_bits: f64,
    initial: u32,
    mode: BbrMode,
    /// Delivery rate in segments per second, by round.
    bandwidth: Windowed<f64>,
    round: Round,
    min_rtt: Option<Duration>,
    min_rtt_at: Time,
    full: FullPipe,
    cycle: usize,
    cycle_start: Time,
    /// Pacing rate in bits per second.
    pacing: f64,
    /// The pacing rate is based on a measured round trip, not on the assumed initial value.
    pacing_from_rtt: bool,
    /// The window before recovery or before the probe of the round trip.
    prior_cwnd: u32,
    prior_phase: Phase,
    conservation: bool,
    idle_restart: bool,
    /// Earliest end of the round-trip probe, once the window has become small.
    probe_done: Option<Time>,
    probe_round_done: bool,
    aggregation: Aggregation,
}

/// Mode of [`Bbr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BbrMode {
    /// The rate doubles per round trip until the delivery rate stops growing.
    Startup,
    /// The queue of startup drains.
    Drain,
    /// The pacing gain cycles through eight phases around the estimate.
    ProbeBandwidth,
    /// The window is reduced briefly to measure the round trip without a queue.
    ProbeRtt,
}

/// A packet-timed round trip.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    number: u64,
    /// The present acknowledgement starts it.
    starts: bool,
    /// It ends with the acknowledgement of a segment that was sent after this many deliveries.
    end: u64,
}

/// Detection of a full pipe: the delivery rate has stopped growing.
#[derive(Clone, Copy, Debug, Default)]
struct FullPipe {
    rate: f64,
    rounds: u32,
    reached: bool,
}

impl Bbr {
    /// State at the start of a connection. `packet` is the size of a full segment, `initial` the
    /// initial window in segments.
    pub fn new(config: BbrConfig, packet: Bytes, initial: u32) -> Self {
        let packet_bits = packet.get().max(1) as f64 * 8.0;
        Self {
            config,
            packet_bits,
            initial,
            mode: BbrMode::Startup,
            bandwidth: Windowed::new(config.bandwidth_rounds),
            round: Round::default(),
            min_rtt: None,
            min_rtt_at: Time::ZERO,
            full: FullPipe::default(),
            cycle: 0,
            cycle_start: Time::ZERO,
            pacing: config.high_gain * f64::from(initial) * packet_bits / GUESSED_RTT.as_secs_f64(),
            pacing_from_rtt: false,
            prior_cwnd: 0,
            prior_phase: Phase::Open,
            conservation: false,
            idle_restart: false,
            probe_done: None,
            probe_round_done: false,
            aggregation: Aggregation::default(),
        }
    }

    /// Current mode.
    pub fn mode(&self) -> BbrMode {
        self.mode
    }

    /// Estimated bandwidth of the path, including headers.
    pub fn bandwidth(&self) -> Rate {
        Rate::from_f64(self.per_second() * self.packet_bits)
    }

    /// Estimated round-trip time of the path without a queue.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt
    }

    /// Time from `now` until the next probe of the round trip, unless a shorter sample arrives
    /// first.
    pub fn next_probe(&self, now: Time) -> Duration {
        (self.min_rtt_at + self.config.min_rtt_window).since(now)
    }

    /// Estimated bandwidth in segments per second.
    fn per_second(&self) -> f64 {
        self.bandwidth.get().unwrap_or(0.0)
    }

    fn update_round(&mut self, ack: &Acked) {
        self.round.starts = false;
        let Some(rate) = ack.rate.per_second() else {
            return;
        };
        if ack.rate.prior >= self.round.end {
            self.round.end = ack.total;
            self.round.number += 1;
            self.round.starts = true;
            self.conservation = false;
        }
        // An application-limited rate counts only if it is the maximum.
        if !ack.rate.app_limited || rate >= self.per_second() {
            self.bandwidth.add(self.round.number, rate);
        }
    }

    fn update_cycle(&mut self, ack: &Acked) {
        if self.mode == BbrMode::ProbeBandwidth && self.phase_is_over(ack) {
            self.cycle = (self.cycle + 1) % CYCLE.len();
            self.cycle_start = ack.now;
        }
    }

    fn phase_is_over(&self, ack: &Acked) -> bool {
        let long = ack.now.since(self.cycle_start) > self.min_rtt.unwrap_or_default();
        let in_flight = f64::from(ack.prior_in_flight);
        match CYCLE[self.cycle] {
            // With a small queue it takes more than one round trip to fill the pipe.
            gain if gain > 1.0 => long && (ack.lost > 0 || in_flight >= self.target(gain)),
            gain if gain < 1.0 => long || in_flight <= self.target(1.0),
            _ => long,
        }
    }

    fn check_full(&mut self, ack: &Acked) {
        if self.full.reached || !self.round.starts || ack.rate.app_limited {
            return;
        }
        let rate = self.per_second();
        if rate >= self.full.rate * GROWTH {
            self.full.rate = rate;
            self.full.rounds = 0;
        } else {
            self.full.rounds += 1;
            self.full.reached = self.full.rounds >= FLAT_ROUNDS;
        }
    }

    fn check_drain(&mut self, ack: &Acked, window: &mut Window, rng: &mut Pcg64Mcg) {
        if self.mode == BbrMode::Startup && self.full.reached {
            self.mode = BbrMode::Drain;
            window.ssthresh = self.target(1.0) as u32;
        }
        if self.mode == BbrMode::Drain && f64::from(ack.in_flight) <= self.target(1.0) {
            self.probe_bandwidth(ack.now, rng);
        }
    }

    /// Starts in a random phase other than the draining one, to desynchronise flows.
    fn probe_bandwidth(&mut self, now: Time, rng: &mut Pcg64Mcg) {
        self.mode = BbrMode::ProbeBandwidth;
        let behind = (rng.next_u64() >> 32) as usize % (CYCLE.len() - 1);
        self.cycle = (CYCLE.len() - behind) % CYCLE.len();
        self.cycle_start = now;
    }

    fn update_min_rtt(&mut self, ack: &Acked, window: &mut Window, rng: &mut Pcg64Mcg) {
        let expired = ack.now > self.min_rtt_at + self.config.min_rtt_window;
        if let Some(rtt) = ack.rtt
            && (self.min_rtt.is_none_or(|low| rtt < low) || (expired && !ack.delayed))
        {
            self.min_rtt = Some(rtt);
            self.min_rtt_at = ack.now;
        }
        if expired && !self.idle_restart && self.mode != BbrMode::ProbeRtt {
            self.mode = BbrMode::ProbeRtt;
            self.save_cwnd(window);
            self.probe_done = None;
        }
        if self.mode == BbrMode::ProbeRtt {
            match self.probe_done {
                None if ack.in_flight <= MIN_CWND => {
                    self.probe_done = Some(ack.now + self.config.probe_rtt);
                    self.probe_round_done = false;
                    self.round.end = ack.total;
                }
                None => {}
                Some(_) => {
                    self.probe_round_done |= self.round.starts;
                    self.check_probe_done(ack.now, window, rng);
                }
            }
        }
        if ack.delivered > 0 {
            self.idle_restart = false;
        }
    }

    fn check_probe_done(&mut self, now: Time, window: &mut Window, rng: &mut Pcg64Mcg) {
        if self.probe_round_done && self.probe_done.is_some_and(|done| now > done) {
            self.min_rtt_at = now;
            window.set(window.cwnd().max(self.prior_cwnd));
            if self.full.reached {
                self.probe_bandwidth(now, rng);
            } else {
                self.mode = BbrMode::Startup;
            }
        }
    }

    fn pacing_gain(&self) -> f64 {
        match self.mode {
            BbrMode::Startup => self.config.high_gain,
            BbrMode::Drain => 1.0 / self.config.high_gain,
            BbrMode::ProbeBandwidth => CYCLE[self.cycle],
            BbrMode::ProbeRtt => 1.0,
        }
    }

    fn cwnd_gain(&self) -> f64 {
        match self.mode {
            BbrMode::Startup | BbrMode::Drain => self.config.high_gain,
            BbrMode::ProbeBandwidth => self.config.cwnd_gain,
            BbrMode::ProbeRtt => 1.0,
        }
    }

    fn update_pacing(&mut self, ack: &Acked) {
        if !self.pacing_from_rtt && ack.srtt > Duration::ZERO {
            self.pacing_from_rtt = true;
            let initial = f64::from(self.initial) / ack.srtt.as_secs_f64();
            self.pacing = self.config.high_gain * initial * self.packet_bits;
        }
        let rate = self.paced(self.pacing_gain());
        // In startup a single low sample does not reduce the rate.
        if self.full.reached || rate > self.pacing {
            self.pacing = rate;
        }
    }

    fn paced(&self, gain: f64) -> f64 {
        self.per_second() * self.packet_bits * gain * (1.0 - self.config.margin)
    }

    /// `gain` bandwidth-delay products, in segments.
    fn product(&self, gain: f64) -> f64 {
        match self.min_rtt {
            Some(rtt) => (self.per_second() * rtt.as_secs_f64() * gain).min(f64::from(u32::MAX)),
            None => f64::from(self.initial),
        }
    }

    /// Segments in flight for `gain`, with an allowance for bursts of sender and receiver.
    fn target(&self, gain: f64) -> f64 {
        self.allow_for_lumps(self.product(gain))
    }

    fn allow_for_lumps(&self, window: f64) -> f64 {
        // Three bursts: one in the sender, one in transit, one at the receiver.
        let burst = (self.pacing * BURST.as_secs_f64() / self.packet_bits) as u32;
        let least = if self.pacing < SLOW { 1 } else { 2 };
        let burst = burst.clamp(least, MAX_BURST);
        // Even, because delayed acknowledgements cover two segments.
        let even = (libm::ceil(window) + f64::from(3 * burst) + 1.0) / 2.0;
        let probing = self.mode == BbrMode::ProbeBandwidth && self.cycle == 0;
        libm::floor(even) * 2.0 + if probing { 2.0 } else { 0.0 }
    }

    fn update_cwnd(&mut self, ack: &Acked, window: &mut Window) {
        if ack.delivered > 0 && !self.recover(ack, window) {
            let extra = self.aggregation.extra(self.per_second(), &self.full);
            let target = self.allow_for_lumps(self.product(self.cwnd_gain()) + extra);
            let target = target.min(f64::from(u32::MAX)) as u32;
            let grown = window.cwnd().saturating_add(ack.delivered);
            if self.full.reached {
                window.set(grown.min(target));
            } else if window.cwnd() < target || ack.total < u64::from(self.initial) {
                window.set(grown);
            }
            window.set(window.cwnd().max(MIN_CWND));
        }
        if self.mode == BbrMode::ProbeRtt {
            window.set(window.cwnd().min(MIN_CWND));
        }
    }

    /// The window in recovery: for one round trip, the sender follows packet conservation. Returns
    /// whether this determines the window.
    fn recover(&mut self, ack: &Acked, window: &mut Window) -> bool {
        if ack.lost > 0 {
            window.set(window.cwnd().saturating_sub(ack.lost));
        }
        let repairing = |phase| matches!(phase, Phase::Recovery | Phase::Loss);
        if ack.phase == Phase::Recovery && self.prior_phase != Phase::Recovery {
            self.conservation = true;
            self.round.end = ack.total;
            window.set(ack.in_flight.saturating_add(ack.delivered));
        } else if repairing(self.prior_phase) && !repairing(ack.phase) {
            window.set(window.cwnd().max(self.prior_cwnd));
            self.conservation = false;
        }
        self.prior_phase = ack.phase;
        if self.conservation {
            let kept = ack.in_flight.saturating_add(ack.delivered);
            window.set(window.cwnd().max(kept));
        }
        self.conservation
    }

    fn save_cwnd(&mut self, window: &Window) {
        let undisturbed = matches!(self.prior_phase, Phase::Open | Phase::Reduced)
            && self.mode != BbrMode::ProbeRtt;
        self.prior_cwnd = if undisturbed {
            window.cwnd()
        } else {
            self.prior_cwnd.max(window.cwnd())
        };
    }
}

impl Congestion for Bbr {
    fn on_ack(&mut self, ack: &Acked, window: &mut Window, rng: &mut Pcg64Mcg) {
        self.update_round(ack);
        if self.config.aggregation && ack.delivered > 0 && !ack.rate.interval.is_zero() {
            if self.round.starts {
                self.aggregation.on_round_start(&self.full);
            }
            let bandwidth = self.per_second();
            self.aggregation.update(ack, bandwidth, window.cwnd());
        }
        self.update_cycle(ack);
        self.check_full(ack);
        self.check_drain(ack, window, rng);
        self.update_min_rtt(ack, window, rng);
        self.update_pacing(ack);
        self.update_cwnd(ack, window);
    }

    fn on_congestion(&mut self, _: Time, signal: Signal, window: &Window) -> u32 {
        self.save_cwnd(window);
        if signal == Signal::Timeout {
            self.prior_phase = Phase::Loss;
            self.full.rate = 0.0;
            self.round.starts = true;
        }
        window.ssthresh
    }

    fn on_undo(&mut self, window: &mut Window) {
        // The estimate of a full pipe may be based on an idle round.
        self.full.rate = 0.0;
        self.full.rounds = 0;
        window.set(window.cwnd().max(self.prior_cwnd));
    }

    fn on_restart(&mut self, now: Time, _: Duration, app_limited: bool) {
        if !app_limited {
            return;
        }
        self.idle_restart = true;
        self.aggregation.restart(now);
        if self.mode == BbrMode::ProbeBandwidth {
            // Starts at the estimate: there is no queue to drain and no need to probe.
            self.pacing = self.paced(1.0);
        }
    }

    fn pacing(&self) -> Option<Rate> {
        Some(Rate::from_f64(self.pacing))
    }

    fn owns_window(&self) -> bool {
        true
    }

    fn holds_back(&self) -> bool {
        self.mode == BbrMode::ProbeRtt
    }
}

/// Excess of acknowledged segments over the estimated bandwidth.
#[derive(Clone, Copy, Debug, Default)]
struct Aggregation {
    start: Time,
    acked: u64,
    /// Maximum excess of the current and of the previous window of rounds.
    extra: [u32; 2],
    rounds: u32,
}

impl Aggregation {
    fn on_round_start(&mut self, full: &FullPipe) {
        self.rounds += 1;
        if self.rounds >= if full.reached { EXTRA_ROUNDS } else { 1 } {
            self.rounds = 0;
            self.extra = [0, self.extra[0]];
        }
    }

    fn update(&mut self, ack: &Acked, bandwidth: f64, cwnd: u32) {
        let mut expected = bandwidth * ack.now.since(self.start).as_secs_f64();
        if self.acked as f64 <= expected || self.acked >= EPOCH_SEGMENTS {
            self.restart(ack.now);
            expected = 0.0;
        }
        self.acked += u64::from(ack.delivered);
        let extra = (self.acked as f64 - expected).min(f64::from(cwnd)) as u32;
        self.extra[0] = self.extra[0].max(extra);
    }

    fn restart(&mut self, now: Time) {
        self.start = now;
        self.acked = 0;
    }

    /// Segments to add to the window; at most the data of 100 ms.
    fn extra(&self, bandwidth: f64, full: &FullPipe) -> f64 {
        if full.reached {
            f64::from(self.extra[0].max(self.extra[1])).min(bandwidth * EXTRA_LIMIT.as_secs_f64())
        } else {
            0.0
        }
    }
}

/// Pacing gains of the eight phases of bandwidth probing, a round trip each.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Sufficient for a continuous stream of acknowledgements if either end delays them.
const MIN_CWND: u32 = 4;
/// The pipe is full when the rate grows by less than this factor in each of `FLAT_ROUNDS` rounds.
const GROWTH: f64 = 1.25;
const FLAT_ROUNDS: u32 = 3;
/// Assumed round trip before the first sample, as in Linux; the resulting pacing rate does not
/// limit the sender.
const GUESSED_RTT: Duration = Duration::from_millis(1);
/// Data that the host passes to the network card at once: a millisecond's worth, up to 64 KiB; at
/// least two segments, or one below 1.2 Mb/s.
const BURST: Duration = Duration::from_millis(1);
const MAX_BURST: u32 = 44;
const SLOW: f64 = 1.2e6;
/// The excess of acknowledgements is the maximum over five to ten round trips.
const EXTRA_ROUNDS: u32 = 5;
const EXTRA_LIMIT: Duration = Duration::from_millis(100);
/// Limits the epoch, because long epochs accumulate rounding errors and outdated variations.
const EPOCH_SEGMENTS: u64 = 1 << 20;

#[cfg(test)]
mod tests;
