//! Source and encoder together, as the session of the core wants them.

use tidegate_core::media::{EncodeError, Encoded, FrameEncoder, FrameOrder, FrameRate};

use crate::picture::Picture;
use crate::source::VideoSource;
use crate::x264::{X264Config, X264Encoder};

/// Reads the frame that is ordered and encodes it. Frames that are not ordered are passed over.
#[derive(Debug)]
pub struct EncoderSession {
    source: Box<dyn VideoSource>,
    encoder: X264Encoder,
    picture: Picture,
}

impl EncoderSession {
    /// Opens an encoder that suits the source; `adjust` may change its configuration but for
    /// size and frame rate, which are the source's.
    ///
    /// # Errors
    /// As [`X264Encoder::open`].
    pub fn open(
        source: Box<dyn VideoSource>,
        adjust: impl FnOnce(&mut X264Config),
    ) -> Result<Self, EncodeError> {
        let (size, rate) = (source.size(), source.frame_rate());
        let mut config = X264Config::new(size, rate);
        adjust(&mut config);
        Ok(Self {
            encoder: X264Encoder::open(X264Config {
                size,
                rate,
                ..config
            })?,
            picture: Picture::black(size),
            source,
        })
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
