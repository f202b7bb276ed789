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

    /// The size of pictures of which each sample is the mean of `n` x `n`; `None` if it is out of
    /// range.
    pub fn divided(self, n: u32) -> Option<Self> {
        let even = |length: u32| length / n.max(1) / 2 * 2;
        Self::new(even(self.width), even(self.height)).ok()
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// Odd, too small or too large.
    #[error(
        "invalid picture size {width}x{height}: width and height must be even and within \
         {LEAST} to {MOST}"
    )]
    OutOfRange {
        /// Requested width.
        width: u32,
        /// Requested height.
        height: u32,
    },
    /// The text is not two numbers with an `x` between them.
    #[error("\"{0}\" is not a picture size: write it as 640x360")]
    NotASize(String),
}

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

    /// Fills this picture from one that is `n` times as wide and as high, or up to `2 * n - 1` samples
    /// wider and higher. Each sample is the mean of `n` x `n` samples.
    pub fn fill_from_larger(&mut self, larger: &Self, n: u32) {
        let widths = [self.size, larger.size].map(|size| size.width as usize);
        let halves = widths.map(|width| width / 2);
        let (to, from, n) = (self.planes_mut(), larger.planes(), n as usize);
        average(to.y, from.y, widths, n);
        average(to.u, from.u, halves, n);
        average(to.v, from.v, halves, n);
    }
}

/// Fills the plane `to` with means of `n` x `n` samples of the plane `from`. `widths` are of both.
fn average(to: &mut [u8], from: &[u8], widths: [usize; 2], n: usize) {
    let samples = (n * n) as u32;
    for (row, line) in to.chunks_exact_mut(widths[0]).enumerate() {
        let rows = from.chunks_exact(widths[1]).skip(row * n).take(n);
        let mut sums = vec![samples / 2; widths[0]];
        for row in rows {
            for (sum, group) in sums.iter_mut().zip(row.chunks_exact(n)) {
                *sum += group.iter().map(|sample| u32::from(*sample)).sum::<u32>();
            }
        }
        for (sample, sum) in line.iter_mut().zip(sums) {
            *sample = (sum / samples) as u8;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes do not match a picture of {size}, which has {} bytes", .size.bytes())]
pub struct PictureError {
    /// Size of the picture.
    pub size: Size,
    /// Number of bytes given.
    pub bytes: usize,
}

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
    fn a_smaller_picture_has_the_means_of_the_larger_one() {
        let large = Size::new(38, 34).unwrap();
        let small = large.divided(2).unwrap();
        assert_eq!(Size::new(18, 16), Ok(small));
        assert_eq!(Size::new(30, 32).unwrap().divided(2), None);
        let mut from = Picture::black(large);
        for (n, sample) in from.planes_mut().y.iter_mut().enumerate() {
            *sample = if n % 2 == 0 { 100 } else { 103 };
        }
        from.planes_mut().v[0] = 129;
        let mut to = Picture::black(small);
        to.fill_from_larger(&from, 2);
        assert!(to.planes().y.iter().all(|sample| *sample == 102));
        assert!(
            to.planes()
                .u
                .iter()
                .chain(to.planes().v)
                .all(|sample| *sample == 128)
        );
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
