//! Video quality: the displayed picture at the deadline of each frame, against the original.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use tidegate_core::media::{Codec, Quality};
use tidegate_core::random::Seed;
use tidegate_core::units::Time;
use tidegate_media::{Decoder, DecoderConfig, Picture, VideoSource, jpeg, quality};
use tidegate_record::{PictureKind, ReceivedFrame, SentFrame, ShownFrame, StoredPicture};
use tidegate_sim::flow_endpoints::{FlowInstance, FlowResult};
use tidegate_sim::scenario::EncoderKind;

use crate::video_source::VideoInput;

/// For each captured frame the picture on the screen at its deadline; also sets the quality of the
/// received frames. The screen shows the newest frame that is decodable by then. At each of
/// `moments`, the screen and the original of the first frame captured from then on are kept as
/// pictures, unless the encoder is a model.
///
/// # Errors
/// FFmpeg has no decoder, or the originals are unavailable.
pub(crate) fn judge(
    instance: &FlowInstance,
    results: &FlowResult,
    (sent, received, moments): (&[SentFrame], &mut [ReceivedFrame], &[Time]),
    studio: &VideoInput,
    seed: Seed,
) -> Result<(Vec<ShownFrame>, Vec<StoredPicture>)> {
    let Some(video) = instance.plan.media.video() else {
        return Ok((Vec::new(), Vec::new()));
    };
    let mut screen: Box<dyn Screen> = match video.encoder {
        EncoderKind::Model | EncoderKind::Trace(_) => Box::new(ModelScreen::new(sent)),
        EncoderKind::Real(codec) => {
            Box::new(PictureScreen::new(studio.pictures(video, seed)?, codec)?)
        }
    };
    let units: BTreeMap<u32, &[u8]> = results
        .received
        .iter()
        .map(|f| (f.timestamp as u32, f.data.as_slice()))
        .collect();
    let mut next = 0;
    let mut shown = Vec::with_capacity(sent.len());
    let mut on_screen = None;
    let mut pictures = Vec::new();
    let kept = moments.iter().filter_map(|moment| {
        let mut later = sent.iter().filter(|slot| slot.captured >= *moment);
        later.next().map(|slot| slot.frame)
    });
    let kept: BTreeSet<u64> = kept.collect();
    for slot in sent {
        let due = slot.captured + video.delay_bound;
        while let Some(frame) = received
            .get_mut(next)
            .filter(|f| is_due(f, slot.frame, due))
        {
            if frame.decodable {
                let unit = units.get(&frame.rtp_timestamp).copied().unwrap_or_default();
                frame.quality = screen.decode(frame.frame, unit);
                on_screen = Some(frame.frame);
            }
            next += 1;
        }
        shown.push(ShownFrame {
            frame: slot.frame,
            shown_frame: on_screen,
            on_time: on_screen == Some(slot.frame),
            quality: on_screen.and_then(|frame| screen.compare(frame, slot.frame)),
        });
        if kept.contains(&slot.frame) {
            screen.keep(slot.frame, &mut pictures)?;
        }
    }
    Ok((shown, pictures))
}

/// Whether a received frame is decoded before the slot of frame `slot` is displayed.
fn is_due(frame: &ReceivedFrame, slot: u64, due: Time) -> bool {
    frame.frame <= slot && frame.complete.is_none_or(|at| at <= due)
}

/// Decoder and display of frames.
trait Screen {
    /// Decodes frame `frame`. Returns its quality against its own original.
    fn decode(&mut self, frame: u64, unit: &[u8]) -> Option<Quality>;

    /// Quality of the displayed picture, which is frame `shown`, against the original of `slot`.
    fn compare(&mut self, shown: u64, slot: u64) -> Option<Quality>;

    /// Adds the displayed picture and the original of `slot`, as far as they exist.
    ///
    /// # Errors
    /// FFmpeg cannot encode a picture.
    fn keep(&mut self, slot: u64, pictures: &mut Vec<StoredPicture>) -> Result<()>;
}

/// Screen of decoded pictures.
struct PictureScreen {
    originals: Box<dyn VideoSource>,
    decoder: Decoder,
    original: Picture,
    /// Number of the picture in `original`; originals are read in ascending order.
    at: Option<u64>,
    screen: Option<Picture>,
}

impl PictureScreen {
    fn new(originals: Box<dyn VideoSource>, codec: Codec) -> Result<Self> {
        let decoder = DecoderConfig {
            max_picture: originals.size(),
            ..codec.into()
        };
        Ok(Self {
            original: Picture::black(originals.size()),
            originals,
            decoder: Decoder::open(decoder).context("cannot decode the pictures")?,
            at: None,
            screen: None,
        })
    }

    /// Quality of the screen against the original of `frame`. `None` if the source is past this
    /// frame or fails.
    fn quality_of(&mut self, frame: u64) -> Option<Quality> {
        self.original_of(frame)?;
        quality(&self.original, self.screen.as_ref()?).ok()
    }

    /// Original of `frame`. `None` if the source is past this frame or fails.
    fn original_of(&mut self, frame: u64) -> Option<&Picture> {
        if self.at != Some(frame) {
            let read = self.originals.advance_to(frame, &mut self.original);
            read.ok().filter(|there| *there)?;
            self.at = Some(frame);
        }
        Some(&self.original)
    }
}

impl Screen for PictureScreen {
    fn decode(&mut self, frame: u64, unit: &[u8]) -> Option<Quality> {
        let decoded = self.decoder.decode(unit);
        self.screen = Some(decoded.picture()?.clone());
        self.quality_of(frame)
    }

    fn compare(&mut self, _shown: u64, slot: u64) -> Option<Quality> {
        self.quality_of(slot)
    }

    fn keep(&mut self, slot: u64, pictures: &mut Vec<StoredPicture>) -> Result<()> {
        let mut add = |kind, picture: Option<&Picture>| -> Result<()> {
            if let Some(picture) = picture {
                let jpeg = jpeg(picture).context("cannot keep a picture for the report")?;
                let frame = slot;
                pictures.push(StoredPicture { frame, kind, jpeg });
            }
            Ok(())
        };
        add(PictureKind::Camera, self.original_of(slot))?;
        add(PictureKind::Shown, self.screen.as_ref())
    }
}

/// Screen of the encoder model, which has no pictures. It reports the encoder's quality of a frame,
/// and none for a frozen frame.
struct ModelScreen(BTreeMap<u64, Quality>);

impl ModelScreen {
    fn new(sent: &[SentFrame]) -> Self {
        Self(
            sent.iter()
                .filter_map(|f| Some((f.frame, f.quality?)))
                .collect(),
        )
    }
}

impl Screen for ModelScreen {
    fn decode(&mut self, frame: u64, _unit: &[u8]) -> Option<Quality> {
        self.0.get(&frame).copied()
    }

    fn compare(&mut self, shown: u64, slot: u64) -> Option<Quality> {
        (shown == slot)
            .then(|| self.0.get(&slot).copied())
            .flatten()
    }

    fn keep(&mut self, _slot: u64, _pictures: &mut Vec<StoredPicture>) -> Result<()> {
        Ok(())
    }
}
