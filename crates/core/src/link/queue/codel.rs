//! Controlled delay (RFC 8289): what has waited too long for too long is dropped or marked as it
//! leaves, at intervals that shrink with the square root of their number.

use core::fmt;
use core::time::Duration;

use super::fifo::Fifo;
use super::{Held, Limit, Queue, Verdict};
use crate::units::{Bytes, Time, nanos};

/// Parameters of CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDelConfig {
    /// How much may wait. What comes beyond that is dropped.
    pub limit: Limit,
    /// When to interfere.
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
    pub(super) fn check(&self) -> Result<(), CoDelFault> {
        if self.limit.is_zero() {
            return Err(CoDelFault::Limit);
        }
        self.law.check()
    }
}

/// When CoDel interferes. Also the law of each queue of [FQ-CoDel](super::FqCoDelConfig).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayLaw {
    /// The waiting time that is fine for ever; 5 ms is usual.
    pub target: Duration,
    /// For how long more than that is fine: about a round trip; 100 ms is usual. Above zero.
    pub interval: Duration,
    /// A queue that holds no more than this is let be: the largest packet.
    pub max_packet: Bytes,
    /// Mark what can be marked rather than drop it.
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
    pub(super) fn check(&self) -> Result<(), CoDelFault> {
        if self.interval.is_zero() {
            return Err(CoDelFault::Interval);
        }
        Ok(())
    }
}

/// A parameter of CoDel that is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoDelFault {
    /// The interval is zero.
    Interval,
    /// Nothing may wait.
    Limit,
}

impl fmt::Display for CoDelFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interval => "the interval of CoDel is 0: use a round trip, as 100 ms",
            Self::Limit => "its CoDel queue takes nothing: allow at least 1 packet",
        })
    }
}

impl core::error::Error for CoDelFault {}

/// The queue at work.
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
    fn enqueue(&mut self, _: Time, packet: Held, _: &mut Vec<Held>) -> Verdict {
        let (packets, bytes) = (self.fifo.len(), self.fifo.bytes());
        if !self.config.limit.admits(packets, bytes, packet.size) {
            return Verdict::Dropped;
        }
        self.fifo.push(packet);
        Verdict::Accepted
    }

    fn dequeue(&mut self, at: Time, drops: &mut Vec<Held>) -> Option<Held> {
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

/// The state of the law for one queue (RFC 8289 section 5.3).
#[derive(Debug, Default)]
pub(super) struct Control {
    /// When the waiting time will have been too long for an interval, if it is too long now.
    patience_ends: Option<Time>,
    dropping: bool,
    /// While dropping: when the next packet goes.
    next: Time,
    /// Packets that went since dropping began, or a head start from the last time.
    count: u32,
    /// `count` as dropping began.
    first_count: u32,
}

impl Control {
    /// Takes the next packet to serve from `fifo`.
    pub(super) fn dequeue(
        &mut self,
        law: &DelayLaw,
        at: Time,
        fifo: &mut Fifo,
        drops: &mut Vec<Held>,
    ) -> Option<Held> {
        let (mut packet, mut late) = self.take(law, at, fifo);
        if self.dropping {
            self.dropping = late;
            while self.dropping && at >= self.next {
                self.count = self.count.saturating_add(1);
                if law.ecn && packet.as_mut().is_some_and(Held::mark) {
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
            if !(law.ecn && packet.as_mut().is_some_and(Held::mark)) {
                drops.extend(packet);
                (packet, _) = self.take(law, at, fifo);
            }
            self.start(law, at);
        }
        packet
    }

    /// The oldest packet, and whether waiting times have been too long for an interval.
    fn take(&mut self, law: &DelayLaw, at: Time, fifo: &mut Fifo) -> (Option<Held>, bool) {
        let packet = fifo.pop();
        let fine = packet.is_none_or(|p| at.since(p.arrived) < law.target);
        if fine || fifo.bytes() <= law.max_packet {
            self.patience_ends = None;
            return (packet, false);
        }
        let ends = *self.patience_ends.get_or_insert(at + law.interval);
        // Asked once more at the moment at which it began, it has not lasted yet.
        (packet, at >= ends)
    }

    /// Starts to drop. If the last time was recent, the rate that was right then is tried again.
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

    /// A queue that never gets shorter is asked once per millisecond; when each drop or mark is.
    fn interventions(queue: &mut CoDel, from: u64, to: u64, ecn: Ecn) -> Vec<u64> {
        let mut times = vec![];
        let fill = |queue: &mut CoDel, now| {
            while queue.len() < 200 {
                let arrived = ms(now);
                let packet = Held {
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

    /// Waiting times pass 5 ms at 5 ms, and have done so for an interval at 105 ms; then gaps are
    /// 100 ms over the root of 1, 2, 3 and so on.
    #[test]
    fn gaps_shrink_with_the_root_of_their_number() {
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
    fn short_waits_and_short_queues_are_let_be() {
        let mut queue = CoDel::new(config(false));
        let mut drops = vec![];
        for now in 0..1_000 {
            // One waits for 4 ms. The other waits for too long, but it is the only one by then.
            let packet = Held {
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
    fn a_second_time_soon_goes_on_where_the_first_one_ended() {
        let mut queue = CoDel::new(config(false));
        let first = interventions(&mut queue, 0, 1_000, Ecn::NotEct);
        let drain = |queue: &mut CoDel, now| while queue.dequeue(now, &mut vec![]).is_some() {};
        drain(&mut queue, ms(1_000));
        let soon = interventions(&mut queue, 1_100, 1_500, Ecn::NotEct);
        assert_eq!(soon[0], 1_205);
        // The count at the end of the first time gives the first gap of the second.
        let gap = 100.0 / (first.len() as f64).sqrt();
        assert!(
            ((soon[1] - soon[0]) as f64 - gap).abs() < 3.0,
            "{soon:?} {gap}"
        );
        drain(&mut queue, ms(1_500));
        let late = interventions(&mut queue, 9_000, 9_400, Ecn::NotEct);
        assert_eq!(late[..2], [9_105, 9_205]);
    }

    /// 1000-byte packets at an even pace into 5 Mb/s for 60 s. ns-3.37's `CoDelQueueDisc`, asked
    /// for a packet each 1.6 ms, drops so many and lets the others wait so long; it finds roots
    /// by one step of Newton's method in 16 bits and counts time in units of 1.024 us.
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

    /// How many packets are dropped, and for how many seconds the others wait on the average.
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
                let packet = Held {
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
