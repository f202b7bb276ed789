//! A stored title in several renditions, and the stream of one client.

mod climb;

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use tidegate_core::media::{EncodeError, Encoded, FrameEncoder, FrameOrder, FrameRate};
use tidegate_core::units::Rate;

use crate::stored::{Key, StoredVideo};
use climb::{Climb, Ladder};

/// Renditions of the same video at different rates.
#[derive(Debug)]
pub struct Title {
    /// By ascending rate; at least one.
    renditions: Vec<StoredVideo>,
}

impl Title {
    /// Joins renditions.
    ///
    /// # Errors
    /// There is none, or their frame rates differ.
    pub fn new(mut renditions: Vec<StoredVideo>) -> Result<Self, TitleError> {
        renditions.sort_by_key(StoredVideo::rate);
        let first = renditions.first().ok_or(TitleError::Empty)?;
        let rate = first.frame_rate();
        let other = renditions.iter().find(|video| video.frame_rate() != rate);
        if let Some(other) = other {
            let rates = [first, other].map(|video| {
                let file = video.path().display().to_string();
                (file, video.frame_rate().as_f64())
            });
            return Err(TitleError::FrameRates(rates));
        }
        Ok(Self { renditions })
    }

    /// The renditions by ascending rate.
    pub fn renditions(&self) -> &[StoredVideo] {
        &self.renditions
    }

    /// Frame rate of all renditions.
    pub fn frame_rate(&self) -> FrameRate {
        self.renditions[0].frame_rate()
    }

    /// Duration of the longest rendition.
    pub fn duration(&self) -> Duration {
        let durations = self.renditions.iter().map(StoredVideo::duration);
        durations.max().unwrap_or_default()
    }

    /// Display time of the last access point of a rendition from which the picture at `at` is correct.
    pub fn key_before(&self, rendition: usize, at: Duration) -> Duration {
        let video = &self.renditions[rendition];
        video.samples()[video.key_before(at).sample].shown
    }

    /// Mean rate of the lowest rendition, without the headers of packets.
    pub fn lowest_rate(&self) -> Rate {
        self.renditions[0].rate()
    }

    /// Rate of the largest group of pictures in any rendition.
    pub fn highest_rate(&self) -> Rate {
        let rates = self.renditions.iter().map(StoredVideo::peak_rate);
        rates.max().unwrap_or_default()
    }
}

/// Reason why files are no title.
#[derive(Clone, Debug, PartialEq)]
pub enum TitleError {
    /// There is no file.
    Empty,
    /// Two files and their frame rates.
    FrameRates([(String, f64); 2]),
}

impl fmt::Display for TitleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("there is no rendition"),
            Self::FrameRates([(one, rate), (other, another)]) => write!(
                f,
                "{one} has {rate:.3} frames/s and {other} {another:.3}: renditions need the same \
                 frame rate"
            ),
        }
    }
}

impl core::error::Error for TitleError {}

/// The stream of one client: answers orders for frames with those of a rendition.
///
/// Frames cannot be encoded for an order, so the rate of an order selects the rendition, at access
/// points only. A frame whose references were not sent is left out, up to the next access point.
#[derive(Debug)]
pub struct TitleStream {
    title: Arc<Title>,
    rendition: usize,
    /// Index of the next sample.
    next: usize,
    /// Slot of the first ordered frame.
    start: u32,
    /// Number of the first ordered frame since the last seek.
    first: Option<u64>,
    /// A reference since the last access point was not sent.
    is_broken: bool,
    /// The client lacks references of the leading pictures of the last access point.
    skips_leading: bool,
    /// Mean ordered rate in bit/s, over about a second and over a few frames.
    allowed: Option<[f64; 2]>,
    climb: Climb,
    /// Rates of the present group of pictures, if there is a higher rendition.
    ladder: Option<Ladder>,
}

impl TitleStream {
    /// The stream of a title from its beginning.
    pub fn new(title: Arc<Title>) -> Self {
        let mut stream = Self {
            title,
            rendition: 0,
            next: 0,
            start: 0,
            first: None,
            is_broken: true,
            skips_leading: true,
            allowed: None,
            climb: Climb::new(),
            ladder: None,
        };
        stream.seek(Duration::ZERO);
        stream
    }

    /// Continues at the last access point from which the picture at `at` is correct; returns its time.
    pub fn seek(&mut self, at: Duration) -> Duration {
        let video = self.video();
        let key = video.key_before(at);
        let shown = video.samples()[key.sample].shown;
        self.next = key.sample;
        self.start = key.slot;
        self.first = None;
        self.is_broken = true;
        shown
    }

    /// Display time of the next frame.
    pub fn position(&self) -> Duration {
        let samples = self.video().samples();
        let sample = samples.get(self.next);
        sample.map_or(self.video().duration(), |sample| sample.shown)
    }

    /// Time from the capture of the next frame to its display, without the delay of the path: zero
    /// without reordered pictures.
    pub fn delay(&self) -> Duration {
        let sample = self.video().samples().get(self.next);
        sample.map_or(Duration::ZERO, |sample| sample.delay)
    }

    /// Number of the present rendition.
    pub fn rendition(&self) -> usize {
        self.rendition
    }

    fn video(&self) -> &StoredVideo {
        &self.title.renditions[self.rendition]
    }

    /// Skips the frames before `slot`.
    fn advance_to(&mut self, slot: u64) {
        while let Some(sample) = self.video().samples().get(self.next)
            && u64::from(sample.slot) < slot
        {
            let breaks = sample.is_reference && !sample.is_leading;
            // Other leading pictures may refer to it.
            self.skips_leading |= sample.is_reference && sample.is_leading;
            self.is_broken |= breaks;
            self.next += 1;
        }
    }

    /// Selects the rendition from the access point at `slot` on.
    fn select(&mut self, slot: u32) {
        // It rises slowly and falls quickly.
        let allowed = self.allowed.map_or(0.0, |[slow, quick]| slow.min(quick));
        let present = key_at(self.video(), slot).map_or(0.0, |key| key.rate.as_f64());
        let upward = if allowed >= present * FREE {
            TRIAL
        } else {
            UPWARD
        };
        let fits = |number: usize, key: &Key| {
            let margin = if number > self.rendition { upward } else { 1.0 };
            key.rate.as_f64() * margin <= allowed
        };
        let found = self.title.renditions.iter().enumerate().rev();
        let found = found.filter_map(|(number, video)| Some((number, key_at(video, slot)?)));
        let mut lowest = None;
        let mut best = None;
        for (number, key) in found {
            if best.is_none() && fits(number, &key) {
                best = Some((number, key));
            }
            lowest = Some((number, key));
        }
        if let Some((number, key)) = best.or(lowest) {
            let higher = self.title.renditions.get(number + 1);
            self.ladder = higher.and_then(|video| {
                let next = key_at(video, slot)?.rate.as_f64();
                let present = key.rate.as_f64();
                Some(Ladder { present, next })
            });
            (self.rendition, self.next) = (number, key.sample);
        }
    }

    /// Bytes to which a frame is filled.
    fn filled(&mut self, order: &FrameOrder) -> usize {
        let frames_per_second = self.title.frame_rate().as_f64();
        let allowed = self.allowed.map_or(0.0, |[slow, quick]| slow.min(quick));
        let rates = (order.rate.as_f64(), allowed);
        let now = order.frame as f64 / frames_per_second;
        let rate = self.climb.rate(now, self.ladder, rates);
        rate.map_or(0, |rate| climb::bytes(rate, frames_per_second))
    }

    /// Updates the means of the ordered rates. The rate of a key frame is lower, because an encoder
    /// would spend several frames' shares on it.
    fn note(&mut self, order: &FrameOrder) {
        let rate = order.rate.as_f64();
        let [slow, quick] = self.allowed.unwrap_or([rate; 2]);
        let share = 1.0 / self.title.frame_rate().as_f64().max(QUICK);
        if !order.key || self.allowed.is_none() {
            let slow = slow + (rate - slow) * share;
            self.allowed = Some([slow, quick + (rate - quick) / QUICK]);
        }
    }
}

impl FrameEncoder for TitleStream {
    fn encode(&mut self, order: &FrameOrder) -> Result<Encoded, EncodeError> {
        self.note(order);
        let first = *self.first.get_or_insert(order.frame);
        let slot = u64::from(self.start) + order.frame.saturating_sub(first);
        self.advance_to(slot);
        let samples = self.video().samples();
        let sample = *samples.get(self.next).ok_or(EncodeError::EndOfSource)?;
        if u64::from(sample.slot) > slot {
            return Err(EncodeError::Unchanged);
        }
        if let Some(access) = sample.access {
            let before = self.rendition;
            // A decoder does not know that the pictures before a recovery are those of another file.
            if access.is_immediate() {
                self.select(sample.slot);
            }
            if before != self.rendition {
                let now = order.frame as f64 / self.title.frame_rate().as_f64();
                self.climb.on_change(now, self.rendition > before);
            }
            self.skips_leading = self.is_broken || order.key || before != self.rendition;
            self.is_broken = false;
        } else if sample.is_leading && self.skips_leading {
            self.next += 1;
            return Err(EncodeError::Unchanged);
        } else if self.is_broken || order.key {
            self.is_broken = true;
            self.next += 1;
            return Err(EncodeError::Unchanged);
        }
        let video = self.video();
        let sample = video.samples()[self.next];
        let data = video.read(&sample);
        let mut data = data.map_err(|e| EncodeError::Source(e.to_string()))?;
        self.next += 1;
        // The frames after an access point are the first with room.
        if sample.access.is_none() {
            climb::fill(&mut data, self.filled(order));
        }
        Ok(Encoded {
            frame: order.frame,
            captured: order.captured + sample.delay,
            key: sample.access.is_some(),
            leading: sample.is_leading,
            data,
            quality: None,
        })
    }

    fn frame_rate(&self) -> FrameRate {
        self.title.frame_rate()
    }
}

/// The access point at a slot, if its picture is correct.
fn key_at(video: &StoredVideo, slot: u32) -> Option<Key> {
    let keys = video.keys();
    let found = keys.binary_search_by_key(&slot, |key| key.slot);
    let key = keys[found.ok()?];
    let access = video.samples()[key.sample].access?;
    access.is_immediate().then_some(key)
}

/// Frames of the quick mean.
const QUICK: f64 = 5.0;
/// Part of a higher rendition's rate that must be allowed: a margin prevents a change at each key
/// frame.
const UPWARD: f64 = 1.1;
/// A controller allows at most twice the rate that it has seen arrive (RFC 5348 section 4.3). From
/// about this multiple of the present rendition's rate on, it has seen no limit of the path.
const FREE: f64 = 1.8;
/// Then a rendition whose rate is somewhat higher than the allowed one is tried: frames wait for up to
/// a quarter of their time, and their arrival raises the allowed rate.
const TRIAL: f64 = 0.8;

#[cfg(all(test, feature = "x264"))]
mod tests;
