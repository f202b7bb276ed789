//! H.264 and MPEG-2 by FFmpeg: an access unit in, its picture out.

use core::fmt;
use std::sync::Once;

use ffmpeg_the_third as ffmpeg;
use tidegate_core::media::Codec;

use crate::picture::{Picture, PlanesMut, Size};

/// A decoder of streams without reordering and without delay.
///
/// It goes on after damage: what is missing is made up from what there is, and shown as
/// [`Decoded::Damaged`] where FFmpeg notices. A picture that refers to one that never arrived is
/// not always noticed; who knows the frame numbers knows better.
pub struct Decoder {
    inner: ffmpeg::decoder::Video,
    frame: ffmpeg::frame::Video,
    picture: Option<Picture>,
    errors: u64,
}

/// What an access unit gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// No picture: the access unit is lost on the decoder.
    Nothing,
    /// A picture that the decoder believes to be right.
    Whole(&'a Picture),
    /// A picture, some of which is made up.
    Damaged(&'a Picture),
}

impl<'a> Decoded<'a> {
    /// The picture, right or not.
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
    /// When the installed FFmpeg has no such decoder.
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

    /// Decodes one access unit. Whatever the bytes are, this gives a picture or none.
    pub fn decode(&mut self, unit: &[u8]) -> Decoded<'_> {
        if unit.is_empty() {
            // FFmpeg takes nothing for the end of the stream.
            return Decoded::Nothing;
        }
        let mut whole = true;
        // The last frame is in the way if the decoder kept it back; it never does without
        // reordering, so one packet gives at most one frame.
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

    /// The picture that was decoded last.
    pub const fn last(&self) -> Option<&Picture> {
        self.picture.as_ref()
    }

    /// Access units so far that gave no picture or a damaged one.
    pub const fn errors(&self) -> u64 {
        self.errors
    }

    /// Forgets every picture: the next access unit has to be a key frame.
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

/// Why there is no decoder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// This FFmpeg was built without it.
    NoCodec(Codec),
    /// The decoder does not open.
    Refused(Codec, String),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCodec(codec) => write!(
                f,
                "the installed FFmpeg has no {} decoder; install one that has, as Debian's \
                 libavcodec does",
                codec.name()
            ),
            Self::Refused(codec, why) => {
                write!(f, "FFmpeg's {} decoder does not open: {why}", codec.name())
            }
        }
    }
}

impl core::error::Error for DecodeError {}

/// Silences FFmpeg, which would write to standard error from within the library, and makes
/// devices known.
pub(crate) fn quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        ffmpeg::log::set_level(ffmpeg::log::Level::Quiet);
        // Registers devices and cannot fail.
        let _ = ffmpeg::init();
    });
}

/// Whether FFmpeg decoded the whole frame.
pub(crate) fn intact(frame: &ffmpeg::frame::Video) -> bool {
    // SAFETY: a frame's pointer is valid for as long as the frame; two numbers are read.
    let (errors, flags) = unsafe {
        let raw = frame.as_ptr();
        ((*raw).decode_error_flags, (*raw).flags)
    };
    errors == 0 && flags & ffmpeg::ffi::AV_FRAME_FLAG_CORRUPT == 0
}

/// Copies a frame in I420 into `slot`. Nothing if it is of another kind or of a size that we do
/// not take.
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
