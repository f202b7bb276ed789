//! What a link is made from, and what may be wrong with it.

use core::fmt;
use core::time::Duration;

use super::outage::{Outage, OutagesError};
use super::queue::{DropTailConfig, Limit, QueueConfig, RedConfig};
use super::rate::Capacity;
use crate::units::{Bytes, Rate};

/// Parameters of a [`Link`](super::Link).
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// What the transmitter carries.
    pub capacity: Capacity,
    /// What waits for it.
    pub queue: QueueConfig,
    /// When nothing passes, ascending.
    pub outages: Vec<Outage>,
    /// Probability in 0..=1 that a packet is lost behind the transmitter.
    pub loss: f64,
    /// Propagation.
    pub delay: Duration,
}

impl Default for LinkConfig {
    /// A wire that does nothing to packets. Its queue, which an unlimited transmitter never
    /// fills, takes 1000 packets, as Linux does.
    fn default() -> Self {
        Self {
            capacity: Capacity::Unlimited,
            queue: QueueConfig::DropTail(DropTailConfig::packets(1_000)),
            outages: Vec::new(),
            loss: 0.0,
            delay: Duration::ZERO,
        }
    }
}

impl LinkConfig {
    pub(super) fn check(&self) -> Result<(), LinkFault> {
        if self.capacity == Capacity::Fixed(Rate::ZERO) {
            return Err(LinkFault::NoCapacity);
        }
        if !(0.0..=1.0).contains(&self.loss) {
            return Err(LinkFault::Loss(self.loss));
        }
        match &self.queue {
            QueueConfig::DropTail(config) => match config.limit {
                Limit::Bytes(Bytes::ZERO) | Limit::Packets(0) => Err(LinkFault::NoQueue),
                Limit::Bytes(_) | Limit::Packets(_) => Ok(()),
            },
            QueueConfig::Red(RedConfig { limit: 0, .. }) => Err(LinkFault::NoQueue),
            QueueConfig::Red(config) => check_red(config).map_err(LinkFault::Red),
        }
    }
}

fn check_red(config: &RedConfig) -> Result<(), RedFault> {
    // Written so that NaN is at fault.
    let above_zero = |x: f64| x > 0.0 && x < f64::INFINITY;
    if !above_zero(config.min_threshold) {
        return Err(RedFault::MinThreshold(config.min_threshold));
    }
    if !(above_zero(config.max_threshold) && config.max_threshold > config.min_threshold) {
        return Err(RedFault::MaxThreshold(config.max_threshold));
    }
    if !(above_zero(config.weight) && config.weight <= 1.0) {
        return Err(RedFault::Weight(config.weight));
    }
    if !(0.0..=1.0).contains(&config.max_probability) {
        return Err(RedFault::MaxProbability(config.max_probability));
    }
    Ok(())
}

/// Why a link cannot be built.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkError {
    /// Its name.
    pub link: String,
    /// What is wrong.
    pub fault: LinkFault,
}

/// What is wrong with a link.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkFault {
    /// The probability of loss is not in 0..=1.
    Loss(f64),
    /// The capacity is zero at all times.
    NoCapacity,
    /// Nothing may wait, so that nothing passes.
    NoQueue,
    /// The outages do not stand.
    Outages(OutagesError),
    /// RED has a parameter out of range.
    Red(RedFault),
}

/// A parameter of RED that is out of range, with its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RedFault {
    /// Not in 0..=1.
    MaxProbability(f64),
    /// Not above the lower threshold.
    MaxThreshold(f64),
    /// Not above zero.
    MinThreshold(f64),
    /// Not above zero and up to 1.
    Weight(f64),
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link `{}`: {}", self.link, self.fault)
    }
}

impl fmt::Display for LinkFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loss(p) => write!(f, "a loss probability of {p} is not in 0..=1"),
            Self::NoCapacity => f.write_str(
                "its capacity is 0 b/s at all times: use steps for a stall, or an outage",
            ),
            Self::NoQueue => {
                f.write_str("its queue takes nothing, so nothing passes: allow at least 1 packet")
            }
            Self::Outages(e) => e.fmt(f),
            Self::Red(e) => e.fmt(f),
        }
    }
}

impl fmt::Display for RedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxProbability(x) => {
                write!(f, "a highest RED probability of {x} is not in 0..=1")
            }
            Self::MaxThreshold(x) => {
                write!(
                    f,
                    "an upper RED threshold of {x} packets is not above the lower one"
                )
            }
            Self::MinThreshold(x) => {
                write!(f, "a lower RED threshold of {x} packets is not above 0")
            }
            Self::Weight(x) => write!(f, "a RED weight of {x} is not above 0 and up to 1"),
        }
    }
}

impl core::error::Error for LinkError {}
impl core::error::Error for LinkFault {}
impl core::error::Error for RedFault {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Link;
    use crate::link::testing::Parcel;
    use crate::random::Seed;
    use crate::units::Time;

    fn fault(config: &LinkConfig) -> LinkFault {
        Link::<Parcel>::new(config, Seed(1), "up")
            .unwrap_err()
            .fault
    }

    #[test]
    fn faults_are_named() {
        let good = LinkConfig::default;
        let red = |config| LinkConfig {
            queue: QueueConfig::Red(config),
            ..good()
        };
        let standard = RedConfig::default;

        assert!(Link::<Parcel>::new(&good(), Seed(1), "up").is_ok());
        assert_eq!(
            fault(&LinkConfig {
                loss: 1.5,
                ..good()
            }),
            LinkFault::Loss(1.5)
        );
        assert!(matches!(
            fault(&LinkConfig {
                loss: f64::NAN,
                ..good()
            }),
            LinkFault::Loss(_)
        ));
        assert_eq!(
            fault(&LinkConfig {
                capacity: Capacity::Fixed(Rate::ZERO),
                ..good()
            }),
            LinkFault::NoCapacity
        );
        let none = QueueConfig::DropTail(DropTailConfig::bytes(Bytes::ZERO));
        assert_eq!(
            fault(&LinkConfig {
                queue: none,
                ..good()
            }),
            LinkFault::NoQueue
        );
        assert_eq!(
            fault(&red(RedConfig {
                limit: 0,
                ..standard()
            })),
            LinkFault::NoQueue
        );
        let crossed = RedConfig {
            max_threshold: 20.0,
            ..standard()
        };
        assert_eq!(
            fault(&red(crossed)),
            LinkFault::Red(RedFault::MaxThreshold(20.0))
        );
        let still = RedConfig {
            weight: 0.0,
            ..standard()
        };
        assert_eq!(fault(&red(still)), LinkFault::Red(RedFault::Weight(0.0)));
        let outage = Outage {
            from: Time::FAR,
            to: Time::ZERO,
        };
        let outages = LinkFault::Outages(OutagesError::Empty { index: 0 });
        assert_eq!(
            fault(&LinkConfig {
                outages: vec![outage],
                ..good()
            }),
            outages
        );
    }
}
