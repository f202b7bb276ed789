//! Answers of the throttling laws for a given slope, backlog and delay bound.

use core::time::Duration;

use serde::Serialize;
use tidegate_core::tcp_rate::Law;

/// Parameters of section 4 of the first paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Throttle {
    /// m in b/s per second: growth of the bandwidth after a timeout, which takes it to zero.
    pub(super) slope: f64,
    /// Q in bits: backlog at the timeout.
    pub(super) backlog: f64,
    /// d: delay bound.
    pub(super) bound: Duration,
}

/// Answer of a law.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Answer {
    /// `h_best` in b/s.
    pub(super) rate: f64,
    /// T of equation (3): from the timeout to the even point, where the bandwidth equals the rate.
    pub(super) even: Duration,
    /// `T_critical` of equation (7).
    pub(super) critical: Duration,
    /// `T_recovery` of equation (9): from the timeout until the backlog has drained.
    pub(super) recovery: Duration,
    /// Largest delay of data that is made at this rate.
    pub(super) largest_delay: Duration,
    /// `h_other` of equation (6c) in b/s, the lower rate that also keeps the bound by (2); only of the
    /// printed law, and only if it is positive.
    pub(super) other: Option<f64>,
}

impl Throttle {
    /// `d_min`: the smallest bound that the law accepts. The printed law has √(Q/m), equation (4); the
    /// exact law √(2Q/m), the time until the backlog alone has left.
    pub(super) fn smallest_bound(&self, law: Law) -> Duration {
        let share = match law {
            Law::Exact => 2.0,
            Law::Paper | Law::PaperM => 1.0,
        };
        seconds(libm::sqrt(share * self.backlog / self.slope))
    }

    /// The highest rate by the law; `None` if the bound is below [`Self::smallest_bound`].
    ///
    /// The printed law (6b) is h = md(1 + √(2 − 2Q/(md²))). The exact one is the highest rate whose
    /// largest delay h/(2m) + Q/h is d: h = md(1 + √(1 − 2Q/(md²))).
    pub(super) fn answer(&self, law: Law) -> Option<Answer> {
        let (m, q, d) = (self.slope, self.backlog, self.bound.as_secs_f64());
        let root = match law {
            Law::Exact => 1.0 - 2.0 * q / (m * d * d),
            Law::Paper | Law::PaperM => 2.0 - 2.0 * q / (m * d * d),
        };
        // A negative root is rounding if the bound is the smallest one.
        if root < -1e-9 || d == 0.0 {
            return None;
        }
        let root = libm::sqrt(root.max(0.0));
        let rate = m * d * (1.0 + root);
        let other = m * d * (1.0 - root);
        let other = (law != Law::Exact && other > 0.0).then_some(other);
        let recovery = rate / m * (1.0 + libm::sqrt(1.0 + 2.0 * q * m / (rate * rate)));
        Some(Answer {
            rate,
            even: seconds(rate / m),
            critical: seconds(2.0 * rate / m),
            recovery: seconds(recovery),
            largest_delay: seconds(self.largest_delay(rate)),
            other,
        })
    }

    /// Largest delay of data made at `rate` from the timeout on, in seconds. Data made at t leaves at
    /// s, where ms²/2 = Q + ht; s − t is largest at the even point s = h/m. If the backlog is still
    /// queued then, it is largest at t = 0.
    fn largest_delay(&self, rate: f64) -> f64 {
        let (m, q) = (self.slope, self.backlog);
        if rate * rate >= 2.0 * q * m {
            rate / (2.0 * m) + q / rate
        } else {
            libm::sqrt(2.0 * q / m)
        }
    }
}

/// `as` would wrap; spans here are at most days.
fn seconds(span: f64) -> Duration {
    Duration::try_from_secs_f64(span).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_core::delay_bound::{Burst, Frames, TcpPath};
    use tidegate_core::tcp_rate::CongestionEvent;
    use tidegate_core::units::{Bytes, Rate};

    use super::*;

    const LAWS: [Law; 2] = [Law::Exact, Law::PaperM];

    fn respond(law: Law, throttle: &Throttle, path: TcpPath) -> (Rate, bool) {
        let event = CongestionEvent {
            path,
            normal: Rate::kbps(2_000),
            reaction: Duration::ZERO,
            backlog: Some(Bytes((throttle.backlog / 8.0) as u64)),
            budget: throttle.bound,
            burst: Burst::default(),
            floor: Rate::bps(1),
            ceiling: Rate::MAX,
            curve: None,
            frames: Frames {
                next: Duration::ZERO,
                interval: Duration::from_millis(40),
            },
        };
        let response = law.respond(&event);
        (response.rate, response.feasible)
    }

    #[test]
    fn the_printed_law_without_a_backlog() {
        // Equation (8).
        let throttle = Throttle {
            slope: 100_000.0,
            backlog: 0.0,
            bound: Duration::from_secs(2),
        };
        let answer = throttle.answer(Law::Paper).unwrap();
        let wanted = 200_000.0 * (1.0 + 2.0_f64.sqrt());
        assert!((answer.rate - wanted).abs() < 1e-6);
        assert!((answer.critical.as_secs_f64() - 2.0 * wanted / 1e5).abs() < 1e-6);
        assert_eq!(answer.critical, answer.recovery);
        assert_eq!(answer.other, None);
        // It is 1.207 times the bound.
        assert!((answer.largest_delay.as_secs_f64() - wanted / 2e5).abs() < 1e-6);
    }

    proptest! {
        /// The laws of the sender, for a path of the same slope.
        #[test]
        fn the_answers_are_those_of_the_sender(
            mss in 500_u64..2_000,
            rtt_ms in 20_u64..500,
            bytes in 0_u64..200_000,
            bound_ms in 200_u64..8_000,
        ) {
            let path = TcpPath {
                mss: Bytes(mss),
                rtt: Duration::from_millis(rtt_ms),
                limit: None,
            };
            for law in LAWS {
                let throttle = Throttle {
                    slope: law.slope(path),
                    backlog: bytes as f64 * 8.0,
                    bound: Duration::from_millis(bound_ms),
                };
                let (rate, feasible) = respond(law, &throttle, path);
                let Some(answer) = throttle.answer(law) else {
                    prop_assert!(!feasible);
                    prop_assert!(throttle.bound < throttle.smallest_bound(law));
                    continue;
                };
                let rounded = throttle.bound + Duration::from_nanos(2);
                prop_assert!(rounded >= throttle.smallest_bound(law));
                let ratio = rate.as_f64() / answer.rate;
                prop_assert!(!feasible || (ratio - 1.0).abs() < 1e-3, "{law}: {rate} {answer:?}");
            }
        }

        /// No data is late at the exact rate, and some is at a higher one.
        #[test]
        fn the_exact_rate_is_the_highest(
            slope in 1e4_f64..1e7,
            backlog in 0.0_f64..1e6,
            bound_ms in 100_u64..8_000,
        ) {
            let throttle = Throttle { slope, backlog, bound: Duration::from_millis(bound_ms) };
            if let Some(answer) = throttle.answer(Law::Exact) {
                let bound = throttle.bound.as_secs_f64();
                prop_assert!((answer.largest_delay.as_secs_f64() / bound - 1.0).abs() < 1e-6);
                prop_assert!(throttle.largest_delay(answer.rate * 1.001) > bound);
            }
        }
    }
}
