//! Queue disciplines.

mod codel;
mod droptail;
mod dualpi2;
mod fifo;
mod fq_codel;
mod priority;
mod red;

use core::fmt::Debug;
use rand_pcg::Pcg64Mcg;

use super::Packet;
use super::packet_pool::{PacketHandle, PacketPool};
use super::rate::Capacity;
use super::stats::Queued;
use crate::control::Ecn;
use crate::units::{Bytes, Time};
use codel::CoDel;
use dualpi2::DualPi2;
use fq_codel::FqCoDel;
use priority::Priority;

pub(super) use droptail::DropTail;
pub(super) use fifo::Fifo;
pub(super) use red::{Red, RedLaw};

pub use codel::{CoDelConfig, CoDelFault, DelayLaw};
pub use droptail::{DropTailConfig, Limit};
pub use dualpi2::{DualPi2Config, DualPi2Fault, DualScheduler};
pub use fq_codel::{FqCoDelConfig, FqCoDelFault};
pub use priority::PriorityConfig;
pub use red::{RedAdaptation, RedConfig, RedFault, RedUnit};

/// Queue in front of a transmitter.
///
/// A discipline acts at the logical times passed to it: the transmitter dequeues at the end of its
/// last transmission, independently of polls. It handles packet metadata; the packets stay in the
/// pool.
pub(super) trait Queue: Debug {
    /// Arrival of `packet`. Other packets dropped to make room are added to `drops`.
    fn enqueue(&mut self, at: Time, packet: QueuedPacket, drops: &mut Vec<QueuedPacket>)
    -> Verdict;

    /// Dequeues a packet for the transmitter, which is free at `at`. `None`: the queue is empty.
    /// Packets dropped instead of served are added to `drops`. A served packet that was marked has
    /// [`QueuedPacket::marked`] set.
    fn dequeue(&mut self, at: Time, drops: &mut Vec<QueuedPacket>) -> Option<QueuedPacket>;

    /// Backlog in packets, without the packet in transmission.
    fn len(&self) -> usize;

    /// Backlog in bytes.
    fn bytes(&self) -> Bytes;
}

/// Metadata of a packet inside a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueuedPacket {
    pub(super) arrived: Time,
    pub(super) size: Bytes,
    /// Sequence number by arrival at this link, from zero.
    pub(super) number: u64,
    pub(super) flow: u32,
    /// Slot in the pool.
    pub(super) slot: u32,
    /// Index into the hop list of the network.
    pub(super) hop: u32,
    /// ECN field at arrival.
    pub(super) ecn: Ecn,
    pub(super) dscp: u8,
    /// Whether the discipline marked the packet at dequeue. Marks at enqueue are reported by
    /// [`Verdict::Marked`].
    pub(super) marked: bool,
}

impl QueuedPacket {
    /// Metadata of the `number`-th arrival, at `at`.
    #[inline]
    pub(super) fn new<P: Packet>(
        store: &PacketPool<P>,
        at: Time,
        number: u64,
        handle: PacketHandle,
    ) -> Self {
        let packet = store.get(handle.slot);
        Self {
            arrived: at,
            size: handle.size,
            number,
            flow: packet.map_or(0, P::flow),
            slot: handle.slot,
            hop: handle.hop,
            ecn: packet.map_or(Ecn::NotEct, P::ecn),
            dscp: packet.map_or(0, P::dscp),
            marked: false,
        }
    }

    /// Handle of the packet, for the stages behind the transmitter.
    #[inline]
    pub(super) fn handle(&self) -> PacketHandle {
        PacketHandle {
            size: self.size,
            slot: self.slot,
            hop: self.hop,
        }
    }

    /// Marks an ECN-capable packet at dequeue. Returns whether it was marked.
    fn mark(&mut self) -> bool {
        self.marked = self.ecn.is_capable();
        self.marked
    }
}

/// Verdict of a discipline on an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Enqueued.
    Accepted,
    /// Dropped.
    Dropped,
    /// Enqueued, to be marked.
    Marked,
}

/// Queue discipline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueConfig {
    /// CoDel (RFC 8289).
    CoDel(CoDelConfig),
    /// Drop-tail FIFO.
    DropTail(DropTailConfig),
    /// `DualPI2`: coupled queues for scalable and classic flows (RFC 9332).
    DualPi2(DualPi2Config),
    /// FQ-CoDel (RFC 8290).
    FqCoDel(FqCoDelConfig),
    /// Strict priority of best effort over lower effort (RFC 8622).
    Priority(PriorityConfig),
    /// Random Early Detection.
    Red(RedConfig),
}

impl QueueConfig {
    /// Empty queue in front of a transmitter of this capacity. `stream` returns the random stream
    /// of the link with the name of the discipline.
    pub(super) fn build(
        &self,
        capacity: &Capacity,
        stream: impl Fn(&str) -> Pcg64Mcg,
    ) -> Discipline {
        match *self {
            Self::CoDel(config) => Discipline::CoDel(Box::new(CoDel::new(config))),
            Self::DropTail(config) => Discipline::DropTail(DropTail::new(config)),
            Self::DualPi2(config) => Discipline::DualPi2(Box::new(DualPi2::new(config))),
            Self::Priority(config) => Discipline::Priority(Box::new(Priority::new(config))),
            Self::FqCoDel(config) => {
                Discipline::FqCoDel(Box::new(FqCoDel::new(config, &mut stream("fq-codel"))))
            }
            Self::Red(config) => {
                let law = RedLaw::new(config, capacity, stream("red"));
                Discipline::Red(Box::new(Red::with(law, Fifo::default())))
            }
        }
    }
}

/// A queue. An enum, as a virtual call costs as much as drop-tail itself.
#[derive(Debug)]
pub(super) enum Discipline {
    DropTail(DropTail),
    CoDel(Box<CoDel>),
    DualPi2(Box<DualPi2>),
    FqCoDel(Box<FqCoDel>),
    Priority(Box<Priority>),
    Red(Box<Red>),
}

impl Discipline {
    fn get(&self) -> &dyn Queue {
        match self {
            Self::DropTail(queue) => queue,
            Self::CoDel(queue) => &**queue,
            Self::DualPi2(queue) => &**queue,
            Self::FqCoDel(queue) => &**queue,
            Self::Priority(queue) => &**queue,
            Self::Red(queue) => &**queue,
        }
    }
}

impl Queue for Discipline {
    #[inline]
    fn enqueue(
        &mut self,
        at: Time,
        packet: QueuedPacket,
        drops: &mut Vec<QueuedPacket>,
    ) -> Verdict {
        match self {
            Self::DropTail(queue) => queue.enqueue(at, packet, drops),
            Self::CoDel(queue) => queue.enqueue(at, packet, drops),
            Self::DualPi2(queue) => queue.enqueue(at, packet, drops),
            Self::FqCoDel(queue) => queue.enqueue(at, packet, drops),
            Self::Priority(queue) => queue.enqueue(at, packet, drops),
            Self::Red(queue) => queue.enqueue(at, packet, drops),
        }
    }

    #[inline]
    fn dequeue(&mut self, at: Time, drops: &mut Vec<QueuedPacket>) -> Option<QueuedPacket> {
        match self {
            Self::DropTail(queue) => queue.dequeue(at, drops),
            Self::CoDel(queue) => queue.dequeue(at, drops),
            Self::DualPi2(queue) => queue.dequeue(at, drops),
            Self::FqCoDel(queue) => queue.dequeue(at, drops),
            Self::Priority(queue) => queue.dequeue(at, drops),
            Self::Red(queue) => queue.dequeue(at, drops),
        }
    }

    fn len(&self) -> usize {
        self.get().len()
    }

    fn bytes(&self) -> Bytes {
        self.get().bytes()
    }
}
