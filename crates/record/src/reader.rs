//! Reads a run folder, completely or in part.

pub(crate) mod files;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tidegate_core::trace::Event;
use tidegate_core::units::Time;

use crate::cells::{Row, as_kept};
use crate::counts::Totals;
use crate::links::LinkLog;
use crate::manifest::{FORMAT, FlowInfo, Manifest, World, time};
use crate::metrics::Summary;
use crate::pictures::{self, StoredPicture};
use crate::rows::{
    BinRow, EventRow, LinkSample, PacketRow, ReceivedFrame, SavableRow, SentFrame, ShownFrame,
    Side, TotalsRow,
};
use crate::writer::{
    BINS, EVENTS, FLOWS, FRAMES_RECEIVED, FRAMES_SENT, LINKS, MANIFEST, PACKETS, SAVABLE, SHOWN,
    SUMMARY, TOTALS, check_name,
};

/// A run in memory.
#[derive(Clone, Debug)]
pub struct Run {
    /// Folder of the run.
    pub dir: PathBuf,
    /// Description of the run.
    pub manifest: Manifest,
    /// Events, in the order of the file.
    pub events: Vec<EventRow>,
    /// The flows, in the order of the manifest.
    pub flows: Vec<FlowRun>,
    /// Samples of the links.
    pub links: LinkLog,
    /// `bins.csv`.
    pub bins: Vec<BinRow>,
    /// `totals.csv`.
    pub totals: Vec<TotalsRow>,
    /// Metrics; `None` for a run that was cut short.
    pub summary: Option<Summary>,
    /// Missing files and invalid lines.
    pub notes: Vec<String>,
}

impl Run {
    /// A run without rows.
    pub fn new(dir: &Path, manifest: Manifest) -> Self {
        let flows = manifest.flows.iter().cloned().map(FlowRun::new).collect();
        Self {
            dir: dir.to_owned(),
            manifest,
            events: Vec::new(),
            flows,
            links: LinkLog::default(),
            bins: Vec::new(),
            totals: Vec::new(),
            summary: None,
            notes: Vec::new(),
        }
    }

    /// Rounds numbers to the precision of the tables. Afterwards the metrics of the run equal those
    /// of the run after a write and a read.
    pub fn round_as_written(&mut self) {
        for flow in &mut self.flows {
            let sent = flow.sent.iter_mut().map(|row| &mut row.quality);
            let received = flow.received.iter_mut().map(|row| &mut row.quality);
            let shown = flow.shown.iter_mut().map(|row| &mut row.quality);
            for quality in sent.chain(received).chain(shown).flatten() {
                *quality = as_kept(*quality);
            }
        }
    }

    /// Flow with this name.
    pub fn flow(&self, name: &str) -> Option<&FlowRun> {
        self.flows.iter().find(|flow| flow.info.name == name)
    }

    /// Counters of the flow with this name.
    pub fn totals_of(&self, flow: &str) -> Option<&Totals> {
        let row = self.totals.iter().find(|row| row.flow == flow)?;
        Some(&row.totals)
    }

    /// The events of one flow, in the order of the file.
    pub fn events_of<'a>(&'a self, flow: &'a str) -> impl Iterator<Item = &'a EventRow> {
        self.events.iter().filter(move |row| row.flow == flow)
    }

    /// End of the run: as planned, or the last record of a killed run.
    pub fn end(&self) -> Time {
        let events = self.events.iter().map(|row| row.at);
        let links = self.links.latest();
        let packets = self.flows.iter().flat_map(|flow| {
            let packets = flow.packets.iter();
            // Times of another clock do not tell the end by this clock.
            let arrived = |row: &super::PacketRow| row.arrived.filter(|_| flow.info.one_clock);
            packets.flat_map(move |row| [Some(row.sent), arrived(row)])
        });
        let frames = self
            .flows
            .iter()
            .flat_map(|flow| flow.sent.iter().map(|row| row.captured));
        let last = events
            .chain(links)
            .chain(packets.flatten())
            .chain(frames)
            .max();
        let planned = Time::ZERO + self.manifest.duration;
        last.map_or(planned, |last| last.min(planned))
    }
}

/// Rows of one flow.
#[derive(Clone, Debug)]
pub struct FlowRun {
    /// Entry of the flow in the manifest.
    pub info: FlowInfo,
    /// `frames-sent.csv`.
    pub sent: Vec<SentFrame>,
    /// `frames-received.csv`.
    pub received: Vec<ReceivedFrame>,
    /// `shown.csv`.
    pub shown: Vec<ShownFrame>,
    /// `packets.csv`.
    pub packets: Vec<PacketRow>,
    /// `savable.csv`.
    pub savable: Vec<SavableRow>,
    /// `pictures/*.jpg`.
    pub pictures: Vec<StoredPicture>,
}

impl FlowRun {
    /// A flow without rows.
    pub fn new(info: FlowInfo) -> Self {
        Self {
            info,
            sent: Vec::new(),
            received: Vec::new(),
            shown: Vec::new(),
            packets: Vec::new(),
            savable: Vec::new(),
            pictures: Vec::new(),
        }
    }
}

/// Reads run folders.
#[derive(Debug)]
pub struct RunReader {
    dir: PathBuf,
    notes: Vec<String>,
}

impl RunReader {
    /// Reads a folder. Missing files and invalid lines give [notes](Run::notes).
    ///
    /// # Errors
    /// If the path is not a folder, the folder is not a run, or its format is of another version.
    pub fn load(dir: impl AsRef<Path>) -> Result<Run, LoadError> {
        let mut reader = Self {
            dir: dir.as_ref().to_owned(),
            notes: Vec::new(),
        };
        let parts = [MANIFEST, EVENTS, FLOWS, LINKS, BINS, TOTALS, SUMMARY];
        match fs::read_dir(&reader.dir) {
            Err(source) => {
                let path = reader.dir;
                return Err(LoadError::Io { path, source });
            }
            Ok(mut entries) if !parts.iter().any(|part| reader.dir.join(part).exists()) => {
                let path = reader.dir;
                return Err(match entries.next() {
                    Some(_) => LoadError::NotARun { path },
                    None => LoadError::Empty { path },
                });
            }
            Ok(_) => {}
        }
        let manifest = reader.manifest()?;
        let mut run = Run::new(&reader.dir, manifest);
        run.events = reader.events();
        for flow in &mut run.flows {
            reader.flow(flow, run.manifest.world);
        }
        run.links = reader.table::<LinkSample, _>(LINKS, !run.manifest.links.is_empty());
        run.bins = reader.table(BINS, false);
        run.totals = reader.table(TOTALS, false);
        run.summary = reader.document(SUMMARY, "the run was interrupted");
        run.notes = reader.notes;
        Ok(run)
    }

    fn manifest(&mut self) -> Result<Manifest, LoadError> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let path = self.dir.join(MANIFEST);
        let version = fs::read(&path)
            .ok()
            .and_then(|text| serde_json::from_slice::<Version>(&text).ok());
        if let Some(Version { format }) = version
            && format != FORMAT
        {
            return Err(LoadError::Format { path, format });
        }
        let found = self.document(MANIFEST, "the flows are derived from the other files");
        Ok(found.unwrap_or_else(|| self.guess()))
    }

    /// Manifest of a run without one: contains only the names of the flows.
    fn guess(&self) -> Manifest {
        let mut manifest = Manifest::new(World::Live, "unknown", core::time::Duration::MAX);
        let entries = fs::read_dir(self.dir.join(FLOWS)).into_iter().flatten();
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort_unstable();
        manifest.flows = names
            .into_iter()
            .map(|name| FlowInfo::new(name, "unknown"))
            .collect();
        manifest
    }

    fn events(&mut self) -> Vec<EventRow> {
        #[derive(Deserialize)]
        struct Line {
            t: f64,
            flow: String,
            side: Side,
            #[serde(flatten)]
            event: Event,
        }
        let Some(text) = self.text(EVENTS, true) else {
            return Vec::new();
        };
        let mut bad = Bad::default();
        let lines = text.lines().enumerate().filter_map(|(index, line)| {
            let parsed = serde_json::from_str::<Line>(line);
            bad.count(parsed.is_err(), index + 1);
            parsed.ok()
        });
        let rows = lines.map(|line| EventRow {
            at: time(line.t),
            flow: line.flow,
            side: line.side,
            event: line.event,
        });
        let rows = rows.collect();
        self.notes.extend(bad.note(EVENTS));
        rows
    }

    fn flow(&mut self, flow: &mut FlowRun, world: World) {
        // A manifest of unknown origin may name files outside of the folder.
        if let Err(e) = check_name(&flow.info.name) {
            self.notes
                .push(format!("{MANIFEST}: {e}; its tables were skipped"));
            return;
        }
        let file = |name: &str| format!("{FLOWS}/{}/{name}", flow.info.name);
        // A live sender and a live receiver have a folder each, with the tables of their side.
        let whole = world != World::Live;
        let video = whole && flow.info.has_video();
        flow.packets = self.table(&file(PACKETS), whole && flow.info.logs_packets());
        flow.sent = self.table(&file(FRAMES_SENT), video);
        flow.received = self.table(&file(FRAMES_RECEIVED), video);
        flow.shown = self.table(&file(SHOWN), video);
        flow.savable = self.table(&file(SAVABLE), video);
        flow.pictures = pictures::read(&self.dir.join(FLOWS).join(&flow.info.name));
    }

    fn table<R: Row, C: FromIterator<R> + Default>(&mut self, file: &str, wanted: bool) -> C {
        let Some(text) = self.text(file, wanted) else {
            return C::default();
        };
        let mut reader = csv::ReaderBuilder::new()
            .flexible(true)
            .from_reader(text.as_bytes());
        let most = R::COLUMNS.split(',').count();
        let columns = reader.headers().map_or(0, |header| {
            let columns = header.len();
            let known = (most - R::ADDED..=most).contains(&columns)
                && header.iter().eq(R::COLUMNS.split(',').take(columns));
            if known { columns } else { 0 }
        });
        if columns == 0 {
            let columns = R::COLUMNS;
            self.notes
                .push(format!("{file} was skipped: its columns are not {columns}"));
            return C::default();
        }
        let mut bad = Bad::default();
        let rows = reader.records().enumerate().filter_map(|(index, record)| {
            let row = record.ok().and_then(|mut record| {
                (columns..most).for_each(|_| record.push_field(""));
                record.deserialize(None).ok()
            });
            // Line 1 is the header.
            bad.count(row.is_none(), index + 2);
            row
        });
        let rows: C = rows.collect();
        self.notes.extend(bad.note(file));
        rows
    }

    fn document<T: DeserializeOwned>(&mut self, file: &str, without: &str) -> Option<T> {
        let Ok(text) = fs::read(self.dir.join(file)) else {
            self.notes.push(format!("{file} is missing: {without}"));
            return None;
        };
        let parsed = serde_json::from_slice(&text);
        if let Err(e) = &parsed {
            self.notes
                .push(format!("{file} cannot be read ({e}): {without}"));
        }
        parsed.ok()
    }

    /// All complete lines of a file. A truncated number looks like a number, so a last line without
    /// a line end is never used.
    fn text(&mut self, file: &str, wanted: bool) -> Option<String> {
        let bytes = match fs::read(self.dir.join(file)) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                if wanted {
                    self.notes.push(format!("{file} is missing"));
                }
                return None;
            }
            Err(e) => {
                self.notes.push(format!("{file} cannot be read: {e}"));
                return None;
            }
        };
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
        if whole < bytes.len() {
            self.notes
                .push(format!("{file}: its last line is cut off and was skipped"));
        }
        Some(String::from_utf8_lossy(&bytes[..whole]).into_owned())
    }
}

/// Count of invalid lines.
#[derive(Default)]
struct Bad {
    count: usize,
    first: usize,
}

impl Bad {
    fn count(&mut self, bad: bool, line: usize) {
        if bad && self.count == 0 {
            self.first = line;
        }
        self.count += usize::from(bad);
    }

    fn note(&self, file: &str) -> Option<String> {
        let Self { count, first } = self;
        match count {
            0 => None,
            1 => Some(format!("{file}: line {first} is invalid and was skipped")),
            _ => Some(format!(
                "{file}: {count} lines are invalid and were skipped, the first is line {first}"
            )),
        }
    }
}

/// Error of reading a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The folder is empty: simulated and emulated runs are written at their end.
    #[error("{path} is empty: the run was interrupted before it wrote any data; run it again")]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// The format is of another version.
    #[error(
        "{path} is of format {format} and this program reads format {FORMAT}: use the version \
         that wrote it"
    )]
    Format {
        /// The manifest.
        path: PathBuf,
        /// Version of the format.
        format: u32,
    },
    /// The folder cannot be read.
    #[error("cannot read the run folder {path}: {source}; give the folder of a run")]
    Io {
        /// The folder.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The folder does not contain a run.
    #[error(
        "{path} is not a run folder: it has no {MANIFEST}, {EVENTS} or {FLOWS}; give the folder \
         of a run"
    )]
    NotARun {
        /// The folder.
        path: PathBuf,
    },
}
