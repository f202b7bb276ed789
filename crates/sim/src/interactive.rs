//! Video over TCP: an application in symbiosis with a model of its transport.
//!
//! The sender is [`TcpSender`] in the steering [`Interactive`], which drive kernel sockets as well;
//! here a TCP model takes the lengths of what it writes. What arrived when follows from the progress
//! of the model's [`Sink`](crate::tcp::Sink), and goes through
//! [`TcpReceiver`](tidegate_core::session::tcp::TcpReceiver) at the end. The player takes a frame if
//! it is there within the delay bound, and discards it otherwise. `docs/video-over-tcp.md` has the
//! description.

mod record;
mod sender;
mod transport;

#[cfg(test)]
mod tests;

use core::time::Duration;

use tidegate_core::session::tcp::{Capture, Interactive, Place, TcpSender, TcpSenderConfig};
use tidegate_core::tcp_rate::{Mode, Subscription, TcpRateConfig};
use tidegate_core::units::{Bytes, Time};
use tidegate_core::wire::ntp::Ntp;
use tidegate_core::wire::rtcp::Cname;

pub use record::{Record, Sample, Slot};
pub use sender::Sender;

use crate::scenario::{FlowPlan, TcpPlan, VideoPlan};

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
    pub backlog: Place,
    /// From an event to the moment from which the encoder obeys.
    pub reaction: Duration,
    /// Share of the forecast that the exact law counts on, in 0..=1.
    pub margin: f64,
    /// Within which it wants what waits to be gone; by the delay bound unless told.
    pub drain: Option<Duration>,
    /// So many frames are captured; as many as the life of the flow holds if none.
    pub frames: Option<u64>,
}

impl StreamPlan {
    /// The application, for a `video` that is sent so.
    pub fn symbiosis(&self, video: &VideoPlan) -> TcpRateConfig {
        TcpRateConfig {
            mode: self.mode,
            subscribed: self.subscribed,
            floor: video.floor,
            ceiling: video.ceiling,
            bound: video.delay_bound,
            interval: video.frame_rate.interval(),
            obeys_after: self.reaction,
            reaction: self.reaction,
            margin: self.margin,
            drain: self
                .drain
                .unwrap_or_else(|| TcpRateConfig::drain_within(video.delay_bound)),
        }
    }

    /// The sender of the flow `flow`, whose video is `video`: the same in simulated time and in the
    /// lab. `epoch` is the wall-clock time of the driver's epoch.
    ///
    /// # Panics
    /// Never: the name in its reports has three letters.
    pub fn sender(&self, flow: &FlowPlan, video: &VideoPlan, epoch: Ntp) -> TcpSender {
        let lasts = flow.stop.saturating_sub(flow.start);
        let interval = video.frame_rate.interval().as_nanos().max(1);
        let possible = (lasts.as_nanos() / interval) as u64;
        let frames = self.frames.map_or(possible, |frames| frames.min(possible));
        let config = TcpSenderConfig {
            codec: video.encoder.codec(),
            ssrc: 1,
            timestamp_base: 0,
            cname: Cname::new("lab".to_owned()).expect("a name of three letters"),
            epoch,
            frame_rate: video.frame_rate,
            capture: Capture::Clock {
                frames: Some(frames),
            },
            packet_size: LARGEST_PACKET,
            most_queued: MOST_QUEUED,
            place: self.backlog,
            most_pictures: usize::MAX,
        };
        let start = Time::ZERO + flow.start;
        let steering = Interactive::new(self.symbiosis(video), start);
        TcpSender::new(config, Box::new(steering))
    }
}

/// A packet per frame, as far as its length has room (RFC 4571 section 2): what is cut is cut by
/// TCP.
const LARGEST_PACKET: Bytes = Bytes(65_535);
/// An ordinary sender drops nothing: two minutes at 8 Mb/s may wait.
const MOST_QUEUED: Bytes = Bytes(128_000_000);
