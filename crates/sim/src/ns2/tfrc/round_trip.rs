//! Averages of the round-trip time, and the retransmission timeout of TCP.

use core::time::Duration;

use super::seconds;

/// Averages of the round-trip time: those of TFRC in seconds, and those of TCP in ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    pub(super) mean: f64,
    /// Mean of the square roots.
    pub(super) root: f64,
    pub(super) latest: f64,
    /// Smoothed round-trip time in eighths of a tick.
    ticks: u64,
    /// Mean deviation in quarters of a tick.
    deviation: u64,
}

impl RoundTrip {
    pub(super) fn new(sample: f64, tick: Duration) -> Self {
        let ticks = in_ticks(sample, tick);
        Self {
            mean: sample,
            root: sample.sqrt(),
            latest: sample,
            ticks: ticks * 8,
            deviation: ticks * 2,
        }
    }

    pub(super) fn update(&mut self, sample: f64, memory: f64, tick: Duration) {
        self.mean = memory * self.mean + (1.0 - memory) * sample;
        self.root = memory * self.root + (1.0 - memory) * sample.sqrt();
        self.latest = sample;
        // Weights of 1/8 and 1/4 in integer arithmetic, as in BSD TCP.
        let (ticks, mean) = (in_ticks(sample, tick), self.ticks / 8);
        self.ticks = (self.ticks + ticks).saturating_sub(mean).max(1);
        let error = ticks.abs_diff(mean);
        self.deviation = (self.deviation + error)
            .saturating_sub(self.deviation / 4)
            .max(1);
    }

    /// Retransmission timeout of the equation, in seconds.
    pub(super) fn rto(&self, tick: Duration) -> f64 {
        let ticks = (self.deviation * 8 + self.ticks) / 8;
        ticks as f64 * seconds(tick.max(MIN_TICK))
    }
}

/// Ticks of `sample` seconds, rounded to the nearest, at least one.
fn in_ticks(sample: f64, tick: Duration) -> u64 {
    ((sample / seconds(tick.max(MIN_TICK)) + 0.5) as u64).max(1)
}

/// Minimum clock tick. A finer clock makes no difference.
const MIN_TICK: Duration = Duration::from_micros(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_is_a_multiple_of_ticks() {
        // Values recorded from ns-2: 0.3 s at 20 and at 100 ms, 0.6 s at 300 ms.
        for (sample, rto) in [(0.02, 0.3), (0.1, 0.3), (0.3, 0.6)] {
            let tick = Duration::from_millis(100);
            let mut rtt = RoundTrip::new(sample, tick);
            for _ in 0..100 {
                rtt.update(sample, 0.95, tick);
            }
            assert!(
                (rtt.rto(tick) - rto).abs() < 1e-9,
                "{} at {sample}",
                rtt.rto(tick)
            );
            assert!((rtt.mean - sample).abs() < 1e-9 && (rtt.root - sample.sqrt()).abs() < 1e-9);
        }
    }
}
