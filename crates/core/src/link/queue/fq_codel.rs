//! FQ-CoDel (RFC 8290): flows are hashed to queues, which are served by deficit round robin with
//! priority for new flows. CoDel controls each queue.

use core::fmt;
use std::collections::VecDeque;

use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

use super::codel::{CoDelFault, Control, DelayLaw};
use super::fifo::Fifo;
use super::{Queue, QueuedPacket, Verdict};
use crate::units::{Bytes, Time};

/// Parameters of FQ-CoDel. Flows are identified by [`Packet::flow`](crate::link::Packet::flow).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCoDelConfig {
    /// Limit in packets over all queues. Beyond it the longest queue drops packets.
    pub limit: u32,
    /// Limit in bytes over all queues. Beyond it the longest queue drops packets.
    pub memory: Bytes,
    /// Number of queues, in 1..=65536. Flows with equal hashes share a queue.
    pub queues: u32,
    /// Quantum of a queue per round; at least 256 bytes, as in Linux.
    pub quantum: Bytes,
    /// Control law of each queue.
    pub law: DelayLaw,
}

impl Default for FqCoDelConfig {
    /// 10,240 packets, 32 MB, 1024 queues, a quantum of 1514 bytes (RFC 8290 section 5.2), ECN
    /// marks.
    fn default() -> Self {
        Self {
            limit: 10_240,
            memory: Bytes(32_000_000),
            queues: 1_024,
            quantum: Bytes(1_514),
            law: DelayLaw {
                ecn: true,
                ..DelayLaw::default()
            },
        }
    }
}

impl FqCoDelConfig {
    pub(in crate::link) fn check(&self) -> Result<(), FqCoDelFault> {
        if self.limit == 0 || self.memory == Bytes::ZERO {
            return Err(FqCoDelFault::Limit);
        }
        if !(1..=MAX_QUEUES).contains(&self.queues) {
            return Err(FqCoDelFault::Queues(self.queues));
        }
        if self.quantum < MIN_QUANTUM {
            return Err(FqCoDelFault::Quantum(self.quantum));
        }
        self.law.check().map_err(FqCoDelFault::Law)
    }
}

/// FQ-CoDel parameter out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FqCoDelFault {
    /// The control law is invalid.
    Law(CoDelFault),
    /// A limit is zero.
    Limit,
    /// The quantum is below 256 bytes, which would need too many rounds per packet.
    Quantum(Bytes),
    /// The number of queues is not in 1..=65536.
    Queues(u32),
}

impl fmt::Display for FqCoDelFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Law(e) => e.fmt(f),
            Self::Limit => f.write_str("its FQ-CoDel queue takes nothing: allow at least 1 packet"),
            Self::Quantum(Bytes(n)) => write!(
                f,
                "an FQ-CoDel quantum of {n} B is below 256 B: use the size of a large packet"
            ),
            Self::Queues(n) => write!(f, "{n} FQ-CoDel queues are not in 1..=65536"),
        }
    }
}

impl core::error::Error for FqCoDelFault {}

/// The queues.
#[derive(Debug)]
pub(in crate::link) struct FqCoDel {
    config: FqCoDelConfig,
    /// Hash collisions depend on the random stream, not on the flow numbers.
    salt: u64,
    queues: Vec<FlowQueue>,
    /// Queues that have recently become backlogged.
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    packets: usize,
    bytes: Bytes,
}

#[derive(Debug, Default)]
struct FlowQueue {
    fifo: Fifo,
    control: Control,
    /// Deficit: bytes the queue may still send in this round.
    deficit: i64,
    /// Whether the queue is in one of the lists.
    listed: bool,
}

impl FqCoDel {
    pub(super) fn new(config: FqCoDelConfig, rng: &mut Pcg64Mcg) -> Self {
        Self {
            config,
            salt: rng.next_u64(),
            queues: (0..config.queues).map(|_| FlowQueue::default()).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            packets: 0,
            bytes: Bytes::ZERO,
        }
    }

    /// Queue of `flow`.
    fn queue_of(&self, flow: u32) -> u32 {
        // Finaliser of SplitMix64. Its high bits are as good as its low ones, so a product with the
        // number of queues replaces a division.
        let mut z = (u64::from(flow) ^ self.salt).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let hash = (z ^ (z >> 31)) >> 32;
        ((hash * u64::from(self.config.queues)) >> 32) as u32
    }

    /// Drops half of the longest queue from its head, up to 64 packets, so that a flood does not
    /// need a search per packet (RFC 8290 section 4.1). Returns that queue.
    fn drop_from_longest(&mut self, drops: &mut Vec<QueuedPacket>) -> Option<u32> {
        let listed = self.new.iter().chain(&self.old).copied();
        let longest = listed.max_by_key(|i| {
            let queue = &self.queues[*i as usize];
            (queue.fifo.bytes(), queue.fifo.len())
        })?;
        let fifo = &mut self.queues[longest as usize].fifo;
        for _ in 0..(fifo.len() / 2).clamp(1, MAX_AT_ONCE) {
            if let Some(packet) = fifo.pop() {
                self.packets -= 1;
                self.bytes -= packet.size;
                drops.push(packet);
            }
        }
        Some(longest)
    }

    fn is_over_limit(&self) -> bool {
        self.packets > self.config.limit as usize || self.bytes > self.config.memory
    }
}

impl Queue for FqCoDel {
    fn enqueue(&mut self, _: Time, packet: QueuedPacket, drops: &mut Vec<QueuedPacket>) -> Verdict {
        let home = self.queue_of(packet.flow);
        let queue = &mut self.queues[home as usize];
        queue.fifo.push(packet);
        if !queue.listed {
            queue.listed = true;
            queue.deficit = i64::try_from(self.config.quantum.get()).unwrap_or(i64::MAX);
            self.new.push_back(home);
        }
        self.packets += 1;
        self.bytes += packet.size;
        while self.is_over_limit()
            && let Some(longest) = self.drop_from_longest(drops)
        {
            // The packet was alone in its queue, and larger than any backlog.
            if longest == home && drops.last().is_some_and(|d| d.number == packet.number) {
                drops.pop();
                return Verdict::Dropped;
            }
        }
        Verdict::Accepted
    }

    fn dequeue(&mut self, at: Time, drops: &mut Vec<QueuedPacket>) -> Option<QueuedPacket> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let turn = *list.front()?;
            let queue = &mut self.queues[turn as usize];
            if queue.deficit <= 0 {
                queue.deficit += i64::try_from(self.config.quantum.get()).unwrap_or(i64::MAX);
                list.pop_front();
                self.old.push_back(turn);
                continue;
            }
            let before = drops.len();
            let law = &self.config.law;
            let packet = queue.control.dequeue(law, at, &mut queue.fifo, drops);
            for gone in drops[before..].iter().chain(&packet) {
                self.packets -= 1;
                self.bytes -= gone.size;
            }
            if let Some(packet) = packet {
                queue.deficit -= packet.size.get().min(LARGEST_CHARGE) as i64;
                return Some(packet);
            }
            list.pop_front();
            if is_new {
                // An emptied queue must pass through the list of old queues before it is new again.
                // Otherwise a flow with single packets would starve the others.
                self.old.push_back(turn);
            } else {
                queue.listed = false;
            }
        }
    }

    fn len(&self) -> usize {
        self.packets
    }

    fn bytes(&self) -> Bytes {
        self.bytes
    }
}

/// Minimum of Linux.
const MIN_QUANTUM: Bytes = Bytes(256);
/// As in Linux, whose hash table has 16 bits.
const MAX_QUEUES: u32 = 65_536;
/// RFC 8290 section 4.1.
const MAX_AT_ONCE: usize = 64;
/// Upper bound of the charge for a packet, above any IPv4 packet. A deficit of 2^64 bytes would
/// never be paid off.
const LARGEST_CHARGE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Ecn;
    use crate::link::testing::held;
    use crate::random::Seed;

    fn queue(config: FqCoDelConfig) -> FqCoDel {
        FqCoDel::new(config, &mut Seed(1).stream("link/l/fq-codel"))
    }

    fn packet(flow: u32, number: u64, size: u64) -> QueuedPacket {
        QueuedPacket {
            number,
            flow,
            ..held(size, Ecn::NotEct)
        }
    }

    /// Enqueues packets of the given flows and sizes, and returns the flows in order of service.
    fn served(queue: &mut FqCoDel, packets: &[(u32, u64)]) -> Vec<u32> {
        for (number, (flow, size)) in packets.iter().enumerate() {
            let packet = packet(*flow, number as u64, *size);
            assert_eq!(
                queue.enqueue(Time::ZERO, packet, &mut vec![]),
                Verdict::Accepted
            );
        }
        drain(queue)
    }

    fn drain(queue: &mut FqCoDel) -> Vec<u32> {
        let next = || queue.dequeue(Time::ZERO, &mut vec![]).map(|p| p.flow);
        core::iter::from_fn(next).collect()
    }

    /// With this seed each flow has a queue of its own.
    #[test]
    fn service_is_fair_in_bytes() {
        let mut queue = queue(FqCoDelConfig::default());
        let mut load = vec![(1, 1_514); 4];
        load.extend([(2, 757); 8]);
        assert_eq!(
            served(&mut queue, &load),
            [1, 2, 2, 1, 2, 2, 1, 2, 2, 1, 2, 2]
        );
        assert_eq!((queue.len(), queue.bytes()), (0, Bytes::ZERO));
    }

    #[test]
    fn new_flows_have_priority_for_one_round() {
        let mut queue = queue(FqCoDelConfig::default());
        let put = |queue: &mut FqCoDel, flow| {
            queue.enqueue(Time::ZERO, packet(flow, 0, 1_514), &mut vec![]);
        };
        (0..6).for_each(|_| put(&mut queue, 1));
        let mut order = vec![];
        for round in 0..6 {
            // Flow 2 always has one packet queued, and would starve flow 1 if it stayed a new flow.
            if round > 0 {
                put(&mut queue, 2);
            }
            order.extend(
                queue
                    .dequeue(Time::ZERO, &mut vec![])
                    .map(|packet| packet.flow),
            );
        }
        assert_eq!(order, [1, 2, 1, 2, 1, 2]);
    }

    #[test]
    fn overflow_drops_from_the_longest_queue() {
        let mut queue = queue(FqCoDelConfig {
            limit: 100,
            ..FqCoDelConfig::default()
        });
        let mut drops = vec![];
        queue.enqueue(Time::ZERO, packet(7, 1_000, 1_500), &mut drops);
        for number in 0..101 {
            let verdict = queue.enqueue(Time::ZERO, packet(1, number, 100), &mut drops);
            assert_eq!(verdict, Verdict::Accepted);
        }
        // Flow 1 was over the limit twice; the first time it had 100 packets and lost 50 from the
        // head.
        let lost: Vec<_> = drops.iter().map(|p| (p.flow, p.number)).collect();
        let expected: Vec<_> = (0..50).map(|number| (1, number)).collect();
        assert_eq!(lost, expected);
        assert_eq!(queue.len(), 52);
    }

    #[test]
    fn a_packet_larger_than_the_limit_is_dropped() {
        let mut queue = queue(FqCoDelConfig {
            memory: Bytes(2_000),
            ..FqCoDelConfig::default()
        });
        let mut drops = vec![];
        let mut put = |flow, size| queue.enqueue(Time::ZERO, packet(flow, 5, size), &mut drops);
        assert_eq!(put(1, 900), Verdict::Accepted);
        assert_eq!(put(2, 1_200), Verdict::Dropped);
        assert_eq!(put(2, 1_100), Verdict::Accepted);
        assert_eq!(
            (queue.len(), queue.bytes(), drops.len()),
            (2, Bytes(2_000), 0)
        );
    }

    #[test]
    fn only_the_queue_above_the_target_drops() {
        let mut queue = queue(FqCoDelConfig::default());
        let mut lost = vec![];
        for ms in 0..1_000 {
            let now = Time::from_millis(ms);
            let mut drops = vec![];
            let arrive = |flow| QueuedPacket {
                arrived: now,
                ..packet(flow, ms, 1_000)
            };
            // Three packets per 2 ms of flow 1, one per 4 ms of flow 2. The capacity is one per ms.
            (0..=ms % 2).for_each(|_| {
                queue.enqueue(now, arrive(1), &mut drops);
            });
            if ms % 4 == 0 {
                queue.enqueue(now, arrive(2), &mut drops);
            }
            queue.dequeue(now, &mut drops);
            lost.extend(drops.iter().map(|p| p.flow));
        }
        assert!(
            lost.len() > 10 && lost.iter().all(|flow| *flow == 1),
            "{lost:?}"
        );
    }

    #[test]
    fn flows_are_spread_over_the_queues() {
        let queue = queue(FqCoDelConfig {
            queues: 10,
            ..FqCoDelConfig::default()
        });
        let mut count = [0_u32; 10];
        (0..10_000).for_each(|flow| count[queue.queue_of(flow) as usize] += 1);
        // Four standard deviations of a binomial distribution with p = 0.1 are 120.
        assert!(count.iter().all(|n| n.abs_diff(1_000) < 120), "{count:?}");
    }

    /// Flows of 0.5, 2 and 4 Mb/s with packets of 200, 1000 and 1500 bytes into 5 Mb/s for 60 s,
    /// without marks. ns-3.37's `FqCoDelQueueDisc` drops none of the first two flows and serves
    /// 12,500 packets of the third. The mean delays of the flows are 1.4, 1.3 and 122 ms.
    #[test]
    fn agrees_with_ns3_in_open_loop() {
        let mut queue = queue(FqCoDelConfig {
            law: DelayLaw::default(),
            ..FqCoDelConfig::default()
        });
        let (rates, sizes) = ([0.5e6, 2e6, 4e6], [200, 1_000, 1_500]);
        let (mut next, mut free) = ([0.0, 1e5, 2e5], 0.0);
        let (mut drops, mut served, mut waited) = (vec![], [0.0; 3], [0.0; 3]);
        while free < 60e9 {
            let earliest = |a: &usize, b: &usize| f64::total_cmp(&next[*a], &next[*b]);
            let flow = (0..3).min_by(earliest).unwrap();
            if next[flow] <= free {
                let packet = QueuedPacket {
                    arrived: Time::from_nanos(next[flow] as u64),
                    ..packet(flow as u32, 0, sizes[flow])
                };
                queue.enqueue(packet.arrived, packet, &mut drops);
                next[flow] += sizes[flow] as f64 * 8e9 / rates[flow];
            } else if let Some(p) = queue.dequeue(Time::from_nanos(free as u64), &mut drops) {
                served[p.flow as usize] += 1.0;
                waited[p.flow as usize] += free - p.arrived.as_nanos() as f64;
                free += p.size.bits() as f64 / 5e6 * 1e9;
            } else {
                free = next[flow];
            }
        }
        assert!(drops.iter().all(|p| p.flow == 2));
        for (flow, expected, ns3_ms, off) in [
            (0, 18_750.0, 1.4, 0.2),
            (1, 15_000.0, 1.3, 0.2),
            (2, 12_500.0, 122.0, 0.15),
        ] {
            let ms = waited[flow] / served[flow] / 1e6;
            assert!((served[flow] - expected).abs() < 3.0, "{flow}: {served:?}");
            assert!((ms / ns3_ms - 1.0).abs() < off, "{flow}: {ms} ms");
        }
    }
}
