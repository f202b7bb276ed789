//! Parts of this program for `tidegate papers`: encoders, lab runs over the kernel's TCP, and
//! senders.

mod lab;

use std::any::Any;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tidegate_console::context::LiveContext;
use tidegate_core::units::Time;
use tidegate_live::driver::Interrupts;
use tidegate_studies::papers::PictureSource;
use tidegate_studies::papers::verb::{Injector, Lab, Program, Sender, Streamed};

use crate::lab::Injector as LabInjector;
use crate::send::once::Once;
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

    fn sender(&self, arguments: Vec<OsString>) -> Result<Box<dyn Sender>> {
        Ok(Box::new(Once::read(arguments)?))
    }
}

impl Sender for Once {
    fn ready(&self) -> Result<Box<dyn Any>> {
        Ok(Box::new(Self::ready(self)?))
    }

    fn fps(&self) -> Option<String> {
        Self::fps(self)
    }

    fn play(&self, context: &LiveContext, until: Time) -> Result<Streamed> {
        let played = Self::play(self, context, until)?;
        Ok(Streamed {
            answers: played.rate_reductions,
            ended: played.ended,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;
    use tidegate_console::describe;
    use tidegate_studies::papers::verb::{PapersArgs, run};

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        papers: PapersArgs,
    }

    fn rejection(line: &str) -> String {
        let words = ["papers", "hosts"]
            .into_iter()
            .chain(line.split_whitespace());
        let args = Line::try_parse_from(words).unwrap().papers;
        describe(&run(&args, &Parts).unwrap_err())
    }

    #[test]
    fn invalid_options_of_hosts_are_rejected_before_any_login() {
        let file = std::env::temp_dir().join(format!("tidegate-hosts-{}", std::process::id()));
        fs::write(&file, "").unwrap();
        let in_file = format!("isi.example --out {}", file.display());
        for (line, says) in [
            (
                "isi.example --injector /opt/cut",
                "has no effect without --cut or --gap",
            ),
            ("isi.example -- --to=10.0.0.1:5004", "remove it there"),
            (
                "isi.example -- --mode iopt",
                "remove it there, and use it before --",
            ),
            ("isi.example --mode foo", "possible values: classic"),
            (&in_file, "choose another --out"),
        ] {
            let why = rejection(line);
            assert!(why.contains(says), "{line}: {why}");
        }
        fs::remove_file(file).unwrap();
    }
}
