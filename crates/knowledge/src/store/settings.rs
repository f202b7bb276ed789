//! Settings that the store itself keeps, in the table `meta`.

use std::time::Duration;

use rusqlite::{OptionalExtension as _, params};

use super::{Retention, Store, StoreError};

impl Store {
    /// Name of the policy for addresses, if it was set: see
    /// [`AddressPolicy::name`](crate::AddressPolicy::name).
    ///
    /// # Errors
    /// The file is locked or damaged.
    pub fn address_policy(&self) -> Result<Option<String>, StoreError> {
        self.setting(ADDRESSES)
    }

    /// Sets the name of the policy for addresses.
    ///
    /// # Errors
    /// The disk is full, the file is locked or damaged.
    pub fn set_address_policy(&self, name: &str) -> Result<(), StoreError> {
        self.set(ADDRESSES, name)
    }

    /// For how long samples are kept.
    ///
    /// # Errors
    /// The file is locked or damaged.
    pub fn retention(&self) -> Result<Retention, StoreError> {
        let mut keep = Retention::default();
        for (key, span) in spans(&mut keep) {
            let seconds = self.setting(key)?.and_then(|text| text.parse().ok());
            if let Some(seconds) = seconds {
                *span = Duration::from_secs(seconds);
            }
        }
        Ok(keep)
    }

    /// Sets for how long samples are kept, in whole seconds.
    ///
    /// # Errors
    /// The disk is full, the file is locked or damaged.
    pub fn set_retention(&self, mut keep: Retention) -> Result<(), StoreError> {
        for (key, span) in spans(&mut keep) {
            self.set(key, &span.as_secs().to_string())?;
        }
        Ok(())
    }

    fn setting(&self, key: &str) -> Result<Option<String>, StoreError> {
        let read =
            self.connection
                .query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| {
                    row.get(0)
                });
        read.optional().map_err(|e| self.error(e))
    }

    fn set(&self, key: &str, value: &str) -> Result<(), StoreError> {
        let written = self.connection.execute(
            "INSERT INTO meta(key, value) VALUES (?1, ?2)
             ON CONFLICT DO UPDATE SET value = excluded.value",
            params![key, value],
        );
        written.map(drop).map_err(|e| self.error(e))
    }
}

fn spans(keep: &mut Retention) -> [(&'static str, &mut Duration); 3] {
    [
        ("keep_round_trip_s", &mut keep.round_trip),
        ("keep_minute_s", &mut keep.minute),
        ("keep_trajectories_s", &mut keep.trajectories),
    ]
}

const ADDRESSES: &str = "addresses";
