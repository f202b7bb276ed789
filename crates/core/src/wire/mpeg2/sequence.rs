//! Sequence headers: the size of the pictures (ITU-T H.262 sections 6.2.2.1 and 6.2.2.3).

use super::stream::{Kind, unit};
use crate::wire::h264::find_start_code;

/// Size and chroma format of coded pictures, from a sequence header and its extensions.
///
/// A receiver reads it before a decoder allocates pictures of this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Width in samples: `1..=16383`.
    pub width: u32,
    /// Height in lines: `1..=16383`.
    pub height: u32,
    /// `chroma_format`, two bits: 1 is 4:2:0, the only format of MPEG-1.
    pub chroma_format: u8,
}

/// The sequence headers of an access unit, with the extensions after each.
pub const fn sequences(access_unit: &[u8]) -> Sequences<'_> {
    Sequences {
        stream: access_unit,
        at: 0,
    }
}

/// See [`sequences`].
#[derive(Clone, Debug)]
pub struct Sequences<'a> {
    stream: &'a [u8],
    at: usize,
}

impl Iterator for Sequences<'_> {
    type Item = Result<Sequence, SequenceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (kind, body) = self.unit()?;
            if kind == Kind::Sequence {
                return Some(self.sequence(body));
            }
            if is_extension(kind, body) {
                return Some(Err(SequenceError::Extension));
            }
        }
    }
}

impl<'a> Sequences<'a> {
    /// The next unit, from its start code byte on.
    fn unit(&mut self) -> Option<(Kind, &'a [u8])> {
        let (kind, end) = unit(self.stream, self.at)?;
        let whole = &self.stream[self.at..end];
        self.at = end;
        Some((kind, &whole[find_start_code(whole)? + 3..]))
    }

    fn sequence(&mut self, header: &[u8]) -> Result<Sequence, SequenceError> {
        let &[_, a, b, c, ..] = header else {
            return Err(SequenceError::Truncated);
        };
        let mut sequence = Sequence {
            width: u32::from(a) << 4 | u32::from(b) >> 4,
            height: u32::from(b & 0xf) << 8 | u32::from(c),
            chroma_format: YUV_420,
        };
        let mut ahead = self.clone();
        while let Some((Kind::Other, body)) = ahead.unit() {
            *self = ahead.clone();
            if !is_extension(Kind::Other, body) {
                continue;
            }
            let &[_, _, b, c, ..] = body else {
                return Err(SequenceError::Truncated);
            };
            // A repeated extension is an error of the stream. Decoders differ: FFmpeg combines the
            // bits, and so this size is the largest of any decoder.
            sequence.chroma_format = b >> 1 & 3;
            sequence.width |= (u32::from(b & 1) << 1 | u32::from(c >> 7)) << 12;
            sequence.height |= u32::from(c >> 5 & 3) << 12;
        }
        if sequence.width == 0 || sequence.height == 0 {
            return Err(SequenceError::Empty);
        }
        Ok(sequence)
    }
}

/// Whether the unit is a sequence extension.
fn is_extension(kind: Kind, body: &[u8]) -> bool {
    kind == Kind::Other
        && body.first() == Some(&EXTENSION)
        && body
            .get(1)
            .is_none_or(|first| first >> 4 == SEQUENCE_EXTENSION)
}

/// Reason why the size of a sequence is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SequenceError {
    /// Width or height is zero.
    #[error("the MPEG sequence has pictures of size zero")]
    Empty,
    /// A sequence extension without sequence header changes the size of an earlier one.
    #[error("an MPEG sequence extension has no sequence header")]
    Extension,
    /// The header or an extension ends within its fields.
    #[error("the MPEG sequence header is truncated")]
    Truncated,
}

const YUV_420: u8 = 1;
/// Start code of extensions, and the identifier of the sequence extension (tables 6-1 and 6-2).
const EXTENSION: u8 = 0xb5;
const SEQUENCE_EXTENSION: u8 = 1;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A sequence header without extension.
    fn header(width: u16, height: u16) -> Vec<u8> {
        let [_, low] = height.to_be_bytes();
        let middle = (width << 4 | height >> 8 & 0xf) as u8;
        vec![0, 0, 1, 0xb3, (width >> 4) as u8, middle, low, 0x13]
    }

    fn extension(width: u16, height: u16, chroma_format: u8) -> Vec<u8> {
        let (w, h) = ((width >> 12 & 3) as u8, (height >> 12 & 3) as u8);
        let second = 0x40 | chroma_format << 1 | w >> 1;
        vec![0, 0, 1, 0xb5, 0x14, second, w << 7 | h << 5, 1, 0, 0]
    }

    fn read(stream: &[u8]) -> Vec<Result<Sequence, SequenceError>> {
        sequences(stream).collect()
    }

    proptest! {
        #[test]
        fn sizes_round_trip(width in 1_u16..16_384, height in 1_u16..16_384, chroma_format in 0_u8..4) {
            let picture = [0, 0, 1, 0, 0, 8, 0, 0];
            let stream = [header(width, height), extension(width, height, chroma_format), picture.to_vec()];
            let wanted = Sequence { width: width.into(), height: height.into(), chroma_format };
            prop_assert_eq!(read(&stream.concat()), [Ok(wanted)]);
        }

        #[test]
        fn any_bytes_have_a_size_in_range_or_an_error(
            bytes in vec(prop_oneof![Just(0_u8), Just(1), Just(0xb3), Just(0xb5), any::<u8>()], 0..100),
        ) {
            for sequence in sequences(&bytes).flatten() {
                prop_assert!((1..16_384).contains(&sequence.width));
                prop_assert!((1..16_384).contains(&sequence.height));
            }
        }
    }

    #[test]
    fn all_extensions_of_a_sequence_count() {
        let stream = [
            header(352, 288),
            extension(4_096, 0, 1),
            vec![0, 0, 1, 0xb2, 7],
            extension(8_192, 4_096, 2),
            vec![0, 0, 1, 0xb8, 0, 0, 0, 0],
            header(640, 480),
        ];
        let sizes: Vec<_> = read(&stream.concat())
            .into_iter()
            .map(|found| found.map(|s| (s.width, s.height, s.chroma_format)))
            .collect();
        assert_eq!(
            sizes,
            [Ok((352 + 12_288, 288 + 4_096, 2)), Ok((640, 480, 1))]
        );
    }

    #[test]
    fn malformed_headers_are_rejected() {
        assert_eq!(read(&header(0, 288)), [Err(SequenceError::Empty)]);
        assert_eq!(
            read(&header(352, 288)[..6]),
            [Err(SequenceError::Truncated)]
        );
        let cut = [header(352, 288), extension(0, 0, 1)[..6].to_vec()].concat();
        assert_eq!(read(&cut), [Err(SequenceError::Truncated)]);
        let stray = [vec![0, 0, 1, 0, 0, 8], extension(4_096, 0, 1)].concat();
        assert_eq!(read(&stray), [Err(SequenceError::Extension)]);
    }
}
