//! Traffic that shares the links with what is under test: constant and bursty streams, web
//! browsers, video.
//!
//! All of it is made of [agents](crate::packet_agent): packets are values, and a party without a packet
//! in flight costs a place in the agenda. What is random comes from the party's own stream.

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

/// Seconds as a time span, to the nanosecond; negatives and NaN count as zero, and it saturates.
fn secs(secs: f64) -> Duration {
    Duration::from_nanos((secs * 1e9 + 0.5) as u64)
}
