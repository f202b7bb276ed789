//! Service curves of TCP after a congestion event.

use core::time::Duration;

use super::curve::{Builder, ServiceCurve};
use crate::units::{Bytes, Rate};

/// Path state of the sender's TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpPath {
    /// Payload of a full segment.
    pub mss: Bytes,
    /// Smoothed round-trip time; zero counts as one microsecond.
    pub rtt: Duration,
    /// Capacity of the path, if known. Without it a forecast grows without limit.
    pub limit: Option<Rate>,
}

/// State of CUBIC at the start of a congestion avoidance epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CubicEpoch {
    /// Window just before the reduction (RFC 9438, `W_max`).
    pub w_max: Bytes,
    /// Horizon of the forecast; after it the rate is constant. The curve has at most 64 pieces, so
    /// beyond 64 round trips one piece covers several.
    pub horizon: Duration,
}

/// State of BBR (version 1) after startup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BbrCycle {
    /// Bandwidth estimate of BBR, payload only.
    pub bandwidth: Rate,
    /// Time until the next measurement of the round trip (`PROBE_RTT`), at most ten seconds after
    /// the last one.
    pub next_probe: Duration,
    /// Horizon of the forecast, at most 20 cycles. After it the rate is the mean over a cycle.
    pub horizon: Duration,
}

impl TcpPath {
    /// Reno after a retransmission timeout (RFC 5681): a window of one segment, doubled per
    /// round trip up to `ssthresh`, then one segment more per round trip.
    ///
    /// In slow start the k-th round carries exactly 2^k segments, so its rate is a step.
    pub fn reno_after_timeout(&self, ssthresh: Bytes) -> ServiceCurve {
        self.reno_from(self.mss, ssthresh)
    }

    /// Reno in its current state (RFC 5681): the window `cwnd`, doubled per round trip up to
    /// `ssthresh`, then one segment more per round trip.
    pub fn reno_from(&self, cwnd: Bytes, ssthresh: Bytes) -> ServiceCurve {
        let mut build = Builder::new();
        let reached = self.slow_start(&mut build, cwnd, ssthresh);
        self.limited(build.tail(self.rate(reached.bits() as f64), self.slope()))
    }

    /// Reno after fast recovery (RFC 5681): from `ssthresh`, one segment more per round trip.
    pub fn reno_after_recovery(&self, ssthresh: Bytes) -> ServiceCurve {
        let start = self.rate(ssthresh.bits() as f64);
        self.limited(Builder::new().tail(start, self.slope()))
    }

    /// CUBIC after a retransmission timeout (RFC 9438 section 4.8): slow start to 0.7 `W_max`, then
    /// the curve with K = 0 and that window as its origin.
    pub fn cubic_after_timeout(&self, epoch: CubicEpoch) -> ServiceCurve {
        let ssthresh = epoch.w_max.scale(BETA_TENTHS, 10).max(self.mss);
        let mut build = Builder::new();
        self.slow_start(&mut build, self.mss, ssthresh);
        let origin = self.segments(ssthresh);
        self.limited(self.cubic(build, origin, origin, epoch.horizon))
    }

    /// CUBIC in its current state, from the window `cwnd`: slow start to `ssthresh`, then the curve
    /// through `W_max`, or through the window reached if that is larger. A window below `ssthresh`
    /// follows a timeout, which sets the origin of the curve to `ssthresh` (RFC 9438 section 4.8).
    pub fn cubic_from(&self, cwnd: Bytes, ssthresh: Bytes, epoch: CubicEpoch) -> ServiceCurve {
        let mut build = Builder::new();
        let reached = self.slow_start(&mut build, cwnd, ssthresh);
        let start = self.segments(reached);
        let origin = if cwnd < ssthresh {
            start
        } else {
            self.segments(epoch.w_max).max(start)
        };
        self.limited(self.cubic(build, origin, start, epoch.horizon))
    }

    /// CUBIC after fast recovery (RFC 9438 section 4.2): from 0.7 `W_max` to `W_max` and beyond, or
    /// the growth of Reno (section 4.3) where that is larger.
    pub fn cubic_after_recovery(&self, epoch: CubicEpoch) -> ServiceCurve {
        let w_max = self.segments(epoch.w_max);
        let start = w_max * BETA_TENTHS as f64 / 10.0;
        self.limited(self.cubic(Builder::new(), w_max, start, epoch.horizon))
    }

    /// BBR in steady state: 0.99 of its bandwidth estimate (the pacing margin), except during
    /// `PROBE_RTT` every ten seconds. `PROBE_RTT` sends nothing for one round trip, until the
    /// packets in flight have arrived. It then sends four segments per round trip for 200 ms, or
    /// for one round trip if that is longer.
    ///
    /// [`rtt`](Self::rtt) must be the minimum RTT of BBR. The bandwidth probes (`PROBE_BW`) are
    /// omitted, because their gains cancel out within eight round trips.
    pub fn bbr_steady(&self, cycle: BbrCycle) -> ServiceCurve {
        let rtt = self.rtt_secs();
        let steady = cycle.bandwidth.as_f64() * BBR_MARGIN;
        let trickle = steady.min(self.window_rate(BBR_MIN_WINDOW));
        let hold = rtt.max(BBR_HOLD);
        let horizon = cycle.horizon.as_secs_f64();
        let mut build = Builder::new();
        let mut at = 0.0;
        let mut open = cycle.next_probe.as_secs_f64();
        let mut probes = 0;
        while at + open < horizon && probes < BBR_MAX_PROBES {
            build.push(open, steady, 0.0);
            build.push(rtt, 0.0, 0.0);
            build.push(hold, trickle, 0.0);
            at += open + rtt + hold;
            open = BBR_PERIOD;
            probes += 1;
        }
        let mean = (steady * BBR_PERIOD + trickle * hold) / (BBR_PERIOD + rtt + hold);
        if at < horizon && probes < BBR_MAX_PROBES {
            build.push(horizon - at, steady, 0.0);
        }
        self.limited(build.tail(mean, 0.0))
    }

    /// Appends one linear piece per round trip: CUBIC computes the target window one round trip
    /// ahead and approaches it in equal steps per ACK.
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
            // Section 4.3: the growth of Reno (1 segment per round trip) from `W_max` on.
            friendly += step / rtt * if friendly < w_max { alpha } else { 1.0 };
            let cubic = C * (at - k) * (at - k) * (at - k) + w_max;
            // Section 4.2: the window grows by at most a half per round trip.
            let most = window * (1.0 + 0.5 * step / rtt);
            let next = cubic.max(friendly).clamp(window, most.max(window));
            let (from, to) = (self.window_rate(window), self.window_rate(next));
            build.push(step, from, (to - from) / step);
            window = next;
        }
        build.tail(self.window_rate(window), 0.0)
    }

    /// Appends slow start and returns the window at its end.
    fn slow_start(&self, build: &mut Builder, from: Bytes, ssthresh: Bytes) -> Bytes {
        let mut window = from.bits().max(1);
        for _ in 0..MAX_DOUBLINGS {
            if window >= ssthresh.bits() {
                break;
            }
            build.push(self.rtt_secs(), self.rate(window as f64), 0.0);
            window = window.saturating_mul(2);
        }
        from.max(Bytes(window / 8).min(ssthresh))
    }

    fn limited(&self, curve: ServiceCurve) -> ServiceCurve {
        match self.limit {
            Some(limit) => curve.min(&ServiceCurve::constant(limit)),
            None => curve,
        }
    }

    /// One segment per round trip, per round trip: I/RTT² in b/s per second.
    pub(crate) fn slope(&self) -> f64 {
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

    pub(crate) fn rtt_secs(&self) -> f64 {
        self.rtt.as_secs_f64().max(1e-6)
    }
}

/// RFC 9438 section 4.6: multiplicative decrease factor, in tenths.
const BETA_TENTHS: u64 = 7;
/// RFC 9438 section 5: constant C, in segments per s³.
const C: f64 = 0.4;
/// Linux paces at 1 % below the bandwidth estimate, so that queues drain.
const BBR_MARGIN: f64 = 0.99;
/// Window in segments during `PROBE_RTT`.
const BBR_MIN_WINDOW: f64 = 4.0;
/// Minimum duration of `PROBE_RTT` in seconds.
const BBR_HOLD: f64 = 0.2;
/// Interval between two `PROBE_RTT` phases in seconds.
const BBR_PERIOD: f64 = 10.0;
/// 20 probes of three pieces are about as many pieces as a curve of CUBIC.
const BBR_MAX_PROBES: u32 = 20;
/// The first slow start has no threshold. 20 doublings of one segment are 1.5 GB, more than the
/// largest TCP window.
const MAX_DOUBLINGS: u32 = 20;
/// Limits the time of a plan over many round trips to tens of microseconds.
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
    fn curves_continue_from_the_current_window() {
        // 2 segments now, 4 after a round trip, then the threshold of 5 and one more per round.
        let reno = PATH.reno_from(Bytes(2_500), Bytes(6_250));
        for (ms, want) in [(50, 2e5), (150, 4e5), (200, 5e5), (1_200, 15e5)] {
            assert!((rate(&reno, ms) - want).abs() < 2e3, "{ms}");
        }
        // A window above the threshold grows linearly.
        let above = PATH.reno_from(Bytes(12_500), Bytes(6_250));
        assert!((rate(&above, 0) - 10e5).abs() < 2e3);
        let endless = PATH.reno_from(Bytes(1_250), Bytes(u64::MAX / 8));
        assert!(endless.at(Duration::from_secs(10)).is_finite());
        let epoch = CubicEpoch {
            w_max: Bytes(125_000),
            horizon: Duration::from_secs(6),
        };
        let cubic = PATH.cubic_from(Bytes(87_500), Bytes(87_500), epoch);
        let recovered = PATH.cubic_after_recovery(epoch);
        assert!((rate(&cubic, 4_000) - rate(&recovered, 4_000)).abs() < 1e3);
        let slow = PATH.cubic_from(Bytes(1_250), Bytes(87_500), epoch);
        let timeout = PATH.cubic_after_timeout(epoch);
        assert!((rate(&slow, 3_000) - rate(&timeout, 3_000)).abs() < 1e3);
    }

    #[test]
    fn path_limit_caps_the_growth() {
        let path = TcpPath {
            limit: Some(Rate::bps(900_000)),
            ..PATH
        };
        let c = path.reno_after_timeout(Bytes(10_000));
        assert!((rate(&c, 5_000) - 9e5).abs() < 1.0);
    }

    #[test]
    fn cubic_reaches_w_max_after_k() {
        // W_max of 100 segments: K = cbrt(30/0.4) = 4.217 s.
        let epoch = CubicEpoch {
            w_max: Bytes(125_000),
            horizon: Duration::from_secs(6),
        };
        let c = PATH.cubic_after_recovery(epoch);
        assert!((rate(&c, 0) - 7e6).abs() < 1e5);
        assert!((rate(&c, 4_217) - 1e7).abs() < 1e5, "{}", rate(&c, 4_217));
        assert!(rate(&c, 5_900) > 1.01e7);
        // The rate is constant after the horizon.
        assert!((rate(&c, 7_000) - rate(&c, 60_000)).abs() < 1.0);
    }

    #[test]
    fn cubic_grows_as_reno_on_a_short_path() {
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
    fn cubic_grows_from_ssthresh_after_a_timeout() {
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

    const CYCLE: BbrCycle = BbrCycle {
        bandwidth: Rate::kbps(10_000),
        next_probe: Duration::from_secs(4),
        horizon: Duration::from_secs(30),
    };

    #[test]
    fn bbr_probe_rtt_stops_for_a_round_trip_and_lasts_200_ms() {
        let c = PATH.bbr_steady(CYCLE);
        let want = [
            (3_990, 9.9e6),
            (4_050, 0.0),
            (4_150, 4e5),
            (4_290, 4e5),
            (4_310, 9.9e6),
            (14_290, 9.9e6),
            (14_350, 0.0),
            (14_610, 9.9e6),
            (29_990, 9.9e6),
        ];
        for (ms, want) in want {
            assert!((rate(&c, ms) - want).abs() < 10.0, "{ms} {}", rate(&c, ms));
        }
        // 10 s at the steady rate and 200 ms at the minimum window, in 10.3 s.
        let mean = (9.9e6 * 10.0 + 4e5 * 0.2) / 10.3;
        assert!((rate(&c, 60_000) - mean).abs() < 10.0);
    }

    #[test]
    fn bbr_probe_rtt_lasts_a_round_trip_on_a_long_path() {
        let path = TcpPath {
            rtt: Duration::from_millis(600),
            ..PATH
        };
        let c = path.bbr_steady(CYCLE);
        assert!(rate(&c, 4_300).abs() < 1.0);
        assert!(
            (rate(&c, 5_150) - 4e4 / 0.6).abs() < 10.0,
            "{}",
            rate(&c, 5_150)
        );
        assert!((rate(&c, 5_250) - 9.9e6).abs() < 10.0);
    }

    #[test]
    fn bbr_probe_rtt_does_not_exceed_the_steady_rate() {
        let slow = BbrCycle {
            bandwidth: Rate::kbps(100),
            horizon: Duration::MAX,
            ..CYCLE
        };
        let c = PATH.bbr_steady(slow);
        assert!((rate(&c, 4_200) - 99_000.0).abs() < 1.0);
        assert!(rate(&c, 10_000_000) > 97_000.0);
    }
}
