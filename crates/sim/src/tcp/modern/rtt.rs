//! Round-trip times and the retransmission timeout (RFC 6298), as computed by Linux.

use core::cmp::Reverse;
use core::time::Duration;

use tidegate_core::units::{Time, nanos};

use super::windowed::Windowed;

/// Limits of the retransmission timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeoutConfig {
    /// Lower bound of the term that is added to the smoothed round trip, as in Linux, where the
    /// timeout of a steady path exceeds the round trip by this value.
    pub min: Duration,
    /// Upper bound, including back-off.
    pub max: Duration,
    /// Timeout before the first sample.
    pub initial: Duration,
    /// Whether consecutive timeouts are as long as the first, except the second. Linux has this for
    /// up to six timeouts of streams with fewer than four segments in flight
    /// (`tcp_thin_linear_timeouts`).
    pub linear: bool,
}

impl Default for TimeoutConfig {
    fn default() -> Self {
        Self {
            min: Duration::from_millis(200),
            max: Duration::from_mins(2),
            initial: Duration::from_secs(1),
            linear: false,
        }
    }
}

/// Smoothed round trip, its variation, its minimum, and the resulting timeout.
#[derive(Clone, Debug)]
pub(super) struct Rtt {
    config: TimeoutConfig,
    /// All in nanoseconds. Zero before the first sample.
    smoothed: u64,
    /// Four times the mean deviation, and the maximum of this since `round_end` was set.
    deviation: u64,
    largest: u64,
    /// Four times the variation that enters into the timeout.
    variation: u64,
    /// The round trip ends when this segment is acknowledged.
    round_end: u32,
    min: Windowed<Reverse<u64>>,
    backoff: u32,
}

impl Rtt {
    /// State before the first sample.
    pub(super) fn new(config: TimeoutConfig) -> Self {
        Self {
            config,
            smoothed: 0,
            deviation: 0,
            largest: 0,
            variation: 0,
            round_end: 0,
            min: Windowed::new(nanos(MIN_WINDOW)),
            backoff: 0,
        }
    }

    /// Smoothed round trip; zero before the first sample.
    pub(super) fn smoothed(&self) -> Duration {
        Duration::from_nanos(self.smoothed)
    }

    /// Minimum of the last five minutes; `None` before the first sample.
    pub(super) fn min(&self) -> Option<Duration> {
        self.min.get().map(|Reverse(ns)| Duration::from_nanos(ns))
    }

    /// Timeout, including back-off.
    pub(super) fn timeout(&self) -> Duration {
        let base = if self.smoothed == 0 {
            nanos(self.config.initial)
        } else {
            self.smoothed.saturating_add(self.variation)
        };
        let after = if self.config.linear {
            linear_timeout(Duration::from_nanos(base), self.backoff)
        } else {
            Duration::from_nanos(base.saturating_mul(1 << self.backoff.min(MAX_BACKOFF)))
        };
        after.min(self.config.max)
    }

    /// Number of times the timeout has been doubled.
    pub(super) fn backoff(&self) -> u32 {
        self.backoff
    }

    /// A timeout expired.
    pub(super) fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
    }

    /// New data was acknowledged.
    pub(super) fn forget_backoff(&mut self) {
        self.backoff = 0;
    }

    /// Adds samples. `longest` is the sample of the oldest acknowledged segment, for the timeout;
    /// `newest` is that of the newest, for the minimum. `una` and `next` are the sender's position.
    pub(super) fn sample(
        &mut self,
        now: Time,
        longest: Duration,
        newest: Duration,
        (una, next): (u32, u32),
    ) {
        self.min.add(now.as_nanos(), Reverse(nanos(newest).max(1)));
        let sample = nanos(longest).max(1);
        if self.smoothed == 0 {
            self.smoothed = sample;
            self.deviation = sample.saturating_mul(2);
            self.variation = self.deviation.max(nanos(self.config.min));
            self.largest = self.variation;
            self.round_end = next;
            return;
        }
        let error = sample.abs_diff(self.smoothed);
        let shorter = sample < self.smoothed;
        // A sudden fall of the round trip does not justify a longer timeout, so a deviation due to
        // a fall has an eighth of the weight.
        let gain = if shorter && error > self.deviation / 4 {
            32
        } else {
            4
        };
        let fourfold = error.saturating_mul(4);
        self.deviation = approach(self.deviation, fourfold, gain);
        self.smoothed = approach(self.smoothed, sample, 8);
        self.largest = self.largest.max(self.deviation);
        self.variation = self.variation.max(self.largest);
        if una > self.round_end {
            // The variation falls once per round trip, not per sample: many samples in a round trip
            // would discard it within one (RFC 7323 appendix G).
            if self.largest < self.variation {
                self.variation = approach(self.variation, self.largest, 4);
            }
            self.round_end = next;
            self.largest = nanos(self.config.min);
        }
    }
}

/// Duration of a retransmission timeout after `in_a_row` successive timeouts without an
/// acknowledgement, if the first one lasted for `base`.
///
/// The second timeout is doubled (RFC 6298 section 5.5). The following ones are a tenth of a second
/// shorter than the first: half of the minimum that Linux adds to the round trip for delayed
/// acknowledgements (`tcp_rto_min`), since a segment that fills a gap is acknowledged immediately
/// (RFC 5681 section 4.2). They last for at least [`LINEAR_MIN_RTO`], or [`LINEAR_LATE_MIN_RTO`]
/// after more than [`LINEAR_FAST_RETRIES`] timeouts, and never longer than with exponential back-off.
fn linear_timeout(base: Duration, in_a_row: u32) -> Duration {
    let backed_off = base.saturating_mul(2_u32.saturating_pow(in_a_row));
    let linear = match in_a_row {
        0 | 1 => backed_off,
        2..=LINEAR_FAST_RETRIES => base.saturating_sub(UNDELAYED).max(LINEAR_MIN_RTO),
        _ => base.max(LINEAR_LATE_MIN_RTO),
    };
    linear.min(backed_off)
}

/// Moves `from` by one `gain`th of the distance to `to`.
fn approach(from: u64, to: u64, gain: u64) -> u64 {
    if to >= from {
        from + (to - from) / gain
    } else {
        from - (from - to) / gain
    }
}

/// As in Linux: routes change within minutes.
const MIN_WINDOW: Duration = Duration::from_mins(5);
/// More doublings would exceed any limit, even for a microsecond.
const MAX_BACKOFF: u32 = 40;
/// See [`linear_timeout`].
const LINEAR_MIN_RTO: Duration = Duration::from_millis(250);
/// See [`linear_timeout`].
const LINEAR_LATE_MIN_RTO: Duration = Duration::from_secs(1);
/// See [`linear_timeout`].
const LINEAR_FAST_RETRIES: u32 = 32;
const UNDELAYED: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn feed(rtt: &mut Rtt, samples: &[u64]) {
        for (n, sample) in samples.iter().enumerate() {
            let n = n as u32;
            let at = Time::from_millis(u64::from(n) * 10);
            rtt.sample(at, ms(*sample), ms(*sample), (n * 10, n * 10 + 9));
        }
    }

    #[test]
    fn initial_timeout_and_first_sample() {
        let mut rtt = Rtt::new(TimeoutConfig::default());
        assert_eq!(rtt.timeout(), ms(1_000));
        feed(&mut rtt, &[300]);
        assert_eq!((rtt.timeout(), rtt.smoothed()), (ms(900), ms(300)));
    }

    #[test]
    fn steady_path_yields_round_trip_plus_minimum() {
        let mut rtt = Rtt::new(TimeoutConfig::default());
        feed(&mut rtt, &[300; 100]);
        assert!(rtt.timeout() < ms(501), "{:?}", rtt.timeout());
        assert_eq!(rtt.min(), Some(ms(300)));
    }

    #[test]
    fn rises_with_the_delay_and_hardly_reacts_to_a_fall() {
        let mut rtt = Rtt::new(TimeoutConfig::default());
        feed(&mut rtt, &[300; 100]);
        let steady = rtt.clone();
        feed(&mut rtt, &[900]);
        assert!(rtt.timeout() > ms(900), "{:?}", rtt.timeout());
        let mut fallen = steady;
        feed(&mut fallen, &[20]);
        assert!(fallen.timeout() < ms(500), "{:?}", fallen.timeout());
    }

    #[test]
    fn linear_back_off_doubles_once() {
        let of = |base| [0, 1, 2, 3, 32, 33, 1_000].map(|n| linear_timeout(ms(base), n));
        assert_eq!(
            of(370),
            [370, 740, 270, 270, 270, 1_000, 1_000].map(ms),
            "first timeout minus the delayed-ACK allowance"
        );
        assert_eq!(of(204), [204, 408, 250, 250, 250, 1_000, 1_000].map(ms));
        assert_eq!(of(3_000)[1..4], [6_000, 2_900, 2_900].map(ms));
        assert_eq!(linear_timeout(ms(10), 2), ms(40), "limited by back-off");
    }

    #[test]
    fn back_off_doubles_up_to_the_limit() {
        let mut rtt = Rtt::new(TimeoutConfig::default());
        for want in [1_000, 2_000, 4_000, 8_000] {
            assert_eq!(rtt.timeout(), ms(want));
            rtt.back_off();
        }
        for _ in 0..100 {
            rtt.back_off();
        }
        assert_eq!(rtt.timeout(), ms(120_000));
        rtt.forget_backoff();
        assert_eq!(rtt.timeout(), ms(1_000));
    }
}
