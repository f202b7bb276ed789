//! FFmpeg's decoders of H.264 and MPEG-2.

use std::sync::Once;

use ffmpeg_the_third as ffmpeg;
use tidegate_core::media::Codec;

use crate::conversion::is_full_range;
use crate::decoder::DecodeError;
use crate::picture::{Picture, Size};
use crate::sandbox::protocol::Output;

/// Decoder in this process. Pictures leave in display order.
pub(crate) struct NativeDecoder {
    inner: ffmpeg::decoder::Video,
    frame: ffmpeg::frame::Video,
    /// Number of the next access unit.
    next: i64,
    /// Access units whose pictures wait for their turn.
    held: i32,
}

/// Result of decoding an access unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// No picture.
    Nothing,
    /// No picture yet: it is shown after a later one.
    Delayed,
    /// A picture without detected damage.
    Whole(Output),
    /// A picture with concealed parts.
    Damaged(Output),
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
        context.set_threading(ffmpeg::threading::Config {
            kind: ffmpeg::threading::Type::None,
            count: 1,
            ..ffmpeg::threading::Config::default()
        });
        // SAFETY: the pointer is valid as long as the context; one integer is written before the
        // decoder is opened.
        unsafe {
            (*context.as_mut_ptr()).max_pixels = (max.coded_samples() + ALIGNMENT) as i64;
        }
        let opened = context.decoder().open_as(native);
        let inner = opened
            .and_then(ffmpeg::decoder::Opened::video)
            .map_err(|e| DecodeError::Refused(codec, e.to_string()))?;
        Ok(Self {
            inner,
            frame: ffmpeg::frame::Video::empty(),
            next: 0,
            held: 0,
        })
    }

    /// Decodes one access unit. Its picture is available until the next call. An empty one is the
    /// end of the stream: each call yields a picture that has waited for its turn.
    pub(crate) fn decode(&mut self, unit: &[u8]) -> Outcome {
        if unit.is_empty() {
            return self.drain();
        }
        // The decoder holds back pictures as long as their order requires, and one packet yields at
        // most one frame.
        let mut packet = ffmpeg::Packet::copy(unit);
        packet.set_pts(Some(self.next));
        packet.set_dts(Some(self.next));
        self.next += 1;
        let sent = self.inner.send_packet(&packet);
        if self.inner.receive_frame(&mut self.frame).is_err() {
            return if sent.is_ok() && self.held < self.reordering() {
                self.held += 1;
                Outcome::Delayed
            } else {
                Outcome::Nothing
            };
        }
        self.received(sent.is_ok())
    }

    fn drain(&mut self) -> Outcome {
        // Fails from the second call on.
        let _ = self.inner.send_eof();
        if self.inner.receive_frame(&mut self.frame).is_err() {
            self.reset();
            return Outcome::Nothing;
        }
        self.received(true)
    }

    fn received(&self, is_unit_good: bool) -> Outcome {
        let number = self.frame.pts().unwrap_or(self.next - 1);
        let behind = u8::try_from(self.next - 1 - number).unwrap_or(0);
        let whole = is_unit_good && intact(&self.frame);
        match size(&self.frame).map(|size| Output { size, behind }) {
            None => Outcome::Nothing,
            Some(output) if whole => Outcome::Whole(output),
            Some(output) => Outcome::Damaged(output),
        }
    }

    /// Number of pictures that may wait for their turn, according to the stream or as measured.
    fn reordering(&self) -> i32 {
        // SAFETY: the pointer is valid as long as the context; one integer is read.
        unsafe { (*self.inner.as_ptr()).has_b_frames }
    }

    /// Copies the picture to `out`, planes without gaps, with limited range. `out` has exactly its
    /// bytes.
    pub(crate) fn copy_picture(&self, size: Size, out: &mut [u8]) {
        copy_planes(&self.frame, size, out);
        if is_full_range(&self.frame) {
            limit_range(size, out);
        }
    }

    /// Discards all reference pictures.
    pub(crate) fn reset(&mut self) {
        self.held = 0;
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

/// Size of an I420 frame. `None` if the format or the size is not supported.
fn size(frame: &ffmpeg::frame::Video) -> Option<Size> {
    use ffmpeg::format::Pixel;
    let supported = matches!(frame.format(), Pixel::YUV420P | Pixel::YUVJ420P);
    let size = Size::new(frame.width(), frame.height()).ok();
    size.filter(|_| supported)
}

/// Copies an I420 frame into `slot`. Does nothing if the format or the size is not supported.
pub(crate) fn copy<'a>(
    frame: &ffmpeg::frame::Video,
    slot: &'a mut Option<Picture>,
) -> Option<&'a Picture> {
    let size = size(frame)?;
    let picture = Picture::resized(slot, size);
    copy_planes(frame, size, picture.as_i420_mut());
    Some(picture)
}

fn copy_planes(frame: &ffmpeg::frame::Video, size: Size, out: &mut [u8]) {
    let (y, chroma) = out.split_at_mut(size.luma());
    let (u, v) = chroma.split_at_mut(chroma.len() / 2);
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
}

/// Converts full range to limited range (ITU-T H.273 section 8.3): luma from 0 to 255 becomes 16 to
/// 235, and chroma 16 to 240.
fn limit_range(size: Size, picture: &mut [u8]) {
    let (luma, chroma) = picture.split_at_mut(size.luma());
    let scale = |samples: &mut [u8], span: u32| {
        let table: [u8; 256] = std::array::from_fn(|n| 16 + ((n as u32 * span + 127) / 255) as u8);
        for sample in samples {
            *sample = table[usize::from(*sample)];
        }
    };
    scale(luma, 219);
    scale(chroma, 224);
}

/// FFmpeg counts rows padded to the alignment of vector instructions: at most 64 samples more in
/// each of up to 8,192 rows.
const ALIGNMENT: u64 = 64 * 8_192;
