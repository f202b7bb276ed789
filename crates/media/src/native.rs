//! FFmpeg's decoders of H.264 and MPEG-2.

use std::sync::Once;

use ffmpeg_the_third as ffmpeg;
use tidegate_core::media::Codec;

use crate::decoder::DecodeError;
use crate::picture::{Picture, PlanesMut, Size};
use crate::picture_limit::max_samples;

/// Decoder without reordering and without delay, in this process.
pub(crate) struct NativeDecoder {
    inner: ffmpeg::decoder::Video,
    frame: ffmpeg::frame::Video,
}

/// Result of decoding an access unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// No picture.
    Nothing,
    /// A picture without detected damage.
    Whole,
    /// A picture with concealed parts.
    Damaged,
}

impl NativeDecoder {
    pub(crate) fn open(codec: Codec, max: Size) -> Result<Self, DecodeError> {
        ffmpeg::log::set_level(ffmpeg::log::Level::Quiet);
        let id = match codec {
            Codec::H264 => ffmpeg::codec::Id::H264,
            Codec::Mpeg2 => ffmpeg::codec::Id::MPEG2VIDEO,
        };
        let native = ffmpeg::decoder::find(id).ok_or(DecodeError::NoCodec(codec))?;
        let mut context = ffmpeg::codec::Context::new_with_codec(native);
        context.set_flags(ffmpeg::codec::Flags::LOW_DELAY);
        context.set_threading(ffmpeg::threading::Config {
            kind: ffmpeg::threading::Type::None,
            count: 1,
            ..ffmpeg::threading::Config::default()
        });
        // SAFETY: the pointer is valid as long as the context; one integer is written before the
        // decoder is opened.
        unsafe {
            (*context.as_mut_ptr()).max_pixels = (max_samples(max) + ALIGNMENT) as i64;
        }
        let opened = context.decoder().open_as(native);
        let inner = opened
            .and_then(ffmpeg::decoder::Opened::video)
            .map_err(|e| DecodeError::Refused(codec, e.to_string()))?;
        Ok(Self {
            inner,
            frame: ffmpeg::frame::Video::empty(),
        })
    }

    /// Decodes one access unit, and copies its picture to `slot`.
    pub(crate) fn decode(&mut self, unit: &[u8], slot: &mut Option<Picture>) -> Outcome {
        // Without reordering the decoder holds back no frame, so one packet yields at most one
        // frame.
        let sent = self.inner.send_packet(&ffmpeg::Packet::copy(unit));
        if self.inner.receive_frame(&mut self.frame).is_err() {
            return Outcome::Nothing;
        }
        let whole = sent.is_ok() && intact(&self.frame);
        match copy(&self.frame, slot) {
            None => Outcome::Nothing,
            Some(_) if whole => Outcome::Whole,
            Some(_) => Outcome::Damaged,
        }
    }

    /// Discards all reference pictures.
    pub(crate) fn reset(&mut self) {
        self.inner.flush();
    }
}

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

/// FFmpeg counts rows padded to the alignment of vector instructions: at most 64 samples more in
/// each of up to 8,192 rows.
const ALIGNMENT: u64 = 64 * 8_192;
