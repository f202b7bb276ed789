//! The store: one `SQLite` file with many readers beside one writer.
//!
//! The tables are public (docs/knowledge.md lists them), and
//! `sqlite3` reads them.

mod error;
mod ingest;
mod open;
mod read;
mod schema;
mod settings;
mod trajectories;

pub use self::error::{StoreError, StoreFault};
pub use self::ingest::Ingested;
pub use self::open::{Opened, SetAside};
pub use self::read::{ClusterRow, Counts, KnownCloud, RecentSample};
pub use self::trajectories::{CloudTrajectory, Member};

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;

use crate::client::Client;
use crate::cloud::Cloud;

/// An open store.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    connection: Connection,
    clouds: HashMap<Cloud, i64>,
    clients: HashMap<(i64, Client), i64>,
}

/// For how long samples are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Samples of a round trip, which predictions use [default: 2 days].
    pub round_trip: Duration,
    /// Samples of a minute, from which trajectories are computed [default: 30 days].
    pub minute: Duration,
    /// Trajectories [default: 30 days].
    pub trajectories: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            round_trip: 2 * DAY,
            minute: 30 * DAY,
            trajectories: 30 * DAY,
        }
    }
}

impl Store {
    /// File of the store.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn error(&self, cause: impl Into<StoreFault>) -> StoreError {
        StoreError {
            path: self.path.clone(),
            cause: cause.into(),
        }
    }
}

const DAY: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests;
