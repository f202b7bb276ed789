//! The titles of a folder.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use tidegate_console::progress::{counted, say};
use tidegate_media::{StoredVideo, Title};

/// Titles by name. A file is read when it is asked for, and again after it has changed.
#[derive(Debug)]
pub(super) struct Catalogue {
    dir: PathBuf,
    known: BTreeMap<String, Known>,
}

/// A title that was read.
#[derive(Debug)]
struct Known {
    files: Vec<Stamp>,
    /// `None` if it cannot be served.
    title: Option<Arc<Title>>,
}

/// A file, and what shows a change of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stamp {
    path: PathBuf,
    length: u64,
    modified: Option<SystemTime>,
}

/// Reason why a title cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TitleFault {
    Missing,
    Broken,
}

impl Catalogue {
    /// Reads all titles of a folder, and reports each.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let unreadable = || format!("cannot read the folder {}", dir.display());
        let entries = fs::read_dir(dir).with_context(unreadable)?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        let mut catalogue = Self {
            dir: dir.to_owned(),
            known: BTreeMap::new(),
        };
        for name in names {
            // The reason of a failure was reported.
            let _ = catalogue.title(&name);
        }
        Ok(catalogue)
    }

    /// Number of titles that can be served.
    pub(super) fn len(&self) -> usize {
        let titles = self.known.values().filter(|known| known.title.is_some());
        titles.count()
    }

    /// The title of this name.
    pub(super) fn title(&mut self, name: &str) -> Result<Arc<Title>, TitleFault> {
        let files = self.files(name);
        if files.is_empty() {
            self.known.remove(name);
            return Err(TitleFault::Missing);
        }
        let known = self.known.get(name).filter(|known| known.files == files);
        let title = match known {
            Some(known) => known.title.clone(),
            None => self.read(name, files),
        };
        title.ok_or(TitleFault::Broken)
    }

    /// The files of a title; none if there is no such title.
    fn files(&self, name: &str) -> Vec<Stamp> {
        // The name is that of an entry of the folder.
        let is_entry = !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
        if name.is_empty() || !is_entry {
            return Vec::new();
        }
        let path = self.dir.join(name);
        let files = match fs::read_dir(&path) {
            Ok(entries) => entries
                .filter_map(|entry| Some(entry.ok()?.path()))
                .collect(),
            Err(_) => vec![path],
        };
        let stamp = |path: PathBuf| {
            let is_video = path
                .extension()
                .and_then(OsStr::to_str)
                .is_some_and(is_video);
            let meta = fs::metadata(&path)
                .ok()
                .filter(|meta| is_video && meta.is_file())?;
            let (length, modified) = (meta.len(), meta.modified().ok());
            Some(Stamp {
                path,
                length,
                modified,
            })
        };
        let mut files: Vec<Stamp> = files.into_iter().filter_map(stamp).collect();
        files.sort();
        files.truncate(MAX_RENDITIONS);
        files
    }

    /// Reads a title and reports the result.
    fn read(&mut self, name: &str, files: Vec<Stamp>) -> Option<Arc<Title>> {
        let mut videos = Vec::new();
        for file in &files {
            match StoredVideo::open(&file.path) {
                Ok(video) => videos.push(video),
                Err(error) => say(format_args!("{name}: {error}")),
            }
        }
        let title = match (videos.is_empty(), Title::new(videos)) {
            (true, _) => None,
            (false, Ok(title)) => {
                say(format_args!("{name}: {}", described(&title)));
                Some(Arc::new(title))
            }
            (false, Err(error)) => {
                say(format_args!("{name}: {error}"));
                None
            }
        };
        let known = Known {
            files,
            title: title.clone(),
        };
        self.known.insert(name.to_owned(), known);
        title
    }
}

/// Duration, frame rate and renditions of a title.
fn described(title: &Title) -> String {
    let renditions = title.renditions().iter().map(|video| {
        let (width, height) = video.size();
        format!("{width}x{height} at {}", video.rate())
    });
    let renditions: Vec<String> = renditions.collect();
    let fps = format!("{:.3}", title.frame_rate().as_f64());
    let fps = fps.trim_end_matches('0').trim_end_matches('.');
    let keys = title.renditions()[0].key_frames() as u64;
    format!(
        "{:.1} s, {fps} frames/s, {}, {}",
        title.duration().as_secs_f64(),
        counted(keys, "key frame"),
        renditions.join(", ")
    )
}

/// Whether a file extension is one of video.
fn is_video(extension: &str) -> bool {
    let known = ["264", "h264", "m4v", "mov", "mp4"];
    known
        .iter()
        .any(|known| extension.eq_ignore_ascii_case(known))
}

/// Renditions of a title.
const MAX_RENDITIONS: usize = 16;
