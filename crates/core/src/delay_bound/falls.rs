//! Sudden falls of the rate of a path.

use core::time::Duration;
use std::collections::VecDeque;

use crate::units::{Rate, Time};

/// Rates of the last second, and the deepest fall of the last minutes.
#[derive(Clone, Debug, Default)]
pub(super) struct Falls {
    rates: VecDeque<(Time, Rate)>,
    /// Time of the deepest fall, and the part of the rate that remained.
    deepest: Option<(Time, f64)>,
}

impl Falls {
    /// The path carries `rate` now.
    pub(super) fn on_rate(&mut self, now: Time, rate: Rate) {
        self.rates.push_back((now, rate));
        while self.rates.len() > MOST
            || self
                .rates
                .front()
                .is_some_and(|(at, _)| now.since(*at) > SUDDEN)
        {
            self.rates.pop_front();
        }
        let before = self.rates.iter().map(|(_, rate)| rate.as_f64());
        let before = before.fold(1.0, f64::max);
        let remains = rate.as_f64() / before;
        if remains < FALL && self.deepest(now).is_none_or(|least| remains <= least) {
            self.deepest = Some((now, remains));
        }
    }

    /// Earlier rates are not those of the path.
    pub(super) fn restart(&mut self) {
        self.rates.clear();
    }

    /// Part of the rate that remained after the deepest fall of the last [`MEMORY`]; `None` if there
    /// was none.
    pub(super) fn deepest(&self, now: Time) -> Option<f64> {
        let deepest = self.deepest.filter(|(at, _)| now.since(*at) <= MEMORY);
        deepest.map(|(_, remains)| remains)
    }
}

/// A fall within this time is sudden: a slower one is followed by the plan.
const SUDDEN: Duration = Duration::from_secs(1);
/// Rates that are kept.
const MOST: usize = 128;
/// Part of the rate that remains after a fall, at most. Smaller variations are those of the
/// controller.
const FALL: f64 = 0.5;
/// A path that fell once may fall again.
const MEMORY: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sudden_falls_count_and_are_forgotten() {
        let mut falls = Falls::default();
        let mut at = |ms, kbps| {
            let now = Time::from_millis(ms);
            falls.on_rate(now, Rate::kbps(kbps));
            falls.deepest(now)
        };
        assert_eq!(at(0, 4_000), None);
        assert_eq!(at(1_500, 1_000), None, "slow");
        assert_eq!(at(2_000, 900), None, "small");
        assert_eq!(at(2_100, 250), Some(0.25));
        assert_eq!(at(2_200, 1_000), Some(0.25));
        assert_eq!(at(62_500, 1_000), None);
    }
}
