use tidegate_core::random::Seed;

use super::*;
use crate::synthetic::{Process, series};

/// Mean pinball loss of each method over one-step forecasts.
fn losses(process: Process, seeds: u64) -> Vec<f64> {
    let mut sums = vec![0.0; Method::ALL.len()];
    let mut count = 0.0;
    for seed in 0..seeds {
        let series = series(Seed(seed), 240, process);
        for at in (20..240).step_by(4) {
            for (sum, method) in sums.iter_mut().zip(Method::ALL) {
                let forecast = forecast(method, &series[..at]).expect("a series");
                *sum += pinball(&forecast.quantiles, series[at]);
            }
            count += 1.0;
        }
    }
    sums.iter().map(|sum| sum / count).collect()
}

const NOISY: Process = Process {
    slow: 0.4,
    memory: 0.9,
    noise: 0.3,
    jumps: 0.0,
};

fn loss(losses: &[f64], method: Method) -> f64 {
    let place = Method::ALL.iter().position(|m| *m == method);
    losses[place.expect("one of all")]
}

#[test]
fn the_linear_predictor_learns_what_baselines_cannot() {
    // Values that alternate around their mean.
    let process = Process {
        memory: -0.8,
        noise: 0.05,
        ..NOISY
    };
    let losses = losses(process, 2);
    let linear = loss(&losses, Method::Linear);
    for baseline in [Method::Last, Method::Ewma, Method::MovingQuantile] {
        assert!(
            linear < 0.8 * loss(&losses, baseline),
            "{baseline:?}: {losses:?}"
        );
    }
}

#[test]
fn the_mixture_is_no_worse_than_its_parts() {
    for process in [
        NOISY,
        Process {
            jumps: 0.02,
            ..NOISY
        },
    ] {
        let losses = losses(process, 4);
        let mixture = loss(&losses, Method::Mixture);
        for part in [
            Method::Last,
            Method::Ewma,
            Method::MovingQuantile,
            Method::Linear,
        ] {
            assert!(mixture < 1.03 * loss(&losses, part), "{part:?}: {losses:?}");
        }
    }
}

#[test]
fn quantiles_are_calibrated() {
    let mut below = [0_u32; LEVELS.len()];
    let mut count = 0;
    for seed in 0..8 {
        let series = series(Seed(100 + seed), 240, NOISY);
        for at in 100..240 {
            let forecast = forecast(Method::Mixture, &series[..at]).expect("a series");
            for (below, quantile) in below.iter_mut().zip(forecast.quantiles) {
                *below += u32::from(series[at] <= quantile);
            }
            count += 1;
        }
    }
    for (below, level) in below.iter().zip(LEVELS) {
        let share = f64::from(*below) / f64::from(count);
        // The standard error of 1,120 correlated outcomes is below 0.03.
        assert!((share - level).abs() < 0.06, "{level}: {share}");
    }
}

#[test]
fn quantiles_do_not_fall_and_stay_in_the_range_of_the_samples() {
    for seed in 0..50 {
        let process = Process {
            jumps: 0.02,
            ..NOISY
        };
        let series = series(Seed(seed), 64 + seed as usize, process);
        let low = series.iter().copied().fold(f64::MAX, f64::min);
        let high = series.iter().copied().fold(f64::MIN, f64::max);
        for method in Method::ALL {
            let forecast = forecast(method, &series).expect("a series");
            let quantiles = forecast.quantiles;
            assert!(quantiles.is_sorted(), "{method:?}: {quantiles:?}");
            assert!(quantiles[0] >= low && quantiles[6] <= high, "{method:?}");
            assert!((0.0..=1.0).contains(&forecast.confidence));
        }
    }
}

#[test]
fn few_samples_give_a_wide_forecast() {
    for method in Method::ALL {
        assert_eq!(forecast(method, &[]), None);
        let one = forecast(method, &[20.0]).expect("a sample");
        assert!((one.quantiles[MEDIAN] - 20.0).abs() < 1e-9);
        assert!(
            one.quantiles[0] < 19.0 && one.quantiles[6] > 21.0,
            "{one:?}"
        );
        assert!(one.confidence < 0.2, "{one:?}");
        let many = forecast(method, &[20.0; 200]).expect("samples");
        assert!(many.quantiles[6] - many.quantiles[0] < 0.1, "{many:?}");
        assert!(many.confidence > 0.9, "{many:?}");
    }
}

#[test]
fn the_pinball_loss_is_least_at_the_quantile() {
    // Of 0, 1, ... 99, the median lies between 49 and 50.
    let mean = |q: f64| {
        let losses = (0..100).map(|v| pinball(&[q; LEVELS.len()], f64::from(v)));
        losses.sum::<f64>() / 100.0
    };
    assert!(mean(49.5) < mean(40.0) && mean(49.5) < mean(60.0));
    assert!((pinball(&[1.0; LEVELS.len()], 1.0)).abs() < 1e-12);
}
