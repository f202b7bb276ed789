//! Values that change at given times.

use std::sync::Arc;

use crate::units::Time;

/// Values, each valid until the next step. The last one is valid forever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps<T> {
    steps: Arc<[(Time, T)]>,
}

impl<T: Copy> Steps<T> {
    /// Steps in order of time.
    ///
    /// # Errors
    ///
    /// The list is empty, the first step is not at time zero, or a step is not later than its
    /// predecessor.
    pub fn new(steps: &[(Time, T)]) -> Result<Self, StepsError> {
        match steps.first() {
            None => return Err(StepsError::Empty),
            Some((at, _)) if *at > Time::ZERO => {
                return Err(StepsError::StartMissing { first: *at });
            }
            Some(_) => {}
        }
        if let Some(i) = steps.windows(2).position(|pair| pair[0].0 >= pair[1].0) {
            return Err(StepsError::NotAscending { index: i + 1 });
        }
        Ok(Self {
            steps: steps.into(),
        })
    }

    /// Value at `at`.
    pub fn at(&self, at: Time) -> T {
        self.steps[self.index(at)].1
    }

    /// The steps in order of time.
    pub fn as_slice(&self) -> &[(Time, T)] {
        &self.steps
    }

    pub(super) fn index(&self, at: Time) -> usize {
        self.steps.partition_point(|(from, _)| *from <= at) - 1
    }
}

/// Reads steps at non-decreasing times, which takes no search.
#[derive(Clone, Debug)]
pub(super) struct StepReader<T> {
    steps: Steps<T>,
    /// Index of the next step.
    next: usize,
}

impl<T: Copy> StepReader<T> {
    pub(super) fn new(steps: Steps<T>) -> Self {
        Self { steps, next: 1 }
    }

    /// Value at `at`, no earlier than the time of the previous call.
    pub(super) fn at(&mut self, at: Time) -> T {
        let steps = self.steps.as_slice();
        while steps.get(self.next).is_some_and(|(from, _)| *from <= at) {
            self.next += 1;
        }
        steps[self.next - 1].1
    }
}

/// Invalid list of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepsError {
    /// There is no step.
    #[error("a property over time has no steps: give at least one at time 0")]
    Empty,
    /// The step is not later than its predecessor.
    #[error(
        "step {index} of a property over time is not later than the previous one: sort the steps \
         and give each time once"
    )]
    NotAscending {
        /// Index of the step, from zero.
        index: usize,
    },
    /// The first step is not at time zero.
    #[error("the first step of a property over time is at {first:?}: add one at time 0")]
    StartMissing {
        /// Time of the first step.
        first: Time,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_steps_are_rejected() {
        let ms = Time::from_millis;
        assert_eq!(Steps::<u8>::new(&[]), Err(StepsError::Empty));
        let late = Steps::new(&[(ms(5), 0)]);
        assert_eq!(late, Err(StepsError::StartMissing { first: ms(5) }));
        let twice = Steps::new(&[(ms(0), 0), (ms(0), 1)]);
        assert_eq!(twice, Err(StepsError::NotAscending { index: 1 }));
    }

    #[test]
    fn a_reader_finds_the_same_values() {
        let ms = Time::from_millis;
        let steps = Steps::new(&[(ms(0), 'a'), (ms(3), 'b'), (ms(4), 'c'), (ms(9), 'd')]).unwrap();
        let mut reader = StepReader::new(steps.clone());
        for at in [0, 2, 3, 3, 8, 9, 30].map(ms) {
            assert_eq!(reader.at(at), steps.at(at), "{at:?}");
        }
        assert_eq!(
            [ms(2), ms(3), ms(30)].map(|at| steps.at(at)),
            ['a', 'b', 'd']
        );
    }
}
