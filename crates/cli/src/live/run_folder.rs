//! Run folder of a live run, written during the run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use tidegate_core::random::Seed;
use tidegate_core::trace::Event;
use tidegate_core::units::Time;
use tidegate_record::{
    Count, FolderLock, Manifest, RunReader, RunWriter, Side, Summary, Totals, TotalsRow,
    WriteError, summarise,
};

use tidegate_console::context::secret_seed;
use tidegate_console::exit::EnvironmentError;

use super::FLOW;
use tidegate_console::describe;

/// Run folder of a live run, if one is requested. Rows are flushed every second, so that the folder
/// of a killed process has all but its last second.
#[derive(Debug)]
pub(crate) struct Folder {
    writer: Option<RunWriter>,
    /// The user wants the folder or its summary.
    wanted: bool,
    manifest: Manifest,
    side: Side,
    next_flush: Time,
    /// Path of a folder that is created later.
    due: Option<PathBuf>,
    /// Temporary folder that exists for the summary only.
    scratch: Option<PathBuf>,
    /// Until the summary has been written, no other run uses the folder.
    lock: Option<FolderLock>,
}

/// Checks that a run can be written to `dir`, before the caller waits for a peer.
///
/// # Errors
/// The folder contains other files, another run uses it, or it cannot be created.
pub(crate) fn claim(dir: Option<&Path>) -> Result<()> {
    if let Some(dir) = dir {
        RunWriter::check(dir)?;
        FolderLock::acquire(dir)?;
    }
    Ok(())
}

impl Folder {
    /// Creates the folder `dir`. Without `dir`, creates a temporary folder if a summary is
    /// requested.
    ///
    /// # Errors
    /// The folder contains other files, or a write fails.
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

    /// A folder that [`Self::begin`] creates. Until then the file system is unchanged.
    pub(crate) fn later(dir: Option<&Path>, summary: bool, side: Side, manifest: Manifest) -> Self {
        let scratch = (dir.is_none() && summary).then(scratch_dir);
        Self {
            writer: None,
            wanted: dir.is_some() || summary,
            manifest,
            side,
            next_flush: Time::ZERO + FLUSH,
            due: dir.map(Path::to_owned).or_else(|| scratch.clone()),
            scratch,
            lock: None,
        }
    }

    /// Creates the folder unless it exists. If this fails, the stream continues without a folder;
    /// the returned message has the reason.
    pub(crate) fn begin(&mut self) -> Option<String> {
        let error = self.make().err()?;
        Some(format!("no run folder is written: {}", describe(&error)))
    }

    /// Whether the folder is still to be created.
    pub(crate) fn is_due(&self) -> bool {
        self.due.is_some()
    }

    fn make(&mut self) -> Result<()> {
        let Some(dir) = self.due.take() else {
            return Ok(());
        };
        RunWriter::check(&dir)?;
        self.lock = Some(FolderLock::acquire(&dir)?);
        let mut writer = RunWriter::create(dir)?;
        writer.manifest(&self.manifest)?;
        self.writer = Some(writer);
        Ok(())
    }

    /// Writes the rows of `rows` and the events, and flushes once per second. If a write fails, the
    /// stream continues without a folder; the returned message has the reason.
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
        Some(format!(
            "the run folder is incomplete from here on: {error}"
        ))
    }

    /// Writes the counters of the stream, if there are any. Errors are as in [`record`](Self::record).
    pub(crate) fn record_totals(&mut self, now: Time, totals: Option<Totals>) -> Option<String> {
        let flow = FLOW.to_owned();
        let row = TotalsRow {
            flow,
            totals: totals?,
        };
        self.record(now, &[], |writer| writer.totals(&row))
    }

    /// Writes the duration of the run and its summary, and returns the summary. `None` for a folder
    /// that was never created.
    ///
    /// # Errors
    /// A write or the reading of the written files fails, now or earlier.
    pub(crate) fn finish(mut self, now: Time) -> Result<Option<Summary>> {
        let Some(mut writer) = self.writer.take() else {
            ensure!(
                !self.wanted || self.is_due(),
                EnvironmentError::new(
                    "the run folder is incomplete and has no summary (see the message above): \
                    choose a --run with free space"
                )
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
            // A temporary folder that cannot be removed is not an error.
            let _ = std::fs::remove_dir_all(scratch);
        }
    }
}

/// Counters of a stream for the run folder of one end: `sent` packets, of which `received` arrived,
/// from the first to the last time of `span`. `None` without a packet.
pub(crate) fn totals(span: Option<(Time, Time)>, received: Count, sent: Count) -> Option<Totals> {
    let (first, last) = span?;
    Some(Totals {
        span: last.since(first),
        sent,
        received,
        dropped: sent.packets.saturating_sub(received.packets),
        ..Totals::default()
    })
}

fn scratch_dir() -> PathBuf {
    let Seed(unique) = secret_seed();
    std::env::temp_dir().join(format!("tidegate-{unique:016x}"))
}

const FLUSH: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use tidegate_record::{SavableRow, World};

    use super::*;

    #[test]
    fn a_write_error_is_returned_at_the_end() {
        let dir = scratch_dir();
        let manifest = Manifest::new(World::Live, "test", Duration::ZERO);
        for (named, summary) in [(Some(dir.as_path()), false), (None, true)] {
            let manifest = manifest.clone();
            let mut folder = Folder::create(named, summary, Side::Sender, manifest).unwrap();
            let row = SavableRow {
                frame: 0,
                savable: true,
            };
            let ended = folder.record(Time::ZERO, &[], |writer| writer.savable("no/name", &row));
            let ended = ended.expect("no flow has such a name");
            assert!(ended.contains("the run folder is incomplete"), "{ended}");
            let error = folder.finish(Time::ZERO).unwrap_err().to_string();
            assert!(error.contains("has no summary"), "{error}");
        }
        let mut none = Folder::create(None, false, Side::Sender, manifest.clone()).unwrap();
        assert_eq!(none.record(Time::ZERO, &[], |_| unreachable!()), None);
        assert!(none.finish(Time::ZERO).unwrap().is_none());
        std::fs::write(dir.join("thesis.txt"), "years").unwrap();
        let other = dir.join("thesis.txt");
        let mut folder = Folder::later(Some(&other), true, Side::Sender, manifest);
        let trouble = folder.begin();
        assert!(trouble.is_some_and(|t| t.contains("no run folder is written")));
        assert_eq!(folder.begin(), None, "the message is returned once");
        assert!(folder.finish(Time::ZERO).is_err());
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_folder_that_is_never_begun_is_not_created() {
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
