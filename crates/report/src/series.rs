//! Aggregation of rows to the points of a line.

/// Statistics of values over time, in bins of equal length.
#[derive(Clone, Debug)]
pub struct Bins {
    from: f64,
    to: f64,
    width: f64,
    all: Vec<Bin>,
}

/// Statistics of one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bin {
    /// Number of values.
    pub count: u64,
    /// Sum of the values.
    pub sum: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
}

impl Bin {
    /// Mean of the values, of which there is at least one.
    pub fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }
}

impl Bins {
    /// Bins of `width` seconds over `from..to`, filled with pairs of time and value.
    pub fn new(from: f64, to: f64, width: f64, values: impl Iterator<Item = (f64, f64)>) -> Self {
        let mut bins = Self::empty(from, to, width);
        for (at, value) in values {
            bins.add(at, value);
        }
        bins
    }

    /// Bins without values.
    pub fn empty(from: f64, to: f64, width: f64) -> Self {
        let count = ((to - from) / width).ceil().max(1.0) as usize;
        Self {
            from,
            to,
            width,
            all: vec![Bin::default(); count],
        }
    }

    /// Adds a value; values outside of the range are ignored.
    pub fn add(&mut self, at: f64, value: f64) {
        if at < self.from || at > self.to || !value.is_finite() {
            return;
        }
        let index = (((at - self.from) / self.width) as usize).min(self.all.len() - 1);
        let bin = &mut self.all[index];
        (bin.min, bin.max) = if bin.count == 0 {
            (value, value)
        } else {
            (bin.min.min(value), bin.max.max(value))
        };
        bin.count += 1;
        bin.sum += value;
    }

    /// Bins with values, with the times of their centres.
    pub fn filled(&self) -> impl Iterator<Item = (f64, &Bin)> + '_ {
        self.iter().filter(|(_, bin)| bin.count > 0)
    }

    /// All bins, with the times of their centres.
    pub fn iter(&self) -> impl Iterator<Item = (f64, &Bin)> + '_ {
        let middle = |i: usize| self.from + (i as f64 + 0.5) * self.width;
        self.all
            .iter()
            .enumerate()
            .map(move |(i, b)| (middle(i), b))
    }

    /// Length of a bin, in seconds.
    pub fn width(&self) -> f64 {
        self.width
    }

    /// Lines through `value` of each filled bin, interrupted at empty bins.
    pub fn pieces(&self, value: impl Fn(&Bin) -> f64) -> Vec<Vec<(f64, f64)>> {
        let mut pieces = vec![Vec::new()];
        for (at, bin) in self.iter() {
            if bin.count > 0 {
                pieces
                    .last_mut()
                    .expect("never empty")
                    .push((at, value(bin)));
            } else if pieces.last().is_some_and(|piece| !piece.is_empty()) {
                pieces.push(Vec::new());
            }
        }
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }

    /// Sums of all bins between the first and the last filled one; empty bins count as zero.
    pub fn totals(&self) -> Vec<(f64, f64)> {
        let filled = |b: &Bin| b.count > 0;
        let first = self.all.iter().position(filled).unwrap_or(0);
        let last = self.all.iter().rposition(filled).map_or(0, |i| i + 1);
        let all = self.iter().map(|(at, bin)| (at, bin.sum));
        all.take(last).skip(first).collect()
    }
}

/// Corners of a step function: each value holds until the next one, the last until `end`.
pub fn steps(values: impl Iterator<Item = (f64, f64)>, end: f64) -> Vec<(f64, f64)> {
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for (at, value) in values {
        if let Some(last) = corners.last().copied() {
            if last.1.to_bits() == value.to_bits() {
                continue;
            }
            corners.push((at, last.1));
        }
        corners.push((at, value));
    }
    if let Some(last) = corners.last().copied() {
        corners.push((end.max(last.0), last.1));
    }
    corners
}

/// Keeps of each interval of `width` the first, the minimum, the maximum and the last point, so
/// that the drawn line is the same.
pub fn thin(points: &[(f64, f64)], width: f64) -> Vec<(f64, f64)> {
    let mut thinned = Vec::new();
    let mut rest = points;
    while let Some(first) = rest.first() {
        let column = (first.0 / width).floor();
        let end = rest
            .partition_point(|p| (p.0 / width).floor() <= column)
            .max(1);
        let (here, later) = rest.split_at(end);
        if here.len() <= 4 {
            thinned.extend_from_slice(here);
        } else {
            let by_value = |a: &usize, b: &usize| here[*a].1.total_cmp(&here[*b].1);
            let least = (0..here.len()).min_by(by_value).unwrap_or(0);
            let greatest = (0..here.len()).max_by(by_value).unwrap_or(0);
            let mut kept = vec![0, least, greatest, here.len() - 1];
            kept.sort_unstable();
            kept.dedup();
            thinned.extend(kept.into_iter().map(|i| here[i]));
        }
        rest = later;
    }
    thinned
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_break_at_empty_bins() {
        let values = [(0.1, 1.0), (0.2, 3.0), (2.5, 5.0), (9.0, 1.0)];
        let bins = Bins::new(0.0, 4.0, 1.0, values.into_iter());
        let mean = bins.pieces(Bin::mean);
        assert_eq!(mean, [vec![(0.5, 2.0)], vec![(2.5, 5.0)]]);
        assert_eq!(bins.totals(), [(0.5, 4.0), (1.5, 0.0), (2.5, 5.0)]);
    }

    #[test]
    fn steps_have_corners() {
        let corners = steps([(0.0, 1.0), (1.0, 1.0), (2.0, 3.0)].into_iter(), 5.0);
        assert_eq!(corners, [(0.0, 1.0), (2.0, 1.0), (2.0, 3.0), (5.0, 3.0)]);
    }

    proptest! {
        #[test]
        fn thinning_keeps_the_extremes(values in prop::collection::vec(-9.0_f64..9.0, 0..400)) {
            let points: Vec<(f64, f64)> =
                values.iter().enumerate().map(|(i, v)| (i as f64 * 0.1, *v)).collect();
            let thinned = thin(&points, 1.0);
            let extremes = |points: &[(f64, f64)]| {
                let values = points.iter().map(|p| p.1);
                (values.clone().fold(f64::MAX, f64::min), values.fold(f64::MIN, f64::max))
            };
            prop_assert_eq!(extremes(&points), extremes(&thinned));
            prop_assert!(thinned.len() <= 4 * (points.len() / 10 + 1));
        }
    }
}
