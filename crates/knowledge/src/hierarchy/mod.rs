//! What a new session of a client will get: the distribution over clients and their visits, from the
//! client itself to all networks.
//!
//! Each level of the hierarchy has a part in the prediction that grows with what is known at that
//! level: n / (n + κ) of what the levels before it have left. The κ follow from earlier visits, each
//! predicted from those before it, and so do the quantiles: if 3 % of them were below the quantile of
//! 5 %, a higher one is taken.

mod levels;
mod tuning;

pub use self::levels::{Evidence, Level};
use self::tuning::Tuning;

use std::collections::HashMap;
use std::time::Duration;

use self::levels::{Part, Parts, SPREAD, Spread};
use crate::group_series::MAX_APART;
use crate::mixture::{GRID, Mixture, Point};
use crate::predict::{LEVELS, MEDIAN, SMALL_ERROR};
use crate::robust::median;
use crate::trajectory::{BINS, Trajectory};
use crate::visit::{VISIT, Visit};
use crate::wall_time::WallTime;

/// What clusters are used for. Clusters of networks that are not alike, or trajectories of few visits, are
/// worse than none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ClusterUse {
    /// Nothing.
    None,
    /// The networks of a cluster are a level of their own.
    Level,
    /// Besides, rates are expected to change over the day as the trajectory does.
    #[default]
    Day,
}

/// Clusters of clouds, as far as predictions need them.
#[derive(Clone, Debug, Default)]
pub struct Places {
    cluster_use: ClusterUse,
    /// Cluster and offset of each cloud that has one.
    members: HashMap<i64, (i64, f64)>,
    /// Mean trajectory of each cluster, without missing bins.
    centroids: HashMap<i64, Trajectory>,
    /// By how many octaves a cluster is now above its trajectory.
    shifts: HashMap<i64, f64>,
}

impl Places {
    /// From clouds with their cluster and their offset, and clusters with their mean trajectory.
    pub fn new(
        members: impl IntoIterator<Item = (i64, i64, f64)>,
        centroids: impl IntoIterator<Item = (i64, Trajectory)>,
    ) -> Self {
        let centroids = centroids.into_iter();
        let smooth = |(id, centroid): (i64, Trajectory)| Some((id, smooth(&centroid)?));
        let centroids: HashMap<i64, Trajectory> = centroids.filter_map(smooth).collect();
        let members = members.into_iter();
        let members = members.map(|(cloud, cluster, offset)| (cloud, (cluster, offset)));
        Self {
            cluster_use: ClusterUse::default(),
            members: members
                .filter(|(_, m)| centroids.contains_key(&m.0))
                .collect(),
            centroids,
            shifts: HashMap::new(),
        }
    }

    /// Sets by how many octaves a cluster is now above its trajectory.
    pub fn set_shift(&mut self, cluster: i64, octaves: f64) {
        self.shifts.insert(cluster, octaves);
    }

    /// Cluster and offset of a cloud.
    pub fn of(&self, cloud: i64) -> Option<(i64, f64)> {
        let is_used = self.cluster_use != ClusterUse::None;
        self.members.get(&cloud).copied().filter(|_| is_used)
    }

    /// Value of the trajectory of a cluster at a time of the day.
    pub fn trajectory(&self, cluster: i64, at: WallTime) -> Option<f64> {
        let centroid = self.centroids.get(&cluster)?;
        let value = match self.cluster_use {
            ClusterUse::Day => centroid.get(at.bin()),
            _ => centroid.mean(),
        };
        value.map(f64::from)
    }

    /// What the trajectory lets expect of a cloud; zero without a cluster, so that only differences
    /// count.
    fn expected(&self, cloud: i64, at: WallTime) -> f64 {
        let value = self.of(cloud).and_then(|(cluster, offset)| {
            let value = self.trajectory(cluster, at)?;
            Some(value + offset)
        });
        value.unwrap_or(0.0)
    }

    fn shift(&self, cloud: i64) -> f64 {
        let shift = self.of(cloud).and_then(|(id, _)| self.shifts.get(&id));
        shift.copied().unwrap_or(0.0)
    }
}

/// Distributions of all levels.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    places: Places,
    clients: HashMap<i64, ClientPast>,
    clouds: HashMap<i64, Vec<Neighbour>>,
    clusters: HashMap<i64, ClusterLevel>,
    /// Values of all clients.
    all: Vec<f64>,
    /// Clients in `all`.
    known: usize,
    /// Changes from a visit to the next, of recent and of older ones.
    spreads: [Spread; 2],
    tuning: Tuning,
}

#[derive(Clone, Debug)]
struct ClientPast {
    cloud: i64,
    /// At most [`CLIENT_VISITS`], the newest last.
    visits: Vec<Seen>,
}

/// A visit, relative to what the trajectory of its cluster let expect.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: WallTime,
    value: f64,
    is_bound: bool,
}

impl Seen {
    /// What is added to the value at `now`: nothing to a recent one.
    fn aged(&self, drift: f64, now: WallTime) -> f64 {
        if now.since(self.at) > RECENT {
            drift
        } else {
            0.0
        }
    }
}

/// Newest visit of a client of a cloud.
#[derive(Clone, Copy, Debug)]
struct Neighbour {
    client: i64,
    seen: Seen,
    /// Value of the client's last visit that was at least [`RECENT`] earlier.
    before: Option<f64>,
}

#[derive(Clone, Debug)]
struct ClusterLevel {
    /// Values relative to the trajectory.
    grid: Vec<f64>,
    /// Clouds with visits.
    clouds: f64,
}

/// What is expected of a new session.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// Quantiles at [`LEVELS`]: base-two logarithms of rates in b/s, not falling.
    pub quantiles: [f64; LEVELS.len()],
    /// Median of what was carried, at most that of the quantiles: a rate that the application limited counts
    /// as one that the path has carried, and no more.
    pub carried: f64,
    /// Probability that the rate is within [`SMALL_ERROR`] of the median, less if there are few visits:
    /// 0..=1.
    pub confidence: f64,
    /// What each level knows, and its part.
    pub evidence: Evidence,
}

impl Hierarchy {
    /// From visits in order of time. The last third of them is predicted from those before, to weigh
    /// the levels.
    pub fn of(visits: &[Visit], places: &Places) -> Self {
        let recent = &visits[visits.len().saturating_sub(TRAINING)..];
        let split = recent.len() - recent.len() / 3;
        let of_use = |cluster_use| {
            let places = Places {
                cluster_use,
                ..places.clone()
            };
            let mut past = Self::gather(&recent[..split], places.clone(), Tuning::default());
            let (tuning, loss) = Tuning::learn(&mut past, &recent[split..]);
            (places, tuning, loss)
        };
        let uses = [ClusterUse::None, ClusterUse::Level, ClusterUse::Day];
        let uses = &uses[..if places.members.is_empty() {
            1
        } else {
            uses.len()
        }];
        let mut tried = uses.iter().copied().map(of_use);
        let mut best = tried.next().expect("there is a way");
        for other in tried {
            let is_better = match (other.2, best.2) {
                (Some(loss), Some(least)) => loss * tuning::HARDLY < least,
                // Too few starts show nothing against clusters.
                _ => true,
            };
            if is_better {
                best = other;
            }
        }
        let (places, tuning, _) = best;
        Self::gather(visits, places, tuning)
    }

    fn gather(visits: &[Visit], places: Places, tuning: Tuning) -> Self {
        let mut all = Self {
            places,
            clients: HashMap::new(),
            clouds: HashMap::new(),
            clusters: HashMap::new(),
            all: Vec::new(),
            known: 0,
            spreads: [Spread::default(), Spread::default()],
            tuning,
        };
        let mut changes = [Vec::new(), Vec::new()];
        for visit in visits {
            if let Some((age, change)) = all.change(visit) {
                changes[usize::from(age > RECENT)].push(change);
            }
            all.observe(visit);
        }
        all.spreads = changes.map(Spread::of);
        let now = visits.last().map(|visit| visit.at).unwrap_or_default();
        all.summarise(now);
        all
    }

    /// Age of the visit before, and by how much this one differs from it.
    fn change(&self, visit: &Visit) -> Option<(Duration, f64)> {
        let last = self.clients.get(&visit.client)?.visits.last()?;
        let value = visit.value - self.places.expected(visit.cloud, visit.at);
        let is_exact = !visit.is_bound && !last.is_bound;
        is_exact.then(|| (visit.at.since(last.at), value - last.value))
    }

    /// Adds a visit, later than all others, to its client and its cloud.
    pub fn observe(&mut self, visit: &Visit) {
        let seen = Seen {
            at: visit.at,
            value: visit.value - self.places.expected(visit.cloud, visit.at),
            is_bound: visit.is_bound,
        };
        let neighbours = self.clouds.entry(visit.cloud).or_default();
        let place = neighbours.iter().position(|one| one.client == visit.client);
        let last = place.map(|place| neighbours.remove(place));
        if neighbours.len() == NEIGHBOURS {
            neighbours.remove(0);
        }
        neighbours.push(Neighbour {
            client: visit.client,
            seen,
            before: last.and_then(|last| {
                let is_old = seen.at.since(last.seen.at) > RECENT;
                if is_old {
                    Some(last.seen.value)
                } else {
                    last.before
                }
            }),
        });
        let past = self
            .clients
            .entry(visit.client)
            .or_insert_with(|| ClientPast {
                cloud: visit.cloud,
                visits: Vec::new(),
            });
        if past.visits.len() == CLIENT_VISITS {
            past.visits.remove(0);
        }
        past.visits.push(seen);
    }

    /// Computes the distributions of clusters and of all clients at `now`.
    fn summarise(&mut self, now: WallTime) {
        let mut clusters: HashMap<i64, (Vec<Point>, f64)> = HashMap::new();
        let mut all = Vec::new();
        let mut drifts: HashMap<i64, f64> = HashMap::new();
        for past in self.clients.values() {
            let cloud = past.cloud;
            let clients = self.clouds.get(&cloud).map_or(1, Vec::len);
            // However many addresses someone has in one cloud, it counts as a few, and a client as one.
            let mass = (clients as f64).min(MAX_CLOUD) / clients as f64 / past.visits.len() as f64;
            let expected = self.places.expected(cloud, now);
            let cluster = self.places.of(cloud).map(|(cluster, _)| cluster);
            let drift = *drifts
                .entry(cloud)
                .or_insert_with(|| self.drift(cloud, now));
            for seen in &past.visits {
                let value = self.limited(cloud, clients, seen.value) + seen.aged(drift, now);
                let point = |value| Point {
                    value,
                    mass,
                    is_bound: seen.is_bound,
                };
                all.push(point(value + expected));
                if let Some(cluster) = cluster {
                    clusters.entry(cluster).or_default().0.push(point(value));
                }
            }
        }
        for cloud in self.clouds.keys() {
            if let Some((cluster, _)) = self.places.of(*cloud) {
                clusters.entry(cluster).or_default().1 += 1.0;
            }
        }
        self.known = self.clients.len();
        self.all = Mixture::of(all).map(|all| all.grid()).unwrap_or_default();
        let level = |(id, (points, clouds)): (i64, (Vec<Point>, f64))| {
            let grid = Mixture::of(points)?.grid();
            Some((id, ClusterLevel { grid, clouds }))
        };
        self.clusters = clusters.into_iter().filter_map(level).collect();
    }

    /// By how many octaves older values of a cloud are to be corrected: by how much those of its clients
    /// that were seen lately have changed and, as far as these are few, by what its cluster does.
    fn drift(&self, cloud: i64, now: WallTime) -> f64 {
        let neighbours = self.clouds.get(&cloud).map_or(&[][..], Vec::as_slice);
        let recent = neighbours
            .iter()
            .filter(|one| now.since(one.seen.at) <= RECENT);
        let changes = recent.filter_map(|one| Some(one.seen.value - one.before?));
        let mut changes: Vec<f64> = changes.collect();
        let shift = self.places.shift(cloud);
        if changes.is_empty() {
            return shift;
        }
        let count = changes.len() as f64;
        let certain = count / (count + FEW);
        certain * median(&mut changes) + (1.0 - certain) * shift
    }

    /// A value of one of a cloud's few clients is limited to a factor of four from the trajectory, since one
    /// client may report anything.
    fn limited(&self, cloud: i64, clients: usize, value: f64) -> f64 {
        if clients < ENOUGH && self.places.of(cloud).is_some() {
            value.clamp(-MAX_APART, MAX_APART)
        } else {
            value
        }
    }

    /// What is expected of a session of `client` in `cloud` at `now`; `None` if there is no visit at all.
    pub fn expect(
        &self,
        client: Option<i64>,
        cloud: Option<i64>,
        now: WallTime,
    ) -> Option<Expectation> {
        let parts = self.parts(client, cloud, now)?;
        let (mixture, evidence) = parts.mix(&self.tuning.kappas)?;
        let quantiles = mixture.quantiles(self.tuning.levels(&parts));
        let carried = parts.carried(&self.tuning.kappas);
        let carried = carried.map_or(quantiles[MEDIAN], |carried| carried.quantiles([0.5])[0]);
        let visits = evidence.visits();
        Some(Expectation {
            confidence: mixture.share_near(quantiles[MEDIAN], SMALL_ERROR) * visits
                / (visits + 1.0),
            carried: carried.min(quantiles[MEDIAN]),
            quantiles,
            evidence,
        })
    }

    fn parts(&self, client: Option<i64>, cloud: Option<i64>, now: WallTime) -> Option<Parts> {
        if self.all.is_empty() {
            return None;
        }
        let mut parts = Parts::default();
        if let Some(past) = client.and_then(|client| self.clients.get(&client)) {
            let drift = self.drift(past.cloud, now);
            let expected = self.places.expected(past.cloud, now);
            for (index, seen) in past.visits.iter().rev().enumerate() {
                // The newest visit counts most.
                let weight = 1.0 / (1.0 + index as f64);
                let value = seen.value + seen.aged(drift, now) + expected;
                self.add(&mut parts, Level::CLIENT, now, seen, value, weight);
            }
        }
        if let Some(cloud) = cloud {
            self.add_cloud(&mut parts, client, cloud, now);
        }
        parts.set_all(&self.all, self.known);
        Some(parts)
    }

    fn add_cloud(&self, parts: &mut Parts, client: Option<i64>, cloud: i64, now: WallTime) {
        let expected = self.places.expected(cloud, now);
        if let Some(neighbours) = self.clouds.get(&cloud) {
            let drift = self.drift(cloud, now);
            let others = neighbours.iter().filter(|one| Some(one.client) != client);
            for Neighbour { seen, .. } in others {
                let value = self.limited(cloud, neighbours.len(), seen.value);
                let value = value + seen.aged(drift, now) + expected;
                self.add(parts, Level::NETWORK, now, seen, value, 1.0);
            }
        }
        let cluster = self
            .places
            .of(cloud)
            .and_then(|(id, _)| self.clusters.get(&id));
        if let Some(cluster) = cluster {
            let mass = 1.0 / GRID as f64;
            let points = cluster.grid.iter().map(|value| Point {
                value: value + expected,
                mass,
                is_bound: false,
            });
            parts.levels[Level::Cluster as usize] = Part {
                points: points.collect(),
                evidence: cluster.clouds,
            };
        }
    }

    /// Adds a visit to the recent or the older part of a level. Its value is spread by what visits of the
    /// same client differ.
    fn add(
        &self,
        parts: &mut Parts,
        levels: [Level; 2],
        now: WallTime,
        seen: &Seen,
        value: f64,
        weight: f64,
    ) {
        let is_old = now.since(seen.at) > RECENT;
        let part = &mut parts.levels[levels[usize::from(is_old)] as usize];
        let spread = &self.spreads[usize::from(is_old)];
        part.evidence += 1.0;
        part.points.extend(spread.values.map(|change| Point {
            value: value + change,
            mass: weight / SPREAD as f64,
            is_bound: seen.is_bound,
        }));
    }

    /// Whether a client begins with this visit after a pause.
    fn is_start(&self, visit: &Visit) -> bool {
        let last = self
            .clients
            .get(&visit.client)
            .and_then(|past| past.visits.last());
        last.is_none_or(|last| visit.at.since(last.at) > VISIT)
    }
}

/// A trajectory without missing bins, averaged over three hours: a bin may be of a single session.
/// `None` without any bin.
fn smooth(trajectory: &Trajectory) -> Option<Trajectory> {
    let filled = trajectory.filled()?;
    let bins = filled.bins();
    let mean = |bin: usize| {
        let window = (0..=2 * SMOOTH).map(|i| bins[(bin + BINS - SMOOTH + i) % BINS]);
        window.sum::<f32>() / (2 * SMOOTH + 1) as f32
    };
    Some(Trajectory::from_bins((0..BINS).map(mean).collect()))
}

/// Visits from which the weights of the levels are estimated, the newest.
const TRAINING: usize = 200_000;

/// Bins to each side of a smoothed bin.
const SMOOTH: usize = 18;

/// Visits of a client that are kept.
const CLIENT_VISITS: usize = 4;

/// Clients of a cloud that are kept, those seen last.
const NEIGHBOURS: usize = 16;

/// Largest weight of a cloud among others.
const MAX_CLOUD: f64 = 8.0;

/// Clients whose changes count half.
const FEW: f64 = 1.0;

/// Clients of a cloud from which their values are believed.
const ENOUGH: usize = 3;

/// Visits that are newer show the present state of a path.
const RECENT: Duration = Duration::from_mins(30);

#[cfg(test)]
mod tests;
