//! Files, devices and streams as sources, read by FFmpeg.

use core::fmt;

use ffmpeg_the_third as ffmpeg;
use ffmpeg_the_third::format::Pixel;
use ffmpeg_the_third::software::scaling;
use tidegate_core::media::FrameRate;

use crate::decoder::copy;
use crate::picture::{Picture, Size};
use crate::reader::Reader;
use crate::source::{SourceError, VideoSource};

/// How to read a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// Scale to this size; without it as the file has it, made even. The shape of the pixels is
    /// not looked at.
    pub size: Option<Size>,
    /// Drop and repeat pictures to this rate; without it at the mean rate of the file.
    pub rate: Option<FrameRate>,
    /// Start again at the end, for ever.
    pub looped: bool,
}

/// Anything that FFmpeg reads, scaled and brought to a constant frame rate.
///
/// Damaged pictures are passed over, the one before is shown for longer. A live source is read no
/// further than the frame that was asked for, so nothing waits for the picture after it.
pub struct FileSource {
    name: String,
    options: FileOptions,
    size: Size,
    rate: FrameRate,
    reader: Reader,
    scaler: Option<Scaler>,
    /// The picture shown until the frame ahead is due.
    shown: Option<Picture>,
    frame: ffmpeg::frame::Video,
    /// When the picture in `frame` is due, if it has not been shown.
    ahead: Option<i64>,
    clock: Clock,
    position: u64,
    ended: bool,
}

impl FileSource {
    /// Opens a file, a device (`/dev/video0`), a URL (`rtsp://…`, `srt://…`) or, as `-`, standard
    /// input. This reads as far as FFmpeg needs to know what it is.
    ///
    /// # Errors
    /// When it cannot be read, has no video, or is to be looped and can be read only once.
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

    /// Makes `shown` the picture of the frame `due`. `false` at the end.
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
                // The last picture is not repeated: nobody says for how long it was meant.
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
            return Err(self
                .reader
                .broken(&"there is not one whole picture to loop"));
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
                .broken(&"its pictures cannot be turned into 8-bit 4:2:0"))
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

/// Turns the times of pictures into frame numbers at a constant rate, through jumps of time.
#[derive(Debug, Default)]
struct Clock {
    /// The time in ns that has a number, and that number.
    anchor: Option<(i64, i64)>,
    last: i64,
}

impl Clock {
    const fn is_set(&self) -> bool {
        self.anchor.is_some()
    }

    /// The next picture follows the last one, whatever its time.
    fn restart(&mut self) {
        self.anchor = None;
        self.last += 1;
    }

    /// The nearest frame, since times in a file are rounded, some to a millisecond. Halfway is the
    /// earlier one, so that at half the rate every second picture has a number of its own.
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

// SAFETY: the context of libswscale is plain memory without a tie to a thread, and is used here
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
            // The same bits on every machine, for runs that are compared.
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

/// In ns. A longer gap in a file's times is a cut, not a picture that stands still.
const JUMP: i64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_rounded_to_a_millisecond_give_every_frame_once() {
        let mut clock = Clock::default();
        let numbers =
            [7, 40, 74, 107, 140].map(|ms| clock.number(ms * 1_000_000, FrameRate::fps(30)));
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_jump_of_time_or_a_new_start_goes_on_with_the_next_frame() {
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
