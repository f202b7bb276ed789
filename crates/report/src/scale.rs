//! Axes: scales, ticks and tick labels.

/// Linear map from values to pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Value at `start`.
    pub from: f64,
    /// Value at `end`.
    pub to: f64,
    /// Position of `from`, in pixels.
    pub start: f64,
    /// Position of `to`, in pixels.
    pub end: f64,
}

impl Scale {
    /// Position of `value`, in pixels.
    pub fn at(&self, value: f64) -> f64 {
        let span = self.to - self.from;
        if span == 0.0 {
            return self.start;
        }
        self.start + (value - self.from) / span * (self.end - self.start)
    }
}

/// Ticks at round values, and their number format.
#[derive(Clone, Debug, PartialEq)]
pub struct Ticks {
    /// In ascending order.
    pub values: Vec<f64>,
    decimals: usize,
}

impl Ticks {
    /// Creates about `count` ticks at round values in `from..=to`.
    pub fn round(from: f64, to: f64, count: usize) -> Self {
        Self::every(from, to, round_step((to - from) / count.max(1) as f64))
    }

    /// Creates ticks in seconds: from a minute on, steps divide minutes and hours.
    pub fn seconds(from: f64, to: f64, count: usize) -> Self {
        let wanted = (to - from) / count.max(1) as f64;
        let step = MINUTES.into_iter().find(|step| *step >= wanted);
        let step = step.filter(|step| *step > 10.0);
        Self::every(from, to, step.unwrap_or_else(|| round_step(wanted)))
    }

    fn every(from: f64, to: f64, step: f64) -> Self {
        let decimals = (0..6).find(|d| {
            let scaled = step * 10_f64.powi(*d);
            (scaled - scaled.round()).abs() < 1e-6
        });
        let first = (from / step - 1e-9).ceil();
        let count = ((to / step + 1e-9).floor() - first).max(0.0) as usize;
        Self {
            values: (0..=count).map(|i| (first + i as f64) * step).collect(),
            decimals: decimals.unwrap_or(6) as usize,
        }
    }

    /// The values with their labels.
    pub fn labelled(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        let decimals = self.decimals;
        self.values
            .iter()
            .map(move |v| (*v, format!("{:.decimals$}", v + 0.0)))
    }
}

/// Smallest multiple of a round step that is at least `value`, for about `count` steps.
pub fn round_top(value: f64, count: usize) -> f64 {
    let value = if value > 0.0 { value } else { 1.0 };
    let step = round_step(value / count.max(1) as f64);
    (value / step - 1e-9).ceil() * step
}

/// Upper edge of a panel of `values`, after about `count` round steps. It is above all values,
/// unless a few outliers would flatten the others: outliers leave the panel.
pub fn top_of(values: impl IntoIterator<Item = f64>, count: usize) -> f64 {
    let mut values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
    values.sort_unstable_by(f64::total_cmp);
    let most = values.last().copied().unwrap_or(0.0);
    let usual = values.get(values.len() * 98 / 100).copied().unwrap_or(most);
    let to = if most > FLAT * usual && usual > 0.0 {
        usual * 1.15
    } else {
        most * 1.04
    };
    round_top(to, count)
}

/// Upper edge of a panel of percentages: 1, 2, 5, 10, 20, 50 or 100, above all `values` except
/// outliers.
pub fn top_of_percent(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().filter(|v| *v > 0.0).collect();
    values.sort_unstable_by(f64::total_cmp);
    let edge = |value: f64| {
        let edges = PERCENT.into_iter();
        edges
            .clone()
            .find(|edge| *edge >= value * (1.0 - 1e-9))
            .unwrap_or(100.0)
    };
    let most = edge(values.last().copied().unwrap_or(0.0));
    let usual = values.get(values.len() * 95 / 100).copied();
    let usual = edge(usual.unwrap_or(0.0));
    if most > 2.0 * usual { usual } else { most }
}

/// The smallest of 1, 2, 2.5, 5 times a power of ten at or above `wanted`.
fn round_step(wanted: f64) -> f64 {
    let wanted = if wanted.is_finite() && wanted > 0.0 {
        wanted
    } else {
        1.0
    };
    let power = 10_f64.powf(wanted.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0].into_iter().map(|m| m * power);
    step.into_iter()
        .find(|step| *step >= wanted * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

/// Values beyond this multiple of the usual ones are outliers.
const FLAT: f64 = 2.5;

const PERCENT: [f64; 7] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];

/// Steps in seconds that divide minutes and hours.
const MINUTES: [f64; 12] = [
    10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0,
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(ticks: &Ticks) -> Vec<String> {
        ticks.labelled().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(labels(&Ticks::round(0.0, 3.0, 4)), ["0", "1", "2", "3"]);
        assert_eq!(
            labels(&Ticks::round(0.0, 0.5, 5)),
            ["0.0", "0.1", "0.2", "0.3", "0.4", "0.5"]
        );
        assert_eq!(
            labels(&Ticks::seconds(0.0, 60.0, 6)),
            ["0", "10", "20", "30", "40", "50", "60"]
        );
        assert_eq!(
            labels(&Ticks::seconds(0.0, 600.0, 8)),
            ["0", "120", "240", "360", "480", "600"]
        );
        assert_eq!(labels(&Ticks::round(30.0, 42.0, 4)), ["30", "35", "40"]);
    }

    #[test]
    fn tops_are_round() {
        for (value, top) in [(2.3, 3.0), (0.0, 1.0), (400.0, 400.0)] {
            assert!((round_top(value, 4) - top).abs() < 1e-9, "{value}");
        }
    }

    #[test]
    fn a_few_high_values_leave_the_panel() {
        let low = [3.0; 99];
        assert!((top_of(low.into_iter().chain([5.5]), 4) - 6.0).abs() < 1e-9);
        assert!((top_of(low.into_iter().chain([900.0]), 4) - 4.0).abs() < 1e-9);
        assert!((top_of([], 4) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn percentages_have_round_edges() {
        let cases: [(&[f64], f64); 6] = [
            (&[], 1.0),
            (&[0.0, 0.5], 1.0),
            (&[1.0, 1.9, 2.0], 2.0),
            (&[3.0], 5.0),
            (&[30.0, 40.0, 51.0], 100.0),
            (&[100.0], 100.0),
        ];
        for (values, top) in cases {
            let found = top_of_percent(values.iter().copied());
            assert!((found - top).abs() < 1e-9, "{values:?}: {found}");
        }
        let outlier = [1.5; 60].into_iter().chain([80.0]);
        assert!((top_of_percent(outlier) - 2.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn ticks_lie_inside_and_are_few(from in -1e6_f64..1e6, span in 1e-3_f64..1e7, count in 2_usize..12) {
            let ticks = Ticks::round(from, from + span, count);
            let slack = span * 1e-6 + 1e-6;
            prop_assert!(ticks.values.len() <= count + 1);
            for value in &ticks.values {
                prop_assert!(*value >= from - slack && *value <= from + span + slack);
            }
        }

        #[test]
        fn a_top_is_above(value in 1e-3_f64..1e9, count in 2_usize..8) {
            let top = round_top(value, count);
            prop_assert!(top >= value * (1.0 - 1e-6) && top <= value * 2.5);
        }
    }
}
