//! Random access points: pictures at which decoding can start.

use super::sps::Bits;
use super::{FIRST_SLICE, IDR, IMPORTANCE, SEI, SPS, TYPE};

/// Random access point, at which a decoder without state can start.
///
/// In the order of preference, if an access unit shows several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessPoint {
    /// A key frame: no later picture refers to an earlier one.
    Key,
    /// A recovery point (ITU-T H.264 section D.2.8). Pictures behind it in decoding order that are
    /// displayed before it, its leading pictures, may refer to earlier ones. All others from the
    /// recovery on are correct.
    Recovery {
        /// Number of reference pictures, with that of the access point, until the recovery: zero for
        /// an I picture, and more for a gradual refresh.
        frames: u16,
    },
}

impl AccessPoint {
    /// Whether the picture itself is correct.
    pub const fn is_immediate(self) -> bool {
        matches!(self, Self::Key | Self::Recovery { frames: 0 })
    }

    /// The access point of a whole access unit, in byte-stream format. An I picture after a sequence
    /// parameter set is one, because some encoders send no recovery points.
    pub fn of_unit(access_unit: &[u8]) -> Option<Self> {
        let mut found = Evidence::default();
        for (first, payload) in super::nal_units(access_unit).filter_map(<[u8]>::split_first) {
            found.add(first & TYPE, payload);
        }
        found.access()
    }
}

/// What the NAL units of an access unit show of an access point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    stated: Option<AccessPoint>,
    has_sps: bool,
    is_intra: bool,
}

impl Evidence {
    /// Adds a NAL unit of type `unit`, by the bytes behind its header or the first of them.
    pub(crate) fn add(&mut self, unit: u8, payload: &[u8]) {
        let recovery = || recovery_frames(payload).map(|frames| AccessPoint::Recovery { frames });
        self.join(Self {
            stated: match unit {
                IDR => Some(AccessPoint::Key),
                SEI => recovery(),
                _ => None,
            },
            has_sps: unit == SPS,
            is_intra: slice_kind(unit, payload) == Some(Kind::Intra),
        });
    }

    /// Adds what another part of the access unit shows.
    pub(crate) fn join(&mut self, other: Self) {
        let stated = [self.stated, other.stated];
        self.stated = stated.into_iter().flatten().min();
        self.has_sps |= other.has_sps;
        self.is_intra |= other.is_intra;
    }

    /// An access unit with a recovery point at its picture.
    pub(crate) fn recovery() -> Self {
        Self {
            stated: Some(AccessPoint::Recovery { frames: 0 }),
            ..Self::default()
        }
    }

    pub(crate) fn access(self) -> Option<AccessPoint> {
        let implied = self.has_sps && self.is_intra;
        let implied = implied.then_some(AccessPoint::Recovery { frames: 0 });
        self.stated.or(implied)
    }
}

/// Whether the picture of an access unit in byte-stream format begins with a B slice.
pub fn is_bidirectional(access_unit: &[u8]) -> bool {
    let nals = super::nal_units(access_unit).filter_map(<[u8]>::split_first);
    let mut kinds = nals.filter_map(|(first, payload)| slice_kind(first & TYPE, payload));
    kinds.next() == Some(Kind::Bidirectional)
}

/// Whether other pictures may refer to the picture of an access unit in byte-stream format
/// (`nal_ref_idc`).
pub fn is_reference(access_unit: &[u8]) -> bool {
    let mut slices = super::nal_units(access_unit).filter(|nal| is_slice(nal[0] & TYPE));
    slices.any(|nal| nal[0] & IMPORTANCE != 0)
}

/// Kind of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Intra,
    Bidirectional,
    Other,
}

/// Kind of a slice that is the first one of its picture (section 7.3.3: `first_mb_in_slice` and
/// `slice_type`).
fn slice_kind(unit: u8, payload: &[u8]) -> Option<Kind> {
    // The other partitions of a slice have no type.
    if !is_slice(unit) || matches!(unit, 3 | 4) {
        return None;
    }
    let mut bits = Bits::new(payload);
    let macroblock = bits.unsigned().ok()?;
    let kind = bits.unsigned().ok()?;
    (macroblock == 0).then_some(match kind % 5 {
        1 => Kind::Bidirectional,
        2 | 4 => Kind::Intra,
        _ => Kind::Other,
    })
}

const fn is_slice(unit: u8) -> bool {
    FIRST_SLICE <= unit && unit <= IDR
}

/// `recovery_frame_cnt` of the first recovery point among SEI messages (sections 7.3.2.3.1 and
/// D.1.8).
fn recovery_frames(messages: &[u8]) -> Option<u16> {
    let mut bits = Bits::new(messages);
    loop {
        let (kind, size) = (sei_number(&mut bits)?, sei_number(&mut bits)?);
        if kind == RECOVERY_POINT {
            return u16::try_from(bits.unsigned().ok()?).ok();
        }
        for _ in 0..size {
            bits.read(8).ok()?;
        }
    }
}

/// Type or size of a message: each byte of 0xff adds 255.
fn sei_number(bits: &mut Bits<'_>) -> Option<u32> {
    let mut number = 0;
    loop {
        let byte = bits.read(8).ok()?;
        number += byte;
        if byte != 0xff {
            return Some(number);
        }
    }
}

const RECOVERY_POINT: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_points_are_found_among_other_messages() {
        let of = |sei: &[u8]| AccessPoint::of_unit(&[&[0, 0, 1], sei].concat());
        let now = Some(AccessPoint::Recovery { frames: 0 });
        assert_eq!(of(&[6, 6, 1, 0xc4, 0x80]), now);
        // Behind user data with an emulation prevention byte, and of 257 bytes.
        let data = [6, 5, 3, 0, 0, 3, 1, 6, 1, 0xc4, 0x80];
        assert_eq!(of(&data), now);
        let long = [&[6, 5, 0xff, 2][..], &[7; 257], &[6, 1, 0xc4, 0x80]].concat();
        assert_eq!(of(&long), now);
        assert_eq!(of(&long[..250]), None);
        // 18 frames: ue(v) is 0000 10011.
        let later = of(&[6, 6, 2, 0x09, 0xa4, 0x80]);
        assert_eq!(later, Some(AccessPoint::Recovery { frames: 18 }));
        assert!(!later.unwrap().is_immediate());
        for other in [&[6, 1, 1, 0xc4, 0x80][..], &[6, 6], &[6], &[0x41, 6, 1]] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }

    #[test]
    fn access_units_are_access_points_by_their_units() {
        let unit = |nals: &[&[u8]]| {
            let stream: Vec<u8> = nals
                .iter()
                .flat_map(|nal| [&[0, 0, 1], *nal].concat())
                .collect();
            AccessPoint::of_unit(&stream)
        };
        let (sps, sei): (&[u8], &[u8]) = (&[0x67, 1], &[6, 6, 1, 0xc4, 0x80]);
        // I and P slices of the first macroblock, and an I slice of the second one.
        let (intra, predicted, second) = (&[0x41, 0x88, 1], &[0x41, 0x9a, 1], &[0x41, 0x44, 1]);
        let now = Some(AccessPoint::Recovery { frames: 0 });
        assert_eq!(unit(&[sei, intra]), now);
        assert_eq!(unit(&[sps, intra]), now);
        assert_eq!(unit(&[sps, sei, &[0x65, 0x88]]), Some(AccessPoint::Key));
        for none in [&[intra as &[u8]][..], &[sps, predicted], &[sps, second]] {
            assert_eq!(unit(none), None, "{none:?}");
        }
        assert!(is_bidirectional(&[0, 0, 1, 1, 0x9e, 1]));
        assert!(!is_bidirectional(&[0, 0, 1, 1, 0x9a, 1]));
        assert!(is_reference(&[0, 0, 1, 0x67, 1, 0, 0, 1, 0x65, 7]));
        assert!(!is_reference(&[0, 0, 1, 0x67, 1, 0, 0, 1, 0x01, 7]));
    }
}
