//! Spaces packets evenly at the controller's rate (RFC 5348 section 4.6).

use core::time::Duration;

use crate::units::{Bytes, Rate, Time};

/// Computes the earliest departure time of the next packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacer {
    next: Time,
    /// Size of the last packet.
    last: Bytes,
    /// Credit for idle time before now, and the time at which this permission expires.
    burst: (Duration, Time),
}

impl Pacer {
    /// Earliest departure time of the next packet.
    pub fn next(&self) -> Time {
        self.next
    }

    /// Whether a packet may leave now.
    pub fn is_open(&self, now: Time) -> bool {
        self.next <= now
    }

    /// Accounts for a packet that leaves now. A timer that fires late earns credit of up to 2 ms:
    /// less would lower the rate on a coarse timer, more would form bursts.
    //= rfc5348-4.6-granularity
    //= rfc5348-4.6-burst
    pub fn on_sent(&mut self, now: Time, size: Bytes, rate: Rate) {
        self.next = self.start(now, SLACK) + size / rate.max(Rate::bps(1));
        self.last = size;
        if self.next > now {
            self.burst = Default::default();
        }
    }

    /// Accounts for a rate that the controller has changed: a long wait, of minutes after a silence
    /// of the path, ends after one interval of the new rate. Shorter ones pass anyway.
    pub fn on_rate(&mut self, now: Time, rate: Rate) {
        if self.next.since(now) > LONG_WAIT {
            self.next = self.next.min(now + self.last / rate.max(Rate::bps(1)));
        }
    }

    /// Permits one burst of up to `round_trip` of data within 40 ms. The caller guarantees that the
    /// sender was idle for at least a round trip and that the path is empty.
    //= rfc5348-4.6-burst
    pub fn allow_burst(&mut self, now: Time, round_trip: Duration) {
        self.burst = (round_trip, now + BURST_VALIDITY);
    }

    fn start(&self, now: Time, slack: Duration) -> Time {
        let (burst, until) = self.burst;
        let slack = if now < until { slack.max(burst) } else { slack };
        self.next.max(now.before(slack))
    }

    /// Time from now until `size` has left, if it is queued now behind `ahead`.
    pub fn time_to_send(&self, now: Time, ahead: Bytes, size: Bytes, rate: Rate) -> Duration {
        (self.start(now, Duration::ZERO) + (ahead + size) / rate.max(Rate::bps(1))).since(now)
    }
}

/// Two ticks of a 1 kHz timer.
const SLACK: Duration = Duration::from_millis(2);
/// Four reports.
const LONG_WAIT: Duration = Duration::from_millis(100);
/// Typical encoding time of a frame.
const BURST_VALIDITY: Duration = Duration::from_millis(40);

#[cfg(test)]
mod tests {
    use super::*;

    //= rfc5348-4.6-granularity (test)
    #[test]
    fn late_wakeups_do_not_lower_the_rate() {
        let (mut pacer, mut sent) = (Pacer::default(), 0_u64);
        for ms in 0..1_000 {
            let now = Time::from_millis(ms);
            while pacer.is_open(now) {
                pacer.on_sent(now, Bytes(125), Rate::kbps(3_000));
                sent += 125;
            }
        }
        let rate = Bytes(sent) / Duration::from_secs(1);
        assert!(
            rate > Rate::kbps(2_990) && rate < Rate::kbps(3_020),
            "{rate:?}"
        );
    }

    //= rfc5348-4.6-burst (test)
    #[test]
    fn idle_time_does_not_accumulate_credit() {
        let mut pacer = Pacer::default();
        pacer.on_sent(Time::from_secs(1), Bytes(1_250), Rate::kbps(1_000));
        let now = Time::from_secs(9);
        let mut burst = 0;
        while pacer.is_open(now) {
            pacer.on_sent(now, Bytes(1_250), Rate::kbps(1_000));
            burst += 1;
        }
        assert_eq!(burst, 1);
    }

    #[test]
    fn a_higher_rate_ends_a_long_wait() {
        let (mut pacer, now) = (Pacer::default(), Time::from_secs(1));
        pacer.on_sent(now, Bytes(1_250), Rate::bps(100));
        pacer.on_rate(now, Rate::bps(50));
        assert_eq!(pacer.next(), now.before(SLACK) + Duration::from_secs(100));
        pacer.on_rate(now, Rate::kbps(1_000));
        assert_eq!(pacer.next(), now + Duration::from_millis(10));
    }

    //= rfc5348-4.6-burst (test)
    #[test]
    fn an_allowed_burst_is_one_round_trip_and_expires() {
        let (start, rate) = (Time::from_secs(9), Rate::kbps(500));
        let burst = |wait: Duration| {
            let mut pacer = Pacer::default();
            pacer.on_sent(Time::from_secs(1), Bytes(1_250), rate);
            pacer.allow_burst(start, Duration::from_millis(80));
            let now = start + wait;
            let mut packets = 0;
            while pacer.is_open(now) {
                pacer.on_sent(now, Bytes(1_250), rate);
                packets += 1;
            }
            packets
        };
        // Packets are spaced 20 ms: four fit into 80 ms, and a fifth ends the burst.
        assert_eq!(burst(Duration::ZERO), 5);
        assert_eq!(burst(Duration::from_millis(30)), 5);
        assert_eq!(burst(Duration::from_millis(41)), 1);
        let mut pacer = Pacer::default();
        pacer.allow_burst(start, Duration::from_millis(80));
        let time = |size| pacer.time_to_send(start, Bytes::ZERO, Bytes(size), rate);
        assert_eq!(time(5_000), Duration::ZERO);
        assert_eq!(time(6_250), Duration::from_millis(20));
    }
}
