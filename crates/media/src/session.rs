//! Source and encoder combined, as required by the sender of the core.

use core::fmt::Debug;

use tidegate_core::media::{EncodeError, Encoded, FrameEncoder, FrameOrder, FrameRate, Quality};
use tidegate_core::units::Rate;

use crate::picture::Picture;
use crate::source::VideoSource;
#[cfg(feature = "x264")]
use crate::x264::{X264Config, X264Encoder};

/// Encodes pictures one by one, without delay.
pub trait PictureEncoder: Debug + Send {
    /// Encodes a picture at `rate`, as a key frame if `key` is set or it is the first.
    ///
    /// # Errors
    /// If the size of the picture differs from that of the encoder, or the codec fails.
    fn encode(
        &mut self,
        picture: &Picture,
        rate: Rate,
        key: bool,
    ) -> Result<EncodedPicture, EncodeError>;
}

/// An encoded picture.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedPicture {
    /// The access unit. A key frame includes the headers that a decoder needs to start.
    pub data: Vec<u8>,
    /// Whether it is decodable without references.
    pub key: bool,
    /// Quality of the encoder's reconstruction relative to the picture.
    pub quality: Quality,
}

/// Reads and encodes each ordered frame. Frames without an order are skipped.
#[derive(Debug)]
pub struct EncoderSession {
    source: Box<dyn VideoSource>,
    encoder: Box<dyn PictureEncoder>,
    picture: Picture,
    /// Number of the last encoded frame, and its picture if the frame rate of the source varies.
    encoded: Option<(u64, u64)>,
}

impl EncoderSession {
    /// Combines a source with an encoder of the same size and frame rate.
    pub fn new(source: Box<dyn VideoSource>, encoder: impl PictureEncoder + 'static) -> Self {
        Self {
            encoder: Box::new(encoder),
            picture: Picture::black(source.size()),
            encoded: None,
            source,
        }
    }

    /// Opens an H.264 encoder with size and frame rate of the source; `adjust` may change the other
    /// parameters.
    ///
    /// # Errors
    /// See [`X264Encoder::open`].
    #[cfg(feature = "x264")]
    pub fn open(
        source: Box<dyn VideoSource>,
        adjust: impl FnOnce(&mut X264Config),
    ) -> Result<Self, EncodeError> {
        let (size, rate) = (source.size(), source.frame_rate());
        let mut config = X264Config::new(size, rate);
        adjust(&mut config);
        let encoder = X264Encoder::open(X264Config {
            size,
            rate,
            colour: source.colour(),
            ..config
        })?;
        Ok(Self::new(source, encoder))
    }

    /// Original picture of the last encoded frame.
    pub const fn picture(&self) -> &Picture {
        &self.picture
    }
}

impl EncoderSession {
    /// Frames after which a picture is encoded again: one second, so that the path is known.
    fn most_gap(&self) -> u64 {
        self.source.frame_rate().as_f64() as u64
    }
}

impl FrameEncoder for EncoderSession {
    fn encode(&mut self, order: &FrameOrder) -> Result<Encoded, EncodeError> {
        let read = self.source.advance_to(order.frame, &mut self.picture);
        if !read.map_err(|e| EncodeError::Source(e.to_string()))? {
            return Err(EncodeError::EndOfSource);
        }
        let rate = match (self.source.picture(), self.encoded) {
            (Some(picture), Some((frame, before))) => {
                let frames = order.frame.saturating_sub(frame);
                let is_repeat = picture == before && frames < self.most_gap();
                if is_repeat && !order.key {
                    return Err(EncodeError::Unchanged);
                }
                // The frames without a picture have left their bits.
                order.rate.scale(frames.clamp(1, MAX_SHARES), 1)
            }
            _ => order.rate,
        };
        let coded = self.encoder.encode(&self.picture, rate, order.key)?;
        self.encoded = self.source.picture().map(|picture| (order.frame, picture));
        Ok(Encoded {
            frame: order.frame,
            captured: order.captured,
            key: coded.key,
            data: coded.data,
            quality: Some(coded.quality),
        })
    }

    fn frame_rate(&self) -> FrameRate {
        self.source.frame_rate()
    }
}

/// Shares of the rate that one picture may have after frames without a picture, fewer than those of
/// a key frame.
const MAX_SHARES: u64 = 3;
