//! Levels of the hierarchy, and their mixture.

use crate::mixture::{GRID, Mixture, Point};
use crate::robust::quantile;

/// A level of the hierarchy, from the closest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The client's own visits of the last 30 minutes.
    ClientRecent,
    /// The client's own earlier visits.
    ClientOlder,
    /// Other clients of its network in the last 30 minutes.
    NetworkRecent,
    /// Other clients of its network before.
    NetworkOlder,
    /// Networks of its cluster.
    Cluster,
    /// All networks.
    All,
}

impl Level {
    /// Levels of the client itself.
    pub const CLIENT: [Self; 2] = [Self::ClientRecent, Self::ClientOlder];
    /// Levels of other clients of its network.
    pub const NETWORK: [Self; 2] = [Self::NetworkRecent, Self::NetworkOlder];

    /// All levels, in order.
    pub const EACH: [Self; 6] = [
        Self::ClientRecent,
        Self::ClientOlder,
        Self::NetworkRecent,
        Self::NetworkOlder,
        Self::Cluster,
        Self::All,
    ];

    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClientRecent => "the client, last 30 min",
            Self::ClientOlder => "the client, before",
            Self::NetworkRecent => "its network, last 30 min",
            Self::NetworkOlder => "its network, before",
            Self::Cluster => "its cluster",
            Self::All => "all networks",
        }
    }
}

/// What each level knows, and its part of a prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Visits of the client, clients of its network, networks of its cluster, and clients of all networks,
    /// in the order of [`Level::EACH`].
    pub counts: [f64; Level::EACH.len()],
    /// Share of each level: of sum one.
    pub shares: [f64; Level::EACH.len()],
}

impl Evidence {
    /// Number of visits of a level.
    pub const fn count(&self, level: Level) -> f64 {
        self.counts[level as usize]
    }

    /// Share of some levels in the prediction.
    pub fn share(&self, levels: &[Level]) -> f64 {
        levels
            .iter()
            .map(|level| self.shares[*level as usize])
            .sum()
    }

    pub(super) fn visits(&self) -> f64 {
        self.counts.iter().sum()
    }
}

/// One level's points.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    pub(super) points: Vec<Point>,
    /// Visits, clients or clouds that they are of.
    pub(super) evidence: f64,
}

/// The levels that say something about a session.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    /// All but the last level.
    pub(super) levels: [Part; KAPPAS],
    all: Vec<Point>,
    known: f64,
}

/// Levels with a κ: all but the last.
pub(super) const KAPPAS: usize = Level::EACH.len() - 1;

impl Parts {
    /// Sets the last level: a grid of `known` clients. If these are few, anything is possible.
    pub(super) fn set_all(&mut self, grid: &[f64], known: usize) {
        let known = known as f64;
        let certain = known / (known + UNKNOWN);
        let middle = quantile(grid, 0.5).unwrap_or(0.0);
        let point = |value, mass| Point {
            value,
            mass,
            is_bound: false,
        };
        let mass = certain / grid.len() as f64;
        self.all = grid.iter().map(|value| point(*value, mass)).collect();
        let rest = (1.0 - certain) / SPREAD as f64;
        let unknown = [-2.0, -1.0, 0.0, 1.0, 2.0].map(|apart| point(middle + apart, rest));
        self.all.extend(unknown);
        self.known = known;
    }

    /// The points of all levels, with their weights.
    fn points(&self, kappas: &[f64; KAPPAS]) -> (Vec<Point>, Evidence) {
        let mut evidence = Evidence::default();
        let mut points = Vec::with_capacity(
            2 * GRID + self.levels.iter().map(|l| l.points.len()).sum::<usize>(),
        );
        let mut left = 1.0;
        for (index, (level, kappa)) in self.levels.iter().zip(kappas).enumerate() {
            let share = left * level.evidence / (level.evidence + kappa);
            let sum: f64 = level.points.iter().map(|point| point.mass).sum();
            if sum > 0.0 {
                let scaled = level.points.iter().map(|point| Point {
                    mass: point.mass * share / sum,
                    ..*point
                });
                points.extend(scaled);
                left -= share;
                evidence.shares[index] = share;
                evidence.counts[index] = level.evidence;
            }
        }
        points.extend(self.all.iter().map(|point| Point {
            mass: point.mass * left,
            ..*point
        }));
        evidence.shares[Level::All as usize] = left;
        evidence.counts[Level::All as usize] = self.known;
        (points, evidence)
    }

    /// The mixture of all levels.
    pub(super) fn mix(&self, kappas: &[f64; KAPPAS]) -> Option<(Mixture, Evidence)> {
        let (points, evidence) = self.points(kappas);
        Some((Mixture::of(points)?, evidence))
    }

    /// The mixture of what was carried: lower bounds count as values. `None` without bounds.
    pub(super) fn carried(&self, kappas: &[f64; KAPPAS]) -> Option<Mixture> {
        let (mut points, _) = self.points(kappas);
        points.iter().any(|point| point.is_bound).then_some(())?;
        for point in &mut points {
            point.is_bound = false;
        }
        Mixture::of(points)
    }

    /// The same without the first levels.
    pub(super) fn without(&self, closer: usize) -> Self {
        let mut parts = self.clone();
        for level in &mut parts.levels[..closer] {
            *level = Part::default();
        }
        parts
    }

    /// Whether the client itself, its network, or only others are known: 0..=2.
    pub(super) fn closest(&self) -> usize {
        let has = |levels: [Level; 2]| {
            let mut parts = levels.iter().map(|level| &self.levels[*level as usize]);
            parts.any(|part| !part.points.is_empty())
        };
        if has(Level::CLIENT) {
            0
        } else if has(Level::NETWORK) {
            1
        } else {
            2
        }
    }
}

/// By how much a visit differs from an earlier one of the same client, at equally probable quantiles, in
/// octaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    pub(super) values: [f64; SPREAD],
}

impl Default for Spread {
    fn default() -> Self {
        Self {
            values: UNKNOWN_SPREAD,
        }
    }
}

impl Spread {
    /// From differences in any order. Few of them are complemented by the default.
    pub(super) fn of(mut changes: Vec<f64>) -> Self {
        changes.sort_unstable_by(f64::total_cmp);
        let count = changes.len() as f64;
        let certain = count / (count + FEW);
        let value = |index: usize| {
            let level = (index as f64 + 0.5) / SPREAD as f64;
            let seen = quantile(&changes, level).unwrap_or(0.0);
            certain * seen + (1.0 - certain) * UNKNOWN_SPREAD[index]
        };
        Self {
            values: core::array::from_fn(value),
        }
    }
}

/// Points of a spread.
pub(super) const SPREAD: usize = 5;

/// Spread of visits before any was seen: half of them within a third of an octave.
const UNKNOWN_SPREAD: [f64; SPREAD] = [-0.8, -0.3, 0.0, 0.3, 0.8];

/// Changes from which the default counts half.
const FEW: f64 = 8.0;

/// Clients of all networks from which it counts half that anything is possible.
const UNKNOWN: f64 = 2.0;
