//! Where pictures come from.

use core::fmt::{self, Debug};

use tidegate_core::media::FrameRate;

use crate::picture::{Picture, Size};
use crate::scene::Scene;

/// A row of pictures at a constant frame rate, read forwards.
pub trait VideoSource: Debug + Send {
    /// Of every picture.
    fn size(&self) -> Size;

    /// Pictures a second.
    fn frame_rate(&self) -> FrameRate;

    /// Number of the frame that [`Self::next`] gives, from zero.
    fn position(&self) -> u64;

    /// Reads the next frame into `picture`, which takes the size of the source. `false` at the end.
    ///
    /// # Errors
    /// When the source cannot be read or is damaged; the message names it.
    fn next(&mut self, picture: &mut Picture) -> Result<bool, SourceError>;

    /// Reads frame `frame`, passing over those before it. `false` when the source ends earlier.
    ///
    /// # Errors
    /// As [`Self::next`], and [`SourceError::Passed`] when that frame has been read or passed over.
    fn advance_to(&mut self, frame: u64, picture: &mut Picture) -> Result<bool, SourceError> {
        let position = self.position();
        if frame < position {
            return Err(SourceError::Passed { frame, position });
        }
        for _ in position..frame {
            if !self.next(picture)? {
                return Ok(false);
            }
        }
        self.next(picture)
    }
}

/// A [`Scene`] as a source.
#[derive(Debug)]
pub struct SceneSource {
    scene: Scene,
    rate: FrameRate,
    position: u64,
    end: u64,
}

impl SceneSource {
    /// Without an end.
    pub const fn new(scene: Scene, rate: FrameRate) -> Self {
        Self::with_end(scene, rate, u64::MAX)
    }

    /// Ends after `frames` frames.
    pub const fn with_end(scene: Scene, rate: FrameRate, frames: u64) -> Self {
        Self {
            scene,
            rate,
            position: 0,
            end: frames,
        }
    }
}

impl VideoSource for SceneSource {
    fn size(&self) -> Size {
        self.scene.size()
    }

    fn frame_rate(&self) -> FrameRate {
        self.rate
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn next(&mut self, picture: &mut Picture) -> Result<bool, SourceError> {
        if self.position >= self.end {
            return Ok(false);
        }
        self.scene.render(self.position, picture);
        self.position += 1;
        Ok(true)
    }

    fn advance_to(&mut self, frame: u64, picture: &mut Picture) -> Result<bool, SourceError> {
        let position = self.position;
        if frame < position {
            return Err(SourceError::Passed { frame, position });
        }
        self.position = frame.min(self.end);
        self.next(picture)
    }
}

/// Why there is no picture.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceError {
    /// It cannot be opened, or is of no kind that FFmpeg knows.
    Unreadable {
        /// File, device or URL, as given.
        name: String,
        /// What FFmpeg says.
        why: String,
    },
    /// It can be read, but has no video.
    NoVideo {
        /// File, device or URL, as given.
        name: String,
    },
    /// It stops within a picture, or much earlier than it says.
    Truncated {
        /// File, device or URL, as given.
        name: String,
        /// Whole pictures before that.
        pictures: u64,
    },
    /// Reading or decoding failed on the way.
    Broken {
        /// File, device or URL, as given.
        name: String,
        /// Pictures before that.
        pictures: u64,
        /// What FFmpeg says.
        why: String,
    },
    /// Standard input cannot be read twice.
    CannotLoop {
        /// As given.
        name: String,
    },
    /// A source is read forwards only.
    Passed {
        /// The frame asked for.
        frame: u64,
        /// The next one that can be had.
        position: u64,
    },
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { name, why } => write!(
                f,
                "cannot read video from \"{name}\": {why}; check the name, and with \
                 `ffprobe` whether FFmpeg can read it"
            ),
            Self::NoVideo { name } => write!(
                f,
                "\"{name}\" has no video stream; give a file, device or URL that has one"
            ),
            Self::Truncated { name, pictures } => write!(
                f,
                "\"{name}\" is truncated: it ends too early, after {pictures} whole pictures; copy \
                 it again, or keep those with `ffmpeg -frames:v {pictures}`"
            ),
            Self::Broken {
                name,
                pictures,
                why,
            } => write!(
                f,
                "reading \"{name}\" failed after {pictures} pictures: {why}; play it with \
                 `ffplay` to see whether the file or the connection is at fault"
            ),
            Self::CannotLoop { name } => write!(
                f,
                "\"{name}\" cannot be looped, since it can be read only once; save it to a file \
                 and give that"
            ),
            Self::Passed { frame, position } => write!(
                f,
                "frame {frame} was asked for after frame {position} had come up; sources are read \
                 forwards"
            ),
        }
    }
}

impl core::error::Error for SourceError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::Motion;

    #[test]
    fn a_scene_is_read_forwards_with_gaps() {
        let size = Size::new(64, 48).unwrap();
        let scene = || Scene::with_motion(3, size, Motion::Pan);
        let mut source = SceneSource::with_end(scene(), FrameRate::fps(25), 8);
        let (mut seen, mut wanted) = (Picture::black(size), Picture::black(size));
        assert_eq!(source.next(&mut seen), Ok(true));
        assert_eq!(source.advance_to(5, &mut seen), Ok(true));
        scene().render(5, &mut wanted);
        assert!(seen == wanted);
        assert_eq!(source.position(), 6);
        let back = source.advance_to(5, &mut seen);
        assert_eq!(
            back,
            Err(SourceError::Passed {
                frame: 5,
                position: 6
            })
        );
        assert_eq!(source.advance_to(8, &mut seen), Ok(false));
        assert_eq!(source.next(&mut seen), Ok(false));
    }
}
