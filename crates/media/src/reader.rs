//! FFmpeg demultiplexer and decoder: a sequence of frames with timestamps.

use std::path::Path;

use ffmpeg_the_third as ffmpeg;
use libc::EAGAIN;
use tidegate_core::media::FrameRate;

use crate::native::{intact, quiet};
use crate::picture::Size;
use crate::source::SourceError;

pub(crate) struct Reader {
    name: String,
    input: ffmpeg::format::context::Input,
    decoder: ffmpeg::decoder::Video,
    stream: usize,
    /// Unit of timestamps in seconds.
    unit: ffmpeg::Rational,
    /// Mean frame rate according to the file.
    pub(crate) rate: FrameRate,
    /// Number of frames returned.
    pictures: u64,
    /// Duration according to the file, in ns; zero if unknown.
    stated_duration: i64,
    /// Times of the first and the latest packet of any stream, in ns.
    span: Option<(i64, i64)>,
    /// Whether the last picture was truncated or damaged.
    damaged: bool,
    /// Time of the last returned frame, in ns.
    time: i64,
}

impl Reader {
    pub(crate) fn open(name: &str) -> Result<Self, SourceError> {
        quiet();
        let unreadable = |why: &dyn ToString| SourceError::Unreadable {
            name: name.to_owned(),
            why: why.to_string(),
        };
        if name.contains('\0') {
            return Err(unreadable(&"the name contains a zero byte"));
        }
        let input = ffmpeg::format::input(url(name)).map_err(|e| unreadable(&e))?;
        let no_video = || SourceError::NoVideo {
            name: name.to_owned(),
        };
        let best = input.streams().best(ffmpeg::media::Type::Video);
        let best = best.ok_or_else(no_video)?;
        let rates = [best.avg_frame_rate(), best.rate()];
        let stream = best.index();
        let decoder = ffmpeg::codec::Context::from_parameters(best.parameters())
            .and_then(|context| context.decoder().video())
            .map_err(|e| unreadable(&e))?;
        if decoder.width() == 0 || decoder.height() == 0 {
            return Err(no_video());
        }
        Ok(Self {
            name: name.to_owned(),
            decoder,
            stream,
            unit: best.time_base(),
            rate: rates.into_iter().find_map(plausible).unwrap_or(ASSUMED),
            pictures: 0,
            stated_duration: stated_duration(&input),
            span: None,
            damaged: false,
            time: 0,
            input,
        })
    }

    /// Size of the pictures, made even and raised to the minimum.
    pub(crate) fn size(&self) -> Result<Size, SourceError> {
        let even = |n: u32| n.next_multiple_of(2).max(16);
        Size::new(even(self.decoder.width()), even(self.decoder.height())).map_err(|e| {
            SourceError::Unreadable {
                name: self.name.clone(),
                why: format!("{e}; ask for a smaller size"),
            }
        })
    }

    /// Decodes the next complete picture into `frame`, and returns its time in ns relative to an
    /// arbitrary epoch; `None` at the end. Damaged pictures are skipped.
    pub(crate) fn next(
        &mut self,
        frame: &mut ffmpeg::frame::Video,
    ) -> Result<Option<i64>, SourceError> {
        loop {
            match self.decoder.receive_frame(frame) {
                Ok(()) => {
                    self.damaged = !intact(frame);
                    if !self.damaged {
                        self.pictures += 1;
                        return Ok(Some(self.stamp(frame)));
                    }
                }
                Err(ffmpeg::Error::Other { errno: EAGAIN }) => self.feed()?,
                Err(ffmpeg::Error::Eof) if self.damaged || self.ends_early() => {
                    return Err(SourceError::Truncated {
                        name: self.name.clone(),
                        pictures: self.pictures,
                    });
                }
                Err(ffmpeg::Error::Eof) => return Ok(None),
                Err(_) => self.damaged = true,
            }
        }
    }

    /// Passes another packet, or the end of the stream, to the decoder.
    fn feed(&mut self) -> Result<(), SourceError> {
        let mut packet = ffmpeg::Packet::empty();
        let sent = match packet.read(&mut self.input) {
            Ok(()) => {
                self.note(&packet);
                if packet.stream() != self.stream {
                    return Ok(());
                }
                self.decoder.send_packet(&packet)
            }
            Err(ffmpeg::Error::Eof) => self.decoder.send_eof(),
            Err(e) => return Err(self.broken(&e)),
        };
        match sent {
            Ok(()) => Ok(()),
            // One picture is lost. The next one may be valid.
            Err(ffmpeg::Error::InvalidData) => {
                self.damaged = true;
                Ok(())
            }
            Err(e) => Err(self.broken(&e)),
        }
    }

    /// Updates the time span of all streams: audio may be longer than video.
    fn note(&mut self, packet: &ffmpeg::Packet) {
        let stream = self.input.stream(packet.stream());
        if let Some((stream, ticks)) = stream.zip(packet.dts().or(packet.pts())) {
            let end = ticks.saturating_add(packet.duration());
            let (from, to) = (
                nanos(ticks, stream.time_base()),
                nanos(end, stream.time_base()),
            );
            let (first, latest) = self.span.unwrap_or((from, to));
            self.span = Some((first.min(from), latest.max(to)));
        }
    }

    fn ends_early(&self) -> bool {
        let spanned = self
            .span
            .map_or(0, |(first, latest)| latest.saturating_sub(first));
        spanned > 0 && spanned + SLACK < self.stated_duration
    }

    fn stamp(&mut self, frame: &ffmpeg::frame::Video) -> i64 {
        self.time = match frame.timestamp() {
            Some(ticks) => nanos(ticks, self.unit),
            None => self
                .time
                .saturating_add(self.rate.interval().as_nanos() as i64),
        };
        self.time
    }

    pub(crate) fn broken(&self, why: &dyn ToString) -> SourceError {
        SourceError::ReadFailed {
            name: self.name.clone(),
            pictures: self.pictures,
            why: why.to_string(),
        }
    }
}

/// Duration according to the file, in ns. FFmpeg's estimates from a bit rate are not used.
fn stated_duration(input: &ffmpeg::format::context::Input) -> i64 {
    use ffmpeg::ffi::AVDurationEstimationMethod as Method;
    // SAFETY: the pointer of the context is valid as long as the context; one integer is read.
    let method = unsafe { (*input.as_ptr()).duration_estimation_method };
    if method == Method::BITRATE {
        return 0;
    }
    // FFmpeg durations are in µs, and i64::MIN is unknown.
    input.duration().max(0).saturating_mul(1000)
}

fn nanos(ticks: i64, unit: ffmpeg::Rational) -> i64 {
    let (num, den) = (
        i128::from(unit.numerator()),
        i128::from(unit.denominator().max(1)),
    );
    (i128::from(ticks) * 1_000_000_000 * num / den) as i64
}

/// URL for FFmpeg. A file name with a colon needs the prefix `file:`, or it would be a protocol.
fn url(name: &str) -> String {
    match name {
        "-" => "pipe:0".to_owned(),
        file if file.contains(':') && Path::new(file).exists() => format!("file:{file}"),
        other => other.to_owned(),
    }
}

/// Maximum frame rate. Files without timestamps report their time unit as rate: thousands per
/// second.
fn plausible(rate: ffmpeg::Rational) -> Option<FrameRate> {
    let (num, den) = (rate.numerator(), rate.denominator());
    let rate = FrameRate {
        num: u32::try_from(num).ok()?,
        den: u32::try_from(den).ok()?,
    };
    (den > 0 && (1.0..=240.0).contains(&rate.as_f64())).then_some(rate)
}

/// Frame rate if the file has none.
const ASSUMED: FrameRate = FrameRate::fps(25);
/// Tolerance in ns: headers are rounded, and the streams of a file may have different ends.
const SLACK: i64 = 1_000_000_000;

#[cfg(all(test, feature = "x264"))]
mod tests {
    use std::{env, fs, process};

    use tidegate_core::units::Rate;

    use super::*;
    use crate::picture::Picture;
    use crate::session::PictureEncoder as _;
    use crate::x264::{X264Config, X264Encoder};

    /// Matroska truncated between two pictures: only the duration in the header reveals it.
    #[test]
    fn container_shorter_than_its_header_is_truncated() {
        let folder = env::temp_dir().join(format!("tidegate-reader-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        fs::write(path("raw.h264"), stream()).unwrap();
        remux(&path("raw.h264"), &path("whole.mkv"));
        let mut bytes = fs::read(path("whole.mkv")).unwrap();
        bytes.truncate(bytes.len() / 2);
        fs::write(path("half.mkv"), bytes).unwrap();
        let (whole, half) = (read(&path("whole.mkv")), read(&path("half.mkv")));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(whole, (FRAMES, None));
        assert!((5..FRAMES - 5).contains(&half.0), "{half:?}");
        assert!(
            matches!(half.1, Some(SourceError::Truncated { .. })),
            "{half:?}"
        );
    }

    fn read(name: &str) -> (i64, Option<SourceError>) {
        let mut reader = Reader::open(name).unwrap();
        let mut frame = ffmpeg::frame::Video::empty();
        let mut count = 0;
        loop {
            match reader.next(&mut frame) {
                Ok(Some(_)) => count += 1,
                Ok(None) => return (count, None),
                Err(error) => return (count, Some(error)),
            }
        }
    }

    fn stream() -> Vec<u8> {
        let size = Size::new(64, 48).unwrap();
        let mut encoder = X264Encoder::open(X264Config::new(size, FrameRate::fps(10))).unwrap();
        let mut picture = Picture::black(size);
        let access_units = (0..FRAMES).map(|n| {
            let dot = n as usize * 31;
            picture.planes_mut().y[dot..dot + 20].fill(200);
            encoder
                .encode(&picture, Rate::kbps(200), false)
                .unwrap()
                .data
        });
        access_units.flatten().collect()
    }

    /// Remuxes a raw stream into a container, at ten pictures per second.
    fn remux(from: &str, to: &str) {
        let mut input = ffmpeg::format::input(from).unwrap();
        let mut output = ffmpeg::format::output(to).unwrap();
        let mut copy = output.add_stream(ffmpeg::codec::Id::None).unwrap();
        copy.set_parameters(input.stream(0).unwrap().parameters());
        output.write_header().unwrap();
        let mut n = 0;
        while let Some(Ok((_, mut packet))) = input.packets().next() {
            packet.set_pts(Some(n * 100));
            packet.set_dts(Some(n * 100));
            packet.set_duration(100);
            packet.set_position(-1);
            packet.write_interleaved(&mut output).unwrap();
            n += 1;
        }
        output.write_trailer().unwrap();
    }

    const FRAMES: i64 = 50;
}
