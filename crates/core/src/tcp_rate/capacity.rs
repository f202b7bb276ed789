//! Measures the capacity of the path where it is less than the congestion window allows.
//!
//! The window of a TCP that fills queues says how much may be out, not how fast it gets through:
//! behind a bottleneck it goes on growing, and once the queue is gone it promises many times the
//! rate of the path. So the path is measured while it is overloaded: while a queue stands and more is
//! sent than is acknowledged, what is acknowledged is all that it carries. In the queue of others as
//! much is acknowledged as is sent, and nothing follows from that. A video that sends more than it did
//! a round trip before looks like an overload for so long; then more is acknowledged, and that much
//! the path does carry.
//!
//! Where the queue is short, segments are lost before a lasting one stands, and the window that is left
//! seems to carry any amount soon. So while frames wait for longer than they take to come, when all that
//! the connection can carry is asked of it, any queue counts, and so does a loss: what is acknowledged
//! until then is the path's rate, or what others leave of it.

use core::time::Duration;
use std::collections::VecDeque;

use super::{CongestionControl, TcpRateConfig, TcpView};
use crate::units::{Bytes, Rate, Time};

/// Capacity estimate from the states of a connection, in order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Capacity {
    /// Bytes sent and acknowledged in the last round trip or a little more.
    marks: VecDeque<Mark>,
    /// Capacity in bits per second, at least the floor; `None` if unknown.
    known: Option<f64>,
    /// Whether the capacity was ever known.
    measured: bool,
    /// Time of the last state.
    seen: Time,
    /// Bytes acknowledged, and the time of the last increase.
    heard: (Bytes, Time),
    /// No acknowledgement for too long to continue the measurement.
    silent: bool,
    /// When the path last came back with what was out, and what of that it has not given yet.
    resumed: Option<Time>,
    held: Option<Held>,
    /// Time since which frames have waited for longer than two frame intervals.
    busy: Option<Time>,
}

/// What was out when a silence ended: from where to where in the stream, and when that was seen.
#[derive(Clone, Copy, Debug)]
struct Held {
    from: Bytes,
    to: Bytes,
    at: Time,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Time,
    sent: Bytes,
    acknowledged: Bytes,
}

impl Capacity {
    /// The connection stands so, and its fastest round trip took `fastest`.
    pub(super) fn look(
        &mut self,
        now: Time,
        view: &TcpView,
        fastest: Duration,
        config: &TcpRateConfig,
    ) {
        self.forget(now, is_queued(view, fastest, config));
        self.measured |= self.known.is_some();
        let acknowledged = view.sent.saturating_sub(view.unacked);
        if view.resumed > self.resumed {
            self.resumed = view.resumed;
            self.known = Some(config.floor.as_f64());
            self.held = Some(Held {
                from: acknowledged,
                to: view.sent,
                at: now,
            });
        }
        self.look_at_held(now, acknowledged, view.mss);
        // What is repaired is acknowledged in one lump, a round trip late or more: that measures nothing,
        // nor does the lump.
        if acknowledged > self.heard.0 {
            self.heard = (acknowledged, now);
            self.silent = false;
        } else if view.stalled || now.since(self.heard.1) > (view.srtt / 2).max(SPACING) {
            self.silent = true;
            self.marks.clear();
        }
    }

    /// What the path held comes out of its queue as fast as it can carry it. Half of that is believed, as
    /// a path that was away seldom is what it was, nor stays what it is.
    fn look_at_held(&mut self, now: Time, acknowledged: Bytes, mss: Bytes) {
        let Some(held) = self.held else {
            return;
        };
        let carried = acknowledged.min(held.to).saturating_sub(held.from);
        let span = now.since(held.at);
        if carried >= mss.scale(HELD, 1) && span >= HELD_SPAN {
            let rate = (carried / span).as_f64() / 2.0;
            self.known = self.known.map(|known| known.max(rate));
        }
        if acknowledged >= held.to {
            self.held = None;
        }
    }

    /// A frame that was captured at `captured` waits to be written. Frames leave as lumps, so what is
    /// sent is measured from before one to before another: from behind one it would seem to be more
    /// than what gets through.
    pub(super) fn frame_waits(
        &mut self,
        now: Time,
        captured: Time,
        view: &TcpView,
        fastest: Duration,
        config: &TcpRateConfig,
    ) {
        // BBR measures what it is given itself: while it paces less than the path carries, that is no
        // limit of the path.
        let by_window = !matches!(view.control, CongestionControl::Bbr { .. });
        let busy = by_window && now.since(captured) > config.interval * 2;
        self.busy = busy.then(|| self.busy.unwrap_or(now));
        let mark = Mark {
            at: now,
            sent: view.sent,
            acknowledged: self.heard.0,
        };
        let span = view.srtt.max(SPAN);
        let is_old = |mark: &Mark| now.since(mark.at) >= span;
        while self.marks.get(1).is_some_and(is_old) {
            self.marks.pop_front();
        }
        // A lost segment is repaired while more is sent, and nothing acknowledged.
        let flows = now.since(self.heard.1) <= span / 4;
        let first = self.marks.front().copied().filter(is_old);
        let queued = |first: &Mark| {
            is_queued(view, fastest, config) || self.was_busy(first) && has_queue(view, fastest)
        };
        if let Some(first) = first.filter(|first| flows && queued(first)) {
            let sent = mark.sent.saturating_sub(first.sent);
            let carried = mark.acknowledged.saturating_sub(first.acknowledged);
            let rate = (carried / now.since(first.at)).max(config.floor).as_f64();
            let overloaded =
                self.was_busy(&first) || sent > carried.scale(11, 10) + view.mss.scale(2, 1);
            if overloaded || self.known.is_some_and(|known| rate > known) {
                self.known = Some(rate);
            }
        }
        let enough = config.ceiling.as_f64() * ENOUGH;
        self.known = self.known.filter(|rate| *rate < enough);
        let last = self.marks.back();
        if !self.silent && last.is_none_or(|last| now.since(last.at) >= MARKS) {
            self.marks.push_back(mark);
        }
    }

    /// A segment was lost while others arrived: the queue may be full, however short it is.
    pub(super) fn lost(&mut self, view: &TcpView, config: &TcpRateConfig) {
        let (acknowledged, heard) = self.heard;
        let span = view.srtt.max(SPAN);
        let is_old = |mark: &&Mark| heard.since(mark.at) >= span;
        let first = self.marks.iter().rev().find(is_old);
        if let Some(first) = first.filter(|first| self.was_busy(first)) {
            let carried = acknowledged.saturating_sub(first.acknowledged);
            let rate = (carried / heard.since(first.at)).max(config.floor);
            self.known = Some(rate.as_f64());
        }
    }

    /// Whether the sender has had data to send since `first`.
    fn was_busy(&self, first: &Mark) -> bool {
        self.busy.is_some_and(|since| since <= first.at)
    }

    /// Capacity of the path, if it limits the connection.
    pub(super) fn rate(&self) -> Option<Rate> {
        self.known.map(Rate::from_f64)
    }

    /// Whether the capacity was ever measured.
    pub(super) fn was_measured(&self) -> bool {
        self.measured
    }

    /// Lets the estimate grow: a path may improve, and only a higher sending rate shows it.
    fn forget(&mut self, now: Time, queued: bool) {
        let passed = now.since(core::mem::replace(&mut self.seen, now));
        let doubles = if queued { DOUBLES_QUEUED } else { DOUBLES };
        let growth = libm::exp2(passed.as_secs_f64() / doubles.as_secs_f64());
        self.known = self.known.map(|rate| rate * growth);
    }
}

fn is_queued(view: &TcpView, fastest: Duration, config: &TcpRateConfig) -> bool {
    view.srtt.saturating_sub(fastest) > QUEUE.max(config.bound / 10)
}

/// Any queue at all, of more than what round trips scatter by.
fn has_queue(view: &TcpView, fastest: Duration) -> bool {
    view.srtt.saturating_sub(fastest) > SHORT_QUEUE.max(fastest / 4)
}

/// A queue that matters is longer than this, which is more than what a frame of 25 kB makes for itself
/// at 5 Mb/s, and than a tenth of the bound.
const QUEUE: Duration = Duration::from_millis(50);
/// See [`has_queue`].
const SHORT_QUEUE: Duration = Duration::from_millis(10);
/// Rates are measured over at least this, three frames of ten per second.
const SPAN: Duration = Duration::from_millis(300);
/// Between marks.
const MARKS: Duration = Duration::from_millis(10);
/// Acknowledgements may be so far apart on a path of 150 kb/s, with every other segment told of.
const SPACING: Duration = Duration::from_millis(170);
/// In which a rate that nothing confirms is believed to have doubled, without a queue and with one.
const DOUBLES: Duration = Duration::from_secs(2);
const DOUBLES_QUEUED: Duration = Duration::from_secs(8);
/// So many segments and at least so long it takes to measure what comes out of a queue.
const HELD: u64 = 8;
const HELD_SPAN: Duration = Duration::from_millis(50);
/// A path of twice the normal rate needs no care.
const ENOUGH: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp_rate::{CongestionControl, Mode, Subscription};

    const FASTEST: Duration = Duration::from_millis(40);

    fn config() -> TcpRateConfig {
        TcpRateConfig {
            mode: Mode::Classic,
            subscribed: Subscription::NONE,
            floor: Rate::kbps(150),
            ceiling: Rate::kbps(2_000),
            bound: Duration::from_secs(1),
            interval: Duration::from_millis(100),
            obeys_after: Duration::ZERO,
            reaction: Duration::ZERO,
            margin: TcpRateConfig::MARGIN,
            drain: Duration::from_secs(3),
        }
    }

    /// A connection behind a queue of so many milliseconds.
    fn view(queue: u64) -> TcpView {
        TcpView {
            control: CongestionControl::Cubic,
            mss: Bytes(1_448),
            srtt: FASTEST + Duration::from_millis(queue),
            cwnd: Bytes(200_000),
            ssthresh: Bytes(100_000),
            unacked: Bytes::ZERO,
            unsent: Bytes::ZERO,
            sent: Bytes::ZERO,
            next_timeout: None,
            silent_since: None,
            stalled: false,
            oldest_sent: None,
            resumed: None,
        }
    }

    /// A connection, with what it has sent and heard of.
    #[derive(Default)]
    struct Played {
        it: Capacity,
        now: u64,
        sent: u64,
        acknowledged: u64,
        resumed: Option<Time>,
        /// For how long the oldest frame waits, in ms.
        waits: u64,
        /// What BBR believes in, where it is that.
        bbr: Option<Rate>,
    }

    impl Played {
        /// It sends and is acknowledged at these rates, in kb/s, for `ms`, with a queue of `queue` ms;
        /// what is known of the path then, in kb/s.
        fn play(&mut self, ms: u64, queue: u64, rates: (u64, u64)) -> Option<u64> {
            for _ in 0..ms / 40 {
                self.now += 40;
                self.sent += rates.0 * 5;
                self.acknowledged += rates.1 * 5;
                self.look(queue);
            }
            self.it.rate().map(|rate| rate.as_bps() / 1_000)
        }

        fn look(&mut self, queue: u64) {
            let bbr = self.bbr.map(|bandwidth| CongestionControl::Bbr {
                bandwidth,
                min_rtt: FASTEST,
                next_probe: Duration::from_secs(9),
                starting: false,
            });
            let view = TcpView {
                control: bbr.unwrap_or(CongestionControl::Cubic),
                unacked: Bytes(self.sent - self.acknowledged + 10_000),
                sent: Bytes(self.sent + 10_000),
                resumed: self.resumed,
                ..view(queue)
            };
            let now = Time::from_millis(self.now);
            self.it.look(now, &view, FASTEST, &config());
            let captured = now.before(Duration::from_millis(self.waits));
            self.it
                .frame_waits(now, captured, &view, FASTEST, &config());
        }
    }

    #[test]
    fn a_path_is_measured_while_it_is_overloaded() {
        let none = |queue, rates| Played::default().play(2_000, queue, rates);
        assert_eq!(none(300, (1_200, 600)), Some(600));
        // No queue, or one that others make, or of a hair.
        assert_eq!(none(90, (1_200, 600)), None);
        assert_eq!(none(300, (600, 600)), None);
        assert_eq!(none(300, (640, 600)), None);
        // Less than the encoder can make, and more than it can use.
        assert_eq!(none(300, (300, 100)), Some(150));
        assert_eq!(none(300, (9_000, 5_000)), None);
    }

    #[test]
    fn while_frames_wait_any_queue_says_what_the_path_carries() {
        let mut it = Played::default();
        // As much is acknowledged as is sent, and a short queue stands.
        assert_eq!(it.play(2_000, 20, (600, 600)), None);
        it.waits = 300;
        // It has to be so for as long as a rate takes to be measured.
        assert_eq!(it.play(200, 20, (600, 600)), None);
        assert_eq!(it.play(400, 20, (600, 600)), Some(600));
        // Less than that is the scatter of round trips.
        let mut it = Played {
            waits: 300,
            ..Played::default()
        };
        assert_eq!(it.play(2_000, 9, (600, 600)), None);
    }

    #[test]
    fn what_bbr_paces_is_no_limit_of_the_path() {
        let mut it = Played {
            waits: 300,
            bbr: Some(Rate::kbps(600)),
            ..Played::default()
        };
        assert_eq!(it.play(2_000, 20, (600, 600)), None);
        it.it.lost(&view(0), &config());
        assert_eq!(it.it.rate(), None);
    }

    #[test]
    fn while_frames_wait_a_loss_says_what_the_path_carries() {
        let lost = |waits: u64, ms: u64| {
            let mut it = Played {
                waits,
                ..Played::default()
            };
            assert_eq!(it.play(ms, 0, (600, 600)), None);
            it.it.lost(&view(0), &config());
            it.it.rate().map(|rate| rate.as_bps() / 1_000)
        };
        assert_eq!(lost(300, 1_000), Some(600));
        assert_eq!(lost(0, 1_000), None);
        assert_eq!(lost(300, 200), None);
    }

    #[test]
    fn frames_leave_as_lumps() {
        // As much is acknowledged as is sent, 75 kB/s, and a queue stands.
        let play = |always: bool| {
            let mut it = Capacity::default();
            for ms in (0..2_000_u64).step_by(20) {
                let sent = ms.div_ceil(100) * 7_500;
                let view = TcpView {
                    unacked: Bytes(30_000 + sent - ms * 75),
                    sent: Bytes(30_000 + sent),
                    ..view(280)
                };
                let now = Time::from_millis(ms);
                it.look(now, &view, FASTEST, &config());
                if always || ms % 100 == 0 {
                    it.frame_waits(now, now, &view, FASTEST, &config());
                }
            }
            it.rate().is_some()
        };
        assert!(!play(false));
        // From before a frame to behind another it is one too many.
        assert!(play(true));
    }

    #[test]
    fn what_nothing_confirms_is_forgotten() {
        let mut it = Played::default();
        assert_eq!(it.play(1_000, 0, (1_200, 1_200)), None);
        assert!(!it.it.was_measured());
        assert_eq!(it.play(2_000, 300, (1_200, 600)), Some(600));
        let later = it.play(2_000, 0, (500, 500)).unwrap();
        assert!((1_195..=1_205).contains(&later), "{later}");
        let queued = it.play(4_000, 300, (500, 500)).unwrap();
        assert!((1_690..=1_705).contains(&queued), "{queued}");
        assert_eq!(it.play(6_000, 0, (500, 500)), None);
        assert!(it.it.was_measured());
    }

    #[test]
    fn behind_a_silence_it_starts_again() {
        let mut it = Played::default();
        assert_eq!(it.play(2_000, 300, (1_200, 600)), Some(600));
        it.resumed = Some(Time::from_millis(2_000));
        let first = it.play(40, 0, (150, 0)).unwrap();
        assert_eq!(first, 150);
        // What was held comes at 1.2 Mb/s: 6 kB per look, from the second of which on it is enough.
        assert!(it.play(40, 0, (150, 1_200)).unwrap() < 155);
        let half = it.play(120, 0, (150, 1_200)).unwrap();
        assert!((600..=630).contains(&half), "{half}");
        // What is sent since is not what was held.
        let last = it.play(900, 0, (150, 1_200)).unwrap();
        assert!((600..=850).contains(&last), "{last}");
        let later = it.play(400, 0, (2_000, 2_000)).unwrap();
        assert!((last..=last * 6 / 5).contains(&later), "{later}");
    }

    #[test]
    fn a_video_that_grows_in_a_queue_of_others_does_so_soon() {
        let mut it = Played::default();
        assert_eq!(it.play(2_000, 200, (300, 300)), None);
        // The round trip takes 240 ms: so long it is still of the smaller frames that is heard.
        assert_eq!(it.play(240, 200, (2_000, 300)), Some(300));
        let known = it.play(320, 200, (2_000, 2_000)).unwrap();
        assert!(known >= 2_000, "{known}");
    }

    #[test]
    fn a_repair_measures_nothing() {
        let mut it = Played::default();
        assert_eq!(it.play(600, 120, (600, 600)), None);
        // Nothing is acknowledged for a moment, and then all at once; more is sent.
        assert_eq!(it.play(160, 120, (800, 0)), None);
        it.acknowledged += 160 * 75;
        assert_eq!(it.play(1_000, 120, (600, 600)), None);
        // For a round trip and more, and then a part of it.
        assert_eq!(it.play(400, 120, (600, 0)), None);
        it.acknowledged += 160 * 75;
        assert_eq!(it.play(1_000, 120, (600, 600)), None);
        // Nor does such a lump say that the path carries more than is known.
        it.acknowledged = it.sent;
        assert_eq!(it.play(2_000, 120, (1_200, 600)), Some(600));
        it.play(400, 120, (600, 0));
        it.acknowledged = it.sent;
        let known = it.play(400, 120, (600, 600)).unwrap();
        assert!(known < 650, "{known}");
    }
}
