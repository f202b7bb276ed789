//! Pictures: planar Y, U, V with chroma halved both ways (I420), 8 bits, no padding.

use core::fmt;
use core::str::FromStr;

/// Width and height of a picture in luma samples: both even, each in `16..=8192`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size {
    width: u32,
    height: u32,
}

impl Size {
    /// Largest 16:9 picture of H.264 levels 5.1 and 5.2, 36,864 macroblocks: more than 4K at 60
    /// frames a second needs (3840x2160).
    pub const LEVEL_5_2: Self = Self {
        width: 4096,
        height: 2304,
    };

    /// Validates width and height.
    ///
    /// # Errors
    /// If one of them is odd or out of range.
    pub fn new(width: u32, height: u32) -> Result<Self, SizeError> {
        let fits = |n: u32| n.is_multiple_of(2) && (LEAST..=MOST).contains(&n);
        if fits(width) && fits(height) {
            Ok(Self { width, height })
        } else {
            Err(SizeError::OutOfRange { width, height })
        }
    }

    /// In luma samples.
    pub const fn width(self) -> u32 {
        self.width
    }

    /// In luma samples.
    pub const fn height(self) -> u32 {
        self.height
    }

    /// Luma samples of a picture.
    pub const fn luma(self) -> usize {
        self.width as usize * self.height as usize
    }

    /// Most luma samples of a picture that a decoder with this limit holds.
    pub(crate) fn coded_samples(self) -> u64 {
        let [width, height] = coded_size(self.width, self.height);
        u64::from(width) * u64::from(height)
    }

    /// Bytes of a picture, all planes.
    pub const fn bytes(self) -> usize {
        self.luma() / 2 * 3
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

/// Parses the printed form, `640x360`.
impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let number = |part: &str| part.parse().ok();
        text.split_once('x')
            .and_then(|(w, h)| Some((number(w)?, number(h)?)))
            .ok_or_else(|| SizeError::NotASize(text.to_owned()))
            .and_then(|(w, h)| Self::new(w, h))
    }
}

/// Width and height in whole macroblocks, or pairs of macroblocks in interlaced video.
pub(crate) fn coded_size(width: u32, height: u32) -> [u32; 2] {
    [
        width.next_multiple_of(LEAST),
        height.next_multiple_of(2 * LEAST),
    ]
}

/// Error of a picture size.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SizeError {
    /// Odd, too small or too large.
    OutOfRange {
        /// Requested width.
        width: u32,
        /// Requested height.
        height: u32,
    },
    /// The text is not two numbers with an `x` between them.
    NotASize(String),
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { width, height } => write!(
                f,
                "invalid picture size {width}x{height}: \
                 width and height must be even and within {LEAST} to {MOST}"
            ),
            Self::NotASize(text) => {
                write!(f, "\"{text}\" is not a picture size: write it as 640x360")
            }
        }
    }
}

impl core::error::Error for SizeError {}

/// One picture. The planes follow each other in one buffer without gaps.
#[derive(Clone, PartialEq, Eq)]
pub struct Picture {
    size: Size,
    data: Vec<u8>,
}

impl Picture {
    /// A black picture (Y 16, U and V 128, as in ITU-R BT.601).
    pub fn black(size: Size) -> Self {
        let mut data = vec![128; size.bytes()];
        data[..size.luma()].fill(16);
        Self { size, data }
    }

    /// Creates a picture from Y, U and V in the order of a raw `.yuv` file.
    ///
    /// # Errors
    /// If the number of bytes does not match the size.
    pub fn from_i420(size: Size, data: Vec<u8>) -> Result<Self, PictureError> {
        if data.len() == size.bytes() {
            Ok(Self { size, data })
        } else {
            Err(PictureError {
                size,
                bytes: data.len(),
            })
        }
    }

    /// Width and height.
    pub const fn size(&self) -> Size {
        self.size
    }

    /// Y, U and V in the order of a raw `.yuv` file.
    pub fn as_i420(&self) -> &[u8] {
        &self.data
    }

    /// [`as_i420`](Self::as_i420), mutable.
    #[cfg(feature = "ffmpeg")]
    pub(crate) fn as_i420_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }

    /// The three planes.
    pub fn planes(&self) -> Planes<'_> {
        let (y, chroma) = self.data.split_at(self.size.luma());
        let (u, v) = chroma.split_at(chroma.len() / 2);
        Planes { y, u, v }
    }

    /// The three planes, mutable.
    pub fn planes_mut(&mut self) -> PlanesMut<'_> {
        let (y, chroma) = self.data.split_at_mut(self.size.luma());
        let (u, v) = chroma.split_at_mut(chroma.len() / 2);
        PlanesMut { y, u, v }
    }

    /// The picture in `slot`, with this size. The content is lost if the size differs.
    #[cfg(feature = "ffmpeg")]
    pub(crate) fn resized(slot: &mut Option<Self>, size: Size) -> &mut Self {
        let picture = slot.get_or_insert_with(|| Self::black(size));
        picture.resize(size);
        picture
    }

    /// Changes the size. The content is lost if the size differs.
    pub fn resize(&mut self, size: Size) {
        if self.size != size {
            *self = Self::black(size);
        }
    }
}

impl fmt::Debug for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Picture({})", self.size)
    }
}

/// The planes of a picture, row by row; U and V have half the width and half the height of Y.
#[derive(Clone, Copy, Debug)]
pub struct Planes<'a> {
    /// Luma.
    pub y: &'a [u8],
    /// Blue difference.
    pub u: &'a [u8],
    /// Red difference.
    pub v: &'a [u8],
}

/// Mutable [`Planes`].
#[derive(Debug)]
pub struct PlanesMut<'a> {
    /// Luma.
    pub y: &'a mut [u8],
    /// Blue difference.
    pub u: &'a mut [u8],
    /// Red difference.
    pub v: &'a mut [u8],
}

/// Number of bytes that does not match a picture size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureError {
    /// Size of the picture.
    pub size: Size,
    /// Number of bytes given.
    pub bytes: usize,
}

impl fmt::Display for PictureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes do not match a picture of {}, which has {} bytes",
            self.bytes,
            self.size,
            self.size.bytes()
        )
    }
}

impl core::error::Error for PictureError {}

/// Size of an H.264 macroblock.
const LEAST: u32 = 16;
/// Width of "8K", the maximum of all H.264 levels.
const MOST: u32 = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_errors_name_the_valid_sizes() {
        assert_eq!("640x360".parse(), Size::new(640, 360));
        for (w, h) in [(15, 16), (641, 360), (640, 8194), (0, 0)] {
            let refused = Size::new(w, h).unwrap_err().to_string();
            assert!(refused.contains("even and within 16 to 8192"), "{refused}");
        }
        let refused = "wide".parse::<Size>().unwrap_err().to_string();
        assert!(refused.contains("640x360"), "{refused}");
    }

    #[test]
    fn planes_are_contiguous() {
        let size = Size::new(16, 18).unwrap();
        let bytes: Vec<u8> = (0..size.bytes()).map(|i| (i % 251) as u8).collect();
        let mut picture = Picture::from_i420(size, bytes.clone()).unwrap();
        let Planes { y, u, v } = picture.planes();
        assert_eq!([y, u, v].concat(), bytes);
        assert_eq!((y.len(), u.len(), v.len()), (288, 72, 72));
        picture.planes_mut().v[71] = 7;
        assert_eq!(picture.as_i420()[431], 7);
        assert!(Picture::from_i420(size, vec![0; 3]).is_err());
    }
}
