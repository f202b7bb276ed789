//! Drop-tail FIFO with optional step marking.

use super::fifo::Fifo;
use super::{Queue, Queued, QueuedPacket, Verdict};
use crate::units::{Bytes, Time};

/// Parameters of a drop-tail queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropTailConfig {
    /// Queue limit, without the packet in transmission. ns-2 includes it: a limit of q packets
    /// there is one of q - 1 here.
    pub limit: Limit,
    /// Threshold of step marking, as for DCTCP (RFC 8257 section 3.1): an ECN-capable packet is
    /// marked if the backlog including it exceeds this. `None`: no marks.
    pub mark_above: Option<Bytes>,
}

impl DropTailConfig {
    /// Limit in packets, without marks.
    pub const fn packets(packets: u32) -> Self {
        Self {
            limit: Limit::Packets(packets),
            mark_above: None,
        }
    }

    /// Limit in bytes, without marks.
    pub const fn bytes(bytes: Bytes) -> Self {
        Self {
            limit: Limit::Bytes(bytes),
            mark_above: None,
        }
    }

    /// Verdict for a packet of `size` that finds the backlog `waiting`. `capable` returns whether
    /// it is ECN-capable.
    #[inline]
    pub(in crate::link) fn verdict(
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

/// Queue limit, without the packet in transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// In bytes. A packet larger than the limit is always dropped.
    Bytes(Bytes),
    /// In packets of any size.
    Packets(u32),
}

impl Limit {
    /// Whether the limit is zero.
    pub fn is_zero(self) -> bool {
        matches!(self, Self::Bytes(Bytes::ZERO) | Self::Packets(0))
    }

    /// Whether a packet of `size` fits in addition to `packets` packets of `bytes` in total.
    #[inline]
    pub(super) fn admits(self, packets: usize, bytes: Bytes, size: Bytes) -> bool {
        match self {
            Self::Bytes(limit) => bytes + size <= limit,
            Self::Packets(limit) => packets < limit as usize,
        }
    }
}

/// The queue.
#[derive(Debug)]
pub(in crate::link) struct DropTail {
    config: DropTailConfig,
    fifo: Fifo,
}

impl DropTail {
    pub(super) fn new(config: DropTailConfig) -> Self {
        Self::with(config, Fifo::default())
    }

    /// Queue with an initial backlog.
    pub(in crate::link) fn with(config: DropTailConfig, fifo: Fifo) -> Self {
        Self { config, fifo }
    }

    /// Verdict for `packet` without enqueuing it, for an idle transmitter.
    #[inline]
    pub(in crate::link) fn verdict(&self, packet: QueuedPacket) -> Verdict {
        let capable = || packet.ecn.is_capable();
        self.config
            .verdict(self.fifo.queued(), packet.size, capable)
    }
}

impl Queue for DropTail {
    #[inline]
    fn enqueue(&mut self, _: Time, packet: QueuedPacket, _: &mut Vec<QueuedPacket>) -> Verdict {
        let verdict = self.verdict(packet);
        if verdict != Verdict::Dropped {
            self.fifo.push(packet);
        }
        verdict
    }

    #[inline]
    fn dequeue(&mut self, _: Time, _: &mut Vec<QueuedPacket>) -> Option<QueuedPacket> {
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
    fn ecn_capable_packets_are_marked_above_the_threshold() {
        use Verdict::{Accepted, Marked};
        let config = DropTailConfig {
            mark_above: Some(Bytes(1_000)),
            ..DropTailConfig::packets(10)
        };
        let packets = [(1_000, Ecn::Ect0), (1, Ecn::NotEct), (1, Ecn::Ect1)];
        assert_eq!(verdicts(config, &packets), [Accepted, Accepted, Marked]);
    }
}
