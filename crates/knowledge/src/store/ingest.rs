//! Samples into the store, and their retention.

use rusqlite::{Transaction, params};

use super::{Retention, Store, StoreError};
use crate::sample::Sample;
use crate::wall_time::WallTime;

/// Result of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ingested {
    /// Samples written.
    pub written: u64,
    /// Samples with a value out of its range.
    pub invalid: u64,
    /// Samples that the store had already ([`Store::import`]).
    pub known: u64,
}

impl Store {
    /// Writes a batch in one transaction: all of its valid samples or, after an error, none.
    ///
    /// # Errors
    /// The disk is full, the file is locked or damaged.
    pub fn ingest(&mut self, samples: &[Sample]) -> Result<Ingested, StoreError> {
        self.write(samples, INSERT_SAMPLE)
    }

    /// The same without samples that the store has already, so that a file which is read again changes
    /// nothing.
    ///
    /// # Errors
    /// As [`ingest`](Self::ingest).
    pub fn import(&mut self, samples: &[Sample]) -> Result<Ingested, StoreError> {
        self.write(samples, INSERT_NEW_SAMPLE)
    }

    fn write(&mut self, samples: &[Sample], insert: &str) -> Result<Ingested, StoreError> {
        let written = self.write_batch(samples, insert);
        written.map_err(|cause| {
            // The numbers of clients of a transaction that was undone.
            self.clouds.clear();
            self.clients.clear();
            self.error(cause)
        })
    }

    fn write_batch(&mut self, samples: &[Sample], insert: &str) -> rusqlite::Result<Ingested> {
        if self.clients.len() > MAX_CACHED {
            self.clients.clear();
        }
        let mut ingested = Ingested::default();
        let transaction = self.connection.transaction()?;
        let mut last_day = None;
        for sample in samples {
            let measured = &sample.measurement;
            if !measured.is_valid() {
                ingested.invalid += 1;
                continue;
            }
            let client = client_id(&transaction, &mut self.clouds, &mut self.clients, sample)?;
            let rows = transaction.prepare_cached(insert)?.execute(params![
                measured.at.as_millis(),
                client,
                measured.scale.name(),
                measured.rate.as_bps(),
                measured.rtt.map(|rtt| rtt.as_micros() as u64),
                measured.loss,
                sample.tag,
                measured.is_limited,
            ])?;
            if rows == 0 {
                ingested.known += 1;
                continue;
            }
            let day = measured.at.day();
            if last_day != Some(day) {
                last_day = Some(day);
                transaction
                    .prepare_cached("INSERT OR IGNORE INTO changed_days VALUES (?1)")?
                    .execute([day])?;
            }
            ingested.written += 1;
        }
        transaction.commit()?;
        Ok(ingested)
    }

    /// Time of the newest sample that is not later than `now`: the reference of
    /// [`prune`](Self::prune). The clock of a host may be wrong, so the store does not rely on it
    /// to delete.
    ///
    /// # Errors
    /// The file is locked or damaged.
    pub fn newest(&self, now: WallTime) -> Result<Option<WallTime>, StoreError> {
        let newest = self.connection.query_row(
            "SELECT max(at_ms) FROM (
                SELECT max(at_ms) AS at_ms FROM samples WHERE scale = 'round-trip' AND at_ms <= ?1
                UNION ALL
                SELECT max(at_ms) FROM samples WHERE scale = 'minute' AND at_ms <= ?1)",
            [now.as_millis()],
            |row| row.get::<_, Option<u64>>(0),
        );
        let newest = newest.map_err(|e| self.error(e))?;
        Ok(newest.and_then(WallTime::from_millis))
    }

    /// Deletes samples and trajectories that are older than their retention at `reference`. Returns
    /// the number of deleted samples.
    ///
    /// # Errors
    /// The disk is full, the file is locked or damaged.
    pub fn prune(&self, reference: WallTime, keep: Retention) -> Result<usize, StoreError> {
        let limits = [("round-trip", keep.round_trip), ("minute", keep.minute)];
        let pruned = || {
            let mut deleted = 0;
            for (scale, span) in limits {
                deleted += self.connection.execute(
                    "DELETE FROM samples WHERE scale = ?1 AND at_ms < ?2",
                    params![scale, reference.before(span).as_millis()],
                )?;
            }
            let oldest = reference.before(keep.trajectories).day();
            self.connection
                .execute("DELETE FROM trajectories WHERE day < ?1", [oldest])?;
            // A day with deleted samples keeps its trajectories as they are.
            let whole = reference.before(keep.minute).day();
            self.connection
                .execute("DELETE FROM changed_days WHERE day <= ?1", [whole])?;
            Ok(deleted)
        };
        pruned().map_err(|e: rusqlite::Error| self.error(e))
    }
}

fn client_id(
    transaction: &Transaction<'_>,
    clouds: &mut std::collections::HashMap<crate::cloud::Cloud, i64>,
    clients: &mut std::collections::HashMap<(i64, crate::client::Client), i64>,
    sample: &Sample,
) -> rusqlite::Result<i64> {
    let cloud = if let Some(id) = clouds.get(&sample.cloud) {
        *id
    } else {
        // `DO UPDATE` makes an existing row an answer too.
        let id = transaction
            .prepare_cached(
                "INSERT INTO clouds(prefix) VALUES (?1)
                 ON CONFLICT DO UPDATE SET prefix = prefix RETURNING id",
            )?
            .query_row([sample.cloud.to_string()], |row| row.get(0))?;
        clouds.insert(sample.cloud, id);
        id
    };
    let key = (cloud, sample.client.clone());
    if let Some(id) = clients.get(&key) {
        return Ok(*id);
    }
    let id = transaction
        .prepare_cached(
            "INSERT INTO clients(cloud, name) VALUES (?1, ?2)
             ON CONFLICT DO UPDATE SET name = name RETURNING id",
        )?
        .query_row(params![cloud, sample.client.as_str()], |row| row.get(0))?;
    clients.insert(key, id);
    Ok(id)
}

const INSERT_SAMPLE: &str = "INSERT INTO samples(at_ms, client, scale, rate_bps, rtt_us, loss, tag,
    limited) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

const INSERT_NEW_SAMPLE: &str =
    "INSERT INTO samples(at_ms, client, scale, rate_bps, rtt_us, loss, tag,
    limited) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 WHERE NOT EXISTS (
        SELECT 1 FROM samples WHERE scale = ?3 AND at_ms = ?1 AND client = ?2 AND rate_bps = ?4
            AND rtt_us IS ?5 AND loss IS ?6 AND tag IS ?7 AND limited = ?8)";

/// Maximum number of clients whose row numbers are kept in memory: about 200 MB.
const MAX_CACHED: usize = 2_000_000;
