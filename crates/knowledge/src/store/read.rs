//! Queries.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Duration;

use rusqlite::{OptionalExtension as _, Row, params};
use tidegate_core::units::Rate;

use super::{Store, StoreError};
use crate::client::Client;
use crate::cloud::Cloud;
use crate::sample::{Measurement, Sample, Scale};
use crate::trajectory::{Trajectory, log2};
use crate::visit::VisitSample;
use crate::wall_time::WallTime;

/// Numbers of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Clouds with samples.
    pub clouds: u64,
    /// Clients.
    pub clients: u64,
    /// Samples over a round trip.
    pub round_trip_samples: u64,
    /// Samples over a minute.
    pub minute_samples: u64,
    /// Days with trajectories.
    pub days: u64,
    /// Clusters.
    pub clusters: u64,
}

/// A cluster of clouds.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterRow {
    /// Number of the cluster.
    pub id: i64,
    /// Number of its clouds.
    pub clouds: u64,
    /// Mean of their trajectories.
    pub centroid: Trajectory,
}

/// A cloud with samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KnownCloud {
    /// Row number.
    pub id: i64,
    /// Its prefix.
    pub cloud: Cloud,
    /// Number of its cluster; `None` before it was clustered.
    pub cluster: Option<i64>,
    /// By how many octaves it is faster than the centroid of its cluster.
    pub offset: f64,
}

/// A recent sample of a cloud.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecentSample {
    /// Row number of the cloud.
    pub cloud: i64,
    /// Row number of the client.
    pub client: i64,
    /// What was measured.
    pub measurement: Measurement,
}

impl Store {
    /// Numbers of rows.
    ///
    /// # Errors
    /// The file is locked or damaged.
    pub fn counts(&self) -> Result<Counts, StoreError> {
        let count = |sql: &str| {
            let count = self.connection.query_row(sql, [], |row| row.get(0));
            count.map_err(|e| self.error(e))
        };
        Ok(Counts {
            clouds: count("SELECT count(*) FROM clouds")?,
            clients: count("SELECT count(*) FROM clients")?,
            round_trip_samples: count("SELECT count(*) FROM samples WHERE scale = 'round-trip'")?,
            minute_samples: count("SELECT count(*) FROM samples WHERE scale = 'minute'")?,
            days: count("SELECT count(DISTINCT day) FROM trajectories")?,
            clusters: count("SELECT count(*) FROM clusters")?,
        })
    }

    /// Calls `take` with each sample, in order of time, until it breaks or the samples end.
    ///
    /// # Errors
    /// The file is locked or damaged.
    pub fn each_sample(
        &self,
        mut take: impl FnMut(Sample) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let mut read = || {
            let mut query = self.connection.prepare(
                "SELECT at_ms, scale, rate_bps, rtt_us, loss, tag, prefix, name, limited
                 FROM samples JOIN clients ON clients.id = samples.client
                    JOIN clouds ON clouds.id = clients.cloud
                 ORDER BY at_ms, samples.rowid",
            )?;
            let mut rows = query.query([])?;
            while let Some(row) = rows.next()? {
                let Some(sample) = sample(row)? else { continue };
                if take(sample).is_break() {
                    break;
                }
            }
            Ok(())
        };
        read().map_err(|e: rusqlite::Error| self.error(e))
    }

    /// A cloud, if it has samples.
    ///
    /// # Errors
    /// The file is locked or damaged.
    pub fn cloud(&self, cloud: Cloud) -> Result<Option<KnownCloud>, StoreError> {
        let sql = format!("{CLOUDS} WHERE prefix = ?1");
        let row = self
            .connection
            .query_row(&sql, [cloud.to_string()], known_cloud);
        let row = row.optional().map_err(|e| self.error(e))?;
        Ok(row.flatten())
    }

    /// All clouds, in order of their row numbers.
    ///
    /// # Errors
    /// The file is locked or damaged.
    pub fn clouds(&self) -> Result<Vec<KnownCloud>, StoreError> {
        let read = || {
            let sql = format!("{CLOUDS} ORDER BY clouds.id");
            let mut query = self.connection.prepare(&sql)?;
            let rows = query.query_map([], known_cloud)?;
            let clouds = rows.collect::<rusqlite::Result<Vec<_>>>()?;
            Ok(clouds.into_iter().flatten().collect())
        };
        read().map_err(|e: rusqlite::Error| self.error(e))
    }

    /// Least round-trip time of the samples of each cloud between two times, by row number.
    ///
    /// # Errors
    /// The file is locked or damaged.
    pub fn least_rtts(
        &self,
        from: WallTime,
        to: WallTime,
    ) -> Result<HashMap<i64, Duration>, StoreError> {
        let read = || {
            let mut query = self.connection.prepare(
                "SELECT clients.cloud, min(rtt_us)
                 FROM samples JOIN clients ON clients.id = samples.client
                 WHERE scale IN ('minute', 'round-trip') AND at_ms BETWEEN ?1 AND ?2
                    AND rtt_us > 0
                 GROUP BY clients.cloud",
            )?;
            let rows = query.query_map([from.as_millis(), to.as_millis()], |row| {
                Ok((row.get(0)?, Duration::from_micros(row.get(1)?)))
            })?;
            rows.collect::<rusqlite::Result<HashMap<_, _>>>()
        };
        read().map_err(|e| self.error(e))
    }

    /// All clusters, in order of their numbers.
    ///
    /// # Errors
    /// The file is locked or damaged.
    pub fn clusters(&self) -> Result<Vec<ClusterRow>, StoreError> {
        let read = || {
            let mut query = self
                .connection
                .prepare("SELECT id, clouds FROM clusters ORDER BY id")?;
            let mut bins = self
                .connection
                .prepare("SELECT bin, log2_bps FROM cluster_bins WHERE cluster = ?1")?;
            let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let mut clusters = Vec::new();
            for row in rows {
                let (id, clouds): (i64, u64) = row?;
                let mut centroid = Trajectory::missing();
                let mut values = bins.query([id])?;
                while let Some(row) = values.next()? {
                    super::trajectories::set(&mut centroid, row.get(0)?, row.get(1)?);
                }
                clusters.push(ClusterRow {
                    id,
                    clouds,
                    centroid,
                });
            }
            Ok(clusters)
        };
        read().map_err(|e: rusqlite::Error| self.error(e))
    }

    /// Samples of both scales between two times, the newest 5,000,000 of each, for visits.
    ///
    /// # Errors
    /// The file is locked or damaged.
    pub fn history(&self, from: WallTime, to: WallTime) -> Result<Vec<VisitSample>, StoreError> {
        let read = || {
            let mut samples = Vec::new();
            for scale in [Scale::RoundTrip, Scale::Minute] {
                let mut query = self.connection.prepare(
                    "SELECT at_ms, rate_bps, clients.cloud, client, limited
                     FROM samples JOIN clients ON clients.id = samples.client
                     WHERE scale = ?1 AND at_ms BETWEEN ?2 AND ?3 AND rate_bps > 0
                     ORDER BY at_ms DESC LIMIT ?4",
                )?;
                let values = params![scale.name(), from.as_millis(), to.as_millis(), MAX_HISTORY];
                let rows = query.query_map(values, |row| {
                    Ok(VisitSample {
                        at: WallTime::since_1970(Duration::from_millis(row.get(0)?)),
                        value: log2(Rate::bps(row.get(1)?)),
                        cloud: row.get(2)?,
                        client: row.get(3)?,
                        is_limited: row.get(4)?,
                    })
                })?;
                for row in rows {
                    samples.push(row?);
                }
            }
            Ok(samples)
        };
        read().map_err(|e: rusqlite::Error| self.error(e))
    }

    /// Row numbers of all clients by the row numbers of their clouds and their names.
    ///
    /// # Errors
    /// The file is locked or damaged.
    pub fn clients(&self) -> Result<HashMap<(i64, Client), i64>, StoreError> {
        let read = || {
            let mut query = self
                .connection
                .prepare("SELECT id, cloud, name FROM clients")?;
            let rows = query.query_map([], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?))
            })?;
            let mut clients = HashMap::new();
            for row in rows {
                let (id, cloud, name) = row?;
                // Another program may have written a name of another form.
                clients.extend(Client::new(&name).map(|client| ((cloud, client), id)));
            }
            Ok(clients)
        };
        read().map_err(|e: rusqlite::Error| self.error(e))
    }

    /// Samples over a round trip between two times, in order of time.
    ///
    /// # Errors
    /// The file is locked or damaged.
    pub fn recent(&self, from: WallTime, to: WallTime) -> Result<Vec<RecentSample>, StoreError> {
        let read = || {
            let mut query = self.connection.prepare(
                "SELECT at_ms, rate_bps, rtt_us, loss, clients.cloud, client, limited
                 FROM samples JOIN clients ON clients.id = samples.client
                 WHERE scale = 'round-trip' AND at_ms BETWEEN ?1 AND ?2
                 ORDER BY at_ms, samples.rowid",
            )?;
            let rows = query.query_map([from.as_millis(), to.as_millis()], |row| {
                Ok(RecentSample {
                    cloud: row.get(4)?,
                    client: row.get(5)?,
                    measurement: Measurement {
                        at: WallTime::since_1970(Duration::from_millis(row.get(0)?)),
                        scale: Scale::RoundTrip,
                        rate: Rate::bps(row.get(1)?),
                        rtt: row.get::<_, Option<u64>>(2)?.map(Duration::from_micros),
                        loss: row.get(3)?,
                        is_limited: row.get(6)?,
                    },
                })
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(|e| self.error(e))
    }
}

/// A row as a cloud; `None` if another program wrote a prefix of another form.
fn known_cloud(row: &Row<'_>) -> rusqlite::Result<Option<KnownCloud>> {
    let prefix: String = row.get(1)?;
    let Ok(cloud) = prefix.parse() else {
        return Ok(None);
    };
    Ok(Some(KnownCloud {
        id: row.get(0)?,
        cloud,
        cluster: row.get(2)?,
        offset: row.get::<_, Option<f64>>(3)?.unwrap_or(0.0),
    }))
}

/// Largest number of samples of a scale from which predictions are made: a week of 1,000,000 sessions of
/// some minutes.
const MAX_HISTORY: u32 = 5_000_000;

const CLOUDS: &str = "SELECT clouds.id, prefix, cluster, offset_log2
    FROM clouds LEFT JOIN members ON members.cloud = clouds.id";

/// A row as a sample; `None` if another program wrote values out of range.
fn sample(row: &Row<'_>) -> rusqlite::Result<Option<Sample>> {
    let tag = row.get(5)?;
    let (cloud, client): (String, String) = (row.get(6)?, row.get(7)?);
    let parts = (
        WallTime::from_millis(row.get(0)?),
        Scale::of_name(&row.get::<_, String>(1)?),
        cloud.parse(),
        Client::new(&client),
    );
    let (Some(at), Some(scale), Ok(cloud), Some(client)) = parts else {
        return Ok(None);
    };
    let measurement = Measurement {
        at,
        scale,
        rate: Rate::bps(row.get(2)?),
        rtt: row.get::<_, Option<u64>>(3)?.map(Duration::from_micros),
        loss: row.get(4)?,
        is_limited: row.get(8)?,
    };
    Ok(measurement.is_valid().then_some(Sample {
        cloud,
        client,
        measurement,
        tag,
    }))
}
