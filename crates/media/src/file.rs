//! Video source for files, devices and streams, read by FFmpeg.

use core::fmt;

use ffmpeg_the_third as ffmpeg;
use tidegate_core::media::FrameRate;

use crate::colour::Colour;
use crate::conversion::{Conversion, changes, grid, is_rgb, square};
use crate::input::InputOptions;
use crate::native::copy;
use crate::orientation::Orientation;
use crate::picture::{Picture, Size};
use crate::reader::Reader;
use crate::source::{SourceError, VideoSource};

/// Options of a [`FileSource`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// Scale to this size, without regard to the shape of the pictures; `None` for the size of the
    /// file with square pixels, made even.
    pub size: Option<Size>,
    /// Drop and repeat pictures to reach this rate. `None` for the rate of the file; if that varies,
    /// for a rate at which each picture has a frame of its own.
    pub rate: Option<FrameRate>,
    /// Restart at the end of the file, without limit.
    pub looped: bool,
}

/// Any input of FFmpeg as upright pictures with square pixels, 4:2:0 with 8 bits.
///
/// Damaged pictures are skipped, and the previous one is repeated. A live source is not read beyond
/// the requested frame, so a frame does not wait for the next picture. A source of one picture is a
/// still picture, which is repeated without end.
pub struct FileSource {
    name: String,
    options: FileOptions,
    input: InputOptions,
    size: Size,
    rate: FrameRate,
    /// Some frames have no picture of their own.
    is_variable: bool,
    colour: Colour,
    changes: Vec<String>,
    orientation: Orientation,
    reader: Reader,
    conversion: Conversion,
    /// Picture that is repeated until the next one is due.
    shown: Option<Picture>,
    /// Number of pictures shown so far.
    pictures: u64,
    /// Picture as decoded.
    decoded: ffmpeg::frame::Video,
    /// Picture as converted.
    frame: ffmpeg::frame::Video,
    /// Frame number of the picture in `frame`, if it is not due yet.
    ahead: Option<i64>,
    clock: Clock,
    position: u64,
    /// All pictures of the reader have entered the conversion.
    is_read: bool,
    ended: bool,
}

impl FileSource {
    /// Opens a file, a device (`/dev/video0`), a URL (`rtsp://…`, `srt://…`) or, as `-`, standard
    /// input, and reads its first complete picture. A stream that is joined between two key frames
    /// is read until the next one.
    ///
    /// # Errors
    /// If the input cannot be read, has no video or high dynamic range, or cannot be looped because
    /// it can be read only once.
    pub fn open(name: &str, options: FileOptions) -> Result<Self, SourceError> {
        Self::open_with(name, options, InputOptions::default())
    }

    /// Opens an input with options for FFmpeg.
    ///
    /// # Errors
    /// As [`open`](Self::open), and for a format or an option that FFmpeg does not know.
    pub fn open_with(
        name: &str,
        options: FileOptions,
        input: InputOptions,
    ) -> Result<Self, SourceError> {
        if options.looped && name == "-" {
            return Err(SourceError::CannotLoop {
                name: name.to_owned(),
            });
        }
        let mut reader = Reader::open(name, &input)?;
        let mut first = ffmpeg::frame::Video::empty();
        let time = read_first(&mut reader, &mut first)?;
        let colour = standard_colour(name, &first)?;
        let orientation = reader.orientation(&first);
        let pixel = match options.size {
            Some(_) => (1, 1),
            None => reader.pixel(&mut first),
        };
        let size = match options.size {
            Some(size) => size,
            None => natural_size(name, &first, pixel, orientation)?,
        };
        let matrix = if is_rgb(first.format()) {
            Colour::matrix_for_rgb(size)
        } else {
            colour.matrix
        };
        let base = reader.base_rate().filter(|_| !first.is_interlaced());
        let (rate, is_variable) = match options.rate {
            _ if reader.has_arrival_times() => (reader.rate(), false),
            Some(rate) => (rate, false),
            None => grid(reader.rate(), base),
        };
        let mut source = Self {
            name: name.to_owned(),
            options,
            input,
            size,
            rate,
            is_variable,
            colour: Colour { matrix, ..colour },
            changes: changes(&first, orientation, pixel),
            orientation,
            reader,
            conversion: Conversion::new(size, orientation),
            shown: None,
            pictures: 0,
            decoded: first,
            frame: ffmpeg::frame::Video::empty(),
            ahead: None,
            clock: Clock::default(),
            position: 0,
            is_read: false,
            ended: false,
        };
        source.convert(time)?;
        Ok(source)
    }

    /// Whether the source is a live stream, or live without timestamps: the time of arrival of a
    /// picture is its time of capture. [`FileOptions::rate`] is ignored, and each picture is returned once.
    pub const fn has_arrival_times(&self) -> bool {
        self.reader.has_arrival_times()
    }

    /// What the conversion changes in the first picture, for the user, such as "deinterlaced".
    pub fn changes(&self) -> &[String] {
        &self.changes
    }

    /// Sets `shown` to the picture of the frame `due`; returns false at the end.
    fn bring(&mut self, due: i64) -> Result<bool, SourceError> {
        loop {
            match self.ahead {
                Some(number) if number > due && self.shown.is_some() => return Ok(true),
                Some(number) => {
                    self.show()?;
                    self.ahead = None;
                    if number >= due {
                        return Ok(true);
                    }
                }
                // The last of several pictures is not repeated, because its duration is unknown.
                None if self.ended => return Ok(self.pictures == 1),
                None => self.read()?,
            }
        }
    }

    /// Reads until a converted picture is in `frame`, or the source ends.
    fn read(&mut self) -> Result<(), SourceError> {
        loop {
            if let Some(time) = self.conversion.pull(&mut self.frame) {
                self.ahead = Some(self.clock.number(time, self.rate));
                return Ok(());
            }
            if self.is_read {
                return self.end();
            }
            if let Some(time) = self.reader.next(&mut self.decoded)? {
                self.convert(time)?;
            } else {
                self.conversion.finish();
                self.is_read = true;
            }
        }
    }

    /// Passes the picture in `decoded` to the conversion.
    fn convert(&mut self, time: i64) -> Result<(), SourceError> {
        let pushed = self.conversion.push(&mut self.decoded, time);
        pushed.map_err(|e| {
            let why = format!("the pixel format cannot be converted to 8-bit 4:2:0: {e}");
            self.reader.broken(&why)
        })
    }

    /// The file has no more pictures: restarts it, or ends.
    fn end(&mut self) -> Result<(), SourceError> {
        if !self.options.looped {
            self.ended = true;
            return Ok(());
        }
        self.reader = Reader::open(&self.name, &self.input)?;
        self.conversion = Conversion::new(self.size, self.orientation);
        self.is_read = false;
        self.clock.restart();
        Ok(())
    }

    /// Copies `frame` to `shown`.
    fn show(&mut self) -> Result<(), SourceError> {
        self.pictures += 1;
        match copy(&self.frame, &mut self.shown) {
            Some(_) => Ok(()),
            None => Err(self
                .reader
                .broken(&"the converted picture is not 8-bit 4:2:0")),
        }
    }
}

impl VideoSource for FileSource {
    fn size(&self) -> Size {
        self.size
    }

    fn frame_rate(&self) -> FrameRate {
        self.rate
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn colour(&self) -> Colour {
        self.colour
    }

    fn picture(&self) -> Option<u64> {
        // A still picture is sent at the frame rate.
        let is_still = self.ended && self.pictures == 1;
        (self.is_variable && !is_still).then_some(self.pictures)
    }

    fn next(&mut self, picture: &mut Picture) -> Result<bool, SourceError> {
        if !self.bring(self.position as i64)? {
            return Ok(false);
        }
        self.position += 1;
        if let Some(shown) = &self.shown {
            picture.clone_from(shown);
        }
        Ok(true)
    }
}

impl fmt::Debug for FileSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSource")
            .field("name", &self.name)
            .field("options", &self.options)
            .field("size", &self.size)
            .field("rate", &self.rate)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

/// Converts timestamps to frame numbers at a constant rate, despite discontinuities.
#[derive(Debug, Default)]
struct Clock {
    /// Reference time in ns, and its frame number.
    anchor: Option<(i64, i64)>,
    last: i64,
}

impl Clock {
    /// Makes the next picture follow the last one, independent of its timestamp.
    fn restart(&mut self) {
        self.anchor = None;
        self.last += 1;
    }

    /// Number of the nearest frame, because timestamps are rounded, in some files to a millisecond.
    /// A tie is rounded down, so that at half of the rate every second picture has its own number.
    fn number(&mut self, time: i64, rate: FrameRate) -> i64 {
        let (num, den) = (i128::from(rate.num), i128::from(rate.den.max(1)));
        let second = 1_000_000_000 * den;
        let frames =
            |span: i64| (i128::from(span) * num + (second - 1) / 2).div_euclid(second) as i64;
        let at =
            |(from, number): (i64, i64)| frames(time.saturating_sub(from)).saturating_add(number);
        let number = match self.anchor {
            Some(anchor) if (self.last..=self.last + frames(JUMP)).contains(&at(anchor)) => {
                at(anchor)
            }
            Some(_) => {
                self.anchor = Some((time, self.last + 1));
                self.last + 1
            }
            None => {
                self.anchor = Some((time, self.last));
                self.last
            }
        };
        self.last = number;
        number
    }
}

/// Decodes the first picture. Returns its time.
fn read_first(reader: &mut Reader, first: &mut ffmpeg::frame::Video) -> Result<i64, SourceError> {
    match reader.next(first) {
        Ok(Some(time)) => Ok(time),
        // Streams without a key frame among them.
        Ok(None) | Err(SourceError::Truncated { pictures: 0, .. }) => Err(reader.no_video()),
        Err(error) => Err(error),
    }
}

/// Colour of a picture.
///
/// # Errors
/// It has a high dynamic range.
fn standard_colour(name: &str, picture: &ffmpeg::frame::Video) -> Result<Colour, SourceError> {
    let colour = Colour::of(picture);
    match colour.high_dynamic_range() {
        Some(transfer) => Err(SourceError::HighDynamicRange {
            name: name.to_owned(),
            transfer,
        }),
        None => Ok(colour),
    }
}

/// Size of the upright pictures with square pixels.
fn natural_size(
    name: &str,
    frame: &ffmpeg::frame::Video,
    pixel: (u32, u32),
    orientation: Orientation,
) -> Result<Size, SourceError> {
    let (width, height) = square((frame.width(), frame.height()), pixel, orientation);
    Size::new(width, height).map_err(|e| SourceError::Unreadable {
        name: name.to_owned(),
        why: format!("{e}; ask for a smaller size"),
    })
}

/// In ns. A longer gap between timestamps is a discontinuity, not a still picture.
const JUMP: i64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_rounded_to_a_millisecond_give_every_frame_once() {
        let mut clock = Clock::default();
        let numbers =
            [7, 40, 74, 107, 140].map(|ms| clock.number(ms * 1_000_000, FrameRate::fps(30)));
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn discontinuity_or_restart_continues_with_the_next_frame() {
        let mut clock = Clock::default();
        let second = 1_000_000_000;
        let rate = FrameRate::fps(10);
        assert_eq!(clock.number(0, rate), 0);
        assert_eq!(clock.number(second, rate), 10);
        assert_eq!(clock.number(100 * second, rate), 11);
        assert_eq!(clock.number(101 * second, rate), 21);
        assert_eq!(clock.number(0, rate), 22);
        clock.restart();
        assert_eq!(clock.number(7, rate), 23);
    }
}
