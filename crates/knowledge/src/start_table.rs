//! Predictions for all known clouds, in memory: a session's start is decided by a few look-ups.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::control::Prior;
use tidegate_core::units::Rate;

use crate::client::{AddressPolicy, Client};
use crate::cloud::Cloud;
use crate::group_series::{GroupSample, GroupSeries};
use crate::hierarchy::{Evidence, Expectation, Hierarchy, Level, Places};
use crate::predict::{LEVELS, MEDIAN, Method, forecast};
use crate::store::{KnownCloud, RecentSample, Store, StoreError};
use crate::trajectory::exp2;
use crate::visit::visits;
use crate::wall_time::WallTime;

/// The method by which the level of a cluster is predicted: the one with the least pinball loss
/// (docs/knowledge.md).
pub const METHOD: Method = Method::Mixture;

/// A prediction, with its explanation.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Cloud of the client.
    pub cloud: Cloud,
    /// Number of the cluster, if the cloud has one.
    pub cluster: Option<i64>,
    /// By how many octaves the cloud is faster than its cluster.
    pub offset: f64,
    /// What is expected of a new session.
    pub expectation: Expectation,
    /// Least round-trip time of the cloud during the last day; `None` if it is not known.
    pub rtt: Option<Duration>,
}

impl Prediction {
    /// Quantiles of the rate at [`LEVELS`].
    pub fn rates(&self) -> [Rate; LEVELS.len()] {
        self.expectation.quantiles.map(exp2)
    }

    /// What each level knows.
    pub const fn evidence(&self) -> &Evidence {
        &self.expectation.evidence
    }

    /// What a controller is started from: the median of what was carried. `None` without a round-trip time,
    /// with which a controller checks whether the prior fits.
    pub fn prior(&self) -> Option<Prior> {
        Some(Prior {
            rate: exp2(self.expectation.carried),
            rtt: self.rtt?,
            confidence: self.expectation.confidence,
        })
    }

    /// Whether anything is known about the client, its network or networks of its cluster.
    pub fn is_known(&self) -> bool {
        self.evidence().share(&[Level::All]) < 1.0
    }

    /// Whether the client itself, or several clients of its network, decide the prediction: they have at
    /// least half of it. One other client in an otherwise unknown network does not.
    pub fn is_of_its_own(&self) -> bool {
        let evidence = self.evidence();
        let own = evidence.share(&Level::CLIENT);
        let others = Level::NETWORK.map(|level| evidence.count(level));
        let network = evidence.share(&Level::NETWORK);
        own >= 0.5 || (others.iter().sum::<f64>() >= MIN_CLIENTS && own + network >= 0.5)
    }
}

/// Predictions for all clients.
#[derive(Clone, Debug)]
pub struct StartTable {
    hierarchy: Hierarchy,
    clouds: HashMap<Cloud, Entry>,
    clients: HashMap<(i64, Client), i64>,
    addresses: AddressPolicy,
    now: WallTime,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: i64,
    cluster: Option<i64>,
    offset: f64,
    rtt: Option<Duration>,
}

impl StartTable {
    /// Computes the predictions for sessions that start at `now`. It takes seconds for a large store; the
    /// table of the last computation serves meanwhile.
    ///
    /// # Errors
    /// The store is locked or damaged.
    pub fn build(
        store: &Store,
        addresses: &AddressPolicy,
        now: WallTime,
    ) -> Result<Self, StoreError> {
        let known = store.clouds()?;
        let mut places = places(store, &known)?;
        let recent = store.recent(now.before(SPAN), now)?;
        set_shifts(&mut places, &known, &recent, now);
        let history = store.history(now.before(HISTORY), now)?;
        let rtts = store.least_rtts(now.before(DAY), now)?;
        let entry = |cloud: KnownCloud| {
            let entry = Entry {
                id: cloud.id,
                cluster: cloud.cluster,
                offset: cloud.offset,
                rtt: rtts.get(&cloud.id).copied(),
            };
            (cloud.cloud, entry)
        };
        Ok(Self {
            hierarchy: Hierarchy::of(&visits(history), &places),
            clouds: known.into_iter().map(entry).collect(),
            clients: store.clients()?,
            addresses: addresses.clone(),
            now,
        })
    }

    /// Prediction for a client; `None` if nothing at all is known. The first client of a network is
    /// predicted from others.
    pub fn predict(&self, address: IpAddr) -> Option<Prediction> {
        let cloud = Cloud::of(address).ok()?;
        let entry = self.clouds.get(&cloud);
        let client = entry.and_then(|entry| {
            let name = self.addresses.client(address);
            self.clients.get(&(entry.id, name)).copied()
        });
        self.expect(cloud, client)
    }

    /// Prediction for a client of a cloud of which nothing else is known.
    pub fn predict_new(&self, cloud: Cloud) -> Option<Prediction> {
        self.expect(cloud, None)
    }

    fn expect(&self, cloud: Cloud, client: Option<i64>) -> Option<Prediction> {
        let entry = self.clouds.get(&cloud);
        let id = entry.map(|entry| entry.id);
        Some(Prediction {
            cloud,
            cluster: entry.and_then(|entry| entry.cluster),
            offset: entry.map_or(0.0, |entry| entry.offset),
            expectation: self.hierarchy.expect(client, id, self.now)?,
            rtt: entry.and_then(|entry| entry.rtt),
        })
    }

    /// Number of clouds that are known.
    pub fn len(&self) -> usize {
        self.clouds.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.clouds.is_empty()
    }
}

/// Clusters and their members.
fn places(store: &Store, known: &[KnownCloud]) -> Result<Places, StoreError> {
    let members = known
        .iter()
        .filter_map(|cloud| Some((cloud.id, cloud.cluster?, cloud.offset)));
    let clusters = store.clusters()?;
    let centroids = clusters
        .into_iter()
        .map(|cluster| (cluster.id, cluster.centroid));
    Ok(Places::new(members, centroids))
}

/// By how many octaves each cluster is above its trajectory, from the samples of the last [`SPAN`]: the
/// forecast of the series of its slots, less if few clients have a part.
fn set_shifts(places: &mut Places, known: &[KnownCloud], recent: &[RecentSample], now: WallTime) {
    let clouds: HashMap<i64, &KnownCloud> = known.iter().map(|cloud| (cloud.id, cloud)).collect();
    let mut groups: HashMap<i64, Vec<GroupSample>> = HashMap::new();
    for sample in recent
        .iter()
        .filter(|sample| !sample.measurement.is_limited)
    {
        let cloud = clouds.get(&sample.cloud);
        if let Some((cluster, offset)) = cloud.and_then(|cloud| places.of(cloud.id)) {
            let at = sample.measurement.at;
            groups.entry(cluster).or_default().push(GroupSample {
                client: sample.client,
                at,
                rate: sample.measurement.rate,
                offset,
                expected: places.trajectory(cluster, at),
            });
        }
    }
    for (cluster, samples) in groups {
        let series = GroupSeries::of(samples);
        let found = forecast(METHOD, &series.values);
        if let (Some(found), Some(usual)) = (found, places.trajectory(cluster, now)) {
            let clients = series.clients as f64;
            let certain = clients / (clients + FEW_CLIENTS);
            places.set_shift(cluster, certain * (found.quantiles[MEDIAN] - usual));
        }
    }
}

/// The table in use, shared by the sessions of a process. Another one replaces it as a whole.
#[derive(Clone, Debug)]
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

/// Samples of a round trip that show the present state of a cluster.
pub const SPAN: Duration = Duration::from_mins(30);

/// Samples from which clients and networks are known.
const HISTORY: Duration = Duration::from_hours(7 * 24);

const DAY: Duration = Duration::from_hours(24);

/// Other clients of a network from which they decide a prediction for a client.
const MIN_CLIENTS: f64 = 3.0;

/// Clients of a cluster from which its present state counts half.
const FEW_CLIENTS: f64 = 2.0;

#[cfg(test)]
mod tests;
