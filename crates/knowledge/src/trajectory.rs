//! Trajectories: the bandwidth of a cloud over a day.

/// Bins of a day: five minutes each.
pub const BINS: usize = 288;

/// Bandwidth over 24 hours, in bins that may be missing. Values are base-two logarithms of rates in
/// b/s, so that distances are ratios: with rates, Euclidean distances would be those of the fastest
/// clouds alone.
#[derive(Clone, Debug)]
pub struct Trajectory {
    /// `NaN` is a missing bin.
    bins: Box<[f32]>,
}

impl Trajectory {
    /// A trajectory without any bin.
    pub fn missing() -> Self {
        Self {
            bins: vec![f32::NAN; BINS].into(),
        }
    }

    /// A trajectory from the value of each bin; `NaN` is missing.
    ///
    /// # Panics
    /// If the number of bins is not [`BINS`].
    pub fn from_bins(bins: Vec<f32>) -> Self {
        assert_eq!(bins.len(), BINS, "a trajectory has {BINS} bins");
        Self { bins: bins.into() }
    }

    /// All bins; `NaN` is missing.
    pub fn bins(&self) -> &[f32] {
        &self.bins
    }

    /// The value of a bin, or `None` if it is missing.
    pub fn get(&self, bin: usize) -> Option<f32> {
        self.bins.get(bin).copied().filter(|v| !v.is_nan())
    }

    /// Sets a bin. A value that is not finite makes it missing.
    pub fn set(&mut self, bin: usize, value: f32) {
        self.bins[bin] = if value.is_finite() { value } else { f32::NAN };
    }

    /// Number of bins with a value.
    pub fn present(&self) -> usize {
        self.bins.iter().filter(|v| !v.is_nan()).count()
    }

    /// Mean of the bins with a value; `None` without any.
    pub fn mean(&self) -> Option<f32> {
        let known = self.bins.iter().filter(|v| !v.is_nan());
        let (sum, count) = known.fold((0.0, 0_u32), |(s, n), v| (s + f64::from(*v), n + 1));
        (count > 0).then(|| (sum / f64::from(count)) as f32)
    }

    /// The same with missing bins interpolated between their neighbours, around midnight. `None`
    /// without any bin.
    pub fn filled(&self) -> Option<Self> {
        let known: Vec<usize> = (0..BINS).filter(|bin| !self.bins[*bin].is_nan()).collect();
        let first = *known.first()?;
        let mut bins = self.bins.to_vec();
        for (i, from) in known.iter().enumerate() {
            let (to, distance) = match known.get(i + 1) {
                Some(next) => (*next, next - from),
                None => (first, first + BINS - from),
            };
            let (start, end) = (self.bins[*from], self.bins[to]);
            for step in 1..distance {
                let share = step as f32 / distance as f32;
                bins[(from + step) % BINS] = start + share * (end - start);
            }
        }
        Some(Self { bins: bins.into() })
    }
}

/// Missing bins are equal.
impl PartialEq for Trajectory {
    fn eq(&self, other: &Self) -> bool {
        (0..BINS).all(|bin| self.get(bin) == other.get(bin))
    }
}

/// Base-two logarithm of a rate in b/s. Rates below 1 b/s count as 1 b/s.
pub fn log2(rate: tidegate_core::units::Rate) -> f64 {
    libm::log2(rate.as_f64().max(1.0))
}

/// Rate of a base-two logarithm.
pub fn exp2(log2: f64) -> tidegate_core::units::Rate {
    tidegate_core::units::Rate::from_f64(libm::exp2(log2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_bins_are_interpolated_around_midnight() {
        let mut trajectory = Trajectory::missing();
        assert_eq!(trajectory.filled(), None);
        trajectory.set(10, 20.0);
        trajectory.set(286, 22.0);
        let filled = trajectory.filled().expect("two bins");
        assert_eq!(filled.present(), BINS);
        assert_eq!(filled.get(148), Some(21.0));
        // Twelve bins lie between bin 286 and bin 10 of the next day.
        let at_midnight = filled.get(4).expect("filled");
        assert!((at_midnight - 21.0).abs() < 1e-5, "{at_midnight}");
        assert_eq!(trajectory.present(), 2);
        assert_eq!(trajectory.mean(), Some(21.0));
    }

    #[test]
    fn a_value_that_is_no_number_is_missing() {
        let mut trajectory = Trajectory::missing();
        trajectory.set(3, f32::INFINITY);
        assert_eq!(trajectory.get(3), None);
    }
}
