//! Samples of a running session: when its rate is in equilibrium, and on both time scales.

use std::time::Duration;

use tidegate_core::units::{Rate, Time};

use crate::sample::{MIN_RATE, Measurement, Scale};
use crate::wall_time::WallTime;

/// State of a session at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Time on the session's clock.
    pub now: Time,
    /// Rate that the receiver gets.
    pub rate: Rate,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Smoothed share of lost packets, 0..=1.
    pub loss: f64,
    /// The application had less to send than the controller allowed.
    pub is_limited: bool,
}

/// Turns readings of a session into samples.
#[derive(Clone, Debug)]
pub struct Sampler {
    /// Wall-clock time at the session's zero.
    epoch: WallTime,
    /// Values of the last round trips, the newest last.
    recent: Vec<f64>,
    round: Interval,
    minute: Interval,
}

impl Sampler {
    /// A sampler for a session whose clock was zero at `epoch`. The times of samples follow the
    /// session's clock, so that a step of the wall clock does not reorder them.
    pub fn new(epoch: WallTime) -> Self {
        Self {
            epoch,
            recent: Vec::new(),
            round: Interval::default(),
            minute: Interval::default(),
        }
    }

    /// Adds a reading. Returns samples whose interval is complete: at most one of each scale.
    pub fn on_reading(&mut self, reading: &Reading) -> Vec<Measurement> {
        let mut samples = Vec::new();
        if reading.rate < MIN_RATE {
            // The session is silent.
            self.recent.clear();
            self.round = Interval::default();
            return samples;
        }
        self.round.add(reading);
        // Of round trips below half a second, several make up a sample: a session writes at most two
        // per second.
        let length = reading.rtt.max(MIN_ROUND);
        if let Some(mean) = self.round.close(reading.now, length) {
            self.recent.push(mean.rate.as_f64());
            if self.recent.len() > STEADY {
                self.recent.remove(0);
            }
            if self.is_steady() {
                samples.push(self.measurement(reading.now, Scale::RoundTrip, mean));
            }
        }
        if self.is_steady() {
            self.minute.add(reading);
        }
        if let Some(mean) = self.minute.close(reading.now, MINUTE) {
            samples.push(self.measurement(reading.now, Scale::Minute, mean));
        }
        samples
    }

    /// The incomplete minute of a session that ends, if it was in equilibrium for [`MIN_MINUTE`].
    pub fn finish(mut self, now: Time) -> Option<Measurement> {
        let mean = self.minute.close(now, MIN_MINUTE)?;
        Some(self.measurement(now, Scale::Minute, mean))
    }

    /// Whether the rate is in equilibrium: over the last intervals its standard deviation is at most
    /// [`MAX_VARIATION`] of its mean.
    fn is_steady(&self) -> bool {
        let count = self.recent.len() as f64;
        let mean = self.recent.iter().sum::<f64>() / count;
        let squares = self.recent.iter().map(|rate| (rate - mean) * (rate - mean));
        let deviation = (squares.sum::<f64>() / count).sqrt();
        self.recent.len() == STEADY && deviation <= MAX_VARIATION * mean
    }

    fn measurement(&self, now: Time, scale: Scale, mean: Mean) -> Measurement {
        Measurement {
            at: self.epoch.after(now.since(Time::ZERO)),
            scale,
            rate: mean.rate,
            rtt: Some(mean.rtt),
            loss: Some(mean.loss),
            is_limited: mean.is_limited,
        }
    }
}

/// Sums since the begin of an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    began: Option<Time>,
    rate: f64,
    rtt: Duration,
    loss: f64,
    /// Readings at which the application was the limit.
    limited: u32,
    count: u32,
}

#[derive(Clone, Copy, Debug)]
struct Mean {
    rate: Rate,
    rtt: Duration,
    loss: f64,
    is_limited: bool,
}

impl Interval {
    fn add(&mut self, reading: &Reading) {
        self.began.get_or_insert(reading.now);
        self.rate += reading.rate.as_f64();
        self.rtt = self.rtt.saturating_add(reading.rtt);
        self.loss += reading.loss.clamp(0.0, 1.0);
        self.limited += u32::from(reading.is_limited);
        self.count += 1;
    }

    /// The means, once the interval lasts for `length`. The next one begins then.
    fn close(&mut self, now: Time, length: Duration) -> Option<Mean> {
        if now.since(self.began?) < length {
            return None;
        }
        let count = f64::from(self.count);
        let mean = Mean {
            rate: Rate::from_f64(self.rate / count),
            rtt: self.rtt / self.count,
            loss: self.loss / count,
            // A path that was full for half of the time shows its rate.
            is_limited: 2 * self.limited > self.count,
        };
        *self = Self::default();
        Some(mean)
    }
}

/// Intervals over which a rate is steady or not.
const STEADY: usize = 6;

/// Largest coefficient of variation of a steady rate: that of TFRC beside TCP in tenths of a second is
/// about 0.2.
const MAX_VARIATION: f64 = 0.3;

/// Shortest interval of a sample.
const MIN_ROUND: Duration = Duration::from_millis(500);

const MINUTE: Duration = Duration::from_mins(1);

/// Shortest part of a minute that the end of a session completes.
pub const MIN_MINUTE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn play(seconds: u64, rate: impl Fn(u64) -> u64) -> (Vec<Measurement>, Option<Measurement>) {
        let mut sampler = Sampler::new(WallTime::of_day(20_000));
        let mut samples = Vec::new();
        for tick in 0..=10 * seconds {
            samples.extend(sampler.on_reading(&Reading {
                now: Time::from_millis(100 * tick),
                rate: Rate::kbps(rate(tick)),
                rtt: Duration::from_millis(40),
                loss: 0.01,
                is_limited: true,
            }));
        }
        (samples, sampler.finish(Time::from_secs(seconds)))
    }

    #[test]
    fn a_steady_session_writes_both_scales() {
        let (samples, rest) = play(75, |_| 2_000);
        let minutes = samples.iter().filter(|s| s.scale == Scale::Minute);
        assert_eq!(minutes.count(), 1);
        let rounds = samples.iter().filter(|s| s.scale == Scale::RoundTrip);
        // Two per second at most, after three seconds.
        assert!((110..=150).contains(&rounds.count()));
        for sample in samples.iter().chain(&rest) {
            assert_eq!(sample.rate, Rate::kbps(2_000));
            assert!(sample.is_valid() && sample.is_limited, "{sample:?}");
        }
        let rest = rest.expect("more than five seconds are left");
        assert_eq!(
            rest.at,
            WallTime::of_day(20_000).after(Duration::from_secs(75))
        );
    }

    #[test]
    fn a_rate_that_varies_is_no_equilibrium() {
        // Slow start: double in each second.
        let (samples, rest) = play(8, |tick| 100 << (tick / 10));
        assert_eq!((samples, rest), (Vec::new(), None));
        let (samples, _) = play(30, |tick| if tick / 10 % 2 == 0 { 500 } else { 3_000 });
        assert_eq!(samples, []);
    }

    #[test]
    fn a_silent_session_writes_nothing() {
        assert_eq!(play(90, |_| 0), (Vec::new(), None));
        let (_, short) = play(4, |_| 2_000);
        assert_eq!(short, None);
    }
}
