//! Random early detection (Floyd and Jacobson, "Random Early Detection Gateways for Congestion
//! Avoidance", IEEE/ACM Transactions on Networking 1(4), 1993), in packet mode, with the
//! options `gentle` and `wait` of ns-2.

use core::time::Duration;
use std::collections::VecDeque;

use rand_pcg::Pcg64Mcg;

use super::{Queue, Verdict};
use crate::link::Packet;
use crate::random::unit;
use crate::units::{Bytes, Time};

/// Parameters of [`Red`]. Queue lengths are in packets; the packet in transmission is not
/// counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedConfig {
    /// How many packets may wait.
    pub limit: u32,
    /// Below this average nothing happens. Above zero.
    pub min_threshold: f64,
    /// Up to this average the probability grows to `max_probability`. Above `min_threshold`.
    pub max_threshold: f64,
    /// Weight of a new sample in the average, in 0..=1 and above zero; 0.002 is usual.
    pub weight: f64,
    /// Probability at `max_threshold`, in 0..=1; 0.1 is usual.
    pub max_probability: f64,
    /// From `max_threshold` to twice that, grow to certainty, instead of dropping everything.
    pub gentle: bool,
    /// Leave at least 1/p packets between two drops. Without it the gaps are uniform from 1 to
    /// 1/p, so that about 2p are dropped; with it, from 1/p to 2/p and p/1.5.
    pub wait: bool,
    /// Mark packets that can carry a mark, where the dice say drop. A full queue and an average
    /// above the range still drop (RFC 3168 section 7).
    pub ecn: bool,
    /// Typical size, by which idle time is counted in packets that could have been sent.
    pub mean_packet: Bytes,
}

impl Default for RedConfig {
    /// Thresholds 25 and 125 of 300 packets of 1000 bytes, weight 0.002, p 0.1, gentle, wait.
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
            mean_packet: Bytes(1_000),
        }
    }
}

/// A queue that drops or marks at random before it is full.
#[derive(Debug)]
pub struct Red<P> {
    config: RedConfig,
    /// How long a typical packet takes to send.
    packet_time: Duration,
    rng: Pcg64Mcg,
    queue: VecDeque<P>,
    bytes: Bytes,
    average: f64,
    /// Packets since the last drop or mark, or since the average came above the minimum.
    count: u64,
    /// Whether the average was in the range at the last arrival.
    in_range: bool,
    idle_since: Option<Time>,
}

impl<P> Red<P> {
    /// Empty. `packet_time` is how long the transmitter takes for a typical packet; zero lets
    /// the average forget everything as soon as the link idles.
    pub fn new(config: RedConfig, packet_time: Duration, rng: Pcg64Mcg) -> Self {
        Self {
            config,
            packet_time,
            rng,
            queue: VecDeque::new(),
            bytes: Bytes::ZERO,
            average: 0.0,
            count: 0,
            in_range: false,
            idle_since: Some(Time::ZERO),
        }
    }

    /// The average queue length, in packets, as of the last arrival.
    pub fn average(&self) -> f64 {
        self.average
    }

    /// Moves the average, first through the packets that an idle link could have sent.
    fn update_average(&mut self, at: Time) {
        let keep = 1.0 - self.config.weight;
        if let Some(since) = self.idle_since.take() {
            let idle = at.since(since).as_nanos();
            let could_have_sent = match self.packet_time.as_nanos() {
                0 => f64::INFINITY,
                nanos => (idle / nanos) as f64,
            };
            self.average *= libm::pow(keep, could_have_sent);
        }
        self.average = keep * self.average + self.config.weight * self.queue.len() as f64;
    }

    fn decide(&mut self) -> Fate {
        let RedConfig {
            min_threshold,
            max_threshold,
            gentle,
            ..
        } = self.config;
        self.count += 1;
        if self.queue.len() >= self.config.limit as usize {
            return Fate::Refused;
        }
        // An average that is high over a queue that has just emptied is history.
        if self.average < min_threshold || self.queue.len() <= 1 {
            self.in_range = false;
            return Fate::Spared;
        }
        let end = if gentle {
            2.0 * max_threshold
        } else {
            max_threshold
        };
        if self.average >= end {
            return Fate::Refused;
        }
        if !self.in_range {
            self.in_range = true;
            self.count = 1;
            return Fate::Spared;
        }
        let probability = self.spread(self.base_probability());
        if unit(&mut self.rng) < probability {
            Fate::Chosen
        } else {
            Fate::Spared
        }
    }

    /// The probability of the average, `p_b` of the paper.
    fn base_probability(&self) -> f64 {
        let RedConfig {
            min_threshold: min,
            max_threshold: max,
            max_probability: top,
            ..
        } = self.config;
        if self.average < max {
            top * (self.average - min) / (max - min)
        } else {
            top + (1.0 - top) * (self.average - max) / max
        }
    }

    /// Spreads drops evenly, `p_a` of the paper: the longer since the last, the likelier.
    fn spread(&self, base: f64) -> f64 {
        let expected = self.count as f64 * base;
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
        spread.min(1.0)
    }
}

impl<P: Packet + Send> Queue<P> for Red<P> {
    fn enqueue(&mut self, at: Time, mut packet: P) -> Verdict {
        self.update_average(at);
        let fate = self.decide();
        if fate != Fate::Spared {
            self.count = 0;
        }
        let mark = fate == Fate::Chosen && self.config.ecn && packet.ecn().is_capable();
        if fate != Fate::Spared && !mark {
            return Verdict::Dropped;
        }
        if mark {
            packet.set_ce();
        }
        self.bytes += packet.size();
        self.queue.push_back(packet);
        if mark {
            Verdict::Marked
        } else {
            Verdict::Accepted
        }
    }

    fn dequeue(&mut self, at: Time) -> Option<P> {
        let Some(packet) = self.queue.pop_front() else {
            self.idle_since.get_or_insert(at);
            return None;
        };
        self.bytes -= packet.size();
        Some(packet)
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn bytes(&self) -> Bytes {
        self.bytes
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// By the dice: marked or dropped.
    Chosen,
    /// Full, or above the range: dropped.
    Refused,
    Spared,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Ecn;
    use crate::link::testing::Parcel;
    use crate::link::{Capacity, Link, LinkConfig, QueueConfig, Stage as _};
    use crate::random::Seed;
    use crate::units::Rate;

    fn red(config: RedConfig, packet_time: Duration) -> Red<Parcel> {
        Red::new(config, packet_time, Seed(1).stream("link/l/red"))
    }

    fn parcel(ecn: Ecn) -> Parcel {
        Parcel::new(0, 1_000, ecn)
    }

    /// Holds the queue at `waiting` packets and counts what happens to `arrivals` more.
    fn steady(config: RedConfig, waiting: usize, ecn: Ecn, arrivals: u32) -> (u32, u32) {
        let mut queue = red(config, Duration::ZERO);
        let (mut drops, mut marks) = (0, 0);
        for i in 0..arrivals + 10_000 {
            let verdict = queue.enqueue(Time::ZERO, parcel(ecn));
            if i >= 10_000 {
                drops += u32::from(verdict == Verdict::Dropped);
                marks += u32::from(verdict == Verdict::Marked);
            }
            if queue.len() > waiting {
                queue.dequeue(Time::ZERO);
            }
        }
        (drops, marks)
    }

    #[test]
    fn drop_rates_follow_the_average_and_the_options() {
        let halfway = RedConfig::default();
        // p_b is 0.05 at an average of 75: gaps of 20..=40 packets with wait, 1..=19 without.
        let (waiting, _) = steady(halfway, 75, Ecn::NotEct, 100_000);
        assert!(waiting.abs_diff(100_000 / 30) < 100, "{waiting}");
        let eager = RedConfig {
            wait: false,
            ..halfway
        };
        let (eager, _) = steady(eager, 75, Ecn::NotEct, 100_000);
        assert!(eager.abs_diff(200_000 / 20) < 300, "{eager}");
        assert_eq!(steady(halfway, 24, Ecn::NotEct, 1_000), (0, 0));
    }

    #[test]
    fn marks_instead_of_drops_where_it_may() {
        let config = RedConfig {
            ecn: true,
            ..RedConfig::default()
        };
        let (drops, marks) = steady(config, 75, Ecn::Ect0, 10_000);
        assert_eq!(drops, 0);
        assert!(marks.abs_diff(10_000 / 30) < 40, "{marks}");
        let (drops, marks) = steady(config, 75, Ecn::NotEct, 10_000);
        assert!(drops > 200 && marks == 0, "{drops} {marks}");
    }

    #[test]
    fn above_the_range_everything_is_dropped() {
        let mut queue = red(
            RedConfig {
                gentle: false,
                weight: 1.0,
                ..RedConfig::default()
            },
            Duration::ZERO,
        );
        let verdicts: Vec<_> = (0..400)
            .map(|_| queue.enqueue(Time::ZERO, parcel(Ecn::Ect0)))
            .collect();
        assert_eq!(verdicts[399], Verdict::Dropped);
        assert!(queue.len() <= 126, "{}", queue.len());
    }

    #[test]
    fn the_average_decays_while_the_link_idles() {
        let mut queue = red(
            RedConfig {
                weight: 0.5,
                ..RedConfig::default()
            },
            Duration::from_millis(1),
        );
        for _ in 0..9 {
            queue.enqueue(Time::ZERO, parcel(Ecn::NotEct));
        }
        let busy = queue.average();
        while queue.dequeue(Time::ZERO).is_some() {}
        // Three packet times and the sample of an empty queue: halved four times.
        queue.enqueue(Time::from_micros(3_900), parcel(Ecn::NotEct));
        assert!(
            (queue.average() - busy / 16.0).abs() < 1e-12,
            "{} {busy}",
            queue.average()
        );
    }

    /// Twenty jittered constant-rate sources into 15 Mb/s. ns-2 2.35 with the same parameters
    /// has these mean averages over [20, 220) s, of three seeds that differ by up to 1 %.
    #[test]
    fn agrees_with_ns2_in_open_loop() {
        for (load, ns2) in [(1.05, 95.8), (1.1, 129.6), (1.2, 144.7), (1.5, 179.2)] {
            let ours = open_loop(load);
            assert!(
                (ours / ns2 - 1.0).abs() < 0.02,
                "load {load}: {ours} against {ns2}"
            );
        }
    }

    /// The mean queue in packets that arrivals see, which is what RED averages.
    fn open_loop(load: f64) -> f64 {
        let config = LinkConfig {
            capacity: Capacity::Fixed(Rate::kbps(15_000)),
            queue: QueueConfig::Red(RedConfig::default()),
            ..LinkConfig::default()
        };
        let mut link = Link::new(&config, Seed(1), "bottleneck").unwrap();
        let mut rng = Seed(1).stream("sources");
        let interval = 20.0 * 8_000.0 / (load * 15e6);
        let mut next: Vec<_> = (0..20).map(|_| 0.2 * unit(&mut rng)).collect();
        let (mut samples, mut sum) = (0.0, 0.0);
        loop {
            let i = (0..20)
                .min_by(|a, b| f64::total_cmp(&next[*a], &next[*b]))
                .unwrap();
            let now = next[i];
            if now > 120.0 {
                return sum / samples;
            }
            next[i] += interval * (0.5 + unit(&mut rng));
            let at = Time::from_nanos((now * 1e9) as u64);
            while link.pop(at).is_some() {}
            if now > 20.0 {
                samples += 1.0;
                sum += link.queued().packets as f64;
            }
            link.push(at, parcel(Ecn::NotEct));
        }
    }
}
