//! Smoothed round-trip time and retransmission timeout, as in TCP (RFC 6298).

use core::time::Duration;

use crate::units::nanos;

/// Averages in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    mean: f64,
    deviation: f64,
    /// Whether a sample was taken.
    is_measured: bool,
}

impl Default for RoundTrip {
    fn default() -> Self {
        Self::assumed(FIRST)
    }
}

impl RoundTrip {
    /// Before the first sample, which replaces this value.
    pub(super) fn assumed(rtt: Duration) -> Self {
        let mean = seconds(rtt);
        Self {
            mean,
            deviation: mean / 2.0,
            is_measured: false,
        }
    }

    pub(super) fn update(&mut self, sample: Duration) {
        let sample = seconds(sample);
        if !self.is_measured {
            (self.mean, self.deviation) = (sample, sample / 2.0);
            self.is_measured = true;
            return;
        }
        self.deviation += 0.25 * ((sample - self.mean).abs() - self.deviation);
        self.mean += 0.125 * (sample - self.mean);
    }

    /// `SRTT` in seconds.
    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    pub(super) fn duration(&self) -> Duration {
        Duration::from_nanos((self.mean * 1e9 + 0.5) as u64)
    }

    /// Time without news after which a packet is lost.
    pub(super) fn timeout(&self) -> Duration {
        let margin = (4.0 * self.deviation).max(MIN_MARGIN);
        Duration::from_nanos(((self.mean + margin) * 1e9) as u64)
    }
}

fn seconds(rtt: Duration) -> f64 {
    nanos(rtt.clamp(MIN, MAX)) as f64 / 1e9
}

/// Range of a sample.
const MIN: Duration = Duration::from_millis(1);
const MAX: Duration = Duration::from_mins(1);
/// Used before the first sample, as in RFC 6298 section 2.
const FIRST: Duration = Duration::from_secs(1);
/// Minimum of the margin above the mean, as in Linux (`TCP_RTO_MIN`).
const MIN_MARGIN: f64 = 0.2;
