//! Encoders for the flows of a scenario.

use tidegate_core::media::{EncodeError, FrameEncoder};
use tidegate_core::random::Seed;
use tidegate_media::{EncoderSession, Preset, Scene, SceneSource, Size};
use tidegate_sim::scenario::{EncoderKind, VideoPlan};
use tidegate_sim::video_model::{VideoModel, VideoModelConfig};

/// The encoder of a video flow. Flows and baselines of one run see the same pictures.
///
/// # Errors
/// When libx264 refuses the size or the rate.
pub(crate) fn encoder(
    flow: &str,
    plan: &VideoPlan,
    seed: Seed,
) -> Result<Box<dyn FrameEncoder>, EncodeError> {
    match plan.encoder {
        EncoderKind::Model => {
            let config = VideoModelConfig {
                width: plan.width,
                height: plan.height,
                frame_rate: plan.frame_rate,
            };
            let rng = seed.stream(&format!("video/{flow}"));
            Ok(Box::new(VideoModel::new(config, rng)))
        }
        EncoderKind::X264 => {
            let source = SceneSource::new(scene(plan, seed)?, plan.frame_rate);
            let session = EncoderSession::open(Box::new(source), |config| {
                config.preset = Preset::Superfast;
            })?;
            Ok(Box::new(session))
        }
    }
}

/// The pictures of a flow that is encoded by x264.
///
/// # Errors
/// When the size is none that pictures can have.
pub(crate) fn scene(plan: &VideoPlan, seed: Seed) -> Result<Scene, EncodeError> {
    let size = Size::new(plan.width, plan.height).map_err(|e| EncodeError::Source(e.to_string()))?;
    Ok(Scene::new(seed.0, size))
}
