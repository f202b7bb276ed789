//! Strict priority of best effort over lower effort (RFC 8622) with a shared limit and push-out.

use super::fifo::Fifo;
use super::{Limit, Queue, QueuedPacket, Verdict};
use crate::endpoint::LOWER_EFFORT;
use crate::units::{Bytes, Time};

/// Parameters of a queue with two priorities. Packets with DSCP LE, 1, have the lower priority:
/// they are served if no other packet is queued, and are pushed out of a full queue by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityConfig {
    /// Limit of both priorities together.
    pub limit: Limit,
}

/// The queue.
#[derive(Debug)]
pub(in crate::link) struct Priority {
    limit: Limit,
    normal: Fifo,
    low: Fifo,
}

impl Priority {
    pub(super) fn new(config: PriorityConfig) -> Self {
        Self {
            limit: config.limit,
            normal: Fifo::default(),
            low: Fifo::default(),
        }
    }

    fn admits(&self, size: Bytes) -> bool {
        self.limit.admits(self.len(), self.bytes(), size)
    }

    /// Whether a packet of `size` fits if all low-priority packets are pushed out.
    fn could_admit(&self, size: Bytes) -> bool {
        let normal = &self.normal;
        self.limit.admits(normal.len(), normal.bytes(), size)
    }
}

impl Queue for Priority {
    fn enqueue(&mut self, _: Time, packet: QueuedPacket, drops: &mut Vec<QueuedPacket>) -> Verdict {
        if packet.dscp == LOWER_EFFORT {
            if !self.admits(packet.size) {
                return Verdict::Dropped;
            }
            self.low.push(packet);
            return Verdict::Accepted;
        }
        if !self.could_admit(packet.size) {
            return Verdict::Dropped;
        }
        while !self.admits(packet.size) {
            // The newest low-priority packet; earlier ones keep their place.
            drops.extend(self.low.pop_newest());
        }
        self.normal.push(packet);
        Verdict::Accepted
    }

    fn dequeue(&mut self, _: Time, _: &mut Vec<QueuedPacket>) -> Option<QueuedPacket> {
        self.normal.pop().or_else(|| self.low.pop())
    }

    fn len(&self) -> usize {
        self.normal.len() + self.low.len()
    }

    fn bytes(&self) -> Bytes {
        self.normal.bytes() + self.low.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Ecn;
    use crate::link::testing::held;

    struct Bench {
        queue: Priority,
        drops: Vec<QueuedPacket>,
        next: u64,
    }

    impl Bench {
        fn new(limit: Limit) -> Self {
            Self {
                queue: Priority::new(PriorityConfig { limit }),
                drops: vec![],
                next: 0,
            }
        }

        fn put(&mut self, dscp: u8, size: u64) -> Verdict {
            let packet = QueuedPacket {
                number: self.next,
                dscp,
                ..held(size, Ecn::NotEct)
            };
            self.next += 1;
            self.queue.enqueue(Time::ZERO, packet, &mut self.drops)
        }

        fn drain(&mut self) -> Vec<u64> {
            let next = || self.queue.dequeue(Time::ZERO, &mut vec![]);
            core::iter::from_fn(next).map(|p| p.number).collect()
        }
    }

    #[test]
    fn low_packets_are_served_last_and_pushed_out() {
        use Verdict::{Accepted, Dropped};
        let mut bench = Bench::new(Limit::Packets(4));
        let verdicts = [1, 1, 0, 1, 1, 46, 0, 0, 0].map(|dscp| bench.put(dscp, 1_000));
        // Room for four packets. Each normal packet pushes out the newest of low packets 0, 1 and
        // 3.
        let expected = [
            Accepted, Accepted, Accepted, Accepted, Dropped, Accepted, Accepted, Accepted, Dropped,
        ];
        assert_eq!(verdicts, expected);
        let gone: Vec<_> = bench.drops.iter().map(|p| p.number).collect();
        assert_eq!(gone, [3, 1, 0]);
        assert_eq!(bench.put(1, 1), Dropped);
        assert_eq!(bench.drain(), [2, 5, 6, 7]);
        let mut bench = Bench::new(Limit::Packets(4));
        let _ = [1, 0, 1, 0].map(|dscp| bench.put(dscp, 1_000));
        assert_eq!(bench.drain(), [1, 3, 0, 2]);
    }

    #[test]
    fn a_packet_that_cannot_fit_pushes_none_out() {
        let mut bench = Bench::new(Limit::Bytes(Bytes(1_000)));
        let _ = [(0, 400), (1, 200), (1, 300)].map(|(dscp, size)| bench.put(dscp, size));
        // Without low packets there is room for 600 bytes, not for 601.
        assert_eq!(bench.put(0, 601), Verdict::Dropped);
        assert!(bench.drops.is_empty());
        assert_eq!(bench.put(0, 350), Verdict::Accepted);
        assert_eq!(bench.drops.len(), 1);
        assert_eq!(bench.drain(), [0, 4, 1]);
    }
}
