//! Predictors without a model.

use super::Part;

/// The newest value.
pub(super) fn last(series: &[f64]) -> Part {
    let errors = series.windows(2).map(|pair| pair[1] - pair[0]).collect();
    Part::new(series[series.len() - 1], errors, 0)
}

/// The moving average.
pub(super) fn ewma(series: &[f64]) -> Part {
    let mut mean = series[0];
    let mut errors = Vec::with_capacity(series.len());
    for value in &series[1..] {
        errors.push(value - mean);
        mean += GAIN * (value - mean);
    }
    Part::new(mean, errors, 0)
}

/// Quantiles of the newest values, as errors of their median.
pub(super) fn moving_quantile(series: &[f64]) -> Part {
    let newest = &series[series.len().saturating_sub(RECENT)..];
    let median = crate::robust::median(&mut newest.to_vec());
    let errors = newest.iter().map(|value| value - median).collect();
    Part::new(median, errors, 0)
}

/// The median of the newest values, with its errors at the values that followed.
pub(super) fn moving_median(series: &[f64]) -> Part {
    let median = |until: usize| {
        let newest = &series[until.saturating_sub(RECENT)..until];
        crate::robust::median(&mut newest.to_vec())
    };
    let errors = (1..series.len())
        .map(|at| series[at] - median(at))
        .collect();
    Part::new(median(series.len()), errors, 0)
}

/// Weight of a new value. Chosen on synthetic days other than those of the published figures.
const GAIN: f64 = 0.3;

/// Values of the moving quantile.
const RECENT: usize = 32;
