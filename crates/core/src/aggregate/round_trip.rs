//! Round-trip time between two aggregation points, from echoed timestamps.

use core::time::Duration;

use crate::units::{Time, nanos};
use crate::wire::cp::{Delay, Echo, Stamp};

/// Estimates the round-trip time, and keeps the timestamp to echo.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    /// Latest timestamp of the other point, and its arrival.
    peer: Option<(Stamp, Time)>,
    /// Smoothed mean and mean deviation in seconds, once there is a sample.
    smoothed: Option<(f64, f64)>,
    /// Samples since the last round.
    sum: f64,
    samples: u32,
    /// Since when all samples are far above the mean.
    outliers: Option<Time>,
}

/// Use of an echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sample {
    /// A new sample.
    Valid,
    /// The time that the other point held the timestamp is too long to be coded.
    Stale,
    /// No timestamp of this point.
    Invalid,
    /// Far above the mean. Counts if it persists.
    Outlier,
}

impl RoundTrip {
    /// A timestamp has arrived in the newest packet.
    pub(super) fn on_stamp(&mut self, now: Time, stamp: Stamp) {
        self.peer = Some((stamp, now));
    }

    /// The echo of a packet that departs now.
    pub(super) fn echo(&self, now: Time) -> Option<Echo> {
        let (stamp, arrived) = self.peer?;
        let delay = Delay::of(now.since(arrived));
        (!delay.is_saturated()).then_some(Echo { stamp, delay })
    }

    /// An echo has arrived.
    pub(super) fn on_echo(&mut self, now: Time, echo: Echo) -> Sample {
        if echo.delay.is_saturated() {
            return Sample::Stale;
        }
        let elapsed = Stamp::at(now).since(echo.stamp);
        let held = echo.delay.to_duration();
        if elapsed > MAX_RTT + held {
            return Sample::Invalid;
        }
        // Both are rounded.
        let sample = seconds(elapsed.saturating_sub(held)).max(LEAST_RTT);
        let Some((mean, deviation)) = self.smoothed else {
            self.smoothed = Some((sample, sample / 2.0));
            (self.sum, self.samples) = (sample, 1);
            return Sample::Valid;
        };
        // If the clock of this point steps forward, timestamps in flight give long samples for one
        // round trip.
        if sample > outlier(mean, deviation) {
            let since = *self.outliers.get_or_insert(now);
            if seconds(now.since(since)) < 2.0 * mean {
                return Sample::Outlier;
            }
        } else {
            self.outliers = None;
        }
        self.sum += sample;
        self.samples = self.samples.saturating_add(1);
        Sample::Valid
    }

    /// Adds samples that another program has measured, as their sum in seconds and their number,
    /// without outliers.
    pub(super) fn on_samples(&mut self, sum: f64, samples: u32) {
        let mean = sum / f64::from(samples.max(1));
        self.smoothed.get_or_insert((mean, mean / 2.0));
        self.sum += sum;
        self.samples = self.samples.saturating_add(samples);
    }

    /// Longer samples are outliers; `None` before the first sample.
    pub(super) fn outlier(&self) -> Option<Duration> {
        let (mean, deviation) = self.smoothed?;
        Some(duration(outlier(mean, deviation)))
    }

    /// Ends a round: returns the mean of its samples and adds it to the smoothed values, with the
    /// weights of RFC 6298.
    pub(super) fn end_round(&mut self) -> Option<Duration> {
        let (mean, deviation) = self.smoothed?;
        if self.samples == 0 {
            return None;
        }
        let sample = self.sum / f64::from(self.samples);
        (self.sum, self.samples) = (0.0, 0);
        let deviation = deviation + 0.25 * ((sample - mean).abs() - deviation);
        self.smoothed = Some((mean + 0.125 * (sample - mean), deviation));
        Some(duration(sample))
    }

    /// Smoothed round-trip time; `None` before the first sample.
    pub(super) fn mean(&self) -> Option<Duration> {
        self.smoothed.map(|(mean, _)| duration(mean))
    }

    /// Its mean deviation.
    pub(super) fn deviation(&self) -> Duration {
        self.smoothed
            .map_or(Duration::ZERO, |(_, deviation)| duration(deviation))
    }
}

fn outlier(mean: f64, deviation: f64) -> f64 {
    4.0 * (mean + 2.0 * deviation) + OUTLIER_MARGIN
}

fn seconds(span: Duration) -> f64 {
    nanos(span) as f64 / 1e9
}

fn duration(seconds: f64) -> Duration {
    Duration::from_nanos((seconds * 1e9 + 0.5) as u64)
}

/// Longest round-trip time. An echo of random bits is within it with a probability of 4 %.
const MAX_RTT: Duration = Duration::from_secs(10);
/// Resolution of timestamps, in seconds.
const LEAST_RTT: f64 = 16e-6;
/// Samples of a short path vary by more than their mean.
const OUTLIER_MARGIN: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn echo(sent: u64, held: u64) -> Echo {
        Echo {
            stamp: Stamp::at(ms(sent)),
            delay: Delay::of(Duration::from_millis(held)),
        }
    }

    #[test]
    fn sample_excludes_the_time_at_the_other_point() {
        let mut rtt = RoundTrip::default();
        assert_eq!(rtt.on_echo(ms(1_150), echo(1_000, 50)), Sample::Valid);
        let error = rtt.mean().unwrap().abs_diff(Duration::from_millis(100));
        assert!(error < Duration::from_micros(40), "{error:?}");
    }

    #[test]
    fn timestamps_are_echoed_for_a_second() {
        let mut rtt = RoundTrip::default();
        assert_eq!(rtt.echo(ms(0)), None);
        rtt.on_stamp(ms(10), Stamp::at(ms(3)));
        let echo = rtt.echo(ms(40)).unwrap();
        assert_eq!(echo.stamp, Stamp::at(ms(3)));
        assert_eq!(echo.delay.to_duration(), Duration::from_millis(30));
        assert_eq!(rtt.echo(ms(1_100)), None);
    }

    #[test]
    fn clock_steps_do_not_change_the_mean() {
        let mut rtt = RoundTrip::default();
        for n in 0..100 {
            rtt.on_echo(ms(100 + 10 * n), echo(10 * n, 0));
            rtt.end_round();
        }
        let before = rtt.mean().unwrap();
        // Timestamps in flight when the clock steps forward by five seconds.
        for n in 100..110 {
            assert_eq!(
                rtt.on_echo(ms(5_100 + 10 * n), echo(10 * n, 0)),
                Sample::Outlier
            );
            rtt.end_round();
        }
        // And when it steps back.
        for n in 110..120 {
            assert_eq!(
                rtt.on_echo(ms(100 + 10 * n), echo(5_000 + 10 * n, 0)),
                Sample::Invalid
            );
            rtt.end_round();
        }
        assert_eq!(rtt.mean(), Some(before));
    }

    #[test]
    fn longer_path_is_accepted_after_two_round_trips() {
        let mut rtt = RoundTrip::default();
        for n in 0..100 {
            rtt.on_echo(ms(100 + 10 * n), echo(10 * n, 0));
            rtt.end_round();
        }
        for n in 100..400 {
            rtt.on_echo(ms(1_000 + 10 * n), echo(10 * n, 0));
            rtt.end_round();
        }
        let mean = rtt.mean().unwrap();
        assert!(mean > Duration::from_millis(990), "{mean:?}");
    }
}
