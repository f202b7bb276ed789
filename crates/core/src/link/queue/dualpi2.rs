//! `DualPI2`, a dual-queue coupled AQM (RFC 9332 appendix A). A proportional integral controller
//! holds the delay of the classic queue at its target; packets of the low-latency queue are marked
//! early. The classic drop probability is the square of the base probability; the marking
//! probability is proportional to the latter.

use core::time::Duration;

use super::fifo::Fifo;
use super::{Limit, Queue, QueuedPacket, Verdict};
use crate::control::Ecn;
use crate::units::{Bytes, Time, nanos};

/// Parameters of `DualPI2`. Packets with ECT(1) or CE enter the low-latency queue, all others the
/// classic one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DualPi2Config {
    /// Limit of both queues together. Packets beyond it are dropped.
    pub limit: Limit,
    /// Target delay of the classic queue; usually 15 ms.
    pub target: Duration,
    /// Update interval of the base probability; usually 16 ms, at least 100 us.
    pub update: Duration,
    /// Integral gain: change per second of delay above the target, in Hz; usually 0.16.
    pub integral: f64,
    /// Proportional gain: change per second of delay growth, in Hz; usually 3.2.
    pub proportional: f64,
    /// Coupling factor: ratio of the low-latency marking probability to the base; usually 2.
    pub coupling: f64,
    /// Step threshold: a low-latency packet that has waited this long is marked, unless it is the
    /// last one in its queue; usually 1 ms.
    pub step: Duration,
    /// Overload threshold, in 0..=1; usually 0.25. From this probability on, ECN-capable classic
    /// packets are dropped as well. Low-latency packets are dropped with the same probability once
    /// all of them are marked.
    pub overload: f64,
    /// Scheduler of the two queues.
    pub scheduler: DualScheduler,
    /// With a backlog below two of these, no packet is dropped or marked for its delay.
    pub max_packet: Bytes,
}

impl Default for DualPi2Config {
    /// Defaults of RFC 9332 and Linux: 10,000 packets, and a weight of 0.1 for the classic queue.
    fn default() -> Self {
        Self {
            limit: Limit::Packets(10_000),
            target: Duration::from_millis(15),
            update: Duration::from_millis(16),
            integral: 0.16,
            proportional: 3.2,
            coupling: 2.0,
            step: Duration::from_millis(1),
            overload: 0.25,
            scheduler: DualScheduler::Weighted { classic: 0.1 },
            max_packet: Bytes(1_500),
        }
    }
}

/// Scheduler for two backlogged queues.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DualScheduler {
    /// Low-latency queue first, unless the classic queue's delay is longer by this; usually twice
    /// the target.
    TimeShifted(Duration),
    /// Low-latency queue first, with this share of the bytes for the classic queue, in 0..=1.
    Weighted {
        /// Share of the classic queue.
        classic: f64,
    },
}

impl DualPi2Config {
    pub(in crate::link) fn check(&self) -> Result<(), DualPi2Fault> {
        if self.limit.is_zero() {
            return Err(DualPi2Fault::Limit);
        }
        if self.update < SHORTEST_UPDATE {
            return Err(DualPi2Fault::Update(self.update));
        }
        let gains = [self.integral, self.proportional, self.coupling];
        // The negated form rejects NaN.
        if let Some(x) = gains.into_iter().find(|x| !(0.0..1e9).contains(x)) {
            return Err(DualPi2Fault::Gain(x));
        }
        let share = match self.scheduler {
            DualScheduler::TimeShifted(_) => 0.0,
            DualScheduler::Weighted { classic } => classic,
        };
        let shares = [self.overload, share];
        match shares.into_iter().find(|x| !(0.0..=1.0).contains(x)) {
            Some(x) => Err(DualPi2Fault::Share(x)),
            None => Ok(()),
        }
    }
}

/// `DualPI2` parameter out of range.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum DualPi2Fault {
    /// A gain or the coupling is not in 0..1e9.
    #[error("a gain or coupling of {0} of its DualPI2 queue is not in 0..1e9")]
    Gain(f64),
    /// The limit is zero.
    #[error("its DualPI2 queue takes nothing: allow at least 1 packet")]
    Limit,
    /// A share or a probability is not in 0..=1.
    #[error("a share of {0} of its DualPI2 queue is not in 0..=1")]
    Share(f64),
    /// The update interval is too short.
    #[error("DualPI2 updates each {0:?} are more than one in 100 us: use 16 ms")]
    Update(Duration),
}

/// The two queues.
#[derive(Debug)]
pub(in crate::link) struct DualPi2 {
    config: DualPi2Config,
    low: FastLink,
    classic: FastLink,
    /// Base probability `p'`, in 0..=1.
    base: f64,
    /// Delay at the last update, in s.
    delay: f64,
    /// Time of the last update, a multiple of the update interval.
    updated: Time,
    /// Credit of the classic queue in bytes, for the weighted scheduler.
    credit: f64,
}

/// A queue and the fractional part of its accumulated probabilities.
#[derive(Debug, Default)]
struct FastLink {
    fifo: Fifo,
    sum: f64,
}

impl FastLink {
    /// Whether the next event of a series with the given probability is due. Events are spaced
    /// evenly instead of at random (`recur` of RFC 9332).
    fn is_due(&mut self, probability: f64) -> bool {
        self.sum += probability.min(1.0);
        let due = self.sum >= 1.0;
        if due {
            self.sum -= 1.0;
        }
        due
    }

    /// Sojourn time of the oldest packet.
    fn delay(&self, at: Time) -> Duration {
        let oldest = self.fifo.head();
        oldest.map_or(Duration::ZERO, |packet| at.since(packet.arrived))
    }
}

impl DualPi2 {
    pub(super) fn new(config: DualPi2Config) -> Self {
        Self {
            config,
            low: FastLink::default(),
            classic: FastLink::default(),
            base: 0.0,
            delay: 0.0,
            updated: Time::ZERO,
            credit: 0.0,
        }
    }

    /// Applies the updates up to `at`. Queues do not change between calls, so late updates see the
    /// same state as timely ones.
    fn catch_up(&mut self, at: Time) {
        let every = nanos(self.config.update);
        let missed = nanos(at.since(self.updated)) / every;
        // Enough for saturation at 0 or 1: the delay of unchanged queues only grows, or is zero.
        let played = missed.min(MAX_UPDATES);
        let first = self.updated.as_nanos() + (missed - played) * every;
        for i in 1..=played {
            self.update(Time::from_nanos(first + i * every));
        }
        self.updated = Time::from_nanos(first + played * every);
    }

    fn update(&mut self, at: Time) {
        let delay = self.low.delay(at).max(self.classic.delay(at)).as_secs_f64();
        let above = delay - self.config.target.as_secs_f64();
        let grown = delay - self.delay;
        let step = self.config.integral * above + self.config.proportional * grown;
        self.base = (self.base + step).clamp(0.0, 1.0);
        self.delay = delay;
    }

    fn is_low_turn(&self, at: Time) -> bool {
        if self.low.fifo.is_empty() || self.classic.fifo.is_empty() {
            return !self.low.fifo.is_empty();
        }
        match self.config.scheduler {
            DualScheduler::TimeShifted(shift) => {
                self.low.delay(at).saturating_add(shift) >= self.classic.delay(at)
            }
            DualScheduler::Weighted { .. } => self.credit <= 0.0,
        }
    }

    /// Dequeues the next packet of a queue.
    fn take(&mut self, low: bool) -> Option<QueuedPacket> {
        let both = !self.low.fifo.is_empty() && !self.classic.fifo.is_empty();
        let fast = if low {
            &mut self.low
        } else {
            &mut self.classic
        };
        let packet = fast.fifo.pop()?;
        self.credit = match self.config.scheduler {
            DualScheduler::Weighted { classic } if both => {
                let size = packet.size.get() as f64;
                let share = if low { classic } else { classic - 1.0 };
                self.credit + share * size
            }
            _ => 0.0,
        };
        Some(packet)
    }

    /// Whether a low-latency packet is served rather than dropped. May mark it.
    fn admit_low(&mut self, at: Time, packet: &mut QueuedPacket, quiet: bool) -> bool {
        let coupled = self.config.coupling * self.base;
        if !quiet && coupled >= 1.0 && self.low.is_due(self.base * self.base) {
            return false;
        }
        let late = at.since(packet.arrived) >= self.config.step && !self.low.fifo.is_empty();
        let probability = match (late, quiet) {
            (true, _) => 1.0,
            (false, true) => 0.0,
            (false, false) => coupled,
        };
        if self.low.is_due(probability) {
            packet.mark();
        }
        true
    }

    /// Whether a classic packet is served rather than dropped. May mark it.
    fn admit_classic(&mut self, packet: &mut QueuedPacket, quiet: bool) -> bool {
        let probability = self.base * self.base;
        if quiet || !self.classic.is_due(probability) {
            return true;
        }
        probability < self.config.overload && packet.mark()
    }
}

impl Queue for DualPi2 {
    fn enqueue(&mut self, at: Time, packet: QueuedPacket, _: &mut Vec<QueuedPacket>) -> Verdict {
        self.catch_up(at);
        if !self
            .config
            .limit
            .admits(self.len(), self.bytes(), packet.size)
        {
            return Verdict::Dropped;
        }
        match packet.ecn {
            Ecn::Ect1 | Ecn::Ce => self.low.fifo.push(packet),
            Ecn::NotEct | Ecn::Ect0 => self.classic.fifo.push(packet),
        }
        Verdict::Accepted
    }

    fn dequeue(&mut self, at: Time, drops: &mut Vec<QueuedPacket>) -> Option<QueuedPacket> {
        self.catch_up(at);
        loop {
            let quiet = self.bytes() < self.config.max_packet + self.config.max_packet;
            let low = self.is_low_turn(at);
            let mut packet = self.take(low)?;
            let passes = if low {
                self.admit_low(at, &mut packet, quiet)
            } else {
                self.admit_classic(&mut packet, quiet)
            };
            if passes {
                return Some(packet);
            }
            drops.push(packet);
        }
    }

    fn len(&self) -> usize {
        self.low.fifo.len() + self.classic.fifo.len()
    }

    fn bytes(&self) -> Bytes {
        self.low.fifo.bytes() + self.classic.fifo.bytes()
    }
}

const SHORTEST_UPDATE: Duration = Duration::from_micros(100);
/// 16 s of updates at the usual interval. With the usual gains, an empty queue needs 420 updates to
/// reduce the probability from 1 to 0.
const MAX_UPDATES: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::testing::held;

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn packet(at: Time, ecn: Ecn) -> QueuedPacket {
        QueuedPacket {
            arrived: at,
            ..held(1_000, ecn)
        }
    }

    /// Queue with a constant base probability.
    fn still(base: f64, scheduler: DualScheduler) -> DualPi2 {
        let mut queue = DualPi2::new(DualPi2Config {
            integral: 0.0,
            proportional: 0.0,
            scheduler,
            ..DualPi2Config::default()
        });
        queue.base = base;
        queue
    }

    /// Drops and marks among 10,000 packets without delay.
    fn drops_and_marks(base: f64, ecn: Ecn) -> (usize, usize) {
        let mut queue = still(base, DualScheduler::Weighted { classic: 0.1 });
        let (mut drops, mut marks) = (vec![], 0);
        for _ in 0..5 {
            queue.enqueue(ms(0), packet(ms(0), ecn), &mut drops);
        }
        for _ in 0..10_000 {
            queue.enqueue(ms(0), packet(ms(0), ecn), &mut drops);
            while queue.len() > 5 {
                let served = queue.dequeue(ms(0), &mut drops);
                marks += usize::from(served.is_some_and(|p| p.marked));
            }
        }
        (drops.len(), marks)
    }

    /// A base probability p marks 2p of the scalable packets and p squared of the classic ones.
    #[test]
    fn classic_probability_is_the_square_of_the_base() {
        let near = |ours: (usize, usize), drops: usize, marks: usize| {
            let off = ours.0.abs_diff(drops).max(ours.1.abs_diff(marks));
            assert!(off <= 2, "{ours:?} {drops} {marks}");
        };
        near(drops_and_marks(0.2, Ecn::Ect1), 0, 4_000);
        near(drops_and_marks(0.2, Ecn::Ce), 0, 4_000);
        near(drops_and_marks(0.2, Ecn::Ect0), 0, 400);
        near(drops_and_marks(0.2, Ecn::NotEct), 400, 0);
        // From a base of 0.5 on, both drop with the same probability, and the rest is marked.
        near(drops_and_marks(0.6, Ecn::Ect0), 3_600, 0);
        near(drops_and_marks(0.6, Ecn::Ect1), 3_600, 6_400);
    }

    #[test]
    fn base_probability_follows_delay_and_its_growth() {
        let mut queue = DualPi2::new(DualPi2Config::default());
        queue.enqueue(ms(0), packet(ms(0), Ecn::NotEct), &mut vec![]);
        // At 16 ms the sojourn time is 16 ms, 1 ms above the target; then it grows by 16 ms.
        queue.catch_up(ms(31));
        let first = 0.16 * 0.001 + 3.2 * 0.016;
        assert!((queue.base - first).abs() < 1e-12, "{}", queue.base);
        queue.catch_up(ms(32));
        let second = first + 0.16 * 0.017 + 3.2 * 0.016;
        assert!((queue.base - second).abs() < 1e-12, "{}", queue.base);
        // The probability ends at one for a stuck queue, and at zero for an empty one.
        queue.catch_up(Time::FAR);
        assert!(queue.base >= 1.0);
        let mut empty = DualPi2::new(DualPi2Config::default());
        (empty.base, empty.delay) = (1.0, 0.0);
        empty.catch_up(ms(16 * 300));
        assert!((empty.base - (1.0 - 300.0 * 0.16 * 0.015)).abs() < 1e-9);
        empty.catch_up(ms(16 * 420));
        assert!(empty.base <= 0.0);
    }

    #[test]
    fn late_low_latency_packets_are_marked_unless_alone() {
        let mut queue = still(0.0, DualScheduler::Weighted { classic: 0.1 });
        for _ in 0..3 {
            queue.enqueue(ms(0), packet(ms(0), Ecn::Ect1), &mut vec![]);
        }
        let mut served = |at| queue.dequeue(Time::from_micros(at), &mut vec![]);
        let marks = [999, 1_000, 5_000].map(|at| served(at).map(|p| p.marked));
        assert_eq!(marks, [Some(false), Some(true), Some(false)]);
    }

    /// Order of service of 200 packets of each queue; `true` for the low-latency queue.
    fn order(scheduler: DualScheduler, classic_since: Time) -> Vec<bool> {
        let mut queue = still(0.0, scheduler);
        for _ in 0..200 {
            queue.enqueue(ms(50), packet(classic_since, Ecn::NotEct), &mut vec![]);
            queue.enqueue(ms(50), packet(ms(50), Ecn::Ect1), &mut vec![]);
        }
        let next = || queue.dequeue(ms(50), &mut vec![]);
        core::iter::from_fn(next)
            .map(|packet| packet.ecn == Ecn::Ect1)
            .collect()
    }

    #[test]
    fn schedulers_favour_the_low_queue_within_limits() {
        let weighted = order(DualScheduler::Weighted { classic: 0.1 }, ms(0));
        assert_eq!(weighted[..100].iter().filter(|low| !**low).count(), 10);
        assert_eq!(weighted.len(), 400);
        let shifted = DualScheduler::TimeShifted(Duration::from_millis(30));
        assert!(order(shifted, ms(20))[..200].iter().all(|low| *low));
        assert!(order(shifted, ms(19))[..200].iter().all(|low| !*low));
    }

    #[test]
    fn a_short_queue_causes_no_drops_or_marks() {
        let mut queue = still(1.0, DualScheduler::Weighted { classic: 0.1 });
        let mut drops = vec![];
        queue.enqueue(ms(0), packet(ms(0), Ecn::NotEct), &mut drops);
        queue.enqueue(ms(0), packet(ms(0), Ecn::Ect1), &mut drops);
        assert!(queue.dequeue(ms(9), &mut drops).is_some_and(|p| !p.marked));
        assert!(queue.dequeue(ms(9), &mut drops).is_some_and(|p| !p.marked));
        assert!(drops.is_empty());
    }

    /// 6 Mb/s of unresponsive packets into 5 Mb/s: the controller drops the excess and holds the
    /// classic queue at its target.
    #[test]
    fn the_classic_queue_is_held_at_its_target() {
        let mut queue = DualPi2::new(DualPi2Config::default());
        let (mut drops, mut arrivals, mut waited, mut served) = (vec![], 0, Duration::ZERO, 0);
        // One arrival per 4/3 ms, one departure per 1.6 ms.
        let mut next_out = Time::ZERO;
        for i in 0..45_000_u64 {
            let now = Time::from_nanos(i * 4_000_000 / 3);
            while next_out <= now {
                let before = drops.len();
                if let Some(p) = queue.dequeue(next_out, &mut drops)
                    && next_out > ms(20_000)
                {
                    waited += next_out.since(p.arrived);
                    served += 1;
                }
                if next_out <= ms(20_000) {
                    drops.truncate(before);
                }
                next_out += Duration::from_micros(1_600);
            }
            arrivals += u32::from(now > ms(20_000));
            queue.enqueue(now, packet(now, Ecn::NotEct), &mut drops);
        }
        let share = drops.len() as f64 / f64::from(arrivals);
        assert!((share - 1.0 / 6.0).abs() < 0.002, "{share}");
        let mean = (waited / served).as_secs_f64();
        assert!((mean - 0.015).abs() < 0.001, "{mean}");
    }
}
