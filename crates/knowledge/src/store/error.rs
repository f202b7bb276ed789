//! Errors of the store.

use std::fmt::{self, Display};
use std::io;
use std::path::PathBuf;

use rusqlite::ErrorCode;

/// The store cannot be read or written.
#[derive(Debug)]
pub struct StoreError {
    pub(super) path: PathBuf,
    pub(super) cause: StoreFault,
}

impl StoreError {
    /// What failed.
    pub const fn cause(&self) -> &StoreFault {
        &self.cause
    }

    /// Whether the machine failed. Otherwise the file is not what the caller expects.
    pub fn is_environment(&self) -> bool {
        match &self.cause {
            StoreFault::Busy | StoreFault::Full | StoreFault::System(_) => true,
            StoreFault::Sqlite(error) => matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory)
            ),
            StoreFault::Damaged
            | StoreFault::Foreign
            | StoreFault::IsFolder
            | StoreFault::Missing
            | StoreFault::NoFolder
            | StoreFault::Version(_) => false,
        }
    }
}

/// Cause of a [`StoreError`].
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreFault {
    /// Another process holds the write lock.
    Busy,
    /// A page of the file is damaged.
    Damaged,
    /// The file is that of another program.
    Foreign,
    /// The disk is full.
    Full,
    /// The path is that of a folder.
    IsFolder,
    /// There is no such file.
    Missing,
    /// The folder of the file does not exist.
    NoFolder,
    /// Another failure of the database.
    Sqlite(rusqlite::Error),
    /// The operating system refuses.
    System(io::Error),
    /// The tables have another version.
    Version(String),
}

impl From<rusqlite::Error> for StoreFault {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged,
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            _ => Self::Sqlite(error),
        }
    }
}

impl Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.path.display();
        match &self.cause {
            StoreFault::Busy => write!(f, "{name} is locked by another process: try again"),
            StoreFault::Damaged => write!(
                f,
                "{name} is damaged: a sender sets it aside and starts an empty store; give another \
                 file to read"
            ),
            StoreFault::Foreign => write!(
                f,
                "{name} is no knowledge store, and is left as it is: name another file"
            ),
            StoreFault::Full => write!(f, "cannot write {name}: the disk is full"),
            StoreFault::Missing => write!(
                f,
                "{name} does not exist: `tidegate knowledge import` and `tidegate send --knowledge` \
                 create a store"
            ),
            StoreFault::IsFolder => write!(
                f,
                "{name} is a folder: name a file in it, such as {}",
                self.path.join("knowledge.db").display()
            ),
            StoreFault::NoFolder => {
                write!(f, "the folder of {name} does not exist: create it")
            }
            StoreFault::Sqlite(error) => write!(f, "cannot use {name}: {error}"),
            StoreFault::System(error) => write!(f, "cannot use {name}: {error}"),
            StoreFault::Version(version) => write!(
                f,
                "{name} has tables of version {version}, and this program has version {}: export \
                 it with the other program and import it",
                super::schema::VERSION
            ),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            StoreFault::Sqlite(error) => Some(error),
            StoreFault::System(error) => Some(error),
            _ => None,
        }
    }
}
