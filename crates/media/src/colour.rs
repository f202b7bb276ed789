//! Colour description of pictures (ITU-T H.273).

#[cfg(feature = "ffmpeg")]
use ffmpeg_the_third as ffmpeg;

#[cfg(feature = "ffmpeg")]
use crate::picture::Size;

/// Code points of a colour description (ITU-T H.273 section 8); 2 is unspecified. The range is
/// limited in all pictures of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour {
    /// Colour primaries, table 2.
    pub primaries: u8,
    /// Transfer characteristics, table 3.
    pub transfer: u8,
    /// Matrix coefficients, table 4.
    pub matrix: u8,
}

impl Colour {
    /// No description.
    pub const UNSPECIFIED: Self = Self {
        primaries: UNSPECIFIED,
        transfer: UNSPECIFIED,
        matrix: UNSPECIFIED,
    };
}

#[cfg(feature = "ffmpeg")]
impl Colour {
    /// Matrix for pictures that were RGB: BT.709 from 720 lines on, and BT.601 below, as players
    /// assume.
    pub(crate) const fn matrix_for_rgb(size: Size) -> u8 {
        if size.height() >= 720 { BT709 } else { BT601 }
    }

    /// Description of a frame. FFmpeg has the code points of H.273.
    pub(crate) fn of(frame: &ffmpeg::frame::Video) -> Self {
        // SAFETY: the pointer of a frame is valid as long as the frame; three integers are read.
        let codes = unsafe {
            let raw = frame.as_ptr();
            [
                (*raw).color_primaries.0,
                (*raw).color_trc.0,
                (*raw).colorspace.0,
            ]
        };
        // FFmpeg has values of its own above the range of H.273.
        let [primaries, transfer, matrix] =
            codes.map(|code| u8::try_from(code).unwrap_or(UNSPECIFIED));
        Self {
            primaries,
            transfer,
            matrix,
        }
    }

    /// Name of the transfer characteristics if they are of high dynamic range.
    pub(crate) const fn high_dynamic_range(self) -> Option<&'static str> {
        match self.transfer {
            16 => Some("PQ"),
            18 => Some("HLG"),
            _ => None,
        }
    }
}

const UNSPECIFIED: u8 = 2;
#[cfg(feature = "ffmpeg")]
const BT709: u8 = 1;
#[cfg(feature = "ffmpeg")]
const BT601: u8 = 6;
