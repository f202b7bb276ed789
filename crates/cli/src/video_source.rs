//! Pictures and encoders for the flows of a scenario.

use std::path::PathBuf;

use tidegate_core::media::{EncodeError, FrameEncoder};
use tidegate_core::random::Seed;
use tidegate_media::{
    FileOptions, FileSource, Picture, Preset, Scene, SceneSource, Size, VideoSource, variance,
};
use tidegate_sim::scenario::VideoPlan;

use tidegate_studies::papers::PictureSource;

use crate::send::source::Encoding;

/// Video input of a run. All flows and baselines of a run use the same input.
#[derive(Clone, Debug, Default)]
pub(crate) struct VideoInput {
    /// File, repeated from its beginning. Without one, the generated scene.
    pub(crate) input: Option<PathBuf>,
}

impl VideoInput {
    /// Original pictures, from the first.
    ///
    /// # Errors
    /// The input cannot be read, or the picture size is invalid.
    pub(crate) fn pictures(
        &self,
        plan: &VideoPlan,
        seed: Seed,
    ) -> Result<Box<dyn VideoSource>, EncodeError> {
        let bad = |e: &dyn core::fmt::Display| EncodeError::Source(e.to_string());
        let size = Size::new(plan.width, plan.height).map_err(|e| bad(&e))?;
        let rate = plan.frame_rate;
        let Some(path) = &self.input else {
            return Ok(Box::new(SceneSource::new(Scene::new(seed.0, size), rate)));
        };
        let options = FileOptions {
            size: Some(size),
            rate: Some(rate),
            looped: true,
        };
        let name = path.to_string_lossy();
        let file = FileSource::open(&name, options).map_err(|e| bad(&e))?;
        Ok(Box::new(file))
    }

    /// Encoder for the video of `flow`.
    ///
    /// # Errors
    /// The input cannot be read.
    pub(crate) fn encoder(
        &self,
        flow: &str,
        plan: &VideoPlan,
        seed: Seed,
    ) -> Result<Box<dyn FrameEncoder>, EncodeError> {
        if let Some(encoder) = plan.modelled(flow, seed) {
            return Ok(encoder);
        }
        let source = self.pictures(plan, seed)?;
        let encoding = Encoding::constant(plan.encoder.codec(), Preset::Superfast);
        Ok(Box::new(encoding.session(source)?))
    }
}

impl PictureSource for VideoInput {
    fn encoder(
        &self,
        flow: &str,
        plan: &VideoPlan,
        seed: Seed,
    ) -> Result<Box<dyn FrameEncoder>, EncodeError> {
        Self::encoder(self, flow, plan, seed)
    }

    fn variances(
        &self,
        plan: &VideoPlan,
        seed: Seed,
        frames: u64,
    ) -> Result<Vec<[f64; 3]>, EncodeError> {
        let mut source = self.pictures(plan, seed)?;
        let mut picture = Picture::black(source.size());
        let mut variances = Vec::new();
        for _ in 0..frames {
            let next = source.next(&mut picture);
            if !next.map_err(|e| EncodeError::Source(e.to_string()))? {
                break;
            }
            variances.push(variance(&picture));
        }
        Ok(variances)
    }
}
