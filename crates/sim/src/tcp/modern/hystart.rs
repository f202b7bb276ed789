//! Exit from slow start before the queue is full: `HyStart++` (RFC 9406).

use core::time::Duration;

use super::congestion::{Acked, Window};

/// Parameters of [`HyStart`]: those of RFC 9406 section 4.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HyStartConfig {
    /// Lower bound of the delay rise that ends slow start; the threshold is an eighth of the delay
    /// of the last round.
    pub min_rise: Duration,
    /// Upper bound of this threshold.
    pub max_rise: Duration,
    /// Minimum number of round-trip samples per round.
    pub samples: u32,
    /// Divisor of window growth in conservative slow start.
    pub divisor: u32,
    /// Rounds of conservative slow start.
    pub rounds: u32,
    /// Maximum window growth per acknowledgement (`L`), in segments. A paced sender may use
    /// `u32::MAX`.
    pub burst: u32,
}

impl Default for HyStartConfig {
    fn default() -> Self {
        Self {
            min_rise: Duration::from_millis(4),
            max_rise: Duration::from_millis(16),
            samples: 8,
            divisor: 4,
            rounds: 5,
            burst: 8,
        }
    }
}

/// Monitors the delay in the first slow start.
#[derive(Clone, Debug)]
pub struct HyStart {
    config: HyStartConfig,
    stage: Stage,
    /// The round ends when this segment is acknowledged.
    round_end: u32,
    /// Minimum round-trip time of the last and of the current round.
    last: Option<Duration>,
    current: Option<Duration>,
    samples: u32,
    /// Acknowledged segments that count towards the next window increase in conservative slow
    /// start.
    credit: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Standard,
    /// The delay has risen to `baseline`; if it falls below, the detection was spurious.
    Conservative {
        baseline: Duration,
        rounds_left: u32,
    },
    Finished,
}

impl HyStart {
    /// State at the start of a connection.
    pub fn new(config: HyStartConfig) -> Self {
        Self {
            config,
            stage: Stage::Standard,
            round_end: 0,
            last: None,
            current: None,
            samples: 0,
            credit: 0,
        }
    }

    /// The first slow start is over; later ones are classic.
    pub fn finish(&mut self) {
        self.stage = Stage::Finished;
    }

    /// Grows `window` for one acknowledgement in slow start. Returns the number of segments left
    /// for congestion avoidance.
    pub fn slow_start(&mut self, ack: &Acked, window: &mut Window) -> u32 {
        if self.stage == Stage::Finished {
            return window.slow_start(ack.delivered);
        }
        self.watch(ack);
        let left = match self.stage {
            Stage::Conservative { .. } => {
                self.credit += ack.delivered.min(self.config.burst);
                let grow = self.credit / self.config.divisor.max(1);
                self.credit -= grow * self.config.divisor.max(1);
                window.slow_start(grow)
            }
            Stage::Standard | Stage::Finished => {
                window.slow_start(ack.delivered.min(self.config.burst))
            }
        };
        if self.stage == Stage::Finished {
            window.ssthresh = window.cwnd();
        }
        left
    }

    fn watch(&mut self, ack: &Acked) {
        if let Some(rtt) = ack.rtt {
            self.current = Some(self.current.map_or(rtt, |low| low.min(rtt)));
            self.samples = self.samples.saturating_add(1);
        }
        if let (Some(current), true) = (self.current, self.samples >= self.config.samples) {
            self.judge(current);
        }
        if ack.una >= self.round_end {
            self.round_end = ack.next;
            self.last = self.current.take();
            self.samples = 0;
            if let Stage::Conservative { rounds_left, .. } = &mut self.stage {
                *rounds_left = rounds_left.saturating_sub(1);
                if *rounds_left == 0 {
                    self.stage = Stage::Finished;
                }
            }
        }
    }

    fn judge(&mut self, current: Duration) {
        match self.stage {
            Stage::Standard => {
                let Some(last) = self.last else { return };
                let (low, high) = (self.config.min_rise, self.config.max_rise);
                if current >= last + (last / 8).min(high).max(low) {
                    self.stage = Stage::Conservative {
                        baseline: current,
                        rounds_left: self.config.rounds,
                    };
                }
            }
            Stage::Conservative { baseline, .. } if current < baseline => {
                self.stage = Stage::Standard;
            }
            Stage::Conservative { .. } | Stage::Finished => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::acked;
    use super::*;

    /// Processes rounds of `n` acknowledgements of one segment each with the same delay. Returns
    /// the window after each round.
    fn rounds(hystart: &mut HyStart, window: &mut Window, delays_ms: &[u64]) -> Vec<u32> {
        let mut una = 0;
        let round = |ms: &u64| {
            let flight = window.cwnd();
            for _ in 0..flight {
                una += 1;
                let ack = Acked {
                    una,
                    next: una + flight,
                    rtt: Some(Duration::from_millis(*ms)),
                    ..acked(1)
                };
                if window.in_slow_start() {
                    hystart.slow_start(&ack, window);
                }
            }
            window.cwnd()
        };
        delays_ms.iter().map(round).collect()
    }

    #[test]
    fn doubles_while_the_delay_stays() {
        let mut hystart = HyStart::new(HyStartConfig::default());
        let mut window = Window::new(10, 10_000);
        let grown = rounds(&mut hystart, &mut window, &[50, 50, 50, 53]);
        assert_eq!(grown, [20, 40, 80, 160]);
    }

    #[test]
    fn rise_of_an_eighth_ends_slow_start_after_five_conservative_rounds() {
        let mut hystart = HyStart::new(HyStartConfig::default());
        let mut window = Window::new(16, 100_000);
        let grown = rounds(
            &mut hystart,
            &mut window,
            &[80, 80, 95, 95, 95, 95, 95, 95, 95],
        );
        assert_eq!(grown[..2], [32, 64]);
        // After eight samples of the third round, growth falls to a quarter.
        assert!((64 + 8 + 12..=64 + 8 + 16).contains(&grown[2]), "{grown:?}");
        assert!(grown[5] > grown[4] && grown[4] > grown[3], "{grown:?}");
        assert_eq!(grown[8], grown[7], "{grown:?}");
        assert_eq!(window.ssthresh, window.cwnd());
    }

    #[test]
    fn transient_rise_resumes_slow_start() {
        let mut hystart = HyStart::new(HyStartConfig::default());
        let mut window = Window::new(16, 100_000);
        let grown = rounds(&mut hystart, &mut window, &[80, 95, 80, 80]);
        assert!(grown[3] >= 2 * grown[2] - 16, "{grown:?}");
        assert_eq!(window.ssthresh, u32::MAX);
    }
}
