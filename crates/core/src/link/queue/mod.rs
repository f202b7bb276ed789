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
use super::config::LinkFault;
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

/// What waits for a transmitter, and who may.
///
/// A discipline acts at the times that it is given, which are logical: the transmitter asks at
/// the moment at which its last packet is out, not when somebody polls it. It handles what the
/// link knows of packets; the packets themselves stay with the link.
pub(super) trait Queue: Debug {
    /// `packet` arrives. Other packets that have to go for it are added to `drops`.
    fn enqueue(&mut self, at: Time, packet: Held, drops: &mut Vec<Held>) -> Verdict;

    /// The transmitter is free at `at` and asks for a packet. `None` means that nothing waits any
    /// more. Packets that are dropped instead of being served are added to `drops`; one that is
    /// served and marked says so in [`Held::marked`].
    fn dequeue(&mut self, at: Time, drops: &mut Vec<Held>) -> Option<Held>;

    /// How many packets wait. The one in transmission does not.
    fn len(&self) -> usize;

    /// How much waits.
    fn bytes(&self) -> Bytes;
}

/// What a link knows of a packet that is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) arrived: Time,
    pub(super) size: Bytes,
    /// Of its arrival at this link, from zero.
    pub(super) number: u64,
    pub(super) flow: u32,
    /// Where the packet is kept.
    pub(super) slot: u32,
    /// Where it is in the network's list of hops.
    pub(super) hop: u32,
    /// As it arrived.
    pub(super) ecn: Ecn,
    pub(super) dscp: u8,
    /// Whether the discipline marked it as it left. One that marks arrivals answers
    /// [`Verdict::Marked`].
    pub(super) marked: bool,
}

impl Held {
    /// One that arrives at `at` as the `number`-th.
    #[inline]
    pub(super) fn new<P: Packet>(
        store: &PacketPool<P>,
        at: Time,
        number: u64,
        parcel: PacketHandle,
    ) -> Self {
        let packet = store.get(parcel.slot);
        Self {
            arrived: at,
            size: parcel.size,
            number,
            flow: packet.map_or(0, P::flow),
            slot: parcel.slot,
            hop: parcel.hop,
            ecn: packet.map_or(Ecn::NotEct, P::ecn),
            dscp: packet.map_or(0, P::dscp),
            marked: false,
        }
    }

    /// What is left of it behind the transmitter.
    #[inline]
    pub(super) fn parcel(&self) -> PacketHandle {
        PacketHandle {
            size: self.size,
            slot: self.slot,
            hop: self.hop,
        }
    }

    /// Marks it as it leaves, if it can be marked; whether it was.
    fn mark(&mut self) -> bool {
        self.marked = self.ecn.is_capable();
        self.marked
    }
}

/// What a discipline did with a packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It waits.
    Accepted,
    /// It is gone.
    Dropped,
    /// It waits, and is to be marked.
    Marked,
}

/// Which discipline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueConfig {
    /// Controlled delay (RFC 8289).
    CoDel(CoDelConfig),
    /// First in, first out, up to a limit.
    DropTail(DropTailConfig),
    /// Two coupled queues, for scalable and for classic flows (RFC 9332).
    DualPi2(DualPi2Config),
    /// Fair queues with controlled delay (RFC 8290).
    FqCoDel(FqCoDelConfig),
    /// Best effort before less than best effort (RFC 8622).
    Priority(PriorityConfig),
    /// Random early detection.
    Red(RedConfig),
}

impl QueueConfig {
    pub(super) fn check(&self) -> Result<(), LinkFault> {
        match self {
            Self::CoDel(config) => config.check().map_err(LinkFault::CoDel),
            Self::DropTail(DropTailConfig { limit, .. })
            | Self::Priority(PriorityConfig { limit }) => {
                if limit.is_zero() {
                    return Err(LinkFault::NoQueue);
                }
                Ok(())
            }
            Self::DualPi2(config) => config.check().map_err(LinkFault::DualPi2),
            Self::FqCoDel(config) => config.check().map_err(LinkFault::FqCoDel),
            Self::Red(config) if config.limit == 0 => Err(LinkFault::NoQueue),
            Self::Red(config) => config.check().map_err(LinkFault::Red),
        }
    }

    /// An empty queue before a transmitter of this capacity. `stream` gives the random stream of
    /// this link that has the name of the discipline.
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

/// A queue at work. An enum, because a call through a table costs as much as drop-tail itself.
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
    fn enqueue(&mut self, at: Time, packet: Held, drops: &mut Vec<Held>) -> Verdict {
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
    fn dequeue(&mut self, at: Time, drops: &mut Vec<Held>) -> Option<Held> {
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
