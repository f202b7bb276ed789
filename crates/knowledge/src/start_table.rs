//! Predictions for all known clouds, in memory: a session's start is decided by two look-ups.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::control::Prior;
use tidegate_core::units::Rate;

use crate::cloud::Cloud;
use crate::group_series::{GroupSample, GroupSeries};
use crate::predict::{Forecast, LEVELS, MEDIAN, Method, forecast, forecast_of_errors};
use crate::store::{KnownCloud, RecentSample, Store, StoreError};
use crate::trajectory::{BINS, Trajectory, exp2};
use crate::wall_time::WallTime;

/// The method of predictions: the one with the least pinball loss (docs/knowledge.md).
pub const METHOD: Method = Method::Mixture;

/// What a prediction is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Recent samples of the cloud's cluster.
    Cluster,
    /// Recent samples of the cloud alone, which belongs to no cluster yet.
    Cloud,
    /// The trajectory of the cloud's cluster at this time of the day; no recent sample exists.
    Trajectory,
}

/// A prediction, with its explanation.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Cloud of the client.
    pub cloud: Cloud,
    /// Number of the cluster, if the cloud has one.
    pub cluster: Option<i64>,
    /// What the prediction is based on.
    pub basis: Basis,
    /// Samples of the last [`SPAN`] in the group.
    pub samples: usize,
    /// Clients that they are of.
    pub clients: usize,
    /// By how many octaves the cloud is faster than its cluster.
    pub offset: f64,
    /// The forecast, of the rate of the cloud.
    pub forecast: Forecast,
    /// Least round-trip time of the cloud during the last day; `None` if it is not known.
    pub rtt: Option<Duration>,
}

impl Prediction {
    /// Quantiles of the rate at [`LEVELS`].
    pub fn rates(&self) -> [Rate; LEVELS.len()] {
        self.forecast.quantiles.map(exp2)
    }

    /// What a controller is started from: the median. `None` without a round-trip time, with which a
    /// controller checks whether the prior fits.
    pub fn prior(&self) -> Option<Prior> {
        Some(Prior {
            rate: exp2(self.forecast.quantiles[MEDIAN]),
            rtt: self.rtt?,
            confidence: self.forecast.confidence,
        })
    }
}

/// Predictions for all known clouds.
#[derive(Clone, Debug, Default)]
pub struct StartTable {
    clouds: HashMap<Cloud, Entry>,
    groups: Vec<Group>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    group: usize,
    cluster: Option<i64>,
    offset: f64,
    rtt: Option<Duration>,
}

#[derive(Clone, Debug)]
struct Group {
    basis: Basis,
    samples: usize,
    clients: usize,
    forecast: Forecast,
}

impl StartTable {
    /// Computes the predictions of all clouds. It takes seconds for a large store; the table of the
    /// last computation serves meanwhile.
    ///
    /// # Errors
    /// The store is locked or damaged.
    pub fn build(store: &Store, now: WallTime) -> Result<Self, StoreError> {
        Ok(Self::of(&Inputs::read(store, now)?))
    }

    /// Prediction for a client; `None` if nothing is known. It allocates nothing but the answer.
    pub fn predict(&self, address: IpAddr) -> Option<Prediction> {
        let cloud = Cloud::of(address).ok()?;
        let entry = self.clouds.get(&cloud)?;
        let group = &self.groups[entry.group];
        let mut forecast = group.forecast.clone();
        for quantile in &mut forecast.quantiles {
            *quantile += entry.offset;
        }
        Some(Prediction {
            cloud,
            cluster: entry.cluster,
            basis: group.basis,
            samples: group.samples,
            clients: group.clients,
            offset: entry.offset,
            forecast,
            rtt: entry.rtt,
        })
    }

    /// Number of clouds with a prediction.
    pub fn len(&self) -> usize {
        self.clouds.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.clouds.is_empty()
    }

    fn of(inputs: &Inputs) -> Self {
        let mut table = Self::default();
        // Group of each cluster, or of a cloud without one.
        let mut places: HashMap<Key, Option<usize>> = HashMap::new();
        let mut by_group: HashMap<Key, Vec<GroupSample>> = HashMap::new();
        let clouds: HashMap<i64, &KnownCloud> = inputs.clouds.iter().map(|c| (c.id, c)).collect();
        for sample in &inputs.recent {
            if let Some(cloud) = clouds.get(&sample.cloud) {
                let sample = inputs.group_sample(cloud, sample);
                by_group.entry(Key::of(cloud)).or_default().push(sample);
            }
        }
        for cloud in &inputs.clouds {
            let key = Key::of(cloud);
            let place = *places.entry(key).or_insert_with(|| {
                let group = inputs.group(key, by_group.remove(&key).unwrap_or_default())?;
                table.groups.push(group);
                Some(table.groups.len() - 1)
            });
            if let Some(group) = place {
                let entry = Entry {
                    group,
                    cluster: cloud.cluster,
                    offset: cloud.offset,
                    rtt: inputs.rtts.get(&cloud.id).copied(),
                };
                table.clouds.insert(cloud.cloud, entry);
            }
        }
        table
    }
}

/// The table in use, shared by the sessions of a process. Another one replaces it as a whole.
#[derive(Clone, Debug, Default)]
pub struct SharedTable(Arc<Mutex<Arc<StartTable>>>);

impl SharedTable {
    /// Shares a table.
    pub fn new(table: StartTable) -> Self {
        Self(Arc::new(Mutex::new(Arc::new(table))))
    }

    /// As [`StartTable::predict`]. It never waits for a table that is built or dropped.
    pub fn predict(&self, address: IpAddr) -> Option<Prediction> {
        let table = Arc::clone(&self.lock());
        table.predict(address)
    }

    /// Replaces the table.
    pub fn replace(&self, table: StartTable) {
        let table = Arc::new(table);
        // To free a large one takes milliseconds, so not under the lock.
        let old = std::mem::replace(&mut *self.lock(), table);
        drop(old);
    }

    /// A poisoned lock is usable: the pointer is always whole.
    fn lock(&self) -> MutexGuard<'_, Arc<StartTable>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Clouds that share a forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Cloud(i64),
    Cluster(i64),
}

impl Key {
    fn of(cloud: &KnownCloud) -> Self {
        cloud.cluster.map_or(Self::Cloud(cloud.id), Self::Cluster)
    }
}

/// What the predictions are computed from.
struct Inputs {
    now: WallTime,
    clouds: Vec<KnownCloud>,
    centroids: HashMap<i64, Trajectory>,
    recent: Vec<RecentSample>,
    rtts: HashMap<i64, Duration>,
}

impl Inputs {
    fn read(store: &Store, now: WallTime) -> Result<Self, StoreError> {
        let clusters = store.clusters()?.into_iter();
        Ok(Self {
            now,
            clouds: store.clouds()?,
            centroids: clusters.map(|c| (c.id, c.centroid)).collect(),
            recent: store.recent(now.before(SPAN), now)?,
            rtts: store.least_rtts(now.before(DAY), now)?,
        })
    }

    fn group_sample(&self, cloud: &KnownCloud, sample: &RecentSample) -> GroupSample {
        let at = sample.measurement.at;
        GroupSample {
            client: sample.client,
            at,
            rate: sample.measurement.rate,
            offset: cloud.offset,
            expected: cloud.cluster.and_then(|id| self.expected(id, at)),
        }
    }

    /// Value of the centroid of a cluster at a time of the day, missing bins interpolated.
    fn expected(&self, cluster: i64, at: WallTime) -> Option<f64> {
        let centroid = self.centroids.get(&cluster)?;
        let value = centroid.get(at.bin());
        let value = value.or_else(|| centroid.filled()?.get(at.bin()));
        value.map(f64::from)
    }

    fn group(&self, key: Key, samples: Vec<GroupSample>) -> Option<Group> {
        let series = GroupSeries::of(samples);
        if let Some(forecast) = forecast(METHOD, &series.values) {
            let basis = match key {
                Key::Cloud(_) => Basis::Cloud,
                Key::Cluster(_) => Basis::Cluster,
            };
            return Some(Group {
                basis,
                samples: series.samples,
                clients: series.clients,
                forecast,
            });
        }
        let Key::Cluster(cluster) = key else {
            return None;
        };
        let centroid = self.centroids.get(&cluster)?;
        Some(Group {
            basis: Basis::Trajectory,
            samples: 0,
            clients: 0,
            forecast: forecast_of_errors(self.expected(cluster, self.now)?, errors(centroid)),
        })
    }
}

/// Errors of a prediction that has no recent sample: those of the centroid an hour ago as the prediction
/// of each bin.
fn errors(centroid: &Trajectory) -> Vec<f64> {
    let hour = BINS / 24;
    let change = |bin: usize| {
        let before = centroid.get((bin + BINS - hour) % BINS)?;
        Some(f64::from(centroid.get(bin)? - before))
    };
    (0..BINS).filter_map(change).collect()
}

/// Samples older than this have no part in a prediction.
pub const SPAN: Duration = Duration::from_mins(30);

const DAY: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests;
