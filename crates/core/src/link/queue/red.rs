//! Random Early Detection, RED (Floyd and Jacobson, "Random Early Detection Gateways for Congestion
//! Avoidance", IEEE/ACM Transactions on Networking 1(4), 1993), in packets or bytes, with the
//! options `gentle`, `wait`, `adaptive` and the automatic parameters of ns-2.

use core::time::Duration;

use rand_pcg::Pcg64Mcg;

use super::super::rate::Capacity;
use super::fifo::Fifo;
use super::{Queue, Queued, QueuedPacket, Verdict};
use crate::random::unit;
use crate::units::{Bytes, Rate, Time, nanos};

/// Parameters of RED. Queue lengths are in packets without the packet in transmission. If bytes are
/// counted, a packet is `mean_packet` bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedConfig {
    /// Queue limit in packets.
    pub limit: u32,
    /// Lower threshold of the average, below which no packet is dropped. Above zero.
    pub min_threshold: f64,
    /// Upper threshold, at which the probability is `max_probability`. Above `min_threshold`.
    pub max_threshold: f64,
    /// EWMA weight of a new sample, above zero, up to 1; usually 0.002.
    pub weight: f64,
    /// Probability at `max_threshold`, in 0..=1; usually 0.1.
    pub max_probability: f64,
    /// From `max_threshold` to twice that, increase the probability to 1 instead of dropping all
    /// packets.
    pub gentle: bool,
    /// Space drops by at least 1/p packets. Gaps are uniform from 1/p to 2/p, for a drop ratio of
    /// p/1.5. Without it gaps are uniform from 1 to 1/p, for a drop ratio of about 2p.
    pub wait: bool,
    /// Mark ECN-capable packets instead of random drops. Packets are still dropped if the queue is
    /// full or the average is above the range (RFC 3168 section 7).
    pub ecn: bool,
    /// Unit of the queue length.
    pub unit: RedUnit,
    /// Adapt `max_probability` to the load, so that the average stays halfway between the
    /// thresholds (ns-2: `adaptive_`).
    pub adaptation: Option<RedAdaptation>,
    /// Typical packet size, for converting idle time to packets and packets to bytes. Above zero.
    pub mean_packet: Bytes,
}

impl Default for RedConfig {
    /// Thresholds 25 and 125 of 300 packets of 1000 bytes, weight 0.002, p 0.1, `gentle`, `wait`.
    fn default() -> Self {
        Self {
            limit: 300,
            min_threshold: 25.0,
            max_threshold: 125.0,
            weight: 0.002,
            max_probability: 0.1,
            gentle: true,
            wait: true,
            ecn: false,
            unit: RedUnit::Packets,
            adaptation: None,
            mean_packet: Bytes(1_000),
        }
    }
}

impl RedConfig {
    /// Automatic configuration of ns-2.35, in bytes. The lower threshold is half of `rate` times
    /// `target`, at least 5 packets; the upper threshold is three times the lower one. The time
    /// constant of the average is ten round trips, each three times `delay` plus a transmission, at
    /// least 100 ms in total. ns-2 uses 5 ms for `target` and 500 bytes for `mean_packet`.
    pub fn automatic(rate: Rate, delay: Duration, target: Duration, mean_packet: Bytes) -> Self {
        let mean_packet = mean_packet.max(Bytes(1));
        let packets_per_second = (rate.as_f64() / (8.0 * mean_packet.get() as f64)).max(1e-9);
        let round_trip = (3.0 * (delay.as_secs_f64() + 1.0 / packets_per_second)).max(0.1);
        let min_threshold = (target.as_secs_f64() * packets_per_second / 2.0).max(5.0);
        Self {
            min_threshold,
            max_threshold: 3.0 * min_threshold,
            weight: -libm::expm1(-1.0 / (10.0 * round_trip * packets_per_second)),
            unit: RedUnit::Bytes,
            mean_packet,
            ..Self::default()
        }
    }

    pub(in crate::link) fn check(&self) -> Result<(), RedFault> {
        // The negated form rejects NaN.
        let above_zero = |x: f64| x > 0.0 && x < f64::INFINITY;
        if !above_zero(self.min_threshold) {
            return Err(RedFault::MinThreshold(self.min_threshold));
        }
        if !(above_zero(self.max_threshold) && self.max_threshold > self.min_threshold) {
            return Err(RedFault::MaxThreshold(self.max_threshold));
        }
        if !(above_zero(self.weight) && self.weight <= 1.0) {
            return Err(RedFault::Weight(self.weight));
        }
        if !(0.0..=1.0).contains(&self.max_probability) {
            return Err(RedFault::MaxProbability(self.max_probability));
        }
        if self.mean_packet == Bytes::ZERO {
            return Err(RedFault::MeanPacket);
        }
        match &self.adaptation {
            Some(adaptation) => adaptation.check(),
            None => Ok(()),
        }
    }
}

/// Unit of the queue length of RED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedUnit {
    /// Bytes; the drop probability is proportional to the packet size (ns-2: `queue_in_bytes_`,
    /// `bytes_`).
    Bytes,
    /// Packets, independent of their size.
    Packets,
}

/// Adaptation of the maximum probability to the load (Floyd, Gummadi and Shenker, "Adaptive RED: An
/// Algorithm for Increasing the Robustness of RED's Active Queue Management", 2001).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedAdaptation {
    /// Minimum time between two steps.
    pub interval: Duration,
    /// Increment for a high average, limited to a quarter of the current value.
    pub increase: f64,
    /// Factor for a low average, in 0..=1.
    pub decrease: f64,
    /// Lower bound of the probability, in 0..=1.
    pub lowest: f64,
    /// Upper bound of the probability, in 0..=1.
    pub highest: f64,
}

impl Default for RedAdaptation {
    /// Defaults of the paper and of ns-2: 0.5 s, 0.01, 0.9, 0.01, 0.5.
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(500),
            increase: 0.01,
            decrease: 0.9,
            lowest: 0.01,
            highest: 0.5,
        }
    }
}

impl RedAdaptation {
    fn check(&self) -> Result<(), RedFault> {
        let shares = [self.increase, self.decrease, self.lowest, self.highest];
        match shares.into_iter().find(|x| !(0.0..=1.0).contains(x)) {
            Some(x) => Err(RedFault::Adaptation(x)),
            None => Ok(()),
        }
    }
}

/// RED parameter out of range, with its value.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum RedFault {
    /// A parameter of the adaptation is not in 0..=1.
    #[error("a parameter {0} of adaptive RED is not in 0..=1")]
    Adaptation(f64),
    /// The maximum probability is not in 0..=1.
    #[error("a highest RED probability of {0} is not in 0..=1")]
    MaxProbability(f64),
    /// The upper threshold is not above the lower one.
    #[error("an upper RED threshold of {0} packets is not above the lower one")]
    MaxThreshold(f64),
    /// The mean packet size is zero.
    #[error("a typical packet of 0 B: use 1000 B")]
    MeanPacket,
    /// The lower threshold is not above zero.
    #[error("a lower RED threshold of {0} packets is not above 0")]
    MinThreshold(f64),
    /// The weight is not above zero and up to 1.
    #[error("a RED weight of {0} is not above 0 and up to 1")]
    Weight(f64),
}

/// The queue: drops or marks at random before it is full.
#[derive(Debug)]
pub(in crate::link) struct Red {
    law: RedLaw,
    fifo: Fifo,
}

impl Red {
    /// Queue with an initial backlog.
    pub(in crate::link) fn with(law: RedLaw, fifo: Fifo) -> Self {
        Self { law, fifo }
    }
}

/// Admission control of RED, independent of the storage of packets.
#[derive(Debug)]
pub(in crate::link) struct RedLaw {
    config: RedConfig,
    /// Transmission time of a typical packet, in ns.
    packet_time: u64,
    /// Decay of the average after n idle packets, tabulated: most gaps are short, and a power costs
    /// as much as the rest of the decision.
    kept: Box<[f64; SHORT_GAP]>,
    rng: Pcg64Mcg,
    /// Queue length at an arrival, in the unit of the configuration.
    length: u64,
    /// Average queue length in the unit of the configuration.
    average: f64,
    /// The two thresholds in the unit of the configuration.
    range: (f64, f64),
    max_probability: f64,
    /// Time of the last adaptation.
    adapted: Time,
    /// Packets and bytes since the last drop or mark, or since the average exceeded the minimum.
    since: (u64, Bytes),
    /// Whether the average was in the range at the last arrival.
    in_range: bool,
    idle_since: Option<Time>,
}

impl RedLaw {
    /// RED for a transmitter of this capacity. With an unlimited capacity the average decays to
    /// zero as soon as the link is idle.
    pub(in crate::link) fn new(config: RedConfig, capacity: &Capacity, rng: Pcg64Mcg) -> Self {
        let packet_time = match capacity.nominal() {
            Some(rate) => nanos(config.mean_packet / rate),
            None => 0,
        };
        let unit = match config.unit {
            RedUnit::Packets => 1.0,
            RedUnit::Bytes => config.mean_packet.get() as f64,
        };
        let keep = 1.0 - config.weight;
        Self {
            config,
            packet_time,
            kept: Box::new(core::array::from_fn(|n| libm::pow(keep, n as f64))),
            rng,
            length: 0,
            average: 0.0,
            range: (config.min_threshold * unit, config.max_threshold * unit),
            max_probability: config.max_probability,
            adapted: Time::ZERO,
            since: (0, Bytes::ZERO),
            in_range: false,
            idle_since: Some(Time::ZERO),
        }
    }

    /// Verdict for a packet of `size` that finds the backlog `waiting`. `capable` returns whether
    /// it is ECN-capable.
    #[inline]
    pub(in crate::link) fn verdict(
        &mut self,
        at: Time,
        size: Bytes,
        waiting: Queued,
        capable: impl FnOnce() -> bool,
    ) -> Verdict {
        self.length = match self.config.unit {
            RedUnit::Packets => waiting.packets as u64,
            RedUnit::Bytes => waiting.bytes.get(),
        };
        self.update_average(at);
        let fate = self.decide(size);
        if fate == Fate::Spared {
            return Verdict::Accepted;
        }
        self.since = (0, Bytes::ZERO);
        if fate == Fate::Chosen && self.config.ecn && capable() {
            Verdict::Marked
        } else {
            Verdict::Dropped
        }
    }

    /// The transmitter is idle from `at` on.
    pub(in crate::link) fn idle(&mut self, at: Time) {
        self.idle_since.get_or_insert(at);
    }

    fn is_full(&self) -> bool {
        let limit = u64::from(self.config.limit);
        match self.config.unit {
            RedUnit::Packets => self.length >= limit,
            RedUnit::Bytes => self.length >= self.config.mean_packet.get().saturating_mul(limit),
        }
    }

    /// Updates the average, first by the packets that an idle link could have sent.
    #[inline]
    fn update_average(&mut self, at: Time) {
        let keep = 1.0 - self.config.weight;
        if let Some(since) = self.idle_since.take() {
            let idle = at.since(since).as_nanos() as u64;
            let could_have_sent = idle.checked_div(self.packet_time);
            // Most gaps are shorter than a packet, or follow a long idle time with a zero average.
            if could_have_sent != Some(0) && self.average > 0.0 {
                self.average *= match could_have_sent {
                    Some(n) if n < SHORT_GAP as u64 => self.kept[n as usize],
                    n => libm::pow(keep, n.map_or(f64::INFINITY, |n| n as f64)),
                };
            }
        }
        self.average = keep * self.average + self.config.weight * self.length as f64;
        if let Some(adaptation) = self.config.adaptation {
            self.adapt(at, &adaptation);
        }
    }

    fn adapt(&mut self, at: Time, adaptation: &RedAdaptation) {
        if at.since(self.adapted) <= adaptation.interval {
            return;
        }
        let ((min, max), now) = (self.range, self.max_probability);
        let margin = 0.4 * (max - min);
        if self.average < min + margin && now > adaptation.lowest {
            self.max_probability = now * adaptation.decrease;
        } else if self.average > max - margin && now < adaptation.highest {
            self.max_probability = now + adaptation.increase.min(now / 4.0);
        } else {
            return;
        }
        self.adapted = at;
    }

    #[inline]
    fn decide(&mut self, size: Bytes) -> Fate {
        let (min, max) = self.range;
        self.since.0 += 1;
        self.since.1 += size;
        if self.is_full() {
            return Fate::Refused;
        }
        // A high average over a queue that has just emptied is outdated.
        if self.average < min || self.length <= 1 {
            self.in_range = false;
            return Fate::Spared;
        }
        let end = if self.config.gentle { 2.0 * max } else { max };
        if self.average >= end {
            return Fate::Refused;
        }
        if !self.in_range {
            self.in_range = true;
            self.since = (1, size);
            return Fate::Spared;
        }
        let probability = self.spread(self.base_probability(), size);
        if unit(&mut self.rng) < probability {
            Fate::Chosen
        } else {
            Fate::Spared
        }
    }

    /// Probability from the average, `p_b` of the paper.
    fn base_probability(&self) -> f64 {
        let ((min, max), top) = (self.range, self.max_probability);
        if self.average < max {
            top * (self.average - min) / (max - min)
        } else {
            top + (1.0 - top) * (self.average - max) / max
        }
    }

    /// Final probability, `p_a` of the paper, which grows with the packets since the last drop and
    /// so spaces drops evenly. In bytes, the count is in typical packets and the probability is
    /// proportional to the size.
    fn spread(&self, base: f64, size: Bytes) -> f64 {
        let mean = self.config.mean_packet;
        let count = match self.config.unit {
            RedUnit::Packets => self.since.0,
            RedUnit::Bytes => self.since.1.get() / mean.get(),
        };
        let expected = count as f64 * base;
        let spread = if self.config.wait {
            match expected {
                e if e < 1.0 => 0.0,
                e if e < 2.0 => base / (2.0 - e),
                _ => 1.0,
            }
        } else if expected < 1.0 {
            base / (1.0 - expected)
        } else {
            1.0
        };
        match self.config.unit {
            RedUnit::Bytes if spread < 1.0 => {
                (spread * size.get() as f64 / mean.get() as f64).min(1.0)
            }
            RedUnit::Bytes | RedUnit::Packets => spread.min(1.0),
        }
    }
}

impl Queue for Red {
    fn enqueue(&mut self, at: Time, packet: QueuedPacket, _: &mut Vec<QueuedPacket>) -> Verdict {
        let (waiting, capable) = (self.fifo.queued(), || packet.ecn.is_capable());
        let verdict = self.law.verdict(at, packet.size, waiting, capable);
        if verdict != Verdict::Dropped {
            self.fifo.push(packet);
        }
        verdict
    }

    fn dequeue(&mut self, at: Time, _: &mut Vec<QueuedPacket>) -> Option<QueuedPacket> {
        let packet = self.fifo.pop();
        if packet.is_none() {
            self.law.idle(at);
        }
        packet
    }

    fn len(&self) -> usize {
        self.fifo.len()
    }

    fn bytes(&self) -> Bytes {
        self.fifo.bytes()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Selected at random: marked or dropped.
    Chosen,
    /// Queue full or average above the range: dropped.
    Refused,
    Spared,
}

/// In packets: 34 ms at 15 Mb/s.
const SHORT_GAP: usize = 64;

#[cfg(test)]
mod tests;
