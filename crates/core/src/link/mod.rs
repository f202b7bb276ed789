//! Link and queue models. The simulator and the emulator run these same types.

use core::fmt::Debug;

use crate::control::Ecn;
use crate::units::{Bytes, Time};

mod config;
mod delay;
mod fast_link;
mod general_link;
mod link_impl;
mod loss;
mod network;
mod outage;
mod packet_log;
mod packet_pool;
mod queue;
mod rate;
mod standalone;
mod stats;
#[cfg(test)]
mod testing;

pub use config::{LinkConfig, LinkError, LinkFault};
pub use delay::{JitterConfig, JitterFault, Spread};
pub use loss::{GilbertElliott, LossConfig, LossFault};
pub use network::{
    Delivery, Exit, LinkId, NamedLink, Network, NetworkConfig, NetworkError, RouteId, Step,
};
pub use outage::{Outage, Outages, OutagesError};
pub use packet_log::{DropReason, LinkEvent, LinkLogEntry};
pub use queue::{
    CoDelConfig, CoDelFault, DelayLaw, DropTailConfig, DualPi2Config, DualPi2Fault, DualScheduler,
    FqCoDelConfig, FqCoDelFault, Limit, PriorityConfig, QueueConfig, RedAdaptation, RedConfig,
    RedFault, RedUnit,
};
pub use rate::{Capacity, Steps, StepsError, Trace, TraceError, Transmitter};
pub use standalone::{FlowCounts, Link, LinkStats, Queued};

/// What a model needs to know of a packet; bytes or bare metadata, it does not matter.
pub trait Packet: Debug {
    /// On the wire at this hop (IP packet length).
    fn size(&self) -> Bytes;
    /// The ECN field.
    fn ecn(&self) -> Ecn;
    /// Sets congestion experienced.
    fn set_ce(&mut self);
    /// Whose it is: what a fair queue keeps apart, and what is counted apart.
    fn flow(&self) -> u32 {
        0
    }
    /// The DSCP (RFC 2474), in its six low bits; LE is 1 (RFC 8622).
    fn dscp(&self) -> u8 {
        0
    }
}

/// One hop.
///
/// Times are logical: a packet leaves when the model says that it leaves, not when somebody
/// got round to asking. A driver whose wake-ups are late therefore delays a packet once, at the
/// last hop, and the late wake-ups of earlier hops do not add up.
pub trait Stage<P: Packet>: Debug + Send {
    /// A packet arrives at `at`. Times never go back.
    fn push(&mut self, at: Time, packet: P);

    /// The next packet to have left by `now`, with the time at which it logically left.
    fn pop(&mut self, now: Time) -> Option<(Time, P)>;

    /// When [`pop`](Self::pop) will next have something.
    fn next_departure(&self) -> Option<Time>;
}
