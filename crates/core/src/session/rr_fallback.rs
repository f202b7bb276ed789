//! Conservative rate control for peers that send receiver reports only, or no feedback.

use core::time::Duration;

use crate::units::{Bytes, Rate};

/// Receiver reports are seconds apart and carry no delay, so the rate stays low. It starts at the
/// floor, grows by 5 % per report without loss, is limited by the simplified TCP equation (RFC 8083
/// section 4.3), and never exceeds 500 kb/s.
#[derive(Clone, Copy, Debug)]
pub struct RrFallback {
    floor: Rate,
    rate: Rate,
}

impl RrFallback {
    /// Starts at the rate `floor`, which is also the minimum.
    pub fn new(floor: Rate) -> Self {
        Self { floor, rate: floor }
    }

    /// Current media rate.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Processes a receiver report: `loss` is the fraction lost since the previous report in 0..=1,
    /// `rtt` the smoothed round-trip time if known, `packet` the packet size on the wire.
    pub fn on_report(&mut self, loss: f64, rtt: Option<Duration>, packet: Bytes) {
        if loss < NOISE {
            self.rate = self.rate.scale(21, 20);
        } else {
            let rtt = rtt
                .unwrap_or(SLOW)
                .max(Duration::from_millis(1))
                .as_secs_f64();
            let tcp = packet.bits() as f64 / (rtt * (2.0 * loss / 3.0).sqrt());
            self.rate = self
                .rate
                .scale(1, 2)
                .max(self.rate.min(Rate::from_f64(tcp * 0.5)));
        }
        self.rate = self.rate.max(self.floor).min(CEILING.max(self.floor));
    }
}

/// One loss in 100 packets is insignificant at a few reports per minute.
const NOISE: f64 = 0.01;
/// Half of the rate of a first-generation video call, which any access link carries.
const CEILING: Rate = Rate::kbps(500);
const SLOW: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_grows_slowly_to_a_low_ceiling_and_falls_fast() {
        let mut r = RrFallback::new(Rate::kbps(150));
        let rtt = Some(Duration::from_millis(100));
        (0..100).for_each(|_| r.on_report(0.0, rtt, Bytes(1_200)));
        assert_eq!(r.rate(), CEILING);
        r.on_report(0.3, rtt, Bytes(1_200));
        assert_eq!(r.rate(), Rate::kbps(250));
        (0..9).for_each(|_| r.on_report(0.9, None, Bytes(1_200)));
        assert_eq!(r.rate(), Rate::kbps(150));
    }
}
