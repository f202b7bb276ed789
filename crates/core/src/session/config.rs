//! What both ends of a session are told before it starts.

use core::time::Duration;

use crate::units::{Bytes, Rate};
use crate::wire::ntp::Ntp;
use crate::wire::rtcp::Cname;
use crate::wire::rtp::PayloadType;

/// The numbers that name the two RTP streams of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams {
    /// SSRC of first transmissions.
    pub media_ssrc: u32,
    /// SSRC of retransmissions (RFC 4588, SSRC multiplexing).
    pub repair_ssrc: u32,
    /// Payload type of first transmissions.
    pub media_type: PayloadType,
    /// Payload type of retransmissions.
    pub repair_type: PayloadType,
}

impl Streams {
    /// Dynamic payload types 96 and 97, as they are customary.
    pub fn with_ssrcs(media_ssrc: u32, repair_ssrc: u32) -> Self {
        Self {
            media_ssrc,
            repair_ssrc,
            media_type: MEDIA_TYPE,
            repair_type: REPAIR_TYPE,
        }
    }
}

/// How a sender sends.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "switches, each by itself")]
pub struct SenderConfig {
    /// Names of the streams.
    pub streams: Streams,
    /// Canonical name (RFC 3550 section 6.5.1).
    pub cname: Cname,
    /// Wall-clock time of the driver's epoch.
    pub epoch: Ntp,
    /// Frames per second.
    pub frame_rate: crate::media::FrameRate,
    /// Frames are given up that cannot be shown within this time of their capture. `None`
    /// sends everything, however late.
    pub delay_bound: Option<Duration>,
    /// Lowest and highest media rate of the encoder.
    pub rates: (Rate, Rate),
    /// IP packet length of a full packet.
    pub packet_size: Bytes,
    /// Sends lost packets again where they can still be in time.
    pub retransmit: bool,
    /// Ask routers to mark rather than drop (ECT(0)).
    pub ecn: bool,
    /// Distance between regular key frames, in frames.
    pub key_interval: Option<u64>,
    /// How much faster than the target packets may leave; 1.0 spaces them evenly at the target
    /// (RFC 5348 section 4.6), more lets the frames of a fixed rate leave as bursts.
    pub pace: f64,
    /// The peer is known to send no RTCP: the stream goes on at the floor rate without any.
    pub one_way: bool,
    /// Watch over the stream with the circuit breaker of RFC 8083. Only what is there to be
    /// compared with goes without.
    pub circuit_breaker: bool,
    /// Give up when the circuit breaker has stopped the stream, its rest is over and no answer came
    /// for so long. Once the stream is over this counts from the stop.
    pub patience: Duration,
    /// Stop after this many frames.
    pub frames: Option<u64>,
    /// From when until when the camera is off, counted from the start of the session: in order,
    /// without overlap. Frames keep their numbers, so those of a pause are missing.
    pub pauses: Vec<(Duration, Duration)>,
    /// Keep rows for the tables of a run.
    pub log: bool,
}

impl SenderConfig {
    /// A session at 30 frames per second, 150 kb/s to 8 Mb/s, 1,200-byte packets, without a
    /// delay bound.
    pub fn new(streams: Streams, cname: Cname) -> Self {
        Self {
            streams,
            cname,
            epoch: Ntp(0),
            frame_rate: crate::media::FrameRate::fps(30),
            delay_bound: None,
            rates: (Rate::kbps(150), Rate::kbps(8_000)),
            packet_size: Bytes(1_200),
            retransmit: true,
            ecn: false,
            key_interval: None,
            pace: 1.0,
            one_way: false,
            circuit_breaker: true,
            patience: Duration::from_secs(20),
            frames: None,
            pauses: Vec::new(),
            log: false,
        }
    }
}

/// How a receiver receives.
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// Own SSRC.
    pub ssrc: u32,
    /// Canonical name.
    pub cname: Cname,
    /// Wall-clock time of the driver's epoch.
    pub epoch: Ntp,
    /// Payload types to take for media and for retransmissions.
    pub payload_types: (PayloadType, PayloadType),
    /// A frame is given up this long after it could have come at the earliest.
    pub hold: Duration,
    /// Distance between feedback packets.
    pub feedback_interval: Duration,
    /// Distance between full receiver reports.
    pub report_interval: Duration,
    /// What is said beside receiver reports.
    pub feedback: FeedbackMode,
}

impl ReceiverConfig {
    /// Feedback every 25 ms, a report every second, frames held for `hold`.
    pub fn new(ssrc: u32, cname: Cname, hold: Duration) -> Self {
        Self {
            ssrc,
            cname,
            epoch: Ntp(0),
            payload_types: (MEDIA_TYPE, REPAIR_TYPE),
            hold,
            feedback_interval: Duration::from_millis(25),
            //= rfc8083-4.1-report-interval
            report_interval: Duration::from_secs(1),
            feedback: FeedbackMode::PerPacket,
        }
    }
}

/// What a receiver says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedbackMode {
    /// Arrival times and marks of every packet (RFC 8888), negative acknowledgements and
    /// picture loss indications (RFC 4585).
    PerPacket,
    /// Receiver reports only, as any RTP receiver.
    RrFallback,
}

/// Customary first dynamic payload type (RFC 3551 section 6).
pub const MEDIA_TYPE: PayloadType = dynamic(96);
/// The one after it.
pub const REPAIR_TYPE: PayloadType = dynamic(97);

const fn dynamic(number: u8) -> PayloadType {
    match PayloadType::new(number) {
        Some(payload_type) => payload_type,
        None => panic!("payload types have seven bits"),
    }
}
