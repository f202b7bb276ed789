//! Informed start as published (Schmitt, Zink, Theiss and Steinmetz, "Improving the Start-Up Behaviour
//! of TCP-friendly Media Transmissions", section 3.3).
//!
//! The paper's receiver computes the loss event rate and first reports one 2 RTT after the start,
//! from the inverse of the equation if nothing was lost. Here the sender computes it, from the first
//! report that arrives 2 RTT after the first packet. A loss counts as "before 2 RTT" if it is
//! reported earlier.

use tidegate_core::control::Prior;
use tidegate_core::controller::rap::StartRule;
use tidegate_core::units::Time;

/// State of the informed start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Informed {
    /// Before the first loss event rate.
    Early {
        /// In bytes per second.
        predicted: f64,
        /// Round-trip time of the prior in seconds.
        rtt: f64,
        /// Time of the first packet.
        began: Option<Time>,
    },
    /// A loss was reported before 2 RTT: the prediction was too high.
    TooHigh,
    /// The rules after the start apply.
    Over,
}

impl Informed {
    pub(super) fn new(rule: StartRule, prior: Option<Prior>) -> Self {
        match (rule, prior) {
            (StartRule::InformedPaper, Some(prior)) => Self::Early {
                predicted: prior.rate.as_f64() / 8.0,
                rtt: prior.rtt.as_secs_f64(),
                began: None,
            },
            _ => Self::Over,
        }
    }

    /// The rate to start with, if the start is informed.
    pub(super) fn first_rate(self) -> Option<f64> {
        match self {
            Self::Early { predicted, .. } => Some(predicted),
            Self::TooHigh | Self::Over => None,
        }
    }

    /// Whether the flow has not got its first loss event rate yet.
    pub(super) fn is_early(self) -> bool {
        matches!(self, Self::Early { .. })
    }

    /// Round-trip time of the prior in seconds, before the first loss event rate.
    pub(super) fn rtt(self) -> Option<f64> {
        match self {
            Self::Early { rtt, .. } => Some(rtt),
            Self::TooHigh | Self::Over => None,
        }
    }

    pub(super) fn on_sent(&mut self, now: Time) {
        if let Self::Early { began, .. } = self {
            began.get_or_insert(now);
        }
    }

    /// The rate after a report, and the next state.
    pub(super) fn on_report(self, report: &EarlyReport) -> (Self, Step) {
        match self {
            Self::Early {
                predicted, began, ..
            } => {
                // The first report measures no rate.
                let received = if report.is_first {
                    predicted
                } else {
                    report.received
                };
                if let Some(fair) = report.fair {
                    return Self::TooHigh.too_high(fair, received);
                }
                let rate = predicted.min(received);
                let round_trips = began.map_or(0.0, |began| {
                    report.now.since(began).as_secs_f64() / report.rtt
                });
                if round_trips + HAIR < 2.0 {
                    (self, Step::Rate(rate))
                } else {
                    (Self::Over, Step::FirstLossRate(rate))
                }
            }
            Self::TooHigh => match report.fair {
                Some(fair) => self.too_high(fair, report.received),
                None => (self, Step::Normal),
            },
            Self::Over => (self, Step::Normal),
        }
    }

    /// The mean of both rates until the fair rate is the higher one.
    fn too_high(self, fair: f64, received: f64) -> (Self, Step) {
        if fair > received {
            (Self::Over, Step::Normal)
        } else {
            (self, Step::Rate(0.5 * (fair + received)))
        }
    }
}

/// What a report says during the start. Rates are in bytes per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarlyReport {
    pub(super) now: Time,
    pub(super) is_first: bool,
    /// In seconds.
    pub(super) rtt: f64,
    pub(super) received: f64,
    /// Rate of the equation; `None` before a loss.
    pub(super) fair: Option<f64>,
}

/// What follows from a report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// Send at this rate.
    Rate(f64),
    /// Send at this rate, and compute the first loss event rate from it.
    FirstLossRate(f64),
    /// The rules after the start.
    Normal,
}

/// Tolerance for reports that arrive slightly less than 2 RTT after the start.
const HAIR: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use tidegate_core::units::Rate;

    const RTT: f64 = 0.1;

    fn start() -> Informed {
        let prior = Prior {
            rate: Rate::kbps(480),
            rtt: Duration::from_millis(100),
            confidence: 1.0,
        };
        let mut informed = Informed::new(StartRule::InformedPaper, Some(prior));
        assert_eq!(informed.first_rate(), Some(60_000.0));
        informed.on_sent(Time::from_secs(4));
        informed
    }

    fn report(round_trips: f64, received: f64, fair: Option<f64>) -> EarlyReport {
        EarlyReport {
            now: Time::from_secs(4) + Duration::from_secs_f64(RTT * round_trips),
            is_first: false,
            rtt: RTT,
            received,
            fair,
        }
    }

    #[test]
    fn before_the_first_loss_rate_the_rate_is_the_least_of_predicted_and_received() {
        let informed = start();
        let first = EarlyReport {
            is_first: true,
            ..report(1.0, 1_000.0, None)
        };
        assert_eq!(informed.on_report(&first), (informed, Step::Rate(60_000.0)));
        for (received, rate) in [(50_000.0, 50_000.0), (70_000.0, 60_000.0)] {
            let step = informed.on_report(&report(1.5, received, None));
            assert_eq!(step, (informed, Step::Rate(rate)));
        }
    }

    #[test]
    fn the_first_loss_rate_comes_after_two_round_trips() {
        let (next, step) = start().on_report(&report(2.0, 50_000.0, None));
        assert_eq!(
            (next, step),
            (Informed::Over, Step::FirstLossRate(50_000.0))
        );
        // (2) A loss after that is none of this state.
        let later = next.on_report(&report(2.5, 50_000.0, Some(10_000.0)));
        assert_eq!(later, (Informed::Over, Step::Normal));
    }

    #[test]
    fn a_loss_before_two_round_trips_gives_the_mean_of_fair_and_received_rate() {
        let (next, step) = start().on_report(&report(1.5, 50_000.0, Some(20_000.0)));
        assert_eq!((next, step), (Informed::TooHigh, Step::Rate(35_000.0)));
        let (next, step) = next.on_report(&report(2.5, 35_000.0, Some(25_000.0)));
        assert_eq!((next, step), (Informed::TooHigh, Step::Rate(30_000.0)));
        // Until the fair rate is higher than the received one.
        let (next, step) = next.on_report(&report(3.5, 30_000.0, Some(30_001.0)));
        assert_eq!((next, step), (Informed::Over, Step::Normal));
    }

    #[test]
    fn without_a_prior_or_the_rule_the_start_is_slow() {
        let prior = Prior {
            rate: Rate::kbps(480),
            rtt: Duration::from_millis(100),
            confidence: 1.0,
        };
        let slow = Informed::new(StartRule::SlowStart, Some(prior));
        let unknown = Informed::new(StartRule::InformedPaper, None);
        assert_eq!((slow, unknown), (Informed::Over, Informed::Over));
    }
}
