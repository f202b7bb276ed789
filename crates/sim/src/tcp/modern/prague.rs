//! Prague: a scalable congestion control with a proportional response to marks (RFC 9331 section 4;
//! draft-briscoe-iccrg-prague-congestion-control-04) and the control law of DCTCP (RFC 8257).

use core::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::units::Time;

use super::congestion::{Acked, Congestion, Phase, Signal, Window};

/// Parameters of [`Prague`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PragueConfig {
    /// Weight of a round trip in the mean share of marks (RFC 8257 section 3.3), above 0 and at
    /// most 1; a sixteenth.
    pub gain: f64,
    /// Reference for shorter round trips, so that flows with short paths do not starve others (RFC
    /// 9331 section 4.3); 25 ms. Zero: the window grows by a segment per round trip at any length.
    pub rtt_floor: Duration,
}

impl Default for PragueConfig {
    fn default() -> Self {
        Self {
            gain: 1.0 / 16.0,
            rtt_floor: Duration::from_millis(25),
        }
    }
}

/// Reduces the window by half the share of marked segments once per round trip, and increases it by
/// one segment per round trip continuously. For losses it halves the window, as Reno.
#[derive(Clone, Debug)]
pub struct Prague {
    config: PragueConfig,
    /// The mean share of marked segments (`alpha`), in 0..=1.
    alpha: f64,
    /// A mark has been received, so a queue on the path marks.
    marked: bool,
    /// Counting period for `alpha`.
    round: Round,
    delivered: u32,
    marks: u32,
    /// The round trip after a reduction for marks, and the window before the reduction.
    cut: Option<(Round, f64)>,
    /// Fractional part of the window, in segments.
    fraction: f64,
}

/// A round trip, at least as long as the floor.
#[derive(Clone, Copy, Debug)]
struct Round {
    since: Time,
    /// The next segment to send at the start of the round.
    end: u32,
}

impl Round {
    fn begin(ack: &Acked) -> Self {
        Self {
            since: ack.now,
            end: ack.next,
        }
    }

    fn is_over(&self, ack: &Acked, floor: Duration) -> bool {
        ack.una >= self.end && ack.now.since(self.since) >= floor
    }
}

impl Prague {
    /// State at the start of a connection.
    pub fn new(config: PragueConfig) -> Self {
        let round = Round {
            since: Time::ZERO,
            end: 0,
        };
        Self {
            config,
            // RFC 8257 section 4.2: the first mark halves the window, because slow start
            // overshoots.
            alpha: 1.0,
            marked: false,
            round,
            delivered: 0,
            marks: 0,
            cut: None,
            fraction: 0.0,
        }
    }

    /// The mean share of marked segments; 1 until the first mark.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// RFC 8257 section 3.3, steps 5 to 8, per round.
    fn count(&mut self, ack: &Acked) {
        self.delivered = self.delivered.saturating_add(ack.delivered);
        self.marks = self.marks.saturating_add(ack.marked);
        let first = ack.marked > 0 && !self.marked;
        self.marked |= first;
        if !first && !self.round.is_over(ack, self.config.rtt_floor) {
            return;
        }
        // `alpha` stays at its initial value until the first mark, which begins a round.
        if self.marked && !first && self.delivered > 0 {
            let share = (f64::from(self.marks) / f64::from(self.delivered)).min(1.0);
            self.alpha += self.config.gain * (share - self.alpha);
        }
        self.round = Round::begin(ack);
        (self.delivered, self.marks) = (0, 0);
    }

    /// Window increase per round trip, in segments. The rate grows as that of a flow with a round
    /// trip equal to the floor.
    fn step(&self, srtt: Duration) -> f64 {
        if srtt.is_zero() || srtt >= self.config.rtt_floor {
            return 1.0;
        }
        let share = srtt.as_secs_f64() / self.config.rtt_floor.as_secs_f64();
        share * share
    }

    fn cwnd(&self, window: &Window) -> f64 {
        f64::from(window.cwnd()) + self.fraction
    }

    fn set(&mut self, cwnd: f64, window: &mut Window) {
        let cwnd = cwnd.min(f64::from(window.limit()));
        window.set(cwnd as u32);
        self.fraction = (cwnd - f64::from(window.cwnd())).max(0.0);
    }
}

impl Congestion for Prague {
    fn on_ack(&mut self, ack: &Acked, window: &mut Window, _: &mut Pcg64Mcg) {
        if !ack.window_limited {
            return;
        }
        // Marked segments do not increase the window; the others do, also right after a reduction.
        let mut left = ack.delivered.saturating_sub(ack.marked);
        if window.in_slow_start() {
            left = window.slow_start(left);
        }
        if left > 0 && !window.in_slow_start() {
            let cwnd = self.cwnd(window);
            self.set(cwnd + f64::from(left) * self.step(ack.srtt) / cwnd, window);
        }
    }

    fn on_congestion(&mut self, _: Time, _: Signal, window: &Window) -> u32 {
        // A loss in the round trip after a reduction for marks signals the same congestion, so both
        // reductions together halve the window.
        let cwnd = self.cwnd(window);
        let before = self.cut.take().map_or(cwnd, |(_, before)| before);
        self.fraction = 0.0;
        let half = (before / 2.0).min(cwnd);
        (half as u32).max(MIN_WINDOW)
    }

    fn on_undo(&mut self, _: &mut Window) {}

    fn on_restart(&mut self, _: Time, _: Duration, _: bool) {}

    fn on_marks(&mut self, ack: &Acked, window: &mut Window) -> bool {
        self.count(ack);
        let floor = self.config.rtt_floor;
        self.cut.take_if(|(round, _)| round.is_over(ack, floor));
        let open = matches!(ack.phase, Phase::Open | Phase::Loss);
        if ack.marked == 0 || self.cut.is_some() || !open {
            return false;
        }
        let cwnd = self.cwnd(window);
        self.cut = Some((Round::begin(ack), cwnd));
        let left = cwnd * (1.0 - self.alpha / 2.0);
        self.set(left.max(f64::from(MIN_WINDOW)).min(cwnd), window);
        window.ssthresh = window.cwnd();
        true
    }

    fn is_scalable(&self) -> bool {
        true
    }
}

/// Draft section 2.4.4: the minimum window is two segments.
const MIN_WINDOW: u32 = 2;

#[cfg(test)]
mod tests {
    use super::super::testing::{acked, rng};
    use super::*;

    /// A connection with a round trip of `rtt`, some of whose segments are marked.
    struct Path {
        prague: Prague,
        window: Window,
        now: Time,
        rtt: Duration,
        una: u32,
    }

    impl Path {
        fn new(config: PragueConfig, cwnd: u32, rtt_ms: u64) -> Self {
            let mut window = Window::new(cwnd, 1 << 20);
            window.ssthresh = cwnd;
            Self {
                prague: Prague::new(config),
                window,
                now: Time::ZERO,
                rtt: Duration::from_millis(rtt_ms),
                una: 0,
            }
        }

        /// Processes a window of segments with one acknowledgement each; `marks` selects the marked
        /// ones.
        fn round(&mut self, marks: impl Fn(u32) -> bool) -> u32 {
            let (flight, mut cuts) = (self.window.cwnd(), 0);
            for i in 0..flight {
                self.una += 1;
                let ack = Acked {
                    now: self.now + self.rtt * (i + 1) / flight,
                    una: self.una,
                    next: self.una + flight,
                    marked: u32::from(marks(self.una)),
                    srtt: self.rtt,
                    ..acked(1)
                };
                cuts += u32::from(self.prague.on_marks(&ack, &mut self.window));
                self.prague.on_ack(&ack, &mut self.window, &mut rng());
            }
            self.now += self.rtt;
            cuts
        }

        /// `alpha` after `rounds` with a mark on every `nth` segment.
        fn settle(&mut self, nth: u32, rounds: u32) -> f64 {
            for _ in 0..rounds {
                self.round(|seq| seq.is_multiple_of(nth));
            }
            self.prague.alpha()
        }

        /// The mean window over `rounds` further rounds.
        fn mean(&mut self, nth: u32, rounds: u32) -> f64 {
            let mut sum = 0.0;
            for _ in 0..rounds {
                self.round(|seq| seq.is_multiple_of(nth));
                sum += self.prague.cwnd(&self.window);
            }
            sum / f64::from(rounds)
        }
    }

    /// RFC 8257 section 3.3: with gain 1/16 the weight of the initial value after n rounds without
    /// marks is (15/16)^n.
    #[test]
    fn the_share_of_marks_is_a_moving_average() {
        let mut path = Path::new(PragueConfig::default(), 100, 50);
        assert!((path.prague.alpha() - 1.0).abs() < 1e-12);
        path.settle(u32::MAX, 100);
        assert!(
            (path.prague.alpha() - 1.0).abs() < 1e-12,
            "alpha changed before the first mark"
        );
        path.round(|seq| seq % 10 == 0);
        // The remainder of the round that began with the first mark had marks.
        path.settle(u32::MAX, 2);
        let before = path.prague.alpha();
        let left = path.settle(u32::MAX, 16) / before;
        // One round more or less, because the rounds of the algorithm and of the test are not
        // aligned.
        let share = |rounds| (0..rounds).map(|_| 0.9375).product::<f64>();
        assert!((share(17)..=share(15)).contains(&left), "{left}");
        let share = path.settle(10, 100);
        assert!((share - 0.1).abs() < 0.02, "{share}");
    }

    #[test]
    fn the_window_falls_by_half_the_share_once_per_round_trip() {
        let mut path = Path::new(PragueConfig::default(), 1_000, 50);
        // The first mark halves the window, and further marks of the same round trip have no
        // effect.
        assert_eq!(path.round(|seq| seq % 2 == 0), 1);
        assert!(
            (500..502).contains(&path.window.cwnd()),
            "{}",
            path.window.cwnd()
        );
        path.settle(u32::MAX, 4);
        path.prague.alpha = 0.2;
        let before = path.prague.cwnd(&path.window);
        let mark = path.una + 1;
        assert_eq!(path.round(|seq| seq == mark), 1);
        // A tenth, less the decrease of alpha by one round without marks, and less the increase of
        // one segment per round.
        let fall = before + 1.0 - path.prague.cwnd(&path.window);
        let most = before * 0.2 / 2.0;
        assert!((0.93 * most..=most + 0.1).contains(&fall), "{fall} {most}");
        assert!(!path.window.in_slow_start());
    }

    /// In equilibrium the increase of a round is one segment minus the marked ones, and the
    /// reduction is half the share of marks: 1 - p = p W / 2 (RFC 9332 appendix A.1 states a window
    /// of 2 / p).
    #[test]
    fn the_window_is_inverse_to_the_share_of_marks() {
        for nth in [5, 10, 20, 50] {
            let mut path = Path::new(PragueConfig::default(), 20, 50);
            path.settle(nth, 600);
            let (mean, p) = (path.mean(nth, 400), 1.0 / f64::from(nth));
            let want = 2.0 * (1.0 - p) / p;
            // Rounds without marks, by chance, increase the mean slightly.
            assert!((0.9..1.35).contains(&(mean / want)), "{nth}: {mean} {want}");
        }
    }

    /// A flow with a short round trip has the rate of a flow with 25 ms.
    #[test]
    fn short_round_trip_has_no_higher_rate() {
        let rate = |rtt_ms: u64, floor: Duration| {
            let config = PragueConfig {
                rtt_floor: floor,
                ..PragueConfig::default()
            };
            let mut path = Path::new(config, 20, rtt_ms);
            path.settle(10, 2_000);
            path.mean(10, 2_000) / path.rtt.as_secs_f64()
        };
        let floor = PragueConfig::default().rtt_floor;
        let (short, usual) = (rate(10, floor), rate(25, floor));
        assert!((0.8..1.25).contains(&(short / usual)), "{short} {usual}");
        let eager = rate(10, Duration::ZERO);
        assert!((2.0..3.0).contains(&(eager / usual)), "{eager} {usual}");
    }

    #[test]
    fn loss_after_marks_halves_the_prior_window() {
        let mut path = Path::new(PragueConfig::default(), 100, 50);
        let half = path
            .prague
            .on_congestion(Time::ZERO, Signal::Loss, &path.window);
        assert_eq!(half, 50);
        path.round(|_| true);
        assert_eq!(path.window.cwnd(), 50);
        let same = path
            .prague
            .on_congestion(path.now, Signal::Loss, &path.window);
        assert_eq!(same, 50);
        for (cwnd, want) in [(3, 2), (1, 2)] {
            let window = Window::new(cwnd, 100);
            let left = path
                .prague
                .on_congestion(path.now, Signal::Timeout, &window);
            assert_eq!(left, want);
        }
    }

    #[test]
    fn window_has_a_minimum_of_two_segments() {
        let mut path = Path::new(PragueConfig::default(), 20, 50);
        for _ in 0..100 {
            path.round(|_| true);
        }
        assert_eq!(path.window.cwnd(), 2);
    }
}
