//! First in, first out, up to a limit.

use std::collections::VecDeque;

use super::{Queue, Verdict};
use crate::link::Packet;
use crate::units::{Bytes, Time};

/// Parameters of [`DropTail`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropTailConfig {
    /// How much may wait.
    pub limit: Limit,
    /// Packets that can carry a mark get one if, with them, more than this waits (the step
    /// marking of DCTCP, RFC 8257 section 3.1). `None`: never.
    pub mark_above: Option<Bytes>,
}

impl DropTailConfig {
    /// Up to `packets`, without marks.
    pub const fn packets(packets: u32) -> Self {
        Self {
            limit: Limit::Packets(packets),
            mark_above: None,
        }
    }

    /// Up to `bytes`, without marks.
    pub const fn bytes(bytes: Bytes) -> Self {
        Self {
            limit: Limit::Bytes(bytes),
            mark_above: None,
        }
    }
}

/// How much may wait. The packet in transmission does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// In bytes. A packet that is larger than the limit never passes.
    Bytes(Bytes),
    /// In packets of whatever size.
    Packets(u32),
}

/// A queue that drops what arrives while it is full.
#[derive(Debug)]
pub struct DropTail<P> {
    config: DropTailConfig,
    queue: VecDeque<P>,
    bytes: Bytes,
}

impl<P> DropTail<P> {
    /// Empty.
    pub fn new(config: DropTailConfig) -> Self {
        Self {
            config,
            queue: VecDeque::new(),
            bytes: Bytes::ZERO,
        }
    }
}

impl<P: Packet + Send> Queue<P> for DropTail<P> {
    fn enqueue(&mut self, _: Time, mut packet: P) -> Verdict {
        let bytes = self.bytes + packet.size();
        let fits = match self.config.limit {
            Limit::Bytes(limit) => bytes <= limit,
            Limit::Packets(limit) => self.queue.len() < limit as usize,
        };
        if !fits {
            return Verdict::Dropped;
        }
        let mark =
            self.config.mark_above.is_some_and(|above| bytes > above) && packet.ecn().is_capable();
        if mark {
            packet.set_ce();
        }
        self.bytes = bytes;
        self.queue.push_back(packet);
        if mark {
            Verdict::Marked
        } else {
            Verdict::Accepted
        }
    }

    fn dequeue(&mut self, _: Time) -> Option<P> {
        let packet = self.queue.pop_front()?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Ecn;
    use crate::link::testing::Parcel;

    fn verdicts(config: DropTailConfig, packets: &[(u64, Ecn)]) -> Vec<Verdict> {
        let mut queue = DropTail::new(config);
        let parcel = |(size, ecn): &(u64, Ecn)| Parcel::new(0, *size, *ecn);
        packets
            .iter()
            .map(|p| queue.enqueue(Time::ZERO, parcel(p)))
            .collect()
    }

    #[test]
    fn limits_count_packets_or_bytes() {
        use Verdict::{Accepted, Dropped};
        let three = [(700, Ecn::NotEct), (800, Ecn::NotEct), (1, Ecn::NotEct)];
        let by_packets = verdicts(DropTailConfig::packets(2), &three);
        assert_eq!(by_packets, [Accepted, Accepted, Dropped]);
        let by_bytes = verdicts(DropTailConfig::bytes(Bytes(701)), &three);
        assert_eq!(by_bytes, [Accepted, Dropped, Accepted]);
    }

    #[test]
    fn marks_above_the_threshold_and_only_what_can_be_marked() {
        use Verdict::{Accepted, Marked};
        let config = DropTailConfig {
            mark_above: Some(Bytes(1_000)),
            ..DropTailConfig::packets(10)
        };
        let packets = [(1_000, Ecn::Ect0), (1, Ecn::NotEct), (1, Ecn::Ect1)];
        assert_eq!(verdicts(config, &packets), [Accepted, Accepted, Marked]);
    }
}
