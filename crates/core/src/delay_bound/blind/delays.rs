//! Minimum delays over windows of different length.

use core::time::Duration;

use crate::path::window::WindowMin;
use crate::units::Time;

/// One-way delays or round trips, in ns. The baseline without a queue of this sender is the minimum
/// of three seconds, or of one second while competing flows hold the queue.
#[derive(Clone, Debug)]
pub(super) struct Delays {
    minute: WindowMin,
    /// Window of three seconds.
    recent: WindowMin,
    /// Window of one second.
    brief: WindowMin,
    /// Window of a quarter of a second.
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

    /// Minimum of the last minute; `None` before the first delay.
    pub(super) fn least(&self) -> Option<i64> {
        self.minute.min()
    }

    /// Baseline delay without a queue of this sender.
    pub(super) fn low(&self, contested: bool) -> Option<i64> {
        self.window(contested).min()
    }

    /// Baseline above the minimum of the last minute; `None` if no packet arrived within the
    /// window.
    pub(super) fn standing(&self, contested: bool, now: Time) -> Option<u64> {
        self.window(contested).above(&self.minute, now)
    }

    /// Sets the one-second baseline to the current minimum at once.
    pub(super) fn begin_contention(&mut self, now: Time) {
        if let Some(least) = self.present.min() {
            self.brief = WindowMin::new(BRIEF);
            self.brief.insert(now, least);
        }
    }

    fn window(&self, contested: bool) -> &WindowMin {
        if contested { &self.brief } else { &self.recent }
    }
}

/// Six of these are one second.
const BRIEF: Duration = Duration::from_millis(170);
