//! Bandwidth, loss rate and mean packet size of a packet stream.

use core::time::Duration;

use crate::endpoint::OVERHEAD;
use crate::units::{Bytes, Rate, Time};
use crate::wire::cp::LEN;

/// Bandwidth over the last one to two windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateMeter {
    began: Time,
    bytes: Bytes,
    before: (Bytes, Duration),
}

impl RateMeter {
    pub(super) fn new(now: Time) -> Self {
        Self {
            began: now,
            bytes: Bytes::ZERO,
            before: (Bytes::ZERO, Duration::ZERO),
        }
    }

    /// Counts a packet. Windows may change their length between two calls.
    pub(super) fn add(&mut self, now: Time, size: Bytes, window: Duration) {
        // A window begins after the packet at its begin, and ends with the packet at its end.
        self.bytes += size;
        let span = now.since(self.began);
        if span >= window {
            self.before = (self.bytes, span);
            (self.began, self.bytes) = (now, Bytes::ZERO);
        }
    }

    pub(super) fn rate(&self, now: Time) -> Rate {
        let (bytes, span) = self.before;
        let span = span + now.since(self.began);
        if span < MIN_SPAN {
            return Rate::ZERO;
        }
        (self.bytes + bytes) / span
    }
}

/// Loss rate over the last one to two windows of [`LOSS_WINDOW`].
#[derive(Clone, Copy, Debug)]
pub(super) struct LossMeter {
    began: Time,
    lost: u64,
    packets: u64,
    before: (u64, u64),
}

impl LossMeter {
    pub(super) fn new(now: Time) -> Self {
        Self {
            began: now,
            lost: 0,
            packets: 0,
            before: (0, 0),
        }
    }

    /// Adds packets, of which some were lost.
    pub(super) fn add(&mut self, now: Time, lost: u64, packets: u64) {
        if now.since(self.began) >= LOSS_WINDOW {
            self.before = (self.lost, self.packets);
            (self.began, self.lost, self.packets) = (now, 0, 0);
        }
        self.lost += lost;
        self.packets += packets;
    }

    /// In 0..=1.
    pub(super) fn rate(&self) -> f64 {
        let packets = self.packets + self.before.1;
        (self.lost + self.before.0) as f64 / packets.max(1) as f64
    }
}

/// Running mean of the size of data packets, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MeanSize(Option<f64>);

impl MeanSize {
    /// Adds a packet. Headers without data, which keep the state of the path known, do not count.
    pub(super) fn add(&mut self, size: Bytes) {
        let bytes = size.get() as f64;
        if size > KEEP_ALIVE {
            let mean = self.0.unwrap_or(bytes);
            self.0 = Some(mean + (bytes - mean) * SIZE_GAIN);
        }
    }

    /// The mean; `None` before the first data packet.
    pub(super) fn get(self) -> Option<Bytes> {
        self.0.map(|mean| Bytes((mean + 0.5) as u64))
    }
}

/// Shorter spans have too few packets for a rate.
const MIN_SPAN: Duration = Duration::from_millis(1);
/// Long enough for a loss rate of 1 % to be precise to a tenth at 1,000 packets per second.
const LOSS_WINDOW: Duration = Duration::from_secs(10);
/// Size of a packet without data.
const KEEP_ALIVE: Bytes = Bytes(OVERHEAD.0 + LEN as u64);
/// As in TFRC: the mean is over about 64 packets.
const SIZE_GAIN: f64 = 1.0 / 64.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_follows_a_change_within_two_windows() {
        let mut meter = RateMeter::new(Time::ZERO);
        let window = Duration::from_millis(100);
        let mut now = Time::ZERO;
        for ms in [10, 20] {
            for _ in 0..100 {
                now += Duration::from_millis(ms);
                meter.add(now, Bytes(1_000), window);
            }
            let expected = 8_000_000.0 / ms as f64 / 10.0;
            let rate = meter.rate(now).as_f64() / 10.0;
            assert!((rate / expected - 1.0).abs() < 0.1, "{rate} {expected}");
        }
    }

    #[test]
    fn loss_rate_is_that_of_the_last_windows() {
        let mut meter = LossMeter::new(Time::ZERO);
        assert!(meter.rate() <= 0.0);
        for n in 0..40_000_u64 {
            let is_lost = n >= 20_000 && n % 50 == 0;
            meter.add(Time::from_millis(n), u64::from(is_lost), 1);
        }
        assert!((meter.rate() - 0.02).abs() < 0.001, "{}", meter.rate());
    }

    #[test]
    fn mean_size_of_a_mixture() {
        let mut mean = MeanSize::default();
        mean.add(KEEP_ALIVE);
        assert_eq!(mean.get(), None);
        for n in 0..1_000 {
            mean.add(Bytes(if n % 2 == 0 { 200 } else { 1_000 }));
            mean.add(KEEP_ALIVE);
        }
        let bytes = mean.get().unwrap().get();
        assert!(bytes.abs_diff(600) < 20, "{bytes}");
    }
}
