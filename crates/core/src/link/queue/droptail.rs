//! First in, first out, up to a limit.

use super::fifo::Fifo;
use super::{Held, Queue, Queued, Verdict};
use crate::units::{Bytes, Time};

/// Parameters of a queue that drops what arrives while it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropTailConfig {
    /// How much may wait. ns-2 counts the packet in transmission too: what it calls a limit of q
    /// packets is one of q - 1 here.
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

    /// What becomes of a packet of `size` that arrives while `waiting` waits, and for which
    /// `capable` says whether it can be marked.
    #[inline]
    pub(in crate::link) fn judge(
        &self,
        waiting: Queued,
        size: Bytes,
        capable: impl FnOnce() -> bool,
    ) -> Verdict {
        let Queued { packets, bytes } = waiting;
        if !self.limit.admits(packets, bytes, size) {
            return Verdict::Dropped;
        }
        match self.mark_above {
            Some(above) if bytes + size > above && capable() => Verdict::Marked,
            _ => Verdict::Accepted,
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

impl Limit {
    /// Whether nothing may wait.
    pub fn is_zero(self) -> bool {
        matches!(self, Self::Bytes(Bytes::ZERO) | Self::Packets(0))
    }

    /// Whether a packet of `size` may join `packets` others of `bytes` together.
    #[inline]
    pub(super) fn admits(self, packets: usize, bytes: Bytes, size: Bytes) -> bool {
        match self {
            Self::Bytes(limit) => bytes + size <= limit,
            Self::Packets(limit) => packets < limit as usize,
        }
    }
}

/// The queue at work.
#[derive(Debug)]
pub(in crate::link) struct DropTail {
    config: DropTailConfig,
    fifo: Fifo,
}

impl DropTail {
    pub(super) fn new(config: DropTailConfig) -> Self {
        Self::with(config, Fifo::default())
    }

    /// With what waits already.
    pub(in crate::link) fn with(config: DropTailConfig, fifo: Fifo) -> Self {
        Self { config, fifo }
    }

    /// What would become of `packet`, without keeping it: for a transmitter that takes it at once.
    #[inline]
    pub(in crate::link) fn judge(&self, packet: Held) -> Verdict {
        let capable = || packet.ecn.is_capable();
        self.config.judge(self.fifo.queued(), packet.size, capable)
    }
}

impl Queue for DropTail {
    #[inline]
    fn enqueue(&mut self, _: Time, packet: Held, _: &mut Vec<Held>) -> Verdict {
        let verdict = self.judge(packet);
        if verdict != Verdict::Dropped {
            self.fifo.push(packet);
        }
        verdict
    }

    #[inline]
    fn dequeue(&mut self, _: Time, _: &mut Vec<Held>) -> Option<Held> {
        self.fifo.pop()
    }

    fn len(&self) -> usize {
        self.fifo.len()
    }

    fn bytes(&self) -> Bytes {
        self.fifo.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Ecn;
    use crate::link::testing::held;

    fn verdicts(config: DropTailConfig, packets: &[(u64, Ecn)]) -> Vec<Verdict> {
        let mut queue = DropTail::new(config);
        packets
            .iter()
            .map(|(size, ecn)| queue.enqueue(Time::ZERO, held(*size, *ecn), &mut vec![]))
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
