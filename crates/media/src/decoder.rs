//! H.264 and MPEG-2 decoder (FFmpeg): decodes an access unit to its picture.

use core::fmt;
use std::path::PathBuf;

use tidegate_core::media::Codec;

use crate::colour::Colour;
use crate::native::{NativeDecoder, Outcome};
use crate::picture::{Picture, Size};
use crate::picture_limit::{self, PictureRefusal};
use crate::sandbox::protocol::Output;
use crate::sandbox::{DecoderProcess, Isolation, ProcessFailure};

/// Configuration of a [`Decoder`]. A [`Codec`] is the default configuration for it.
#[derive(Clone, Debug)]
pub struct DecoderConfig {
    /// Codec of the stream.
    pub codec: Codec,
    /// Limit of the picture size: a picture of this size, or of another size with as many samples.
    /// Memory grows with it.
    pub max_picture: Size,
    /// Program that decodes in a process of its own, for untrusted streams; see
    /// [`sandbox`](crate::sandbox). `None` decodes in this process.
    pub program: Option<PathBuf>,
}

impl From<Codec> for DecoderConfig {
    /// Pictures of up to [`Size::LEVEL_5_2`], decoded in this process.
    fn from(codec: Codec) -> Self {
        Self {
            codec,
            max_picture: Size::LEVEL_5_2,
            program: None,
        }
    }
}

/// Decoder whose pictures leave in display order: at once, unless the stream has B pictures. Then a
/// picture leaves with a later access unit, see [`behind`](Self::behind).
///
/// It continues after damage. Missing parts are concealed, and the picture is
/// [`Decoded::Damaged`] if FFmpeg detects the damage. FFmpeg does not always detect a missing
/// reference picture. The caller can detect it by frame numbers.
///
/// The picture size may change at a key frame, within the limit.
#[derive(Debug)]
pub struct Decoder {
    codec: Codec,
    max_picture: Size,
    backend: Backend,
    picture: Option<Picture>,
    behind: u8,
    colour: Colour,
    errors: u64,
}

enum Backend {
    InProcess(NativeDecoder),
    Process(DecoderProcess),
}

/// Result of decoding an access unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// No picture: the access unit is not decodable, or the decoder process has failed a short time
    /// ago.
    Nothing,
    /// No picture yet: it is displayed after a later one.
    Delayed,
    /// No picture: the access unit was not decoded, because of its headers.
    Refused(PictureRefusal),
    /// No picture: the decoder process failed. The next access unit must be a key frame.
    Failed(ProcessFailure),
    /// A picture without detected damage.
    Whole(&'a Picture),
    /// A picture with concealed parts.
    Damaged(&'a Picture),
}

impl<'a> Decoded<'a> {
    /// The picture, damaged or not.
    pub const fn picture(self) -> Option<&'a Picture> {
        match self {
            Self::Nothing | Self::Delayed | Self::Refused(_) | Self::Failed(_) => None,
            Self::Whole(picture) | Self::Damaged(picture) => Some(picture),
        }
    }
}

impl Decoder {
    /// Opens a decoder.
    ///
    /// # Errors
    /// If the installed FFmpeg lacks the decoder, or the decoder process does not start.
    pub fn open(config: impl Into<DecoderConfig>) -> Result<Self, DecodeError> {
        let DecoderConfig {
            codec,
            max_picture,
            program,
        } = config.into();
        let backend = match program {
            None => Backend::InProcess(NativeDecoder::open(codec, max_picture)?),
            Some(program) => {
                let process = DecoderProcess::start(program, codec, max_picture);
                Backend::Process(process.map_err(|e| DecodeError::Process(codec, e))?)
            }
        };
        Ok(Self {
            codec,
            max_picture,
            backend,
            picture: None,
            behind: 0,
            colour: Colour::UNSPECIFIED,
            errors: 0,
        })
    }

    /// Decodes one access unit. Arbitrary bytes are allowed.
    pub fn decode(&mut self, unit: &[u8]) -> Decoded<'_> {
        if unit.is_empty() {
            return Decoded::Nothing;
        }
        match picture_limit::check(self.codec, unit, self.max_picture) {
            Ok(colour) => self.colour = colour.unwrap_or(self.colour),
            Err(refusal) => {
                self.errors += 1;
                return Decoded::Refused(refusal);
            }
        }
        self.pass(unit)
    }

    /// The next picture that waits for its turn at the end of a stream; [`Decoded::Nothing`] if there
    /// is none. The next access unit must be a key frame.
    pub fn drain(&mut self) -> Decoded<'_> {
        // The backends take an empty unit for the end of the stream.
        self.pass(&[])
    }

    fn pass(&mut self, unit: &[u8]) -> Decoded<'_> {
        let outcome = match &mut self.backend {
            Backend::InProcess(decoder) => {
                let outcome = decoder.decode(unit);
                if let Outcome::Whole(Output { size, .. }) | Outcome::Damaged(Output { size, .. }) =
                    outcome
                {
                    let picture = Picture::resized(&mut self.picture, size);
                    decoder.copy_picture(size, picture.as_i420_mut());
                }
                Ok(outcome)
            }
            Backend::Process(process) => process.decode(unit, &mut self.picture),
        };
        let is_error = !matches!(outcome, Ok(Outcome::Whole(_) | Outcome::Delayed));
        self.errors += u64::from(is_error && !unit.is_empty());
        if let Ok(Outcome::Whole(output) | Outcome::Damaged(output)) = outcome {
            self.behind = output.behind;
        }
        match (outcome, &self.picture) {
            (Err(failure), _) => Decoded::Failed(failure),
            (Ok(Outcome::Delayed), _) => Decoded::Delayed,
            (Ok(Outcome::Whole(_)), Some(picture)) => Decoded::Whole(picture),
            (Ok(Outcome::Damaged(_)), Some(picture)) => Decoded::Damaged(picture),
            (Ok(_), _) => Decoded::Nothing,
        }
    }

    /// Last decoded picture.
    pub const fn last(&self) -> Option<&Picture> {
        self.picture.as_ref()
    }

    /// Number of access units by which that of the last picture precedes the one decoded last: zero
    /// without B pictures.
    pub const fn behind(&self) -> u8 {
        self.behind
    }

    /// Colour description in the last sequence parameter set; of MPEG-2 unspecified.
    pub const fn colour(&self) -> Colour {
        self.colour
    }

    /// Number of access units without a picture or with a damaged one.
    pub const fn errors(&self) -> u64 {
        self.errors
    }

    /// What separates the decoder from this process.
    pub fn isolation(&self) -> Isolation {
        match &self.backend {
            Backend::InProcess(_) => Isolation::None,
            Backend::Process(process) => process.isolation(),
        }
    }

    /// Identifier of the decoder process, while there is one.
    pub fn process_id(&self) -> Option<u32> {
        match &self.backend {
            Backend::InProcess(_) => None,
            Backend::Process(process) => process.id(),
        }
    }

    /// Discards all reference pictures. The next access unit must be a key frame.
    pub fn reset(&mut self) {
        match &mut self.backend {
            Backend::InProcess(decoder) => decoder.reset(),
            Backend::Process(process) => process.reset(),
        }
        self.picture = None;
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InProcess(_) => "InProcess",
            Self::Process(_) => "Process",
        })
    }
}

/// Error of [`Decoder::open`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// FFmpeg was built without the decoder.
    #[error("the installed FFmpeg has no {} decoder; install a build with it, such as Debian's \
         libavcodec", .0.name())]
    NoCodec(Codec),
    /// FFmpeg failed to open the decoder.
    #[error("cannot open FFmpeg's {} decoder: {}", .0.name(), .1)]
    Refused(Codec, String),
    /// The decoder process does not start.
    #[error(
        "cannot start the {} decoder process: {}; check that FFmpeg has the decoder and that \
         /proc is mounted",
        .0.name(), .1
    )]
    Process(Codec, ProcessFailure),
}
