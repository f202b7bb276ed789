//! Source and encoder together, as the session of the core wants them.

use core::fmt::Debug;

use tidegate_core::media::{EncodeError, Encoded, FrameEncoder, FrameOrder, FrameRate, Quality};
use tidegate_core::units::Rate;

use crate::picture::Picture;
use crate::source::VideoSource;
#[cfg(feature = "x264")]
use crate::x264::{X264Config, X264Encoder};

/// Encodes one picture at a rate, with the bits of that one picture.
pub trait PictureEncoder: Debug + Send {
    /// Encodes a picture at `rate`, as a key frame if `key`; the first is one anyway.
    ///
    /// # Errors
    /// When the picture does not fit the encoder, or the codec fails.
    fn encode(&mut self, picture: &Picture, rate: Rate, key: bool) -> Result<Coded, EncodeError>;
}

/// An encoded picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Coded {
    /// The access unit, with all a decoder needs to begin here if it is a key frame.
    pub data: Vec<u8>,
    /// Whether it can be decoded alone.
    pub key: bool,
    /// How the encoder's reconstruction compares with the picture.
    pub quality: Quality,
}

/// Reads the frame that is ordered and encodes it. Frames that are not ordered are passed over.
#[derive(Debug)]
pub struct EncoderSession {
    source: Box<dyn VideoSource>,
    encoder: Box<dyn PictureEncoder>,
    picture: Picture,
}

impl EncoderSession {
    /// Joins a source with an encoder that was opened for its size and its frame rate.
    pub fn new(source: Box<dyn VideoSource>, encoder: impl PictureEncoder + 'static) -> Self {
        Self {
            encoder: Box::new(encoder),
            picture: Picture::black(source.size()),
            source,
        }
    }

    /// Opens an H.264 encoder that suits the source; `adjust` may change its configuration but for
    /// size and frame rate, which are the source's.
    ///
    /// # Errors
    /// As [`X264Encoder::open`].
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
            ..config
        })?;
        Ok(Self::new(source, encoder))
    }

    /// The picture that was encoded last, as it came from the source.
    pub const fn picture(&self) -> &Picture {
        &self.picture
    }
}

impl FrameEncoder for EncoderSession {
    fn encode(&mut self, order: &FrameOrder) -> Result<Encoded, EncodeError> {
        let read = self.source.advance_to(order.frame, &mut self.picture);
        if !read.map_err(|e| EncodeError::Source(e.to_string()))? {
            return Err(EncodeError::EndOfSource);
        }
        let coded = self.encoder.encode(&self.picture, order.rate, order.key)?;
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
