//! Estimates the jitter of the path.

use core::time::Duration;

use super::window::WindowMin;
use crate::units::Time;

/// The standard deviation of delays that follow no trend.
///
/// It looks at one packet per 25 ms at most, as the first of each frame: they come at a distance
/// at which no network keeps two packets together, and what a frame queues behind itself does not
/// count. A queue that grows or drains moves such delays along a line, and the second difference of
/// a line is zero; that of independent errors has six times their variance. The median of what
/// was seen in the last two seconds or so is not moved by the corners, where a queue begins or ends.
///
/// A path that is almost full wobbles more, since what is left of one frame delays the next. That is
/// a queue, and jitter is what there is without: the smallest deviation of the last 15 to 18
/// seconds, in which a sender that looks for the capacity is below it at times.
#[derive(Clone, Debug)]
pub(super) struct Jitter {
    /// Sending time of the newest packet.
    sent: Option<Time>,
    /// The delays of the newest three, newest last, ns.
    delays: [i64; 3],
    /// How many there were, up to three.
    known: usize,
    /// A ring of second differences without their signs.
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

    /// Adds a packet sent later than all before it; returns whether it counts as a sample.
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
        // 0.6745 standard deviations are the median of a normal error without its sign, and √6 is
        // that of the second difference: 1.652. The least of some such medians is a fifth below
        // what they mean.
        let deviation = i64::try_from(middle.saturating_mul(1_250) / 1_652).unwrap_or(MOST);
        self.deviations.insert(now, deviation.min(MOST));
    }

    /// In nanoseconds, up to 25 ms; zero while nothing is known.
    pub(super) fn deviation(&self) -> i64 {
        self.deviations.min().unwrap_or(0)
    }

    /// By how much the usual delay is above the smallest of the last seconds: of some 90 normal
    /// errors the smallest is 2.5 deviations below their mean. Nanoseconds.
    pub(super) fn usual(&self) -> i64 {
        self.deviation() * 5 / 2
    }

    /// By how much hardly any delay is above the smallest: as far again.
    pub(super) fn extent(&self) -> Duration {
        Duration::from_nanos(self.deviation().unsigned_abs() * 5)
    }
}

/// Of frames at 30 a second every one counts, of evenly spaced packets forty a second.
const DISTANCE: Duration = Duration::from_millis(25);
/// About two seconds of frames.
const MEMORY: usize = 63;
/// With fewer the median may be anything.
const ENOUGH: usize = 8;
/// A path with more jitter meets no delay bound of some hundred milliseconds.
const MOST: i64 = 25_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::{Seed, unit};

    /// The deviation that is found for delays `trend(i)`, in ns, and normal errors (a sum of twelve
    /// uniform ones), a packet each 33 ms.
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
        fn neither_clock_nor_trend_nor_scale_matters(
            seed: u64,
            deviation in 1e5..2e7_f64,
            epoch in -9e15..9e15_f64,
            slope in -3e7..3e7_f64,
        ) {
            let plain = found(seed, 1e6, |_| 0.0) * deviation / 1e6;
            let got = found(seed, deviation, |i| epoch + slope * i as f64);
            // Delays are cut to nanoseconds, and those of the plain ones are scaled.
            let cut = 10.0 + 10.0 * deviation / 1e6;
            prop_assert!((got - plain.min(MOST as f64)).abs() < cut, "{got} {plain}");
        }

        #[test]
        fn a_queue_that_comes_and_goes_is_no_jitter(
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
        fn no_delay_breaks_it(delays in proptest::collection::vec((any::<u32>(), any::<i64>()), 0..200)) {
            let (mut jitter, mut now) = (Jitter::new(), Time::ZERO);
            for (wait, delay) in delays {
                now += Duration::from_micros(u64::from(wait));
                jitter.add(now, delay);
                prop_assert!((0..=MOST).contains(&jitter.deviation()));
            }
        }
    }

    #[test]
    fn it_finds_the_deviation() {
        let mut shares: Vec<f64> = (0..1_000).map(|s| found(s, 1e6, |_| 0.0) / 1e6).collect();
        shares.sort_unstable_by(f64::total_cmp);
        // Measured: 0.19, 0.50, 0.96, 1.33 and 1.71. The least of the first medians, of eight
        // differences each, may be far below; 63 that overlap are as good as some 30.
        assert!((0.9..1.05).contains(&shares[500]), "{}", shares[500]);
        assert!(shares[50] > 0.45 && shares[950] < 1.4);
        assert!(shares[0] > 0.15 && shares[999] < 1.8);
    }

    #[test]
    fn what_a_frame_queues_behind_itself_does_not_count() {
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
