//! Random sizes and times.

use core::cmp::Ordering;
use core::f64::consts::{SQRT_2, TAU};
use core::fmt;

use rand_core::Rng;
use tidegate_core::random::unit;

/// How a positive quantity is spread. Sizes are in bytes and times in seconds; the user says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Log-normal below `cut`, Pareto from there on: the sizes of files on web servers (Barford and
    /// Crovella, Generating Representative Web Workloads, 1998).
    BodyAndTail {
        /// Median of the log-normal, before it is cut.
        median: f64,
        /// Standard deviation of its natural logarithm.
        sigma: f64,
        /// Where the body ends and the tail begins.
        cut: f64,
        /// Share of the draws that come from the tail, in 0..=1.
        tail: f64,
        /// Index of the tail.
        shape: f64,
        /// The largest; infinity for none.
        most: f64,
    },
    /// Always the same.
    Constant(f64),
    /// Memoryless.
    Exponential {
        /// Mean.
        mean: f64,
    },
    /// Its logarithm is normal.
    LogNormal {
        /// Half of the draws are smaller.
        median: f64,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
    },
    /// A power law: more than `x` with probability `(least/x)^shape`, and cut off at `most`.
    Pareto {
        /// Its index. Up to 2 the variance grows with the sample, up to 1 the mean does too.
        shape: f64,
        /// The smallest.
        least: f64,
        /// The largest; infinity for none.
        most: f64,
    },
    /// Anything between two values, equally likely.
    Uniform {
        /// The smallest.
        least: f64,
        /// The largest; finite and above `least`.
        most: f64,
    },
}

impl Distribution {
    /// A power law without upper bound by its mean, as in ns-2; `shape` has to be above 1.
    pub fn pareto(shape: f64, mean: f64) -> Self {
        Self::Pareto {
            shape,
            least: mean * (shape - 1.0) / shape,
            most: f64::INFINITY,
        }
    }

    /// The same with every draw `by` times as large.
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

    /// Looks at the parameters.
    ///
    /// # Errors
    /// The first that does not stand.
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
                // Each try to draw from the body has to have a fair chance, also of one that is met.
                let z = libm::log(cut / median) / sigma - sigma;
                if tail < 1.0 && normal_below(z) < LEAST_BODY {
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

    /// Draws one.
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

    /// What is left of a time that has begun already, seen at a moment that has nothing to do with
    /// it: who starts with this is in its stride at once. A long time is more likely to be met than
    /// a short one, so that for a power law this has a heavier tail than the time itself.
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

    /// What draws are on average in the long run; infinity for power laws without it.
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

/// With mean 1 unless told otherwise.
pub(super) fn exponential(mean: f64, rng: &mut dyn Rng) -> f64 {
    -mean * libm::log(1.0 - unit(rng))
}

/// A log-normal below `cut`, by trial. [`Distribution::check`] sees to it that there is enough.
fn body(median: f64, sigma: f64, cut: f64, rng: &mut dyn Rng) -> f64 {
    loop {
        let body = median * libm::exp(sigma * normal(rng));
        if body < cut {
            return body;
        }
    }
}

/// By inversion. Without upper bound `least / most` is zero, and so is its power. With one, the
/// shape may be zero or negative.
fn pareto(shape: f64, least: f64, most: f64, rng: &mut dyn Rng) -> f64 {
    if shape.abs() < 1e-9 {
        return least * libm::pow(most / least, unit(rng));
    }
    let cut_off = libm::pow(least / most, shape);
    least * libm::pow(1.0 - unit(rng) * (1.0 - cut_off), -1.0 / shape)
}

/// Box and Muller's first.
fn normal(rng: &mut dyn Rng) -> f64 {
    let radius = libm::log(1.0 - unit(rng)) * -2.0;
    radius.sqrt() * libm::cos(TAU * unit(rng))
}

/// The normal distribution function.
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
    // Written so that NaN is at fault.
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

/// Why a distribution cannot be drawn from.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum DistributionFault {
    /// Hardly anything of the body lies below the cut.
    Cut {
        /// Where the tail begins.
        cut: f64,
        /// Median of the body.
        median: f64,
    },
    /// The largest is not above the smallest.
    Most {
        /// The largest.
        most: f64,
        /// The smallest.
        least: f64,
    },
    /// A power law of this index has no mean unless it is cut off.
    NoMean(f64),
    /// A parameter is zero, negative, infinite or no number.
    NotPositive {
        /// Which.
        name: &'static str,
        /// What it is.
        value: f64,
    },
    /// The share of the tail is not in 0..=1.
    Tail(f64),
}

impl fmt::Display for DistributionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut { cut, median } => write!(
                f,
                "a body of median {median} has next to nothing below its cut at {cut}: \
                 raise the cut"
            ),
            Self::Most { most, least } => {
                write!(f, "the largest, {most}, is not above the smallest, {least}")
            }
            Self::NoMean(shape) => write!(
                f,
                "a power law of shape {shape} has no mean: choose a shape above 1 or bound it"
            ),
            Self::NotPositive { name, value } => {
                write!(
                    f,
                    "a {name} of {value} is not possible: write a number above 0"
                )
            }
            Self::Tail(share) => write!(f, "a tail with a share of {share} is not in 0..=1"),
        }
    }
}

impl core::error::Error for DistributionFault {}

/// Below it, a draw from the body may take a thousand tries.
const LEAST_BODY: f64 = 1e-3;

#[cfg(test)]
mod tests;
