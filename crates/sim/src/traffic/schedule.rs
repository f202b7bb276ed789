//! A piecewise constant rate.

use tidegate_core::units::{Rate, Time};

/// A rate with steps at given times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Rate before the first step.
    pub first: Rate,
    /// Rate from each time on; times increase.
    pub steps: Vec<(Time, Rate)>,
}

impl From<Rate> for Schedule {
    /// A constant rate.
    fn from(rate: Rate) -> Self {
        Self {
            first: rate,
            steps: Vec::new(),
        }
    }
}

impl Schedule {
    /// Validates rates and times.
    ///
    /// # Errors
    /// If no rate is above zero, or the times do not increase.
    pub fn check(&self) -> Result<(), ScheduleFault> {
        let unsorted = self.steps.windows(2).find(|pair| pair[1].0 <= pair[0].0);
        if let Some(pair) = unsorted {
            return Err(ScheduleFault::Order {
                before: pair[0].0,
                after: pair[1].0,
            });
        }
        if self.most() == Rate::ZERO {
            return Err(ScheduleFault::Nothing);
        }
        Ok(())
    }

    /// Rate at a time.
    pub fn at(&self, at: Time) -> Rate {
        let passed = self.steps.partition_point(|step| step.0 <= at);
        match passed.checked_sub(1) {
            Some(last) => self.steps[last].1,
            None => self.first,
        }
    }

    /// Time of the next step after `at`; [`Time::FAR`] if there is none.
    pub fn next_after(&self, at: Time) -> Time {
        let passed = self.steps.partition_point(|step| step.0 <= at);
        self.steps.get(passed).map_or(Time::FAR, |step| step.0)
    }

    /// The schedule up to `stop`, and a rate of zero from then on.
    pub fn until(mut self, stop: Time) -> Self {
        self.steps.retain(|step| step.0 < stop);
        if stop == Time::ZERO {
            self.first = Rate::ZERO;
        } else if stop < Time::FAR {
            self.steps.push((stop, Rate::ZERO));
        }
        self
    }

    /// Maximum rate.
    pub fn most(&self) -> Rate {
        let steps = self.steps.iter().map(|step| step.1);
        steps.fold(self.first, Rate::max)
    }
}

/// Invalid schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleFault {
    /// The rate is zero at all times.
    #[error("the rate is 0 at all times: write a rate above 0, or remove the flow")]
    Nothing,
    /// A step is not later than the previous step.
    #[error(
        "the step at {after:?} follows the one at {before:?}: sort the steps by time, one for \
         each moment"
    )]
    Order {
        /// Time of the previous step.
        before: Time,
        /// Time of the step.
        after: Time,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(first: u64, steps: &[(u64, u64)]) -> Schedule {
        let step = |(at, kbps): &(u64, u64)| (Time::from_secs(*at), Rate::kbps(*kbps));
        Schedule {
            first: Rate::kbps(first),
            steps: steps.iter().map(step).collect(),
        }
    }

    #[test]
    fn step_applies_from_its_time_on() {
        let steps = schedule(100, &[(2, 0), (5, 300)]);
        assert_eq!(steps.check(), Ok(()));
        let at = |ms| steps.at(Time::from_millis(ms));
        assert_eq!(
            [0, 1_999, 2_000, 5_000, 99_000].map(at),
            [100, 100, 0, 300, 300].map(Rate::kbps)
        );
        let cut = |secs| steps.clone().until(Time::from_secs(secs));
        assert_eq!(cut(5), schedule(100, &[(2, 0), (5, 0)]));
        assert_eq!(cut(4), schedule(100, &[(2, 0), (4, 0)]));
        assert_eq!(cut(0), schedule(0, &[]));
        assert_eq!(steps.clone().until(Time::FAR), steps);
        assert_eq!(steps.next_after(Time::ZERO), Time::from_secs(2));
        assert_eq!(steps.next_after(Time::from_secs(2)), Time::from_secs(5));
        assert_eq!(steps.next_after(Time::from_secs(5)), Time::FAR);
        assert_eq!(steps.most(), Rate::kbps(300));
    }

    #[test]
    fn faults_are_named() {
        assert_eq!(schedule(0, &[(1, 0)]).check(), Err(ScheduleFault::Nothing));
        let twice = schedule(1, &[(3, 5), (3, 6)]).check().unwrap_err();
        assert_eq!(
            twice.to_string(),
            "the step at 3.000000000s follows the one at 3.000000000s: sort the steps by time, \
             one for each moment"
        );
    }
}
