use rand_pcg::Pcg64Mcg;
use tidegate_core::random::Seed;

use super::*;

fn rng(name: &str) -> Pcg64Mcg {
    Seed(11).stream(name)
}

const FILES: Distribution = Distribution::BodyAndTail {
    median: 11_600.0,
    sigma: 1.318,
    cut: 133_000.0,
    tail: 0.07,
    shape: 1.1,
    most: 1e7,
};

#[test]
fn means_are_those_of_the_draws() {
    let all = [
        (Distribution::Constant(3.0), 1e-12),
        (Distribution::Exponential { mean: 0.2 }, 0.01),
        (
            Distribution::LogNormal {
                median: 8_000.0,
                sigma: 1.0,
            },
            0.01,
        ),
        (Distribution::pareto(2.5, 12.0), 0.01),
        (
            Distribution::Pareto {
                shape: 1.0,
                least: 10.0,
                most: 1_000.0,
            },
            0.01,
        ),
        (
            Distribution::Pareto {
                shape: 1.2,
                least: 10.0,
                most: 10_000.0,
            },
            0.02,
        ),
        (FILES, 0.03),
    ];
    for (distribution, tolerance) in all {
        distribution.check().unwrap();
        let mut rng = rng("mean");
        let count = 200_000;
        let sum: f64 = (0..count).map(|_| distribution.draw(&mut rng)).sum();
        let error = sum / f64::from(count) / distribution.mean() - 1.0;
        assert!(error.abs() <= tolerance, "{distribution:?}: off by {error}");
        let tripled = distribution.scaled(3.0).mean() / distribution.mean();
        assert!((tripled - 3.0).abs() < 1e-9, "{distribution:?}: {tripled}");
    }
}

/// Hill's estimator over the largest `top` of `count` draws.
fn hill(distribution: &Distribution, count: usize, top: usize) -> f64 {
    let mut rng = rng("hill");
    let mut draws: Vec<f64> = (0..count).map(|_| distribution.draw(&mut rng)).collect();
    draws.sort_by(|a, b| b.total_cmp(a));
    let logs = draws[..top].iter().map(|x| libm::log(x / draws[top]));
    top as f64 / logs.sum::<f64>()
}

#[test]
fn tails_have_the_configured_index() {
    for shape in [1.1, 1.5, 2.4] {
        let index = hill(&Distribution::pareto(shape, 1.0), 100_000, 5_000);
        assert!((index / shape - 1.0).abs() < 0.05, "{index} for {shape}");
    }
    let unbounded = Distribution::BodyAndTail {
        median: 11_600.0,
        sigma: 1.318,
        cut: 133_000.0,
        tail: 0.07,
        shape: 1.1,
        most: f64::INFINITY,
    };
    let index = hill(&unbounded, 100_000, 5_000);
    assert!((index / 1.1 - 1.0).abs() < 0.05, "{index}");
    // A light tail has no index: the estimate grows towards the extremes.
    let light = Distribution::Exponential { mean: 1.0 };
    assert!(hill(&light, 100_000, 500) > 4.0);
}

/// The mean residual is half the mean square over the mean (renewal theory).
#[test]
fn residuals_have_the_mean_of_a_renewal_process() {
    let bounded = |shape| Distribution::Pareto {
        shape,
        least: 1.0,
        most: 100.0,
    };
    for distribution in [
        Distribution::Constant(3.0),
        Distribution::Exponential { mean: 0.2 },
        Distribution::LogNormal {
            median: 5.0,
            sigma: 0.8,
        },
        bounded(0.5),
        bounded(1.0),
        bounded(1.5),
        FILES,
    ] {
        let (count, mut rng) = (400_000, rng("rest"));
        let (mut rest, mut square) = (0.0, 0.0);
        for _ in 0..count {
            rest += distribution.draw_rest(&mut rng);
            let draw = distribution.draw(&mut rng);
            square += draw * draw;
        }
        let error = rest / (square / 2.0 / distribution.mean()) - 1.0;
        assert!(error.abs() < 0.03, "{distribution:?}: off by {error}");
    }
}

#[test]
fn draws_are_within_their_bounds() {
    let bounded = Distribution::Pareto {
        shape: 0.5,
        least: 2.0,
        most: 50.0,
    };
    let mut rng = rng("bounds");
    for _ in 0..10_000 {
        assert!((2.0..=50.0).contains(&bounded.draw(&mut rng)));
        let file = FILES.draw(&mut rng);
        assert!(file > 0.0 && file <= 1e7, "{file}");
    }
}

#[test]
fn faults_are_named() {
    let fault = |distribution: Distribution| distribution.check().unwrap_err().to_string();
    assert_eq!(
        fault(Distribution::Exponential { mean: f64::NAN }),
        "a mean of NaN is not possible: write a number above 0"
    );
    assert_eq!(
        fault(Distribution::Pareto {
            shape: 0.9,
            least: 1.0,
            most: f64::INFINITY
        }),
        "a power law of shape 0.9 has no mean: choose a shape above 1 or bound it"
    );
    assert_eq!(
        fault(Distribution::Pareto {
            shape: 1.5,
            least: 5.0,
            most: 5.0
        }),
        "the largest, 5, is not above the smallest, 5"
    );
    assert_eq!(
        fault(Distribution::BodyAndTail {
            median: 1e6,
            sigma: 0.1,
            cut: 1e5,
            tail: 0.1,
            shape: 1.1,
            most: 1e7
        }),
        "a body of median 1000000 has next to nothing below its cut at 100000: raise the cut"
    );
    assert_eq!(
        fault(Distribution::BodyAndTail {
            median: 1e4,
            sigma: 1.0,
            cut: 1e5,
            tail: 1.1,
            shape: 1.1,
            most: 1e7
        }),
        "a tail with a share of 1.1 is not in 0..=1"
    );
}
