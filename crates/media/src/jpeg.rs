//! JPEG pictures for pages, by FFmpeg's encoder.

use ffmpeg_the_third as ffmpeg;
use tidegate_core::media::EncodeError;

use crate::mpeg2::{LAMBDA_PER_STEP, fill};
use crate::native::quiet;
use crate::picture::Picture;

/// Encodes `picture` as a JPEG file (ITU-T T.81 with a JFIF header) at a quality at which its own
/// artefacts are not visible beside those of the video.
///
/// # Errors
/// If the installed FFmpeg lacks the encoder or rejects the size.
pub fn jpeg(picture: &Picture) -> Result<Vec<u8>, EncodeError> {
    quiet();
    let failed =
        |e: ffmpeg::Error| EncodeError::Codec(format!("libavcodec's mjpeg encoder failed: {e}"));
    let codec = ffmpeg::encoder::find(ffmpeg::codec::Id::MJPEG)
        .ok_or_else(|| EncodeError::Codec("the installed FFmpeg has no JPEG encoder".to_owned()))?;
    let (width, height) = (picture.size().width(), picture.size().height());
    let context = ffmpeg::codec::Context::new_with_codec(codec);
    let mut video = context.encoder().video().map_err(failed)?;
    video.set_width(width);
    video.set_height(height);
    video.set_format(FORMAT);
    video.set_time_base(ffmpeg::Rational(1, 1));
    video.set_flags(ffmpeg::codec::Flags::QSCALE);
    video.set_threading(ffmpeg::threading::Config {
        kind: ffmpeg::threading::Type::None,
        count: 1,
        ..ffmpeg::threading::Config::default()
    });
    let mut encoder = video.open_as(codec).map_err(failed)?;
    let mut frame = ffmpeg::frame::Video::new(FORMAT, width, height);
    fill(&mut frame, &full_range(picture));
    frame.set_pts(Some(0));
    // SAFETY: the pointer is valid as long as the frame; an integer is written.
    unsafe {
        (*frame.as_mut_ptr()).quality = QUANTISER * LAMBDA_PER_STEP;
    }
    encoder.send_frame(&frame).map_err(failed)?;
    let mut packet = ffmpeg::Packet::empty();
    encoder.receive_packet(&mut packet).map_err(failed)?;
    Ok(packet.data().unwrap_or_default().to_vec())
}

/// The samples in the range 0 to 255 of JFIF. Video has 16 to 235 for Y and 16 to 240 for U and V
/// (ITU-R BT.601).
fn full_range(picture: &Picture) -> Picture {
    let mut full = picture.clone();
    let planes = full.planes_mut();
    for sample in planes.y {
        *sample = stretched(*sample, 16, 219, 0);
    }
    for sample in planes.u.iter_mut().chain(planes.v) {
        *sample = stretched(*sample, 128, 224, 128);
    }
    full
}

/// Scales the distance of `sample` from `centre`, of `range` in all, to 255 around `to`.
fn stretched(sample: u8, centre: i32, range: i32, to: i32) -> u8 {
    let scaled = (i32::from(sample) - centre) * 255;
    let rounded = (scaled + scaled.signum() * range / 2) / range;
    (to + rounded).clamp(0, 255) as u8
}

const FORMAT: ffmpeg::format::Pixel = ffmpeg::format::Pixel::YUVJ420P;

/// Quantiser step, of 1 (finest) to 31.
const QUANTISER: i32 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::Size;
    use crate::scene::Scene;

    #[test]
    fn range_is_stretched() {
        let y = [16, 235, 0, 255].map(|sample| stretched(sample, 16, 219, 0));
        assert_eq!(y, [0, 255, 0, 255]);
        let chroma = [16, 128, 240].map(|sample| stretched(sample, 128, 224, 128));
        assert_eq!(chroma, [0, 128, 255]);
    }

    #[test]
    fn picture_is_a_file_that_decodes_to_it() {
        let size = Size::new(160, 96).expect("valid");
        let mut picture = Picture::black(size);
        Scene::new(1, size).render(30, &mut picture);
        let file = jpeg(&picture).expect("FFmpeg has the encoder");
        assert!(file.starts_with(&[0xff, 0xd8]) && file.ends_with(&[0xff, 0xd9]));
        let codec = ffmpeg::decoder::find(ffmpeg::codec::Id::MJPEG).expect("a decoder");
        let context = ffmpeg::codec::Context::new_with_codec(codec);
        let mut decoder = context.decoder().open_as(codec).unwrap().video().unwrap();
        decoder.send_packet(&ffmpeg::Packet::copy(&file)).unwrap();
        let mut frame = ffmpeg::frame::Video::empty();
        decoder.receive_frame(&mut frame).unwrap();
        assert_eq!((frame.width(), frame.height()), (160, 96));
        let wanted = full_range(&picture);
        let rows = frame.data(0).chunks(frame.stride(0));
        let mut error = 0.0;
        for (row, wanted) in rows.zip(wanted.planes().y.chunks(160)) {
            for (a, b) in row.iter().zip(wanted) {
                error += (f64::from(*a) - f64::from(*b)).powi(2);
            }
        }
        // 38 dB: finer than a video of the demo's rates.
        let mean = error / size.luma() as f64;
        assert!(mean < 10.3, "mean squared error {mean}");
    }
}
