//! How good predictions are: each start of a stretch of time is predicted from what was before it.

use std::collections::HashMap;
use std::time::Duration;

use crate::cluster::{ClusterConfig, cluster};
use crate::hierarchy::{Hierarchy, Places};
use crate::mixture::{Mixture, Point};
use crate::predict::{LEVELS, MEDIAN, pinball};
use crate::recluster::offset;
use crate::robust::median;
use crate::trajectory::{BINS, Trajectory};
use crate::visit::{VISIT, Visit};
use crate::wall_time::WallTime;

/// What is known about a client when its session starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Known {
    /// Earlier visits of the client.
    Client,
    /// Other clients of its network only.
    Network,
    /// Other networks only.
    Others,
}

impl Known {
    /// From the closest on.
    pub const ALL: [Self; 3] = [Self::Client, Self::Network, Self::Others];

    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Network => "network",
            Self::Others => "others",
        }
    }
}

/// A way to predict a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// What the product does.
    Hierarchy,
    /// Quantiles of the network's visits of the last half hour; without any, of all its visits, and
    /// without these of all networks'.
    Network,
    /// The client's last visit, spread as visits of all clients differ from the one before; without any,
    /// as `Network`.
    Client,
    /// Quantiles of all visits.
    All,
}

impl Rule {
    /// All of them.
    pub const EACH: [Self; 4] = [Self::Hierarchy, Self::Network, Self::Client, Self::All];

    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hierarchy => "hierarchy",
            Self::Network => "its network's quantiles",
            Self::Client => "its last visit",
            Self::All => "all quantiles",
        }
    }
}

/// Scores of a rule over starts of which as much was known.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Score {
    /// What was known.
    pub known: Known,
    /// The rule.
    pub rule: Rule,
    /// Number of starts.
    pub starts: usize,
    /// Pinball loss, mean over [`LEVELS`] and starts, in octaves.
    pub loss: f64,
    /// Share of starts within the intervals of 50, 80 and 90 %.
    pub within: [f64; 3],
    /// Share of starts whose rate was below half of the median.
    pub overestimated: f64,
    /// Share of starts whose rate was above twice the median.
    pub underestimated: f64,
}

/// Predicts the starts among `visits` from `from` on, each from the visits before it. The weights of the
/// hierarchy and its clusters are computed again each [`AGAIN`]. Visits must be in order of time; those
/// that are lower bounds are not predicted.
pub fn evaluate(visits: &[Visit], from: WallTime) -> Vec<Score> {
    let exact = |index: usize| (!visits[index].is_bound).then_some(visits[index].value);
    evaluate_with(visits, from, &exact)
}

/// The same with the true value of each visit by its index, or `None` where it is unknown.
pub fn evaluate_with(
    visits: &[Visit],
    from: WallTime,
    truth: &dyn Fn(usize) -> Option<f64>,
) -> Vec<Score> {
    let mut sums: HashMap<(Known, usize), Sum> = HashMap::new();
    let mut past = Past::default();
    let mut hierarchy: Option<Hierarchy> = None;
    let mut until = from;
    for (index, visit) in visits.iter().enumerate() {
        if visit.at >= from {
            if visit.at >= until || hierarchy.is_none() {
                let known = &visits[..index];
                hierarchy = Some(Hierarchy::of(known, &places(known)));
                until = visit.at.after(AGAIN);
            }
            let hierarchy = hierarchy.as_mut().expect("it was made");
            if let Some(value) = truth(index).filter(|_| past.is_start(visit)) {
                let known = past.known(visit);
                let expected = hierarchy.expect(Some(visit.client), Some(visit.cloud), visit.at);
                let expected = expected.map(|found| found.quantiles);
                let of_rule = |rule: &Rule| match rule {
                    Rule::Hierarchy => expected,
                    Rule::Network => past.network(visit),
                    Rule::Client => past.client(visit),
                    Rule::All => past.all(visit),
                };
                for (rule, quantiles) in Rule::EACH.iter().map(of_rule).enumerate() {
                    if let Some(quantiles) = quantiles {
                        let sum = sums.entry((known, rule)).or_default();
                        sum.add(&quantiles, value);
                    }
                }
            }
            hierarchy.observe(visit);
        }
        past.add(visit);
    }
    let mut scores = Vec::new();
    for known in Known::ALL {
        for (index, rule) in Rule::EACH.into_iter().enumerate() {
            let sum = sums.get(&(known, index));
            scores.extend(sum.map(|sum| sum.score(known, rule)));
        }
    }
    scores
}

#[derive(Default)]
struct Sum {
    starts: usize,
    loss: f64,
    within: [usize; 3],
    apart: [usize; 2],
}

impl Sum {
    fn add(&mut self, quantiles: &[f64; LEVELS.len()], value: f64) {
        self.starts += 1;
        self.loss += pinball(quantiles, value);
        for (within, low) in self.within.iter_mut().zip([2, 1, 0]) {
            let range = quantiles[low]..=quantiles[LEVELS.len() - 1 - low];
            *within += usize::from(range.contains(&value));
        }
        self.apart[0] += usize::from(value < quantiles[MEDIAN] - 1.0);
        self.apart[1] += usize::from(value > quantiles[MEDIAN] + 1.0);
    }

    fn score(&self, known: Known, rule: Rule) -> Score {
        let share = |count: usize| count as f64 / self.starts as f64;
        Score {
            known,
            rule,
            starts: self.starts,
            loss: self.loss / self.starts as f64,
            within: self.within.map(share),
            overestimated: share(self.apart[0]),
            underestimated: share(self.apart[1]),
        }
    }
}

/// Visits before a start, for the baselines.
#[derive(Default)]
struct Past {
    clouds: HashMap<i64, Vec<Visit>>,
    clients: HashMap<i64, Visit>,
    all: Vec<f64>,
    changes: Vec<f64>,
}

impl Past {
    fn add(&mut self, visit: &Visit) {
        if let Some(last) = self.clients.insert(visit.client, *visit) {
            self.changes.push(visit.value - last.value);
        }
        self.clouds.entry(visit.cloud).or_default().push(*visit);
        self.all.push(visit.value);
    }

    fn is_start(&self, visit: &Visit) -> bool {
        let last = self.clients.get(&visit.client);
        last.is_none_or(|last| visit.at.since(last.at) > VISIT)
    }

    fn known(&self, visit: &Visit) -> Known {
        if self.clients.contains_key(&visit.client) {
            Known::Client
        } else if self.clouds.contains_key(&visit.cloud) {
            Known::Network
        } else {
            Known::Others
        }
    }

    fn network(&self, visit: &Visit) -> Option<[f64; LEVELS.len()]> {
        let Some(visits) = self.clouds.get(&visit.cloud) else {
            return self.all(visit);
        };
        let recent = visits.iter().rev();
        let recent = recent.take_while(|one| visit.at.since(one.at) <= HALF_HOUR);
        let recent: Vec<f64> = recent.map(|one| one.value).collect();
        if recent.is_empty() {
            plain(visits.iter().map(|one| one.value))
        } else {
            plain(recent)
        }
    }

    fn client(&self, visit: &Visit) -> Option<[f64; LEVELS.len()]> {
        let Some(last) = self.clients.get(&visit.client) else {
            return self.network(visit);
        };
        let newest = &self.changes[self.changes.len().saturating_sub(NEWEST)..];
        plain(newest.iter().map(|change| last.value + change))
    }

    fn all(&self, _: &Visit) -> Option<[f64; LEVELS.len()]> {
        plain(
            self.all[self.all.len().saturating_sub(NEWEST)..]
                .iter()
                .copied(),
        )
    }
}

/// Quantiles of values.
fn plain(values: impl IntoIterator<Item = f64>) -> Option<[f64; LEVELS.len()]> {
    let point = |value| Point {
        value,
        mass: 1.0,
        is_bound: false,
    };
    let all = Mixture::of(values.into_iter().map(point).collect())?;
    Some(all.quantiles(LEVELS))
}

/// Clusters of the clouds of these visits.
fn places(visits: &[Visit]) -> Places {
    let mut bins: HashMap<i64, HashMap<usize, Vec<f64>>> = HashMap::new();
    for visit in visits.iter().filter(|visit| !visit.is_bound) {
        let cloud = bins.entry(visit.cloud).or_default();
        cloud.entry(visit.at.bin()).or_default().push(visit.value);
    }
    let mut ids: Vec<i64> = bins.keys().copied().collect();
    ids.sort_unstable();
    let trajectory = |id: &i64| {
        let mut trajectory = Trajectory::missing();
        for (bin, values) in &bins[id] {
            trajectory.set(*bin % BINS, median(&mut values.clone()) as f32);
        }
        trajectory
    };
    let trajectories: Vec<Trajectory> = ids.iter().map(trajectory).collect();
    if trajectories.is_empty() {
        return Places::default();
    }
    let found = cluster(&trajectories, ClusterConfig::default());
    let members = ids.iter().enumerate().map(|(index, cloud)| {
        let cluster = found.members[index];
        let offset = offset(&trajectories[index], &found.centroids[cluster]);
        (*cloud, cluster as i64, offset)
    });
    let centroids = found.centroids.iter().cloned().enumerate();
    Places::new(
        members,
        centroids.map(|(id, centroid)| (id as i64, centroid)),
    )
}

/// Time after which clusters and weights are computed again.
pub const AGAIN: Duration = Duration::from_hours(6);

const HALF_HOUR: Duration = Duration::from_mins(30);

/// Values of a baseline, the newest.
const NEWEST: usize = 1_000;
