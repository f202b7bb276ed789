//! Frames of a stream: those of a rendition, or encoded for the client.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tidegate_core::media::{EncodeError, Encoded, FrameEncoder, FrameOrder, FrameRate};
use tidegate_core::session::stream::EncodePipe;
use tidegate_live::driver::StopFlag;
use tidegate_live::encoder_thread::EncoderThread;
use tidegate_media::{EncoderSession, FileOptions, FileSource, Preset, Title, TitleStream};

/// Source of a stream.
#[derive(Debug)]
pub(super) enum Source {
    /// Frames of a rendition, read at once.
    Stored {
        stream: TitleStream,
        ready: Option<Result<Encoded, EncodeError>>,
    },
    /// The highest rendition, decoded and encoded at the rate of each order.
    Encoded {
        pipe: EncoderThread,
        rendition: usize,
        frame_rate: FrameRate,
        /// Number of the next frame of the file.
        next: u64,
        /// Number of the first frame of the file.
        first: u64,
    },
}

impl Source {
    /// The frames of a title from `from` on.
    pub(super) fn stored(title: &Arc<Title>, from: Duration) -> Self {
        let mut stream = TitleStream::new(Arc::clone(title));
        stream.seek(from);
        Self::Stored {
            stream,
            ready: None,
        }
    }

    /// Encodes a title from `from` on, on a thread that wakes `driver`.
    ///
    /// # Errors
    /// The file cannot be decoded, or the encoder or its thread cannot be started.
    pub(super) fn encoded(title: &Title, from: Duration, driver: StopFlag) -> Result<Self> {
        let rendition = title.renditions().len() - 1;
        let path = title.renditions()[rendition].path();
        let name = path.to_str().context("the name of the file is not UTF-8")?;
        let frame_rate = title.frame_rate();
        let options = FileOptions {
            rate: Some(frame_rate),
            ..FileOptions::default()
        };
        let file = FileSource::open(name, options)?;
        let session = EncoderSession::open(Box::new(file), |config| {
            config.preset = Preset::Superfast;
        })?;
        let first = (from.as_secs_f64() * frame_rate.as_f64()) as u64;
        let encoder = FromFrame { session, first };
        Ok(Self::Encoded {
            pipe: EncoderThread::start(encoder, driver).context("cannot start the encoder")?,
            rendition,
            frame_rate,
            next: first,
            first,
        })
    }

    /// Continues a stored stream at the last key frame at or before `at`. An encoded one continues at
    /// its position.
    pub(super) fn seek(&mut self, at: Duration) {
        if let Self::Stored { stream, .. } = self {
            stream.seek(at);
        }
    }

    /// Display time of the next frame.
    pub(super) fn position(&self) -> Duration {
        match self {
            Self::Stored { stream, .. } => stream.position(),
            Self::Encoded {
                frame_rate, next, ..
            } => frame_rate.at(*next),
        }
    }

    /// Time from the capture of the next frame to its display.
    pub(super) fn delay(&self) -> Duration {
        match self {
            Self::Stored { stream, .. } => stream.delay(),
            Self::Encoded { .. } => Duration::ZERO,
        }
    }

    /// Number of the rendition.
    pub(super) fn rendition(&self) -> usize {
        match self {
            Self::Stored { stream, .. } => stream.rendition(),
            Self::Encoded { rendition, .. } => *rendition,
        }
    }
}

impl EncodePipe for Source {
    fn submit(&mut self, order: FrameOrder) {
        match self {
            Self::Stored { stream, ready } => *ready = Some(stream.encode(&order)),
            Self::Encoded {
                pipe, next, first, ..
            } => {
                *next = *first + order.frame + 1;
                pipe.submit(order);
            }
        }
    }

    fn poll(&mut self) -> Option<Result<Encoded, EncodeError>> {
        match self {
            Self::Stored { ready, .. } => ready.take(),
            Self::Encoded { pipe, .. } => pipe.poll(),
        }
    }
}

/// An encoder whose frame 0 is frame `first` of its source.
#[derive(Debug)]
struct FromFrame {
    session: EncoderSession,
    first: u64,
}

impl FrameEncoder for FromFrame {
    fn encode(&mut self, order: &FrameOrder) -> Result<Encoded, EncodeError> {
        let shifted = FrameOrder {
            frame: order.frame + self.first,
            ..*order
        };
        let encoded = self.session.encode(&shifted)?;
        Ok(Encoded {
            frame: order.frame,
            ..encoded
        })
    }

    fn frame_rate(&self) -> FrameRate {
        self.session.frame_rate()
    }
}
