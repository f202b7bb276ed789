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
    /// Titles are decoded, and encoded for each client.
    encodes: bool,
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
    pub(super) fn open(dir: &Path, encodes: bool) -> Result<Self> {
        let unreadable = || format!("cannot read the folder {}", dir.display());
        let entries = fs::read_dir(dir).with_context(unreadable)?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        let mut catalogue = Self {
            dir: dir.to_owned(),
            encodes,
            known: BTreeMap::new(),
        };
        for name in names {
            // The reason of a failure was reported.
            let _ = catalogue.title(&name);
        }
        catalogue.name_others();
        Ok(catalogue)
    }

    /// Reports videos of other formats, in the folder and in those of titles.
    fn name_others(&self) {
        let paths = |dir: &Path| -> Vec<PathBuf> {
            let entries = fs::read_dir(dir).into_iter().flatten();
            entries
                .filter_map(|entry| Some(entry.ok()?.path()))
                .collect()
        };
        let (dirs, mut files): (Vec<PathBuf>, _) =
            paths(&self.dir).into_iter().partition(|path| path.is_dir());
        files.extend(dirs.iter().flat_map(|dir| paths(dir)));
        files.retain(|path| has_extension(path, &OTHERS));
        files.sort();
        let names = files
            .iter()
            .filter_map(|path| path.strip_prefix(&self.dir).ok());
        let names: Vec<String> = names
            .take(MAX_NAMED)
            .map(|path| path.display().to_string())
            .collect();
        if names.is_empty() {
            return;
        }
        let more = match files.len() - names.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        say(format_args!(
            "passed over {}: {}{more}: only MP4, MOV and byte streams of H.264 are served; convert \
             others, for example with `ffmpeg -i IN -c:v copy -an OUT.mp4`",
            counted(files.len() as u64, "file"),
            names.join(", ")
        ));
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
            let is_video = has_extension(&path, &SERVED);
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
                Ok(video) => match video.turn().filter(|_| !self.encodes) {
                    None => videos.push(video),
                    Some(turn) => say(format_args!(
                        "{name}: the pictures of {} have to be {turn}, which players may not do: \
                         turn them with `ffmpeg -i IN -an -c:v libx264 OUT.mp4`, or serve them \
                         with --encode",
                        video.path().display()
                    )),
                },
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

fn has_extension(path: &Path, known: &[&str]) -> bool {
    let extension = path.extension().and_then(OsStr::to_str);
    extension.is_some_and(|one| known.iter().any(|other| one.eq_ignore_ascii_case(other)))
}

/// File extensions of titles.
const SERVED: [&str; 5] = ["264", "h264", "m4v", "mov", "mp4"];
/// File extensions of other videos.
const OTHERS: [&str; 19] = [
    "265", "3gp", "avi", "flv", "h265", "hevc", "ivf", "m2ts", "m2v", "mkv", "mpeg", "mpg", "mts",
    "mxf", "ogv", "ts", "webm", "wmv", "y4m",
];
/// Names in one message.
const MAX_NAMED: usize = 5;
/// Renditions of a title.
const MAX_RENDITIONS: usize = 16;
