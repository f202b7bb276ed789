//! Weights of the levels, and the calibration of quantiles, from visits that are predicted from those
//! before them.

use std::collections::HashMap;

use super::Hierarchy;
use super::levels::{KAPPAS, Parts};
use crate::mixture::Mixture;
use crate::predict::{LEVELS, pinball};
use crate::robust::quantile;
use crate::visit::Visit;

/// How the levels are mixed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tuning {
    /// Evidence of each level at which it has half of what is left.
    pub(super) kappas: [f64; KAPPAS],
    /// The quantile of the mixture that is taken for each of [`LEVELS`], for a known client, a known
    /// network and others.
    levels: [[f64; LEVELS.len()]; 3],
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            kappas: [0.25, 0.5, 1.0, 2.0, 4.0],
            levels: [LEVELS; 3],
        }
    }
}

/// A visit after a pause, and what was known before it.
struct Start {
    parts: Parts,
    value: f64,
}

impl Start {
    /// The value of a lower bound is drawn from the prediction above it, evenly over all starts.
    fn of(parts: Parts, visit: &Visit, number: usize) -> Option<Self> {
        let mut value = visit.value;
        if visit.is_bound {
            let (mixture, _) = parts.mix(&Tuning::default().kappas)?;
            let below = mixture.share_below(value);
            let even = (GOLDEN * (number + 1) as f64).fract();
            value = value.max(mixture.quantiles([below + even * (1.0 - below)])[0]);
        }
        Some(Self { parts, value })
    }
}

impl Tuning {
    /// Learns from starts among these visits, of which the newest count. `past` has what was before, and
    /// has all of them afterwards.
    /// Returns the mean loss, too, if there are enough starts.
    pub(super) fn learn(past: &mut Hierarchy, visits: &[Visit]) -> (Self, Option<f64>) {
        let starts = starts(past, visits);
        let mut tuning = Self::default();
        if starts.len() < MIN_STARTS {
            return (tuning, None);
        }
        let mut loss = f64::MAX;
        for _ in 0..ROUNDS {
            for level in 0..KAPPAS {
                loss = tuning.choose(level, &starts);
            }
        }
        for (closest, levels) in tuning.levels.iter_mut().enumerate() {
            let of_kind = starts
                .iter()
                .filter(|start| start.parts.closest() == closest);
            let ranks = of_kind.filter_map(|start| {
                let (mixture, _) = start.parts.mix(&tuning.kappas)?;
                Some(mixture.share_below(start.value))
            });
            *levels = calibrated(ranks.collect());
        }
        (tuning, Some(loss / starts.len() as f64))
    }

    /// Chooses the κ of a level by the loss of all starts, which is returned. The default stays unless
    /// another one is clearly better: what a level says may matter later.
    fn choose(&mut self, level: usize, starts: &[Start]) -> f64 {
        let mut loss_with = |kappa: f64| {
            self.kappas[level] = kappa;
            let losses = starts.iter().filter_map(|start| {
                let (mixture, _) = start.parts.mix(&self.kappas)?;
                Some(loss(&mixture, start.value))
            });
            (kappa, losses.sum::<f64>())
        };
        let present = loss_with(Self::default().kappas[level]);
        let tried = CANDIDATES.map(&mut loss_with).into_iter();
        let best = tried.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(present);
        let is_better = best.1 * HARDLY < present.1;
        let (kappa, loss) = if is_better { best } else { present };
        self.kappas[level] = kappa;
        loss
    }

    /// Quantiles of a mixture of these parts that are taken for [`LEVELS`].
    pub(super) fn levels(&self, parts: &Parts) -> [f64; LEVELS.len()] {
        self.levels[parts.closest()]
    }
}

fn loss(mixture: &Mixture, value: f64) -> f64 {
    pinball(&mixture.quantiles(LEVELS), value)
}

/// Starts of all times of the day, a few of each client, so that none decides.
fn starts(past: &mut Hierarchy, visits: &[Visit]) -> Vec<Start> {
    let stride = visits.len().div_ceil(MAX_STARTS);
    let mut of_client: HashMap<i64, usize> = HashMap::new();
    let mut starts = Vec::new();
    for (index, visit) in visits.iter().enumerate() {
        let count = of_client.entry(visit.client).or_default();
        let is_wanted = index % stride == 0 && *count < PER_CLIENT;
        if is_wanted && past.is_start(visit) {
            *count += 1;
            let number = starts.len();
            let parts = past.parts(Some(visit.client), Some(visit.cloud), visit.at);
            let Some(start) = parts.and_then(|parts| Start::of(parts, visit, number)) else {
                past.observe(visit);
                continue;
            };
            // The same start as that of a new client, and as that of a new network: most clients are
            // known soon, so there are few others to learn from.
            for (closer, each) in [(NEW_CLIENT, 2), (NEW_NETWORK, 4)] {
                if number % each == 0 {
                    starts.push(Start {
                        parts: start.parts.without(closer),
                        value: start.value,
                    });
                }
            }
            starts.push(start);
        }
        past.observe(visit);
    }
    starts
}

/// The quantile that is taken for each level so that as many values lie below it as should. With few
/// ranks, about the level itself.
fn calibrated(mut ranks: Vec<f64>) -> [f64; LEVELS.len()] {
    ranks.sort_unstable_by(f64::total_cmp);
    let count = ranks.len() as f64;
    let certain = count / (count + UNCALIBRATED);
    LEVELS.map(|level| {
        let found = quantile(&ranks, level).unwrap_or(level);
        certain * found + (1.0 - certain) * level
    })
}

const CANDIDATES: [f64; 8] = [0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 50.0, 1e6];

/// Its multiples modulo one are evenly spread.
const GOLDEN: f64 = 0.618_033_988_749_895;

/// Passes over the levels.
const ROUNDS: usize = 2;

/// Starts below which the defaults stay.
const MIN_STARTS: usize = 50;
/// Visits that are tried: the half of them are no starts.
const MAX_STARTS: usize = 1_200;
const PER_CLIENT: usize = 8;

/// Ranks from which the calibration counts half.
const UNCALIBRATED: f64 = 100.0;

/// Levels that say nothing about a new client, and about a new network.
const NEW_CLIENT: usize = 2;
const NEW_NETWORK: usize = KAPPAS;

/// A loss that is larger by this factor may be chance.
pub(super) const HARDLY: f64 = 1.004;
