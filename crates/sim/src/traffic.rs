//! Cross traffic for the flow under test: constant and bursty streams, web clients, video.
//!
//! All sources are [agents](crate::packet_agent): packets are values, and a node without packets in
//! flight costs one timer entry. Randomness comes from the node's own stream.

mod distribution;
mod schedule;
mod spans;
pub mod udp;
pub mod video;
pub mod web;

pub use distribution::{Distribution, DistributionFault};
pub use schedule::{Schedule, ScheduleFault};
pub use spans::Spans;

use core::time::Duration;

/// Seconds as a duration, rounded to the nanosecond. Saturates; negative values and NaN give zero.
pub fn secs(secs: f64) -> Duration {
    Duration::from_nanos((secs * 1e9 + 0.5) as u64)
}
