//! Rows of a group from the values of its runs.

use super::metrics::mean;
use super::{Cell, Criterion, Gate, Group, Over, Row};
use crate::rmcat::Bound;

/// Values of one subject in a group.
pub(super) struct Values {
    /// By cell and seed: values of the criteria.
    pub(super) runs: Vec<Vec<Vec<f64>>>,
    /// Mean rate of a flow by cell, over the seeds, in b/s.
    pub(super) rates: Vec<f64>,
}

/// Values of the runs to which others are compared.
#[derive(Clone, Copy)]
pub(super) struct References<'a> {
    /// All flows of TCP.
    pub(super) tcp: Option<&'a Values>,
    pub(super) tfrc: Option<&'a Values>,
}

/// Rows of the controller `name`, in the order of the points and criteria.
pub(super) fn judge(
    group: &Group,
    cells: &[Cell],
    (name, values): (&str, &Values),
    references: References<'_>,
) -> Vec<Row> {
    let mut points: Vec<&str> = Vec::new();
    for point in cells.iter().flat_map(|cell| &cell.rows) {
        if !points.contains(&point.as_str()) {
            points.push(point);
        }
    }
    let mut rows = Vec::new();
    for point in points {
        let of_point: Vec<usize> = (0..cells.len())
            .filter(|cell| cells[*cell].rows.iter().any(|row| row == point))
            .collect();
        for (n, criterion) in group.criteria.iter().enumerate() {
            let grid = |values: &Values| grid(values, &of_point, (n, criterion), references.tcp);
            let own = grid(values);
            let (measured, least, most) = criterion.over.summary(&own);
            let path = criterion.over.worst(&own);
            let path = path.and_then(|cell| cells[of_point[cell]].path.clone());
            let gate = match criterion.gate {
                Gate::Required(bound) => Some(bound),
                Gate::RequiredAt(list) => {
                    let here = list.iter().find(|(at, _)| *at == point);
                    here.map(|(_, bound)| *bound)
                }
                // TFRC is not judged by itself.
                Gate::AtLeastTfrc => references
                    .tfrc
                    .filter(|tfrc| !core::ptr::eq(*tfrc, values))
                    .map(|tfrc| Bound::AtLeast(criterion.over.summary(&grid(tfrc)).0)),
                Gate::None => None,
            };
            rows.push(Row {
                group: group.name,
                point: point.to_owned(),
                what: criterion.what,
                control: name.to_owned(),
                path,
                unit: criterion.unit,
                measured,
                least,
                most,
                cells: of_point.len(),
                seeds: own.first().map_or(0, Vec::len) as u64,
                gate,
                holds: gate.map(|gate| gate.holds(measured)),
                aim: criterion.aim,
                reached: criterion.aim.map(|aim| aim.holds(measured)),
            });
        }
    }
    rows
}

/// Values of a criterion by cell and seed.
fn grid(
    values: &Values,
    cells: &[usize],
    (n, criterion): (usize, &Criterion),
    tcp: Option<&Values>,
) -> Vec<Vec<f64>> {
    let of_cell = |cell: &usize| {
        let unit = match (criterion.of_tcp_share, tcp) {
            (false, _) => 1.0,
            (true, Some(tcp)) => tcp.rates[*cell],
            (true, None) => f64::NAN,
        };
        let seeds = values.runs[*cell].iter();
        seeds.map(|values| values[n] / unit).collect()
    };
    cells.iter().map(of_cell).collect()
}

impl Over {
    /// Index of the cell that has the measured value, if it is that of one cell.
    fn worst(self, grid: &[Vec<f64>]) -> Option<usize> {
        if !matches!(self, Self::Least | Self::Most) {
            return None;
        }
        let mut cells: Vec<(usize, f64)> =
            grid.iter().map(|seeds| mean(seeds)).enumerate().collect();
        cells.sort_by(|a, b| a.1.total_cmp(&b.1));
        // The sign of a NaN depends on the processor, and so does its place.
        let unmeasured = cells.iter().find(|(_, value)| value.is_nan());
        let cell = unmeasured.or(match self {
            Self::Least => cells.first(),
            _ => cells.last(),
        });
        cell.map(|(cell, _)| *cell)
    }

    /// The number, and its lowest and highest value over the seeds.
    fn summary(self, grid: &[Vec<f64>]) -> (f64, f64, f64) {
        let means = || grid.iter().map(|seeds| mean(seeds));
        let all = || -> Vec<f64> {
            let mut all = grid.concat();
            all.sort_by(f64::total_cmp);
            all
        };
        match self {
            Self::Mean => {
                let by_seed = by_seed(grid, mean);
                (mean(&all()), lowest(&by_seed), highest(&by_seed))
            }
            Self::Count(bound) => {
                let count =
                    |values: &[f64]| values.iter().filter(|v| bound.holds(**v)).count() as f64;
                let by_seed = by_seed(grid, count);
                let whole = count(&means().collect::<Vec<_>>());
                (whole, lowest(&by_seed), highest(&by_seed))
            }
            Self::Least | Self::Most => {
                let worst = self.worst(grid).map(|cell| &grid[cell]);
                worst.map_or((f64::NAN, f64::NAN, f64::NAN), |seeds| {
                    (mean(seeds), lowest(seeds), highest(seeds))
                })
            }
            Self::Median => {
                let all = all();
                let middle = all.get(all.len().saturating_sub(1) / 2);
                let unmeasured = all.iter().find(|value| value.is_nan());
                let median = unmeasured.or(middle).copied().unwrap_or(f64::NAN);
                (median, lowest(&all), highest(&all))
            }
            Self::Maximum => {
                let all = all();
                (highest(&all), lowest(&all), highest(&all))
            }
            Self::LastOverFirst => {
                let ratio = |cells: &[f64]| match cells {
                    [first, .., last] => last / first,
                    _ => f64::NAN,
                };
                let by_seed = by_seed(grid, ratio);
                let whole = ratio(&means().collect::<Vec<_>>());
                (whole, lowest(&by_seed), highest(&by_seed))
            }
        }
    }
}

/// `of` the cells of each seed.
fn by_seed(grid: &[Vec<f64>], of: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let seeds = grid.first().map_or(0, Vec::len);
    let of_seed = |seed: usize| {
        let cells: Vec<f64> = grid.iter().map(|cell| cell[seed]).collect();
        of(&cells)
    };
    (0..seeds).map(of_seed).collect()
}

/// NaN if any value is: what could not be measured does not hold.
fn lowest(values: &[f64]) -> f64 {
    values
        .iter()
        .copied()
        .reduce(|a, b| if b < a || b.is_nan() { b } else { a })
        .unwrap_or(f64::NAN)
}

fn highest(values: &[f64]) -> f64 {
    values
        .iter()
        .copied()
        .reduce(|a, b| if b > a || b.is_nan() { b } else { a })
        .unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Vec<Vec<f64>> {
        vec![vec![1.0, 3.0], vec![5.0, 1.0], vec![4.0, 8.0]]
    }

    #[test]
    fn summaries_of_cells_and_seeds() {
        // Means of the cells are 2, 3 and 6.
        for (over, want) in [
            (Over::Mean, (22.0 / 6.0, 10.0 / 3.0, 4.0)),
            (Over::Count(Bound::AtLeast(3.0)), (2.0, 2.0, 2.0)),
            (Over::Count(Bound::AtMost(1.0)), (0.0, 1.0, 1.0)),
            (Over::Least, (2.0, 1.0, 3.0)),
            (Over::Most, (6.0, 4.0, 8.0)),
            (Over::Median, (3.0, 1.0, 8.0)),
            (Over::Maximum, (8.0, 1.0, 8.0)),
            (Over::LastOverFirst, (3.0, 8.0 / 3.0, 4.0)),
        ] {
            let got = over.summary(&grid());
            let pairs = [(got.0, want.0), (got.1, want.1), (got.2, want.2)];
            assert!(
                pairs.iter().all(|(a, b)| (a - b).abs() < 1e-12),
                "{over:?}: {got:?}"
            );
        }
    }

    #[test]
    fn unmeasured_values_hold_no_gate() {
        let overs = [
            Over::Mean,
            Over::Least,
            Over::Most,
            Over::Median,
            Over::Maximum,
        ];
        for nan in [f64::NAN, -f64::NAN] {
            let grid = [vec![1.0, nan], vec![1.0, 1.0]];
            for over in overs {
                let (measured, ..) = over.summary(&grid);
                assert!(!Bound::AtLeast(0.0).holds(measured), "{over:?}");
                assert!(!Bound::AtMost(9.0).holds(measured), "{over:?}");
            }
            let (count, ..) = Over::Count(Bound::AtLeast(1.0)).summary(&grid);
            assert!((count - 1.0).abs() < 1e-12);
        }
    }
}
