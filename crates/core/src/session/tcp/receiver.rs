//! Receiver of a media session over TCP: consumes bytes, produces frames.

use core::time::Duration;
use std::collections::VecDeque;

use super::player::bye;
use crate::control::Context;
use crate::endpoint::{Check, Endpoint, Input, Output, StreamInput};
use crate::media::{Codec, MEDIA_CLOCK};
use crate::session::config::MEDIA_TYPE;
use crate::session::jitter_buffer::ReceivedFrame;
use crate::session::receiver_stats::ReceivedTotal;
use crate::units::{Bytes, Time};
use crate::wire::framing::{Deframer, PacketTooLong};
use crate::wire::rtcp::{self, Rtcp};
use crate::wire::rtp::{RtpError, RtpPacket};
use crate::wire::seq::Unwrap32;
use crate::wire::{mpeg2, payload};

/// Receives one stream over TCP: an [`Endpoint`] over a byte stream. It is done after a BYE of the
/// sender, and after an error in the data.
#[derive(Debug)]
pub struct TcpReceiver {
    deframer: Deframer,
    stream: Option<Stream>,
    timestamps: Unwrap32,
    partial: Option<Partial>,
    /// Whether the decoder has the references of the next delta frame.
    intact: bool,
    out: VecDeque<ReceivedFrame>,
    bye: bool,
    packets: u64,
    received: ReceivedTotal,
    fault: Option<StreamFault>,
}

/// Properties common to all packets of the stream.
#[derive(Clone, Copy, Debug)]
struct Stream {
    ssrc: u32,
    codec: Codec,
    /// Next expected sequence number.
    next: u16,
}

/// A frame being received.
#[derive(Debug)]
struct Partial {
    timestamp: u64,
    first: Time,
    unit: payload::Depacketiser,
    bytes: u64,
}

impl Default for TcpReceiver {
    fn default() -> Self {
        Self::new()
    }
}

impl TcpReceiver {
    /// A receiver that has received no bytes.
    pub fn new() -> Self {
        Self {
            deframer: Deframer::new(usize::from(u16::MAX)),
            stream: None,
            timestamps: Unwrap32::new(),
            partial: None,
            intact: false,
            out: VecDeque::new(),
            bye: false,
            packets: 0,
            received: ReceivedTotal::default(),
            fault: None,
        }
    }

    /// Processes bytes of the stream. Fetch the frames before the next call.
    ///
    /// # Errors
    /// If the bytes are not a Tidegate stream. Later bytes cannot be parsed either.
    pub fn on_bytes(&mut self, now: Time, bytes: &[u8]) -> Result<(), StreamFault> {
        self.received.add(now, Bytes(bytes.len() as u64));
        let mut deframer = core::mem::replace(&mut self.deframer, Deframer::new(0));
        deframer.push(bytes);
        let read = loop {
            match deframer.next_packet() {
                Ok(Some(packet)) => {
                    if let Err(fault) = self.on_packet(now, packet) {
                        break Err(fault);
                    }
                }
                // Detects another protocol from its first byte, without waiting for the bytes of a
                // bogus length.
                Ok(None) => match deframer.partial().first().map(|first| first >> 6) {
                    Some(version) if version != 2 => {
                        break Err(StreamFault::Rtp(RtpError::Version { version }));
                    }
                    _ => break Ok(()),
                },
                Err(error) => break Err(StreamFault::Framing(error)),
            }
        };
        self.deframer = deframer;
        read
    }

    /// The next frame, in order. An incomplete frame has no data.
    pub fn poll_frame(&mut self) -> Option<ReceivedFrame> {
        self.out.pop_front()
    }

    /// Discards incomplete frames before the first decodable one. Returns the number of decodable
    /// frames that wait to be fetched.
    pub fn skip_to_decodable(&mut self) -> usize {
        while self.out.front().is_some_and(|f| f.complete.is_none()) {
            self.out.pop_front();
        }
        let waiting = self.out.iter();
        waiting.filter(|frame| frame.complete.is_some()).count()
    }

    /// Codec of the stream; `None` before the first packet.
    pub fn codec(&self) -> Option<Codec> {
        self.stream.map(|stream| stream.codec)
    }

    /// Whether the sender has sent a BYE.
    pub const fn is_over(&self) -> bool {
        self.bye
    }

    /// Error in the data, which ended the stream.
    pub const fn fault(&self) -> Option<StreamFault> {
        self.fault
    }

    /// Number of media packets received.
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// Total of the bytes of the stream.
    pub const fn received(&self) -> ReceivedTotal {
        self.received
    }

    /// BYE for the sender, if the receiver leaves first.
    pub fn farewell(&self) -> Vec<u8> {
        bye(self.stream.map_or(0, |stream| stream.ssrc))
    }

    /// The connection has ended: discards the incomplete frame.
    pub fn finish(&mut self) {
        self.discard_partial();
    }

    fn on_packet(&mut self, now: Time, packet: &[u8]) -> Result<(), StreamFault> {
        if rtcp::is_rtcp(packet) {
            let bye = |packet| matches!(packet, Ok(Rtcp::Bye(_)));
            self.bye |= rtcp::packets(packet).any(bye);
            return Ok(());
        }
        let packet = RtpPacket::new_checked(packet).map_err(StreamFault::Rtp)?;
        let header = packet.header();
        if header.payload_type != MEDIA_TYPE && header.payload_type != mpeg2::PAYLOAD_TYPE {
            let payload_type = header.payload_type.get();
            return Err(StreamFault::PayloadType { payload_type });
        }
        let codec = payload::codec(header.payload_type);
        let stream = self.stream.get_or_insert(Stream {
            ssrc: header.ssrc,
            codec,
            next: header.sequence,
        });
        if stream.ssrc != header.ssrc || stream.codec != codec {
            return Err(StreamFault::OtherStream);
        }
        //= rfc4571-3-order
        let gap = stream.next != header.sequence;
        stream.next = header.sequence.wrapping_add(1);
        self.packets += 1;
        let timestamp = self.timestamps.unwrap(header.timestamp);
        let other = |partial: &Partial| partial.timestamp != timestamp;
        if gap || self.partial.as_ref().is_some_and(other) {
            self.discard_partial();
            self.intact &= !gap;
        }
        let partial = self.partial.get_or_insert_with(|| Partial {
            timestamp,
            first: now,
            unit: payload::Depacketiser::new(codec, payload::MAX_ACCESS_UNIT),
            bytes: 0,
        });
        // `take` fails if a payload was rejected.
        let _ = partial.unit.push(packet.payload());
        partial.bytes += packet.payload().len() as u64;
        if header.marker {
            self.complete(now);
        }
        Ok(())
    }

    fn complete(&mut self, now: Time) {
        let Some(mut partial) = self.partial.take() else {
            return;
        };
        let taken = partial.unit.take();
        let key = taken.as_ref().is_ok_and(|(_, key)| *key);
        self.intact = taken.is_ok() && (key || self.intact);
        let data = taken.map(|(data, _)| data).unwrap_or_default();
        self.out.push_back(ReceivedFrame {
            timestamp: partial.timestamp,
            key,
            first: partial.first,
            complete: self.intact.then_some(now),
            data: if self.intact { data } else { Vec::new() },
            bytes: partial.bytes,
        });
    }

    fn discard_partial(&mut self) {
        let Some(partial) = self.partial.take() else {
            return;
        };
        self.intact = false;
        self.out.push_back(ReceivedFrame {
            timestamp: partial.timestamp,
            key: false,
            first: partial.first,
            complete: None,
            data: Vec::new(),
            bytes: partial.bytes,
        });
    }
}

impl Endpoint for TcpReceiver {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        match input {
            Input::Stream(StreamInput::Bytes(bytes)) if self.fault.is_none() => {
                self.fault = self.on_bytes(cx.now, bytes).err();
            }
            Input::Stream(StreamInput::Closed) => self.finish(),
            _ => {}
        }
        Check::default()
    }

    fn poll(&mut self, _: &mut Context<'_>, _: &mut Vec<u8>) -> Output {
        if self.bye || self.fault.is_some() {
            Output::Done(None)
        } else {
            Output::Wait(None)
        }
    }
}

/// Decides which frames are in time. The clocks of sender and receiver are unrelated, so the
/// lateness of a frame is its extra delay over the fastest frame so far. A clock of the sender that
/// is slower by up to 0.02 % makes no frame late.
#[derive(Clone, Copy, Debug)]
pub struct Punctuality {
    threshold: Duration,
    /// Minimum of arrival time minus timestamp, in ns, and the arrival up to which it has risen.
    fastest: Option<(i128, Time)>,
}

impl Punctuality {
    /// Frames later than `threshold` are discarded.
    pub const fn new(threshold: Duration) -> Self {
        Self {
            threshold,
            fastest: None,
        }
    }

    /// Lateness of the frame with this unwrapped RTP timestamp.
    pub fn lateness(&mut self, timestamp: u64, complete: Time) -> Duration {
        let media = i128::from(timestamp) * 1_000_000_000 / i128::from(MEDIA_CLOCK);
        let transit = i128::from(complete.as_nanos()) - media;
        let (before, at) = self.fastest.unwrap_or((transit, complete));
        let drift = complete.since(at) / MAX_DRIFT;
        let fastest = transit.min(before + drift.as_nanos().cast_signed());
        self.fastest = Some((fastest, complete.max(at)));
        Duration::from_nanos(u64::try_from(transit - fastest).unwrap_or(u64::MAX))
    }

    /// Whether a frame of this lateness is displayed.
    pub fn accepts(&self, lateness: Duration) -> bool {
        lateness <= self.threshold
    }
}

/// Inverse of the largest difference of two clocks: 100 ppm each, the tolerance of common crystals.
const MAX_DRIFT: u32 = 5_000;

/// Reason why bytes are not a valid stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamFault {
    /// A packet exceeds the maximum length.
    #[error("{0}")]
    Framing(PacketTooLong),
    /// The first packet of a player is not RTCP.
    #[error("the first packet is not RTCP")]
    NoRtcp,
    /// No frame is complete after this many bytes.
    #[error("no decodable frame in {bytes} bytes")]
    NoFrame {
        /// Number of bytes.
        bytes: u64,
    },
    /// A packet belongs to another stream than the first one.
    #[error("packets of two streams on one connection")]
    OtherStream,
    /// The payload type is not supported.
    #[error("payload type {payload_type} where 32 (MPEG-2) or 96 (H.264) is expected")]
    PayloadType {
        /// Payload type of the packet.
        payload_type: u8,
    },
    /// A packet is not valid RTP.
    #[error("{0}")]
    Rtp(RtpError),
}
