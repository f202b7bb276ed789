//! Random sizes and times.

use core::cmp::Ordering;
use core::f64::consts::{SQRT_2, TAU};

use rand_core::Rng;
use tidegate_core::random::unit;

/// Distribution of a positive quantity. Sizes are in bytes and times in seconds, as the caller
/// defines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Log-normal below `cut`, Pareto above it: file sizes of web servers (Barford and Crovella,
    /// Generating Representative Web Workloads, 1998).
    BodyAndTail {
        /// Median of the log-normal before truncation.
        median: f64,
        /// Standard deviation of its natural logarithm.
        sigma: f64,
        /// Boundary between body and tail.
        cut: f64,
        /// Share of the draws from the tail, in 0..=1.
        tail: f64,
        /// Pareto index of the tail.
        shape: f64,
        /// Maximum; infinity for none.
        most: f64,
    },
    /// A constant.
    Constant(f64),
    /// Exponential.
    Exponential {
        /// Mean.
        mean: f64,
    },
    /// Log-normal.
    LogNormal {
        /// Median.
        median: f64,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
    },
    /// Pareto: exceeds `x` with probability `(least/x)^shape`, truncated at `most`.
    Pareto {
        /// Pareto index. The variance is infinite up to 2, the mean up to 1.
        shape: f64,
        /// Minimum.
        least: f64,
        /// Maximum; infinity for none.
        most: f64,
    },
    /// Uniform.
    Uniform {
        /// Minimum.
        least: f64,
        /// Maximum; finite and above `least`.
        most: f64,
    },
}

impl Distribution {
    /// A Pareto distribution without maximum, given by its mean, as in ns-2; `shape` has to be
    /// above 1.
    pub fn pareto(shape: f64, mean: f64) -> Self {
        Self::Pareto {
            shape,
            least: mean * (shape - 1.0) / shape,
            most: f64::INFINITY,
        }
    }

    /// The distribution with every draw multiplied by `by`.
    pub fn scaled(self, by: f64) -> Self {
        match self {
            Self::BodyAndTail {
                median,
                sigma,
                cut,
                tail,
                shape,
                most,
            } => Self::BodyAndTail {
                median: median * by,
                sigma,
                cut: cut * by,
                tail,
                shape,
                most: most * by,
            },
            Self::Constant(value) => Self::Constant(value * by),
            Self::Exponential { mean } => Self::Exponential { mean: mean * by },
            Self::LogNormal { median, sigma } => Self::LogNormal {
                median: median * by,
                sigma,
            },
            Self::Pareto { shape, least, most } => Self::Pareto {
                shape,
                least: least * by,
                most: most * by,
            },
            Self::Uniform { least, most } => Self::Uniform {
                least: least * by,
                most: most * by,
            },
        }
    }

    /// Validates the parameters.
    ///
    /// # Errors
    /// The first invalid parameter.
    pub fn check(&self) -> Result<(), DistributionFault> {
        let positive = |name, value: f64| {
            if value > 0.0 && value < f64::INFINITY {
                Ok(())
            } else {
                Err(DistributionFault::NotPositive { name, value })
            }
        };
        match *self {
            Self::BodyAndTail {
                median,
                sigma,
                cut,
                tail,
                shape,
                most,
            } => {
                positive("median", median)?;
                positive("sigma", sigma)?;
                positive("cut", cut)?;
                if !(0.0..=1.0).contains(&tail) {
                    return Err(DistributionFault::Tail(tail));
                }
                // Rejection sampling of the body needs a fair probability of acceptance, also for
                // `draw_rest`.
                let z = libm::log(cut / median) / sigma - sigma;
                if tail < 1.0 && normal_below(z) < MIN_BODY {
                    return Err(DistributionFault::Cut { cut, median });
                }
                check_pareto(shape, cut, most)
            }
            Self::Constant(value) => positive("value", value),
            Self::Exponential { mean } => positive("mean", mean),
            Self::LogNormal { median, sigma } => {
                positive("median", median).and(positive("sigma", sigma))
            }
            Self::Pareto { shape, least, most } => {
                check_pareto(shape, least, most)?;
                positive("least", least)
            }
            Self::Uniform { least, most } => {
                positive("least", least)?;
                positive("most", most)?;
                if most <= least {
                    return Err(DistributionFault::Most { most, least });
                }
                Ok(())
            }
        }
    }

    /// Draws a value.
    pub fn draw(&self, rng: &mut dyn Rng) -> f64 {
        match *self {
            Self::BodyAndTail {
                median,
                sigma,
                cut,
                tail,
                shape,
                most,
            } => {
                if unit(rng) < tail {
                    return pareto(shape, cut, most, rng);
                }
                body(median, sigma, cut, rng)
            }
            Self::Constant(value) => value,
            Self::Exponential { mean } => exponential(mean, rng),
            Self::LogNormal { median, sigma } => median * libm::exp(sigma * normal(rng)),
            Self::Pareto { shape, least, most } => pareto(shape, least, most, rng),
            Self::Uniform { least, most } => least + unit(rng) * (most - least),
        }
    }

    /// Draws the residual of a period in progress, as seen at an independent time (renewal theory).
    /// A source that starts with it is in steady state. Longer periods are more likely to be
    /// observed, so the residual of a Pareto period has a heavier tail than the period.
    pub fn draw_rest(&self, rng: &mut dyn Rng) -> f64 {
        let met = match *self {
            Self::BodyAndTail {
                median,
                sigma,
                cut,
                tail,
                shape,
                most,
            } => {
                let in_tail = tail * pareto_mean(shape, cut, most) / self.mean();
                if unit(rng) < in_tail {
                    pareto(shape - 1.0, cut, most, rng)
                } else {
                    body(median * libm::exp(sigma * sigma), sigma, cut, rng)
                }
            }
            Self::Constant(value) => value,
            Self::Exponential { mean } => exponential(mean, rng) + exponential(mean, rng),
            Self::LogNormal { median, sigma } => {
                median * libm::exp(sigma * sigma) * libm::exp(sigma * normal(rng))
            }
            Self::Pareto { shape, least, most } => pareto(shape - 1.0, least, most, rng),
            Self::Uniform { least, most } => {
                (least * least + unit(rng) * (most * most - least * least)).sqrt()
            }
        };
        unit(rng) * met
    }

    /// Expected value; infinity for a Pareto distribution without a mean.
    pub fn mean(&self) -> f64 {
        match *self {
            Self::BodyAndTail {
                median,
                sigma,
                cut,
                tail,
                shape,
                most,
            } => {
                let z = libm::log(cut / median) / sigma;
                let whole = median * libm::exp(sigma * sigma / 2.0);
                let body = if tail < 1.0 {
                    whole * normal_below(z - sigma) / normal_below(z)
                } else {
                    0.0
                };
                (1.0 - tail) * body + tail * pareto_mean(shape, cut, most)
            }
            Self::Constant(value) => value,
            Self::Exponential { mean } => mean,
            Self::LogNormal { median, sigma } => median * libm::exp(sigma * sigma / 2.0),
            Self::Pareto { shape, least, most } => pareto_mean(shape, least, most),
            Self::Uniform { least, most } => f64::midpoint(least, most),
        }
    }
}

/// Draws from an exponential distribution.
pub(super) fn exponential(mean: f64, rng: &mut dyn Rng) -> f64 {
    -mean * libm::log(1.0 - unit(rng))
}

/// Draws from a log-normal below `cut` by rejection. [`Distribution::check`] ensures a sufficient
/// rate of acceptance.
fn body(median: f64, sigma: f64, cut: f64, rng: &mut dyn Rng) -> f64 {
    loop {
        let body = median * libm::exp(sigma * normal(rng));
        if body < cut {
            return body;
        }
    }
}

/// Draws by inversion. Without a maximum, `least / most` and its power are zero. With one, the
/// shape may be zero or negative.
fn pareto(shape: f64, least: f64, most: f64, rng: &mut dyn Rng) -> f64 {
    if shape.abs() < 1e-9 {
        return least * libm::pow(most / least, unit(rng));
    }
    let cut_off = libm::pow(least / most, shape);
    least * libm::pow(1.0 - unit(rng) * (1.0 - cut_off), -1.0 / shape)
}

/// Standard normal: the first value of the Box-Muller transform.
fn normal(rng: &mut dyn Rng) -> f64 {
    let radius = libm::log(1.0 - unit(rng)) * -2.0;
    radius.sqrt() * libm::cos(TAU * unit(rng))
}

/// Cumulative distribution function of the standard normal.
fn normal_below(z: f64) -> f64 {
    0.5 * libm::erfc(-z / SQRT_2)
}

fn pareto_mean(shape: f64, least: f64, most: f64) -> f64 {
    if most == f64::INFINITY {
        return if shape > 1.0 {
            least * shape / (shape - 1.0)
        } else {
            f64::INFINITY
        };
    }
    let kept = 1.0 - libm::pow(least / most, shape);
    let near_one = (shape - 1.0).abs() < 1e-9;
    let sum = if near_one {
        libm::log(most / least)
    } else {
        (1.0 - libm::pow(least / most, shape - 1.0)) / (shape - 1.0)
    };
    least * shape / kept * sum
}

fn check_pareto(shape: f64, least: f64, most: f64) -> Result<(), DistributionFault> {
    // The negation rejects NaN.
    if !(shape > 0.0 && shape < f64::INFINITY) {
        return Err(DistributionFault::NotPositive {
            name: "shape",
            value: shape,
        });
    }
    if most.partial_cmp(&least) != Some(Ordering::Greater) {
        return Err(DistributionFault::Most { most, least });
    }
    if most == f64::INFINITY && shape <= 1.0 {
        return Err(DistributionFault::NoMean(shape));
    }
    Ok(())
}

/// Invalid parameters of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DistributionFault {
    /// Hardly any of the body lies below the cut.
    #[error("a body of median {median} has next to nothing below its cut at {cut}: raise the cut")]
    Cut {
        /// Begin of the tail.
        cut: f64,
        /// Median of the body.
        median: f64,
    },
    /// The maximum is not above the minimum.
    #[error("the largest, {most}, is not above the smallest, {least}")]
    Most {
        /// Maximum.
        most: f64,
        /// Minimum.
        least: f64,
    },
    /// A Pareto distribution of this index has no mean without a maximum.
    #[error("a power law of shape {0} has no mean: choose a shape above 1 or bound it")]
    NoMean(f64),
    /// A parameter is zero, negative, infinite or NaN.
    #[error("a {name} of {value} is not possible: write a number above 0")]
    NotPositive {
        /// Name of the parameter.
        name: &'static str,
        /// Its value.
        value: f64,
    },
    /// The share of the tail is outside of 0..=1.
    #[error("a tail with a share of {0} is not in 0..=1")]
    Tail(f64),
}

/// Below this probability of acceptance, one draw of the body may take a thousand attempts.
const MIN_BODY: f64 = 1e-3;

#[cfg(test)]
mod tests;
