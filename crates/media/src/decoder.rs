//! H.264 and MPEG-2 decoder (FFmpeg): decodes an access unit to its picture.

use core::fmt;
use std::sync::Once;

use ffmpeg_the_third as ffmpeg;
use tidegate_core::media::Codec;

use crate::picture::{Picture, PlanesMut, Size};

/// Decoder of streams without reordering and without delay.
///
/// It continues after damage. Missing parts are concealed, and the picture is
/// [`Decoded::Damaged`] if FFmpeg detects the damage. FFmpeg does not always detect a missing
/// reference picture. The caller can detect it by frame numbers.
pub struct Decoder {
    inner: ffmpeg::decoder::Video,
    frame: ffmpeg::frame::Video,
    picture: Option<Picture>,
    errors: u64,
}

/// Result of decoding an access unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// No picture: the access unit is not decodable.
    Nothing,
    /// A picture without detected damage.
    Whole(&'a Picture),
    /// A picture with concealed parts.
    Damaged(&'a Picture),
}

impl<'a> Decoded<'a> {
    /// The picture, damaged or not.
    pub const fn picture(self) -> Option<&'a Picture> {
        match self {
            Self::Nothing => None,
            Self::Whole(picture) | Self::Damaged(picture) => Some(picture),
        }
    }
}

impl Decoder {
    /// Opens a decoder.
    ///
    /// # Errors
    /// If the installed FFmpeg lacks the decoder.
    pub fn open(kind: Codec) -> Result<Self, DecodeError> {
        quiet();
        let id = match kind {
            Codec::H264 => ffmpeg::codec::Id::H264,
            Codec::Mpeg2 => ffmpeg::codec::Id::MPEG2VIDEO,
        };
        let codec = ffmpeg::decoder::find(id).ok_or(DecodeError::NoCodec(kind))?;
        let mut context = ffmpeg::codec::Context::new_with_codec(codec);
        context.set_flags(ffmpeg::codec::Flags::LOW_DELAY);
        context.set_threading(ffmpeg::threading::Config {
            kind: ffmpeg::threading::Type::None,
            count: 1,
            ..ffmpeg::threading::Config::default()
        });
        let opened = context.decoder().open_as(codec);
        let inner = opened
            .and_then(ffmpeg::decoder::Opened::video)
            .map_err(|e| DecodeError::Refused(kind, e.to_string()))?;
        Ok(Self {
            inner,
            frame: ffmpeg::frame::Video::empty(),
            picture: None,
            errors: 0,
        })
    }

    /// Decodes one access unit. Arbitrary bytes are allowed.
    pub fn decode(&mut self, unit: &[u8]) -> Decoded<'_> {
        if unit.is_empty() {
            // An empty packet would be the end of the stream for FFmpeg.
            return Decoded::Nothing;
        }
        let mut whole = true;
        // Without reordering the decoder holds back no frame, so one packet yields at most one
        // frame.
        if self.inner.send_packet(&ffmpeg::Packet::copy(unit)).is_err() {
            whole = false;
        }
        if self.inner.receive_frame(&mut self.frame).is_err() {
            self.errors += 1;
            return Decoded::Nothing;
        }
        whole &= intact(&self.frame);
        let Some(picture) = copy(&self.frame, &mut self.picture) else {
            self.errors += 1;
            return Decoded::Nothing;
        };
        if whole {
            Decoded::Whole(picture)
        } else {
            self.errors += 1;
            Decoded::Damaged(picture)
        }
    }

    /// Last decoded picture.
    pub const fn last(&self) -> Option<&Picture> {
        self.picture.as_ref()
    }

    /// Number of access units without a picture or with a damaged one.
    pub const fn errors(&self) -> u64 {
        self.errors
    }

    /// Discards all reference pictures. The next access unit must be a key frame.
    pub fn reset(&mut self) {
        self.inner.flush();
        self.picture = None;
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("picture", &self.picture)
            .field("errors", &self.errors)
            .finish_non_exhaustive()
    }
}

/// Error of [`Decoder::open`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// FFmpeg was built without the decoder.
    NoCodec(Codec),
    /// FFmpeg failed to open the decoder.
    Refused(Codec, String),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCodec(codec) => write!(
                f,
                "the installed FFmpeg has no {} decoder; install a build with it, such as Debian's \
                 libavcodec",
                codec.name()
            ),
            Self::Refused(codec, why) => {
                write!(f, "cannot open FFmpeg's {} decoder: {why}", codec.name())
            }
        }
    }
}

impl core::error::Error for DecodeError {}

/// Disables FFmpeg's messages on standard error, and registers devices.
pub(crate) fn quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        ffmpeg::log::set_level(ffmpeg::log::Level::Quiet);
        // Registers devices; it cannot fail.
        let _ = ffmpeg::init();
    });
}

/// Whether FFmpeg decoded the whole frame.
pub(crate) fn intact(frame: &ffmpeg::frame::Video) -> bool {
    // SAFETY: the pointer of a frame is valid as long as the frame; two integers are read.
    let (errors, flags) = unsafe {
        let raw = frame.as_ptr();
        ((*raw).decode_error_flags, (*raw).flags)
    };
    errors == 0 && flags & ffmpeg::ffi::AV_FRAME_FLAG_CORRUPT == 0
}

/// Copies an I420 frame into `slot`. Does nothing if the format or the size is not supported.
pub(crate) fn copy<'a>(
    frame: &ffmpeg::frame::Video,
    slot: &'a mut Option<Picture>,
) -> Option<&'a Picture> {
    use ffmpeg::format::Pixel;
    if !matches!(frame.format(), Pixel::YUV420P | Pixel::YUVJ420P) {
        return None;
    }
    let size = Size::new(frame.width(), frame.height()).ok()?;
    let picture = slot.get_or_insert_with(|| Picture::black(size));
    picture.resize(size);
    let PlanesMut { y, u, v } = picture.planes_mut();
    let width = size.width() as usize;
    for (k, (plane, width)) in [(y, width), (u, width / 2), (v, width / 2)]
        .into_iter()
        .enumerate()
    {
        let stride = frame.stride(k);
        let rows = frame.data(k).chunks(stride);
        for (to, from) in plane.chunks_exact_mut(width).zip(rows) {
            to.copy_from_slice(&from[..width]);
        }
    }
    Some(picture)
}
