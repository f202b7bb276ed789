//! Reno's congestion avoidance (RFC 5681), counted in segments (RFC 3465).

use core::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::units::Time;

use super::congestion::{Acked, Congestion, Signal, Window};
use super::hystart::{HyStart, HyStartConfig};

/// Parameters of [`Reno`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RenoConfig {
    /// Leaves the first slow start when the delay rises; `None`: at the first loss.
    pub hystart: Option<HyStartConfig>,
}

/// Increases the window by one segment per round trip, and halves it after congestion.
#[derive(Clone, Debug)]
pub struct Reno {
    hystart: Option<HyStart>,
    /// Acknowledged segments that count towards the next window increase.
    credit: u32,
}

impl Reno {
    /// State at the start of a connection.
    pub fn new(config: RenoConfig) -> Self {
        Self {
            hystart: config.hystart.map(HyStart::new),
            credit: 0,
        }
    }
}

impl Congestion for Reno {
    fn on_ack(&mut self, ack: &Acked, window: &mut Window, _: &mut Pcg64Mcg) {
        if !ack.window_limited {
            return;
        }
        let mut left = ack.delivered;
        if window.in_slow_start() {
            left = match &mut self.hystart {
                Some(hystart) => hystart.slow_start(ack, window),
                None => window.slow_start(left),
            };
        }
        self.credit = self.credit.saturating_add(left);
        if self.credit >= window.cwnd() {
            self.credit -= window.cwnd();
            window.set(window.cwnd().saturating_add(1));
        }
    }

    fn on_congestion(&mut self, _: Time, _: Signal, window: &Window) -> u32 {
        self.credit = 0;
        if let Some(hystart) = &mut self.hystart {
            hystart.finish();
        }
        (window.cwnd() / 2).max(MIN_WINDOW)
    }

    fn on_undo(&mut self, _: &mut Window) {}

    fn on_restart(&mut self, _: Time, _: Duration, _: bool) {}
}

/// RFC 5681 equation (4): the minimum threshold is two segments.
const MIN_WINDOW: u32 = 2;

#[cfg(test)]
mod tests {
    use super::super::testing::{acked, rng};
    use super::*;

    #[test]
    fn window_grows_by_one_segment_per_round_trip() {
        let mut reno = Reno::new(RenoConfig::default());
        let mut window = Window::new(10, 1_000);
        window.ssthresh = 10;
        let acks = |reno: &mut Reno, window: &mut Window, n: u32| {
            for _ in 0..n {
                reno.on_ack(&acked(1), window, &mut rng());
            }
            window.cwnd()
        };
        assert_eq!(acks(&mut reno, &mut window, 9), 10);
        assert_eq!(acks(&mut reno, &mut window, 1), 11);
        assert_eq!(acks(&mut reno, &mut window, 11), 12);
    }

    #[test]
    fn halves_the_window_down_to_two_segments() {
        let mut reno = Reno::new(RenoConfig::default());
        for (cwnd, want) in [(100, 50), (7, 3), (3, 2), (1, 2)] {
            let window = Window::new(cwnd, 1_000);
            assert_eq!(
                reno.on_congestion(Time::ZERO, Signal::Loss, &window),
                want,
                "{cwnd}"
            );
        }
    }

    #[test]
    fn application_limited_flow_does_not_grow_the_window() {
        let mut reno = Reno::new(RenoConfig::default());
        let mut window = Window::new(10, 1_000);
        let ack = Acked {
            window_limited: false,
            ..acked(2)
        };
        reno.on_ack(&ack, &mut window, &mut rng());
        assert_eq!(window.cwnd(), 10);
    }
}
