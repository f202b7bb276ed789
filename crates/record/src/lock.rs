//! Exclusive use of a run folder.

use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use crate::create_error::CreateError;

/// A lock of a folder (flock(2)) by this process. It ends with its last clone, or with the process,
/// however that ends. The folder stays locked if it is renamed.
#[derive(Debug, Clone)]
pub struct FolderLock(Arc<File>);

impl FolderLock {
    /// Locks an existing folder.
    ///
    /// # Errors
    /// Another process has the lock, or the folder cannot be opened.
    pub fn acquire(dir: impl AsRef<Path>) -> Result<Self, CreateError> {
        let dir = dir.as_ref();
        let failed = |source| CreateError::Io {
            path: dir.to_owned(),
            source,
        };
        let folder = File::open(dir).map_err(failed)?;
        match folder.try_lock() {
            Ok(()) => Ok(Self(Arc::new(folder))),
            Err(TryLockError::WouldBlock) => Err(CreateError::InUse {
                path: dir.to_owned(),
            }),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// Whether `dir` still is the name of the folder.
    pub(super) fn is_of(&self, dir: &Path) -> bool {
        let identity = |m: std::fs::Metadata| (m.dev(), m.ino());
        let [ours, there] = [self.0.metadata(), dir.metadata()].map(|m| m.ok().map(identity));
        ours.is_some() && ours == there
    }
}
