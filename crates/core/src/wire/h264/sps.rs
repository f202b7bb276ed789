//! Sequence parameter sets: the size of the pictures (ITU-T H.264 section 7.3.2.1.1).

use super::{SPS, TYPE};

/// Size and sample format of coded pictures, from a sequence parameter set.
///
/// A receiver reads it before a decoder allocates pictures of this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sps {
    /// Width of the whole macroblocks, in luma samples: `16..=32_768`.
    pub coded_width: u32,
    /// Height of the whole macroblocks, in luma samples: `16..=32_768`.
    pub coded_height: u32,
    /// Width after cropping, in luma samples: at least 1.
    pub width: u32,
    /// Height after cropping, in luma samples: at least 1.
    pub height: u32,
    /// `chroma_format_idc`, `0..=3`: 1 is 4:2:0.
    pub chroma_format: u8,
    /// Bits of a sample, the larger of luma and chroma: `8..=14`.
    pub bit_depth: u8,
    /// Colour primaries, transfer characteristics and matrix coefficients (sections E.2.1): 2 is
    /// unspecified.
    pub colour: [u8; 3],
}

impl Sps {
    /// Parses a NAL unit of type 7, without start code, up to the colour description. Malformed
    /// usability information is ignored.
    ///
    /// # Errors
    /// If the unit has another type, ends early, or has a value that the standard excludes; and if
    /// the profile is unknown, because the syntax depends on it.
    pub fn parse(nal: &[u8]) -> Result<Self, SpsError> {
        let (first, payload) = nal.split_first().ok_or(SpsError::Truncated)?;
        if first & TYPE != SPS {
            return Err(SpsError::NotAnSps { first: *first });
        }
        let mut bits = Bits::new(payload);
        let profile = bits.read(8)? as u8;
        // Constraint flags and level.
        bits.read(16)?;
        bits.at_most("seq_parameter_set_id", 31)?;
        let (chroma_format, bit_depth) = match profile {
            BASELINE | MAIN | EXTENDED => (YUV_420, 8),
            _ if HIGH_PROFILES.contains(&profile) => sample_format(&mut bits)?,
            _ => return Err(SpsError::Profile { profile }),
        };
        picture_order(&mut bits)?;
        bits.at_most("max_num_ref_frames", 16)?;
        // gaps_in_frame_num_value_allowed_flag
        bits.read(1)?;
        let sps = picture_size(&mut bits, chroma_format, bit_depth)?;
        let colour = colour(&mut bits).unwrap_or(UNSPECIFIED);
        Ok(Self { colour, ..sps })
    }
}

/// Chroma format and bit depth of the high profiles.
fn sample_format(bits: &mut Bits<'_>) -> Result<(u8, u8), SpsError> {
    let chroma_format = bits.at_most("chroma_format_idc", 3)? as u8;
    if chroma_format == YUV_444 {
        // separate_colour_plane_flag
        bits.read(1)?;
    }
    let luma = bits.at_most("bit_depth_luma_minus8", 6)?;
    let chroma = bits.at_most("bit_depth_chroma_minus8", 6)?;
    // qpprime_y_zero_transform_bypass_flag
    bits.read(1)?;
    if bits.read(1)? == 1 {
        let lists = if chroma_format == YUV_444 { 12 } else { 8 };
        for list in 0..lists {
            if bits.read(1)? == 1 {
                scaling_list(bits, if list < 6 { 16 } else { 64 })?;
            }
        }
    }
    Ok((chroma_format, 8 + luma.max(chroma) as u8))
}

/// Skips a scaling list of `len` entries (section 7.3.2.1.1.1).
fn scaling_list(bits: &mut Bits<'_>, len: usize) -> Result<(), SpsError> {
    let mut last = 8;
    for _ in 0..len {
        let delta = bits.signed()?;
        if !(-128..=127).contains(&delta) {
            return Err(SpsError::OutOfRange {
                field: "delta_scale",
            });
        }
        last = (last + delta).rem_euclid(256);
        if last == 0 {
            // The rest repeats the last value.
            break;
        }
    }
    Ok(())
}

/// Skips the fields of frame number and picture order count.
fn picture_order(bits: &mut Bits<'_>) -> Result<(), SpsError> {
    bits.at_most("log2_max_frame_num_minus4", 12)?;
    match bits.at_most("pic_order_cnt_type", 2)? {
        0 => {
            bits.at_most("log2_max_pic_order_cnt_lsb_minus4", 12)?;
        }
        1 => {
            // delta_pic_order_always_zero_flag
            bits.read(1)?;
            bits.signed()?;
            bits.signed()?;
            let cycle = bits.at_most("num_ref_frames_in_pic_order_cnt_cycle", 255)?;
            for _ in 0..cycle {
                bits.signed()?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn picture_size(bits: &mut Bits<'_>, chroma_format: u8, bit_depth: u8) -> Result<Sps, SpsError> {
    let blocks = |minus_one| (minus_one + 1) * MACROBLOCK;
    let most = MAX_COORDINATE / MACROBLOCK - 1;
    let coded_width = blocks(bits.at_most("pic_width_in_mbs_minus1", most)?);
    let height = blocks(bits.at_most("pic_height_in_map_units_minus1", most)?);
    let fields = 2 - bits.read(1)?;
    let coded_height = height * fields;
    if coded_height > MAX_COORDINATE {
        return Err(SpsError::OutOfRange {
            field: "pic_height_in_map_units_minus1",
        });
    }
    if fields == 2 {
        // mb_adaptive_frame_field_flag
        bits.read(1)?;
    }
    // direct_8x8_inference_flag
    bits.read(1)?;
    let mut sps = Sps {
        coded_width,
        coded_height,
        width: coded_width,
        height: coded_height,
        chroma_format,
        bit_depth,
        colour: UNSPECIFIED,
    };
    if bits.read(1)? == 1 {
        // Units of the cropping rectangle, equations 7-19 to 7-22.
        let x = if matches!(chroma_format, 1 | 2) { 2 } else { 1 };
        let y = fields * if chroma_format == YUV_420 { 2 } else { 1 };
        sps.width = cropped(bits, coded_width, x)?;
        sps.height = cropped(bits, coded_height, y)?;
    }
    Ok(sps)
}

/// Colour description in the usability information (section E.1.1).
fn colour(bits: &mut Bits<'_>) -> Result<[u8; 3], SpsError> {
    // vui_parameters_present_flag
    if bits.read(1)? == 0 {
        return Ok(UNSPECIFIED);
    }
    // aspect_ratio_info_present_flag
    if bits.read(1)? == 1 && bits.read(8)? == EXTENDED_SAR {
        bits.read(32)?;
    }
    // overscan_info_present_flag
    if bits.read(1)? == 1 {
        bits.read(1)?;
    }
    // video_signal_type_present_flag
    if bits.read(1)? == 0 {
        return Ok(UNSPECIFIED);
    }
    // Format and range, then colour_description_present_flag.
    bits.read(4)?;
    if bits.read(1)? == 0 {
        return Ok(UNSPECIFIED);
    }
    let mut code = || bits.read(8).map(|code| code as u8);
    Ok([code()?, code()?, code()?])
}

/// Reads two cropping offsets in units of `unit` samples, and returns what they leave of `coded`.
fn cropped(bits: &mut Bits<'_>, coded: u32, unit: u32) -> Result<u32, SpsError> {
    let field = "frame_crop_offset";
    let most = coded / unit;
    let cut = bits.at_most(field, most)? + bits.at_most(field, most)?;
    match coded.checked_sub(cut * unit) {
        None | Some(0) => Err(SpsError::OutOfRange { field }),
        Some(rest) => Ok(rest),
    }
}

/// Reader of a raw byte sequence payload. Skips emulation prevention bytes (section 7.4.1).
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// Zeros before the next byte.
    zeros: u8,
    current: u8,
    left: u8,
}

impl<'a> Bits<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            zeros: 0,
            current: 0,
            left: 0,
        }
    }

    fn byte(&mut self) -> Result<u8, SpsError> {
        let mut take = || {
            let (first, rest) = self.bytes.split_first().ok_or(SpsError::Truncated)?;
            self.bytes = rest;
            Ok(*first)
        };
        let mut byte = take()?;
        if self.zeros >= 2 && byte == EMULATION_PREVENTION {
            self.zeros = 0;
            byte = take()?;
        }
        self.zeros = if byte == 0 { self.zeros + 1 } else { 0 };
        if self.zeros > 2 {
            // Three zeros do not occur in a NAL unit.
            return Err(SpsError::Truncated);
        }
        Ok(byte)
    }

    /// The next `count` bits, at most 32.
    pub(super) fn read(&mut self, count: u8) -> Result<u32, SpsError> {
        let mut value = 0;
        for _ in 0..count {
            if self.left == 0 {
                self.current = self.byte()?;
                self.left = 8;
            }
            self.left -= 1;
            value = value << 1 | u32::from(self.current >> self.left & 1);
        }
        Ok(value)
    }

    /// An Exp-Golomb code, `ue(v)` of section 9.1: at most 2^32 - 2.
    pub(super) fn unsigned(&mut self) -> Result<u32, SpsError> {
        let mut zeros = 0;
        while self.read(1)? == 0 {
            zeros += 1;
            if zeros > 31 {
                return Err(SpsError::OutOfRange {
                    field: "Exp-Golomb code",
                });
            }
        }
        let rest = self.read(zeros)?;
        Ok(((1_u64 << zeros) - 1 + u64::from(rest)) as u32)
    }

    /// A signed Exp-Golomb code, `se(v)` of section 9.1.1.
    fn signed(&mut self) -> Result<i32, SpsError> {
        let code = i64::from(self.unsigned()?);
        let magnitude = (code + 1) / 2;
        Ok((if code % 2 == 1 { magnitude } else { -magnitude }) as i32)
    }

    /// An Exp-Golomb code of a field with the range `0..=most`.
    fn at_most(&mut self, field: &'static str, most: u32) -> Result<u32, SpsError> {
        let value = self.unsigned()?;
        if value > most {
            return Err(SpsError::OutOfRange { field });
        }
        Ok(value)
    }
}

/// Reason why a NAL unit is not a sequence parameter set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpsError {
    /// The unit has another type.
    #[error("NAL unit {first:#04x} is not a sequence parameter set")]
    NotAnSps {
        /// First byte of the unit.
        first: u8,
    },
    /// A value is outside of its range.
    #[error("{field} of the sequence parameter set is out of range")]
    OutOfRange {
        /// Name of the field in the standard.
        field: &'static str,
    },
    /// The profile is unknown.
    #[error("unknown H.264 profile {profile}")]
    Profile {
        /// `profile_idc`.
        profile: u8,
    },
    /// The unit ends within the fields.
    #[error("the sequence parameter set is truncated")]
    Truncated,
}

/// Width and height up to which sizes are read, in luma samples. Level 6.2, the highest, allows
/// sqrt(8 * 139,264) = 1,055 macroblocks, or 16,880 (table A-1).
const MAX_COORDINATE: u32 = 1 << 15;
const MACROBLOCK: u32 = 16;
const EMULATION_PREVENTION: u8 = 3;
const EXTENDED_SAR: u32 = 255;
const UNSPECIFIED: [u8; 3] = [2; 3];
const YUV_420: u8 = 1;
const YUV_444: u8 = 3;
const BASELINE: u8 = 66;
const MAIN: u8 = 77;
const EXTENDED: u8 = 88;
/// Profiles whose parameter sets have the sample format (section 7.3.2.1.1), without those for
/// which decoders disagree.
const HIGH_PROFILES: [u8; 10] = [100, 110, 122, 244, 44, 83, 86, 118, 128, 138];

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Writes the fields of a parameter set, with emulation prevention.
    #[derive(Default)]
    struct Writer(Vec<bool>);

    impl Writer {
        fn bits(&mut self, value: u32, count: u32) -> &mut Self {
            self.0.extend((0..count).rev().map(|n| value >> n & 1 == 1));
            self
        }

        fn code(&mut self, value: u32) -> &mut Self {
            let len = 32 - (value + 1).leading_zeros();
            self.bits(0, len - 1).bits(value + 1, len)
        }

        fn nal(&mut self) -> Vec<u8> {
            // rbsp_trailing_bits
            self.bits(1, 1);
            let mut nal = vec![0x67];
            for byte in self.0.chunks(8) {
                let byte = byte
                    .iter()
                    .zip((0..8).rev())
                    .fold(0, |all, (bit, n)| all | u8::from(*bit) << n);
                if byte <= 3 && nal.ends_with(&[0, 0]) {
                    nal.push(EMULATION_PREVENTION);
                }
                nal.push(byte);
            }
            nal
        }
    }

    /// A progressive picture of whole macroblocks in baseline profile.
    fn baseline(width: u32, height: u32) -> Writer {
        let mut writer = Writer::default();
        writer.bits(u32::from(BASELINE), 8).bits(40, 16).code(0);
        writer.code(0).code(2).code(1).bits(0, 1);
        writer
            .code(width / 16 - 1)
            .code(height / 16 - 1)
            .bits(0b11, 2);
        writer
    }

    #[test]
    fn parameter_sets_of_encoders_are_read() {
        // Of x264, high profile.
        let high = [
            0x67, 0x64, 0x00, 0x1e, 0xac, 0xd9, 0x40, 0xa0, 0x2f, 0xf9, 0x70, 0x11, 0x00, 0x00,
            0x03, 0x00, 0x01, 0x00, 0x00, 0x03, 0x00, 0x32, 0x0f, 0x16, 0x2d, 0x96,
        ];
        let found = Sps::parse(&high).unwrap();
        assert_eq!((found.width, found.height), (640, 360));
        assert_eq!((found.coded_width, found.coded_height), (640, 368));
        assert_eq!((found.chroma_format, found.bit_depth), (1, 8));
    }

    #[test]
    fn large_sizes_are_read_with_their_cropping_rectangle() {
        // 16,000 x 16,000 of which 16 x 16 are shown.
        let mut writer = baseline(16_000, 16_000);
        writer.bits(1, 1).code(0).code(7_992).code(0).code(7_992);
        let found = Sps::parse(&writer.nal()).unwrap();
        assert_eq!((found.coded_width, found.coded_height), (16_000, 16_000));
        assert_eq!((found.width, found.height), (16, 16));
    }

    #[test]
    fn interlaced_and_high_formats_are_read() {
        let mut writer = Writer::default();
        writer.bits(244, 8).bits(40, 16).code(0);
        // 4:4:4, one colour plane, 12 and 14 bits; a scaling list that ends early, and a full one.
        writer.code(3).bits(0, 1).code(4).code(6).bits(0b01, 2);
        writer.bits(1, 1).code(16).bits(1, 1);
        for _ in 0..16 {
            writer.code(1);
        }
        writer.bits(0, 10);
        // Picture order count of type 1, with a cycle of 2.
        writer.code(0).code(1).bits(0, 1).code(3).code(4);
        writer.code(2).code(1).code(2);
        writer.code(4).bits(0, 1).code(119).code(33).bits(0b011, 3);
        writer.bits(1, 1).code(0).code(0).code(0).code(4);
        let found = Sps::parse(&writer.nal()).unwrap();
        let wanted = Sps {
            coded_width: 1_920,
            coded_height: 1_088,
            width: 1_920,
            height: 1_080,
            chroma_format: 3,
            bit_depth: 14,
            colour: UNSPECIFIED,
        };
        assert_eq!(found, wanted);
    }

    #[test]
    fn the_colour_description_is_read() {
        // No cropping; a pixel of 64:45, overscan, full range, and BT.2020 with PQ.
        let mut writer = baseline(640, 368);
        writer.bits(0b011, 3).bits(255, 8).bits(64, 16).bits(45, 16);
        writer.bits(0b10, 2).bits(1, 1).bits(5, 3).bits(0b11, 2);
        writer.bits(9, 8).bits(16, 8).bits(9, 8);
        let nal = writer.nal();
        assert_eq!(Sps::parse(&nal).unwrap().colour, [9, 16, 9]);
        // Cut within the description.
        let cut = Sps::parse(&nal[..nal.len() - 3]).unwrap();
        assert_eq!((cut.width, cut.colour), (640, UNSPECIFIED));
    }

    #[test]
    fn malformed_parameter_sets_are_rejected() {
        let mut whole = baseline(640, 368);
        let nal = whole.bits(0, 1).nal();
        assert!(Sps::parse(&nal).is_ok());
        for len in 0..nal.len() - 1 {
            assert_eq!(Sps::parse(&nal[..len]), Err(SpsError::Truncated), "{len}");
        }
        assert_eq!(
            Sps::parse(&[0x68, 1]),
            Err(SpsError::NotAnSps { first: 0x68 })
        );
        assert_eq!(
            Sps::parse(&[0x67, 144, 0, 40, 0xff]),
            Err(SpsError::Profile { profile: 144 })
        );
        let field = |writer: &mut Writer| match Sps::parse(&writer.nal()) {
            Err(SpsError::OutOfRange { field }) => field,
            other => panic!("{other:?}"),
        };
        assert_eq!(field(&mut baseline(65_536, 16)), "pic_width_in_mbs_minus1");
        let mut cropped = baseline(64, 64);
        cropped.bits(1, 1).code(16).code(16).code(0).code(0);
        assert_eq!(field(&mut cropped), "frame_crop_offset");
        let mut endless = Writer::default();
        endless.bits(66, 8).bits(40, 16).bits(0, 32).bits(1, 1);
        assert_eq!(field(&mut endless), "Exp-Golomb code");
    }

    proptest! {
        #[test]
        fn sizes_round_trip(
            columns in 1_u32..2_049,
            rows in 1_u32..2_049,
            cut in 0_u32..8,
        ) {
            let mut writer = baseline(16 * columns, 16 * rows);
            writer.bits(1, 1).code(cut).code(0).code(0).code(cut);
            let found = Sps::parse(&writer.nal()).unwrap();
            prop_assert_eq!((found.coded_width, found.coded_height), (16 * columns, 16 * rows));
            prop_assert_eq!((found.width, found.height), (16 * columns - 2 * cut, 16 * rows - 2 * cut));
        }

        #[test]
        fn any_bytes_have_a_size_in_range_or_an_error(
            profile in prop::sample::select(&[66_u8, 77, 100, 244][..]),
            bytes in vec(any::<u8>(), 0..60),
        ) {
            let nal = [&[0x67, profile, 0, 40][..], &bytes].concat();
            if let Ok(found) = Sps::parse(&nal) {
                prop_assert!((1..=found.coded_width).contains(&found.width));
                prop_assert!((1..=found.coded_height).contains(&found.height));
                prop_assert!(found.coded_width.max(found.coded_height) <= MAX_COORDINATE);
            }
        }
    }
}
