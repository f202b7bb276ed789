//! Codec-independent video payloads.

use core::fmt;

use super::rtp::PayloadType;
use super::{h264, mpeg2};
use crate::media::Codec;
use crate::session::config::MEDIA_TYPE;

/// Codec of a payload type: MPEG video has a static type, all others are H.264.
pub fn codec(payload_type: PayloadType) -> Codec {
    if payload_type == mpeg2::PAYLOAD_TYPE {
        Codec::Mpeg2
    } else {
        Codec::H264
    }
}

/// Customary payload type of a codec.
pub const fn payload_type(codec: Codec) -> PayloadType {
    match codec {
        Codec::H264 => MEDIA_TYPE,
        Codec::Mpeg2 => mpeg2::PAYLOAD_TYPE,
    }
}

/// Splits an access unit into payloads of at most `max_payload` bytes. Calls `each` with every
/// payload, and with whether it is the last one.
///
/// # Errors
/// Those of the codec's `packetise`, or the access unit has more than [`MAX_ACCESS_UNIT`] bytes.
pub fn packetise(
    codec: Codec,
    access_unit: &[u8],
    max_payload: usize,
    mut each: impl FnMut(Payload<'_>, bool),
) -> Result<(), PacketiseError> {
    if access_unit.len() > MAX_ACCESS_UNIT {
        let len = access_unit.len();
        return Err(PacketiseError::TooLong { len });
    }
    match codec {
        Codec::H264 => {
            let payloads = h264::packetise(access_unit, max_payload);
            for payload in payloads.map_err(PacketiseError::H264)? {
                let marker = payload.marker();
                each(Payload::H264(payload), marker);
            }
        }
        Codec::Mpeg2 => {
            let payloads = mpeg2::packetise(access_unit, max_payload);
            for payload in payloads.map_err(PacketiseError::Mpeg2)? {
                each(Payload::Mpeg2(payload), payload.marker());
            }
        }
    }
    Ok(())
}

/// One RTP payload, not serialised yet.
#[derive(Clone, Debug)]
pub enum Payload<'a> {
    /// Payload of RFC 6184.
    H264(h264::Payload<'a>),
    /// Payload of RFC 2250.
    Mpeg2(mpeg2::Payload<'a>),
}

impl Payload<'_> {
    /// Number of bytes that [`emit`](Self::emit) appends.
    #[expect(clippy::len_without_is_empty, reason = "no payload is empty")]
    pub fn len(&self) -> usize {
        match self {
            Self::H264(payload) => payload.len(),
            Self::Mpeg2(payload) => payload.len(),
        }
    }

    /// Appends the payload.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::H264(payload) => payload.emit(out),
            Self::Mpeg2(payload) => payload.emit(out),
        }
    }
}

/// Joins payloads, passed in order and without gaps, to an access unit.
#[derive(Clone, Debug)]
pub enum Depacketiser {
    /// Assembler for RFC 6184.
    H264(h264::Depacketiser),
    /// Assembler for RFC 2250.
    Mpeg2(mpeg2::Depacketiser),
}

impl Depacketiser {
    /// Limits an access unit to `max_len` bytes.
    pub const fn new(codec: Codec, max_len: usize) -> Self {
        match codec {
            Codec::H264 => Self::H264(h264::Depacketiser::new(max_len)),
            Codec::Mpeg2 => Self::Mpeg2(mpeg2::Depacketiser::new(max_len)),
        }
    }

    /// Adds the next payload.
    ///
    /// # Errors
    /// If it is rejected; [`take`](Self::take) then fails.
    pub fn push(&mut self, payload: &[u8]) -> Result<(), AssembleError> {
        match self {
            Self::H264(unit) => unit.push(payload).map_err(AssembleError::H264),
            Self::Mpeg2(unit) => unit.push(payload).map_err(AssembleError::Mpeg2),
        }
    }

    /// Returns the access unit and whether it is a key frame, and resets the assembler even on
    /// failure.
    ///
    /// # Errors
    /// The first error of the access unit.
    pub fn take(&mut self) -> Result<(Vec<u8>, bool), AssembleError> {
        match self {
            Self::H264(unit) => unit
                .take()
                .map(|unit| (unit.data, unit.contents.is_key_frame()))
                .map_err(AssembleError::H264),
            Self::Mpeg2(unit) => unit
                .take()
                .map(|unit| (unit.data, unit.contents.is_key_frame()))
                .map_err(AssembleError::Mpeg2),
        }
    }
}

/// Whether a payload can only be the first one of its frame.
pub fn begins_frame(codec: Codec, payload: &[u8]) -> bool {
    match codec {
        Codec::H264 => match first_unit(payload) {
            // Parameter sets, a delimiter, or the first slice of a delta frame (key frames begin
            // with their parameter sets).
            Some((SPS | DELIMITER, _)) => true,
            // first_mb_in_slice of zero is a single 1 bit (Exp-Golomb).
            Some((SLICE, next)) => next & 0x80 != 0,
            _ => false,
        },
        // A sequence header, a group or a picture. Frames of two field pictures are not produced
        // here; the second field of such a frame from another sender looks like an incomplete
        // frame.
        Codec::Mpeg2 => mpeg2_code(payload).is_some_and(|code| matches!(code, 0xb3 | 0xb8 | 0)),
    }
}

/// Whether a payload belongs to a key frame.
pub fn is_key(codec: Codec, payload: &[u8]) -> bool {
    match codec {
        Codec::H264 => matches!(first_unit(payload), Some((SPS | IDR, _))),
        Codec::Mpeg2 => mpeg2::VideoPayload::new_checked(payload)
            .is_ok_and(|payload| payload.header().sequence && payload.header().picture_type == 1),
    }
}

/// NAL unit type in an RFC 6184 payload and the byte after its header, if the payload contains the
/// beginning of a unit.
fn first_unit(payload: &[u8]) -> Option<(u8, u8)> {
    match *payload {
        // FU-A: the second byte has the unit's type and the start bit.
        [indicator, head, next, ..] if indicator & 0x1f == 28 && head & 0x80 != 0 => {
            Some((head & 0x1f, next))
        }
        [indicator, ..] if indicator & 0x1f == 28 => None,
        // STAP-A: the first unit follows a length of two bytes.
        [indicator, _, _, unit, ..] if indicator & 0x1f == 24 => {
            Some((unit & 0x1f, payload.get(4).copied().unwrap_or(0)))
        }
        [unit, next, ..] => Some((unit & 0x1f, next)),
        _ => None,
    }
}

/// The start code at the beginning of an RFC 2250 payload.
fn mpeg2_code(payload: &[u8]) -> Option<u8> {
    let data = mpeg2::VideoPayload::new_checked(payload).ok()?.data();
    match data {
        [0, 0, 1, code, ..] => Some(*code),
        _ => None,
    }
}

/// Reason why an access unit cannot be packetised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacketiseError {
    /// Error of the H.264 packetiser.
    H264(h264::PacketiseError),
    /// Error of the MPEG-2 packetiser.
    Mpeg2(mpeg2::PacketiseError),
    /// A receiver would discard the access unit.
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
}

impl fmt::Display for PacketiseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::H264(error) => error.fmt(f),
            Self::Mpeg2(error) => error.fmt(f),
            Self::TooLong { len } => write!(
                f,
                "an access unit of {len} bytes, where {MAX_ACCESS_UNIT} are the maximum"
            ),
        }
    }
}

impl core::error::Error for PacketiseError {}

/// Maximum length of an access unit in bytes. H.264 level 5.2 permits pictures of up to 30 MB;
/// pictures of a live stream are far smaller.
pub const MAX_ACCESS_UNIT: usize = 4 << 20;

/// Reason why payloads do not form an access unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AssembleError {
    /// Error of the H.264 assembler.
    H264(h264::AssembleError),
    /// Error of the MPEG-2 assembler.
    Mpeg2(mpeg2::AssembleError),
}

impl fmt::Display for AssembleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::H264(error) => error.fmt(f),
            Self::Mpeg2(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for AssembleError {}

const SLICE: u8 = 1;
const IDR: u8 = 5;
const SPS: u8 = 7;
const DELIMITER: u8 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mpeg_video_has_a_static_payload_type() {
        //= rfc2250-3.3-payload-type (test)
        assert_eq!(codec(PayloadType::new(32).unwrap()), Codec::Mpeg2);
        assert_eq!(codec(PayloadType::new(96).unwrap()), Codec::H264);
    }

    #[test]
    fn frame_starts_and_key_frames_are_detected_in_payloads() {
        let both = |codec, payload: &[u8]| (begins_frame(codec, payload), is_key(codec, payload));
        let (h264, mpeg2) = (Codec::H264, Codec::Mpeg2);
        assert_eq!(both(h264, &[0x67, 1]), (true, true));
        assert_eq!(both(h264, &[0x61, 0x80]), (true, false));
        assert_eq!(both(h264, &[0x61, 0x40]), (false, false));
        assert_eq!(both(h264, &[0x7c, 0x45, 1]), (false, false));
        assert_eq!(both(mpeg2, &[0, 0, 0x21, 0, 0, 0, 1, 0xb3]), (true, true));
        assert_eq!(both(mpeg2, &[0, 0, 0x12, 0, 0, 0, 1, 0]), (true, false));
        assert_eq!(both(mpeg2, &[0, 0, 0x19, 0, 0, 0, 1, 2]), (false, false));
        assert_eq!(both(mpeg2, &[0, 0]), (false, false));
    }
}
