//! Configuration of the two endpoints of a session.

use core::time::Duration;

use crate::units::{Bytes, Rate};
use crate::wire::h264;
use crate::wire::ntp::Ntp;
use crate::wire::rtcp::Cname;
use crate::wire::rtp::PayloadType;
use crate::wire::sdp::ParameterSets;

/// SSRCs and payload types of the RTP streams of a session.
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
    /// SSRC of parity packets.
    pub parity_ssrc: u32,
    /// Payload type of parity packets.
    pub parity_type: PayloadType,
    /// SSRC of probes.
    pub probe_ssrc: u32,
    /// Payload type of probes.
    pub probe_type: PayloadType,
}

impl Streams {
    /// Uses the customary dynamic payload types from 96 on, and for parity packets and probes SSRCs
    /// that follow from the others.
    pub fn with_ssrcs(media_ssrc: u32, repair_ssrc: u32) -> Self {
        // Two of four are free.
        let next = (1..=4).map(|i| repair_ssrc.wrapping_add(i));
        let mut free = next.filter(|ssrc| *ssrc != media_ssrc && *ssrc != repair_ssrc);
        Self {
            media_ssrc,
            repair_ssrc,
            media_type: MEDIA_TYPE,
            repair_type: REPAIR_TYPE,
            parity_ssrc: free.next().unwrap_or_default(),
            parity_type: PARITY_TYPE,
            probe_ssrc: free.next().unwrap_or_default(),
            probe_type: PROBE_TYPE,
        }
    }

    /// All SSRCs that carry the stream; that of probes does not.
    pub fn ssrcs(&self) -> [u32; 3] {
        [self.media_ssrc, self.repair_ssrc, self.parity_ssrc]
    }
}

/// Configuration of a [`MediaSender`](super::sender::MediaSender).
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct SenderConfig {
    /// SSRCs and payload types.
    pub streams: Streams,
    /// Canonical name (RFC 3550 section 6.5.1).
    pub cname: Cname,
    /// Wall-clock time of the driver's epoch.
    pub epoch: Ntp,
    /// Frame rate of the source.
    pub frame_rate: crate::media::FrameRate,
    /// Maximum delay from capture to display. Frames that would exceed it are dropped. `None` sends
    /// every frame, however late.
    pub delay_bound: Option<Duration>,
    /// Minimum and maximum media rate of the encoder.
    pub rates: (Rate, Rate),
    /// Maximum IP packet length.
    pub packet_size: Bytes,
    /// Retransmit lost packets that can still meet the delay bound.
    pub retransmit: bool,
    /// Send parity packets while a retransmission cannot meet the delay bound, to receivers that
    /// report on each packet (RFC 8888).
    pub parity: bool,
    /// Number packets for transport-wide feedback (RTP header extension
    /// [`TRANSPORT_SEQUENCE_ID`](crate::wire::sdp::TRANSPORT_SEQUENCE_ID)).
    pub transport_cc: bool,
    /// Send packets as ECT(0), so that routers mark instead of drop.
    pub ecn: bool,
    /// Interval between periodic key frames, in frames.
    pub key_interval: Option<u64>,
    /// Pacing rate relative to the target rate. 1.0 spaces packets evenly at the target (RFC 5348
    /// section 4.6); larger values send frames as bursts.
    pub pace: f64,
    /// Maximum data that waits for the pacer when another frame is encoded; the frame is dropped if
    /// more waits. `None`: frames wait as long as the delay bound permits.
    pub buffer: Option<Bytes>,
    /// The peer sends no RTCP. The stream begins after 2 s, at an answer earlier, and continues at the
    /// minimum rate without feedback.
    pub one_way: bool,
    /// Request a first round-trip sample before the media. `false` for a peer that is known to report
    /// on received media only, and probably without per-packet feedback: the stream begins at once, at
    /// the minimum rate unless `known_path` is given.
    pub greets: bool,
    /// What is known about the path to such a peer.
    pub known_path: Option<KnownPath>,
    /// Use the circuit breaker of RFC 8083. Disable it only in reference runs for comparison.
    pub circuit_breaker: bool,
    /// Time without an answer after which the session ends once the circuit breaker has tripped. It
    /// counts from the end of the breaker's pause, or from the trip if the stream has ended.
    pub patience: Duration,
    /// Number of frames to send; `None` is unlimited.
    pub frames: Option<u64>,
    /// Intervals in which the camera is off, relative to the start of the session: ascending and
    /// disjoint. Frame numbers skip the frames of a pause.
    pub pauses: Vec<(Duration, Duration)>,
    /// Keep per-frame and per-packet rows for the tables of a run.
    pub log: bool,
}

impl SenderConfig {
    /// Defaults: 30 frames per second, 150 kb/s to 8 Mb/s, 1,200-byte packets, no delay bound.
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
            parity: true,
            transport_cc: false,
            ecn: false,
            key_interval: None,
            pace: 1.0,
            buffer: None,
            one_way: false,
            greets: true,
            known_path: None,
            circuit_breaker: true,
            patience: Duration::from_secs(20),
            frames: None,
            pauses: Vec::new(),
            log: false,
        }
    }
}

/// What is known about a path before the first report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownPath {
    /// Round-trip time that another connection to the peer has measured.
    pub rtt: Duration,
    /// Rate on the wire until the first receiver report. It must be a rate that the path carries with
    /// certainty, such as half of a prior's (RFC 9959 section 3.2).
    pub rate: Rate,
}

/// Configuration of a [`MediaReceiver`](super::receiver::MediaReceiver).
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// SSRC of the receiver.
    pub ssrc: u32,
    /// Canonical name (RFC 3550 section 6.5.1).
    pub cname: Cname,
    /// Wall-clock time of the driver's epoch.
    pub epoch: Ntp,
    /// Payload types of media and of retransmissions.
    pub payload_types: (PayloadType, PayloadType),
    /// Payload type of parity packets; `None` if the sender has none.
    pub parity_type: Option<PayloadType>,
    /// Payload type of probes; `None` if the sender has none.
    pub probe_type: Option<PayloadType>,
    /// Time from the earliest possible arrival of a frame to its discard deadline.
    pub hold: Duration,
    /// Interval between feedback packets.
    pub feedback_interval: Duration,
    /// Interval between compound receiver reports.
    pub report_interval: Duration,
    /// Feedback in addition to receiver reports.
    pub feedback: FeedbackMode,
    /// Release whole frames whose references are lost, for a picture with blemishes until the next
    /// key frame.
    pub conceal: bool,
    /// Parameter sets for key frames that have none (`sprop-parameter-sets` of a description).
    pub parameter_sets: Option<ParameterSets>,
}

impl ReceiverConfig {
    /// Defaults: feedback every 25 ms, a receiver report every second. `hold` is the discard
    /// threshold.
    pub fn new(ssrc: u32, cname: Cname, hold: Duration) -> Self {
        Self {
            ssrc,
            cname,
            epoch: Ntp(0),
            payload_types: (MEDIA_TYPE, REPAIR_TYPE),
            parity_type: Some(PARITY_TYPE),
            probe_type: Some(PROBE_TYPE),
            hold,
            feedback_interval: Duration::from_millis(25),
            //= rfc8083-4.1-report-interval
            report_interval: Duration::from_secs(1),
            feedback: FeedbackMode::PerPacket,
            conceal: false,
            parameter_sets: None,
        }
    }
}

/// Kinds of feedback that a receiver sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedbackMode {
    /// Arrival time and ECN mark of every packet (RFC 8888), generic NACK and picture loss
    /// indication (RFC 4585).
    PerPacket,
    /// Receiver reports, and picture loss indication for a key frame after a loss (RFC 4585), in
    /// compound packets.
    KeyRequests,
    /// Receiver reports only, as a plain RTP receiver sends.
    ReceiverReports,
}

/// [`SenderConfig::pace`] of a stream at a fixed rate: a frame leaves in 40 % of a frame interval, as
/// with a sender that hardly paces.
pub const FIXED_PACE: f64 = 2.5;

/// Payload type of H.264.
pub const MEDIA_TYPE: PayloadType = h264::PAYLOAD_TYPE;
/// Dynamic payload type of retransmissions.
pub const REPAIR_TYPE: PayloadType = dynamic(97);
/// Dynamic payload type of parity packets.
pub const PARITY_TYPE: PayloadType = dynamic(98);
/// Dynamic payload type of probes.
pub const PROBE_TYPE: PayloadType = dynamic(99);

const fn dynamic(number: u8) -> PayloadType {
    match PayloadType::new(number) {
        Some(payload_type) => payload_type,
        None => panic!("payload types are 0..=127"),
    }
}
