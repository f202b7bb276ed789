//! Loss detection: RACK (RFC 8985), or three later segments that arrived (RFC 6675).

use core::time::Duration;

use tidegate_core::units::Time;

use super::rtt::Rtt;
use super::scoreboard::{Delivery, Scoreboard};

/// RACK: a segment is lost when a segment that was sent sufficiently later has arrived.
#[derive(Clone, Debug)]
pub(super) struct Rack {
    /// Send time, send order and round-trip time of the delivered segment that was sent last.
    sent: Time,
    order: u64,
    rtt: Duration,
    /// Reordering was observed.
    reordering: bool,
    /// Reordering window, in quarters of the minimum round-trip time.
    quarters: u32,
    /// Recoveries left until the reordering window returns to one quarter.
    recoveries_left: u32,
    /// Spurious detections count once per round trip, until this segment is acknowledged.
    spurious_until: u32,
}

impl Rack {
    /// State before the first delivery.
    pub(super) fn new() -> Self {
        Self {
            sent: Time::ZERO,
            order: 0,
            rtt: Duration::ZERO,
            reordering: false,
            quarters: 1,
            recoveries_left: 0,
            spurious_until: 0,
        }
    }

    /// Records the delivery of a segment by an acknowledgement that echoes `echo`.
    pub(super) fn deliver(
        &mut self,
        now: Time,
        delivery: &Delivery<'_>,
        min_rtt: Option<Duration>,
        echo: Time,
    ) {
        let stamp = &delivery.record.stamp;
        let rtt = now.since(stamp.sent);
        if delivery.record.again {
            // An earlier copy arrived if the round trip would be too short for this one, or if the
            // echoed time stamp is older. The echo is reliable for segments that advance the
            // sequence.
            let earlier = !delivery.out_of_order && echo < stamp.sent;
            if earlier || min_rtt.is_some_and(|min| rtt < min) {
                return;
            }
        } else if delivery.overtaken {
            self.reordering = true;
        }
        // Compared by the order of transmission, not by time and sequence number as in the RFC,
        // because a retransmission may leave after new data at the same time.
        if self.order < stamp.order {
            (self.sent, self.order, self.rtt) = (stamp.sent, stamp.order, rtt);
        }
    }

    /// A segment marked as lost was only late: increases the reordering window (RFC 8985 section
    /// 7.2, with time stamps instead of duplicate acknowledgements).
    pub(super) fn on_spurious_loss(&mut self, una: u32, next: u32) {
        self.reordering = true;
        self.recoveries_left = PERSISTENCE;
        if una >= self.spurious_until {
            self.quarters = self.quarters.saturating_add(1);
            self.spurious_until = next;
        }
    }

    /// A recovery has ended without a spurious detection.
    pub(super) fn on_recovered(&mut self) {
        self.recoveries_left = self.recoveries_left.saturating_sub(1);
        if self.recoveries_left == 0 {
            self.quarters = 1;
        }
    }

    /// Marks lost segments in `board`. Returns the time of the next check if segments may become
    /// lost by time alone.
    pub(super) fn detect(
        &self,
        now: Time,
        board: &mut Scoreboard,
        rtt: &Rtt,
        repairing: bool,
    ) -> Option<Time> {
        let wait = self.rtt + self.reo_wnd(board, rtt, repairing);
        while let Some((seq, record)) = board.oldest() {
            if record.stamp.order >= self.order {
                return None;
            }
            if now < record.stamp.sent + wait {
                // By then, all segments sent before the newest delivered one are either delivered
                // or lost.
                return Some(self.sent + wait);
            }
            board.lose(seq);
        }
        None
    }

    /// The reordering window: waiting time in addition to a round trip.
    pub(super) fn reo_wnd(&self, board: &Scoreboard, rtt: &Rtt, repairing: bool) -> Duration {
        if !self.reordering && (repairing || board.sacked() >= DUPLICATES) {
            return Duration::ZERO;
        }
        let min = rtt.min().unwrap_or_default();
        (min / 4).saturating_mul(self.quarters).min(rtt.smoothed())
    }

    /// Whether the acknowledgement of a segment that was sent at `sent` is overdue, given the
    /// reordering window.
    pub(super) fn overdue(&self, now: Time, sent: Time, reo_wnd: Duration) -> bool {
        now >= sent + (self.rtt + reo_wnd)
    }
}

/// A segment is lost when three later ones arrived (RFC 6675 section 4).
#[derive(Clone, Debug, Default)]
pub(super) struct Duplicates {
    /// The three highest segments that have arrived, in ascending order.
    highest: [u32; DUPLICATES as usize],
    count: usize,
    /// All segments below this one have been evaluated.
    judged: u32,
}

impl Duplicates {
    /// Records the delivery of a segment out of order.
    pub(super) fn deliver(&mut self, seq: u32) {
        if self.count < self.highest.len() {
            self.highest[self.count] = seq;
            self.count += 1;
            self.highest[..self.count].sort_unstable();
        } else if seq > self.highest[0] {
            self.highest[0] = seq;
            self.highest.sort_unstable();
        }
    }

    /// Marks lost segments in `board`. Retransmitted segments are not evaluated again.
    pub(super) fn detect(&mut self, board: &mut Scoreboard) {
        if self.count < self.highest.len() {
            return;
        }
        for seq in self.judged.max(board.una())..self.highest[0] {
            if board.flying(seq).is_some_and(|record| !record.again) {
                board.lose(seq);
            }
        }
        self.judged = self.judged.max(self.highest[0]);
    }
}

/// RFC 5681 and 6675.
const DUPLICATES: u32 = 3;
/// RFC 8985 section 6.2, step 4.
const PERSISTENCE: u32 = 16;

#[cfg(test)]
mod tests {
    use super::super::rtt::TimeoutConfig;
    use super::super::testing::stamp;
    use super::*;
    use crate::packet_agent::Ack;

    /// A sender with a round trip of 100 ms that sends a segment per millisecond.
    struct Bench {
        rack: Rack,
        board: Scoreboard,
        rtt: Rtt,
    }

    impl Bench {
        fn new(segments: u32) -> Self {
            let mut bench = Self {
                rack: Rack::new(),
                board: Scoreboard::new(),
                rtt: Rtt::new(TimeoutConfig::default()),
            };
            let hundred = Duration::from_millis(100);
            bench.rtt.sample(Time::ZERO, hundred, hundred, (0, 1));
            for n in 0..segments {
                bench.board.send(stamp(u64::from(n)));
            }
            bench
        }

        /// Processes an acknowledgement at `ms`. Returns the number of lost segments, and the
        /// timer.
        fn ack(&mut self, ms: u64, next: u32, sack: (u32, u32)) -> (u32, Option<Time>) {
            let now = Time::from_millis(ms);
            let ack = Ack {
                next,
                echo: Time::ZERO,
                sack: [sack, (0, 0), (0, 0)],
                ece: false,
                again: false,
                marks: 0,
            };
            let (rack, min) = (&mut self.rack, self.rtt.min());
            self.board
                .acknowledge(&ack, |d| rack.deliver(now, &d, min, now));
            self.look(ms)
        }

        fn look(&mut self, ms: u64) -> (u32, Option<Time>) {
            let now = Time::from_millis(ms);
            let timer = self.rack.detect(now, &mut self.board, &self.rtt, false);
            (self.board.lost(), timer)
        }
    }

    #[test]
    fn three_later_arrivals_suffice_without_reordering() {
        let mut bench = Bench::new(10);
        assert_eq!(bench.ack(100, 1, (0, 0)), (0, None));
        // Segment 1 is missing, and is lost a quarter of a round trip after its expected arrival.
        let (lost, timer) = bench.ack(102, 1, (2, 3));
        assert_eq!((lost, timer), (0, Some(Time::from_millis(127))));
        bench.ack(103, 1, (2, 4));
        assert_eq!(bench.ack(104, 1, (2, 5)), (1, None));
        assert_eq!(bench.board.first_lost(), Some(1));
    }

    #[test]
    fn tail_loss_is_detected_by_time() {
        let mut bench = Bench::new(4);
        bench.ack(102, 1, (2, 3));
        assert_eq!(bench.look(120).0, 0);
        assert_eq!(bench.look(127).0, 1);
        // Segment 3 was sent after the newest delivered segment, so its state is unknown.
        assert_eq!(bench.look(10_000).0, 1);
    }

    #[test]
    fn lost_retransmission_is_detected() {
        let mut bench = Bench::new(10);
        bench.ack(104, 1, (2, 5));
        bench.board.send_again(1, stamp(104));
        bench.board.send(stamp(105));
        assert_eq!(bench.ack(109, 1, (2, 10)), (0, None));
        assert_eq!(bench.ack(205, 1, (2, 11)).0, 1);
    }

    #[test]
    fn reordered_segments_are_not_lost_within_the_window() {
        let mut bench = Bench::new(20);
        bench.ack(102, 1, (2, 3));
        bench.ack(103, 3, (0, 0));
        assert!(bench.rack.reordering);
        assert_eq!(bench.ack(108, 3, (4, 8)).0, 0);
        assert_eq!(bench.look(108 + 25).0, 1);
        bench.rack.on_spurious_loss(3, 20);
        bench.rack.on_spurious_loss(4, 20);
        assert_eq!(bench.rack.quarters, 2);
        for _ in 0..PERSISTENCE {
            bench.rack.on_recovered();
        }
        assert_eq!(bench.rack.quarters, 1);
    }

    #[test]
    fn duplicates_evaluate_each_segment_once() {
        let mut bench = Bench::new(10);
        let mut duplicates = Duplicates::default();
        for seq in [9, 4, 5] {
            duplicates.deliver(seq);
        }
        duplicates.detect(&mut bench.board);
        assert_eq!(bench.board.lost(), 4);
        for seq in 0..4 {
            bench.board.send_again(seq, stamp(50));
        }
        duplicates.deliver(8);
        duplicates.detect(&mut bench.board);
        assert_eq!(bench.board.lost(), 1);
        assert_eq!(bench.board.first_lost(), Some(4));
    }
}
