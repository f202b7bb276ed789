//! Video sources.

use core::fmt::Debug;

use tidegate_core::media::FrameRate;

use crate::colour::Colour;
use crate::picture::{Picture, Size};
use crate::scene::Scene;

/// A sequence of pictures at a constant frame rate, read in order.
pub trait VideoSource: Debug + Send {
    /// Size of all pictures.
    fn size(&self) -> Size;

    /// Pictures per second.
    fn frame_rate(&self) -> FrameRate;

    /// Number of the frame that [`Self::next`] reads, from zero.
    fn position(&self) -> u64;

    /// Whether skipped pictures cost no time, and pictures are never waited for.
    fn skips_freely(&self) -> bool {
        false
    }

    /// Colour description of the pictures.
    fn colour(&self) -> Colour {
        Colour::UNSPECIFIED
    }

    /// Number of the picture that was read last, if the frame rate of the source varies: then
    /// frames without a picture of their own repeat the previous one, and need not be encoded.
    fn picture(&self) -> Option<u64> {
        None
    }

    /// Reads the next frame into `picture`, which is resized to the size of the source. Returns
    /// false at the end.
    ///
    /// # Errors
    /// If the source cannot be read or is damaged; the message names the source.
    fn next(&mut self, picture: &mut Picture) -> Result<bool, SourceError>;

    /// Reads frame `frame` and skips those before it. Returns false if the source ends earlier.
    ///
    /// # Errors
    /// See [`Self::next`], and [`SourceError::AlreadyRead`] if the frame was already read or skipped.
    fn advance_to(&mut self, frame: u64, picture: &mut Picture) -> Result<bool, SourceError> {
        self.check_unread(frame)?;
        for _ in self.position()..frame {
            if !self.next(picture)? {
                return Ok(false);
            }
        }
        self.next(picture)
    }

    /// Whether frame `frame` can still be read.
    ///
    /// # Errors
    /// [`SourceError::AlreadyRead`] if it was already read or skipped.
    fn check_unread(&self, frame: u64) -> Result<(), SourceError> {
        let position = self.position();
        if frame < position {
            return Err(SourceError::AlreadyRead { frame, position });
        }
        Ok(())
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
    /// An unlimited source.
    pub const fn new(scene: Scene, rate: FrameRate) -> Self {
        Self::with_end(scene, rate, u64::MAX)
    }

    /// A source that ends after `frames` frames.
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

    fn skips_freely(&self) -> bool {
        true
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
        self.check_unread(frame)?;
        self.position = frame.min(self.end);
        self.next(picture)
    }
}

/// Error of a video source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The source cannot be opened, or FFmpeg does not support its format.
    #[error(
        "cannot read video from \"{name}\": {why}; check the name, and check with `ffprobe` \
         whether FFmpeg can read it"
    )]
    Unreadable {
        /// File, device or URL.
        name: String,
        /// Error of FFmpeg.
        why: String,
    },
    /// FFmpeg has no such format for inputs.
    #[error(
        "FFmpeg has no input format \"{format}\"; `ffmpeg -demuxers` and `ffmpeg -devices` list them"
    )]
    UnknownFormat {
        /// Name of the format.
        format: String,
    },
    /// Neither the format nor the protocol of the source has such an option.
    #[error(
        "no option \"{key}\" for \"{name}\"; `ffmpeg -h demuxer=FORMAT` and `ffmpeg -h \
         protocol=PROTOCOL` list them"
    )]
    UnknownOption {
        /// File, device or URL.
        name: String,
        /// Name of the option.
        key: String,
    },
    /// The host of the URL refused the connection.
    #[error(
        "nothing listens at \"{name}\" (connection refused): check that the camera or server runs, \
         and its address and port"
    )]
    Refused {
        /// URL of the source.
        name: String,
    },
    /// The file is a playlist, a script or a description, with names of other files or addresses.
    #[error(
        "\"{name}\" names other files or addresses, as a playlist or a session description does, \
         and these are not opened; give one of them, or permit it by `send --input-format` with its \
         format"
    )]
    Referring {
        /// The file.
        name: String,
    },
    /// The source has no video stream, or none with a complete key frame.
    #[error("\"{name}\" has no video stream with a key frame; give a file, device or URL with one")]
    NoVideo {
        /// File, device or URL.
        name: String,
    },
    /// The source has high dynamic range.
    #[error(
        "\"{name}\" has high dynamic range ({transfer}), which pictures with 8 bits cannot \
         show; convert it first: `ffmpeg -i INPUT -vf \
         zscale=t=linear:npl=100,format=gbrpf32le,zscale=p=bt709,tonemap=hable,zscale=t=bt709:m=bt709:r=tv,format=yuv420p OUTPUT`"
    )]
    HighDynamicRange {
        /// File, device or URL.
        name: String,
        /// Name of the transfer characteristics.
        transfer: &'static str,
    },
    /// The source ends within a picture, or much earlier than its header states.
    #[error(
        "\"{name}\" is truncated after {pictures} complete pictures; copy it again, or extract \
         these pictures with `ffmpeg -frames:v {pictures}`"
    )]
    Truncated {
        /// File, device or URL.
        name: String,
        /// Number of complete pictures before the end.
        pictures: u64,
    },
    /// Reading or decoding failed after the start.
    #[error(
        "reading \"{name}\" failed after {pictures} pictures: {why}; check with `ffplay` \
         whether the file or the connection is faulty"
    )]
    ReadFailed {
        /// File, device or URL.
        name: String,
        /// Number of pictures before the error.
        pictures: u64,
        /// Error of FFmpeg.
        why: String,
    },
    /// The source cannot be looped, because it can be read only once.
    #[error(
        "\"{name}\" cannot be looped, because it can be read only once; save it to a file and \
         use the file"
    )]
    CannotLoop {
        /// Name of the source.
        name: String,
    },
    /// The frame was already read or skipped.
    #[error(
        "frame {frame} was requested, but the next frame is {position}; sources are read forwards only"
    )]
    AlreadyRead {
        /// Requested frame.
        frame: u64,
        /// Next available frame.
        position: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::Motion;

    #[test]
    fn scene_is_read_in_order_with_gaps() {
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
            Err(SourceError::AlreadyRead {
                frame: 5,
                position: 6
            })
        );
        assert_eq!(source.advance_to(8, &mut seen), Ok(false));
        assert_eq!(source.next(&mut seen), Ok(false));
    }
}
