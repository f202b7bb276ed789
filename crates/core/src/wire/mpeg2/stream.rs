//! The elementary stream: headers and slices behind start codes.

use crate::wire::bytes::u8_at;
use crate::wire::h264::find_start_code;

/// What a start code begins (ITU-T H.262 table 6-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Sequence,
    Group,
    Picture,
    Slice,
    /// Extensions, user data, the end of a sequence, and what is reserved.
    Other,
}

/// What a picture header says, as far as RTP wants to know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PictureHeader {
    /// Ten bits.
    pub(super) temporal_reference: u16,
    /// Three bits: 1 for I, 2 for P, 3 for B.
    pub(super) coding_type: u8,
    /// The four fields on motion vectors, as the last byte of RFC 2250's header has them: those on
    /// backward vectors come first.
    pub(super) vectors: u8,
}

/// The unit that begins at `at`: what it is, and where the next one begins. Zeros before a start
/// code belong to the unit before it.
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
    // A start code without the byte that names it is no unit: it stays with the one before.
    let next = next.filter(|next| next + 3 < rest.len());
    Some((kind, at + next.unwrap_or(rest.len())))
}

/// Reads the picture header in a unit of that kind.
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

/// What an access unit is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// A sequence header.
    pub sequence: bool,
    /// Its first picture refers to no other.
    pub intra: bool,
    /// There is a slice.
    pub slices: bool,
}

impl Contents {
    /// Whether a decoder that knows nothing can start here.
    pub const fn is_key_frame(self) -> bool {
        self.sequence && self.intra && self.slices
    }
}

/// What the access unit is made of.
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
