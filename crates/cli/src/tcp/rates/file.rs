//! Rates in a file: the last line is read, and the file is replaced atomically.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use tidegate_core::random::Seed;
use tidegate_core::session::tcp::Advice;

use super::{MAX_LINE, NONBLOCK, parse};
use tidegate_console::context::secret_seed;
use tidegate_console::describe;

/// Checks that rates can be read from a file, or from a file that does not exist yet.
///
/// # Errors
/// The path is unreadable or not a regular file. The message names the path and the alternative.
pub(crate) fn readable(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e).with_context(|| unreadable(path)),
        Ok(meta) => tail(path, &meta).map(drop),
    }
}

/// Reader of the last line, after each change of the file.
#[derive(Debug)]
pub(crate) struct LastLine {
    path: PathBuf,
    /// Inode, size and modification time at the last read.
    seen: Option<(u64, u64, i64, i64)>,
    /// A read error has been reported.
    error_reported: bool,
}

impl LastLine {
    pub(super) fn of(path: PathBuf) -> Self {
        Self {
            path,
            seen: None,
            error_reported: false,
        }
    }

    /// The last line, if it changed. A read error is reported once.
    pub(super) fn poll(&mut self) -> Option<Result<Advice, String>> {
        let meta = match fs::metadata(&self.path) {
            Ok(meta) => meta,
            // The file does not exist before the first write.
            Err(e) if e.kind() == ErrorKind::NotFound => return None,
            Err(e) => return self.trouble(&anyhow::Error::new(e).context(unreadable(&self.path))),
        };
        let now = (meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec());
        if self.seen.replace(now) == Some(now) {
            return None;
        }
        match tail(&self.path, &meta) {
            Ok(text) => {
                self.error_reported = false;
                // A file that is being rewritten is empty for a moment.
                let last = text.lines().rfind(|line| !line.trim().is_empty());
                last.map(parse)
            }
            Err(error) => self.trouble(&error),
        }
    }

    fn trouble<T>(&mut self, error: &anyhow::Error) -> Option<Result<T, String>> {
        let is_news = !std::mem::replace(&mut self.error_reported, true);
        is_news.then(|| Err(describe(error)))
    }
}

/// End of a file, from the start of a line. A pipe or device could block.
fn tail(path: &Path, meta: &Metadata) -> Result<String> {
    let name = path.display();
    let is_file = |meta: &Metadata| {
        ensure!(meta.is_file(), "\"{name}\" is no regular file: {OTHERS}");
        Ok(())
    };
    is_file(meta)?;
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(NONBLOCK);
    let mut file = options.open(path).with_context(|| unreadable(path))?;
    is_file(&file.metadata().with_context(|| unreadable(path))?)?;
    let from = meta.size().saturating_sub(MAX_LINE as u64);
    let mut bytes = Vec::new();
    let read = file.seek(SeekFrom::Start(from));
    read.and_then(|_| file.take(MAX_LINE as u64).read_to_end(&mut bytes))
        .with_context(|| unreadable(path))?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if from == 0 {
        return Ok(text);
    }
    match text.trim_end().split_once('\n') {
        Some((_, whole)) => Ok(whole.to_owned()),
        None => bail!("the last line of {name} is not a rate: it has more than {MAX_LINE} bytes"),
    }
}

fn unreadable(path: &Path) -> String {
    format!("cannot read rates from {}", path.display())
}

/// Checks that [`replace`] will succeed, without changing an existing file.
///
/// # Errors
/// The path cannot be written or is not a regular file. The message names the path and the
/// alternative.
pub(crate) fn writable(path: &Path) -> Result<()> {
    let place = || {
        let (file, scratch) = scratch(&behind_links(path)?)?;
        drop(file);
        fs::remove_file(scratch)
    };
    place().with_context(|| {
        format!(
            "cannot write rates to \"{}\": choose another file for --rate-to, in a writable folder",
            path.display()
        )
    })
}

/// Replaces the file atomically, so that readers see no partial file.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let written = || {
        let path = behind_links(path)?;
        let (mut file, scratch) = scratch(&path)?;
        let moved = file.write_all(text.as_bytes());
        let moved = moved.and_then(|()| fs::rename(&scratch, &path));
        moved.inspect_err(|_| {
            // The write error has been reported already.
            let _ = fs::remove_file(&scratch);
        })
    };
    written().map_err(|e| io::Error::new(e.kind(), format!("cannot write {}: {e}", path.display())))
}

/// Target of `path` behind symbolic links, which may not exist yet. Links are kept. A path that is
/// not a regular file is an error.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() => return fs::canonicalize(path),
        Ok(_) => return Err(io::Error::other(format!("it is no regular file: {OTHERS}"))),
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        Err(_) => {}
    }
    match fs::read_link(path) {
        Ok(link) => behind_links(&path.parent().unwrap_or(Path::new("")).join(link)),
        Err(_) => Ok(path.to_owned()),
    }
}

/// Creates a temporary file in the same folder.
fn scratch(path: &Path) -> io::Result<(File, PathBuf)> {
    let Seed(unique) = secret_seed();
    let mut scratch = path.as_os_str().to_owned();
    scratch.push(format!(".{unique:016x}.part"));
    let scratch = PathBuf::from(scratch);
    Ok((File::create_new(&scratch)?, scratch))
}

const OTHERS: &str = "give a file, or a Unix socket as unix:PATH";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use tidegate_core::units::Rate;

    use super::super::{Channel, Incoming, Outgoing};
    use super::*;

    /// Path of a folder that does not exist yet.
    fn folder(name: &str) -> PathBuf {
        let name = format!("tidegate-rates-file-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        path
    }

    const fn rate(kbps: u64) -> Advice {
        Advice::Rate(Rate::kbps(kbps))
    }

    fn pipe(path: &Path) {
        let made = Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    }

    #[test]
    fn a_file_is_replaced_atomically_and_read_after_a_change() {
        let folder = folder("whole");
        let path = folder.join("rate");
        let mut outgoing = Outgoing::open(&Channel::File(path.clone())).unwrap();
        let mut incoming = Incoming::open(&Channel::File(path.clone())).unwrap();
        assert!(incoming.poll().is_empty());
        outgoing.write(Rate::kbps(500)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "500000\n");
        assert_eq!(incoming.poll(), [Ok(rate(500))]);
        assert!(incoming.poll().is_empty());
        fs::write(&path, "1\n2Mb/s\n\n").unwrap();
        assert_eq!(incoming.poll(), [Ok(rate(2_000))]);
        fs::write(&path, "nonsense").unwrap();
        assert!(incoming.poll()[0].is_err());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_last_line_of_a_long_file_is_read() {
        let folder = folder("long");
        let path = folder.join("rate");
        let mut file = LastLine::of(path.clone());
        fs::write(&path, format!("{}700kb/s\n", "1Mb/s\n".repeat(1_000))).unwrap();
        assert_eq!(file.poll(), Some(Ok(rate(700))));
        fs::write(&path, "1".repeat(5_000)).unwrap();
        let error = file.poll().unwrap().unwrap_err();
        assert!(error.contains("more than 4096 bytes"), "{error}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_path_that_is_not_a_file_is_rejected_and_reported_once() {
        let folder = folder("kinds");
        let [path, fifo] = ["rate", "fifo"].map(|name| folder.join(name));
        pipe(&fifo);
        for wrong in [&fifo, &folder, Path::new("/dev/null")] {
            for error in [readable(wrong), writable(wrong)] {
                let error = describe(&error.unwrap_err());
                assert!(error.contains("as unix:PATH"), "{error}");
                assert!(error.contains(&wrong.display().to_string()), "{error}");
            }
        }
        let mut file = LastLine::of(path.clone());
        pipe(&path);
        let error = file.poll().unwrap().unwrap_err();
        assert!(error.contains("is no regular file"), "{error}");
        assert_eq!(file.poll(), None);
        let error = replace(&path, "1\n").unwrap_err().to_string();
        assert!(error.contains("is no regular file"), "{error}");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(file.poll(), None);
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "1Mb/s").unwrap();
        assert_eq!(file.poll(), Some(Ok(rate(1_000))));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn only_the_file_itself_is_changed() {
        let folder = folder("links");
        let [file, link, part, none, dangling] =
            ["rate", "link", "link.part", "none", "dangling"].map(|name| folder.join(name));
        fs::write(&file, "").unwrap();
        fs::write(&part, "of somebody else").unwrap();
        symlink("rate", &link).unwrap();
        symlink("none", &dangling).unwrap();
        for (link, file) in [(&link, &file), (&dangling, &none)] {
            writable(link).unwrap();
            replace(link, "1\n").unwrap();
            assert!(fs::symlink_metadata(link).unwrap().is_symlink());
            assert_eq!(fs::read_to_string(file).unwrap(), "1\n");
        }
        assert_eq!(fs::read_to_string(&part).unwrap(), "of somebody else");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 5);
        fs::remove_dir_all(folder).unwrap();
    }
}
