//! When to request missing packets (NACK, RFC 4585 section 6.2.1).

use core::time::Duration;

use super::MIN_INTERVAL;
use crate::session::receiver_stats::Arrivals;
use crate::session::reordering::Reordering;
use crate::units::Time;

/// Requests each missing packet once, as soon as it cannot be reordered: a reordering window after
/// the arrival of the first later packet.
#[derive(Clone, Debug, Default)]
pub(super) struct NackSchedule {
    reordering: Reordering,
    /// Missing packets up to this sequence number have been requested.
    upto: u64,
    /// Next time at which a missing packet may be due.
    due: Option<Time>,
}

impl NackSchedule {
    /// A packet of the media stream, already among `arrivals`, is not a duplicate.
    pub(super) fn on_packet(&mut self, now: Time, seq: u64, arrivals: &Arrivals) {
        let overtaken = arrivals.first_after(seq);
        let displacement = overtaken.map_or(Duration::ZERO, |at| now.since(at));
        self.reordering.on_arrival(now, displacement);
        if self.upto == 0 || seq == self.upto + 1 && self.due.is_none() {
            self.upto = seq;
        } else if seq > self.upto {
            self.due.get_or_insert(now + self.window());
        }
    }

    /// Next time at which a missing packet may be due.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Removes the packets that are due, in order.
    pub(super) fn take(&mut self, now: Time, arrivals: &Arrivals) -> Vec<u64> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        let window = self.window();
        // Packets before one that arrived a window ago.
        let ripe = arrivals.newest_until(now.before(window)).unwrap_or(0);
        let missing = arrivals.missing_since(self.upto + 1);
        let lost = missing
            .take_while(|&seq| seq < ripe)
            .take(MAX_NACKS)
            .collect();
        self.upto = self.upto.max(ripe);
        let next = arrivals.missing_since(self.upto + 1).next();
        let overtaken = next.and_then(|seq| arrivals.first_after(seq));
        self.due = overtaken.map(|at| at + window);
        if self.due.is_none() {
            self.upto = arrivals.newest_until(now).unwrap_or(self.upto);
        }
        lost
    }

    fn window(&self) -> Duration {
        self.reordering.window(MIN_INTERVAL)
    }
}

/// Maximum number of sequence numbers in one NACK packet.
const MAX_NACKS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Ecn;
    use crate::wire::ccfb::Received;

    /// Requests of a receiver that checks every millisecond, from arrivals (ms, sequence number).
    fn requests(packets: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let (mut schedule, mut arrivals) = (NackSchedule::default(), Arrivals::default());
        let mut requested = Vec::new();
        for ms in 0..300 {
            let now = Time::from_millis(ms);
            for &(_, seq) in packets.iter().filter(|(at, _)| *at == ms) {
                let ecn = Ecn::NotEct;
                arrivals.on_packet(seq, Received { ecn, at: now });
                schedule.on_packet(now, seq, &arrivals);
            }
            let due = schedule.take(now, &arrivals);
            requested.extend(due.into_iter().map(|seq| (ms, seq)));
        }
        requested
    }

    #[test]
    fn each_gap_is_requested_once_after_the_minimum_interval() {
        let packets = [(0, 10), (1, 11), (10, 13), (12, 15), (13, 16), (50, 17)];
        assert_eq!(requests(&packets), [(14, 12), (16, 14)]);
    }

    /// Packet 11 arrives 20 ms behind 12, so 14 and 17 may do so as well, and only 17 is lost.
    #[test]
    fn a_reordered_packet_is_not_requested_again() {
        let packets = [(0, 10), (1, 12), (21, 11), (30, 13), (31, 15)];
        let more = [(32, 16), (50, 14), (60, 18), (61, 19)];
        let packets = [&packets[..], &more[..]].concat();
        assert_eq!(requests(&packets), [(5, 11), (85, 17)]);
    }
}
