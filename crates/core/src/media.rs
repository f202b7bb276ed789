//! Interface of the session to a video encoder, for all codecs.

use core::fmt::Debug;

use crate::units::{Rate, Time};

/// Encodes single frames, each at a requested bit rate.
pub trait FrameEncoder: Debug + Send {
    /// Encodes the frame that was captured at `order.captured`.
    ///
    /// # Errors
    /// If the source has ended, or if the source or the codec failed; the message names which.
    fn encode(&mut self, order: &FrameOrder) -> Result<Encoded, EncodeError>;

    /// Frames per second of the source, as a fraction.
    fn frame_rate(&self) -> FrameRate;
}

/// Request for one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameOrder {
    /// Frame number, from zero at the first capture; skipped frames count.
    pub frame: u64,
    /// Time of capture.
    pub captured: Time,
    /// Rate to encode at. The frame's budget is the share of one frame interval.
    pub rate: Rate,
    /// Whether to make a key frame (H.264: IDR with parameter sets; MPEG-2: I picture after a
    /// sequence header).
    pub key: bool,
}

/// One encoded frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoded {
    /// Frame number of the order.
    pub frame: u64,
    /// Time for the RTP timestamp: the capture time of the order. A picture of a stored stream that
    /// is displayed after later ones (a B-frame precedes it) has a later time.
    pub captured: Time,
    /// Whether decoding can start with the frame. Frames behind it do not depend on frames before it,
    /// except its leading pictures.
    pub key: bool,
    /// Whether it is a leading picture of the last key frame: a picture of a stored stream that is
    /// displayed before it and may depend on frames before it. No other frame depends on this one.
    pub leading: bool,
    /// The access unit: of an H.264 byte stream (ITU-T H.264 annex B), or of an MPEG-2 elementary
    /// stream, depending on the encoder.
    pub data: Vec<u8>,
    /// Quality of the encoder's reconstruction compared with the input picture.
    pub quality: Option<Quality>,
}

/// Video codec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Codec {
    /// ITU-T H.264, as a byte stream (annex B).
    #[default]
    H264,
    /// ITU-T H.262, as an elementary stream.
    Mpeg2,
}

impl Codec {
    /// All codecs.
    pub const ALL: [Self; 2] = [Self::H264, Self::Mpeg2];

    /// Name in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::H264 => "h264",
            Self::Mpeg2 => "mpeg2",
        }
    }
}

/// Similarity of two pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Quality {
    /// Peak signal-to-noise ratio of Y, in dB; 99 when equal.
    pub psnr_y: f64,
    /// PSNR of U, in dB; 99 when equal.
    pub psnr_u: f64,
    /// PSNR of V, in dB; 99 when equal.
    pub psnr_v: f64,
    /// Structural similarity of Y, in 0..=1.
    pub ssim: f64,
}

/// Frames per second as a fraction, as 30000/1001 for NTSC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FrameRate {
    /// Numerator.
    pub num: u32,
    /// Denominator.
    pub den: u32,
}

impl FrameRate {
    /// A whole number of frames per second.
    pub const fn fps(num: u32) -> Self {
        Self { num, den: 1 }
    }

    /// In frames per second.
    pub fn as_f64(self) -> f64 {
        f64::from(self.num) / f64::from(self.den.max(1))
    }

    /// Capture time of frame `n` since the first capture. Computed from `n`, so it does not drift.
    pub fn at(self, n: u64) -> core::time::Duration {
        let nanos = u128::from(n) * 1_000_000_000 * u128::from(self.den.max(1))
            / u128::from(self.num.max(1));
        core::time::Duration::from_nanos(nanos.min(u128::from(u64::MAX)) as u64)
    }

    /// The time between two frames.
    pub fn interval(self) -> core::time::Duration {
        self.at(1)
    }
}

/// Reason that no frame was encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The source has no more pictures.
    #[error("the video source is at its end")]
    EndOfSource,
    /// The source has no new picture for this frame, because its frame rate varies. The stream
    /// continues with the next frame.
    #[error("the video source has no new picture")]
    Unchanged,
    /// The encoder starts again with other parameters and needs an order for a key frame. The picture
    /// of this order was not read: the same frame may be ordered again.
    #[error("the encoder starts again with a key frame")]
    Restarted,
    /// The codec failed.
    #[error("the encoder failed: {0}")]
    Codec(String),
    /// The source failed.
    #[error("the video source failed: {0}")]
    Source(String),
}

impl EncodeError {
    /// Whether the encoder or the source failed.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Codec(_) | Self::Source(_))
    }
}

/// Ticks per second of the RTP clock of all video payloads (RFC 6184 section 8.2.1).
pub const MEDIA_CLOCK: u32 = 90_000;
