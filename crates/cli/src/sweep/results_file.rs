//! Folder of a sweep: its description, and the rows of the completed runs.
//!
//! Rows are appended as runs complete, so an interrupted sweep can be resumed. A run counts if all
//! of its rows are complete. At the end the rows are sorted.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use tidegate_console::exit::EnvironmentError;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tidegate_record::TOOL;
use tidegate_sim::scenario::Sweep;

use super::rows::{self, Figure, Kind, Row};
use super::shard::Shard;

/// A run: the indices of its point and its seed.
pub(super) type Job = (usize, usize);

/// Open folder of a sweep, or of a shard of it.
#[derive(Debug)]
pub(super) struct ResultsFile<'a> {
    dir: PathBuf,
    sweep: &'a Sweep,
    shard: Option<Shard>,
    done: BTreeMap<Job, Vec<Row>>,
    results: File,
    /// Locked against other processes.
    _lock: File,
}

impl<'a> ResultsFile<'a> {
    /// Opens or creates the folder `dir`. With `fresh`, removes the results of an earlier sweep.
    /// Folders of shards in it are allowed, and not changed.
    ///
    /// # Errors
    /// The folder contains other files or another sweep, another process has it open, or a write
    /// fails.
    pub(super) fn open(
        dir: &Path,
        sweep: &'a Sweep,
        shard: Option<Shard>,
        fresh: bool,
    ) -> Result<Self> {
        fs::create_dir_all(dir)
            .with_context(|| format!("cannot create the folder {}", dir.display()))?;
        let path = dir.join(DESCRIPTION);
        if !path.exists() && has_other_files(dir)? {
            bail!(
                "{} contains files that are not of a sweep and are not overwritten: choose a new \
                or empty folder with --out",
                dir.display()
            );
        }
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options
            .open(&path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(EnvironmentError::new(format_args!(
                "another process runs the sweep in {}: wait for its end, or choose another folder \
                with --out",
                dir.display()
            ))),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let wanted = describe(sweep, shard);
        if !is_the_same(dir, &fs::read_to_string(&path)?, &wanted, fresh)? {
            for file in [RESULTS, SUMMARY] {
                match fs::remove_file(dir.join(file)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(error.into());
                    }
                    _ => {}
                }
            }
            file.set_len(0)?;
            file.write_all(format!("{wanted:#}\n").as_bytes())?;
        }
        let done = read(&dir.join(RESULTS), sweep);
        // Rewritten without incomplete rows, so that appended rows follow complete ones.
        write_results(dir, sweep, &done)?;
        let results = File::options().append(true).open(dir.join(RESULTS))?;
        Ok(Self {
            dir: dir.to_owned(),
            sweep,
            shard,
            done,
            results,
            _lock: file,
        })
    }

    /// All runs of the sweep, or of the shard, in order.
    pub(super) fn jobs(&self) -> impl Iterator<Item = Job> {
        jobs(self.sweep, self.shard).map(|(_, job)| job)
    }

    /// Those of [`jobs`](Self::jobs) that have no result.
    pub(super) fn missing(&self) -> impl Iterator<Item = Job> {
        self.jobs().filter(|job| !self.done.contains_key(job))
    }

    /// Number of completed runs.
    pub(super) fn done(&self) -> usize {
        self.done.len()
    }

    /// Whether the results of a completed run are these.
    pub(super) fn has(&self, job: Job, rows: &[Row]) -> bool {
        self.done.get(&job).is_some_and(|known| *known == rows)
    }

    /// Adds the completed runs of the shard in the folder `dir`. Returns the shard.
    ///
    /// # Errors
    /// The folder is no shard of this sweep, or has other results of a run that is known already;
    /// or a read or write fails.
    pub(super) fn take_shard(&mut self, dir: &Path) -> Result<Shard> {
        let path = dir.join(DESCRIPTION);
        let text = match fs::read_to_string(&path) {
            // As a description without a shard.
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let found: Value = serde_json::from_str(&text).unwrap_or_default();
        let shard = found["shard"].as_str().and_then(|text| text.parse().ok());
        let Some(shard) = shard else {
            bail!(
                "{} is not the folder of a shard: `sim sweep` with --shard writes them",
                dir.display()
            );
        };
        is_the_same(dir, &text, &describe(self.sweep, Some(shard)), false)?;
        for (job, rows) in read(&dir.join(RESULTS), self.sweep) {
            if !self.done.contains_key(&job) {
                self.add(job, rows)?;
            } else if !self.has(job, &rows) {
                bail!(
                    "{}: the results of point {}, seed {} differ from those of another folder: \
                     the machines do not compute alike, or one folder is damaged",
                    dir.display(),
                    job.0 + 1,
                    self.sweep.seeds[job.1].0
                );
            }
        }
        Ok(shard)
    }

    /// Appends a run.
    ///
    /// # Errors
    /// A write fails.
    pub(super) fn add(&mut self, job: Job, rows: Vec<Row>) -> Result<()> {
        let text = lines(self.sweep, job, &rows)?;
        self.results
            .write_all(&text)
            .with_context(|| format!("cannot write {}", self.dir.join(RESULTS).display()))?;
        self.done.insert(job, rows);
        Ok(())
    }

    /// Sorts the rows.
    ///
    /// # Errors
    /// A write fails.
    pub(super) fn sort(&self) -> Result<()> {
        write_results(&self.dir, self.sweep, &self.done)
    }

    /// Sorts the rows, writes the summary and returns it.
    ///
    /// # Errors
    /// A write fails.
    pub(super) fn finish(&self) -> Result<Vec<Figure>> {
        self.sort()?;
        let mut figures = Vec::new();
        for point in 0..self.sweep.points.len() {
            let seeds = 0..self.sweep.seeds.len();
            let runs = seeds.filter_map(|seed| self.done.get(&(point, seed)));
            let runs: Vec<&[Row]> = runs.map(Vec::as_slice).collect();
            figures.extend(rows::figures(point, &runs));
        }
        let mut table = csv::Writer::from_writer(Vec::new());
        let axes = self.sweep.axes.iter().map(|axis| axis.key.as_str());
        let head = ["point"].into_iter().chain(axes);
        table.write_record(head.chain(["kind", "name", "members", "metric", "mean", "sd", "n"]))?;
        for figure in &figures {
            let point = &self.sweep.points[figure.point];
            let mut cells = vec![(figure.point + 1).to_string()];
            cells.extend(point.values.iter().cloned());
            cells.extend([
                figure.kind.word().to_owned(),
                figure.name.clone(),
                figure.members.to_string(),
                figure.metric.to_owned(),
                figure.mean.to_string(),
                figure.deviation.map(|d| d.to_string()).unwrap_or_default(),
                figure.runs.to_string(),
            ]);
            table.write_record(cells)?;
        }
        replace(&self.dir.join(SUMMARY), &table.into_inner()?)?;
        Ok(figures)
    }

    /// Failed expectations, in order.
    pub(super) fn failures(&self) -> Vec<(Job, &Row)> {
        let holds = rows::place("holds");
        let rows = self
            .done
            .iter()
            .flat_map(|(job, rows)| rows.iter().map(|row| (*job, row)));
        let failed = |row: &Row| row.kind == Kind::Expect && row.values[holds] != Some(1.0);
        rows.filter(|(_, row)| failed(row)).collect()
    }
}

/// The runs of a sweep, or of a shard of it, each with its number in the sweep.
pub(super) fn jobs(sweep: &Sweep, shard: Option<Shard>) -> impl Iterator<Item = (usize, Job)> {
    let seeds = sweep.seeds.len();
    (0..sweep.runs())
        .filter(move |run| shard.is_none_or(|shard| shard.has(*run)))
        .map(move |run| (run, (run / seeds, run % seeds)))
}

/// Whether `dir` contains anything but folders of shards.
fn has_other_files(dir: &Path) -> Result<bool> {
    for entry in fs::read_dir(dir)? {
        if !entry?.file_name().to_str().is_some_and(Shard::is_folder) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Description of the sweep, or of a shard of it, which identifies the folder.
fn describe(sweep: &Sweep, shard: Option<Shard>) -> Value {
    let axes = sweep.axes.iter();
    let axes = axes.map(|axis| json!({ "key": axis.key, "values": axis.values }));
    let files = sweep.files.iter();
    let files = files.map(|(name, fnv)| json!({ "name": name, "fnv1a": format!("{fnv:016x}") }));
    json!({
        "tool": TOOL,
        "scenario": sweep.base.name,
        "scenario_text": sweep.text,
        "files": files.collect::<Vec<_>>(),
        "axes": axes.collect::<Vec<_>>(),
        "seeds": sweep.seeds.iter().map(|seed| seed.0).collect::<Vec<_>>(),
        "points": sweep.points.len(),
        "shard": shard.map(|shard| shard.to_string()),
    })
}

/// Whether the folder belongs to this sweep. If not, it is to be rewritten.
fn is_the_same(dir: &Path, found: &str, wanted: &Value, fresh: bool) -> Result<bool> {
    if found.is_empty() {
        return Ok(false);
    }
    let found: Value = serde_json::from_str(found).unwrap_or_default();
    let is_valid = |tool: &str| tool.starts_with("tidegate ");
    if !found["tool"].as_str().is_some_and(is_valid) && !fresh {
        bail!(
            "{} is not readable: choose another folder with --out, or start again with --fresh",
            dir.join(DESCRIPTION).display()
        );
    }
    if fresh {
        return Ok(false);
    }
    let changed: Vec<&str> = ["tool", "scenario_text", "files", "shard"]
        .into_iter()
        .filter(|key| found[key] != wanted[key])
        .collect();
    if !changed.is_empty() {
        let what = match changed[0] {
            "tool" => "another version of the program",
            "scenario_text" => "another text of the scenario",
            "shard" => "other shards",
            _ => "another text of a file that the scenario refers to",
        };
        bail!(
            "{} contains a sweep with {what}: remove its results with --fresh, or choose another \
             folder with --out",
            dir.display()
        );
    }
    Ok(true)
}

/// Runs with all of their rows.
fn read(path: &Path, sweep: &Sweep) -> BTreeMap<Job, Vec<Row>> {
    let bytes = fs::read(path).unwrap_or_default();
    // A truncated number looks like a number, so a last line without newline is never used.
    let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .from_reader(&bytes[..whole]);
    let mut found: BTreeMap<Job, Vec<Row>> = BTreeMap::new();
    let is_valid = reader
        .headers()
        .is_ok_and(|head| head.iter().eq(header(sweep).iter().copied()));
    for record in reader.records().filter(|_| is_valid) {
        if let Some((job, row)) = record.ok().and_then(|record| parse(&record, sweep)) {
            found.entry(job).or_default().push(row);
        }
    }
    found.retain(|(point, _), rows| {
        let labels = rows::labels(&sweep.points[*point].scenario);
        let found = rows.iter().map(|row| (row.kind, row.name.as_str()));
        found.eq(labels)
    });
    found
}

/// Job and row of a line. `None` if the line is invalid.
fn parse(record: &csv::StringRecord, sweep: &Sweep) -> Option<(Job, Row)> {
    let mut cells = record.iter();
    let point = cells.next()?.parse::<usize>().ok()?.checked_sub(1)?;
    let values = &sweep.points.get(point)?.values;
    if !values.iter().all(|value| cells.next() == Some(value)) {
        return None;
    }
    let seed: u64 = cells.next()?.parse().ok()?;
    let seed = sweep.seeds.iter().position(|known| known.0 == seed)?;
    let word = cells.next()?;
    let kind = [Kind::Expect, Kind::Flow, Kind::Link]
        .into_iter()
        .find(|kind| kind.word() == word)?;
    let (name, members) = (cells.next()?.to_owned(), cells.next()?.parse().ok()?);
    let value = |cell: &str| match cell {
        "" => Some(None),
        number => number.parse().ok().map(Some),
    };
    let values: Vec<Option<f64>> = cells.map(value).collect::<Option<_>>()?;
    (values.len() == rows::metrics().count()).then_some(())?;
    let row = Row {
        kind,
        name,
        members,
        values,
    };
    Some(((point, seed), row))
}

fn header(sweep: &Sweep) -> Vec<&str> {
    let mut head = vec!["point"];
    head.extend(sweep.axes.iter().map(|axis| axis.key.as_str()));
    head.extend(["seed", "kind", "name", "members"]);
    for metric in rows::metrics() {
        head.push(metric);
    }
    head
}

fn write_results(dir: &Path, sweep: &Sweep, done: &BTreeMap<Job, Vec<Row>>) -> Result<()> {
    let mut table = csv::Writer::from_writer(Vec::new());
    table.write_record(header(sweep))?;
    let mut text = table.into_inner()?;
    for (job, rows) in done {
        text.extend(lines(sweep, *job, rows)?);
    }
    replace(&dir.join(RESULTS), &text)
}

fn lines(sweep: &Sweep, (point, seed): Job, rows: &[Row]) -> Result<Vec<u8>> {
    let mut table = csv::Writer::from_writer(Vec::new());
    for row in rows {
        let mut cells = vec![(point + 1).to_string()];
        cells.extend(sweep.points[point].values.iter().cloned());
        cells.push(sweep.seeds[seed].0.to_string());
        cells.extend([
            row.kind.word().to_owned(),
            row.name.clone(),
            row.members.to_string(),
        ]);
        let values = row.values.iter();
        cells.extend(values.map(|v| v.map(|v| v.to_string()).unwrap_or_default()));
        table.write_record(cells)?;
    }
    Ok(table.into_inner()?)
}

/// Replaces a file atomically, so that readers and interruptions see no partial file.
fn replace(path: &Path, text: &[u8]) -> Result<()> {
    let scratch = path.with_extension("part");
    fs::write(&scratch, text)
        .and_then(|()| fs::rename(&scratch, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

const DESCRIPTION: &str = "sweep.json";
const RESULTS: &str = "results.csv";
const SUMMARY: &str = "summary.csv";
