//! Opening a store; a damaged one is set aside.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::schema;
use super::{Store, StoreError, StoreFault};
use crate::wall_time::WallTime;

/// A store for writing, and what became of a damaged one.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: Store,
    /// The damaged file, under its new name.
    pub set_aside: Option<SetAside>,
}

/// A damaged store that was renamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// New name of the file.
    pub path: PathBuf,
}

impl Store {
    /// Opens a store for reading and writing, and creates it if it does not exist. A damaged store is
    /// renamed to `FILE.damaged-MILLISECONDS`, and an empty one takes its place.
    ///
    /// # Errors
    /// The file cannot be opened, created or renamed, is that of another program, or has tables of
    /// another version.
    pub fn open(path: &Path, now: WallTime) -> Result<Opened, StoreError> {
        match open_at(path, OpenFlags::default()) {
            Ok(store) => Ok(Opened {
                store,
                set_aside: None,
            }),
            Err(StoreFault::Damaged) => Self::replace_damaged(path, now),
            Err(cause) => Err(StoreError {
                path: path.to_owned(),
                cause,
            }),
        }
    }

    /// Renames a file that was found damaged, and creates an empty store in its place.
    ///
    /// # Errors
    /// The file cannot be renamed or created.
    pub(crate) fn replace_damaged(path: &Path, now: WallTime) -> Result<Opened, StoreError> {
        let opened = set_aside(path, now).and_then(|set_aside| {
            let store = open_at(path, OpenFlags::default())?;
            Ok(Opened {
                store,
                set_aside: Some(set_aside),
            })
        });
        opened.map_err(|cause| StoreError {
            path: path.to_owned(),
            cause,
        })
    }

    /// A store in memory.
    #[cfg(test)]
    pub(crate) fn in_memory() -> Self {
        let connection = Connection::open_in_memory().expect("memory");
        schema::prepare(&connection).expect("prepared");
        Self {
            path: PathBuf::new(),
            connection,
            clouds: HashMap::new(),
            clients: HashMap::new(),
        }
    }

    /// Opens an existing store for reading. Another process may write at the same time.
    ///
    /// # Errors
    /// The file is missing, unreadable or damaged, or has tables of another version.
    pub fn read(path: &Path) -> Result<Self, StoreError> {
        let opened = match fs::metadata(path) {
            Ok(_) => open_at(path, OpenFlags::SQLITE_OPEN_READ_ONLY),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StoreFault::Missing),
            Err(error) => Err(StoreFault::System(error)),
        };
        opened.map_err(|cause| StoreError {
            path: path.to_owned(),
            cause,
        })
    }
}

fn open_at(path: &Path, flags: OpenFlags) -> Result<Store, StoreFault> {
    let is_read_only = flags.contains(OpenFlags::SQLITE_OPEN_READ_ONLY);
    if path.is_dir() {
        return Err(StoreFault::IsFolder);
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| !folder.exists()) {
        return Err(StoreFault::NoFolder);
    }
    let size = fs::metadata(path).map_or(0, |metadata| metadata.len());
    let is_marked = size > 0 && is_marked(path)?;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(LOCK_WAIT)?;
    restrict(&connection)?;
    if size > 0 && !is_marked {
        // A store from before the mark, or the database of another program.
        version(&connection).map_err(|_| StoreFault::Foreign)?;
    }
    if size > 0 && size <= MAX_CHECKED {
        check(&connection)?;
    }
    if !is_read_only {
        schema::prepare(&connection)?;
    }
    let version = version(&connection)?;
    if version != schema::VERSION {
        return Err(StoreFault::Version(version));
    }
    Ok(Store {
        path: path.to_owned(),
        connection,
        clouds: HashMap::new(),
        clients: HashMap::new(),
    })
}

/// Whether the database is marked as a knowledge store. The mark is read before `SQLite` opens the file,
/// since it also recovers the database of another program from its log.
fn is_marked(path: &Path) -> Result<bool, StoreFault> {
    // https://www.sqlite.org/fileformat2.html: a string, and the application at 68.
    let mut head = [0; 72];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    match read {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
            Err(StoreFault::System(error))
        }
        Ok(()) if head.starts_with(b"SQLite format 3\0") => {
            match u32::from_be_bytes([head[68], head[69], head[70], head[71]]) {
                schema::APPLICATION => Ok(true),
                0 => Ok(false),
                _ => Err(StoreFault::Foreign),
            }
        }
        _ => Err(StoreFault::Foreign),
    }
}

/// A file may come from others: its triggers and views do not run, and its tables call no functions.
fn restrict(connection: &Connection) -> Result<(), StoreFault> {
    for (setting, is_on) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
    ] {
        connection.set_db_config(setting, is_on)?;
    }
    Ok(())
}

/// Version of the tables.
fn version(connection: &Connection) -> rusqlite::Result<String> {
    let query = "SELECT value FROM meta WHERE key = 'version'";
    connection.query_row(query, [], |row| row.get(0))
}

/// Reads each page.
fn check(connection: &Connection) -> Result<(), StoreFault> {
    let answer: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if answer == "ok" {
        Ok(())
    } else {
        Err(StoreFault::Damaged)
    }
}

fn set_aside(path: &Path, now: WallTime) -> Result<SetAside, StoreFault> {
    let suffix = format!(".damaged-{}", now.as_millis());
    let aside = with_suffix(path, &suffix);
    fs::rename(path, &aside).map_err(StoreFault::System)?;
    // The log of the damaged file must not be applied to the new one.
    for log in ["-wal", "-shm"] {
        match fs::rename(with_suffix(path, log), with_suffix(&aside, log)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreFault::System(error));
            }
            _ => {}
        }
    }
    Ok(SetAside { path: aside })
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Maximum wait for another process that writes. A batch of one second is written in less.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Largest file whose pages are all read at the start, which takes about 0.1 s. A damaged page of a
/// larger file is found when it is read.
const MAX_CHECKED: u64 = 64 << 20;
