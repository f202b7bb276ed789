//! Samples of a running session: when its rate is in equilibrium, and on both time scales.

use std::collections::VecDeque;
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
    /// Rates of the last intervals and their lengths in seconds, the newest last.
    recent: VecDeque<(f64, f64)>,
    /// Time of the last reading.
    read: Time,
    round: Interval,
    minute: Interval,
}

impl Sampler {
    /// A sampler for a session whose clock was zero at `epoch`. The times of samples follow the
    /// session's clock, so that a step of the wall clock does not reorder them.
    pub fn new(epoch: WallTime) -> Self {
        Self {
            epoch,
            recent: VecDeque::new(),
            read: Time::ZERO,
            round: Interval::default(),
            minute: Interval::default(),
        }
    }

    /// Adds a reading. Returns samples whose interval is complete, and after a pause that of the part of a
    /// minute before it.
    pub fn on_reading(&mut self, reading: &Reading) -> Vec<Measurement> {
        let mut samples = Vec::new();
        let last = std::mem::replace(&mut self.read, reading.now);
        if reading.now.since(last) > LONGEST_PAUSE {
            samples.extend(self.rest(last));
            *self = Self {
                read: reading.now,
                ..Self::new(self.epoch)
            };
        }
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
        let needed = STEADY * length.as_secs_f64();
        if let Some((mean, span)) = self.round.close(reading.now, length) {
            // Reports that are seconds apart make an interval each.
            self.round.began = Some(reading.now);
            self.keep(mean.rate.as_f64(), span, needed);
            if self.is_steady(needed) {
                samples.push(self.measurement(reading.now, Scale::RoundTrip, mean));
            }
        }
        if self.is_steady(needed) {
            self.minute.add(reading);
        }
        if let Some((mean, _)) = self.minute.close(reading.now, MINUTE) {
            samples.push(self.measurement(reading.now, Scale::Minute, mean));
        }
        samples
    }

    /// The incomplete minute of a session that ends, if it was in equilibrium for [`MIN_MINUTE`].
    pub fn finish(mut self, now: Time) -> Option<Measurement> {
        self.rest(now)
    }

    fn rest(&mut self, now: Time) -> Option<Measurement> {
        let (mean, _) = self.minute.close(now, MIN_MINUTE)?;
        Some(self.measurement(now, Scale::Minute, mean))
    }

    /// Keeps the rate of an interval, and of those before it what makes up `needed` seconds.
    fn keep(&mut self, rate: f64, span: f64, needed: f64) {
        self.recent.push_back((rate, span));
        while self.recent.len() > 2 && self.span() - self.recent[0].1 >= needed {
            self.recent.pop_front();
        }
    }

    /// Length of the intervals that are kept, in seconds.
    fn span(&self) -> f64 {
        self.recent.iter().map(|(_, span)| span).sum()
    }

    /// Whether the rate is in equilibrium: over two or more intervals, and at least `needed` seconds, its
    /// standard deviation is at most [`MAX_VARIATION`] of its mean.
    fn is_steady(&self, needed: f64) -> bool {
        let rates = self.recent.iter().map(|(rate, _)| rate);
        let count = self.recent.len() as f64;
        let mean = rates.clone().sum::<f64>() / count;
        let squares = rates.map(|rate| (rate - mean) * (rate - mean));
        let deviation = (squares.sum::<f64>() / count).sqrt();
        // Sums of intervals of a tenth of a second are not exact.
        let is_long = self.recent.len() > 1 && self.span() >= 0.999 * needed;
        is_long && deviation <= MAX_VARIATION * mean
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

    /// The means and the seconds, once the interval lasts for `length`. The next one begins with the next
    /// reading.
    fn close(&mut self, now: Time, length: Duration) -> Option<(Mean, f64)> {
        let span = now.since(self.began?);
        if span < length || self.count == 0 {
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
        Some((mean, span.as_secs_f64()))
    }
}

/// Time over which a rate is steady or not, in intervals of the shortest length.
const STEADY: f64 = 6.0;

/// After a longer time without a reading the session begins again. Receivers report every 5 s, and up to
/// 1.5 / 1.22 times that (RFC 3550 section 6.3.1); two reports may be lost.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

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

    /// A player whose reports are 5 s apart, for 47 s.
    #[test]
    fn each_receiver_report_is_a_sample() {
        let mut sampler = Sampler::new(WallTime::of_day(20_000));
        let reading = |secs: u64| Reading {
            now: Time::from_secs(secs),
            rate: Rate::kbps(2_000),
            rtt: Duration::from_millis(40),
            loss: 0.0,
            is_limited: true,
        };
        let times = (5..=45).step_by(5);
        let samples: Vec<Measurement> = times
            .clone()
            .flat_map(|secs| sampler.on_reading(&reading(secs)))
            .collect();
        // The first report has no interval, and one interval shows no equilibrium.
        assert_eq!(samples.len(), times.count() - 2, "{samples:?}");
        // After a pause the equilibrium is unknown, and what was before it is complete.
        let resumed = sampler.on_reading(&reading(105));
        let epoch = WallTime::of_day(20_000);
        let rest = (Scale::Minute, epoch.after(Duration::from_secs(45)));
        let found: Vec<_> = resumed.iter().map(|s| (s.scale, s.at)).collect();
        assert_eq!(found, [rest]);
        assert_eq!(sampler.finish(Time::from_secs(106)), None);
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
