//! Encoded video in files: an index of the access units, which are read from the file when they are
//! sent.

use core::time::Duration;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use tidegate_core::media::FrameRate;
use tidegate_core::units::{Bytes, Rate};
use tidegate_core::wire::h264::AccessPoint;
use tidegate_core::wire::sdp::ParameterSets;

mod access_unit;
mod index;

use crate::orientation::Orientation;
use access_unit::Layout;

/// An H.264 file whose access units can be read in any order: MP4, MOV, or a byte stream (annex B).
///
/// Only the index is in memory. Frames have a slot on the grid of the frame rate, in decoding order.
#[derive(Debug)]
pub struct StoredVideo {
    path: PathBuf,
    file: File,
    layout: Layout,
    frame_rate: FrameRate,
    size: (u32, u32),
    orientation: Orientation,
    parameter_sets: Option<ParameterSets>,
    duration: Duration,
    samples: Vec<Sample>,
    keys: Vec<Key>,
}

/// Location and time of an access unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    position: u64,
    length: u32,
    /// Frame number on the grid, by decoding time.
    pub(crate) slot: u32,
    /// Display time from the begin of the file.
    pub(crate) shown: Duration,
    /// Time from the slot to the display, at least zero.
    pub(crate) delay: Duration,
    /// Decoding can start here.
    pub(crate) access: Option<AccessPoint>,
    /// The picture may refer to pictures before the last access point, behind which it is stored.
    pub(crate) is_leading: bool,
    /// Other pictures may refer to this one.
    pub(crate) is_reference: bool,
}

/// An access point, where decoding can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// Index of its sample.
    pub(crate) sample: usize,
    pub(crate) slot: u32,
    /// Display time of the first correct picture, if decoding starts here.
    pub(crate) recovered: Duration,
    /// Mean rate up to the next access point.
    pub(crate) rate: Rate,
}

impl StoredVideo {
    /// Reads the whole file once and indexes its access units.
    ///
    /// # Errors
    /// See [`StoredError`].
    pub fn open(path: &Path) -> Result<Self, StoredError> {
        index::open(path)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Frame rate of the grid. If the rate of the file varies, some slots have no frame.
    pub fn frame_rate(&self) -> FrameRate {
        self.frame_rate
    }

    /// Width and height.
    pub fn size(&self) -> (u32, u32) {
        self.size
    }

    /// Name of the turn that makes the pictures upright, according to the file; `None` if they are.
    pub fn turn(&self) -> Option<&'static str> {
        let turn = self.orientation;
        (turn != Orientation::Upright).then(|| turn.name())
    }

    /// Parameter sets of the first key frame.
    pub fn parameter_sets(&self) -> Option<&ParameterSets> {
        self.parameter_sets.as_ref()
    }

    /// Time from the display of the first frame to the end of the last.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// Number of frames.
    pub fn frames(&self) -> usize {
        self.samples.len()
    }

    /// Number of access points: IDR pictures, and recovery points.
    pub fn key_frames(&self) -> usize {
        self.keys.len()
    }

    /// Mean rate, without the headers of packets.
    pub fn rate(&self) -> Rate {
        let bytes = self.samples.iter().map(|sample| u64::from(sample.length));
        Bytes(bytes.sum()) / self.duration.max(self.frame_rate.interval())
    }

    /// Rate of the largest group of pictures.
    pub fn peak_rate(&self) -> Rate {
        let rates = self.keys.iter().map(|key| key.rate);
        rates.max().unwrap_or_default()
    }

    pub(crate) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    pub(crate) fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The last access point from which the picture at `at` is correct; the first one if there is none.
    pub(crate) fn key_before(&self, at: Duration) -> Key {
        let mut keys = self.keys.iter().rev();
        let key = keys.find(|key| key.recovered <= at);
        *key.unwrap_or(&self.keys[0])
    }

    /// Reads an access unit as a byte stream with start codes; access points have parameter sets.
    pub(crate) fn read(&self, sample: &Sample) -> Result<Vec<u8>, StoredError> {
        let mut bytes = vec![0; sample.length as usize];
        let read = self.file.read_exact_at(&mut bytes, sample.position);
        let why = |error: &dyn ToString| self.changed(&error.to_string());
        read.map_err(|error| why(&error))?;
        let unit = self.layout.byte_stream(&bytes, sample.access.is_some());
        unit.map_err(|error| why(&error))
    }

    fn changed(&self, why: &str) -> StoredError {
        StoredError::Changed {
            path: self.path.clone(),
            why: why.to_owned(),
        }
    }
}

/// Error of a stored video.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoredError {
    /// The file cannot be opened.
    #[error("cannot open {path}: {cause}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// FFmpeg cannot read the file.
    #[error("cannot read {path}: {why}; check with `ffprobe` whether it is a video")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Error of FFmpeg.
        why: String,
    },
    /// The file has no video.
    #[error("{path} has no video stream")]
    NoVideo {
        /// The file.
        path: PathBuf,
    },
    /// The video is not H.264.
    #[error("{path} is not H.264: encode it with `ffmpeg -i IN -c:v libx264 OUT.mp4`")]
    Codec {
        /// The file.
        path: PathBuf,
    },
    /// No picture can be decoded on its own.
    #[error(
        "{path} has no IDR picture or recovery point at which decoding can start: encode it again"
    )]
    NoKeyFrame {
        /// The file.
        path: PathBuf,
    },
    /// The file is shorter than its header states.
    #[error("{path} is truncated: {pictures} of {stated} pictures; copy it again")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Pictures in the file.
        pictures: usize,
        /// Pictures according to the header.
        stated: i64,
    },
    /// The access units are not contiguous in the file.
    #[error(
        "the pictures of {path} are not contiguous in the file: remux it with `ffmpeg -i IN -c \
         copy OUT.mp4`"
    )]
    Container {
        /// The file.
        path: PathBuf,
    },
    /// An access unit is damaged.
    #[error("picture {picture} of {path} is damaged: {why}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Number of the picture.
        picture: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// The file has changed since it was indexed.
    #[error("{path} has changed since the server read it: {why}")]
    Changed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}
