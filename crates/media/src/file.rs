//! Video source for files, devices and streams, read by FFmpeg.

use core::fmt;

use ffmpeg_the_third as ffmpeg;
use ffmpeg_the_third::format::Pixel;
use ffmpeg_the_third::software::scaling;
use tidegate_core::media::FrameRate;

use crate::native::copy;
use crate::picture::{Picture, Size};
use crate::reader::Reader;
use crate::source::{SourceError, VideoSource};

/// Options of a [`FileSource`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// Scale to this size; `None` for the size of the file, made even. The pixel aspect ratio is
    /// ignored.
    pub size: Option<Size>,
    /// Drop and repeat pictures to reach this rate; `None` for the mean rate of the file.
    pub rate: Option<FrameRate>,
    /// Restart at the end of the file, without limit.
    pub looped: bool,
}

/// Any input of FFmpeg, scaled and converted to a constant frame rate.
///
/// Damaged pictures are skipped, and the previous one is repeated. A live source is not read beyond
/// the requested frame, so a frame does not wait for the next picture.
pub struct FileSource {
    name: String,
    options: FileOptions,
    size: Size,
    rate: FrameRate,
    reader: Reader,
    scaler: Option<Scaler>,
    /// Picture that is repeated until the next one is due.
    shown: Option<Picture>,
    frame: ffmpeg::frame::Video,
    /// Frame number of the picture in `frame`, if it is not due yet.
    ahead: Option<i64>,
    clock: Clock,
    position: u64,
    ended: bool,
}

impl FileSource {
    /// Opens a file, a device (`/dev/video0`), a URL (`rtsp://…`, `srt://…`) or, as `-`, standard
    /// input. FFmpeg reads as much of it as it needs to detect the format.
    ///
    /// # Errors
    /// If the input cannot be read, has no video, or cannot be looped because it can be read only
    /// once.
    pub fn open(name: &str, options: FileOptions) -> Result<Self, SourceError> {
        if options.looped && name == "-" {
            return Err(SourceError::CannotLoop {
                name: name.to_owned(),
            });
        }
        let reader = Reader::open(name)?;
        let size = match options.size {
            Some(size) => size,
            None => reader.size()?,
        };
        Ok(Self {
            name: name.to_owned(),
            options,
            size,
            rate: options.rate.unwrap_or(reader.rate),
            reader,
            scaler: None,
            shown: None,
            frame: ffmpeg::frame::Video::empty(),
            ahead: None,
            clock: Clock::default(),
            position: 0,
            ended: false,
        })
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
                // The last picture is not repeated, because its duration is unknown.
                None if self.ended => return Ok(false),
                None => self.read()?,
            }
        }
    }

    fn read(&mut self) -> Result<(), SourceError> {
        if let Some(time) = self.reader.next(&mut self.frame)? {
            self.ahead = Some(self.clock.number(time, self.rate));
        } else if !self.options.looped {
            self.ended = true;
        } else if self.clock.is_set() {
            self.reader = Reader::open(&self.name)?;
            self.clock.restart();
        } else {
            return Err(self.reader.broken(&"there is no complete picture to loop"));
        }
        Ok(())
    }

    /// Scales `frame` into `shown`.
    fn show(&mut self) -> Result<(), SourceError> {
        let frame = &self.frame;
        let fits = (frame.width(), frame.height()) == (self.size.width(), self.size.height());
        let done = if fits && frame.format() == Pixel::YUV420P {
            copy(frame, &mut self.shown).is_some()
        } else {
            let scaler = match &mut self.scaler {
                Some(scaler) if scaler.takes(frame) => scaler,
                other => {
                    let made = Scaler::new(frame, self.size);
                    other.insert(made.map_err(|e| self.reader.broken(&e))?)
                }
            };
            let scaled = scaler.run(frame).map_err(|e| self.reader.broken(&e))?;
            copy(scaled, &mut self.shown).is_some()
        };
        if done {
            Ok(())
        } else {
            Err(self
                .reader
                .broken(&"the pixel format cannot be converted to 8-bit 4:2:0"))
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
    const fn is_set(&self) -> bool {
        self.anchor.is_some()
    }

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

/// Converts size and pixel format.
struct Scaler {
    context: scaling::Context,
    output: ffmpeg::frame::Video,
}

// SAFETY: a libswscale context is plain memory that is not bound to a thread, and it is used here
// only through `&mut`.
unsafe impl Send for Scaler {}

impl Scaler {
    fn new(frame: &ffmpeg::frame::Video, size: Size) -> Result<Self, ffmpeg::Error> {
        let context = scaling::Context::get(
            frame.format(),
            frame.width(),
            frame.height(),
            Pixel::YUV420P,
            size.width(),
            size.height(),
            // The same result on every machine, for reproducible runs.
            scaling::Flags::BICUBIC | scaling::Flags::ACCURATE_RND | scaling::Flags::BITEXACT,
        )?;
        Ok(Self {
            context,
            output: ffmpeg::frame::Video::empty(),
        })
    }

    fn takes(&self, frame: &ffmpeg::frame::Video) -> bool {
        let input = self.context.input();
        (input.format, input.width, input.height) == (frame.format(), frame.width(), frame.height())
    }

    fn run(
        &mut self,
        frame: &ffmpeg::frame::Video,
    ) -> Result<&ffmpeg::frame::Video, ffmpeg::Error> {
        self.context.run(frame, &mut self.output)?;
        Ok(&self.output)
    }
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
