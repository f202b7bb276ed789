//! What the path carries, where that is less than the window lets through.
//!
//! The window of a TCP that fills queues says how much may be out, not how fast it gets through:
//! behind a bottleneck it goes on growing, and once the queue is gone it promises many times the
//! rate of the path. So the path is measured while it is overloaded: while a queue stands and more is
//! sent than is acknowledged, what is acknowledged is all that it carries. In the queue of
//! others as much is acknowledged as is sent, and nothing follows from that.

use core::time::Duration;
use std::collections::VecDeque;

use super::{SymbiosisConfig, TcpView};
use crate::units::{Bytes, Rate, Time};

/// Learned from the states of a connection, in order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Capacity {
    /// What had been sent and acknowledged in the last round trip or a little more.
    marks: VecDeque<Mark>,
    /// What the path carries, as far as known, in bits per second; the floor where it is less.
    known: Option<f64>,
    /// When the state was seen last.
    seen: Time,
    /// When the last acknowledgement came.
    heard: Time,
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
        config: &SymbiosisConfig,
    ) {
        let queued = view.srtt.saturating_sub(fastest) > QUEUE.max(config.bound / 10);
        self.forget(now, queued);
        let mark = Mark {
            at: now,
            sent: view.sent,
            acknowledged: view.sent.saturating_sub(view.unacked),
        };
        if self
            .marks
            .back()
            .is_none_or(|last| mark.acknowledged > last.acknowledged)
        {
            self.heard = now;
        }
        // What is repaired is acknowledged in one lump, a round trip late or more.
        if view.stalled || now.since(self.heard) > (view.srtt / 2).max(SPACING) {
            self.marks.clear();
        }
        let span = view.srtt.max(SPAN);
        while self
            .marks
            .get(1)
            .is_some_and(|second| now.since(second.at) >= span)
        {
            self.marks.pop_front();
        }
        if let Some(first) = self.marks.front().filter(|m| now.since(m.at) >= span)
            && queued
        {
            let sent = mark.sent.saturating_sub(first.sent);
            let carried = mark.acknowledged.saturating_sub(first.acknowledged);
            if sent > carried.scale(11, 10) + view.mss.scale(2, 1) {
                let rate = carried / now.since(first.at);
                self.known = Some(rate.max(config.floor).as_f64());
            }
        }
        let enough = config.ceiling.as_f64() * ENOUGH;
        self.known = self.known.filter(|rate| *rate < enough);
        if self
            .marks
            .back()
            .is_none_or(|last| now.since(last.at) >= MARKS)
        {
            self.marks.push_back(mark);
        }
    }

    /// The rate of the path, if it is known to be no more.
    pub(super) fn rate(&self) -> Option<Rate> {
        self.known.map(Rate::from_f64)
    }

    /// A path may get better, and only who sends more learns of it.
    fn forget(&mut self, now: Time, queued: bool) {
        let passed = now.since(core::mem::replace(&mut self.seen, now));
        let doubles = if queued { DOUBLES_QUEUED } else { DOUBLES };
        let growth = (passed.as_secs_f64() / doubles.as_secs_f64()).exp2();
        self.known = self.known.map(|rate| rate * growth);
    }
}

/// A queue that matters is longer than this, which is more than what a frame of 25 kB makes for itself
/// at 5 Mb/s, and than a tenth of the bound.
const QUEUE: Duration = Duration::from_millis(50);
/// Rates are measured over at least this, three frames of ten per second.
const SPAN: Duration = Duration::from_millis(300);
/// Between marks.
const MARKS: Duration = Duration::from_millis(10);
/// Acknowledgements may be so far apart on a path of 200 kb/s, with every other segment told of.
const SPACING: Duration = Duration::from_millis(120);
/// In which a rate that nothing confirms is believed to have doubled, without a queue and with one.
const DOUBLES: Duration = Duration::from_secs(2);
const DOUBLES_QUEUED: Duration = Duration::from_secs(8);
/// A path of twice the normal rate needs no care.
const ENOUGH: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbiosis::{CongestionControl, Mode, Subscription};

    const FASTEST: Duration = Duration::from_millis(40);

    fn config() -> SymbiosisConfig {
        SymbiosisConfig {
            mode: Mode::Classic,
            subscribed: Subscription::NONE,
            floor: Rate::kbps(150),
            ceiling: Rate::kbps(2_000),
            bound: Duration::from_secs(1),
            interval: Duration::from_millis(100),
            reaction: Duration::ZERO,
            margin: SymbiosisConfig::MARGIN,
            drain: Duration::from_secs(3),
        }
    }

    /// A connection that sends and is acknowledged at these rates, in kb/s, for `ms` from `from` on,
    /// with a queue of `queue`; then what is known of the path, in kb/s.
    fn known(
        it: &mut Capacity,
        from: u64,
        ms: u64,
        queue: u64,
        (sent, acknowledged): (u64, u64),
    ) -> Option<u64> {
        for step in 0..=ms / 40 {
            let bytes = |rate: u64| from * 1_000 + rate * step * 5;
            let view = TcpView {
                control: CongestionControl::Cubic,
                mss: Bytes(1_448),
                srtt: FASTEST + Duration::from_millis(queue),
                cwnd: Bytes(200_000),
                ssthresh: Bytes(100_000),
                unacked: Bytes(bytes(sent) - bytes(acknowledged) + 10_000),
                unsent: Bytes::ZERO,
                sent: Bytes(bytes(sent) + 10_000),
                next_timeout: None,
                silent_since: None,
                stalled: false,
                oldest_sent: None,
            };
            it.look(
                Time::from_millis(from + 40 * step),
                &view,
                FASTEST,
                &config(),
            );
        }
        it.rate().map(|rate| rate.as_bps() / 1_000)
    }

    #[test]
    fn a_path_is_measured_while_it_is_overloaded() {
        let none = |queue, rates| known(&mut Capacity::default(), 0, 2_000, queue, rates);
        assert_eq!(none(300, (1_200, 600)), Some(600));
        // No queue, or one that others make, or of a hair.
        assert_eq!(none(90, (1_200, 600)), None);
        assert_eq!(none(300, (600, 600)), None);
        assert_eq!(none(300, (640, 600)), None);
        // More than the encoder can use, and less.
        assert_eq!(none(300, (300, 100)), Some(150));
        assert_eq!(none(300, (9_000, 5_000)), None);
    }

    #[test]
    fn what_nothing_confirms_is_forgotten() {
        let mut it = Capacity::default();
        assert_eq!(known(&mut it, 0, 2_000, 300, (1_200, 600)), Some(600));
        let later = known(&mut it, 2_000, 2_000, 0, (500, 500)).unwrap();
        assert!((1_195..=1_205).contains(&later), "{later}");
        let queued = known(&mut it, 4_000, 4_000, 300, (500, 500)).unwrap();
        assert!((1_690..=1_705).contains(&queued), "{queued}");
        assert_eq!(known(&mut it, 8_000, 6_000, 0, (500, 500)), None);
    }

    #[test]
    fn a_repair_measures_nothing() {
        let mut it = Capacity::default();
        known(&mut it, 0, 200, 300, (1_200, 600));
        // Nothing is acknowledged for a round trip, while more is sent.
        assert_eq!(known(&mut it, 200, 400, 300, (1_200, 0)), None);
    }
}
