//! Test of stationarity.

/// Statistic of the KPSS test of a constant level (Kwiatkowski, Phillips, Schmidt and Shin 1992), with
/// the variance over the long term estimated with Bartlett weights up to lag 4 (n/100)^(1/4). `None` for
/// a series that is too short or does not vary.
pub fn kpss(series: &[f64]) -> Option<f64> {
    if series.len() < MIN {
        return None;
    }
    let count = series.len() as f64;
    let mean = series.iter().sum::<f64>() / count;
    let centred: Vec<f64> = series.iter().map(|value| value - mean).collect();
    let lags = (4.0 * (count / 100.0).sqrt().sqrt()) as usize;
    let covariance = |lag: usize| {
        let pairs = centred[lag..].iter().zip(&centred);
        pairs.map(|(a, b)| a * b).sum::<f64>() / count
    };
    let weighted = |lag: usize| 2.0 * (1.0 - lag as f64 / (lags + 1) as f64) * covariance(lag);
    let variance = covariance(0) + (1..=lags).map(weighted).sum::<f64>();
    let mut sum = 0.0;
    let mut squares = 0.0;
    for value in &centred {
        sum += value;
        squares += sum * sum;
    }
    (variance > 1e-12).then(|| squares / (count * count * variance))
}

/// Whether the test does not reject a constant level. A short or constant series passes.
pub(super) fn is_stationary(series: &[f64]) -> bool {
    kpss(series).is_none_or(|statistic| statistic <= CRITICAL)
}

/// Critical value at a significance of 1 %, from the paper's Table 1. At 5 % the test rejects one in
/// five autoregressive series with a correlation of 0.9, for which the predictor is right.
const CRITICAL: f64 = 0.739;

/// Shortest series that is tested.
const MIN: usize = 16;

#[cfg(test)]
mod tests {
    use tidegate_core::random::Seed;

    use super::*;
    use crate::synthetic::{Process, normal, series};

    #[test]
    fn a_jump_of_the_level_is_found_and_noise_is_not() {
        let process = Process {
            slow: 0.0,
            memory: 0.0,
            noise: 0.3,
            jumps: 0.0,
        };
        let mut rejected = 0;
        for seed in 0..200 {
            let mut series = series(Seed(seed), 128, process);
            rejected += u32::from(!is_stationary(&series));
            for value in &mut series[64..] {
                *value += 1.0;
            }
            assert!(!is_stationary(&series), "seed {seed}");
        }
        // 1 % are expected; more than 8 of 200 have a probability of 0.0002.
        assert!(rejected <= 8, "{rejected}");
    }

    #[test]
    fn a_random_walk_is_mostly_rejected() {
        let mut rng = Seed(5).stream("walk");
        let walks = (0..100).map(|_| {
            let mut at = 20.0;
            let walk: Vec<f64> = (0..256)
                .map(|_| {
                    at += 0.1 * normal(&mut rng);
                    at
                })
                .collect();
            usize::from(!is_stationary(&walk))
        });
        let rejected: usize = walks.sum();
        assert!(rejected >= 70, "{rejected}");
    }
}
