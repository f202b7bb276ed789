//! Histogram of durations.

use core::time::Duration;

use tidegate_core::units::nanos;

/// Count, mean, extremes and quantiles of durations: packet delays, page load times.
///
/// Quantiles come from logarithmic bins with 16 bins per power of two, so their relative error is
/// at most 1/16. The memory is half a kilobyte for each second of the range in use, for any count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    count: u64,
    sum: u128,
    least: Duration,
    most: Duration,
    classes: Vec<u32>,
}

impl Spans {
    /// Adds a duration.
    pub fn add(&mut self, span: Duration) {
        let class = class(span);
        if self.classes.len() <= class {
            self.classes.resize(class + 1, 0);
        }
        self.classes[class] = self.classes[class].saturating_add(1);
        self.least = if self.count == 0 {
            span
        } else {
            self.least.min(span)
        };
        self.most = self.most.max(span);
        self.sum += u128::from(nanos(span));
        self.count += 1;
    }

    /// Adds all durations of another histogram.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.least = if self.count == 0 {
            other.least
        } else {
            self.least.min(other.least)
        };
        self.most = self.most.max(other.most);
        self.sum += other.sum;
        self.count += other.count;
        if self.classes.len() < other.classes.len() {
            self.classes.resize(other.classes.len(), 0);
        }
        for (mine, theirs) in self.classes.iter_mut().zip(&other.classes) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Mean; none if empty.
    pub fn mean(&self) -> Option<Duration> {
        let mean = self.sum.checked_div(u128::from(self.count))?;
        // The mean of values below 2^64 is below 2^64.
        Some(Duration::from_nanos(mean as u64))
    }

    /// Minimum; none if empty.
    pub fn least(&self) -> Option<Duration> {
        (self.count > 0).then_some(self.least)
    }

    /// Maximum; none if empty.
    pub fn most(&self) -> Option<Duration> {
        (self.count > 0).then_some(self.most)
    }

    /// Quantile `q` in 0..=1, rounded up by at most 1/16; none if empty.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let most = self.most()?;
        let wanted = (q.clamp(0.0, 1.0) * self.count as f64) as u64;
        let mut passed = 0;
        for (class, count) in self.classes.iter().enumerate() {
            passed += u64::from(*count);
            if *count > 0 && passed >= wanted {
                return Some(upper_edge(class).min(most));
            }
        }
        Some(most)
    }
}

/// Index of the bin: equal width up to 16 units, then 16 bins per power of two.
fn class(span: Duration) -> usize {
    let units = nanos(span) >> UNIT;
    if units < PER_OCTAVE {
        return units as usize;
    }
    let octave = units.ilog2() - PER_OCTAVE.ilog2();
    let within = (units >> octave) - PER_OCTAVE;
    ((u64::from(octave) + 1) * PER_OCTAVE + within) as usize
}

fn upper_edge(class: usize) -> Duration {
    let class = class as u64;
    let units = match (class / PER_OCTAVE).checked_sub(1) {
        None => class + 1,
        Some(octave) => (PER_OCTAVE + class % PER_OCTAVE + 1) << octave,
    };
    // The last bin ends at 2^64 ns.
    Duration::from_nanos((u128::from(units) << UNIT).min(u128::from(u64::MAX)) as u64)
}

/// The narrowest bin is 2^10 ns wide, about a microsecond.
const UNIT: u32 = 10;
const PER_OCTAVE: u64 = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn empty_histogram_has_no_mean() {
        let none = Spans::default();
        assert_eq!(
            (none.mean(), none.quantile(0.5), none.least()),
            (None, None, None)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn quantiles_are_within_a_sixteenth(list in prop::collection::vec(0_u64..1 << 40, 1..200), extreme: u64, q in 0.0..1.0_f64, split in 0_usize..200) {
            let mut list = list;
            list.push(extreme);
            let (mut all, mut left, mut right) = (Spans::default(), Spans::default(), Spans::default());
            for (n, span) in list.iter().enumerate() {
                let span = Duration::from_nanos(*span);
                all.add(span);
                if n < split { left.add(span) } else { right.add(span) }
            }
            left.merge(&right);
            prop_assert_eq!(&left, &all);
            list.sort_unstable();
            prop_assert_eq!(all.least(), Some(Duration::from_nanos(list[0])));
            let rank = ((q * list.len() as f64) as usize).saturating_sub(1);
            let (exact, found) = (list[rank], nanos(all.quantile(q).unwrap()));
            prop_assert!(found >= exact && found - exact <= exact / 16 + (1 << UNIT), "{} for {}", found, exact);
            let mean = list.iter().map(|x| u128::from(*x)).sum::<u128>() / list.len() as u128;
            prop_assert_eq!(u128::from(nanos(all.mean().unwrap())), mean);
        }
    }
}
