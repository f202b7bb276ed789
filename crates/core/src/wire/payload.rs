//! Codec-independent video payloads.

use super::h264::Evidence;
use super::rtp::PayloadType;
use super::{h264, mpeg2};
use crate::media::Codec;

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
        Codec::H264 => h264::PAYLOAD_TYPE,
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

/// Role of a payload in its access unit, from the headers of its units. A payload without a lead and
/// without a slice is filler: padding, ends of sequences, and layers of extensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Role {
    /// The payload begins with a unit that precedes a picture: a delimiter, parameter sets, or
    /// supplemental information. After a picture it belongs to the next access unit (ITU-T H.264
    /// section 7.4.1.2.3).
    pub leads: bool,
    /// The first data of a picture in the payload.
    pub slice: Option<Slice>,
    /// The payload can only be the first one of its access unit.
    pub begins: bool,
    /// What the payload shows of a random access point.
    pub(crate) evidence: Evidence,
    /// The payload ends within a fragmented unit.
    pub is_open: bool,
}

/// Data of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// The first slice of the picture, or the beginning of it.
    First,
    /// Any other part.
    Other,
}

impl Role {
    /// Role of a payload of RFC 6184 or RFC 2250. A payload that is neither is a part of a picture,
    /// whose assembly then fails.
    pub fn of(codec: Codec, payload: &[u8]) -> Self {
        match codec {
            _ if payload.is_empty() => Self::default(),
            Codec::H264 => Self::of_h264(payload),
            Codec::Mpeg2 => Self::of_mpeg2(payload),
        }
    }

    /// Whether the payload is filler.
    pub fn is_filler(self) -> bool {
        !self.leads && self.slice.is_none()
    }

    /// Whether the payload continues a picture.
    pub fn is_continuation(self) -> bool {
        !self.leads && self.slice == Some(Slice::Other)
    }

    fn of_h264(payload: &[u8]) -> Self {
        let mut role = Self::default();
        each_unit(payload, |unit, body| {
            let next = body.map(|body| body.first().copied().unwrap_or(0));
            // first_mb_in_slice of zero is a single 1 bit (Exp-Golomb).
            let is_first = next.is_some_and(|next| next & 0x80 != 0);
            let slice = match unit {
                SLICE | PARTITION_A | IDR if is_first => Some(Slice::First),
                SEI..=DELIMITER | END_OF_SEQUENCE..TYPE_24 => None,
                _ => Some(Slice::Other),
            };
            if role.is_filler() {
                role.leads = matches!(unit, SEI..=DELIMITER | SUBSET_SPS..=DEPTH_SETS);
                // Parameter sets, a delimiter, or the first slice of a delta frame (key frames
                // begin with their parameter sets).
                let is_first = slice == Some(Slice::First);
                role.begins = match unit {
                    SPS | DELIMITER => next.is_some(),
                    SLICE => is_first,
                    _ => false,
                };
            }
            if let Some(body) = body.filter(|_| matches!(unit, SLICE..=SPS)) {
                role.evidence.add(unit, body);
            }
            role.slice = role.slice.or(slice);
        });
        // The end bit of an FU-A.
        role.is_open = matches!(*payload, [28 | 60 | 92 | 124, head, ..] if head & 0x40 == 0);
        role
    }

    /// The second field picture of a frame looks like another frame, unless both have the same
    /// timestamp.
    fn of_mpeg2(payload: &[u8]) -> Self {
        let key = mpeg2::VideoPayload::new_checked(payload)
            .is_ok_and(|payload| payload.header().sequence && payload.header().picture_type == 1);
        Self {
            leads: false,
            slice: Some(Slice::Other),
            // A sequence header, a group or a picture.
            begins: mpeg2_code(payload).is_some_and(|code| matches!(code, 0xb3 | 0xb8 | 0)),
            // In an open group, B pictures behind it refer to the group before (ITU-T H.262
            // section 6.3.8).
            evidence: if key {
                Evidence::recovery()
            } else {
                Evidence::default()
            },
            is_open: false,
        }
    }
}

/// Whether a payload shows that it is H.265 (RFC 7798): a parameter set, an aggregation packet or a
/// fragment of the base layer. Read as H.264 (RFC 6184) its type is unspecified, or a data partition,
/// which no known sender uses.
pub fn is_h265(payload: &[u8]) -> bool {
    matches!(payload, [0x40 | 0x42 | 0x44 | 0x60 | 0x62, 1, ..])
}

/// Calls `each` with the type of every NAL unit in an RFC 6184 payload, and with the bytes after its
/// header: `None` if the payload does not contain the beginning of the unit.
fn each_unit(payload: &[u8], mut each: impl FnMut(u8, Option<&[u8]>)) {
    match *payload {
        // FU-A: the second byte has the unit's type and the start bit.
        [indicator, head, ref body @ ..] if indicator & 0x1f == 28 => {
            let is_start = head & 0x80 != 0;
            each(head & 0x1f, (is_start && !body.is_empty()).then_some(body));
        }
        // STAP-A: each unit follows a length of two bytes.
        [indicator, ref units @ ..] if indicator & 0x1f == 24 => {
            let mut rest = units;
            while let [high, low, after @ ..] = rest {
                let len = usize::from(u16::from_be_bytes([*high, *low]));
                let unit = &after[..len.min(after.len())];
                if let [first, body @ ..] = unit {
                    each(first & 0x1f, Some(body));
                }
                rest = &after[unit.len()..];
            }
        }
        [unit, ref body @ ..] => each(unit & 0x1f, Some(body)),
        [] => {}
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketiseError {
    /// Error of the H.264 packetiser.
    #[error("{0}")]
    H264(h264::PacketiseError),
    /// Error of the MPEG-2 packetiser.
    #[error("{0}")]
    Mpeg2(mpeg2::PacketiseError),
    /// A receiver would discard the access unit.
    #[error("an access unit of {len} bytes, where {MAX_ACCESS_UNIT} are the maximum")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
}

/// Maximum length of an access unit in bytes. H.264 level 5.2 permits pictures of up to 30 MB;
/// pictures of a live stream are far smaller.
pub const MAX_ACCESS_UNIT: usize = 4 << 20;

/// Reason why payloads do not form an access unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// Error of the H.264 assembler.
    #[error("{0}")]
    H264(h264::AssembleError),
    /// Error of the MPEG-2 assembler.
    #[error("{0}")]
    Mpeg2(mpeg2::AssembleError),
}

/// NAL unit types (ITU-T H.264 table 7-1).
const SLICE: u8 = 1;
const PARTITION_A: u8 = 2;
const IDR: u8 = 5;
const SEI: u8 = 6;
const SPS: u8 = 7;
const DELIMITER: u8 = 9;
const END_OF_SEQUENCE: u8 = 10;
const SUBSET_SPS: u8 = 15;
const DEPTH_SETS: u8 = 16;
/// RFC 6184 redefines this type and those above.
const TYPE_24: u8 = 24;

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
    fn roles_follow_the_headers_of_units() {
        let role = |codec, payload: &[u8]| {
            let role = Role::of(codec, payload);
            assert_eq!(role.is_filler(), !role.leads && role.slice.is_none());
            let access = role.evidence.access();
            (role.leads, role.slice, role.begins, access.is_some())
        };
        let (first, other) = (Some(Slice::First), Some(Slice::Other));
        let h264 = |payload: &[u8]| role(Codec::H264, payload);
        assert_eq!(h264(&[0x67, 1]), (true, None, true, false));
        assert_eq!(h264(&[0x06, 1]), (true, None, false, false));
        assert_eq!(h264(&[0x06, 6, 1, 0xc4, 0x80]), (true, None, false, true));
        assert_eq!(h264(&[0x09, 0xf0]), (true, None, true, false));
        assert_eq!(h264(&[0x61, 0x80]), (false, first, true, false));
        assert_eq!(h264(&[0x61, 0x40]), (false, other, false, false));
        assert_eq!(h264(&[0x65, 0x80]), (false, first, false, true));
        for filler in [&[][..], &[0x0c, 0xff], &[0x0a], &[0x6e, 0x40, 0, 0]] {
            assert_eq!(h264(filler), (false, None, false, false), "{filler:?}");
        }
        // Fragments: only the first one shows the macroblock.
        assert_eq!(h264(&[0x7c, 0x85, 0x80]), (false, first, false, true));
        assert_eq!(h264(&[0x7c, 0x45, 0x80]), (false, other, false, false));
        assert!(Role::of(Codec::H264, &[0x7c, 0x05, 0x80]).is_open);
        assert!(!Role::of(Codec::H264, &[0x7c, 0x45, 0x80]).is_open);
        // Aggregates: parameter sets alone, and with the picture.
        let sets = [0x78, 0, 1, 0x67, 0, 1, 0x68];
        assert_eq!(h264(&sets), (true, None, true, false));
        let whole = [0x78, 0, 1, 0x06, 0, 1, 0x67, 0, 2, 0x65, 0x80];
        assert_eq!(h264(&whole), (true, first, false, true));

        let mpeg2 = |payload: &[u8]| role(Codec::Mpeg2, payload);
        let key = [0, 0, 0x21, 0, 0, 0, 1, 0xb3];
        assert_eq!(mpeg2(&key), (false, other, true, true));
        let delta = [0, 0, 0x12, 0, 0, 0, 1, 0];
        assert_eq!(mpeg2(&delta), (false, other, true, false));
        let slice = [0, 0, 0x19, 0, 0, 0, 1, 2];
        assert_eq!(mpeg2(&slice), (false, other, false, false));
        assert_eq!(mpeg2(&[0, 0]), (false, other, false, false));
        assert_eq!(mpeg2(&[]), (false, None, false, false));
    }
}
