//! Configuration of a link, and its validation.

use core::time::Duration;

use super::delay::{JitterConfig, JitterFault};
use super::loss::{LossConfig, LossFault};
use super::outage::{Outage, OutagesError};
use super::queue::{
    CoDelFault, DropTailConfig, DualPi2Fault, FqCoDelFault, PriorityConfig, QueueConfig, RedFault,
};
use super::rate::Capacity;
use super::steps::Steps;
use crate::units::Rate;

/// Parameters of a [`Link`](super::Link).
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Capacity of the transmitter.
    pub capacity: Capacity,
    /// Queue in front of the transmitter.
    pub queue: QueueConfig,
    /// Outages, ascending.
    pub outages: Vec<Outage>,
    /// Packet loss behind the transmitter.
    pub loss: LossConfig,
    /// Propagation delay.
    pub delay: Duration,
    /// Delay over time, added to the propagation delay: the delay variation of RFC 5481, relative to
    /// the minimum. A packet has that of the time at which its transmission ends.
    pub delay_variation: Option<Steps<Duration>>,
    /// Delay variation per packet, added to the propagation delay.
    pub jitter: Option<JitterConfig>,
    /// Treatment of packets of lower effort at the entrance.
    pub lower_effort: LowerEffortPolicy,
}

/// Treatment of packets of lower effort (DSCP LE, RFC 8622) at the entrance of a link. Networks may
/// do all of this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LowerEffortPolicy {
    /// The queue reads the DSCP. Only that of [`PriorityConfig`](super::PriorityConfig) uses it.
    #[default]
    Honour,
    /// The queue treats them as others.
    Ignore,
    /// The DSCP is set to 0, best effort.
    Remark,
    /// They are dropped.
    Drop,
}

impl Default for LinkConfig {
    /// An ideal wire. Its queue holds 1000 packets, the default `txqueuelen` of Linux; an unlimited
    /// transmitter never fills it.
    fn default() -> Self {
        Self {
            capacity: Capacity::Unlimited,
            queue: QueueConfig::DropTail(DropTailConfig::packets(1_000)),
            outages: Vec::new(),
            loss: LossConfig::NONE,
            delay: Duration::ZERO,
            delay_variation: None,
            jitter: None,
            lower_effort: LowerEffortPolicy::Honour,
        }
    }
}

impl LinkConfig {
    pub(super) fn check(&self) -> Result<(), LinkFault> {
        if self.capacity == Capacity::Fixed(Rate::ZERO) {
            return Err(LinkFault::NoCapacity);
        }
        self.loss.check().map_err(LinkFault::Loss)?;
        if let Some(jitter) = &self.jitter {
            jitter.check().map_err(LinkFault::Jitter)?;
        }
        check(&self.queue)
    }
}

fn check(queue: &QueueConfig) -> Result<(), LinkFault> {
    match queue {
        QueueConfig::CoDel(config) => config.check().map_err(LinkFault::CoDel),
        QueueConfig::DropTail(DropTailConfig { limit, .. })
        | QueueConfig::Priority(PriorityConfig { limit }) => {
            if limit.is_zero() {
                return Err(LinkFault::NoQueue);
            }
            Ok(())
        }
        QueueConfig::DualPi2(config) => config.check().map_err(LinkFault::DualPi2),
        QueueConfig::FqCoDel(config) => config.check().map_err(LinkFault::FqCoDel),
        QueueConfig::Red(config) if config.limit == 0 => Err(LinkFault::NoQueue),
        QueueConfig::Red(config) => config.check().map_err(LinkFault::Red),
    }
}

/// Invalid configuration of a link.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("link `{link}`: {fault}")]
pub struct LinkError {
    /// Name of the link.
    pub link: String,
    /// The invalid parameter.
    pub fault: LinkFault,
}

/// Invalid parameter of a link.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LinkFault {
    /// `CoDel` has a parameter out of range.
    #[error("{0}")]
    CoDel(CoDelFault),
    /// `DualPI2` has a parameter out of range.
    #[error("{0}")]
    DualPi2(DualPi2Fault),
    /// FQ-CoDel has a parameter out of range.
    #[error("{0}")]
    FqCoDel(FqCoDelFault),
    /// The jitter has a parameter out of range.
    #[error("{0}")]
    Jitter(JitterFault),
    /// The loss model is invalid.
    #[error("{0}")]
    Loss(LossFault),
    /// The capacity is zero at all times.
    #[error("its capacity is 0 b/s at all times: use steps for a stall, or an outage")]
    NoCapacity,
    /// The queue limit is zero, so no packet passes.
    #[error("its queue takes nothing, so nothing passes: allow at least 1 packet")]
    NoQueue,
    /// The list of outages is invalid.
    #[error("{0}")]
    Outages(OutagesError),
    /// RED has a parameter out of range.
    #[error("{0}")]
    Red(RedFault),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::testing::PacketHandle;
    use crate::link::{CoDelConfig, DelayLaw, FqCoDelConfig, Link, RedConfig, Spread};
    use crate::random::Seed;
    use crate::units::{Bytes, Time};

    fn fault(config: &LinkConfig) -> LinkFault {
        Link::<PacketHandle>::new(config, Seed(1), "up")
            .unwrap_err()
            .fault
    }

    #[test]
    fn invalid_links_are_rejected() {
        let good = LinkConfig::default;
        let outage = Outage {
            from: Time::FAR,
            to: Time::ZERO,
        };
        let spread = Spread::Normal {
            mean: Duration::ZERO,
            deviation: Duration::ZERO,
            max: Duration::ZERO,
        };
        let jitter = JitterConfig {
            spread,
            reorder: true,
        };
        assert!(Link::<PacketHandle>::new(&good(), Seed(1), "up").is_ok());
        let with_loss = |probability| LinkConfig {
            loss: LossConfig::Bernoulli(probability),
            ..good()
        };
        let loss = LinkFault::Loss(LossFault::Probability(1.5));
        assert_eq!(fault(&with_loss(1.5)), loss);
        assert!(matches!(fault(&with_loss(f64::NAN)), LinkFault::Loss(_)));
        let still = LinkConfig {
            capacity: Capacity::Fixed(Rate::ZERO),
            ..good()
        };
        assert_eq!(fault(&still), LinkFault::NoCapacity);
        let dark = LinkConfig {
            outages: vec![outage],
            ..good()
        };
        let outages = LinkFault::Outages(OutagesError::Empty { index: 0 });
        assert_eq!(fault(&dark), outages);
        let shaking = LinkConfig {
            jitter: Some(jitter),
            ..good()
        };
        let deviation = LinkFault::Jitter(JitterFault::Deviation);
        assert_eq!(fault(&shaking), deviation);
    }

    #[test]
    fn invalid_queues_are_rejected() {
        let red = |change: fn(&mut RedConfig)| {
            let mut red = RedConfig::default();
            change(&mut red);
            QueueConfig::Red(red)
        };
        let fair = |change: fn(&mut FqCoDelConfig)| {
            let mut fair = FqCoDelConfig::default();
            change(&mut fair);
            QueueConfig::FqCoDel(fair)
        };
        let law = DelayLaw {
            interval: Duration::ZERO,
            ..DelayLaw::default()
        };
        let codel = CoDelConfig {
            law,
            ..CoDelConfig::default()
        };
        let quantum = FqCoDelFault::Quantum(Bytes(100));
        for (queue, expected) in [
            (
                QueueConfig::DropTail(DropTailConfig::bytes(Bytes::ZERO)),
                LinkFault::NoQueue,
            ),
            (red(|red| red.limit = 0), LinkFault::NoQueue),
            (
                red(|red| red.max_threshold = 20.0),
                LinkFault::Red(RedFault::MaxThreshold(20.0)),
            ),
            (
                red(|red| red.weight = 0.0),
                LinkFault::Red(RedFault::Weight(0.0)),
            ),
            (
                QueueConfig::CoDel(codel),
                LinkFault::CoDel(CoDelFault::Interval),
            ),
            (
                fair(|fair| fair.quantum = Bytes(100)),
                LinkFault::FqCoDel(quantum),
            ),
            (
                fair(|fair| fair.queues = 0),
                LinkFault::FqCoDel(FqCoDelFault::Queues(0)),
            ),
        ] {
            let config = LinkConfig {
                queue,
                ..LinkConfig::default()
            };
            assert_eq!(fault(&config), expected);
        }
    }
}
