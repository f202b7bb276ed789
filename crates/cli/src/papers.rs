//! Parts of this program for `tidegate papers`: encoders, and lab runs over the kernel's TCP.

mod lab;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tidegate_live::driver::Interrupts;
use tidegate_studies::papers::PictureSource;
use tidegate_studies::papers::verb::{Injector, Lab, Program};

use crate::lab::Injector as LabInjector;
use crate::tcp::ready::rto_max;
use crate::video_source::VideoInput;

/// Implementation of [`Program`] for `tidegate papers`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts;

impl Program for Parts {
    fn pictures(&self) -> Arc<dyn PictureSource> {
        Arc::new(VideoInput::default())
    }

    fn lab(
        &self,
        out: PathBuf,
        injector: Injector,
        interrupts: Arc<Interrupts>,
    ) -> Result<Arc<dyn Lab>> {
        let injector = match injector {
            Injector::Link => LabInjector::Link,
            Injector::Route => LabInjector::Route,
        };
        Ok(Arc::new(lab::Lab::new(out, injector, interrupts)?))
    }

    fn check_rto_max(&self, longest: Duration) -> Result<()> {
        rto_max(longest)
    }
}
