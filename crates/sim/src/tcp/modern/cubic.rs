//! CUBIC (RFC 9438).

use core::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::units::Time;

use super::congestion::{Acked, Congestion, Signal, Window};
use super::hystart::{HyStart, HyStartConfig};

/// Parameters of [`Cubic`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CubicConfig {
    /// Constant C in segments per s³ (section 5.1); 0.4.
    pub c: f64,
    /// Multiplicative decrease factor (section 4.6), in 0..1; 0.7.
    pub beta: f64,
    /// Releases bandwidth to new flows when the maximum of the window shrinks (section 4.7).
    pub fast_convergence: bool,
    /// Grows at least as fast as Reno (section 4.3).
    pub reno_friendly: bool,
    /// Leaves the first slow start when the delay rises; `None`: at the first loss.
    pub hystart: Option<HyStartConfig>,
}

impl Default for CubicConfig {
    fn default() -> Self {
        Self {
            c: 0.4,
            beta: 0.7,
            fast_convergence: true,
            reno_friendly: true,
            hystart: Some(HyStartConfig::default()),
        }
    }
}

/// Window growth by a cubic function of the time since the last congestion event.
#[derive(Clone, Debug)]
pub struct Cubic {
    config: CubicConfig,
    hystart: Option<HyStart>,
    /// Window at the last congestion event, in segments; zero if unknown (`W_max`).
    w_max: f64,
    /// Window just before the last reduction (`cwnd_prior`).
    prior: f64,
    epoch: Option<Epoch>,
    /// Fractional part of the window, in segments.
    fraction: f64,
    /// Time of the last acknowledgement.
    last: Time,
    /// State before the last reduction, for undo.
    saved: Option<Saved>,
}

/// A period of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Time,
    /// Window at the inflection point of the cubic function.
    origin: f64,
    /// Seconds from the start to the inflection point.
    k: f64,
    /// Estimated window of Reno (`W_est`).
    reno: f64,
}

#[derive(Clone, Copy, Debug)]
struct Saved {
    w_max: f64,
    prior: f64,
    epoch: Option<Epoch>,
}

impl Cubic {
    /// State at the start of a connection.
    pub fn new(config: CubicConfig) -> Self {
        Self {
            config,
            hystart: config.hystart.map(HyStart::new),
            w_max: 0.0,
            prior: 0.0,
            epoch: None,
            fraction: 0.0,
            last: Time::ZERO,
            saved: None,
        }
    }

    fn begin(&self, now: Time, cwnd: f64) -> Epoch {
        let (origin, k) = if cwnd < self.w_max {
            (self.w_max, libm::cbrt((self.w_max - cwnd) / self.config.c))
        } else {
            (cwnd, 0.0)
        };
        Epoch {
            start: now,
            origin,
            k,
            reno: cwnd,
        }
    }

    /// Sections 4.2 to 4.5 for `acked` segments.
    fn avoid(&mut self, ack: &Acked, acked: f64, window: &mut Window) {
        let cwnd = f64::from(window.cwnd()) + self.fraction;
        let mut epoch = match self.epoch {
            Some(epoch) => epoch,
            None => self.begin(ack.now, cwnd),
        };
        let t = ack.now.since(epoch.start).as_secs_f64();
        let target = self.curve(&epoch, t + ack.srtt.as_secs_f64());
        let target = target.clamp(cwnd, 1.5 * cwnd);
        let mut grown = cwnd + (target - cwnd) / cwnd * acked;
        if self.config.reno_friendly {
            epoch.reno += self.alpha(epoch.reno) * acked / cwnd;
            if self.curve(&epoch, t) < epoch.reno {
                grown = grown.max(epoch.reno);
            }
        }
        self.epoch = Some(epoch);
        let grown = grown.min(f64::from(window.limit()));
        window.set(grown as u32);
        self.fraction = grown - f64::from(window.cwnd());
    }

    /// `W_cubic(t)`, with `t` in seconds since the start of the epoch.
    fn curve(&self, epoch: &Epoch, t: f64) -> f64 {
        let x = t - epoch.k;
        self.config.c * x * x * x + epoch.origin
    }

    /// Additive increase of Reno for this decrease factor: fair to Reno until the window reaches
    /// its prior value, then one segment per round trip.
    fn alpha(&self, reno: f64) -> f64 {
        if reno < self.prior {
            3.0 * (1.0 - self.config.beta) / (1.0 + self.config.beta)
        } else {
            1.0
        }
    }
}

impl Congestion for Cubic {
    fn on_ack(&mut self, ack: &Acked, window: &mut Window, _: &mut Pcg64Mcg) {
        let since = ack.now.since(self.last);
        self.last = ack.now;
        if !ack.window_limited {
            // Section 5.8: application-limited time does not count.
            if let Some(epoch) = &mut self.epoch {
                epoch.start += since;
            }
            return;
        }
        let mut left = ack.delivered;
        if window.in_slow_start() {
            left = match &mut self.hystart {
                Some(hystart) => hystart.slow_start(ack, window),
                None => window.slow_start(left),
            };
        }
        if left > 0 && !window.in_slow_start() {
            self.avoid(ack, f64::from(left), window);
        }
    }

    fn on_congestion(&mut self, _: Time, signal: Signal, window: &Window) -> u32 {
        self.saved = Some(Saved {
            w_max: self.w_max,
            prior: self.prior,
            epoch: self.epoch,
        });
        let cwnd = f64::from(window.cwnd()) + self.fraction;
        self.prior = cwnd;
        self.w_max = match signal {
            // Section 4.8: the curve restarts with K = 0 at the end of slow start.
            Signal::Timeout => 0.0,
            _ if self.config.fast_convergence && cwnd < self.w_max => {
                cwnd * (1.0 + self.config.beta) / 2.0
            }
            _ => cwnd,
        };
        self.epoch = None;
        self.fraction = 0.0;
        if let Some(hystart) = &mut self.hystart {
            hystart.finish();
        }
        ((cwnd * self.config.beta) as u32).max(MIN_WINDOW)
    }

    fn on_undo(&mut self, _: &mut Window) {
        // Section 4.9: restores the state before the congestion event.
        if let Some(saved) = self.saved.take() {
            self.w_max = saved.w_max;
            self.prior = saved.prior;
            self.epoch = saved.epoch;
        }
    }

    fn on_restart(&mut self, now: Time, idle: Duration, _: bool) {
        if let Some(epoch) = &mut self.epoch {
            epoch.start += idle;
        }
        self.last = now;
    }
}

/// RFC 9438 section 4.6 lets the window fall to two segments.
const MIN_WINDOW: u32 = 2;

#[cfg(test)]
mod tests {
    use super::super::testing::{acked, rng};
    use super::*;

    /// Processes one acknowledgement per segment of the window in each round trip, from `from`.
    /// Returns the window after each round.
    fn rounds(
        cubic: &mut Cubic,
        window: &mut Window,
        from: Time,
        rtt_ms: u64,
        rounds: u64,
    ) -> Vec<u32> {
        let rtt = Duration::from_millis(rtt_ms);
        let round = |n: u64| {
            let (flight, start) = (window.cwnd(), from + rtt * n as u32);
            for i in 0..flight {
                let ack = Acked {
                    now: start + rtt * i / flight,
                    srtt: rtt,
                    ..acked(1)
                };
                cubic.on_ack(&ack, window, &mut rng());
            }
            window.cwnd()
        };
        (0..rounds).map(round).collect()
    }

    fn after_loss(w_max: u32, config: CubicConfig) -> (Cubic, Window) {
        let mut cubic = Cubic::new(config);
        let mut window = Window::new(w_max, 1 << 20);
        window.ssthresh = cubic.on_congestion(Time::ZERO, Signal::Loss, &window);
        window.set(window.ssthresh);
        (cubic, window)
    }

    /// RFC 9438 equation (1) for `W_max` = 1000: K = cbrt(300/0.4) = 9.086 s.
    #[test]
    fn grows_along_the_cubic_curve() {
        let (mut cubic, mut window) = after_loss(1_000, CubicConfig::default());
        assert_eq!(window.cwnd(), 700);
        let grown = rounds(&mut cubic, &mut window, Time::ZERO, 100, 150);
        for (n, cwnd) in (1..).zip(&grown) {
            let t = f64::from(n) * 0.1;
            let want = 0.4 * (t - 9.086) * (t - 9.086) * (t - 9.086) + 1_000.0;
            // The target is one round trip ahead, and is reached within that round trip.
            assert!(
                (f64::from(*cwnd) - want).abs() < 0.006 * want,
                "{t} {cwnd} {want}"
            );
        }
    }

    #[test]
    fn reno_friendly_on_short_paths() {
        let (mut cubic, mut window) = after_loss(20, CubicConfig::default());
        let grown = rounds(&mut cubic, &mut window, Time::ZERO, 5, 40);
        // From 14, 9/17 of a segment per round up to 20, then one per round.
        let rounds_to_prior = 6.0 * 17.0 / 9.0;
        let want = 20.0 + (40.0 - rounds_to_prior);
        assert!((f64::from(grown[39]) - want).abs() <= 2.0, "{grown:?}");
        let alone = CubicConfig {
            reno_friendly: false,
            ..CubicConfig::default()
        };
        let (mut cubic, mut window) = after_loss(20, alone);
        let grown = rounds(&mut cubic, &mut window, Time::ZERO, 5, 40);
        assert!(grown[39] < 17, "{grown:?}");
    }

    #[test]
    fn fast_convergence_lowers_a_smaller_maximum() {
        let (mut cubic, window) = after_loss(1_000, CubicConfig::default());
        assert!((cubic.w_max - 1_000.0).abs() < 1e-9);
        cubic.on_congestion(Time::from_secs(1), Signal::Mark, &window);
        assert!((cubic.w_max - 700.0 * 0.85).abs() < 1e-9, "{}", cubic.w_max);
    }

    #[test]
    fn after_a_timeout_the_curve_starts_flat_where_slow_start_ends() {
        let mut cubic = Cubic::new(CubicConfig::default());
        let mut window = Window::new(100, 1 << 20);
        window.ssthresh = cubic.on_congestion(Time::ZERO, Signal::Timeout, &window);
        assert_eq!(window.ssthresh, 70);
        window.set(1);
        let grown = rounds(&mut cubic, &mut window, Time::ZERO, 100, 40);
        assert_eq!(grown[..7], [2, 4, 8, 16, 32, 64, 70]);
        // Reno's line, 9/17 of a segment per round, is above the curve for the first seconds.
        let want = 70.0 + 32.0 * 9.0 / 17.0;
        assert!((f64::from(grown[39]) - want).abs() <= 2.0, "{grown:?}");
    }

    #[test]
    fn undo_restores_the_curve() {
        let (mut cubic, mut window) = after_loss(1_000, CubicConfig::default());
        rounds(&mut cubic, &mut window, Time::ZERO, 100, 50);
        let before = (cubic.w_max, cubic.epoch.unwrap().start);
        cubic.on_congestion(Time::from_secs(5), Signal::Loss, &window);
        cubic.on_undo(&mut window);
        assert_eq!((cubic.w_max, cubic.epoch.unwrap().start), before);
    }

    #[test]
    fn idle_time_does_not_count() {
        let (mut cubic, mut window) = after_loss(1_000, CubicConfig::default());
        rounds(&mut cubic, &mut window, Time::ZERO, 100, 20);
        let at = Time::from_secs(2);
        let idle = Duration::from_secs(100);
        cubic.on_restart(at + idle, idle, true);
        let grown = rounds(&mut cubic, &mut window, at + idle, 100, 10);
        // At 3 s of the curve: 1000 - 0.4 * 6.086³ = 910.
        assert!(grown[9].abs_diff(910) < 8, "{grown:?}");
    }
}
