//! Round-trip times of the reports, for the law of a controller.

use super::base;
use super::window::WindowMax;

/// In seconds.
#[derive(Clone, Debug)]
pub(super) struct RoundTrip {
    smoothed: f64,
    /// Negated, for the smallest.
    recent: WindowMax,
    base: WindowMax,
}

impl RoundTrip {
    pub(super) fn new() -> Self {
        Self {
            smoothed: 0.0,
            recent: WindowMax::new(RECENT_WINDOW),
            base: WindowMax::new(base::BASE_WINDOW),
        }
    }

    /// A sample at `now`. Returns its excess over the smallest one in the time of the base delay.
    pub(super) fn on_sample(&mut self, now: f64, sample: f64) -> f64 {
        if self.smoothed > 0.0 {
            self.smoothed += (sample - self.smoothed) * GAIN;
        } else {
            self.smoothed = sample;
        }
        self.recent.add(now, -sample);
        self.base.add(now, -sample);
        sample + self.base.get().unwrap_or(-sample)
    }

    /// Zero before the first sample.
    pub(super) fn smoothed(&self) -> f64 {
        self.smoothed
    }

    /// Smallest of the last 15 to 30 s.
    pub(super) fn smallest(&self) -> f64 {
        -self.recent.get().unwrap_or(-self.smoothed)
    }
}

/// Weight of a sample: there is one per report.
const GAIN: f64 = 0.5;
/// Half of the window of the smallest one, in seconds.
const RECENT_WINDOW: f64 = 15.0;
