//! FFmpeg demultiplexer and decoder: a sequence of frames with timestamps.

use std::path::Path;

use ffmpeg_the_third as ffmpeg;
use ffmpeg_the_third::ffi::AVStream;
use libc::{EAGAIN, c_int, c_void};
use tidegate_core::media::FrameRate;

use crate::input::{InputOptions, is_live, is_stream, largest_video, open_input};
use crate::native::{intact, quiet};
use crate::orientation::Orientation;
use crate::source::SourceError;

pub(crate) struct Reader {
    name: String,
    input: ffmpeg::format::context::Input,
    decoder: ffmpeg::decoder::Video,
    stream: usize,
    /// Unit of timestamps in seconds.
    unit: ffmpeg::Rational,
    /// Mean frame rate according to the file.
    mean: Option<FrameRate>,
    /// Frame rate of which the times of all pictures are multiples, as far as FFmpeg found one.
    base: Option<FrameRate>,
    /// Turn that makes the pictures upright, according to the file.
    orientation: Option<Orientation>,
    /// Number of frames returned.
    pictures: u64,
    /// Duration according to the file, in ns; zero if unknown.
    stated_duration: i64,
    /// A live stream, or a live source without timestamps.
    has_arrival_times: bool,
    /// Times of the first and the latest packet of any stream, in ns.
    span: Option<(i64, i64)>,
    /// Whether the last picture was truncated or damaged.
    damaged: bool,
    /// Time of the last returned frame, in ns.
    time: i64,
}

impl Reader {
    pub(crate) fn open(name: &str, asked: &InputOptions) -> Result<Self, SourceError> {
        quiet();
        let unreadable = |why: &dyn ToString| SourceError::Unreadable {
            name: name.to_owned(),
            why: why.to_string(),
        };
        if name.contains('\0') {
            return Err(unreadable(&"the name contains a zero byte"));
        }
        let is_live = is_live(name) || asked.format.is_some() && !Path::new(name).exists();
        let input = open_input(name, asked, is_live)?;
        let best = largest_video(&input).ok_or_else(|| SourceError::NoVideo {
            name: name.to_owned(),
        })?;
        let mean = plausible(best.avg_frame_rate());
        let base = plausible(best.rate()).or_else(|| fine_grid(best.rate(), mean?));
        let orientation = stated_orientation(&best);
        let stream = best.index();
        let decoder = ffmpeg::codec::Context::from_parameters(best.parameters())
            .and_then(|context| context.decoder().video())
            .map_err(|e| unreadable(&e))?;
        Ok(Self {
            name: name.to_owned(),
            decoder,
            stream,
            unit: best.time_base(),
            mean,
            base,
            orientation,
            pictures: 0,
            stated_duration: stated_duration(&input),
            has_arrival_times: is_stream(name) || is_live && is_untimed(&input),
            span: None,
            damaged: false,
            time: 0,
            input,
        })
    }

    /// Mean frame rate; of the stream if the file has none.
    pub(crate) fn rate(&self) -> FrameRate {
        let of_stream = || self.decoder.frame_rate().and_then(plausible);
        self.mean
            .or_else(of_stream)
            .or(self.base)
            .unwrap_or(ASSUMED)
    }

    /// Frame rate of which the times of all pictures are multiples, as far as FFmpeg found one.
    pub(crate) const fn base_rate(&self) -> Option<FrameRate> {
        self.base
    }

    /// Whether pictures have no times but that of their arrival.
    pub(crate) const fn has_arrival_times(&self) -> bool {
        self.has_arrival_times
    }

    /// Turn that makes this picture upright.
    pub(crate) fn orientation(&self, frame: &ffmpeg::frame::Video) -> Orientation {
        let matrix = frame.side_data(ffmpeg::frame::side_data::Type::DisplayMatrix);
        let of_frame = matrix.and_then(|matrix| Orientation::of_bytes(matrix.data()));
        of_frame.or(self.orientation).unwrap_or_default()
    }

    /// Shape of a pixel, width to height.
    pub(crate) fn pixel(&mut self, frame: &mut ffmpeg::frame::Video) -> (u32, u32) {
        // SAFETY: the pointers are valid as long as their owners, which are borrowed; FFmpeg only
        // reads.
        let shape = unsafe {
            let input = self.input.as_mut_ptr();
            let stream = *(*input).streams.add(self.stream);
            ffmpeg::ffi::av_guess_sample_aspect_ratio(input, stream, frame.as_mut_ptr())
        };
        match (u32::try_from(shape.num), u32::try_from(shape.den)) {
            (Ok(width @ 1..), Ok(height @ 1..)) if is_possible(width, height) => (width, height),
            _ => (1, 1),
        }
    }

    /// No complete picture was found.
    pub(crate) fn no_video(&self) -> SourceError {
        SourceError::NoVideo {
            name: self.name.clone(),
        }
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
        let timestamp = frame.timestamp().filter(|_| !self.has_arrival_times);
        self.time = match timestamp {
            Some(ticks) => nanos(ticks, self.unit),
            None => self
                .time
                .saturating_add(self.rate().interval().as_nanos() as i64),
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

/// Turn in the display matrix of a stream. From FFmpeg 6.1 on, each frame has the matrix, and from
/// FFmpeg 8 on this function is missing, so it is searched at run time.
pub(crate) fn stated_orientation(stream: &ffmpeg::Stream<'_>) -> Option<Orientation> {
    type SideData = unsafe extern "C" fn(*const AVStream, c_int, *mut usize) -> *const u8;
    // SAFETY: the name is a string that ends with zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"av_stream_get_side_data".as_ptr()) };
    if found.is_null() {
        return None;
    }
    let kind = ffmpeg::ffi::AVPacketSideDataType::DISPLAYMATRIX.0 as c_int;
    // SAFETY: a function of this name in libavformat has this type. The data that it returns is
    // valid as long as the stream.
    let matrix = unsafe {
        let side_data = core::mem::transmute::<*mut c_void, SideData>(found);
        let mut length = 0;
        let data = side_data(stream.as_ptr(), kind, &raw mut length);
        if data.is_null() {
            return None;
        }
        core::slice::from_raw_parts(data, length)
    };
    Orientation::of_bytes(matrix)
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

pub(crate) fn nanos(ticks: i64, unit: ffmpeg::Rational) -> i64 {
    let (num, den) = (
        i128::from(unit.numerator()),
        i128::from(unit.denominator().max(1)),
    );
    (i128::from(ticks) * 1_000_000_000 * num / den) as i64
}

/// Whether the format has no timestamps, as a byte stream of H.264 or a series of JPEG pictures.
fn is_untimed(input: &ffmpeg::format::context::Input) -> bool {
    // SAFETY: the pointer of the context is valid as long as the context, and so is its format, which
    // is constant; an integer is read.
    let flags = unsafe { (*(*input.as_ptr()).iformat).flags };
    flags & ffmpeg::ffi::AVFMT_NOTIMESTAMPS != 0
}

/// Maximum frame rate. Files without timestamps report their time unit as rate: thousands per
/// second.
pub(crate) fn plausible(rate: ffmpeg::Rational) -> Option<FrameRate> {
    let (num, den) = (rate.numerator(), rate.denominator());
    let rate = FrameRate {
        num: u32::try_from(num).ok()?,
        den: u32::try_from(den).ok()?,
    };
    (den > 0 && (1.0..=MAX_FPS).contains(&rate.as_f64())).then_some(rate)
}

/// Grid for pictures whose times have no common frame rate below the plausible ones.
pub(crate) fn fine_grid(base: ffmpeg::Rational, mean: FrameRate) -> Option<FrameRate> {
    let is_finer = base.denominator() > 0 && f64::from(base) > MAX_FPS;
    is_finer.then(|| FrameRate::fps(if mean.as_f64() > 40.0 { 120 } else { 60 }))
}

/// Whether pixels have such a shape; anything else is an error of the file.
fn is_possible(width: u32, height: u32) -> bool {
    let (width, height) = (u64::from(width), u64::from(height));
    width <= 10 * height && height <= 10 * width
}

/// Frame rate if the file has none.
const ASSUMED: FrameRate = FrameRate::fps(25);
const MAX_FPS: f64 = 240.0;
/// Tolerance in ns: headers are rounded, and the streams of a file may have different ends.
const SLACK: i64 = 1_000_000_000;

#[cfg(all(test, feature = "x264"))]
mod tests {
    use std::net::TcpListener;
    use std::{env, fs, process};

    use tidegate_core::units::Rate;

    use super::*;
    use crate::picture::{Picture, Size};
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

    /// A playlist, a script and a description of a file that is readable by itself.
    #[test]
    fn files_with_references_open_no_other_file() {
        let folder = env::temp_dir().join(format!("tidegate-lists-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        fs::write(path("raw.h264"), stream()).unwrap();
        remux(&path("raw.h264"), &path("other.ts"));
        let list = "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nother.ts\n#EXT-X-ENDLIST\n";
        let files = [
            ("list.m3u8", list),
            ("disguised.mp4", list),
            ("list.ffconcat", "ffconcat version 1.0\nfile other.ts\n"),
            (
                "stream.sdp",
                "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n",
            ),
        ];
        let mut refused = Vec::new();
        for (name, text) in files {
            fs::write(path(name), text).unwrap();
            let is_refused = matches!(
                Reader::open(&path(name), &InputOptions::default()),
                Err(SourceError::Referring { .. })
            );
            refused.push((name, is_refused));
        }
        let (whole, _) = read(&path("other.ts"));
        fs::remove_dir_all(&folder).unwrap();
        assert!(refused.iter().all(|(_, is)| *is), "{refused:?}");
        assert_eq!(whole, FRAMES);
    }

    #[test]
    fn a_refused_connection_is_no_fault_of_the_format() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let refused = Reader::open(
            &format!("rtsp://{address}/camera"),
            &InputOptions::default(),
        );
        let error = refused.err().unwrap().to_string();
        assert!(error.contains("connection refused"), "{error}");
        assert!(!error.contains("ffprobe"), "{error}");
    }

    #[test]
    fn options_of_the_format_are_passed_on_and_unknown_ones_are_named() {
        let open = |format: &str, key: &str| {
            let options = InputOptions {
                format: Some(format.to_owned()),
                options: ["video_size", key]
                    .map(|key| (key.to_owned(), "96x64".to_owned()))
                    .to_vec(),
            };
            Reader::open("/dev/zero", &options)
        };
        let raw = open("rawvideo", "video_size").ok().unwrap();
        assert_eq!((raw.decoder.width(), raw.decoder.height()), (96, 64));
        let unknown = open("rawvideo", "vidoe_size").err().unwrap();
        assert!(unknown.to_string().contains("vidoe_size"), "{unknown}");
        let unknown = open("none", "video_size").err().unwrap();
        assert!(
            matches!(unknown, SourceError::UnknownFormat { .. }),
            "{unknown}"
        );
    }

    fn read(name: &str) -> (i64, Option<SourceError>) {
        let mut reader = Reader::open(name, &InputOptions::default()).unwrap();
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
