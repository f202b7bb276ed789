//! What is out: when it was sent, and what became of it.

use core::time::Duration;
use std::collections::VecDeque;

use crate::tcp_rate::TcpView;
use crate::units::{Bytes, Time};

/// Learned from the views of a connection, of which a driver gives one after each write, and in each
/// of which it fills in what the system does not tell: when the oldest was sent, how long the round
/// trip is without the silences of the path, and when the path came back with what was out.
///
/// A path may stand still and hold what is in its queue, as a radio link does that has faded. Then
/// nothing is lost, and the connection goes on with the window that it had, as if it had not been away:
/// its time-outs turn out to be spurious (RFC 5682), and its round trips were as long as the silence,
/// which the smoothed one does not forget for seconds. Neither says anything of the path as it is now.
#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    /// How far the stream had been sent at some times.
    marks: VecDeque<Mark>,
    sent: Bytes,
    acknowledged: Bytes,
    /// When that last became more, or something was sent while nothing was out.
    heard: Time,
    looked: Time,
    /// How long the path has been silent in all.
    silent: Duration,
    /// What the last round trip took, without silence; never less than the smoothed one ever was.
    round_trip: Duration,
    least: Duration,
    /// The smoothed round trip has a silence in it.
    is_stale: bool,
    /// A silence ended so, and it is not known yet what with.
    ended: Option<Mark>,
    resumed: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    end: Bytes,
    at: Time,
    silent: Duration,
}

impl Flight {
    /// `view`, with what it lacks.
    pub(super) fn complete(&mut self, now: Time, view: &TcpView) -> TcpView {
        if !view.srtt.is_zero() && (self.least.is_zero() || view.srtt < self.least) {
            self.least = view.srtt;
        }
        let acknowledged = view.sent.saturating_sub(view.unacked);
        // That of an event may be older than the last one.
        if acknowledged > self.acknowledged {
            // Where nothing is out the view does not say when that became so, but later than the last.
            let at = view.silent_since.unwrap_or(self.looked);
            self.hear(at.min(now).max(self.heard), acknowledged, view);
        }
        if view.sent > self.sent {
            self.send(now, view.sent);
        }
        self.looked = now;
        if !self.is_stale {
            self.round_trip = view.srtt;
        }
        TcpView {
            srtt: self.round_trip.min(view.srtt),
            oldest_sent: self.marks.front().map(|mark| mark.at),
            resumed: self.resumed,
            ..*view
        }
    }

    fn send(&mut self, now: Time, sent: Bytes) {
        if self.marks.is_empty() {
            self.heard = now;
        }
        self.sent = sent;
        self.marks.push_back(self.mark(now, sent));
    }

    fn mark(&self, at: Time, end: Bytes) -> Mark {
        Mark {
            end,
            at,
            silent: self.silent,
        }
    }

    /// All up to `acknowledged` was acknowledged at `at`.
    fn hear(&mut self, at: Time, acknowledged: Bytes, view: &TcpView) {
        let due = self.marks.front().map(|mark| mark.at + self.round_trip);
        let silence = at.since(due.map_or(at, |due| due.max(self.heard)));
        let was_silent = silence > QUIET + self.least * 2;
        if was_silent {
            self.silent += silence;
            self.is_stale = true;
        }
        let mut last = None;
        while self
            .marks
            .front()
            .is_some_and(|mark| mark.end <= acknowledged)
        {
            last = self.marks.pop_front();
        }
        if let Some(last) = last {
            let took = (at.since(last.at) + last.silent).saturating_sub(self.silent);
            self.round_trip = took.max(self.least);
            // Of what was sent before it ended, more may come.
            let through = last.silent < self.silent;
            self.is_stale &= through || view.srtt > self.round_trip + self.round_trip / 4;
        }
        if was_silent {
            self.ended = Some(self.mark(at, acknowledged));
        }
        self.is_resumed(at, acknowledged, view);
        self.heard = at;
        self.acknowledged = acknowledged;
    }

    /// Whether a silence that ended took nothing with it. Where all that was out is lost, the window
    /// starts again from one segment, and behind the first acknowledgement there is none for a
    /// round trip. Where it was held the window is what it was, or, with BBR, more is acknowledged soon.
    fn is_resumed(&mut self, at: Time, acknowledged: Bytes, view: &TcpView) {
        let Some(ended) = self.ended else {
            return;
        };
        let is_wide = view.cwnd > view.mss.scale(RESTARTED, 1);
        let more = acknowledged > ended.end + view.mss;
        let soon = at.since(ended.at) < self.least * 9 / 10;
        if is_wide || (more && soon) {
            self.resumed = Some(ended.at);
        }
        if self.resumed == Some(ended.at) || !soon {
            self.ended = None;
        }
    }
}

/// An acknowledgement that is late by this and two of the fastest round trips was held up by a silence of
/// the path: the repair of a last segment that was lost makes it late by two round trips and less than
/// this, since Linux tries again after two (RFC 8985, section 7.2).
const QUIET: Duration = Duration::from_millis(200);
/// Segments of a window that has just started again.
const RESTARTED: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp_rate::CongestionControl;

    const BEFORE: Duration = Duration::from_millis(100);

    #[derive(Default)]
    struct Played {
        it: Flight,
        sent: u64,
        unacked: u64,
        /// In milliseconds; the smoothed round trip, a time of the clock, and segments.
        srtt: u64,
        heard: u64,
        cwnd: u64,
    }

    impl Played {
        fn look(&mut self, now: u64) -> TcpView {
            let view = TcpView {
                control: CongestionControl::Reno,
                mss: Bytes(1_000),
                srtt: Duration::from_millis(self.srtt),
                cwnd: Bytes(1_000 * self.cwnd),
                ssthresh: Bytes(50_000),
                unacked: Bytes(self.unacked),
                unsent: Bytes(0),
                sent: Bytes(self.sent),
                next_timeout: None,
                silent_since: (self.unacked > 0).then_some(Time::from_millis(self.heard)),
                stalled: false,
                oldest_sent: None,
                resumed: None,
            };
            self.it.complete(Time::from_millis(now), &view)
        }

        fn send(&mut self, now: u64, bytes: u64) -> TcpView {
            if self.unacked == 0 {
                self.heard = now;
            }
            self.sent += bytes;
            self.unacked += bytes;
            self.look(now)
        }

        fn hear(&mut self, now: u64, bytes: u64) -> TcpView {
            self.unacked -= bytes;
            self.heard = now;
            self.look(now)
        }
    }

    /// A connection whose round trip was a tenth of a second, and which has sent 20 kB at 1.0 s and 5 kB
    /// at 1.1 s that the path holds until 4.0 s.
    fn held() -> Played {
        let mut it = Played {
            srtt: 100,
            cwnd: 40,
            ..Played::default()
        };
        it.send(500, 3_000);
        let before = it.hear(600, 3_000);
        assert_eq!((before.srtt, before.resumed), (BEFORE, None));
        it.send(1_000, 20_000);
        it.send(1_100, 5_000);
        it
    }

    #[test]
    fn the_oldest_is_what_no_view_calls_acknowledged() {
        let mut it = Played::default();
        assert_eq!(it.look(5).oldest_sent, None);
        assert_eq!(it.send(10, 3_000).oldest_sent, Some(Time::from_millis(10)));
        assert_eq!(it.send(40, 2_000).oldest_sent, Some(Time::from_millis(10)));
        // A part of the first is.
        assert_eq!(it.hear(110, 2_000).oldest_sent, Some(Time::from_millis(10)));
        assert_eq!(it.hear(115, 1_000).oldest_sent, Some(Time::from_millis(40)));
        assert_eq!(it.send(120, 1_000).oldest_sent, Some(Time::from_millis(40)));
        // An older one.
        (it.sent, it.unacked) = (5_000, 3_000);
        assert_eq!(it.look(121).oldest_sent, Some(Time::from_millis(40)));
        (it.sent, it.unacked) = (6_000, 0);
        assert_eq!(it.look(150).oldest_sent, None);
    }

    #[test]
    fn a_silence_is_no_round_trip() {
        let mut it = held();
        it.srtt = 500;
        let first = it.hear(4_000, 20_000);
        assert_eq!(first.srtt, BEFORE);
        // What had to wait in the queue is that long.
        it.srtt = 800;
        it.send(4_100, 1_000);
        let queued = it.hear(4_150, 5_000).srtt;
        assert_eq!(queued, Duration::from_millis(150));
        it.send(4_200, 1_000);
        it.send(4_300, 1_000);
        it.srtt = 700;
        assert_eq!(it.hear(4_320, 2_000).srtt, Duration::from_millis(120));
        it.hear(4_420, 1_000);
        // The smoothed one has forgotten, and counts again.
        it.send(6_000, 1_000);
        it.send(6_050, 1_000);
        it.srtt = 140;
        assert_eq!(it.hear(6_120, 1_000).srtt, Duration::from_millis(140));
        it.srtt = 170;
        assert_eq!(it.look(6_130).srtt, Duration::from_millis(170));
    }

    #[test]
    fn a_silence_is_remembered_until_all_that_went_through_it_has_come() {
        let mut it = held();
        it.srtt = 110;
        assert_eq!(it.hear(4_000, 20_000).srtt, BEFORE);
        it.send(4_100, 1_000);
        it.srtt = 900;
        let queued = it.hear(4_250, 5_000).srtt;
        assert_eq!(queued, Duration::from_millis(250));
    }

    #[test]
    fn a_queue_that_grows_is_no_silence() {
        let mut it = held();
        it.srtt = 140;
        // 0.4 s late.
        let late = it.hear(1_500, 20_000);
        assert_eq!(
            (late.srtt, late.resumed),
            (Duration::from_millis(140), None)
        );
    }

    #[test]
    fn who_looks_late_does_not_call_that_a_silence() {
        let mut it = held();
        it.look(1_150);
        it.unacked = 0;
        let late = it.look(9_000);
        assert_eq!((late.srtt, late.resumed), (BEFORE, None));
        // It was silent for as long as it was looked at.
        let mut it = held();
        it.look(2_000);
        it.unacked = 0;
        assert_eq!(it.look(2_500).resumed, Some(Time::from_millis(2_000)));
    }

    #[test]
    fn a_path_that_held_what_was_out_is_told_from_one_that_lost_it() {
        let came_back = Some(Time::from_millis(4_000));
        // The window is what it was.
        assert_eq!(held().hear(4_000, 2_000).resumed, came_back);
        // It started again, and yet more is acknowledged within the round trip.
        let after = |later, bytes| {
            let mut it = held();
            it.cwnd = 1;
            assert_eq!(it.hear(4_000, 1_000).resumed, None);
            it.cwnd = 3;
            it.hear(later, bytes).resumed
        };
        assert_eq!(after(4_060, 2_000), came_back);
        // The second of two that one acknowledgement is for, and what was sent at 4.0 s.
        assert_eq!(after(4_040, 1_000), None);
        assert_eq!(after(4_100, 2_000), None);
    }
}
