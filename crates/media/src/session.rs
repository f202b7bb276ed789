//! Source and encoder combined, as required by the sender of the core.

use core::fmt::{self, Debug};

use tidegate_core::media::{EncodeError, Encoded, FrameEncoder, FrameOrder, FrameRate, Quality};
use tidegate_core::units::{Rate, Time};

use crate::adaptation::{Adaptation, Adjustment, FrameTime, Pictures, Step};
use crate::picture::{Picture, Size};
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

/// Settings of an encoder that the processor can keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OperatingPoint {
    /// Cost, and every how many pictures one is encoded.
    pub step: Step,
    /// Pictures are made smaller by this divisor.
    pub shrink: u32,
    /// Preset of the encoder; empty if it has none.
    pub preset: &'static str,
}

/// Opens an encoder for pictures of this size with this preset.
pub type OpenEncoder =
    Box<dyn FnMut(Size, &'static str) -> Result<Box<dyn PictureEncoder>, EncodeError> + Send>;

/// Reads and encodes each ordered frame. Frames without an order are skipped.
pub struct EncoderSession {
    source: Box<dyn VideoSource>,
    encoder: Box<dyn PictureEncoder>,
    picture: Picture,
    /// Number of the last encoded frame, and of its picture if the frame rate of the source varies.
    encoded: Option<(u64, Option<u64>)>,
    adaptive: Option<Adaptive>,
}

/// An encoder that is adapted to the processor.
struct Adaptive {
    adaptation: Adaptation,
    points: Vec<OperatingPoint>,
    open: OpenEncoder,
    at: OperatingPoint,
    /// Point of the next frame.
    next: OperatingPoint,
    /// The picture at the size of the encoder.
    scaled: Picture,
}

impl EncoderSession {
    /// Adapts the encoder to the processor: it begins at the first of `points`, which `open` opens,
    /// and [`on_time`](Self::on_time) selects others.
    ///
    /// # Errors
    /// There are no points, or those of `open`.
    pub fn adaptive(
        source: Box<dyn VideoSource>,
        points: Vec<OperatingPoint>,
        mut open: OpenEncoder,
    ) -> Result<Self, EncodeError> {
        let at = *points
            .first()
            .ok_or_else(|| EncodeError::Codec("no operating point".into()))?;
        let pictures = match source.picture() {
            Some(_) => Pictures::Irregular,
            None if source.skips_freely() => Pictures::Generated,
            None => Pictures::Regular,
        };
        let steps = points.iter().map(|point| point.step).collect();
        let interval = source.frame_rate().interval();
        Ok(Self {
            encoder: open(at.size(source.size()), at.preset)?,
            picture: Picture::black(source.size()),
            encoded: None,
            adaptive: Some(Adaptive {
                adaptation: Adaptation::new(interval, pictures, steps),
                points,
                open,
                at,
                next: at,
                scaled: Picture::black(at.size(source.size())),
            }),
            source,
        })
    }

    /// Settings of the next picture; `None` if they are constant.
    pub fn point(&self) -> Option<OperatingPoint> {
        self.adaptive.as_ref().map(|adaptive| adaptive.next)
    }

    /// The last encoded picture took this time, and was ready at `now`. The next frame is encoded at
    /// the returned point, if that differs from the previous one.
    pub fn on_time(&mut self, now: Time, time: FrameTime) -> Option<Adjustment> {
        let adaptive = self.adaptive.as_mut()?;
        let adjustment = adaptive.adaptation.on_frame(now, time)?;
        if let Some(point) = adaptive.points.get(adjustment.to) {
            adaptive.next = *point;
        }
        Some(adjustment)
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
        Ok(Self {
            encoder: Box::new(encoder),
            picture: Picture::black(source.size()),
            encoded: None,
            adaptive: None,
            source,
        })
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

    /// Opens the encoder of another point, if one was selected.
    ///
    /// # Errors
    /// [`EncodeError::Restarted`] if the order is for no key frame, and those of the encoder.
    fn restart(&mut self, key: bool) -> Result<(), EncodeError> {
        let Some(adaptive) = &mut self.adaptive else {
            return Ok(());
        };
        let before = core::mem::replace(&mut adaptive.at, adaptive.next);
        let at = adaptive.at;
        if (at.preset, at.shrink) == (before.preset, before.shrink) {
            return Ok(());
        }
        let size = at.size(self.source.size());
        self.encoder = (adaptive.open)(size, at.preset)?;
        adaptive.scaled.resize(size);
        if key {
            Ok(())
        } else {
            Err(EncodeError::Restarted)
        }
    }

    /// Every how many frames one is encoded.
    fn every(&self) -> u64 {
        self.adaptive
            .as_ref()
            .map_or(1, |adaptive| u64::from(adaptive.at.step.every.max(1)))
    }

    /// Rate for the picture of an order, which has the bits of the frames without a picture before
    /// it; `None` if the frame is not encoded.
    fn rate(&self, order: &FrameOrder) -> Option<Rate> {
        let Some((frame, before)) = self.encoded else {
            return Some(order.rate);
        };
        let frames = order.frame.saturating_sub(frame);
        let picture = self.source.picture();
        if picture.is_none() {
            let most = if order.key { 1 } else { self.every() };
            return Some(order.rate.scale(frames.clamp(1, most), 1));
        }
        let is_repeat = picture == before && frames < self.most_gap();
        (!is_repeat || order.key).then(|| order.rate.scale(frames.clamp(1, MAX_SHARES), 1))
    }
}

impl FrameEncoder for EncoderSession {
    fn encode(&mut self, order: &FrameOrder) -> Result<Encoded, EncodeError> {
        self.restart(order.key)?;
        let every = self.every();
        let is_left_out = |(frame, _)| (frame + 1..frame + every).contains(&order.frame);
        if self.encoded.is_some_and(is_left_out) && !order.key {
            return Err(EncodeError::Unchanged);
        }
        let read = self.source.advance_to(order.frame, &mut self.picture);
        if !read.map_err(|e| EncodeError::Source(e.to_string()))? {
            return Err(EncodeError::EndOfSource);
        }
        let rate = self.rate(order).ok_or(EncodeError::Unchanged)?;
        let picture = match &mut self.adaptive {
            Some(Adaptive { at, scaled, .. }) if at.shrink > 1 => {
                scaled.fill_from_larger(&self.picture, at.shrink);
                scaled
            }
            _ => &self.picture,
        };
        let coded = self.encoder.encode(picture, rate, order.key)?;
        self.encoded = Some((order.frame, self.source.picture()));
        Ok(Encoded {
            frame: order.frame,
            captured: order.captured,
            key: coded.key,
            leading: false,
            data: coded.data,
            quality: Some(coded.quality),
        })
    }

    fn frame_rate(&self) -> FrameRate {
        self.source.frame_rate()
    }
}

impl OperatingPoint {
    /// Points for a source: presets, then fewer pictures, but 12 per second, then smaller ones.
    /// `presets` have their costs of a picture relative to each other, from the one to begin with to
    /// the cheapest.
    pub fn ladder(source: &dyn VideoSource, presets: &[(&'static str, f64)]) -> Vec<Self> {
        let point = |&(preset, cost): &(&'static str, f64)| Self {
            step: Step { cost, every: 1 },
            shrink: 1,
            preset,
        };
        let mut points: Vec<Self> = presets.iter().map(point).collect();
        let Some(mut last) = points.last().copied() else {
            return points;
        };
        let cheapest = last.step.cost;
        let most_every = (source.frame_rate().as_f64() / MIN_FPS) as u32;
        for shrink in [1, 2, 4] {
            let is_large = |size: Size| shrink == 1 || size.luma() >= MIN_LUMA;
            if !source.size().divided(shrink).is_some_and(is_large) {
                continue;
            }
            let cost = cheapest / f64::from(shrink * shrink);
            for every in 1..=most_every.max(1) {
                if cost / f64::from(every) < last.step.cost / f64::from(last.step.every) {
                    let step = Step { cost, every };
                    last = Self {
                        step,
                        shrink,
                        ..last
                    };
                    points.push(last);
                }
            }
        }
        points
    }

    /// Size of the encoded pictures.
    pub fn size(self, source: Size) -> Size {
        source.divided(self.shrink).unwrap_or(source)
    }
}

impl Debug for EncoderSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncoderSession")
            .field("source", &self.source)
            .field("encoder", &self.encoder)
            .field("encoded", &self.encoded)
            .field("at", &self.adaptive.as_ref().map(|adaptive| adaptive.at))
            .finish_non_exhaustive()
    }
}

/// Shares of the rate that one picture may have after frames without a picture, fewer than those of
/// a key frame.
const MAX_SHARES: u64 = 3;
/// Motion is still motion at ten pictures per second; some are lost.
const MIN_FPS: f64 = 12.0;
/// 160x90: faces can be recognised.
const MIN_LUMA: usize = 160 * 90;
