//! Trajectories of clouds, and clusters, in the store.

use std::collections::BTreeMap;

use rusqlite::{Transaction, params};
use tidegate_core::units::Rate;

use super::{Store, StoreError};
use crate::trajectory::{BINS, Trajectory, log2};
use crate::wall_time::WallTime;

/// Trajectory of a cloud over the days that are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct CloudTrajectory {
    /// Row number of the cloud.
    pub cloud: i64,
    /// Weighted mean of its days.
    pub trajectory: Trajectory,
}

/// A cloud in a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Member {
    /// Row number of the cloud.
    pub cloud: i64,
    /// Index of its cluster.
    pub cluster: usize,
    /// By how many octaves the cloud is faster than the centroid.
    pub offset: f64,
}

impl Store {
    /// Computes the trajectories of the days that have new samples. The value of a bin is the median
    /// over the clients of the cloud of each client's mean, so that one of three clients cannot
    /// move it out of the range of the others. Samples that the application limited have no part. Returns
    /// the number of days.
    ///
    /// # Errors
    /// The disk is full, the file is locked or damaged.
    pub fn update_trajectories(&mut self) -> Result<usize, StoreError> {
        let updated = self.update_days();
        updated.map_err(|e| self.error(e))
    }

    fn update_days(&mut self) -> rusqlite::Result<usize> {
        let transaction = self.connection.transaction()?;
        let days = {
            let mut query = transaction.prepare("SELECT day FROM changed_days ORDER BY day")?;
            let days = query.query_map([], |row| row.get(0))?;
            days.collect::<rusqlite::Result<Vec<u32>>>()?
        };
        for day in &days {
            update_day(&transaction, *day)?;
        }
        transaction.execute("DELETE FROM changed_days", [])?;
        transaction.commit()?;
        Ok(days.len())
    }

    /// Trajectories of all clouds with at least one bin, in order of their row numbers. A day counts
    /// half as much as the day after it.
    ///
    /// # Errors
    /// The file is locked or damaged.
    pub fn trajectories(&self) -> Result<Vec<CloudTrajectory>, StoreError> {
        self.read_trajectories("", []).map_err(|e| self.error(e))
    }

    fn read_trajectories(
        &self,
        condition: &str,
        values: impl rusqlite::Params,
    ) -> rusqlite::Result<Vec<CloudTrajectory>> {
        let newest: Option<u32> =
            self.connection
                .query_row("SELECT max(day) FROM trajectories", [], |row| row.get(0))?;
        let mut query = self.connection.prepare(&format!(
            "SELECT cloud, day, bin, log2_bps FROM trajectories {condition}
             ORDER BY cloud, day, bin"
        ))?;
        let mut rows = query.query(values)?;
        let mut all: Vec<CloudTrajectory> = Vec::new();
        let mut mean = DayMean::default();
        let mut current = None;
        while let Some(row) = rows.next()? {
            let cloud: i64 = row.get(0)?;
            if current != Some(cloud) {
                all.extend(current.map(|cloud| mean.take(cloud)));
                current = Some(cloud);
            }
            let age = newest.unwrap_or_default().saturating_sub(row.get(1)?);
            mean.add(row.get(2)?, age, row.get(3)?);
        }
        all.extend(current.map(|cloud| mean.take(cloud)));
        Ok(all)
    }

    /// Trajectory of one cloud.
    ///
    /// # Errors
    /// The file is locked or damaged.
    pub fn trajectory(&self, cloud: i64) -> Result<Option<Trajectory>, StoreError> {
        let found = self.read_trajectories("WHERE cloud = ?1", [cloud]);
        let found = found.map_err(|e| self.error(e))?;
        Ok(found.into_iter().next().map(|one| one.trajectory))
    }

    /// Replaces all clusters.
    ///
    /// # Errors
    /// The disk is full, the file is locked or damaged.
    pub fn set_clusters(
        &mut self,
        centroids: &[Trajectory],
        members: &[Member],
        now: WallTime,
    ) -> Result<(), StoreError> {
        let written = self.write_clusters(centroids, members, now);
        written.map_err(|e| self.error(e))
    }

    fn write_clusters(
        &mut self,
        centroids: &[Trajectory],
        members: &[Member],
        now: WallTime,
    ) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        transaction.execute_batch(
            "DELETE FROM members; DELETE FROM cluster_bins; DELETE FROM clusters;",
        )?;
        for (index, centroid) in centroids.iter().enumerate() {
            let id = index as i64 + 1;
            let size = members.iter().filter(|m| m.cluster == index).count();
            transaction.execute(
                "INSERT INTO clusters VALUES (?1, ?2, ?3)",
                params![id, size as u64, now.as_millis()],
            )?;
            let mut insert =
                transaction.prepare_cached("INSERT INTO cluster_bins VALUES (?1, ?2, ?3)")?;
            for bin in 0..BINS {
                if let Some(value) = centroid.get(bin) {
                    insert.execute(params![id, bin as u64, f64::from(value)])?;
                }
            }
        }
        {
            let mut insert = transaction.prepare("INSERT INTO members VALUES (?1, ?2, ?3)")?;
            for member in members {
                let cluster = member.cluster as i64 + 1;
                insert.execute(params![member.cloud, cluster, member.offset])?;
            }
        }
        transaction.commit()
    }
}

/// Sets a bin from a row of the database, which may hold anything.
pub(super) fn set(trajectory: &mut Trajectory, bin: i64, value: f64) {
    if let Ok(bin) = usize::try_from(bin)
        && bin < BINS
    {
        trajectory.set(bin, value as f32);
    }
}

/// Means of the clients of a cloud in each bin.
type ClientMeans = BTreeMap<usize, Vec<f64>>;

fn update_day(transaction: &Transaction<'_>, day: u32) -> rusqlite::Result<()> {
    let (from, to) = (WallTime::of_day(day), WallTime::of_day(day + 1));
    transaction.execute("DELETE FROM trajectories WHERE day = ?1", [day])?;
    let mut query = transaction.prepare_cached(
        "SELECT clients.cloud, client, at_ms, rate_bps
         FROM samples JOIN clients ON clients.id = samples.client
         WHERE scale = 'minute' AND at_ms >= ?1 AND at_ms < ?2 AND NOT limited
         ORDER BY clients.cloud, client",
    )?;
    let mut rows = query.query([from.as_millis(), to.as_millis()])?;
    let mut cloud: Option<i64> = None;
    let mut client: Option<i64> = None;
    let mut means = ClientMeans::new();
    let mut sums: BTreeMap<usize, (f64, u32)> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let (of_cloud, of_client): (i64, i64) = (row.get(0)?, row.get(1)?);
        if client != Some(of_client) {
            close_client(&mut sums, &mut means);
            client = Some(of_client);
        }
        if cloud != Some(of_cloud) {
            write_cloud(transaction, cloud, day, &mut means)?;
            cloud = Some(of_cloud);
        }
        let Some(at) = WallTime::from_millis(row.get(2)?) else {
            continue;
        };
        let sum = sums.entry(at.bin()).or_default();
        sum.0 += log2(Rate::bps(row.get(3)?));
        sum.1 += 1;
    }
    close_client(&mut sums, &mut means);
    write_cloud(transaction, cloud, day, &mut means)
}

fn close_client(sums: &mut BTreeMap<usize, (f64, u32)>, means: &mut ClientMeans) {
    for (bin, (sum, count)) in std::mem::take(sums) {
        means.entry(bin).or_default().push(sum / f64::from(count));
    }
}

fn write_cloud(
    transaction: &Transaction<'_>,
    cloud: Option<i64>,
    day: u32,
    means: &mut ClientMeans,
) -> rusqlite::Result<()> {
    let mut insert =
        transaction.prepare_cached("INSERT INTO trajectories VALUES (?1, ?2, ?3, ?4, ?5)")?;
    for (bin, mut clients) in std::mem::take(means) {
        let count = clients.len() as u64;
        let value = crate::robust::median(&mut clients);
        insert.execute(params![cloud, day, bin as u64, value, count])?;
    }
    Ok(())
}

/// Weighted means over days.
#[derive(Debug, Default)]
struct DayMean {
    bins: BTreeMap<i64, (f64, f64)>,
}

impl DayMean {
    fn add(&mut self, bin: i64, age: u32, value: f64) {
        let weight = libm::exp2(-f64::from(age.min(60)));
        let sum = self.bins.entry(bin).or_default();
        sum.0 += weight * value;
        sum.1 += weight;
    }

    fn take(&mut self, cloud: i64) -> CloudTrajectory {
        let mut trajectory = Trajectory::missing();
        for (bin, (sum, weight)) in std::mem::take(&mut self.bins) {
            set(&mut trajectory, bin, sum / weight);
        }
        CloudTrajectory { cloud, trajectory }
    }
}
