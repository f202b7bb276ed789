//! Forecasts of the next rate from a series of rates.
//!
//! Series are base-two logarithms of rates in b/s, equally spaced, the newest last. A forecast is a set
//! of quantiles: [`LEVELS`].

mod baseline;
mod linear;
mod stationarity;

pub use self::stationarity::kpss;

use crate::robust::quantile;

/// Probabilities of the quantiles of a [`Forecast`].
pub const LEVELS: [f64; 7] = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95];

/// Index of the median in [`LEVELS`].
pub const MEDIAN: usize = 3;

/// Samples of a series that are used, the newest.
pub const WINDOW: usize = 256;

/// A way to forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// The optimal linear predictor: normal equations on the estimated autocovariance (Papoulis
    /// 1991), with more coefficients the more samples there are.
    Linear,
    /// The newest value.
    Last,
    /// Exponentially weighted moving average.
    Ewma,
    /// Quantiles of the newest values.
    MovingQuantile,
    /// The linear predictor if the series passes the test of stationarity, otherwise the average of the
    /// newest value and the moving average.
    LinearOrBaseline,
    /// The weighted mean, quantile by quantile, of the newest value, the moving average, the moving
    /// median and, if the series passes the test of stationarity, the linear predictor. The weights
    /// fall with the errors of each at past samples.
    Mixture,
}

impl Method {
    /// All methods.
    pub const ALL: [Self; 6] = [
        Self::Last,
        Self::Ewma,
        Self::MovingQuantile,
        Self::Linear,
        Self::LinearOrBaseline,
        Self::Mixture,
    ];

    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Last => "last value",
            Self::Ewma => "moving average",
            Self::MovingQuantile => "moving quantile",
            Self::LinearOrBaseline => "linear or baseline",
            Self::Mixture => "mixture",
        }
    }
}

/// A forecast of the next value.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Quantiles at [`LEVELS`], not falling: base-two logarithms of rates in b/s.
    pub quantiles: [f64; LEVELS.len()],
    /// Number of coefficients of the linear predictor; zero if it has no part.
    pub order: usize,
    /// Whether the series passes the test of stationarity.
    pub is_stationary: bool,
    /// Share of the errors at past samples that were below [`SMALL_ERROR`], shrunk towards zero for
    /// few samples: 0..=1.
    pub confidence: f64,
    /// Samples of the series that were used.
    pub samples: usize,
}

/// Error that counts as small: half an octave, a factor of 1.41.
pub const SMALL_ERROR: f64 = 0.5;

/// Forecasts the next value of a series; `None` for an empty one. Values must be finite.
pub fn forecast(method: Method, series: &[f64]) -> Option<Forecast> {
    let series = &series[series.len().saturating_sub(WINDOW)..];
    let last = *series.last()?;
    let is_stationary = stationarity::is_stationary(series);
    let parts = parts(method, series, is_stationary);
    let weights = weights(&parts);
    let mut quantiles = [0.0; LEVELS.len()];
    let mut small = 0.0;
    for (part, weight) in parts.iter().zip(weights) {
        for (sum, value) in quantiles.iter_mut().zip(part.quantiles()) {
            *sum += weight * value;
        }
        small += weight * part.small_errors();
    }
    // No method may leave the range of the samples it has seen: an extrapolation of a trend of one
    // client could otherwise take any value.
    let low = series.iter().fold(last, |a, b| a.min(*b));
    let high = series.iter().fold(last, |a, b| a.max(*b));
    let room = if series.len() < FEW {
        UNKNOWN_SPREAD
    } else {
        0.0
    };
    for value in &mut quantiles {
        *value = value.clamp(low - room, high + room);
    }
    let samples = series.len();
    Some(Forecast {
        quantiles,
        order: parts.iter().map(|part| part.order).max().unwrap_or(0),
        is_stationary,
        confidence: small * samples as f64 / (samples + FEW) as f64,
        samples,
    })
}

fn parts(method: Method, series: &[f64], is_stationary: bool) -> Vec<Part> {
    let baselines = || vec![baseline::last(series), baseline::ewma(series)];
    match method {
        Method::Last => vec![baseline::last(series)],
        Method::Ewma => vec![baseline::ewma(series)],
        Method::MovingQuantile => vec![baseline::moving_quantile(series)],
        Method::Linear => linear::linear(series).map_or_else(baselines, |part| vec![part]),
        Method::LinearOrBaseline if is_stationary => parts(Method::Linear, series, true),
        Method::LinearOrBaseline => baselines(),
        Method::Mixture => {
            let mut all = baselines();
            all.push(baseline::moving_median(series));
            if is_stationary {
                all.extend(linear::linear(series));
            }
            all
        }
    }
}

/// Weights of parts: a power of their mean absolute errors, of sum one.
fn weights(parts: &[Part]) -> Vec<f64> {
    let errors: Vec<f64> = parts.iter().map(Part::mean_error).collect();
    let least = errors.iter().copied().fold(f64::MAX, f64::min);
    let weight = |error: &f64| libm::pow(least / error, SELECTIVITY);
    let weights: Vec<f64> = errors.iter().map(weight).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// One predictor's part in a forecast.
struct Part {
    /// Predicted value.
    point: f64,
    /// Errors at past samples, sorted: value minus prediction.
    errors: Vec<f64>,
    order: usize,
}

impl Part {
    fn new(point: f64, mut errors: Vec<f64>, order: usize) -> Self {
        errors.sort_unstable_by(f64::total_cmp);
        Self {
            point,
            errors,
            order,
        }
    }

    /// The prediction plus the quantiles of its errors. Few errors are complemented by a spread of
    /// two octaves, since the extreme ones have not been seen yet.
    fn quantiles(&self) -> [f64; LEVELS.len()] {
        let count = self.errors.len() as f64;
        let known = count / (count + 2.0);
        LEVELS.map(|level| {
            let unknown = UNKNOWN_SPREAD * (2.0 * level - 1.0);
            let error = quantile(&self.errors, level).unwrap_or(unknown);
            self.point + known * error + (1.0 - known) * unknown
        })
    }

    /// Mean absolute error in octaves. Never zero, so that few samples do not decide.
    fn mean_error(&self) -> f64 {
        let sum: f64 = self.errors.iter().map(|e| e.abs()).sum();
        (sum + MIN_ERROR) / (self.errors.len() + 1) as f64
    }

    fn small_errors(&self) -> f64 {
        let small = self.errors.iter().filter(|e| e.abs() < SMALL_ERROR).count();
        small as f64 / self.errors.len().max(1) as f64
    }
}

/// Pinball loss of a forecast, the mean over [`LEVELS`]: the error that quantiles minimise.
pub fn pinball(quantiles: &[f64; LEVELS.len()], value: f64) -> f64 {
    let loss = |(level, quantile): (&f64, &f64)| {
        let error = value - quantile;
        if error > 0.0 {
            level * error
        } else {
            (level - 1.0) * error
        }
    };
    LEVELS.iter().zip(quantiles).map(loss).sum::<f64>() / LEVELS.len() as f64
}

/// Exponent of the errors in the weights of a mixture: a predictor with errors 10 % larger than the best
/// has half its weight. Chosen on other series than those of the published figures.
const SELECTIVITY: f64 = 8.0;

/// Error that each predictor has at least once, in octaves.
const MIN_ERROR: f64 = 0.1;

/// Spread of a forecast without experience, in octaves to each side.
const UNKNOWN_SPREAD: f64 = 2.0;

/// Samples from which experience counts half.
const FEW: usize = 8;

#[cfg(test)]
mod tests;
