//! Video over TCP: a rate-adaptive application on a model of its transport.
//!
//! The sender is [`TcpSender`] with the rate policy [`Interactive`], as over kernel sockets. Here a
//! TCP model carries the lengths of its writes. Arrival times follow from the progress of the
//! model's [`Sink`](crate::tcp::Sink), and the bytes go through
//! [`TcpReceiver`](tidegate_core::session::tcp::TcpReceiver) at the end. The player shows a frame
//! that arrives within the delay bound and discards it otherwise. See `docs/video-over-tcp.md`.

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

pub use record::{Record, Sample, StreamSegment};
pub use sender::Sender;

use crate::scenario::{FlowPlan, TcpPlan, VideoPlan};

/// Configuration of a video over TCP.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamPlan {
    /// The transport. Its data comes from the video.
    pub tcp: TcpPlan,
    /// How the application reacts to TCP events.
    pub mode: Mode,
    /// TCP events that the application receives.
    pub subscribed: Subscription,
    /// Queue for frames that do not fit into the connection.
    pub backlog: Place,
    /// Time from an event until the encoder follows it.
    pub reaction: Duration,
    /// Share of the forecast that the exact law relies on, in 0..=1.
    pub margin: f64,
    /// Target time to drain the backlog; derived from the delay bound if none.
    pub drain: Option<Duration>,
    /// Number of captured frames; as many as fit into the flow's duration if none.
    pub frames: Option<u64>,
}

impl StreamPlan {
    /// Configuration of the rate adapter for `video`.
    pub fn rate_config(&self, video: &VideoPlan) -> TcpRateConfig {
        TcpRateConfig {
            mode: self.mode,
            subscribed: self.subscribed,
            floor: video.floor,
            ceiling: video.ceiling,
            bound: video.delay_bound,
            interval: video.frame_rate.interval(),
            encoder_delay: self.reaction,
            default_response_latency: self.reaction,
            margin: self.margin,
            drain: self
                .drain
                .unwrap_or_else(|| TcpRateConfig::drain_within(video.delay_bound)),
        }
    }

    /// The sender of `flow` with the video `video`, for simulated time and for the lab. `epoch` is
    /// the wall-clock time of the driver's epoch.
    ///
    /// # Panics
    /// Never: the constant CNAME is valid.
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
            most_queued: MAX_QUEUED,
            place: self.backlog,
            most_pictures: usize::MAX,
        };
        let start = Time::ZERO + flow.start;
        let steering = Interactive::new(self.rate_config(video), start);
        TcpSender::new(config, Box::new(steering))
    }
}

/// One packet per frame, up to the limit of the length field (RFC 4571 section 2). TCP does the
/// segmentation.
const LARGEST_PACKET: Bytes = Bytes(65_535);
/// A plain sender drops nothing: room for two minutes at 8 Mb/s.
const MAX_QUEUED: Bytes = Bytes(128_000_000);
