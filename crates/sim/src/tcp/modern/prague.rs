//! Prague: a scalable congestion control, which answers each mark a little (RFC 9331 section 4;
//! draft-briscoe-iccrg-prague-congestion-control-04), with the law of DCTCP (RFC 8257).

use core::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::units::Time;

use super::congestion::{Acked, Congestion, Phase, Signal, Window};

/// Parameters of [`Prague`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PragueConfig {
    /// How much the marks of a round trip count in the mean (RFC 8257 section 3.3), above 0 and up
    /// to 1; a sixteenth.
    pub gain: f64,
    /// Shorter round trips count as this long, so that flows with such do not starve others (RFC
    /// 9331 section 4.3); 25 ms. Zero: the window grows by a segment in each, however short.
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

/// A window that falls by half the share of marked segments, once per round trip, and grows by a
/// segment per round trip all the time. It halves for losses, as Reno.
#[derive(Clone, Debug)]
pub struct Prague {
    config: PragueConfig,
    /// The mean share of marked segments (`alpha`), in 0..=1.
    alpha: f64,
    /// A mark came: some queue on the way marks.
    marked: bool,
    /// What is counted for `alpha`.
    round: Round,
    delivered: u32,
    marks: u32,
    /// The round trip that follows a reduction for marks, and the window before it.
    cut: Option<(Round, f64)>,
    /// Fraction of a segment by which the window is larger than its integer.
    fraction: f64,
}

/// A round trip, and not less than the floor.
#[derive(Clone, Copy, Debug)]
struct Round {
    since: Time,
    /// The segment that was to be sent next when it began.
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
    /// At the beginning of a connection.
    pub fn new(config: PragueConfig) -> Self {
        let round = Round {
            since: Time::ZERO,
            end: 0,
        };
        Self {
            config,
            // RFC 8257 section 4.2: the first mark halves the window, as slow start overshoots.
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
        // Where nothing was ever marked, there is nothing to know yet. The first mark begins a round.
        if self.marked && !first && self.delivered > 0 {
            let share = (f64::from(self.marks) / f64::from(self.delivered)).min(1.0);
            self.alpha += self.config.gain * (share - self.alpha);
        }
        self.round = Round::begin(ack);
        (self.delivered, self.marks) = (0, 0);
    }

    /// By how much of a segment the window grows per round trip: so that its rate grows as that
    /// of a flow whose round trip is the floor.
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
        // Marked segments do not let it grow; the others do, right after a reduction too.
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
        // A loss in the round trip after a reduction for marks tells of the same congestion, so
        // the two together halve.
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

/// The draft, section 2.4.4: never below two segments.
const MIN_WINDOW: u32 = 2;

#[cfg(test)]
mod tests {
    use super::super::testing::{acked, luck};
    use super::*;

    /// A connection with a round trip of `rtt`, of whose segments some are marked.
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

        /// A window of segments, each acknowledged by itself; `marks` says which are marked.
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
                self.prague.on_ack(&ack, &mut self.window, &mut luck());
            }
            self.now += self.rtt;
            cuts
        }

        /// What it believes of the marks after `rounds` in which each `nth` segment is marked.
        fn settle(&mut self, nth: u32, rounds: u32) -> f64 {
            for _ in 0..rounds {
                self.round(|seq| seq.is_multiple_of(nth));
            }
            self.prague.alpha()
        }

        /// The mean window over `rounds` more of them.
        fn mean(&mut self, nth: u32, rounds: u32) -> f64 {
            let mut sum = 0.0;
            for _ in 0..rounds {
                self.round(|seq| seq.is_multiple_of(nth));
                sum += self.prague.cwnd(&self.window);
            }
            sum / f64::from(rounds)
        }
    }

    /// RFC 8257 section 3.3: with gain 1/16 what is left of the first belief after n rounds
    /// without marks is (15/16)^n.
    #[test]
    fn the_share_of_marks_is_a_moving_average() {
        let mut path = Path::new(PragueConfig::default(), 100, 50);
        assert!((path.prague.alpha() - 1.0).abs() < 1e-12);
        path.settle(u32::MAX, 100);
        assert!((path.prague.alpha() - 1.0).abs() < 1e-12, "no mark yet");
        path.round(|seq| seq % 10 == 0);
        // The rest of the round that the first mark began had marks, too.
        path.settle(u32::MAX, 2);
        let before = path.prague.alpha();
        let left = path.settle(u32::MAX, 16) / before;
        // One more or less, as its rounds and ours do not begin together.
        let share = |rounds| (0..rounds).map(|_| 0.9375).product::<f64>();
        assert!((share(17)..=share(15)).contains(&left), "{left}");
        let share = path.settle(10, 100);
        assert!((share - 0.1).abs() < 0.02, "{share}");
    }

    #[test]
    fn the_window_falls_by_half_the_share_once_per_round_trip() {
        let mut path = Path::new(PragueConfig::default(), 1_000, 50);
        // The first mark halves it, and the marks of the same round trip do no more.
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
        // A tenth, or less by what one round without marks takes off the share, and the segment by
        // which the round lets it grow.
        let fall = before + 1.0 - path.prague.cwnd(&path.window);
        let most = before * 0.2 / 2.0;
        assert!((0.93 * most..=most + 0.1).contains(&fall), "{fall} {most}");
        assert!(!path.window.in_slow_start());
    }

    /// In balance a round adds a segment less the marked ones, and marks take half their share:
    /// 1 - p = p W / 2 (RFC 9332 appendix A.1 calls it a window of 2 / p).
    #[test]
    fn the_window_is_inverse_to_the_share_of_marks() {
        for nth in [5, 10, 20, 50] {
            let mut path = Path::new(PragueConfig::default(), 20, 50);
            path.settle(nth, 600);
            let (mean, p) = (path.mean(nth, 400), 1.0 / f64::from(nth));
            let want = 2.0 * (1.0 - p) / p;
            // Rounds without a mark by chance let it grow a little more.
            assert!((0.9..1.35).contains(&(mean / want)), "{nth}: {mean} {want}");
        }
    }

    /// The rate of a flow with a short round trip is that of one with 25 ms.
    #[test]
    fn a_short_round_trip_gives_no_higher_rate() {
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
    fn losses_halve_it_together_with_the_marks_before_them() {
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
    fn two_segments_are_left_whatever_is_marked() {
        let mut path = Path::new(PragueConfig::default(), 20, 50);
        for _ in 0..100 {
            path.round(|_| true);
        }
        assert_eq!(path.window.cwnd(), 2);
    }
}
