//! Distances of trajectories.

use crate::trajectory::{BINS, Trajectory};

/// Trajectories, missing bins interpolated, as rows of one table.
#[derive(Debug, Default)]
pub(super) struct Points {
    values: Vec<f32>,
    weights: Vec<f64>,
}

impl Points {
    /// Rows of trajectories, each of which has at least one bin.
    pub(super) fn of(trajectories: &[Trajectory]) -> Self {
        let mut points = Self::default();
        for trajectory in trajectories {
            match trajectory.filled() {
                Some(filled) => points.push(filled.bins(), 1.0),
                None => points.push(&[0.0; BINS], 1.0),
            }
        }
        points
    }

    /// Adds a row that stands for so many clouds.
    pub(super) fn push(&mut self, row: &[f32], weight: f64) {
        self.values.extend_from_slice(row);
        self.weights.push(weight);
    }

    pub(super) fn len(&self) -> usize {
        self.weights.len()
    }

    pub(super) fn row(&self, i: usize) -> &[f32] {
        &self.values[i * BINS..][..BINS]
    }

    pub(super) fn weight(&self, i: usize) -> f64 {
        self.weights[i]
    }
}

/// Squared Euclidean distance.
pub(super) fn squared(a: &[f32], b: &[f32]) -> f32 {
    fold(a, b, |a, b| (a - b) * (a - b))
}

/// Sum over bins in parallel parts, which the compiler maps to vector registers.
pub(super) fn fold(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut sums = [0.0_f32; LANES];
    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        for lane in 0..LANES {
            sums[lane] += term(a[lane], b[lane]);
        }
    }
    sums.iter().sum()
}

/// A divisor of [`BINS`].
const LANES: usize = 16;
