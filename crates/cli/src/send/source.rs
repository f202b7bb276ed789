//! The pictures that are sent, and their encoder.

use anyhow::{Context as _, Result};
use tidegate_core::media::FrameRate;
use tidegate_core::units::Rate;
use tidegate_core::wire::h264;
use tidegate_core::wire::sdp::ParameterSets;
use tidegate_media::{
    EncoderSession, FileOptions, FileSource, Picture, PictureEncoder as _, Preset, Scene,
    SceneSource, Size, VideoSource, X264Config, X264Encoder,
};

use crate::live::SCENE_SEED;

/// A source with its encoder.
pub(super) struct Picked {
    /// In words.
    pub(super) what: String,
    pub(super) frame_rate: FrameRate,
    pub(super) parameter_sets: Option<ParameterSets>,
    pub(super) session: EncoderSession,
}

impl Picked {
    /// # Errors
    /// When the source cannot be read or libx264 refuses the size; the message names it.
    pub(super) fn open(
        input: &str,
        size: Option<Size>,
        rate: Option<FrameRate>,
        looped: bool,
        preset: Preset,
    ) -> Result<Self> {
        let source: Box<dyn VideoSource> = if input == "scene" {
            let size = size.map_or_else(|| Size::new(640, 360), Ok)?;
            let rate = rate.unwrap_or(FrameRate::fps(30));
            Box::new(SceneSource::new(Scene::new(SCENE_SEED, size), rate))
        } else {
            Box::new(FileSource::open(input, FileOptions { size, rate, looped })?)
        };
        let (size, frame_rate) = (source.size(), source.frame_rate());
        let (width, height) = (size.width(), size.height());
        let fps = frame_rate.as_f64();
        let fps = format!("{fps:.3}");
        let fps = fps.trim_end_matches('0').trim_end_matches('.');
        Ok(Self {
            what: format!("{input}, {width}x{height} at {fps} frames/s"),
            frame_rate,
            parameter_sets: parameter_sets(size, frame_rate, preset)?,
            session: EncoderSession::open(source, |config| config.preset = preset)?,
        })
    }
}

/// What an encoder so configured says of its streams: another one is asked, since the first
/// picture of the stream has not been taken yet.
fn parameter_sets(size: Size, rate: FrameRate, preset: Preset) -> Result<Option<ParameterSets>> {
    let mut config = X264Config::new(size, rate);
    config.preset = preset;
    let mut encoder = X264Encoder::open(config)?;
    let coded = encoder
        .encode(&Picture::black(size), Rate::kbps(500), true)
        .context("the encoder cannot be tried")?;
    let sets = h264::parameter_sets(&coded.data);
    Ok(sets.and_then(|(sps, pps)| ParameterSets::new(sps, pps)))
}

/// Reads the name of a preset of x264.
pub(super) fn preset(text: &str) -> Result<Preset, String> {
    let all = Preset::ALL;
    all.into_iter()
        .find(|preset| preset.name() == text)
        .ok_or_else(|| {
            let names = all.map(Preset::name).join(", ");
            format!("\"{text}\" is no preset: choose one of {names}")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tried_encoder_says_what_the_stream_will() {
        use tidegate_core::media::{FrameEncoder as _, FrameOrder};
        use tidegate_core::units::Time;
        let size = Size::new(320, 180).unwrap();
        let rate = Some(FrameRate::fps(25));
        let mut picked = Picked::open("scene", Some(size), rate, false, Preset::Veryfast).unwrap();
        let order = FrameOrder {
            frame: 0,
            captured: Time::ZERO,
            rate: Rate::kbps(1_700),
            key: true,
        };
        let first = picked.session.encode(&order).unwrap();
        let (sps, pps) = h264::parameter_sets(&first.data).unwrap();
        assert_eq!(picked.parameter_sets, ParameterSets::new(sps, pps));
        assert_eq!(picked.what, "scene, 320x180 at 25 frames/s");
    }

    #[test]
    fn presets_have_the_names_of_x264() {
        assert_eq!(preset("veryfast"), Ok(Preset::Veryfast));
        assert!(preset("placebo").unwrap_err().contains("ultrafast, "));
    }
}
