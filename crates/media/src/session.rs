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
}

impl EncoderSession {
    /// Combines a source with an encoder of the same size and frame rate.
    pub fn new(source: Box<dyn VideoSource>, encoder: impl PictureEncoder + 'static) -> Self {
        Self {
            encoder: Box::new(encoder),
            picture: Picture::black(source.size()),
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
            ..config
        })?;
        Ok(Self::new(source, encoder))
    }

    /// Original picture of the last encoded frame.
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
