//! The smallest delays of spans of different length.

use core::time::Duration;

use super::window::WindowMin;
use crate::units::Time;

/// One-way delays or round trips, ns, and what they are without a queue of ours: the smallest of
/// three seconds, or of one while others are known to hold the queue.
#[derive(Clone, Debug)]
pub(super) struct Delays {
    minute: WindowMin,
    /// Of three seconds.
    recent: WindowMin,
    /// Of a second.
    brief: WindowMin,
    /// Of a quarter of one.
    present: WindowMin,
}

impl Delays {
    pub(super) fn new() -> Self {
        Self {
            minute: WindowMin::new(Duration::from_secs(10)),
            recent: WindowMin::new(Duration::from_millis(500)),
            brief: WindowMin::new(BRIEF),
            present: WindowMin::new(Duration::from_millis(50)),
        }
    }

    pub(super) fn insert(&mut self, now: Time, delay: i64) {
        for window in [
            &mut self.minute,
            &mut self.recent,
            &mut self.brief,
            &mut self.present,
        ] {
            window.insert(now, delay);
        }
    }

    /// Of the last minute; `None` before the first.
    pub(super) fn least(&self) -> Option<i64> {
        self.minute.min()
    }

    /// Without a queue of ours.
    pub(super) fn low(&self, contested: bool) -> Option<i64> {
        self.window(contested).min()
    }

    /// By how much that is above the smallest of the last minute; `None` if nothing arrived for
    /// so long.
    pub(super) fn standing(&self, contested: bool, now: Time) -> Option<u64> {
        self.window(contested).above(&self.minute, now)
    }

    /// What is needed now counts as if it had been needed for a second.
    pub(super) fn disown(&mut self, now: Time) {
        if let Some(least) = self.present.min() {
            self.brief = WindowMin::new(BRIEF);
            self.brief.insert(now, least);
        }
    }

    fn window(&self, contested: bool) -> &WindowMin {
        if contested { &self.brief } else { &self.recent }
    }
}

/// Six of these are a second.
const BRIEF: Duration = Duration::from_millis(170);
