//! Data in flight: departure times, round-trip time without outages, and outage recovery.

use core::time::Duration;
use std::collections::VecDeque;

use crate::tcp_rate::TcpView;
use crate::units::{Bytes, Time};

/// Completes the views of a connection. A driver passes one view after each write; this adds the
/// values that the system does not report: the departure time of the oldest data in flight, the
/// round-trip time excluding outages of the path, and the time at which the path resumed with the
/// data in flight intact.
///
/// A stalled path, such as a radio link in a fade, may hold its queue without loss. The connection
/// then continues with its previous window. Its timeouts turn out to be spurious (RFC 5682), and
/// the round-trip samples include the outage, which the smoothed value keeps for seconds. Neither
/// describes the path after the outage.
#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    /// Stream offsets sent, with their departure times.
    marks: VecDeque<Mark>,
    sent: Bytes,
    acknowledged: Bytes,
    /// Last time at which `acknowledged` advanced, or data was sent with nothing in flight.
    last_ack: Time,
    last_view: Time,
    /// Total duration of the outages.
    outages: Duration,
    /// Last round-trip time excluding outages, at least the minimum of the smoothed value.
    round_trip: Duration,
    least: Duration,
    /// The smoothed round-trip time includes an outage.
    is_stale: bool,
    /// End of an outage; it is not known yet whether the data in flight survived.
    ended: Option<Mark>,
    resumed: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    end: Bytes,
    at: Time,
    outages: Duration,
}

impl Flight {
    /// `view` with the missing values filled in.
    pub(super) fn complete(&mut self, now: Time, view: &TcpView) -> TcpView {
        if !view.srtt.is_zero() && (self.least.is_zero() || view.srtt < self.least) {
            self.least = view.srtt;
        }
        let acknowledged = view.sent.saturating_sub(view.unacked);
        // The view of an event may be older than the previous view.
        if acknowledged > self.acknowledged {
            // With nothing in flight the view lacks the time of the last acknowledgement; it is
            // later than the previous view.
            let at = view.unacked_since.unwrap_or(self.last_view);
            self.acknowledge(at.min(now).max(self.last_ack), acknowledged, view);
        }
        if view.sent > self.sent {
            self.send(now, view.sent);
        }
        self.last_view = now;
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
            self.last_ack = now;
        }
        self.sent = sent;
        self.marks.push_back(self.mark(now, sent));
    }

    fn mark(&self, at: Time, end: Bytes) -> Mark {
        Mark {
            end,
            at,
            outages: self.outages,
        }
    }

    /// All data up to `acknowledged` was acknowledged at `at`.
    fn acknowledge(&mut self, at: Time, acknowledged: Bytes, view: &TcpView) {
        let due = self.marks.front().map(|mark| mark.at + self.round_trip);
        let outage = at.since(due.map_or(at, |due| due.max(self.last_ack)));
        let was_outage = outage > OUTAGE_MARGIN + self.least * 2;
        if was_outage {
            self.outages += outage;
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
            let took = (at.since(last.at) + last.outages).saturating_sub(self.outages);
            self.round_trip = took.max(self.least);
            // More data sent before the end of the outage may still be acknowledged.
            let through = last.outages < self.outages;
            self.is_stale &= through || view.srtt > self.round_trip + self.round_trip / 4;
        }
        if was_outage {
            self.ended = Some(self.mark(at, acknowledged));
        }
        self.detect_resumption(at, acknowledged, view);
        self.last_ack = at;
        self.acknowledged = acknowledged;
    }

    /// Sets `resumed` if an outage that has ended lost no data. If all data in flight was lost, the
    /// window restarts from one segment, and no acknowledgement follows the first one for a round
    /// trip. If the data was held, the window is unchanged or, with BBR, more data is acknowledged
    /// soon.
    fn detect_resumption(&mut self, at: Time, acknowledged: Bytes, view: &TcpView) {
        let Some(ended) = self.ended else {
            return;
        };
        let is_wide = view.cwnd > view.mss.scale(RESTART_WINDOW, 1);
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

/// An acknowledgement that is late by more than this and two minimum round-trip times indicates an
/// outage. The repair of a lost last segment takes less, since Linux probes after two round-trip
/// times (RFC 8985 section 7.2).
const OUTAGE_MARGIN: Duration = Duration::from_millis(200);
/// Maximum window, in segments, of a connection that has just restarted.
const RESTART_WINDOW: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp_rate::CongestionControl;

    const BEFORE: Duration = Duration::from_millis(100);

    #[derive(Default)]
    struct Driven {
        flight: Flight,
        sent: u64,
        unacked: u64,
        /// Smoothed round-trip time in ms, time of the last acknowledgement in ms, and window in
        /// segments.
        srtt: u64,
        last_ack: u64,
        cwnd: u64,
    }

    impl Driven {
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
                unacked_since: (self.unacked > 0).then_some(Time::from_millis(self.last_ack)),
                stalled: false,
                oldest_sent: None,
                resumed: None,
            };
            self.flight.complete(Time::from_millis(now), &view)
        }

        fn send(&mut self, now: u64, bytes: u64) -> TcpView {
            if self.unacked == 0 {
                self.last_ack = now;
            }
            self.sent += bytes;
            self.unacked += bytes;
            self.look(now)
        }

        fn ack(&mut self, now: u64, bytes: u64) -> TcpView {
            self.unacked -= bytes;
            self.last_ack = now;
            self.look(now)
        }
    }

    /// A connection with a round-trip time of 100 ms that sent 20 kB at 1.0 s and 5 kB at 1.1 s,
    /// which the path holds until 4.0 s.
    fn held() -> Driven {
        let mut tcp = Driven {
            srtt: 100,
            cwnd: 40,
            ..Driven::default()
        };
        tcp.send(500, 3_000);
        let before = tcp.ack(600, 3_000);
        assert_eq!((before.srtt, before.resumed), (BEFORE, None));
        tcp.send(1_000, 20_000);
        tcp.send(1_100, 5_000);
        tcp
    }

    #[test]
    fn the_oldest_unacknowledged_write_is_tracked() {
        let mut tcp = Driven::default();
        assert_eq!(tcp.look(5).oldest_sent, None);
        assert_eq!(tcp.send(10, 3_000).oldest_sent, Some(Time::from_millis(10)));
        assert_eq!(tcp.send(40, 2_000).oldest_sent, Some(Time::from_millis(10)));
        // Only a part of the first write is acknowledged.
        assert_eq!(tcp.ack(110, 2_000).oldest_sent, Some(Time::from_millis(10)));
        assert_eq!(tcp.ack(115, 1_000).oldest_sent, Some(Time::from_millis(40)));
        assert_eq!(
            tcp.send(120, 1_000).oldest_sent,
            Some(Time::from_millis(40))
        );
        // An outdated view.
        (tcp.sent, tcp.unacked) = (5_000, 3_000);
        assert_eq!(tcp.look(121).oldest_sent, Some(Time::from_millis(40)));
        (tcp.sent, tcp.unacked) = (6_000, 0);
        assert_eq!(tcp.look(150).oldest_sent, None);
    }

    #[test]
    fn an_outage_is_excluded_from_the_rtt() {
        let mut tcp = held();
        tcp.srtt = 500;
        let first = tcp.ack(4_000, 20_000);
        assert_eq!(first.srtt, BEFORE);
        // The rest waited in the queue for that long.
        tcp.srtt = 800;
        tcp.send(4_100, 1_000);
        let queued = tcp.ack(4_150, 5_000).srtt;
        assert_eq!(queued, Duration::from_millis(150));
        tcp.send(4_200, 1_000);
        tcp.send(4_300, 1_000);
        tcp.srtt = 700;
        assert_eq!(tcp.ack(4_320, 2_000).srtt, Duration::from_millis(120));
        tcp.ack(4_420, 1_000);
        // The smoothed value has decayed and is used again.
        tcp.send(6_000, 1_000);
        tcp.send(6_050, 1_000);
        tcp.srtt = 140;
        assert_eq!(tcp.ack(6_120, 1_000).srtt, Duration::from_millis(140));
        tcp.srtt = 170;
        assert_eq!(tcp.look(6_130).srtt, Duration::from_millis(170));
    }

    #[test]
    fn an_outage_is_excluded_for_all_data_that_was_held() {
        let mut tcp = held();
        tcp.srtt = 110;
        assert_eq!(tcp.ack(4_000, 20_000).srtt, BEFORE);
        tcp.send(4_100, 1_000);
        tcp.srtt = 900;
        let queued = tcp.ack(4_250, 5_000).srtt;
        assert_eq!(queued, Duration::from_millis(250));
    }

    #[test]
    fn a_growing_queue_is_not_an_outage() {
        let mut tcp = held();
        tcp.srtt = 140;
        // The acknowledgement is 0.4 s late.
        let late = tcp.ack(1_500, 20_000);
        assert_eq!(
            (late.srtt, late.resumed),
            (Duration::from_millis(140), None)
        );
    }

    #[test]
    fn a_late_view_is_not_an_outage() {
        let mut tcp = held();
        tcp.look(1_150);
        tcp.unacked = 0;
        let late = tcp.look(9_000);
        assert_eq!((late.srtt, late.resumed), (BEFORE, None));
        // Regular views show how long the path was silent.
        let mut tcp = held();
        tcp.look(2_000);
        tcp.unacked = 0;
        assert_eq!(tcp.look(2_500).resumed, Some(Time::from_millis(2_000)));
    }

    #[test]
    fn held_data_is_distinguished_from_lost_data() {
        let came_back = Some(Time::from_millis(4_000));
        // The window is unchanged.
        assert_eq!(held().ack(4_000, 2_000).resumed, came_back);
        // The window has restarted, and yet more is acknowledged within the round-trip time.
        let after = |later, bytes| {
            let mut tcp = held();
            tcp.cwnd = 1;
            assert_eq!(tcp.ack(4_000, 1_000).resumed, None);
            tcp.cwnd = 3;
            tcp.ack(later, bytes).resumed
        };
        assert_eq!(after(4_060, 2_000), came_back);
        // The second segment covered by one acknowledgement, and data sent at 4.0 s.
        assert_eq!(after(4_040, 1_000), None);
        assert_eq!(after(4_100, 2_000), None);
    }
}
