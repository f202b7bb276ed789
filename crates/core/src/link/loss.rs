//! Packet loss: independent, in bursts, periodic, or over time.

use core::fmt;
use core::num::NonZeroU32;

use rand_pcg::Pcg64Mcg;

use super::steps::{StepReader, Steps};
use crate::random::unit;
use crate::units::Time;

/// Packet loss behind the transmitter.
#[derive(Clone, Debug, PartialEq)]
pub enum LossConfig {
    /// Independent loss with this probability, in 0..=1.
    Bernoulli(f64),
    /// Deterministic loss of every n-th packet.
    Every(NonZeroU32),
    /// Loss in bursts.
    GilbertElliott(GilbertElliott),
    /// Independent loss with a probability that changes over time. A packet is subject to that of
    /// the time at which its transmission ends.
    Steps(Steps<f64>),
}

impl LossConfig {
    /// No loss.
    pub const NONE: Self = Self::Bernoulli(0.0);

    /// Long-term loss ratio, in 0..=1. For steps, the mean over time until the last step.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Bernoulli(probability) => *probability,
            Self::Every(packets) => 1.0 / f64::from(packets.get()),
            Self::GilbertElliott(model) => {
                let bad = model.bad_share();
                (1.0 - bad) * model.loss_good + bad * model.loss_bad
            }
            Self::Steps(steps) => {
                let all = steps.as_slice();
                let [(_, only)] = all else {
                    let end = all[all.len() - 1].0.since(Time::ZERO).as_secs_f64();
                    let span =
                        |pair: &[(Time, f64)]| pair[0].1 * pair[1].0.since(pair[0].0).as_secs_f64();
                    return all.windows(2).map(span).sum::<f64>() / end;
                };
                *only
            }
        }
    }

    /// Whether the loss ratio is zero.
    pub(super) fn is_none(&self) -> bool {
        matches!(self, Self::Bernoulli(probability) if *probability <= 0.0)
    }

    pub(super) fn check(&self) -> Result<(), LossFault> {
        let shares = match self {
            Self::Bernoulli(probability) => vec![*probability],
            Self::Every(_) => Vec::new(),
            Self::GilbertElliott(model) => {
                vec![model.to_bad, model.to_good, model.loss_good, model.loss_bad]
            }
            Self::Steps(steps) => steps.as_slice().iter().map(|(_, share)| *share).collect(),
        };
        match shares.into_iter().find(|x| !(0.0..=1.0).contains(x)) {
            Some(x) => Err(LossFault::Probability(x)),
            None => Ok(()),
        }
    }
}

/// Two-state channel (Gilbert, "Capacity of a Burst-Noise Channel", 1960; Elliott, "Estimates of
/// Error Rates for Codes on Burst-Noise Channels", 1963). All fields are probabilities per packet,
/// in 0..=1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Transition probability from good to bad before a packet, `p`.
    pub to_bad: f64,
    /// Transition probability from bad to good, `r`.
    pub to_good: f64,
    /// Loss probability in the good state, `1 - k`.
    pub loss_good: f64,
    /// Loss probability in the bad state, `1 - h`.
    pub loss_bad: f64,
}

impl GilbertElliott {
    /// Gilbert channel that loses all packets in the bad state and none in the good one: loss ratio
    /// `mean`, mean burst length `burst` in packets.
    ///
    /// # Errors
    ///
    /// `mean` is not in 0..1, `burst` is below 1, or `mean` requires longer bursts.
    pub fn bursts(mean: f64, burst: f64) -> Result<Self, LossFault> {
        if !(0.0..1.0).contains(&mean) {
            return Err(LossFault::Probability(mean));
        }
        if !(1.0..f64::INFINITY).contains(&burst) {
            return Err(LossFault::Burst(burst));
        }
        let to_good = 1.0 / burst;
        let to_bad = to_good * mean / (1.0 - mean);
        if to_bad > 1.0 {
            return Err(LossFault::TooOften { mean, burst });
        }
        Ok(Self {
            to_bad,
            to_good,
            loss_good: 0.0,
            loss_bad: 1.0,
        })
    }

    /// Long-term share of packets that find the channel bad, in 0..=1. A channel without
    /// transitions stays good.
    pub fn bad_share(&self) -> f64 {
        let both = self.to_bad + self.to_good;
        if both > 0.0 { self.to_bad / both } else { 0.0 }
    }
}

/// Invalid loss model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossFault {
    /// Burst length below one packet.
    Burst(f64),
    /// A probability outside 0..=1, or a mean of 1 for a channel with bursts.
    Probability(f64),
    /// The mean gap between bursts would be below one packet.
    TooOften {
        /// Loss ratio.
        mean: f64,
        /// Burst length in packets.
        burst: f64,
    },
}

impl fmt::Display for LossFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Burst(x) => write!(f, "bursts of {x} packets: the mean is at least 1"),
            Self::Probability(p) => write!(f, "a loss probability of {p} is not in 0..=1"),
            Self::TooOften { mean, burst } => write!(
                f,
                "bursts of {burst} packets cannot lose a share of {mean}: make them {} or longer",
                mean / (1.0 - mean)
            ),
        }
    }
}

impl core::error::Error for LossFault {}

/// State of the loss model of a link.
#[derive(Clone, Debug)]
pub(super) enum Loss {
    None,
    Bernoulli {
        probability: f64,
        rng: Pcg64Mcg,
    },
    Every {
        packets: NonZeroU32,
        /// Packets that still pass before the next loss.
        left: u32,
    },
    GilbertElliott {
        model: GilbertElliott,
        bad: bool,
        rng: Pcg64Mcg,
    },
    Steps {
        probability: StepReader<f64>,
        rng: Pcg64Mcg,
    },
}

impl Loss {
    /// `rng` is the random stream of the link. A two-state channel starts in its stationary
    /// distribution.
    pub(super) fn new(config: &LossConfig, mut rng: Pcg64Mcg) -> Self {
        match *config {
            LossConfig::Bernoulli(probability) if probability > 0.0 => {
                Self::Bernoulli { probability, rng }
            }
            LossConfig::Bernoulli(_) => Self::None,
            LossConfig::Every(packets) => Self::Every {
                packets,
                left: packets.get() - 1,
            },
            LossConfig::GilbertElliott(model) => Self::GilbertElliott {
                model,
                bad: unit(&mut rng) < model.bad_share(),
                rng,
            },
            LossConfig::Steps(ref steps) => Self::Steps {
                probability: StepReader::new(steps.clone()),
                rng,
            },
        }
    }

    /// Whether the next packet, whose transmission ends at `at`, is lost. Each call draws the same
    /// number of random values, so that the loss of a packet does not depend on earlier outcomes.
    #[inline]
    pub(super) fn loses(&mut self, at: Time) -> bool {
        match self {
            Self::None => false,
            Self::Bernoulli { probability, rng } => unit(rng) < *probability,
            Self::Every { packets, left } => {
                let lost = *left == 0;
                *left = if lost { packets.get() } else { *left } - 1;
                lost
            }
            Self::GilbertElliott { model, bad, rng } => {
                let (turn, dice) = (unit(rng), unit(rng));
                *bad = if *bad {
                    turn >= model.to_good
                } else {
                    turn < model.to_bad
                };
                let lost = if *bad {
                    model.loss_bad
                } else {
                    model.loss_good
                };
                dice < lost
            }
            Self::Steps { probability, rng } => unit(rng) < probability.at(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    fn losses(config: &LossConfig, packets: usize) -> Vec<bool> {
        assert_eq!(config.check(), Ok(()));
        let mut loss = Loss::new(config, Seed(3).stream("link/l/loss"));
        let at = |n| Time::from_millis(n as u64);
        (0..packets).map(|n| loss.loses(at(n))).collect()
    }

    fn count(list: &[bool]) -> usize {
        list.iter().filter(|lost| **lost).count()
    }

    #[test]
    fn bernoulli_loss_has_the_configured_ratio() {
        let share = |p| count(&losses(&LossConfig::Bernoulli(p), 100_000));
        assert_eq!((share(0.0), share(1.0)), (0, 100_000));
        // Four standard deviations of a binomial distribution with p = 0.02 are 177.
        assert!(share(0.02).abs_diff(2_000) < 177, "{}", share(0.02));
    }

    #[test]
    fn periodic_loss_drops_every_nth_packet() {
        let config = LossConfig::Every(NonZeroU32::new(3).unwrap());
        let expected = [false, false, true, false, false, true, false];
        assert_eq!(losses(&config, 7), expected);
        assert!((config.mean() - 1.0 / 3.0).abs() < 1e-15);
        assert_eq!(count(&losses(&LossConfig::Every(NonZeroU32::MIN), 5)), 5);
    }

    #[test]
    fn bursts_have_the_configured_ratio_and_length() {
        for (mean, burst) in [(0.01, 4.0), (0.2, 10.0), (0.5, 1.5)] {
            let model = GilbertElliott::bursts(mean, burst).unwrap();
            let config = LossConfig::GilbertElliott(model);
            assert!((config.mean() - mean).abs() < 1e-12);
            let list = losses(&config, 1_000_000);
            let starts = list.windows(2).filter(|w| !w[0] && w[1]).count();
            let (share, length) = (
                count(&list) as f64 / 1e6,
                count(&list) as f64 / starts as f64,
            );
            // About 2500 bursts in the first case: a standard deviation of 2.6 %.
            assert!((share / mean - 1.0).abs() < 0.08, "{share} {mean}");
            assert!((length / burst - 1.0).abs() < 0.08, "{length} {burst}");
        }
    }

    #[test]
    fn each_state_has_its_own_loss_ratio() {
        let model = GilbertElliott {
            to_bad: 0.02,
            to_good: 0.06,
            loss_good: 0.01,
            loss_bad: 0.5,
        };
        let config = LossConfig::GilbertElliott(model);
        // A quarter of the packets find the channel bad.
        assert!((config.mean() - (0.75 * 0.01 + 0.25 * 0.5)).abs() < 1e-12);
        let share = count(&losses(&config, 1_000_000)) as f64 / 1e6;
        assert!((share / config.mean() - 1.0).abs() < 0.03, "{share}");
        // The channel is stationary from its first packet on.
        let first = |seed| {
            let mut loss = Loss::new(&config, Seed(seed).stream("link/l/loss"));
            u32::from(loss.loses(Time::ZERO))
        };
        // Four standard deviations of a binomial distribution with p = 0.1325, n = 10,000 are 136.
        let lost: u32 = (0..10_000).map(first).sum();
        assert!(lost.abs_diff(1_325) < 136, "{lost}");
    }

    #[test]
    fn loss_over_time_has_the_ratio_of_each_step() {
        let ms = Time::from_millis;
        let steps = [(ms(0), 0.0), (ms(20_000), 0.3), (ms(60_000), 1.0)];
        let config = LossConfig::Steps(Steps::new(&steps).unwrap());
        // A packet per millisecond.
        let list = losses(&config, 70_000);
        assert_eq!(count(&list[..20_000]), 0);
        // Four standard deviations of a binomial distribution with p = 0.3, n = 40,000 are 367.
        let middle = count(&list[20_000..60_000]);
        assert!(middle.abs_diff(12_000) < 367, "{middle}");
        assert_eq!(count(&list[60_000..]), 10_000);
        assert!((config.mean() - 0.2).abs() < 1e-12);
        let over = Steps::new(&[(ms(0), 0.5), (ms(1), 1.5)]).unwrap();
        let over = LossConfig::Steps(over);
        assert_eq!(over.check(), Err(LossFault::Probability(1.5)));
    }

    #[test]
    fn invalid_models_are_rejected() {
        use LossFault::{Burst, Probability, TooOften};
        assert_eq!(GilbertElliott::bursts(1.0, 4.0), Err(Probability(1.0)));
        assert_eq!(GilbertElliott::bursts(0.1, 0.5), Err(Burst(0.5)));
        assert!(GilbertElliott::bursts(0.1, f64::NAN).is_err());
        let often = TooOften {
            mean: 0.75,
            burst: 2.0,
        };
        assert_eq!(GilbertElliott::bursts(0.75, 2.0), Err(often));
        assert!(
            often.to_string().ends_with("make them 3 or longer"),
            "{often}"
        );
        assert_eq!(LossConfig::Bernoulli(1.5).check(), Err(Probability(1.5)));
    }
}
