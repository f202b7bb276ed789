//! Results of a run's expectations.

use crate::metrics::Summary;

/// Result of an expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExpectationResult {
    /// It holds.
    Yes,
    /// It does not hold, but the machine was too busy to judge it: the emulated network differed
    /// from the configured one, or an endpoint lacked processor time.
    Unsure,
    /// It does not hold.
    No,
}

impl Summary {
    /// Result of an expectation, given whether its comparison `holds` in this run.
    pub fn held(&self, holds: bool) -> ExpectationResult {
        match (holds, self.kept_up) {
            (true, _) => ExpectationResult::Yes,
            (false, Some(false)) => ExpectationResult::Unsure,
            (false, _) => ExpectationResult::No,
        }
    }

    /// The worst result of all expectations.
    pub fn all_held(&self) -> ExpectationResult {
        let each = self.expect.iter().map(|verdict| self.held(verdict.holds));
        each.max().unwrap_or(ExpectationResult::Yes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Verdict;

    #[test]
    fn failed_expectation_is_unsure_if_the_machine_was_busy() {
        let of = |kept_up, each: &[bool]| {
            let verdict = |holds| Verdict {
                text: "a.loss > 0".to_owned(),
                measured: None,
                holds,
            };
            let expect = each.iter().copied().map(verdict).collect();
            let summary = Summary {
                expect,
                kept_up,
                ..Summary::default()
            };
            summary.all_held()
        };
        assert_eq!(of(Some(false), &[true, true]), ExpectationResult::Yes);
        assert_eq!(of(Some(false), &[true, false]), ExpectationResult::Unsure);
        assert_eq!(of(Some(true), &[true, false]), ExpectationResult::No);
        assert_eq!(of(None, &[false]), ExpectationResult::No);
        assert_eq!(of(None, &[]), ExpectationResult::Yes);
    }
}
