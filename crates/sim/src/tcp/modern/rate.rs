//! Delivery rate samples (draft-cheng-iccrg-delivery-rate-estimation, as in Linux).

use core::time::Duration;

use tidegate_core::units::Time;

use super::congestion::RateSample;

/// State of the sampler at the transmission of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Send time.
    pub(super) sent: Time,
    /// Number of segments sent before; orders segments with the same send time.
    pub(super) order: u64,
    /// Send time of the segment that was then the newest acknowledged one.
    first_sent: Time,
    /// Time of that acknowledgement.
    delivered_at: Time,
    /// Number of delivered segments.
    delivered: u64,
    app_limited: bool,
}

impl Stamp {
    pub(super) const NEVER: Self = Self {
        sent: Time::ZERO,
        order: 0,
        first_sent: Time::ZERO,
        delivered_at: Time::ZERO,
        delivered: 0,
        app_limited: false,
    };
}

/// Counts deliveries and computes delivery rate samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampler {
    /// Segments sent, including retransmissions.
    sent: u64,
    delivered: u64,
    delivered_at: Time,
    first_sent: Time,
    /// Segments sent until this many are delivered are application-limited; zero: none.
    limited_until: u64,
    /// The newest segment that the current acknowledgement delivers.
    newest: Option<Stamp>,
}

impl Sampler {
    /// State before the first delivery.
    pub(super) fn new() -> Self {
        Self {
            sent: 0,
            delivered: 0,
            delivered_at: Time::ZERO,
            first_sent: Time::ZERO,
            limited_until: 0,
            newest: None,
        }
    }

    /// Segments delivered since the start.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Whether segments sent now are application-limited.
    pub(super) fn app_limited(&self) -> bool {
        self.limited_until > 0
    }

    /// Samples are application-limited until the segments in flight are delivered.
    pub(super) fn limit(&mut self, in_flight: u32) {
        self.limited_until = (self.delivered + u64::from(in_flight)).max(1);
    }

    /// Records the transmission of a segment; `idle` if no data is outstanding.
    pub(super) fn stamp(&mut self, now: Time, idle: bool) -> Stamp {
        if idle {
            self.first_sent = now;
            self.delivered_at = now;
        }
        self.sent += 1;
        Stamp {
            sent: now,
            order: self.sent,
            first_sent: self.first_sent,
            delivered_at: self.delivered_at,
            delivered: self.delivered,
            app_limited: self.limited_until > 0,
        }
    }

    /// Records the delivery of a segment.
    pub(super) fn deliver(&mut self, stamp: &Stamp) {
        self.delivered += 1;
        if self.newest.is_none_or(|newest| newest.order < stamp.order) {
            self.newest = Some(*stamp);
        }
    }

    /// Ends an acknowledgement, and returns its sample.
    pub(super) fn sample(&mut self, now: Time, min_rtt: Option<Duration>) -> RateSample {
        if self.limited_until > 0 && self.delivered > self.limited_until {
            self.limited_until = 0;
        }
        let Some(stamp) = self.newest.take() else {
            return RateSample::default();
        };
        self.delivered_at = now;
        self.first_sent = stamp.sent;
        let sending = stamp.sent.since(stamp.first_sent);
        let acknowledging = now.since(stamp.delivered_at);
        let interval = sending.max(acknowledging);
        // Delayed acknowledgements that arrive together would indicate an arbitrarily high rate.
        let believed = min_rtt.is_none_or(|rtt| interval >= rtt);
        RateSample {
            prior: stamp.delivered,
            delivered: self.delivered - stamp.delivered,
            interval: if believed { interval } else { Duration::ZERO },
            app_limited: stamp.app_limited,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    /// Ten segments 1 ms apart, acknowledged one by one `gap` ms apart from 100 ms on.
    fn train(sampler: &mut Sampler, gap: u64) -> Vec<RateSample> {
        let stamps: Vec<_> = (0..10).map(|n| sampler.stamp(ms(n), n == 0)).collect();
        let ack = |n: usize| {
            sampler.deliver(&stamps[n]);
            sampler.sample(ms(100 + gap * n as u64), None)
        };
        (0..10).map(ack).collect()
    }

    #[test]
    fn interval_is_the_longer_of_send_and_ack_phase() {
        let samples = train(&mut Sampler::new(), 10);
        let last = samples[9];
        assert_eq!((last.prior, last.delivered), (0, 10));
        assert_eq!(last.interval, Duration::from_millis(190));
        assert_eq!(
            train(&mut Sampler::new(), 0)[9].interval,
            Duration::from_millis(100)
        );
    }

    #[test]
    fn segments_of_an_idle_application_are_app_limited() {
        let mut sampler = Sampler::new();
        sampler.limit(0);
        let samples = train(&mut sampler, 1);
        assert!(samples[0].app_limited);
        assert!(!sampler.app_limited());
        assert!(!sampler.stamp(ms(200), false).app_limited);
    }

    #[test]
    fn interval_below_the_round_trip_is_rejected() {
        let mut sampler = Sampler::new();
        let stamp = sampler.stamp(ms(0), true);
        sampler.deliver(&stamp);
        let sample = sampler.sample(ms(10), Some(Duration::from_millis(50)));
        assert_eq!(
            (sample.interval, sample.per_second()),
            (Duration::ZERO, None)
        );
    }

    #[test]
    fn sample_uses_the_newest_acknowledged_segment() {
        let mut sampler = Sampler::new();
        let old = sampler.stamp(ms(0), true);
        sampler.deliver(&old);
        sampler.sample(ms(50), None);
        let (first, second) = (sampler.stamp(ms(50), false), sampler.stamp(ms(60), false));
        sampler.deliver(&second);
        sampler.deliver(&first);
        let sample = sampler.sample(ms(110), None);
        assert_eq!((sample.prior, sample.delivered), (1, 2));
        assert_eq!(sample.interval, Duration::from_millis(60));
    }
}
