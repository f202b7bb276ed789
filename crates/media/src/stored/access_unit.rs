//! Access units as they are stored, and as a byte stream.

use core::fmt;

use tidegate_core::wire::h264::nal_units;

/// Form of the access units in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// A byte stream with start codes.
    AnnexB {
        /// Parameter sets with start codes.
        sets: Vec<u8>,
    },
    /// Units preceded by their length (ISO/IEC 14496-15).
    Lengths {
        /// Bytes of a length, 1 to 4.
        size: usize,
        /// Parameter sets with start codes.
        sets: Vec<u8>,
    },
}

/// Error in an access unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damage(pub(super) &'static str);

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Layout {
    /// The layout of a file with this decoder configuration, which has start codes for a byte stream.
    pub(super) fn of(configuration: &[u8]) -> Result<Self, Damage> {
        let mut sets = Vec::new();
        if configuration.first() != Some(&1) {
            for unit in nal_units(configuration) {
                push(unit, &mut sets);
            }
            return Ok(Self::AnnexB { sets });
        }
        let damage = Damage("the decoder configuration is too short");
        let size = usize::from(configuration.get(4).ok_or(damage)? & 3) + 1;
        let mut rest = configuration.get(5..).ok_or(damage)?;
        for _ in 0..2 {
            let (count, after) = rest.split_first().ok_or(damage)?;
            rest = after;
            // The number of sequence parameter sets has five bits, and that of picture parameter sets
            // is at most as large in practice.
            for _ in 0..(count & 0x1f) {
                let (length, after) = rest.split_first_chunk::<2>().ok_or(damage)?;
                let length = usize::from(u16::from_be_bytes(*length));
                let unit = after.get(..length).ok_or(damage)?;
                rest = &after[length..];
                push(unit, &mut sets);
            }
        }
        Ok(Self::Lengths { size, sets })
    }

    /// The units of an access unit with start codes. Access points without parameter sets get those
    /// of the file. Delimiters and filler are left out.
    pub(super) fn byte_stream(&self, stored: &[u8], is_access: bool) -> Result<Vec<u8>, Damage> {
        let (sets, units) = match self {
            Self::AnnexB { sets } => (sets, nal_units(stored).collect()),
            Self::Lengths { size, sets } => (sets, units(stored, *size)?),
        };
        let mut out = Vec::with_capacity(stored.len() + 64);
        if is_access && !units.iter().any(|unit| kind(unit) == SPS) {
            out.extend_from_slice(sets);
        }
        let len = out.len();
        for unit in units {
            push(unit, &mut out);
        }
        if out.len() == len {
            return Err(Damage("it has no picture data"));
        }
        Ok(out)
    }
}

/// Units preceded by lengths of `size` bytes.
fn units(mut rest: &[u8], size: usize) -> Result<Vec<&[u8]>, Damage> {
    let damage = Damage("a unit exceeds the picture");
    let mut units = Vec::new();
    while !rest.is_empty() {
        let length = rest.get(..size).ok_or(damage)?;
        let length = length
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        let unit = rest.get(size..size + length).ok_or(damage)?;
        units.push(unit);
        rest = &rest[size + length..];
    }
    Ok(units)
}

fn push(unit: &[u8], out: &mut Vec<u8>) {
    // RTP cannot carry other types (RFC 6184 section 5.2).
    if matches!(kind(unit), 1..=8 | 10 | 11 | 13..=23) {
        out.extend_from_slice(&[0, 0, 0, 1]);
        out.extend_from_slice(unit);
    }
}

/// Type of a unit: zero for an empty one.
fn kind(unit: &[u8]) -> u8 {
    unit.first().map_or(0, |first| first & 0x1f)
}

const SPS: u8 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIGURATION: [u8; 15] = [
        1, 0x42, 0xc0, 0x1f, 0xff, 0xe1, 0, 3, 0x67, 1, 2, 1, 0, 1, 0x68,
    ];

    #[test]
    fn stored_units_become_a_byte_stream() {
        let layout = Layout::of(&CONFIGURATION).unwrap();
        let sets = vec![0, 0, 0, 1, 0x67, 1, 2, 0, 0, 0, 1, 0x68];
        assert_eq!(layout, Layout::Lengths { size: 4, sets });
        // A delimiter and a slice.
        let stored = [0, 0, 0, 2, 9, 0xf0, 0, 0, 0, 2, 0x65, 7];
        let key = layout.byte_stream(&stored, true).unwrap();
        assert_eq!(key[..12], [0, 0, 0, 1, 0x67, 1, 2, 0, 0, 0, 1, 0x68]);
        assert_eq!(key[12..], [0, 0, 0, 1, 0x65, 7]);
        let delta = layout.byte_stream(&stored, false);
        assert_eq!(delta, Ok(vec![0, 0, 0, 1, 0x65, 7]));
        let raw = [0, 0, 1, 9, 0xf0, 0, 0, 1, 0x65, 7];
        let layout = Layout::of(&[0, 0, 1, 0x67, 1, 2, 0, 0, 1, 0x68]).unwrap();
        assert_eq!(layout.byte_stream(&raw, true), Ok(key));
        assert_eq!(
            layout.byte_stream(&raw, false),
            Ok(vec![0, 0, 0, 1, 0x65, 7])
        );
        let bare = Layout::of(&[]).unwrap();
        let with_sets = [&[0, 0, 1, 0x67, 9][..], &raw].concat();
        assert_eq!(
            bare.byte_stream(&raw, true),
            layout.byte_stream(&raw, false)
        );
        assert_eq!(
            layout.byte_stream(&with_sets, true),
            Ok(vec![0, 0, 0, 1, 0x67, 9, 0, 0, 0, 1, 0x65, 7])
        );
    }

    #[test]
    fn damaged_units_are_errors() {
        for length in 1..CONFIGURATION.len() {
            assert!(Layout::of(&CONFIGURATION[..length]).is_err(), "{length}");
        }
        let layout = Layout::of(&CONFIGURATION).unwrap();
        for stored in [&[0, 0, 0, 9, 1][..], &[0, 0][..], &[0xff; 8], &[]] {
            assert!(layout.byte_stream(stored, false).is_err(), "{stored:?}");
        }
    }
}
