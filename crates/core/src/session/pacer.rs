//! Spaces packets evenly at the controller's rate (RFC 5348 section 4.6).

use core::time::Duration;

use crate::units::{Bytes, Rate, Time};

/// When the next packet may leave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacer {
    next: Time,
}

impl Pacer {
    /// The next packet may leave at this time or later.
    pub fn next(&self) -> Time {
        self.next
    }

    /// Whether a packet may leave now.
    pub fn is_open(&self, now: Time) -> bool {
        self.next <= now
    }

    /// A packet leaves now. Time that the driver woke too late is made good, up to 2 ms:
    /// without that a coarse timer would lower the rate; with more of it bursts would form.
    //= rfc5348-4.6-granularity
    //= rfc5348-4.6-burst
    pub fn on_sent(&mut self, now: Time, size: Bytes, rate: Rate) {
        self.next = self.next.max(now.before(SLACK)) + size / rate.max(Rate::bps(1));
    }

    /// How long `size` takes to leave if it is queued now behind `ahead`.
    pub fn time_to_send(&self, now: Time, ahead: Bytes, size: Bytes, rate: Rate) -> Duration {
        self.next.since(now) + (ahead + size) / rate.max(Rate::bps(1))
    }
}

/// Two ticks of a 1 kHz timer.
const SLACK: Duration = Duration::from_millis(2);

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
    fn a_pause_does_not_become_a_burst() {
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
}
