//! A run folder that appears when it is complete.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::create_error::CreateError;
use crate::lock::FolderLock;
use crate::writer::{MANIFEST, RunWriter, WriteError, clear};

/// A run folder that is written under another name. [`publish`](Self::publish) renames it, so that a
/// run that fails or is killed leaves no half folder. An earlier run in the folder stays until then.
/// Dropping it removes what was written.
#[derive(Debug)]
pub struct StagedRun {
    target: PathBuf,
    staging: PathBuf,
    /// Parents that did not exist.
    parents: Vec<PathBuf>,
    /// The target exists, so its files are replaced one by one.
    exists: bool,
    /// Lock of the target, or of the folder that will be renamed to it.
    lock: FolderLock,
}

impl StagedRun {
    /// Checks that a run may be written to `target`, and creates the folder under the other name: in
    /// `target` if it exists, and otherwise beside it. What a killed run left there is removed.
    ///
    /// # Errors
    /// If the folder holds something that is not a run, another process writes one there, or the
    /// folder cannot be created.
    pub fn claim(target: impl AsRef<Path>) -> Result<Self, CreateError> {
        let target = target.as_ref();
        loop {
            let exists = match fs::symlink_metadata(target) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => false,
                _ => {
                    RunWriter::check(target)?;
                    true
                }
            };
            let claimed = match (exists, target.file_name()) {
                (false, Some(name)) => Self::beside(target, name)?,
                _ => Some(Self::within(target)?),
            };
            if let Some(staged) = claimed {
                return Ok(staged);
            }
        }
    }

    /// `None` if another process has published its run since, so that `target` exists.
    fn beside(target: &Path, name: &OsStr) -> Result<Option<Self>, CreateError> {
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(".part");
        let staging = target.with_file_name(hidden);
        let failed = |source| CreateError::Io {
            path: target.to_owned(),
            source,
        };
        let parents = missing_parents(target);
        fs::create_dir_all(&staging).map_err(failed)?;
        let lock = match FolderLock::acquire(&staging) {
            Ok(lock) => lock,
            Err(CreateError::InUse { .. }) => {
                let path = target.to_owned();
                return Err(CreateError::InUse { path });
            }
            Err(CreateError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if !lock.is_of(&staging) {
            return Ok(None);
        }
        empty(&staging).map_err(failed)?;
        Ok(Some(Self {
            target: target.to_owned(),
            staging,
            parents,
            exists: false,
            lock,
        }))
    }

    fn within(target: &Path) -> Result<Self, CreateError> {
        let lock = FolderLock::acquire(target)?;
        let staging = target.join(STAGING);
        let create = || {
            remove_all(&staging)?;
            fs::create_dir_all(&staging)
        };
        create().map_err(|source| CreateError::Io {
            path: target.to_owned(),
            source,
        })?;
        Ok(Self {
            target: target.to_owned(),
            staging,
            parents: Vec::new(),
            exists: true,
            lock,
        })
    }

    /// The folder to write to.
    pub fn dir(&self) -> &Path {
        &self.staging
    }

    /// The folder under its final name.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Gives the folder its name. The files of an earlier run are replaced; others stay. Until the lock
    /// is dropped, no other run replaces this one.
    ///
    /// # Errors
    /// If a file cannot be renamed.
    pub fn publish(self) -> Result<FolderLock, WriteError> {
        let published = if self.exists {
            self.replace()
        } else {
            fs::rename(&self.staging, &self.target)
        };
        published.map_err(|source| WriteError::Io {
            path: self.target.clone(),
            source,
        })?;
        Ok(self.lock.clone())
    }

    /// Moves each file. The manifest comes last: until then the folder has the one of the earlier
    /// run.
    fn replace(&self) -> io::Result<()> {
        clear(&self.target)?;
        for entry in fs::read_dir(&self.staging)? {
            let name = entry?.file_name();
            if name != *MANIFEST {
                move_all(&self.staging.join(&name), &self.target.join(&name))?;
            }
        }
        fs::rename(self.staging.join(MANIFEST), self.target.join(MANIFEST))
    }
}

impl Drop for StagedRun {
    fn drop(&mut self) {
        // A destructor cannot report an error. After a rename nothing is left to remove.
        let _ = remove_all(&self.staging);
        for parent in &self.parents {
            let _ = fs::remove_dir(parent);
        }
    }
}

/// Moves a file, or the files of a folder into one that may have others.
fn move_all(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        return fs::rename(from, to);
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        move_all(&from.join(&name), &to.join(&name))?;
    }
    Ok(())
}

/// Removes what the folder holds.
fn empty(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn remove_all(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// From the innermost on.
fn missing_parents(dir: &Path) -> Vec<PathBuf> {
    let missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    let parents = dir.ancestors().skip(1).take_while(missing);
    parents.map(Path::to_owned).collect()
}

/// Name of the folder in an existing one.
pub(super) const STAGING: &str = ".run.part";

#[cfg(test)]
mod tests {
    use super::super::manifest::{Manifest, World};
    use super::super::writer::FLOWS;
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(test: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("tidegate-{test}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(&dir).unwrap();
            Self(dir)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn write(staged: &StagedRun, name: &str) {
        let manifest = Manifest::new(World::Sim, name, core::time::Duration::ZERO);
        let mut writer = RunWriter::create(staged.dir()).unwrap();
        writer.manifest(&manifest).unwrap();
        writer.flush().unwrap();
        let flow = staged.dir().join(FLOWS).join("a");
        fs::create_dir_all(&flow).unwrap();
        fs::write(flow.join("packets.csv"), name).unwrap();
        fs::create_dir_all(flow.join("pictures")).unwrap();
        fs::write(flow.join("pictures/7-shown.jpg"), name).unwrap();
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let name = |e: io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<_> = entries.map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn a_run_appears_when_it_is_published() {
        let scratch = Scratch::new("staged-new");
        let dir = scratch.0.join("runs/a");
        let staged = StagedRun::claim(&dir).unwrap();
        write(&staged, "first");
        assert!(!dir.exists());
        staged.publish().unwrap();
        assert_eq!(names(&dir), ["events.jsonl", "flows", "manifest.json"]);
        assert_eq!(names(&scratch.0.join("runs")), ["a"]);
    }

    #[test]
    fn a_run_that_fails_leaves_nothing() {
        let scratch = Scratch::new("staged-failed");
        let staged = StagedRun::claim(scratch.0.join("runs/deep/a")).unwrap();
        write(&staged, "first");
        drop(staged);
        assert!(names(&scratch.0).is_empty());
    }

    #[test]
    fn an_earlier_run_stays_until_another_is_published() {
        let scratch = Scratch::new("staged-earlier");
        let dir = scratch.0.join("a");
        let staged = StagedRun::claim(&dir).unwrap();
        write(&staged, "first");
        staged.publish().unwrap();
        fs::write(dir.join("notes.txt"), "mine").unwrap();
        let manifest = || fs::read_to_string(dir.join(MANIFEST)).unwrap();
        let packets = || fs::read_to_string(dir.join("flows/a/packets.csv")).unwrap();

        let failed = StagedRun::claim(&dir).unwrap();
        write(&failed, "second");
        assert!(manifest().contains("first") && packets() == "first");
        drop(failed);
        let all = ["events.jsonl", "flows", "manifest.json", "notes.txt"];
        assert_eq!(names(&dir), all);

        // A killed process leaves its folder behind.
        fs::create_dir_all(dir.join(STAGING).join("flows/b")).unwrap();
        let second = StagedRun::claim(&dir).unwrap();
        write(&second, "second");
        second.publish().unwrap();
        assert!(manifest().contains("second") && packets() == "second");
        let picture = fs::read_to_string(dir.join("flows/a/pictures/7-shown.jpg"));
        assert_eq!(picture.unwrap(), "second");
        assert_eq!(names(&dir), all);
    }

    #[test]
    fn two_runs_do_not_share_a_folder() {
        let scratch = Scratch::new("staged-shared");
        let dir = scratch.0.join("a");
        let is_in_use = || match StagedRun::claim(&dir) {
            Err(CreateError::InUse { path }) => path == dir,
            _ => false,
        };
        let first = StagedRun::claim(&dir).unwrap();
        assert!(is_in_use(), "a new folder");
        write(&first, "first");
        let lock = first.publish().unwrap();
        assert!(is_in_use(), "while the run is read back");
        drop(lock);
        let second = StagedRun::claim(&dir).unwrap();
        assert!(is_in_use(), "an existing folder");
        write(&second, "second");
        second.publish().unwrap();
        let packets = fs::read_to_string(dir.join("flows/a/packets.csv"));
        assert_eq!(packets.unwrap(), "second");
        assert_eq!(names(&scratch.0), ["a"]);
    }

    #[test]
    fn what_is_not_a_run_is_refused() {
        let scratch = Scratch::new("staged-other");
        fs::write(scratch.0.join("thesis.txt"), "years").unwrap();
        let refused = StagedRun::claim(&scratch.0);
        assert!(matches!(refused, Err(CreateError::NotARun { .. })));
        let refused = StagedRun::claim(scratch.0.join("thesis.txt"));
        assert!(matches!(refused, Err(CreateError::NotAFolder { .. })));
        assert_eq!(names(&scratch.0), ["thesis.txt"]);
    }
}
