//! Why a run folder cannot be written.

use std::io;
use std::path::PathBuf;

/// Error of creating a run folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// Error of the operating system.
    #[error("cannot create the run folder {path}: {source}; choose a writable location")]
    Io {
        /// The folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Another process writes a run there.
    #[error(
        "another process is writing a run to {path}: wait until it has ended, or choose another \
         folder"
    )]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The path is a file.
    #[error("{path} is a file, and a run needs a folder: choose another name")]
    NotAFolder {
        /// The file.
        path: PathBuf,
    },
    /// The folder holds something that is not a run.
    #[error(
        "{path} holds something other than a run, and it will not be overwritten: choose a new \
         or empty folder"
    )]
    NotARun {
        /// The folder.
        path: PathBuf,
    },
}
