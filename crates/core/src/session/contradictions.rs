//! Reports that contradict each other.

use core::time::Duration;

use crate::units::Time;

/// Recent reports of which one contradicts another: a third party forges some of them, and the state
/// that follows from them describes no path.
///
/// Which of them are forged remains unknown. Once they have ended, the sender forgets the path and begins
/// again with the reports that remain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Contradictions {
    count: u32,
    last: Option<Time>,
}

impl Contradictions {
    /// A report contradicts an earlier one.
    pub(super) fn add(&mut self, now: Time) {
        if self.are_past(now) {
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.last = Some(now);
    }

    /// Whether there were none in the last [`MEMORY`].
    pub(super) fn are_past(&self, now: Time) -> bool {
        self.last.is_none_or(|last| now.since(last) > MEMORY)
    }

    /// Whether there were several, and none in the last [`QUIET`].
    pub(super) fn have_ended(&self, now: Time) -> bool {
        let is_quiet = self.last.is_some_and(|last| now.since(last) >= QUIET);
        self.count >= SEVERAL && is_quiet
    }
}

/// One forged arrival contradicts the four honest reports that overlap with it.
const SEVERAL: u32 = 3;
/// Ten feedback intervals: the forger has ended.
const QUIET: Duration = Duration::from_millis(250);
/// Contradictions that are further apart have causes of their own.
const MEMORY: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_contradictions_have_ended_after_a_quiet_time() {
        let ms = Time::from_millis;
        let mut reports = Contradictions::default();
        assert!(!reports.have_ended(ms(1_000)));
        (0..2).for_each(|n| reports.add(ms(1_000 + n)));
        assert!(!reports.have_ended(ms(2_000)));
        reports.add(ms(2_000));
        assert!(!reports.have_ended(ms(2_249)));
        assert!(reports.have_ended(ms(2_250)));
        // One of its own.
        reports.add(ms(5_000));
        assert!(!reports.have_ended(ms(6_000)));
    }
}
