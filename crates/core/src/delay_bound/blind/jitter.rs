//! Estimates the jitter of the path.

use core::time::Duration;

use crate::path::window::WindowMin;
use crate::units::Time;

/// Standard deviation of the delays without their trend.
///
/// Samples are at least 25 ms apart, such as the first packet of each frame. At this distance no
/// network delivers two packets together, and queueing of a frame behind its own packets is
/// excluded. The delays of a queue that grows or drains form a line, whose second difference is
/// zero. The second difference of independent errors has six times their variance. The median over
/// about two seconds ignores the corners where a queue begins or ends.
///
/// On an almost full path the delays vary more, because the rest of one frame delays the next. This
/// is a queue and not jitter. The jitter is therefore the smallest deviation of the last 15 to 18
/// seconds: in that time a sender that probes for the capacity is below it at least once.
#[derive(Clone, Debug)]
pub(super) struct Jitter {
    /// Sending time of the newest sample.
    sent: Option<Time>,
    /// Delays of the newest three samples, newest last, ns.
    delays: [i64; 3],
    /// Number of samples, up to three.
    known: usize,
    /// Ring of absolute second differences.
    bends: Vec<u64>,
    next: usize,
    deviations: WindowMin,
}

impl Jitter {
    /// An estimator without samples.
    pub(super) fn new() -> Self {
        Self {
            sent: None,
            delays: [0; 3],
            known: 0,
            bends: Vec::with_capacity(MEMORY),
            next: 0,
            deviations: WindowMin::new(Duration::from_secs(3)),
        }
    }

    /// Adds a packet, in order of sending time; returns whether it is used as a sample.
    pub(super) fn add(&mut self, sent: Time, delay: i64) -> bool {
        if self.sent.is_some_and(|last| sent.since(last) < DISTANCE) {
            return false;
        }
        self.sent = Some(sent);
        self.delays.rotate_left(1);
        self.delays[2] = delay;
        self.known = (self.known + 1).min(3);
        if self.known == 3 {
            let [first, second, third] = self.delays;
            let rise = third.saturating_sub(second);
            self.learn(sent, rise.saturating_sub(second.saturating_sub(first)));
        }
        true
    }

    fn learn(&mut self, now: Time, bend: i64) {
        let bend = bend.unsigned_abs();
        if self.bends.len() < MEMORY {
            self.bends.push(bend);
        } else {
            self.bends[self.next] = bend;
        }
        self.next = (self.next + 1) % MEMORY;
        if self.bends.len() < ENOUGH {
            return;
        }
        let mut sorted = self.bends.clone();
        let (_, middle, _) = sorted.select_nth_unstable(self.bends.len() / 2);
        // The median of the absolute value of a normal error is 0.6745 standard deviations. The
        // deviation of the second difference is √6 times as large, and the product is 1.652. The
        // smallest of several such medians is a fifth below their mean.
        let deviation = i64::try_from(middle.saturating_mul(1_250) / 1_652).unwrap_or(MAX);
        self.deviations.insert(now, deviation.min(MAX));
    }

    /// Standard deviation in ns, up to 25 ms; zero without samples.
    pub(super) fn deviation(&self) -> i64 {
        self.deviations.min().unwrap_or(0)
    }

    /// Difference between the mean delay and the smallest of the last seconds, in ns: the smallest
    /// of about 90 normal errors is 2.5 deviations below their mean.
    pub(super) fn usual(&self) -> i64 {
        self.deviation() * 5 / 2
    }

    /// Upper bound on the jitter above the smallest delay, at 2.5 deviations above the mean. Hardly
    /// any delay exceeds it.
    pub(super) fn extent(&self) -> Duration {
        Duration::from_nanos(self.deviation().unsigned_abs() * 5)
    }
}

/// At 30 frames per second every frame is a sample; of evenly spaced packets, 40 per second.
const DISTANCE: Duration = Duration::from_millis(25);
/// About two seconds of frames.
const MEMORY: usize = 63;
/// The median of fewer samples is unreliable.
const ENOUGH: usize = 8;
/// A path with more jitter cannot meet a delay bound of a few hundred milliseconds.
const MAX: i64 = 25_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::{Seed, unit};

    /// Estimated deviation of the delays `trend(i)`, in ns, with normal errors (the sum of twelve
    /// uniform ones), at one packet per 33 ms.
    fn found(seed: u64, deviation: f64, trend: impl Fn(u64) -> f64) -> f64 {
        let mut rng = Seed(seed).stream("delays");
        let mut jitter = Jitter::new();
        for i in 0..90 {
            let error: f64 = (0..12).map(|_| unit(&mut rng)).sum::<f64>() - 6.0;
            let delay = trend(i) + deviation * error;
            assert!(jitter.add(Time::from_millis(33 * i), delay as i64));
        }
        jitter.deviation() as f64
    }

    proptest! {
        #[test]
        fn estimate_is_independent_of_clock_offset_trend_and_scale(
            seed: u64,
            deviation in 1e5..2e7_f64,
            epoch in -9e15..9e15_f64,
            slope in -3e7..3e7_f64,
        ) {
            let plain = found(seed, 1e6, |_| 0.0) * deviation / 1e6;
            let got = found(seed, deviation, |i| epoch + slope * i as f64);
            // Delays are truncated to nanoseconds, and the plain ones are scaled.
            let cut = 10.0 + 10.0 * deviation / 1e6;
            prop_assert!((got - plain.min(MAX as f64)).abs() < cut, "{got} {plain}");
        }

        #[test]
        fn temporary_queue_does_not_count_as_jitter(
            seed: u64,
            deviation in 1e5..5e6_f64,
            begins in 20..80_u64,
            slope in 1e6..3e7_f64,
        ) {
            let queue = |i: u64| slope * (i.saturating_sub(begins).min(10) as f64);
            let plain = found(seed, deviation, |_| 0.0);
            let got = found(seed, deviation, queue);
            prop_assert!(got < 1.5 * plain.max(deviation), "{got} {plain}");
        }

        #[test]
        fn no_delay_panics(delays in proptest::collection::vec((any::<u32>(), any::<i64>()), 0..200)) {
            let (mut jitter, mut now) = (Jitter::new(), Time::ZERO);
            for (wait, delay) in delays {
                now += Duration::from_micros(u64::from(wait));
                jitter.add(now, delay);
                prop_assert!((0..=MAX).contains(&jitter.deviation()));
            }
        }
    }

    #[test]
    fn estimate_matches_the_deviation() {
        let mut shares: Vec<f64> = (0..1_000).map(|s| found(s, 1e6, |_| 0.0) / 1e6).collect();
        shares.sort_unstable_by(f64::total_cmp);
        // Measured: 0.19, 0.50, 0.96, 1.33 and 1.71. The smallest of the first medians, of eight
        // differences each, may be far too low. 63 overlapping differences are worth about 30
        // independent ones.
        assert!((0.9..1.05).contains(&shares[500]), "{}", shares[500]);
        assert!(shares[50] > 0.45 && shares[950] < 1.4);
        assert!(shares[0] > 0.15 && shares[999] < 1.8);
    }

    #[test]
    fn queueing_within_a_frame_does_not_count_as_jitter() {
        let mut jitter = Jitter::new();
        for frame in 0..60 {
            for packet in 0..10 {
                let counts = jitter.add(
                    Time::from_millis(33 * frame + packet),
                    5_000_000 * packet as i64,
                );
                assert_eq!(counts, packet == 0);
            }
        }
        assert_eq!(jitter.deviation(), 0);
    }
}
