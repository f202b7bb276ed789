//! The byte stream: NAL units preceded by start codes (ITU-T H.264 annex B).

use super::{FIRST_SLICE, IDR, PPS, SPS, nal_type};

/// The NAL units of a byte stream, without start codes and the zeros around them. Empty units, and
/// bytes before the first start code, are skipped.
pub fn nal_units(stream: &[u8]) -> NalUnits<'_> {
    NalUnits {
        rest: after_start_code(stream),
    }
}

/// See [`nal_units`].
#[derive(Clone, Debug)]
pub struct NalUnits<'a> {
    /// Bytes after a start code; empty at the end.
    rest: &'a [u8],
}

impl<'a> Iterator for NalUnits<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.rest.is_empty() {
            let (nal, rest) = match find_start_code(self.rest) {
                Some(at) => (&self.rest[..at], &self.rest[at + 3..]),
                None => (self.rest, &[][..]),
            };
            self.rest = rest;
            // A NAL unit ends with a nonzero byte; trailing zeros belong to the stream.
            let len = nal
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |last| last + 1);
            if len > 0 {
                return Some(&nal[..len]);
            }
        }
        None
    }
}

/// Kinds of NAL units in an access unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// A slice of an IDR picture: decoding can start here.
    pub idr: bool,
    /// A sequence parameter set.
    pub sps: bool,
    /// A picture parameter set.
    pub pps: bool,
}

impl Contents {
    /// Whether a decoder without state can start here.
    pub const fn is_key_frame(self) -> bool {
        self.idr && self.sps && self.pps
    }

    pub(super) fn add(&mut self, nal: &[u8]) {
        match nal_type(nal) {
            IDR => self.idr = true,
            SPS => self.sps = true,
            PPS => self.pps = true,
            _ => {}
        }
    }
}

/// The kinds of NAL units in the access unit. Scans all of it; [`is_key_frame`] stops earlier.
pub fn contents(access_unit: &[u8]) -> Contents {
    let mut contents = Contents::default();
    nal_units(access_unit).for_each(|nal| contents.add(nal));
    contents
}

/// Whether the first slice of the access unit belongs to an IDR picture.
pub fn is_key_frame(access_unit: &[u8]) -> bool {
    let mut rest = after_start_code(access_unit);
    loop {
        // The type follows the start code: the slice itself need not be scanned.
        match nal_type(rest) {
            IDR => return true,
            FIRST_SLICE..IDR => return false,
            _ if rest.is_empty() => return false,
            _ => rest = after_start_code(rest),
        }
    }
}

/// The first sequence parameter set and the first picture parameter set of the access unit.
pub fn parameter_sets(access_unit: &[u8]) -> Option<(&[u8], &[u8])> {
    let first = |wanted| nal_units(access_unit).find(|nal| nal_type(nal) == wanted);
    Some((first(SPS)?, first(PPS)?))
}

/// Bytes after the first start code; empty if there is none.
pub(super) fn after_start_code(stream: &[u8]) -> &[u8] {
    find_start_code(stream).map_or(&[], |at| &stream[at + 3..])
}

/// Offset of the first 00 00 01. In a four-byte start code this is its second byte.
pub(in crate::wire) fn find_start_code(stream: &[u8]) -> Option<usize> {
    let mut at = 0;
    // Two consecutive zeros occur every few kilobytes at most, so whole blocks without them are
    // skipped. The loop over a block compiles to vector instructions.
    while let Some(block) = stream.get(at..at + BLOCK + 1) {
        let pairs = block.iter().zip(&block[1..]);
        let lowest = pairs.fold(u8::MAX, |low, (a, b)| low.min(a | b));
        if lowest == 0 {
            let end = (at + BLOCK + 2).min(stream.len());
            let found = stream[at..end].windows(3).position(|w| w == [0, 0, 1]);
            if let Some(found) = found {
                return Some(at + found);
            }
        }
        at += BLOCK;
    }
    let found = stream[at..].windows(3).position(|w| w == [0, 0, 1]);
    found.map(|found| at + found)
}

const BLOCK: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn naive(stream: &[u8]) -> Option<usize> {
        stream.windows(3).position(|w| w == [0, 0, 1])
    }

    proptest! {
        #[test]
        fn start_codes_are_found_as_by_a_naive_search(stream in vec(0_u8..3, 0..300), gap in 0_usize..200) {
            prop_assert_eq!(find_start_code(&stream), naive(&stream));
            let mut sparse = vec![7; gap];
            sparse.extend_from_slice(&stream);
            prop_assert_eq!(find_start_code(&sparse), naive(&sparse));
        }

        #[test]
        fn nal_units_round_trip(
            nals in vec((1_u8..32, vec(2_u8..9, 0..150), 3_usize..6, 0_usize..3), 0..6),
        ) {
            let mut stream = Vec::new();
            let mut wanted = Vec::new();
            for (first, body, start, trailing) in nals {
                let nal = [&[first][..], &body].concat();
                stream.extend([0; 5][..start - 1].iter().chain(&[1]).chain(&nal));
                stream.extend(&[0; 3][..trailing]);
                wanted.push(nal);
            }
            prop_assert_eq!(nal_units(&stream).collect::<Vec<_>>(), wanted);
        }
    }

    #[test]
    fn streams_without_units_yield_none() {
        for stream in [
            &[][..],
            &[0, 0],
            &[0, 0, 1],
            &[0, 0, 1, 0, 0, 0, 1, 0],
            &[9, 9, 9],
        ] {
            assert_eq!(nal_units(stream).next(), None, "{stream:?}");
            assert!(!is_key_frame(stream));
        }
    }

    #[test]
    fn key_frames_are_detected_by_their_first_slice() {
        let key = [
            0, 0, 0, 1, 9, 0xf0, 0, 0, 1, 0x67, 1, 0, 0, 1, 0x68, 2, 0, 0, 1, 0x65, 3,
        ];
        assert!(is_key_frame(&key));
        assert!(contents(&key).is_key_frame());
        assert_eq!(parameter_sets(&key), Some((&[0x67, 1][..], &[0x68, 2][..])));
        let delta = [0, 0, 0, 1, 9, 0xf0, 0, 0, 1, 0x41, 3, 0, 0, 1, 0x65, 3];
        assert!(!is_key_frame(&delta));
        assert_eq!(parameter_sets(&delta), None);
        let bare = [0, 0, 1, 0x65, 3];
        assert!(is_key_frame(&bare) && !contents(&bare).is_key_frame());
    }
}
