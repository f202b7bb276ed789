//! A cautious rate for peers that send receiver reports only, or nothing.

use core::time::Duration;

use crate::units::{Bytes, Rate};

/// Reports come seconds apart and hide delay, so the rate stays low: it starts at the floor,
/// grows by a twentieth per clean report, follows the simplified TCP equation down (RFC 8083
/// section 4.3), and never passes 500 kb/s.
#[derive(Clone, Copy, Debug)]
pub struct RrFallback {
    floor: Rate,
    rate: Rate,
}

impl RrFallback {
    /// Starts at the floor.
    pub fn new(floor: Rate) -> Self {
        Self { floor, rate: floor }
    }

    /// The media rate.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// A receiver report: share lost since the last one, smoothed round-trip time if known,
    /// packet size on the wire.
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

/// One lost packet of a hundred is noise at a few reports a minute.
const NOISE: f64 = 0.01;
/// Half of what a first-generation video call used: any access link carries it.
const CEILING: Rate = Rate::kbps(500);
const SLOW: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_slowly_to_a_low_ceiling_and_falls_fast() {
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
