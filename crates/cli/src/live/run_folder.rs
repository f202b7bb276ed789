//! The run folder of a live run, which grows while it lasts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use tidegate_core::random::Seed;
use tidegate_core::trace::Event;
use tidegate_core::units::Time;
use tidegate_sim::run::{Manifest, RunReader, RunWriter, Side, Summary, WriteError, summarise};

use tidegate_console::context::secret_seed;

use super::FLOW;
use tidegate_console::describe;

/// The run folder of a live run, if one is wanted. Its rows reach the system every second, so
/// that a process that is killed leaves what it did until then.
#[derive(Debug)]
pub(crate) struct Folder {
    writer: Option<RunWriter>,
    /// Somebody wants its numbers.
    summary: bool,
    manifest: Manifest,
    side: Side,
    next_flush: Time,
    /// Where it is to be made, if it is one that is made later.
    due: Option<PathBuf>,
    /// Made for the summary only.
    scratch: Option<PathBuf>,
}

/// Sees that a run can be written to `dir`, if one is wanted, before anybody waits for it.
///
/// # Errors
/// When the folder holds something else, or cannot be made.
pub(crate) fn claim(dir: Option<&Path>) -> Result<()> {
    dir.map_or(Ok(()), crate::run_folder::claim)
}

impl Folder {
    /// Makes the folder `dir`; without one a scratch folder if a summary is wanted, or none.
    ///
    /// # Errors
    /// When it holds something else, or the disk refuses.
    pub(crate) fn create(
        dir: Option<&Path>,
        summary: bool,
        side: Side,
        manifest: Manifest,
    ) -> Result<Self> {
        let mut folder = Self::later(dir, summary, side, manifest);
        folder.make()?;
        Ok(folder)
    }

    /// One that is made by [`Self::begin`], if it comes to that: until then nothing is touched.
    pub(crate) fn later(dir: Option<&Path>, summary: bool, side: Side, manifest: Manifest) -> Self {
        let scratch = (dir.is_none() && summary).then(scratch_dir);
        Self {
            writer: None,
            summary,
            manifest,
            side,
            next_flush: Time::ZERO + FLUSH,
            due: dir.map(Path::to_owned).or_else(|| scratch.clone()),
            scratch,
        }
    }

    /// Makes it, unless that is done. The stream goes on without one if it cannot be made; the line
    /// says why.
    pub(crate) fn begin(&mut self) -> Option<String> {
        let error = self.make().err()?;
        Some(format!("there is no run folder: {}", describe(&error)))
    }

    /// Whether it is still to be made.
    pub(crate) fn is_due(&self) -> bool {
        self.due.is_some()
    }

    fn make(&mut self) -> Result<()> {
        let Some(dir) = self.due.take() else {
            return Ok(());
        };
        let mut writer = RunWriter::create(dir)?;
        writer.manifest(&self.manifest)?;
        self.writer = Some(writer);
        Ok(())
    }

    /// Writes what `rows` writes, and the events, and flushes when it is time. When the disk
    /// refuses, the stream goes on without a folder; the answer says why.
    pub(crate) fn record(
        &mut self,
        now: Time,
        events: &[(Time, Event)],
        rows: impl FnOnce(&mut RunWriter) -> Result<(), WriteError>,
    ) -> Option<String> {
        let writer = self.writer.as_mut()?;
        let record = || {
            for (at, event) in events {
                writer.event(*at, FLOW, self.side, event)?;
            }
            rows(writer)?;
            if now >= self.next_flush {
                self.next_flush = now + FLUSH;
                writer.flush()?;
            }
            Ok(())
        };
        let failed: Result<(), WriteError> = record();
        let error = failed.err()?;
        self.writer = None;
        Some(format!("the run folder ends here: {error}"))
    }

    /// Writes how long the run was and its numbers, and returns these; none of a folder that was
    /// never begun.
    ///
    /// # Errors
    /// When the disk refuses, or does not give back what was written; and when it refused before, if
    /// somebody wants the numbers.
    pub(crate) fn finish(mut self, now: Time) -> Result<Option<Summary>> {
        let Some(mut writer) = self.writer.take() else {
            ensure!(
                !self.summary || self.is_due(),
                "there are no numbers for --json, which come from the run folder: see above why \
                 that is not whole, and choose a --run with room"
            );
            return Ok(None);
        };
        self.manifest.duration = now.since(Time::ZERO);
        writer.manifest(&self.manifest)?;
        writer.flush()?;
        let run = RunReader::load(writer.dir())?;
        let summary = summarise(&run, &[]);
        writer.summary(&summary)?;
        Ok(Some(summary))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Some(scratch) = &self.scratch {
            // A folder of temporary files that stays behind is no reason to fail.
            let _ = std::fs::remove_dir_all(scratch);
        }
    }
}

fn scratch_dir() -> PathBuf {
    let Seed(unique) = secret_seed();
    std::env::temp_dir().join(format!("tidegate-{unique:016x}"))
}

const FLUSH: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use tidegate_sim::run::{SavableRow, World};

    use super::*;

    #[test]
    fn numbers_of_a_folder_that_ended_early_are_missed_if_they_are_wanted() {
        let dir = scratch_dir();
        let manifest = Manifest::new(World::Live, "test", Duration::ZERO);
        for wanted in [false, true] {
            let manifest = manifest.clone();
            let mut folder = Folder::create(Some(&dir), wanted, Side::Sender, manifest).unwrap();
            let row = SavableRow {
                frame: 0,
                savable: true,
            };
            let ended = folder.record(Time::ZERO, &[], |writer| writer.savable("no/name", &row));
            let ended = ended.expect("no flow has such a name");
            assert!(ended.contains("the run folder ends here"), "{ended}");
            match folder.finish(Time::ZERO) {
                Err(e) => assert!(wanted && e.to_string().contains("--json"), "{e}"),
                Ok(summary) => assert!(!wanted && summary.is_none()),
            }
        }
        std::fs::write(dir.join("thesis.txt"), "years").unwrap();
        let other = dir.join("thesis.txt");
        let mut folder = Folder::later(Some(&other), true, Side::Sender, manifest);
        let trouble = folder.begin();
        assert!(trouble.is_some_and(|t| t.contains("there is no run folder")));
        assert_eq!(folder.begin(), None, "it is said once");
        assert!(folder.finish(Time::ZERO).is_err());
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_folder_that_is_never_begun_is_not_there_and_missed_by_nobody() {
        let dir = scratch_dir();
        let manifest = Manifest::new(World::Live, "test", Duration::ZERO);
        for named in [Some(dir.as_path()), None] {
            let begun = |begins: bool| {
                let manifest = manifest.clone();
                let mut folder = Folder::later(named, true, Side::Sender, manifest);
                let place = folder.due.clone().unwrap();
                assert!(!place.exists());
                if begins {
                    assert_eq!((folder.begin(), place.exists()), (None, true));
                }
                let summary = folder.finish(Time::ZERO).unwrap();
                assert_eq!(place.exists(), begins && named.is_some());
                summary.is_some()
            };
            assert!(!begun(false));
            assert!(begun(true));
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
