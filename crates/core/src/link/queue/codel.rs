//! Controlled Delay, CoDel (RFC 8289). While the sojourn time has exceeded the target for an
//! interval, packets are dropped or marked at dequeue, with gaps that shrink with the square root
//! of their number.

use core::time::Duration;

use super::fifo::Fifo;
use super::{Limit, Queue, QueuedPacket, Verdict};
use crate::units::{Bytes, Time, nanos};

/// Parameters of CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDelConfig {
    /// Queue limit. Packets beyond it are dropped.
    pub limit: Limit,
    /// Control law.
    pub law: DelayLaw,
}

impl Default for CoDelConfig {
    /// 1000 packets, as in Linux, and the [`DelayLaw`] of the RFC.
    fn default() -> Self {
        Self {
            limit: Limit::Packets(1_000),
            law: DelayLaw::default(),
        }
    }
}

impl CoDelConfig {
    pub(in crate::link) fn check(&self) -> Result<(), CoDelFault> {
        if self.limit.is_zero() {
            return Err(CoDelFault::Limit);
        }
        self.law.check()
    }
}

/// Control law of CoDel. Also the law of each queue of [FQ-CoDel](super::FqCoDelConfig).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayLaw {
    /// Acceptable standing sojourn time; usually 5 ms.
    pub target: Duration,
    /// Time for which the target may be exceeded: about a round trip, usually 100 ms. Above zero.
    pub interval: Duration,
    /// Size of the largest packet. A backlog up to this size is never dropped or marked.
    pub max_packet: Bytes,
    /// Mark ECN-capable packets instead of dropping them.
    pub ecn: bool,
}

impl Default for DelayLaw {
    /// 5 ms, 100 ms (RFC 8289 sections 4.3 and 4.4), 1500 bytes, no marks.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            max_packet: Bytes(1_500),
            ecn: false,
        }
    }
}

impl DelayLaw {
    pub(in crate::link) fn check(&self) -> Result<(), CoDelFault> {
        if self.interval.is_zero() {
            return Err(CoDelFault::Interval);
        }
        Ok(())
    }
}

/// CoDel parameter out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoDelFault {
    /// The interval is zero.
    #[error("the interval of CoDel is 0: use a round trip, as 100 ms")]
    Interval,
    /// The limit is zero.
    #[error("its CoDel queue takes nothing: allow at least 1 packet")]
    Limit,
}

/// The queue.
#[derive(Debug)]
pub(in crate::link) struct CoDel {
    config: CoDelConfig,
    fifo: Fifo,
    control: Control,
}

impl CoDel {
    pub(super) fn new(config: CoDelConfig) -> Self {
        Self {
            config,
            fifo: Fifo::default(),
            control: Control::default(),
        }
    }
}

impl Queue for CoDel {
    fn enqueue(&mut self, _: Time, packet: QueuedPacket, _: &mut Vec<QueuedPacket>) -> Verdict {
        let (packets, bytes) = (self.fifo.len(), self.fifo.bytes());
        if !self.config.limit.admits(packets, bytes, packet.size) {
            return Verdict::Dropped;
        }
        self.fifo.push(packet);
        Verdict::Accepted
    }

    fn dequeue(&mut self, at: Time, drops: &mut Vec<QueuedPacket>) -> Option<QueuedPacket> {
        let law = &self.config.law;
        self.control.dequeue(law, at, &mut self.fifo, drops)
    }

    fn len(&self) -> usize {
        self.fifo.len()
    }

    fn bytes(&self) -> Bytes {
        self.fifo.bytes()
    }
}

/// State of the control law for one queue (RFC 8289 section 5.3).
#[derive(Debug, Default)]
pub(super) struct Control {
    /// End of the interval that began when the sojourn time exceeded the target; `None` if it is
    /// below.
    above_until: Option<Time>,
    dropping: bool,
    /// While dropping: time of the next drop.
    next: Time,
    /// Drops since dropping began, or the initial value carried over from the last episode.
    count: u32,
    /// `count` at the start of dropping.
    first_count: u32,
}

impl Control {
    /// Dequeues the next packet to serve from `fifo`.
    pub(super) fn dequeue(
        &mut self,
        law: &DelayLaw,
        at: Time,
        fifo: &mut Fifo,
        drops: &mut Vec<QueuedPacket>,
    ) -> Option<QueuedPacket> {
        let (mut packet, mut late) = self.take(law, at, fifo);
        if self.dropping {
            self.dropping = late;
            while self.dropping && at >= self.next {
                self.count = self.count.saturating_add(1);
                if law.ecn && packet.as_mut().is_some_and(QueuedPacket::mark) {
                    self.next = self.after(law, self.next);
                    return packet;
                }
                drops.extend(packet);
                (packet, late) = self.take(law, at, fifo);
                self.dropping = late;
                if late {
                    self.next = self.after(law, self.next);
                }
            }
        } else if late {
            if !(law.ecn && packet.as_mut().is_some_and(QueuedPacket::mark)) {
                drops.extend(packet);
                (packet, _) = self.take(law, at, fifo);
            }
            self.start(law, at);
        }
        packet
    }

    /// The oldest packet, and whether the target has been exceeded for an interval.
    fn take(&mut self, law: &DelayLaw, at: Time, fifo: &mut Fifo) -> (Option<QueuedPacket>, bool) {
        let packet = fifo.pop();
        let fine = packet.is_none_or(|p| at.since(p.arrived) < law.target);
        if fine || fifo.bytes() <= law.max_packet {
            self.above_until = None;
            return (packet, false);
        }
        let ends = *self.above_until.get_or_insert(at + law.interval);
        // A second call at the start time must not count as a full interval.
        (packet, at >= ends)
    }

    /// Starts dropping. Soon after the last episode, its drop rate is resumed.
    fn start(&mut self, law: &DelayLaw, at: Time) {
        self.dropping = true;
        let grown = self.count.saturating_sub(self.first_count);
        let recent = at.since(self.next) < law.interval.saturating_mul(RECENT);
        self.count = if grown > 1 && recent { grown } else { 1 };
        self.first_count = self.count;
        self.next = self.after(law, at);
    }

    fn after(&self, law: &DelayLaw, at: Time) -> Time {
        let gap = nanos(law.interval) as f64 / f64::from(self.count.max(1)).sqrt();
        at + Duration::from_nanos(gap as u64)
    }
}

/// In intervals (RFC 8289 section 5.3 and its pseudo-code).
const RECENT: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Ecn;
    use crate::link::testing::held;

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn config(ecn: bool) -> CoDelConfig {
        CoDelConfig {
            limit: Limit::Packets(10_000),
            law: DelayLaw {
                ecn,
                ..DelayLaw::default()
            },
        }
    }

    /// Times of drops or marks of a queue that never shrinks and is dequeued once per millisecond.
    fn interventions(queue: &mut CoDel, from: u64, to: u64, ecn: Ecn) -> Vec<u64> {
        let mut times = vec![];
        let fill = |queue: &mut CoDel, now| {
            while queue.len() < 200 {
                let arrived = ms(now);
                let packet = QueuedPacket {
                    arrived,
                    ..held(1_000, ecn)
                };
                queue.enqueue(arrived, packet, &mut vec![]);
            }
        };
        fill(queue, from);
        for now in from..to {
            let mut drops = vec![];
            let served = queue.dequeue(ms(now), &mut drops);
            times.extend(drops.iter().map(|_| now));
            times.extend(served.filter(|p| p.marked).map(|_| now));
            fill(queue, now);
        }
        times
    }

    /// The sojourn time exceeds the target at 5 ms, and has done so for an interval at 105 ms. The
    /// following gaps are 100 ms over the square root of 1, 2, 3 and so on.
    #[test]
    fn drop_gaps_follow_the_inverse_square_root() {
        let mut expected = vec![105_u64];
        let mut next = 105.0;
        for n in 1..9_u32 {
            next += 100.0 / f64::from(n).sqrt();
            expected.push(libm::ceil(next) as u64);
        }
        let end = expected[8] + 1;
        let dropped = interventions(&mut CoDel::new(config(false)), 0, end, Ecn::Ect0);
        assert_eq!(dropped, expected);
        let marked = interventions(&mut CoDel::new(config(true)), 0, end, Ecn::Ect0);
        assert_eq!(marked, expected);
        let cannot = interventions(&mut CoDel::new(config(true)), 0, end, Ecn::NotEct);
        assert_eq!(cannot, expected);
    }

    #[test]
    fn short_delays_and_short_queues_cause_no_drops() {
        let mut queue = CoDel::new(config(false));
        let mut drops = vec![];
        for now in 0..1_000 {
            // The first waits for 4 ms. The second exceeds the target, but is the only packet by
            // then.
            let packet = QueuedPacket {
                arrived: ms(20 * now),
                ..held(1_500, Ecn::NotEct)
            };
            queue.enqueue(ms(20 * now), packet, &mut drops);
            queue.enqueue(ms(20 * now), packet, &mut drops);
            queue.dequeue(ms(20 * now + 4), &mut drops);
            queue.dequeue(ms(20 * now + 15), &mut drops);
        }
        assert_eq!((drops.len(), queue.len()), (0, 0));
    }

    #[test]
    fn a_soon_second_episode_resumes_the_drop_rate() {
        let mut queue = CoDel::new(config(false));
        let first = interventions(&mut queue, 0, 1_000, Ecn::NotEct);
        let drain = |queue: &mut CoDel, now| while queue.dequeue(now, &mut vec![]).is_some() {};
        drain(&mut queue, ms(1_000));
        let soon = interventions(&mut queue, 1_100, 1_500, Ecn::NotEct);
        assert_eq!(soon[0], 1_205);
        // The count at the end of the first episode gives the first gap of the second.
        let gap = 100.0 / (first.len() as f64).sqrt();
        assert!(
            ((soon[1] - soon[0]) as f64 - gap).abs() < 3.0,
            "{soon:?} {gap}"
        );
        drain(&mut queue, ms(1_500));
        let late = interventions(&mut queue, 9_000, 9_400, Ecn::NotEct);
        assert_eq!(late[..2], [9_105, 9_205]);
    }

    /// 1000-byte packets at constant intervals into 5 Mb/s for 60 s. The reference values are the
    /// drops and mean delays of ns-3.37's `CoDelQueueDisc`, dequeued each 1.6 ms. It computes
    /// square roots by one Newton step in 16 bits, and times in units of 1.024 us.
    #[test]
    fn agrees_with_ns3_in_open_loop() {
        for (load, ns3_drops, ns3_wait) in [
            (1.02, 747.0, 0.006_034),
            (1.05, 1_870.0, 0.007_622),
            (1.1, 3_739.0, 0.014_041),
            (1.2, 7_481.0, 0.058_965),
            (1.5, 18_741.0, 0.444_649),
        ] {
            let (drops, wait) = open_loop(load);
            assert!((drops / ns3_drops - 1.0).abs() < 0.01, "{load}: {drops}");
            assert!((wait / ns3_wait - 1.0).abs() < 0.09, "{load}: {wait}");
        }
    }

    /// Number of drops, and mean sojourn time of the other packets in s.
    fn open_loop(load: f64) -> (f64, f64) {
        let mut queue = CoDel::new(CoDelConfig {
            limit: Limit::Packets(100_000),
            ..CoDelConfig::default()
        });
        let (mut drops, mut waited, mut next) = (vec![], Duration::ZERO, 0.0);
        let turns = 37_500;
        for turn in 1..=turns {
            let now = Time::from_micros(1_600 * turn);
            while Time::from_nanos(next as u64) <= now {
                let arrived = Time::from_nanos(next as u64);
                let packet = QueuedPacket {
                    arrived,
                    ..held(1_000, Ecn::NotEct)
                };
                queue.enqueue(arrived, packet, &mut drops);
                next += 1.6e6 / load;
            }
            let served = queue.dequeue(now, &mut drops);
            waited += served.map_or(Duration::ZERO, |p| now.since(p.arrived));
        }
        (drops.len() as f64, waited.as_secs_f64() / turns as f64)
    }
}
