//! Groups of similar trajectories, for more clouds than can be merged exactly.
//!
//! The group with the largest sum of squares is divided in two at its mean, along its first principal
//! component (Boley 1998), until there are enough. The cost is proportional to the number of clouds.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::distance::{Points, fold, squared};
use crate::trajectory::BINS;

/// Groups of trajectories.
#[derive(Debug)]
pub(super) struct Groups {
    /// Group of each trajectory.
    pub(super) of: Vec<usize>,
    /// Mean of the members of each group, with their number as the weight.
    pub(super) means: Points,
    /// Sum of squared distances to the means of the groups.
    pub(super) within: f64,
}

/// Divides trajectories into at most `most` groups. If there are no more trajectories than that, each
/// is a group.
pub(super) fn partition(points: Points, most: usize) -> Groups {
    if points.len() <= most {
        return Groups {
            of: (0..points.len()).collect(),
            means: points,
            within: 0.0,
        };
    }
    let all = (0..points.len() as u32).collect();
    let mut heap = BinaryHeap::from([cell(&points, all)]);
    let mut done: Vec<Cell> = Vec::new();
    while heap.len() + done.len() < most {
        let Some(next) = heap.pop() else { break };
        match divide(&points, &next) {
            Some((low, high)) => heap.extend([cell(&points, low), cell(&points, high)]),
            None => done.push(next),
        }
    }
    done.extend(heap);
    // In order of the first member, independent of the order in the heap.
    done.sort_by_key(|cell| cell.members[0]);
    let mut of = vec![0; points.len()];
    let mut means = Points::default();
    for (group, cell) in done.iter().enumerate() {
        means.push(&cell.mean, cell.members.len() as f64);
        for member in &cell.members {
            of[*member as usize] = group;
        }
    }
    Groups {
        of,
        means,
        within: done.iter().map(|cell| cell.squares).sum(),
    }
}

/// A group while groups are divided.
#[derive(Debug)]
struct Cell {
    members: Vec<u32>,
    mean: Vec<f32>,
    /// Sum of squared distances to the mean.
    squares: f64,
}

impl Ord for Cell {
    fn cmp(&self, other: &Self) -> Ordering {
        let squares = self.squares.total_cmp(&other.squares);
        squares.then_with(|| self.members[0].cmp(&other.members[0]))
    }
}

impl PartialOrd for Cell {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Cell {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Cell {}

fn cell(points: &Points, members: Vec<u32>) -> Cell {
    let mut sums = [0.0_f64; BINS];
    for member in &members {
        for (sum, value) in sums.iter_mut().zip(points.row(*member as usize)) {
            *sum += f64::from(*value);
        }
    }
    let count = members.len() as f64;
    let mean: Vec<f32> = sums.iter().map(|sum| (sum / count) as f32).collect();
    let apart = |member: &u32| f64::from(squared(points.row(*member as usize), &mean));
    let squares = members.iter().map(apart).sum();
    Cell {
        members,
        mean,
        squares,
    }
}

/// The members on each side of the mean along the first principal component; `None` if all members
/// are equal.
fn divide(points: &Points, cell: &Cell) -> Option<(Vec<u32>, Vec<u32>)> {
    let axis = principal_component(points, cell)?;
    let offset = fold(&cell.mean, &axis, |m, v| m * v);
    let along = |member: u32| fold(points.row(member as usize), &axis, |a, v| a * v);
    let (high, low): (Vec<u32>, Vec<u32>) = cell
        .members
        .iter()
        .partition(|member| along(**member) > offset);
    (!high.is_empty() && !low.is_empty()).then_some((low, high))
}

/// By the power method, from the member farthest from the mean.
fn principal_component(points: &Points, cell: &Cell) -> Option<Vec<f32>> {
    let rows = || {
        cell.members
            .iter()
            .map(|member| points.row(*member as usize))
    };
    let apart = |row: &&[f32]| squared(row, &cell.mean);
    let farthest = rows().max_by(|a, b| apart(a).total_cmp(&apart(b)))?;
    let mut axis: Vec<f32> = farthest.to_vec();
    for (value, mean) in axis.iter_mut().zip(&cell.mean) {
        *value -= mean;
    }
    for _ in 0..ITERATIONS {
        normalise(&mut axis)?;
        let offset = fold(&cell.mean, &axis, |m, v| m * v);
        let mut next = vec![0.0_f32; BINS];
        for row in rows() {
            let along = fold(row, &axis, |a, v| a * v) - offset;
            for ((next, value), mean) in next.iter_mut().zip(row).zip(&cell.mean) {
                *next += along * (value - mean);
            }
        }
        axis = next;
    }
    normalise(&mut axis)?;
    Some(axis)
}

fn normalise(axis: &mut [f32]) -> Option<()> {
    let length = fold(axis, axis, |a, b| a * b).sqrt();
    let is_usable = length.is_finite() && length > 1e-12;
    for value in axis.iter_mut() {
        *value /= length;
    }
    is_usable.then_some(())
}

/// Steps of the power method. The division needs no exact component.
const ITERATIONS: usize = 4;
