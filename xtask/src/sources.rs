//! Rust files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// A file and its text.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Every Rust file under the source directories of `root`, by path.
pub(crate) fn rust(root: &Path) -> anyhow::Result<Vec<Source>> {
    let mut found = Vec::new();
    for directory in DIRECTORIES {
        let directory = root.join(directory);
        if directory.is_dir() {
            collect(root, &directory, &mut found)?;
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Files of one directory whose names end in `extension`, by name.
pub(crate) fn with_extension(directory: &Path, extension: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = entries(directory)?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    found.sort();
    Ok(found)
}

fn collect(root: &Path, directory: &Path, found: &mut Vec<Source>) -> anyhow::Result<()> {
    for path in entries(directory)? {
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                collect(root, &path, found)?;
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let relative = path.strip_prefix(root).unwrap_or(&path);
            found.push(Source {
                path: relative.to_string_lossy().replace('\\', "/"),
                text,
            });
        }
    }
    Ok(())
}

fn entries(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let listing =
        fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    listing
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<_>>()
}

const DIRECTORIES: [&str; 5] = ["crates", "tests", "fuzz", "peers", "xtask"];
