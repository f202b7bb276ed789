//! Video sources, encoders, decoder and picture quality.
//!
//! Pictures are planar 4:2:0 with 8 bits ([`Picture`]). Sources are a generated [`Scene`] and, with
//! the feature `ffmpeg`, any input of FFmpeg ([`FileSource`]). An [`EncoderSession`] encodes them
//! to H.264 (feature `x264`) or MPEG-2 (feature `ffmpeg`), at a rate that is set before every
//! frame. Without features the crate is pure Rust and has scene, pictures and [`quality`].

mod adaptation;
#[cfg(any(feature = "ffmpeg", feature = "x264"))]
mod budget;
mod colour;
#[cfg(feature = "ffmpeg")]
mod conversion;
#[cfg(feature = "ffmpeg")]
mod decoder;
#[cfg(feature = "ffmpeg")]
mod file;
#[cfg(feature = "ffmpeg")]
mod input;
#[cfg(feature = "ffmpeg")]
mod jpeg;
#[cfg(feature = "ffmpeg")]
mod mpeg2;
#[cfg(feature = "ffmpeg")]
mod native;
#[cfg(feature = "ffmpeg")]
mod orientation;
mod picture;
#[cfg(feature = "ffmpeg")]
mod picture_limit;
mod quality;
#[cfg(feature = "ffmpeg")]
mod reader;
pub mod sandbox;
mod scene;
mod session;
mod source;
#[cfg(feature = "ffmpeg")]
mod stored;
#[cfg(feature = "ffmpeg")]
mod title;
mod world;
#[cfg(feature = "x264")]
mod x264;

pub use adaptation::{Adjustment, Bottleneck, FrameTime, Step};
pub use colour::Colour;
#[cfg(feature = "ffmpeg")]
pub use decoder::{DecodeError, Decoded, Decoder, DecoderConfig};
#[cfg(feature = "ffmpeg")]
pub use file::{FileOptions, FileSource};
#[cfg(feature = "ffmpeg")]
pub use input::InputOptions;
#[cfg(feature = "ffmpeg")]
pub use jpeg::jpeg;
#[cfg(feature = "ffmpeg")]
pub use mpeg2::{Mpeg2Config, Mpeg2Encoder};
pub use picture::{Picture, PictureError, Planes, PlanesMut, Size, SizeError};
#[cfg(feature = "ffmpeg")]
pub use picture_limit::PictureRefusal;
pub use quality::{SizesDiffer, quality, variance};
pub use scene::{Motion, Scene};
pub use session::{EncodedPicture, EncoderSession, OpenEncoder, OperatingPoint, PictureEncoder};
pub use source::{SceneSource, SourceError, VideoSource};
#[cfg(feature = "ffmpeg")]
pub use stored::{StoredError, StoredVideo};
#[cfg(feature = "ffmpeg")]
pub use title::{Title, TitleError, TitleStream};
#[cfg(feature = "x264")]
pub use x264::{Preset, X264Config, X264Encoder};
