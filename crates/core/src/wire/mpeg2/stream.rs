//! The elementary stream: headers and slices preceded by start codes.

use crate::wire::bytes::u8_at;
use crate::wire::h264::find_start_code;

/// Kind of unit that follows a start code (ITU-T H.262 table 6-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Sequence,
    Group,
    Picture,
    Slice,
    /// Extensions, user data, sequence end, and reserved codes.
    Other,
}

/// Fields of a picture header that RFC 2250 needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PictureHeader {
    /// Ten bits.
    pub(super) temporal_reference: u16,
    /// Three bits: 1 for I, 2 for P, 3 for B.
    pub(super) coding_type: u8,
    /// The four motion vector fields in the layout of the last byte of the RFC 2250 header:
    /// backward vectors first.
    pub(super) vectors: u8,
}

/// The unit that begins at `at`: its kind, and the start of the next one. Zeros before a start code
/// belong to the preceding unit.
pub(super) fn unit(stream: &[u8], at: usize) -> Option<(Kind, usize)> {
    let rest = stream.get(at..)?;
    let start = find_start_code(rest)?;
    let body = start + 3;
    let kind = match *rest.get(body)? {
        0x00 => Kind::Picture,
        0x01..=0xaf => Kind::Slice,
        0xb3 => Kind::Sequence,
        0xb8 => Kind::Group,
        _ => Kind::Other,
    };
    let next = find_start_code(&rest[body..]).map(|more| body + more);
    // A start code without its code byte is not a unit: it belongs to the preceding one.
    let next = next.filter(|next| next + 3 < rest.len());
    Some((kind, at + next.unwrap_or(rest.len())))
}

/// Parses the picture header of such a unit.
pub(super) fn picture_header(unit: &[u8]) -> PictureHeader {
    let body = find_start_code(unit).map_or(unit.len(), |at| at + 4);
    let at = |n| u8_at(unit, body + n);
    let coding_type = at(1) >> 3 & 7;
    let forward = (at(3) & 7) << 1 | at(4) >> 7;
    let backward = at(4) >> 3 & 0xf;
    //= rfc2250-3.4-vectors
    let vectors = match coding_type {
        PREDICTED => forward,
        BIDIRECTIONAL => backward << 4 | forward,
        _ => 0,
    };
    PictureHeader {
        temporal_reference: u16::from(at(0)) << 2 | u16::from(at(1) >> 6),
        coding_type,
        vectors,
    }
}

/// Kinds of units in an access unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// A sequence header is present.
    pub sequence: bool,
    /// The first picture is intra-coded.
    pub intra: bool,
    /// A slice is present.
    pub slices: bool,
}

impl Contents {
    /// Whether a decoder without state can start here.
    pub const fn is_key_frame(self) -> bool {
        self.sequence && self.intra && self.slices
    }
}

/// The kinds of units in the access unit.
pub fn contents(access_unit: &[u8]) -> Contents {
    let mut found = Contents::default();
    let (mut at, mut pictures) = (0, 0);
    while let Some((kind, end)) = unit(access_unit, at) {
        match kind {
            Kind::Sequence => found.sequence = true,
            Kind::Slice => found.slices = true,
            Kind::Picture => {
                let header = picture_header(&access_unit[at..end]);
                found.intra |= pictures == 0 && header.coding_type == INTRA;
                pictures += 1;
            }
            Kind::Group | Kind::Other => {}
        }
        at = end;
    }
    found
}

pub(super) const INTRA: u8 = 1;
const PREDICTED: u8 = 2;
const BIDIRECTIONAL: u8 = 3;
