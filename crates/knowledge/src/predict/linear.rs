//! The optimal linear predictor.

use super::Part;

/// Predicts the next value as a linear function of the newest `order` values, with the coefficients of
/// least mean squared error on the estimated autocovariance (Yule-Walker equations, solved by the
/// recursion of Levinson and Durbin). `None` for a series that is too short or does not vary.
pub(super) fn linear(series: &[f64]) -> Option<Part> {
    let order = (series.len() / SAMPLES_PER_COEFFICIENT).min(MAX_COEFFICIENTS);
    if order == 0 {
        return None;
    }
    let mean = series.iter().sum::<f64>() / series.len() as f64;
    let centred: Vec<f64> = series.iter().map(|value| value - mean).collect();
    let coefficients = levinson(&autocovariance(&centred, order))?;
    let predict = |past: &[f64]| {
        let newest_first = past.iter().rev();
        let terms = coefficients.iter().zip(newest_first).map(|(c, v)| c * v);
        terms.sum::<f64>()
    };
    // The same samples give the coefficients and the errors, so these are too small by the degrees of
    // freedom.
    let free = (series.len() - order) as f64;
    let scale = (free / (free - order as f64 - 1.0).max(1.0)).sqrt();
    let errors = (order..centred.len())
        .map(|i| scale * (centred[i] - predict(&centred[i - order..i])))
        .collect();
    let point = mean + predict(&centred);
    Some(Part::new(point, errors, order))
}

/// Biased estimate, which is positive definite.
fn autocovariance(centred: &[f64], order: usize) -> Vec<f64> {
    let count = centred.len() as f64;
    let at = |lag: usize| {
        let pairs = centred[lag..].iter().zip(centred);
        pairs.map(|(a, b)| a * b).sum::<f64>() / count
    };
    (0..=order).map(at).collect()
}

/// Coefficients of the prediction, that of the newest value first.
fn levinson(covariance: &[f64]) -> Option<Vec<f64>> {
    let mut error = covariance[0];
    if error <= MIN_VARIANCE {
        return None;
    }
    let mut coefficients: Vec<f64> = Vec::with_capacity(covariance.len() - 1);
    for order in 1..covariance.len() {
        let known = coefficients.iter().enumerate();
        let explained = known.map(|(i, c)| c * covariance[order - 1 - i]);
        let reflection = (covariance[order] - explained.sum::<f64>()) / error;
        let reversed: Vec<f64> = coefficients.iter().rev().copied().collect();
        for (coefficient, other) in coefficients.iter_mut().zip(reversed) {
            *coefficient -= reflection * other;
        }
        coefficients.push(reflection);
        error *= 1.0 - reflection * reflection;
        if error <= MIN_VARIANCE {
            break;
        }
    }
    Some(coefficients)
}

/// Samples for each coefficient.
const SAMPLES_PER_COEFFICIENT: usize = 12;

/// Maximum number of coefficients.
const MAX_COEFFICIENTS: usize = 16;

/// Variance, in squared octaves, below which a series counts as constant.
const MIN_VARIANCE: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use tidegate_core::random::Seed;

    use super::*;
    use crate::synthetic::{Process, series};

    #[test]
    fn the_coefficients_of_an_autoregressive_process_are_found() {
        // x[t] = 0.6 x[t-1] + 0.3 x[t-2] + noise has the autocovariance r1 = 0.6 r0 + 0.3 r1 and
        // r2 = 0.6 r1 + 0.3 r0.
        let r1 = 0.6 / 0.7;
        let r2 = 0.6 * r1 + 0.3;
        let found = levinson(&[1.0, r1, r2]).expect("a process");
        assert!((found[0] - 0.6).abs() < 1e-12, "{found:?}");
        assert!((found[1] - 0.3).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn the_order_grows_with_the_samples() {
        let process = Process {
            slow: 0.5,
            memory: 0.9,
            noise: 0.1,
            jumps: 0.0,
        };
        let series = series(Seed(1), 256, process);
        let order = |count: usize| linear(&series[..count]).map(|part| part.order);
        assert_eq!(order(11), None);
        assert_eq!(order(12), Some(1));
        assert_eq!(order(100), Some(8));
        assert_eq!(order(256), Some(16));
        assert!(linear(&[20.0; 100]).is_none());
    }
}
