//! Video as cross traffic: frames of modelled or recorded size, cut into packets.
//!
//! [`FrameSource`] yields the time and size of frames, for any transport. [`Source`] sends them without
//! congestion control to a [`udp::Sink`](super::udp::Sink). Sizes come from a [`FrameModel`]: the
//! [model](crate::video_model) of an encoder, or a recorded encode ([`TracePlayer`]).

mod player;
mod trace;

pub use player::{TraceEncoder, TracePlayer};
pub use trace::{FrameTrace, FrameTraceError, FrameTraceFault, RecordedFrame, TraceFrame};

use core::time::Duration;

use tidegate_core::control::{Ecn, TimerReason};
use tidegate_core::media::FrameOrder;
use tidegate_core::units::{Bytes, Rate, Time, nanos};

use super::{Schedule, ScheduleFault};
use crate::packet_agent::{Agent, AgentCx, Arrival, Body};
use crate::video_model::{FrameModel, FrameShape};

/// Yields frames at a constant frame rate.
#[derive(Debug)]
pub struct FrameSource {
    model: Box<dyn FrameModel>,
    /// Capture time of frame zero.
    start: Time,
    /// Number of the next frame.
    frame: u64,
    key_interval: Option<u64>,
    /// Whether the next frame has to be a key frame.
    key: bool,
}

impl FrameSource {
    /// Captures frame zero at `start`. The first frame is a key frame, and so is every
    /// `key_interval`th frame if set; zero counts as one.
    pub fn new(model: Box<dyn FrameModel>, start: Time, key_interval: Option<u64>) -> Self {
        Self {
            model,
            start,
            frame: 0,
            key_interval: key_interval.map(|every| every.max(1)),
            key: true,
        }
    }

    /// Capture time of the next frame.
    pub fn due(&self) -> Time {
        self.start + self.model.frame_rate().at(self.frame)
    }

    /// Frame interval.
    pub fn interval(&self) -> Duration {
        self.model.frame_rate().interval()
    }

    /// Makes the next frame a key frame, e.g. after a loss at the receiver.
    pub fn request_key_frame(&mut self) {
        self.key = true;
    }

    /// Encodes the next frame at `rate` and advances by one interval. A rate of zero skips the
    /// frame.
    pub fn next_frame(&mut self, rate: Rate) -> Option<FrameShape> {
        let order = FrameOrder {
            frame: self.frame,
            captured: self.due(),
            rate,
            key: self.key,
        };
        self.frame += 1;
        let regular = self
            .key_interval
            .is_some_and(|every| self.frame.is_multiple_of(every));
        if rate == Rate::ZERO {
            self.key |= regular;
            return None;
        }
        self.key = regular;
        Some(self.model.shape(&order))
    }
}

/// Parameters of a [`Source`].
#[derive(Clone, Debug, PartialEq)]
pub struct SourceConfig {
    /// Target rate of the encoder, without headers. Frames are skipped while it is zero.
    pub rate: Schedule,
    /// Maximum packet size on the wire, all headers included, up to 65,535.
    pub packet: Bytes,
    /// Headers per packet.
    pub header: Bytes,
    /// Interval of regular key frames, in frames.
    pub key_interval: Option<u64>,
    /// Share of the frame interval over which the packets of a frame are paced, in 0..=1. At zero
    /// they leave as a burst.
    pub spread: f64,
    /// ECN field of the packets.
    pub ecn: Ecn,
}

impl Default for SourceConfig {
    /// 1 Mb/s in packets of up to 1240 bytes with 40 bytes of headers (IPv4, UDP, RTP), paced over
    /// half an interval, with a single key frame at the start.
    fn default() -> Self {
        Self {
            rate: Rate::kbps(1_000).into(),
            packet: Bytes(1_240),
            header: Bytes(40),
            key_interval: None,
            spread: 0.5,
            ecn: Ecn::NotEct,
        }
    }
}

impl SourceConfig {
    /// Validates the parameters.
    ///
    /// # Errors
    /// The first invalid parameter.
    pub fn check(&self) -> Result<(), SourceFault> {
        self.rate.check().map_err(SourceFault::Rate)?;
        if self.packet > Bytes(65_535) || self.packet <= self.header {
            return Err(SourceFault::Packet {
                packet: self.packet,
                header: self.header,
            });
        }
        if !(0.0..=1.0).contains(&self.spread) {
            return Err(SourceFault::Spread(self.spread));
        }
        if self.key_interval == Some(0) {
            return Err(SourceFault::KeyInterval);
        }
        Ok(())
    }
}

/// Sends frames as [`Body::Data`] at scheduled rates, while its node is active.
#[derive(Debug)]
pub struct Source {
    config: SourceConfig,
    camera: FrameSource,
    /// Unsent bytes of the present frame.
    waiting: u64,
    /// Gap between its packets.
    gap: Duration,
    next: Time,
    begun: bool,
    counters: Counters,
}

/// Counters of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Encoded frames.
    pub frames: u64,
    /// Encoded key frames.
    pub keys: u64,
    /// Frames skipped at a rate of zero.
    pub skipped: u64,
    /// Bytes of encoded frames.
    pub media: Bytes,
    /// Packets sent.
    pub packets: u64,
    /// Bytes on the wire.
    pub wire: Bytes,
}

impl Source {
    /// A source that starts with its node.
    ///
    /// # Errors
    /// As [`SourceConfig::check`].
    pub fn new(config: SourceConfig, model: Box<dyn FrameModel>) -> Result<Self, SourceFault> {
        config.check()?;
        Ok(Self {
            camera: FrameSource::new(model, Time::ZERO, config.key_interval),
            config,
            waiting: 0,
            gap: Duration::ZERO,
            next: Time::ZERO,
            begun: false,
            counters: Counters::default(),
        })
    }

    /// Counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn capture(&mut self) {
        let rate = self.config.rate.at(self.next);
        let Some(shape) = self.camera.next_frame(rate) else {
            self.counters.skipped += 1;
            return;
        };
        self.counters.frames += 1;
        self.counters.keys += u64::from(shape.key);
        self.counters.media += Bytes(shape.size as u64);
        self.waiting = shape.size as u64;
        let packets = self.waiting.div_ceil(self.payload()).max(1);
        let spread = nanos(self.camera.interval()) as f64 * self.config.spread;
        self.gap = Duration::from_nanos((spread / packets as f64) as u64);
    }

    fn payload(&self) -> u64 {
        (self.config.packet - self.config.header).get()
    }

    fn send(&mut self, cx: &mut AgentCx<'_>) {
        let payload = self.waiting.min(self.payload());
        self.waiting -= payload;
        let size = Bytes(payload) + self.config.header;
        let body = Body::Data {
            seq: self.counters.packets,
            sent: cx.now,
            rtt: 0,
            open: 0,
            is_dummy: false,
        };
        cx.send(size, self.config.ecn, body);
        self.counters.packets += 1;
        self.counters.wire += size;
    }
}

impl Agent for Source {
    fn on_packet(&mut self, _: &mut AgentCx<'_>, _: &Arrival, _: &mut Body) {}

    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        if !self.begun {
            self.begun = true;
            self.camera.start = cx.now;
            self.next = cx.now;
        }
        while self.next <= cx.now {
            if self.waiting == 0 {
                self.capture();
            }
            if self.waiting > 0 {
                self.send(cx);
            }
            self.next = if self.waiting > 0 {
                self.next + self.gap
            } else {
                self.camera.due()
            };
        }
    }

    fn next_timer(&self) -> Time {
        self.next
    }

    fn why(&self) -> Option<TimerReason> {
        Some(if self.waiting == 0 {
            TimerReason::Capture
        } else {
            TimerReason::Pacing
        })
    }

    fn is_done(&self) -> bool {
        let rate = &self.config.rate;
        self.begun
            && self.waiting == 0
            && rate.next_after(self.next) == Time::FAR
            && rate.at(self.next) == Rate::ZERO
    }
}

/// Invalid parameters of a source.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceFault {
    /// The key frame interval is zero.
    #[error("a key frame every 0 frames is not possible: write 1 or more, or remove the key")]
    KeyInterval,
    /// Invalid packet size.
    #[error("a packet of {} B with headers of {} B is not possible: write a size above the headers \
         and up to 65535", .packet.0, .header.0)]
    Packet {
        /// Size on the wire.
        packet: Bytes,
        /// Headers per packet.
        header: Bytes,
    },
    /// Invalid rate.
    #[error("{0}")]
    Rate(ScheduleFault),
    /// The spread is outside of 0..=1.
    #[error("a spread of {0} is not in 0..=1, a share of the frame interval")]
    Spread(f64),
}

#[cfg(test)]
mod tests;
