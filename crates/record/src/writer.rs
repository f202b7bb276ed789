//! Writes a run folder.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tidegate_core::trace::{Event, RecordLimiter};
use tidegate_core::units::Time;

use crate::cells::{Row, seconds};
use crate::create_error::CreateError;
use crate::manifest::Manifest;
use crate::metrics::Summary;
use crate::pictures;
use crate::reader::FlowRun;
use crate::rows::{
    BinRow, LinkSample, PacketRow, ReceivedFrame, SavableRow, SentFrame, ShownFrame, Side,
    TotalsRow,
};
use crate::staged::STAGING;

/// Writes a run folder, row by row.
///
/// Rows are buffered: call [`flush`](Self::flush) when they must reach the operating system, at the
/// end at the latest. Dropping the writer flushes too, but cannot report an error.
#[derive(Debug)]
pub struct RunWriter {
    dir: PathBuf,
    events: Option<BufWriter<File>>,
    /// Limits of the events of strangers, by flow and side.
    limiters: BTreeMap<(String, Side), StrangerEvents>,
    tables: BTreeMap<PathBuf, csv::Writer<File>>,
}

impl RunWriter {
    /// Creates the folder if it does not exist, and checks that a run may be written to it, so that
    /// an error is reported before the run. Returns whether the folder holds an earlier run, which
    /// stays.
    ///
    /// # Errors
    /// If the folder holds something that is not a run, or cannot be created.
    pub fn check(dir: impl AsRef<Path>) -> Result<bool, CreateError> {
        let dir = dir.as_ref().to_owned();
        let failed = |source| CreateError::Io {
            path: dir.clone(),
            source,
        };
        match fs::read_dir(&dir) {
            Ok(_) if is_run(&dir) => Ok(true),
            Ok(mut entries) => {
                // A previous run was killed while it wrote its first manifest.
                let begun = scratch(MANIFEST);
                let is_ours = |entry: &fs::DirEntry| {
                    let name = entry.file_name();
                    name == *begun || name == *STAGING
                };
                if entries.all(|entry| entry.is_ok_and(|entry| is_ours(&entry))) {
                    Ok(false)
                } else {
                    Err(CreateError::NotARun { path: dir })
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&dir).map_err(failed)?;
                Ok(false)
            }
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                Err(CreateError::NotAFolder { path: dir })
            }
            Err(e) => Err(failed(e)),
        }
    }

    /// Creates the folder, or empties it if it holds an earlier run. The earlier manifest stays
    /// until [`manifest`](Self::manifest) replaces it: a process that is killed in between leaves a
    /// folder that the next run may overwrite.
    ///
    /// # Errors
    /// If the folder holds something that is not a run, or cannot be created or emptied.
    pub fn create(dir: impl AsRef<Path>) -> Result<Self, CreateError> {
        let dir = dir.as_ref().to_owned();
        if Self::check(&dir)? {
            clear(&dir).map_err(|source| CreateError::Io {
                path: dir.clone(),
                source,
            })?;
        }
        Ok(Self {
            dir,
            events: None,
            limiters: BTreeMap::new(),
            tables: BTreeMap::new(),
        })
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes `manifest.json`. Call it first, so that the folder of a killed run is readable; call
    /// it again when more is known.
    ///
    /// # Errors
    /// If a flow's name is not valid for a folder, or the write fails.
    pub fn manifest(&mut self, manifest: &Manifest) -> Result<(), WriteError> {
        for flow in &manifest.flows {
            check_name(&flow.name)?;
        }
        self.json(MANIFEST, manifest)
    }

    /// Appends to `events.jsonl`. Of [events of strangers](Event::is_of_strangers) only
    /// [`PER_SECOND`](tidegate_core::trace::PER_SECOND) of each side of a flow are written; the
    /// number of the others follows with the next one or with [`flush`](Self::flush).
    ///
    /// # Errors
    /// If the write fails.
    pub fn event(
        &mut self,
        at: Time,
        flow: &str,
        side: Side,
        event: &Event,
    ) -> Result<(), WriteError> {
        if event.is_of_strangers() {
            let of = self.limiters.entry((flow.to_owned(), side)).or_default();
            of.last = at;
            match of.limiter.admit(at) {
                None => return Ok(()),
                Some(0) => {}
                Some(count) => self.append(at, flow, side, &Event::RejectedOmitted { count })?,
            }
        }
        self.append(at, flow, side, event)
    }

    fn append(
        &mut self,
        at: Time,
        flow: &str,
        side: Side,
        event: &Event,
    ) -> Result<(), WriteError> {
        let path = self.dir.join(EVENTS);
        let line =
            event_line(at, flow, side, event).map_err(|e| WriteError::at(&path, e.into()))?;
        self.events_file()
            .and_then(|file| file.write_all(line.as_bytes()))
            .map_err(|e| WriteError::at(&path, e))
    }

    fn events_file(&mut self) -> io::Result<&mut BufWriter<File>> {
        Ok(match &mut self.events {
            Some(file) => file,
            none => {
                let file = File::create(self.dir.join(EVENTS))?;
                none.insert(BufWriter::new(file))
            }
        })
    }

    /// Writes all tables and pictures of a flow and closes them: a run may have more flows than a process may
    /// have open files. Tables of a complete run exist even without rows.
    ///
    /// # Errors
    /// If the flow's name is not valid for a folder, or the write fails.
    pub fn flow(&mut self, flow: &FlowRun) -> Result<(), WriteError> {
        let video = flow.info.has_video();
        self.flow_table(flow, PACKETS, &flow.packets, flow.info.logs_packets())?;
        self.flow_table(flow, FRAMES_SENT, &flow.sent, video)?;
        self.flow_table(flow, FRAMES_RECEIVED, &flow.received, video)?;
        self.flow_table(flow, SHOWN, &flow.shown, video)?;
        self.flow_table(flow, SAVABLE, &flow.savable, video)?;
        check_name(&flow.info.name)?;
        let dir = self.dir.join(FLOWS).join(&flow.info.name);
        pictures::write(&dir, &flow.pictures).map_err(|e| WriteError::at(&dir, e))
    }

    fn flow_table<R: Row>(
        &self,
        flow: &FlowRun,
        file: &str,
        rows: &[R],
        wanted: bool,
    ) -> Result<(), WriteError> {
        if rows.is_empty() && !wanted {
            return Ok(());
        }
        check_name(&flow.info.name)?;
        let path = self.dir.join(FLOWS).join(&flow.info.name).join(file);
        let write = || -> io::Result<()> {
            let mut table = open_table::<R>(&path)?;
            for row in rows {
                table.serialize(row)?;
            }
            table.flush()
        };
        write().map_err(|e| WriteError::at(&path, e))
    }

    /// Appends to the flow's `frames-sent.csv`.
    ///
    /// # Errors
    /// If the flow's name is not valid for a folder, or the write fails.
    pub fn sent_frame(&mut self, flow: &str, row: &SentFrame) -> Result<(), WriteError> {
        self.flow_row(flow, FRAMES_SENT, row)
    }

    /// Appends to the flow's `frames-received.csv`.
    ///
    /// # Errors
    /// As [`sent_frame`](Self::sent_frame).
    pub fn received_frame(&mut self, flow: &str, row: &ReceivedFrame) -> Result<(), WriteError> {
        self.flow_row(flow, FRAMES_RECEIVED, row)
    }

    /// Appends to the flow's `shown.csv`.
    ///
    /// # Errors
    /// As [`sent_frame`](Self::sent_frame).
    pub fn shown_frame(&mut self, flow: &str, row: &ShownFrame) -> Result<(), WriteError> {
        self.flow_row(flow, SHOWN, row)
    }

    /// Appends to the flow's `packets.csv`.
    ///
    /// # Errors
    /// As [`sent_frame`](Self::sent_frame).
    pub fn packet(&mut self, flow: &str, row: &PacketRow) -> Result<(), WriteError> {
        self.flow_row(flow, PACKETS, row)
    }

    /// Appends to the flow's `savable.csv`.
    ///
    /// # Errors
    /// As [`sent_frame`](Self::sent_frame).
    pub fn savable(&mut self, flow: &str, row: &SavableRow) -> Result<(), WriteError> {
        self.flow_row(flow, SAVABLE, row)
    }

    /// Appends to `links.csv`.
    ///
    /// # Errors
    /// If the write fails.
    pub fn link_sample(&mut self, row: &LinkSample) -> Result<(), WriteError> {
        self.row(self.dir.join(LINKS), row)
    }

    /// Appends to `bins.csv`.
    ///
    /// # Errors
    /// If the write fails.
    pub fn bin(&mut self, row: &BinRow) -> Result<(), WriteError> {
        self.row(self.dir.join(BINS), row)
    }

    /// Appends to `totals.csv`.
    ///
    /// # Errors
    /// If the write fails.
    pub fn totals(&mut self, row: &TotalsRow) -> Result<(), WriteError> {
        self.row(self.dir.join(TOTALS), row)
    }

    /// Writes `summary.json`.
    ///
    /// # Errors
    /// If the write fails.
    pub fn summary(&mut self, summary: &Summary) -> Result<(), WriteError> {
        self.json(SUMMARY, summary)
    }

    /// Passes all rows to the operating system. Creates an empty `events.jsonl` for a run without
    /// events.
    ///
    /// # Errors
    /// If the write fails.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        let mut omitted = Vec::new();
        for ((flow, side), of) in &mut self.limiters {
            let count = of.limiter.take_omitted();
            if count > 0 {
                omitted.push((of.last, flow.clone(), *side, count));
            }
        }
        for (at, flow, side, count) in omitted {
            self.append(at, &flow, side, &Event::RejectedOmitted { count })?;
        }
        let path = self.dir.join(EVENTS);
        self.events_file()
            .and_then(io::Write::flush)
            .map_err(|e| WriteError::at(&path, e))?;
        for (path, table) in &mut self.tables {
            table.flush().map_err(|e| WriteError::at(path, e))?;
        }
        Ok(())
    }

    fn flow_row<R: Row>(&mut self, flow: &str, file: &str, row: &R) -> Result<(), WriteError> {
        check_name(flow)?;
        self.row(self.dir.join(FLOWS).join(flow).join(file), row)
    }

    fn row<R: Row>(&mut self, path: PathBuf, row: &R) -> Result<(), WriteError> {
        if let Some(table) = self.tables.get_mut(&path) {
            return table
                .serialize(row)
                .map_err(|e| WriteError::at(&path, e.into()));
        }
        let table = open_table::<R>(&path).and_then(|mut table| {
            table.serialize(row)?;
            Ok(table)
        });
        let table = table.map_err(|e| WriteError::at(&path, e))?;
        self.tables.insert(path, table);
        Ok(())
    }

    /// Replaces the file atomically: neither a reader nor a kill sees a partial file.
    fn json<T: Serialize>(&self, file: &str, value: &T) -> Result<(), WriteError> {
        let path = self.dir.join(file);
        let scratch = self.dir.join(scratch(file));
        let write = || -> io::Result<()> {
            let mut text = serde_json::to_string_pretty(value)?;
            text.push('\n');
            fs::write(&scratch, text)?;
            fs::rename(&scratch, &path)
        };
        write().map_err(|e| WriteError::at(&path, e))
    }
}

/// Limit of the events of strangers.
#[derive(Clone, Copy, Debug, Default)]
struct StrangerEvents {
    limiter: RecordLimiter,
    /// Time of the last event, on record or not.
    last: Time,
}

/// Error of writing a row or a document.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The flow's name is not valid for a folder.
    #[error("invalid flow name {name:?}: use letters, digits, `-` and `_`")]
    FlowName {
        /// The name.
        name: String,
    },
    /// Error of the operating system.
    #[error("cannot write {path}: {source}; check free disk space and permissions")]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl WriteError {
    fn at(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        Self::Io { path, source }
    }
}

/// Whether `dir` holds a manifest of this program.
fn is_run(dir: &Path) -> bool {
    let Ok(text) = fs::read(dir.join(MANIFEST)) else {
        return false;
    };
    serde_json::from_slice::<serde_json::Value>(&text).is_ok_and(|json| {
        json["tool"]
            .as_str()
            .is_some_and(|t| t.starts_with("tidegate"))
    })
}

/// Removes only the files that a run writes. The manifest stays, since it marks the folder as a
/// run; the next manifest replaces it atomically.
pub(super) fn clear(dir: &Path) -> io::Result<()> {
    let flows = dir.join(FLOWS);
    if let Ok(entries) = fs::read_dir(&flows) {
        for entry in entries {
            let flow = entry?.path();
            let tables = [FRAMES_SENT, FRAMES_RECEIVED, SHOWN, PACKETS, SAVABLE];
            for file in tables.into_iter().chain([CAPTURE, CONNECTION]) {
                remove(&flow.join(file))?;
            }
            pictures::remove(&flow)?;
        }
    }
    for file in [BINS, EVENTS, LINKS, SUMMARY, TOTALS] {
        remove(&dir.join(file))?;
    }
    for file in [MANIFEST, SUMMARY] {
        remove(&dir.join(scratch(file)))?;
    }
    Ok(())
}

/// Temporary name of a file before it is renamed.
fn scratch(file: &str) -> String {
    format!(".{file}.part")
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(())
        }
        done => done,
    }
}

pub(super) fn check_name(name: &str) -> Result<(), WriteError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.is_empty() || !name.chars().all(plain) {
        let name = name.to_owned();
        return Err(WriteError::FlowName { name });
    }
    Ok(())
}

fn open_table<R: Row>(path: &Path) -> io::Result<csv::Writer<File>> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut table = csv::WriterBuilder::new()
        .has_headers(false)
        .buffer_capacity(BUFFER)
        .from_writer(File::create(path)?);
    table.write_record(R::COLUMNS.split(','))?;
    Ok(table)
}

fn event_line(at: Time, flow: &str, side: Side, event: &Event) -> serde_json::Result<String> {
    let event = serde_json::to_string(event)?;
    Ok(format!(
        "{{\"t\":{},\"flow\":{},\"side\":{},{}\n",
        seconds::text(at),
        serde_json::to_string(flow)?,
        serde_json::to_string(&side)?,
        event.trim_start_matches('{')
    ))
}

/// Buffer size: a packet row is about 50 bytes.
const BUFFER: usize = 1 << 16;

pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const EVENTS: &str = "events.jsonl";
pub(super) const FLOWS: &str = "flows";
pub(super) const BINS: &str = "bins.csv";
pub(super) const LINKS: &str = "links.csv";
pub(super) const TOTALS: &str = "totals.csv";
pub(super) const SUMMARY: &str = "summary.json";
pub(super) const FRAMES_SENT: &str = "frames-sent.csv";
pub(super) const FRAMES_RECEIVED: &str = "frames-received.csv";
pub(super) const SHOWN: &str = "shown.csv";
pub(super) const PACKETS: &str = "packets.csv";
/// In the folder of a flow over kernel TCP: its packets as observed by the emulator.
pub const CAPTURE: &str = "capture.csv";
/// In the same folder: samples of the state of its connection.
pub const CONNECTION: &str = "tcp.csv";
pub(super) const SAVABLE: &str = "savable.csv";
