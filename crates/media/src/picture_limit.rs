//! Limit of the picture size, checked in the headers of an access unit before it is decoded.

use tidegate_core::media::Codec;
use tidegate_core::wire::h264::{Sps, SpsError, nal_units};
use tidegate_core::wire::mpeg2::{SequenceError, sequences};

use crate::colour::Colour;
use crate::picture::{Size, coded_size};

/// Checks each picture size that the access unit announces. The size may change within the limit.
/// Returns the last colour description, if there is one (of H.264 only).
///
/// # Errors
/// A picture would have more samples than one of `max`, or its format is not supported, or the
/// headers are malformed.
pub(crate) fn check(
    codec: Codec,
    unit: &[u8],
    max: Size,
) -> Result<Option<Colour>, PictureRefusal> {
    let mut colour = None;
    match codec {
        Codec::H264 => nal_units(unit)
            .filter(|nal| nal[0] & NAL_TYPE == SPS)
            .try_for_each(|nal| {
                let sps = Sps::parse(nal).map_err(PictureRefusal::Sps)?;
                let format = Format {
                    coded: [sps.coded_width, sps.coded_height],
                    shown: [sps.width, sps.height],
                    is_supported: (sps.chroma_format, sps.bit_depth) == (YUV_420, 8),
                };
                let [primaries, transfer, matrix] = sps.colour;
                colour = Some(Colour {
                    primaries,
                    transfer,
                    matrix,
                });
                format.check(max)
            }),
        Codec::Mpeg2 => sequences(unit).try_for_each(|sequence| {
            let sequence = sequence.map_err(PictureRefusal::Sequence)?;
            let format = Format {
                coded: coded_size(sequence.width, sequence.height),
                shown: [sequence.width, sequence.height],
                is_supported: sequence.chroma_format == YUV_420,
            };
            format.check(max)
        }),
    }?;
    Ok(colour)
}

/// Announced pictures; width and height in luma samples.
struct Format {
    coded: [u32; 2],
    shown: [u32; 2],
    /// 4:2:0 with 8 bits.
    is_supported: bool,
}

impl Format {
    fn check(self, max: Size) -> Result<(), PictureRefusal> {
        let [width, height] = self.coded;
        if u64::from(width) * u64::from(height) > max.coded_samples() {
            return Err(PictureRefusal::TooLarge { width, height, max });
        }
        let [width, height] = self.shown;
        if !self.is_supported || Size::new(width, height).is_err() {
            return Err(PictureRefusal::Unsupported { width, height });
        }
        Ok(())
    }
}

/// Reason for which an access unit is not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PictureRefusal {
    /// A malformed sequence header (MPEG-2).
    #[error("{0}")]
    Sequence(SequenceError),
    /// A malformed sequence parameter set (H.264).
    #[error("{0}")]
    Sps(SpsError),
    /// The pictures exceed the limit.
    #[error(
        "a picture of {width}x{height} has more samples than the limit of {max}: raise the \
         limit if the size is legitimate"
    )]
    TooLarge {
        /// Coded width in luma samples.
        width: u32,
        /// Coded height in luma samples.
        height: u32,
        /// Limit: a picture of this size, or of another size with as many samples.
        max: Size,
    },
    /// The pictures are not 4:2:0 with 8 bits, or have an unsupported size.
    #[error(
        "unsupported pictures of {width}x{height}: encode 4:2:0 with 8 bits, and an even width \
         and height within 16 to 8192"
    )]
    Unsupported {
        /// Width in luma samples.
        width: u32,
        /// Height in luma samples.
        height: u32,
    },
}

/// Type of a NAL unit in its first byte, and the type of sequence parameter sets.
const NAL_TYPE: u8 = 0x1f;
const SPS: u8 = 7;
/// `chroma_format` of both codecs.
const YUV_420: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    /// Sequence header and extension of MPEG-2.
    fn mpeg2(width: u32, height: u32, chroma_format: u8) -> Vec<u8> {
        let [w, h] = [width, height].map(|n| [(n >> 12) as u8, (n >> 8 & 0xf) as u8, n as u8]);
        let header = [w[1] << 4 | w[2] >> 4, w[2] << 4 | h[1], h[2], 0x13];
        let extension = [0x40 | chroma_format << 1 | w[0] >> 1, w[0] << 7 | h[0] << 5];
        [
            &[0, 0, 1, 0xb3][..],
            &header,
            &[0, 0, 1, 0xb5, 0x14],
            &extension,
        ]
        .concat()
    }

    fn refusal(width: u32, height: u32, chroma_format: u8) -> Option<PictureRefusal> {
        let unit = mpeg2(width, height, chroma_format);
        check(Codec::Mpeg2, &unit, Size::LEVEL_5_2).err()
    }

    #[test]
    fn sizes_up_to_the_limit_are_accepted_in_any_shape() {
        let max = Size::LEVEL_5_2;
        for (width, height) in [(4_096, 2_304), (16, 16), (8_192, 1_152), (1_920, 1_080)] {
            assert_eq!(refusal(width, height, 1), None);
        }
        let too_large = |width, height| Some(PictureRefusal::TooLarge { width, height, max });
        assert_eq!(refusal(4_098, 2_304, 1), too_large(4_112, 2_304));
        assert_eq!(refusal(16_000, 16_000, 1), too_large(16_000, 16_000));
        let unit = mpeg2(1_920, 1_080, 1);
        let max = Size::new(1_920, 1_080).unwrap();
        // 1,088 lines are coded.
        assert_eq!(check(Codec::Mpeg2, &unit, max), Ok(None));
    }

    #[test]
    fn unsupported_formats_are_refused() {
        for (width, height, chroma_format) in [(640, 360, 2), (641, 360, 1), (8_194, 16, 1)] {
            let refused = refusal(width, height, chroma_format);
            assert_eq!(refused, Some(PictureRefusal::Unsupported { width, height }));
        }
        let cut = [0, 0, 1, 0xb3, 7];
        assert!(check(Codec::Mpeg2, &cut, Size::LEVEL_5_2).is_err());
        let sps = [0, 0, 1, 0x67, 66, 0];
        assert_eq!(
            check(Codec::H264, &sps, Size::LEVEL_5_2),
            Err(PictureRefusal::Sps(SpsError::Truncated))
        );
    }
}
