//! Ward's hierarchy by the nearest-neighbour chain.

use std::thread;

use super::distance::{Points, squared};

/// One merger of two clusters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Merge {
    /// A point of each of the two.
    pub(super) points: (usize, usize),
    /// Increase of the sum of squares.
    pub(super) increase: f64,
}

/// All mergers, the least increase first.
///
/// A chain of nearest neighbours ends in two clusters that are each other's nearest. Merging these
/// at once gives the same hierarchy as merging the nearest pair of all, since a merger brings no
/// cluster nearer to a third one (Murtagh 1983).
pub(super) fn merge(points: &Points) -> Vec<Merge> {
    let n = points.len();
    let mut apart = Matrix::of(points);
    let mut weights: Vec<f64> = (0..n).map(|i| points.weight(i)).collect();
    let mut is_active = vec![true; n];
    let mut merges = Vec::with_capacity(n.saturating_sub(1));
    let mut chain: Vec<usize> = Vec::new();
    let mut first = 0;
    while merges.len() + 1 < n {
        if chain.is_empty() {
            while !is_active[first] {
                first += 1;
            }
            chain.push(first);
        }
        let end = chain[chain.len() - 1];
        let previous = chain.len().checked_sub(2).map(|i| chain[i]);
        let (next, increase) = apart.nearest(end, previous);
        if previous != Some(next) {
            chain.push(next);
            continue;
        }
        chain.truncate(chain.len() - 2);
        apart.join(end, next, &weights, &is_active);
        weights[end] += weights[next];
        is_active[next] = false;
        merges.push(Merge {
            points: (end, next),
            increase: f64::from(increase),
        });
    }
    merges.sort_by(|a, b| a.increase.total_cmp(&b.increase));
    merges
}

/// Label of each point, 0..`count`, when all mergers but the last `count` - 1 are made.
pub(super) fn cut(merges: &[Merge], points: usize, count: usize) -> Vec<usize> {
    let mut parents: Vec<usize> = (0..points).collect();
    for merge in &merges[..points.saturating_sub(count)] {
        let a = root(&mut parents, merge.points.0);
        let b = root(&mut parents, merge.points.1);
        parents[b] = a;
    }
    let mut labels = vec![usize::MAX; points];
    let mut next = 0;
    (0..points)
        .map(|point| {
            let root = root(&mut parents, point);
            if labels[root] == usize::MAX {
                labels[root] = next;
                next += 1;
            }
            labels[root]
        })
        .collect()
}

fn root(parents: &mut [usize], mut point: usize) -> usize {
    while parents[point] != point {
        parents[point] = parents[parents[point]];
        point = parents[point];
    }
    point
}

/// Increase of the sum of squares by the merger of each pair. Infinite on the diagonal and for
/// clusters that were merged into others.
struct Matrix {
    n: usize,
    cells: Vec<f32>,
}

impl Matrix {
    fn of(points: &Points) -> Self {
        let n = points.len();
        let mut cells = vec![f32::INFINITY; n * n];
        let workers = thread::available_parallelism().map_or(1, usize::from);
        // Rows in turn, so that each thread has short and long ones.
        let mut rows: Vec<Vec<(usize, &mut [f32])>> = (0..workers).map(|_| Vec::new()).collect();
        for (i, row) in cells.chunks_mut(n.max(1)).enumerate() {
            rows[i % workers].push((i, row));
        }
        thread::scope(|scope| {
            for rows in rows {
                scope.spawn(move || {
                    for (i, row) in rows {
                        for (j, cell) in row.iter_mut().enumerate().take(i) {
                            let (a, b) = (points.weight(i), points.weight(j));
                            *cell =
                                (a * b / (a + b)) as f32 * squared(points.row(i), points.row(j));
                        }
                    }
                });
            }
        });
        for i in 0..n {
            for j in 0..i {
                cells[j * n + i] = cells[i * n + j];
            }
        }
        Self { n, cells }
    }

    /// Nearest cluster; `preferred` if several are.
    fn nearest(&self, i: usize, preferred: Option<usize>) -> (usize, f32) {
        let row = &self.cells[i * self.n..][..self.n];
        let mut best = match preferred {
            Some(j) => (j, row[j]),
            None => (0, f32::INFINITY),
        };
        for (j, apart) in row.iter().enumerate() {
            if *apart < best.1 {
                best = (j, *apart);
            }
        }
        best
    }

    /// Merges cluster `b` into cluster `a`: the formula of Lance and Williams for Ward's criterion.
    fn join(&mut self, a: usize, b: usize, weights: &[f64], is_active: &[bool]) {
        let n = self.n;
        let (of_a, of_b) = (weights[a], weights[b]);
        let between = f64::from(self.cells[a * n + b]);
        for c in 0..n {
            if c == a || c == b || !is_active[c] {
                continue;
            }
            let of_c = weights[c];
            let [to_a, to_b] = [a, b].map(|k| f64::from(self.cells[k * n + c]));
            let sum = (of_a + of_c) * to_a + (of_b + of_c) * to_b - of_c * between;
            let apart = (sum / (of_a + of_b + of_c)) as f32;
            self.cells[a * n + c] = apart;
            self.cells[c * n + a] = apart;
            self.cells[c * n + b] = f32::INFINITY;
        }
        self.cells[b * n..][..n].fill(f32::INFINITY);
        self.cells[a * n + b] = f32::INFINITY;
    }
}
