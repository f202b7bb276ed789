//! Weighted samples, some of them lower bounds, as one distribution.

/// A value with its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    /// Base-two logarithm of a rate in b/s.
    pub(crate) value: f64,
    /// Weight; positive.
    pub(crate) mass: f64,
    /// The true value is at least this one: the session had no more to send.
    pub(crate) is_bound: bool,
}

/// A distribution of rates: points in increasing order with weights of sum one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mixture(Vec<(f64, f64)>);

impl Mixture {
    /// `None` without points. The weight of a lower bound goes to all larger points in proportion to their
    /// own: the estimate of Kaplan and Meier (Efron 1967, "redistribution to the right"). A bound above
    /// all points counts as a value.
    pub(crate) fn of(mut points: Vec<Point>) -> Option<Self> {
        // A bound that equals a value counts as smaller than it.
        points.sort_unstable_by(|a, b| {
            let by_value = a.value.total_cmp(&b.value);
            by_value.then(b.is_bound.cmp(&a.is_bound))
        });
        let total: f64 = points.iter().map(|point| point.mass).sum();
        if total <= 0.0 {
            return None;
        }
        let mut above = total;
        let mut factor = 1.0 / total;
        let mut settled = Vec::with_capacity(points.len());
        for (index, point) in points.iter().enumerate() {
            above -= point.mass;
            let is_last = index + 1 == points.len();
            if point.is_bound && !is_last && above > 0.0 {
                factor *= 1.0 + point.mass / above;
            } else {
                settled.push((point.value, point.mass * factor));
            }
        }
        Some(Self(settled))
    }

    /// The quantiles of these probabilities, which must not fall. Between the centres of the weights of
    /// two points it is linear.
    pub(crate) fn quantiles<const N: usize>(&self, levels: [f64; N]) -> [f64; N] {
        let mut place = 0;
        // Weight below the point at `place`.
        let mut below = 0.0;
        levels.map(|level| {
            while place + 1 < self.0.len() && below + 0.5 * self.0[place].1 < level {
                below += self.0[place].1;
                place += 1;
            }
            let (value, mass) = self.0[place];
            let centre = below + 0.5 * mass;
            let Some(&(before, smaller)) = place.checked_sub(1).map(|i| &self.0[i]) else {
                return value;
            };
            let from = below - 0.5 * smaller;
            let share = ((level - from) / (centre - from).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
            before + share * (value - before)
        })
    }

    /// Values at equally probable quantiles.
    pub(crate) fn grid(&self) -> Vec<f64> {
        let levels: [f64; GRID] = core::array::from_fn(|i| (i as f64 + 0.5) / GRID as f64);
        self.quantiles(levels).into()
    }

    /// Probability of values at or below `value`.
    pub(crate) fn share_below(&self, value: f64) -> f64 {
        let upto = self.0.partition_point(|(point, _)| *point <= value);
        let below: f64 = self.0[..upto].iter().map(|(_, mass)| mass).sum();
        let Some((from, mass)) = upto.checked_sub(1).map(|i| self.0[i]) else {
            return 0.0;
        };
        let Some((to, next)) = self.0.get(upto) else {
            return 1.0;
        };
        // The inverse of `quantiles`.
        let share = (value - from) / (to - from).max(f64::MIN_POSITIVE);
        below - 0.5 * mass + share * 0.5 * (mass + next)
    }

    /// Probability of values within `distance` of `value`.
    pub(crate) fn share_near(&self, value: f64, distance: f64) -> f64 {
        self.share_below(value + distance) - self.share_below(value - distance)
    }
}

/// Points of a distribution that is kept.
pub(crate) const GRID: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn point(value: f64, mass: f64, is_bound: bool) -> Point {
        Point {
            value,
            mass,
            is_bound,
        }
    }

    /// Ten values, 1 to 10; the bound at 5.5 says nothing about the five smaller ones.
    #[test]
    fn a_bound_raises_what_is_above_it() {
        let values = (1..=10).map(|value| point(f64::from(value), 1.0, false));
        let plain = Mixture::of(values.clone().collect()).unwrap();
        let bounds = (0..10).map(|_| point(5.5, 1.0, true));
        let bounded = Mixture::of(values.chain(bounds).collect()).unwrap();
        assert!((plain.share_below(5.5) - 0.5).abs() < 0.06);
        assert!((bounded.share_below(5.5) - 0.25).abs() < 0.06);
        let [plain, bounded] = [plain, bounded].map(|all| all.quantiles([0.5])[0]);
        assert!(plain < 6.0 && bounded > 7.0, "{plain} {bounded}");
    }

    /// One stream of 300 kb/s among sessions of 2 Mb/s does not count as a slow path.
    #[test]
    fn a_slow_title_is_no_slow_path() {
        let mut points = vec![point(18.2, 1.0, true)];
        points.extend((0..3).map(|_| point(21.0, 1.0, false)));
        let all = Mixture::of(points).unwrap();
        assert!((all.quantiles([0.05])[0] - 21.0).abs() < 1e-9);
        // If nothing else is known, the bound is the only value.
        let alone = Mixture::of(vec![point(18.2, 1.0, true)]).unwrap();
        assert!((alone.quantiles([0.5])[0] - 18.2).abs() < 1e-9);
        assert_eq!(Mixture::of(Vec::new()), None);
    }

    proptest! {
        #[test]
        fn quantiles_rise_and_weights_are_whole(
            values in prop::collection::vec((0.0..40.0_f64, 0.01..9.0_f64, any::<bool>()), 1..60),
        ) {
            let points = values.iter().map(|(value, mass, bound)| point(*value, *mass, *bound));
            let all = Mixture::of(points.collect()).unwrap();
            let sum: f64 = all.0.iter().map(|(_, mass)| mass).sum();
            prop_assert!((sum - 1.0).abs() < 1e-6, "{sum}");
            let grid = all.grid();
            prop_assert!(grid.is_sorted(), "{grid:?}");
            for level in [0.05, 0.5, 0.9] {
                let value = all.quantiles([level])[0];
                let (first, last) = (all.0[0], all.0[all.0.len() - 1]);
                if value > first.0 && value < last.0 {
                    prop_assert!((all.share_below(value) - level).abs() < 0.02 + first.1.max(last.1));
                }
            }
        }
    }
}
