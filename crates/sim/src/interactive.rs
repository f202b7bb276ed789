//! Video over TCP: an application in symbiosis with a model of its transport.
//!
//! The sender is a camera and an encoder that write into a socket, driven by
//! [`Symbiosis`](tidegate_core::symbiosis::Symbiosis); the receiver is the model's own
//! [`Sink`](crate::tcp::Sink), from whose progress the arrival of each frame follows. The player
//! takes a frame if it is there within the delay bound, and discards it otherwise.
//! `docs/video-over-tcp.md` has the description.

mod record;
mod sender;
mod transport;

#[cfg(test)]
mod tests;

use core::time::Duration;

use tidegate_core::symbiosis::{Mode, Subscription, SymbiosisConfig};

pub use record::{Record, Sample, Slot};
pub use sender::{FRAMING, Sender};
/// Where frames wait that the connection has no room for.
pub use tidegate_core::session::tcp::Place as Backlog;

use crate::scenario::{TcpPlan, VideoPlan};

/// How a video is sent over TCP.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamPlan {
    /// The transport; what there is to send comes from the video.
    pub tcp: TcpPlan,
    /// How the application answers to events.
    pub mode: Mode,
    /// What it is told of.
    pub subscribed: Subscription,
    /// Where frames wait that the connection has no room for.
    pub backlog: Backlog,
    /// From an event to the moment from which the encoder obeys.
    pub reaction: Duration,
    /// Share of the forecast that the exact law counts on, in 0..=1.
    pub margin: f64,
    /// Within which it wants what waits to be gone.
    pub drain: Duration,
    /// So many frames are captured; as many as the life of the flow holds if none.
    pub frames: Option<u64>,
}

impl StreamPlan {
    /// The application, for a `video` that is sent so.
    pub fn symbiosis(&self, video: &VideoPlan) -> SymbiosisConfig {
        SymbiosisConfig {
            mode: self.mode,
            subscribed: self.subscribed,
            floor: video.floor,
            ceiling: video.ceiling,
            bound: video.delay_bound,
            interval: video.frame_rate.interval(),
            reaction: self.reaction,
            margin: self.margin,
            drain: self.drain,
        }
    }
}
