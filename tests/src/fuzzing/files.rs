//! Fuzz targets of scenario files and run folders.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

use tidegate_record::{FlowRun, Run, RunReader, RunWriter};
use tidegate_sim::scenario::Scenario;

use super::Target;

/// All targets.
pub const TARGETS: [Target; 2] = [
    Target {
        name: "run_folder",
        run: run_folder,
    },
    Target {
        name: "scenario",
        run: scenario,
    },
];

/// Scenario files: an error names the file and a line of the text; a valid scenario refers to its own
/// links only, has times within the run and links that can be built, and is the same with a comment
/// at its end.
pub fn scenario(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    let open = |name: &str| match name {
        "trace" => Ok("1\n3\n7\n".to_owned()),
        _ => Err("there is no such file".to_owned()),
    };
    let parsed = Scenario::parse("fuzz.toml", text, &open);
    let scenario = match parsed {
        Ok(scenario) => scenario,
        Err(error) => {
            assert!(error.to_string().starts_with("fuzz.toml:"), "{error}");
            let line = error.line.expect("the file was read");
            assert!((1..=text.lines().count() + 1).contains(&line), "{error}");
            return;
        }
    };
    assert!(!scenario.links.is_empty() && scenario.links.len() <= text.len());
    assert!(!scenario.flows.is_empty() && scenario.flows.len() <= text.len());
    let (from, to) = scenario.measure;
    assert!(from < to && to <= scenario.duration);
    for link in &scenario.links {
        link.config().expect("a valid scenario has valid links");
    }
    for flow in &scenario.flows {
        assert!(!flow.path.is_empty() && !flow.back.is_empty());
        let mut hops = flow.path.iter().chain(&flow.back);
        assert!(hops.all(|link| *link < scenario.links.len()));
        assert!(flow.start < flow.stop && flow.stop <= scenario.duration);
        let _ = scenario.round_trip(flow);
    }
    assert!(!scenario.topology().is_empty());
    let commented = format!("{text}\n# comment\n");
    assert_eq!(
        Scenario::parse("fuzz.toml", &commented, &open),
        Ok(scenario)
    );
}

/// Run folders: reading returns no more rows than the files have lines, and reads no file outside the
/// folder; what was read can be written, and is read again as the same run.
///
/// The input is the contents of the files, separated by the byte 0, in the order of `FILES`.
pub fn run_folder(data: &[u8]) {
    let folder = Folder::new("in");
    let mut lines = 0;
    for (name, contents) in FILES.iter().zip(data.split(|byte| *byte == 0)) {
        let path = folder.0.join(name);
        fs::create_dir_all(path.parent().expect("files are in a folder")).expect("room");
        fs::write(path, contents).expect("room");
        lines += contents.split(|byte| *byte == b'\n').count();
    }
    let run = match RunReader::load(&folder.0) {
        Ok(run) => run,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(rows(&run) <= lines, "{} rows of {lines} lines", rows(&run));
    assert!(run.flows.len() <= lines.max(1) * data.len().max(1));
    let outside = run.flows.iter().find(|flow| flow.info.name == "../outside");
    assert!(
        outside.is_none_or(|flow| count(flow) == 0),
        "a file outside was read"
    );
    let _ = run.end();
    let Some(written) = write(&run) else { return };
    let again = RunReader::load(&written.0).expect("a written run is read");
    assert_eq!(rows(&again), rows(&run), "{:?}", again.notes);
}

/// Rows of all tables.
fn rows(run: &Run) -> usize {
    let flows: usize = run.flows.iter().map(count).sum();
    run.events.len() + run.bins.len() + run.totals.len() + run.links.len() + flows
}

fn count(flow: &FlowRun) -> usize {
    let frames = flow.sent.len() + flow.received.len() + flow.shown.len();
    frames + flow.packets.len() + flow.savable.len()
}

/// Writes a run. `None` if a name in it is not one of a file.
fn write(run: &Run) -> Option<Folder> {
    let folder = Folder::new("out");
    let mut writer = RunWriter::create(&folder.0).expect("room");
    writer.manifest(&run.manifest).ok()?;
    for row in &run.events {
        writer.event(row.at, &row.flow, row.side, &row.event).ok()?;
    }
    for flow in &run.flows {
        writer.flow(flow).ok()?;
    }
    for row in &run.links {
        writer.link_sample(&row).ok()?;
    }
    for row in &run.bins {
        writer.bin(row).ok()?;
    }
    for row in &run.totals {
        writer.totals(row).ok()?;
    }
    if let Some(summary) = &run.summary {
        writer.summary(summary).ok()?;
    }
    writer.flush().ok()?;
    Some(folder)
}

/// A temporary folder, removed at the end.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Self {
        // In memory where there is such a folder.
        let memory = Path::new("/dev/shm");
        let temporary = env::temp_dir();
        let parent = if memory.is_dir() { memory } else { &temporary };
        let thread = std::thread::current().id();
        let folder = parent.join(format!("tidegate-fuzz-{}-{thread:?}-{name}", process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("room");
        Self(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Files of a run with a flow. The last one is outside of the folders of flows.
const FILES: [&str; 12] = [
    "manifest.json",
    "events.jsonl",
    "links.csv",
    "bins.csv",
    "totals.csv",
    "summary.json",
    "flows/a/packets.csv",
    "flows/a/frames-sent.csv",
    "flows/a/frames-received.csv",
    "flows/a/shown.csv",
    "flows/a/savable.csv",
    "outside/packets.csv",
];
