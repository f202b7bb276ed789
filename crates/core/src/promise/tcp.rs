//! Service curves of TCP after a congestion event.

use core::time::Duration;

use super::curve::{Builder, ServiceCurve};
use crate::units::{Bytes, Rate};

/// What the sender's TCP knows of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpPath {
    /// Payload of a full segment.
    pub mss: Bytes,
    /// Smoothed round-trip time; zero counts as one microsecond.
    pub rtt: Duration,
    /// The path's own limit, if known. Without it a forecast grows for ever.
    pub limit: Option<Rate>,
}

/// Where CUBIC stands when it starts to grow again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CubicEpoch {
    /// The window just before the reduction (RFC 9438, `W_max`).
    pub w_max: Bytes,
    /// How far ahead to forecast; the rate stays after that. At most 64 pieces are made, so
    /// beyond 64 round trips one piece covers several.
    pub horizon: Duration,
}

impl TcpPath {
    /// Reno after a retransmission timeout (RFC 5681): a window of one segment, doubled per
    /// round trip up to `ssthresh`, then one segment more per round trip.
    ///
    /// In slow start the k-th round carries exactly 2^k segments, so its rate is a step.
    pub fn reno_after_timeout(&self, ssthresh: Bytes) -> ServiceCurve {
        let mut build = Builder::new();
        self.slow_start(&mut build, ssthresh);
        self.limited(build.tail(self.rate(ssthresh.bits() as f64), self.slope()))
    }

    /// Reno when fast recovery ends (RFC 5681): from `ssthresh`, one segment more per round trip.
    pub fn reno_after_recovery(&self, ssthresh: Bytes) -> ServiceCurve {
        let start = self.rate(ssthresh.bits() as f64);
        self.limited(Builder::new().tail(start, self.slope()))
    }

    /// CUBIC after a retransmission timeout (RFC 9438 section 4.8): slow start to 0.7 `W_max`,
    /// and from there the curve with K = 0 and that window as its origin.
    pub fn cubic_after_timeout(&self, epoch: CubicEpoch) -> ServiceCurve {
        let ssthresh = epoch.w_max.scale(BETA_TENTHS, 10).max(self.mss);
        let mut build = Builder::new();
        self.slow_start(&mut build, ssthresh);
        let origin = self.segments(ssthresh);
        self.limited(self.cubic(build, origin, origin, epoch.horizon))
    }

    /// CUBIC when fast recovery ends (RFC 9438 section 4.2): from 0.7 `W_max`, back to `W_max`
    /// and beyond, or as Reno would grow (section 4.3) where that is more.
    pub fn cubic_after_recovery(&self, epoch: CubicEpoch) -> ServiceCurve {
        let w_max = self.segments(epoch.w_max);
        let start = w_max * BETA_TENTHS as f64 / 10.0;
        self.limited(self.cubic(Builder::new(), w_max, start, epoch.horizon))
    }

    /// A piece per round trip, linear in between: CUBIC itself aims at the window of one round
    /// trip later and gets there in equal parts per ACK.
    fn cubic(&self, mut build: Builder, w_max: f64, start: f64, horizon: Duration) -> ServiceCurve {
        let rtt = self.rtt_secs();
        let rounds = (horizon.as_secs_f64() / rtt).clamp(1.0, 1e9);
        let pieces = rounds.min(MAX_PIECES);
        let step = rtt * rounds / pieces;
        let k = libm::cbrt((w_max - start).max(0.0) / C);
        let beta = BETA_TENTHS as f64 / 10.0;
        let alpha = 3.0 * (1.0 - beta) / (1.0 + beta);
        let mut window = start;
        let mut friendly = start;
        for n in 1..=pieces as u32 {
            let at = step * f64::from(n);
            // Section 4.3: as Reno from where Reno itself would stand at `W_max`.
            friendly += step / rtt * if friendly < w_max { alpha } else { 1.0 };
            let cubic = C * (at - k) * (at - k) * (at - k) + w_max;
            // Section 4.2: in one round trip the window grows by a half at most.
            let most = window * (1.0 + 0.5 * step / rtt);
            let next = cubic.max(friendly).clamp(window, most.max(window));
            let (from, to) = (self.window_rate(window), self.window_rate(next));
            build.push(step, from, (to - from) / step);
            window = next;
        }
        build.tail(self.window_rate(window), 0.0)
    }

    fn slow_start(&self, build: &mut Builder, ssthresh: Bytes) {
        let mut window = self.mss.bits().max(1);
        while window < ssthresh.bits() {
            build.push(self.rtt_secs(), self.rate(window as f64), 0.0);
            window = window.saturating_mul(2);
        }
    }

    fn limited(&self, curve: ServiceCurve) -> ServiceCurve {
        match self.limit {
            Some(limit) => curve.min(&ServiceCurve::constant(limit)),
            None => curve,
        }
    }

    /// One segment per round trip, per round trip: I/RTT² in b/s per second.
    pub(super) fn slope(&self) -> f64 {
        self.mss.bits() as f64 / (self.rtt_secs() * self.rtt_secs())
    }

    fn rate(&self, window_bits: f64) -> f64 {
        window_bits / self.rtt_secs()
    }

    fn window_rate(&self, segments: f64) -> f64 {
        self.rate(segments * self.mss.bits() as f64)
    }

    fn segments(&self, window: Bytes) -> f64 {
        window.get() as f64 / self.mss.get().max(1) as f64
    }

    pub(super) fn rtt_secs(&self) -> f64 {
        self.rtt.as_secs_f64().max(1e-6)
    }
}

/// RFC 9438 section 4.6: the window is reduced to seven tenths.
const BETA_TENTHS: u64 = 7;
/// RFC 9438 section 5: the aggressiveness, in segments per s³.
const C: f64 = 0.4;
/// Keeps a plan over a forecast of many round trips within tens of microseconds.
const MAX_PIECES: f64 = 64.0;

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: TcpPath = TcpPath {
        mss: Bytes(1_250),
        rtt: Duration::from_millis(100),
        limit: None,
    };

    fn rate(curve: &ServiceCurve, ms: u64) -> f64 {
        let at = |n| curve.at(Duration::from_millis(n));
        (at(ms + 1) - at(ms)) * 1e3
    }

    #[test]
    fn reno_doubles_then_adds_one_segment_per_round_trip() {
        let c = PATH.reno_after_timeout(Bytes(10_000));
        // 1, 2, 4 segments of 10,000 bits per 100 ms, then from 8.
        for (ms, want) in [(50, 1e5), (150, 2e5), (250, 4e5), (300, 8e5), (1_300, 18e5)] {
            assert!((rate(&c, ms) - want).abs() < 2e3, "{ms} {}", rate(&c, ms));
        }
        let r = PATH.reno_after_recovery(Bytes(10_000));
        assert!((rate(&r, 1_000) - 18e5).abs() < 2e3);
    }

    #[test]
    fn a_limit_caps_the_growth() {
        let path = TcpPath {
            limit: Some(Rate::bps(900_000)),
            ..PATH
        };
        let c = path.reno_after_timeout(Bytes(10_000));
        assert!((rate(&c, 5_000) - 9e5).abs() < 1.0);
    }

    #[test]
    fn cubic_comes_back_to_its_maximum_after_k() {
        // W_max of 100 segments: K = cbrt(30/0.4) = 4.217 s.
        let epoch = CubicEpoch {
            w_max: Bytes(125_000),
            horizon: Duration::from_secs(6),
        };
        let c = PATH.cubic_after_recovery(epoch);
        assert!((rate(&c, 0) - 7e6).abs() < 1e5);
        assert!((rate(&c, 4_217) - 1e7).abs() < 1e5, "{}", rate(&c, 4_217));
        assert!(rate(&c, 5_900) > 1.01e7);
        // After the horizon it stays.
        assert!((rate(&c, 7_000) - rate(&c, 60_000)).abs() < 1.0);
    }

    #[test]
    fn on_a_short_path_cubic_grows_as_reno_would() {
        let path = TcpPath {
            rtt: Duration::from_millis(10),
            ..PATH
        };
        let epoch = CubicEpoch {
            w_max: Bytes(12_500),
            horizon: Duration::from_millis(640),
        };
        let c = path.cubic_after_recovery(epoch);
        // 7 segments, 0.529 per round trip up to 10, then one per round trip.
        let rounds_to_max = 3.0 / (0.9 / 1.7);
        let at_max = (rounds_to_max * 10.0) as u64;
        assert!((rate(&c, at_max) - 1e7).abs() < 5e5, "{}", rate(&c, at_max));
        assert!(rate(&c, 500) > 4.5e7);
    }

    #[test]
    fn after_a_timeout_cubic_grows_from_its_threshold() {
        let epoch = CubicEpoch {
            w_max: Bytes(125_000),
            horizon: Duration::from_secs(3),
        };
        let c = PATH.cubic_after_timeout(epoch);
        assert!((rate(&c, 10) - 1e5).abs() < 2e3);
        // 1 to 64 segments in seven rounds, then 70 and up.
        assert!((rate(&c, 700) - 7e6).abs() < 1e5, "{}", rate(&c, 700));
        assert!(rate(&c, 3_500) > 7.1e6);
    }
}
