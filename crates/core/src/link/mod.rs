//! Link and queue models. The simulator and the emulator run these same types.

use core::fmt::Debug;

use crate::control::Ecn;
use crate::units::{Bytes, Time};

mod config;
mod delay;
mod fast;
mod general_link;
mod loss;
mod outage;
mod packet_log;
mod packet_pool;
mod queue;
mod rate;
mod standalone;
mod stats;
mod steps;
#[cfg(test)]
mod testing;

pub use config::{LinkConfig, LinkError, LinkFault, LowerEffortPolicy};
pub use delay::{JitterConfig, JitterFault, Spread};
pub use fast::{
    Delivery, Exit, LinkForm, LinkId, NamedLink, Network, NetworkConfig, NetworkError, RouteId,
    Step,
};
pub use loss::{GilbertElliott, LossConfig, LossFault};
pub use outage::{Outage, Outages, OutagesError};
pub use packet_log::{DropReason, LinkEvent, LinkLogEntry};
pub use queue::{
    CoDelConfig, CoDelFault, DelayLaw, DropTailConfig, DualPi2Config, DualPi2Fault, DualScheduler,
    FqCoDelConfig, FqCoDelFault, Limit, PriorityConfig, QueueConfig, RedAdaptation, RedConfig,
    RedFault, RedUnit,
};
pub use rate::{Capacity, Trace, TraceError, Transmitter};
pub use standalone::{FlowCounts, Link, LinkStats, Queued};
pub use steps::{Steps, StepsError};

/// A packet as seen by the link models. The payload is opaque to them.
pub trait Packet: Debug {
    /// Size on the wire at this hop: the length of the IP packet.
    fn size(&self) -> Bytes;
    /// The ECN field.
    fn ecn(&self) -> Ecn;
    /// Sets the ECN field to Congestion Experienced (CE).
    fn set_ce(&mut self);
    /// Flow of the packet, for fair queueing and per-flow counters.
    fn flow(&self) -> u32 {
        0
    }
    /// DSCP (RFC 2474) in the six low bits. LE is 1 (RFC 8622).
    fn dscp(&self) -> u8 {
        0
    }
    /// Changes the DSCP, for packets that have one.
    fn set_dscp(&mut self, _dscp: u8) {}
}

/// One hop.
///
/// Times are logical: the model determines the departure time of a packet, not the time of the
/// poll. Late wake-ups of the driver therefore delay a packet once, at the last hop; they do not
/// accumulate over earlier hops.
pub trait Hop<P: Packet>: Debug + Send {
    /// A packet arrives at `at`. Times are non-decreasing.
    fn push(&mut self, at: Time, packet: P);

    /// Next packet that has departed by `now`, with its logical departure time.
    fn pop(&mut self, now: Time) -> Option<(Time, P)>;

    /// Time at which [`pop`](Self::pop) next returns a packet.
    fn next_departure(&self) -> Option<Time>;
}
