//! Round-trip time between two aggregation points, from echoed timestamps.

use core::time::Duration;

use crate::units::{Time, nanos};
use crate::wire::cp::{Delay, Echo, Stamp, TICK};

/// Timestamps of an application's packets: echoes those of the other point, and takes samples from
/// the echoes of its own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timestamps {
    /// Latest timestamp of the other point, and its arrival.
    peer: Option<(Stamp, Time)>,
    /// Since when all samples are far above the mean.
    outliers: Option<Time>,
}

/// Smoothed round-trip time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    /// Smoothed mean and mean deviation in seconds, once there is a sample.
    smoothed: Option<(f64, f64)>,
    /// Samples since the last round.
    sum: f64,
    samples: u32,
}

/// Use of an echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sample {
    /// A new sample, in units of [`TICK`].
    Valid { ticks: u64 },
    /// The time that the other point held the timestamp is too long to be coded.
    Stale,
    /// No timestamp of this point.
    Invalid,
    /// Far above the mean. Counts if it persists.
    Outlier,
}

impl Timestamps {
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

    /// An echo has arrived over a path with this round-trip time.
    pub(super) fn on_echo(&mut self, now: Time, echo: Echo, path: &RoundTrip) -> Sample {
        if echo.delay.is_saturated() {
            return Sample::Stale;
        }
        let elapsed = Stamp::at(now).since(echo.stamp);
        let held = echo.delay.to_duration();
        if elapsed > MAX_RTT + held {
            return Sample::Invalid;
        }
        // Both are rounded.
        let sample = elapsed.saturating_sub(held).max(TICK);
        // If the clock of this point steps forward, timestamps in flight give long samples for one
        // round trip.
        if path.outlier().is_some_and(|longest| sample > longest) {
            let since = *self.outliers.get_or_insert(now);
            if now.since(since) < 2 * path.mean().unwrap_or_default() {
                return Sample::Outlier;
            }
        } else {
            self.outliers = None;
        }
        Sample::Valid {
            ticks: nanos(sample) / nanos(TICK),
        }
    }
}

impl RoundTrip {
    /// Adds samples without outliers: their sum in units of [`TICK`], and their number.
    pub(super) fn on_samples(&mut self, ticks: u64, samples: u32) {
        let sum = (ticks * nanos(TICK)) as f64 / 1e9;
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

fn duration(seconds: f64) -> Duration {
    Duration::from_nanos((seconds * 1e9 + 0.5) as u64)
}

/// Longest round-trip time. An echo of random bits is within it with a probability of 4 %.
const MAX_RTT: Duration = Duration::from_secs(10);
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

    /// A point that smooths each sample.
    #[derive(Default)]
    struct Point {
        stamps: Timestamps,
        rtt: RoundTrip,
    }

    impl Point {
        fn on_echo(&mut self, now: Time, echo: Echo) -> Sample {
            let sample = self.stamps.on_echo(now, echo, &self.rtt);
            if let Sample::Valid { ticks } = sample {
                self.rtt.on_samples(ticks, 1);
            }
            sample
        }
    }

    #[test]
    fn sample_excludes_the_time_at_the_other_point() {
        let mut point = Point::default();
        let sample = point.on_echo(ms(1_150), echo(1_000, 50));
        assert!(matches!(sample, Sample::Valid { .. }), "{sample:?}");
        let error = point
            .rtt
            .mean()
            .unwrap()
            .abs_diff(Duration::from_millis(100));
        assert!(error < Duration::from_micros(40), "{error:?}");
    }

    #[test]
    fn timestamps_are_echoed_for_a_second() {
        let mut stamps = Timestamps::default();
        assert_eq!(stamps.echo(ms(0)), None);
        stamps.on_stamp(ms(10), Stamp::at(ms(3)));
        let echo = stamps.echo(ms(40)).unwrap();
        assert_eq!(echo.stamp, Stamp::at(ms(3)));
        assert_eq!(echo.delay.to_duration(), Duration::from_millis(30));
        assert_eq!(stamps.echo(ms(1_100)), None);
    }

    #[test]
    fn clock_steps_do_not_change_the_mean() {
        let mut point = Point::default();
        for n in 0..100 {
            point.on_echo(ms(100 + 10 * n), echo(10 * n, 0));
            point.rtt.end_round();
        }
        let before = point.rtt.mean().unwrap();
        // Timestamps in flight when the clock steps forward by five seconds.
        for n in 100..110 {
            assert_eq!(
                point.on_echo(ms(5_100 + 10 * n), echo(10 * n, 0)),
                Sample::Outlier
            );
            point.rtt.end_round();
        }
        // And when it steps back.
        for n in 110..120 {
            assert_eq!(
                point.on_echo(ms(100 + 10 * n), echo(5_000 + 10 * n, 0)),
                Sample::Invalid
            );
            point.rtt.end_round();
        }
        assert_eq!(point.rtt.mean(), Some(before));
    }

    #[test]
    fn longer_path_is_accepted_after_two_round_trips() {
        let mut point = Point::default();
        for n in 0..100 {
            point.on_echo(ms(100 + 10 * n), echo(10 * n, 0));
            point.rtt.end_round();
        }
        for n in 100..400 {
            point.on_echo(ms(1_000 + 10 * n), echo(10 * n, 0));
            point.rtt.end_round();
        }
        let mean = point.rtt.mean().unwrap();
        assert!(mean > Duration::from_millis(990), "{mean:?}");
    }
}
