//! Per-source receiver state: RFC 3550 statistics and the arrivals for RFC 8888 reports.

use core::time::Duration;
use std::collections::VecDeque;

use crate::units::{Bytes, Time};
use crate::wire::ccfb::Received;

/// Statistics of one source (RFC 3550 appendix A).
#[derive(Clone, Debug, Default)]
pub struct ReceiverStats {
    first: Option<u64>,
    highest: u64,
    received: u64,
    expected_prior: u64,
    received_prior: u64,
    /// In timestamp units, times 16 (RFC 3550 appendix A.8).
    jitter: u64,
    last_transit: Option<i64>,
}

/// Total of what a receiver accepted, over all sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedTotal {
    /// Size with all headers. Over TCP, the bytes of the stream.
    pub bytes: Bytes,
    /// First and last arrival.
    pub span: Option<(Time, Time)>,
}

impl ReceivedTotal {
    /// Adds `size` bytes that arrived at `now`.
    pub fn add(&mut self, now: Time, size: Bytes) {
        self.bytes += size;
        let (first, _) = self.span.unwrap_or((now, now));
        self.span = Some((first, now));
    }
}

/// Values for a report block (RFC 3550 section 6.4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Lost since the last report, in 1/256; zero when duplicates outnumber losses.
    pub fraction_lost: u8,
    /// Lost since the beginning, clamped to the 24 bits of the field.
    pub cumulative_lost: i32,
    /// Extended highest sequence number.
    pub highest: u32,
    /// Interarrival jitter in timestamp units.
    pub jitter: u32,
}

impl ReceiverStats {
    /// A packet arrived. `timestamp` and `arrival` are both in units of the media clock.
    //= rfc3550-6.4.1-jitter
    pub fn on_packet(&mut self, seq: u64, timestamp: i64, arrival: i64) {
        let first = *self.first.get_or_insert(seq);
        if seq < first {
            self.first = Some(seq);
        }
        self.highest = self.highest.max(seq);
        self.received += 1;
        let transit = arrival.wrapping_sub(timestamp);
        if let Some(last) = self.last_transit.replace(transit) {
            let change = transit.abs_diff(last).min(u64::from(u32::MAX));
            self.jitter = self.jitter + change - ((self.jitter + 8) >> 4);
        }
    }

    /// Whether no packet has arrived.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Expected minus received packets; negative with duplicates.
    pub fn lost(&self) -> i64 {
        self.expected() as i64 - self.received as i64
    }

    /// Number of received packets, duplicates included.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns the values for a report and starts a new reporting interval.
    //= rfc3550-6.4.1-loss
    pub fn report(&mut self) -> Block {
        let expected = self.expected();
        let expected_now = expected - self.expected_prior;
        let received_now = self.received - self.received_prior;
        (self.expected_prior, self.received_prior) = (expected, self.received);
        let lost_now = expected_now.saturating_sub(received_now);
        let fraction = (lost_now * 256)
            .checked_div(expected_now)
            .unwrap_or(0)
            .min(255);
        Block {
            fraction_lost: fraction as u8,
            cumulative_lost: self.lost().clamp(-0x80_0000, 0x7f_ffff) as i32,
            highest: self.highest as u32,
            jitter: (self.jitter >> 4) as u32,
        }
    }

    fn expected(&self) -> u64 {
        self.first.map_or(0, |first| self.highest - first + 1)
    }
}

/// Recent arrivals of one source, indexed by sequence number.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    first: u64,
    seen: VecDeque<Option<Received>>,
    /// End of the sequence numbers that have been reported at least once.
    reported: u64,
    fresh: bool,
}

impl Arrivals {
    /// Records a packet; returns false for a duplicate.
    pub fn on_packet(&mut self, seq: u64, packet: Received) -> bool {
        if self.seen.is_empty() {
            self.first = seq;
            self.reported = seq;
        }
        // The first arrival was not the first packet.
        let before = self.first.saturating_sub(seq);
        if before > 0 && before + self.seen.len() as u64 <= WINDOW {
            (0..before).for_each(|_| self.seen.push_front(None));
            self.first = seq;
        }
        let Some(place) = seq.checked_sub(self.first) else {
            return false;
        };
        // A jump beyond the window can only follow an outage: the packets in between are lost.
        if place >= 2 * WINDOW {
            self.seen.clear();
            self.first = seq;
            self.reported = seq;
        }
        let place = (seq - self.first) as usize;
        while self.seen.len() <= place {
            self.seen.push_back(None);
        }
        let slot = &mut self.seen[place];
        let new = slot.is_none();
        *slot = Some(slot.map_or(packet, |first| first.and_again(packet)));
        self.fresh |= new;
        while self.seen.len() as u64 > WINDOW {
            self.seen.pop_front();
            self.first += 1;
        }
        new
    }

    /// Number of stored entries.
    pub(super) fn len(&self) -> usize {
        self.seen.len()
    }

    /// Whether packets arrived since the last report.
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Whether `seq` is among the stored arrivals.
    pub fn has(&self, seq: u64) -> bool {
        let place = seq.checked_sub(self.first).map(|place| place as usize);
        let slot = place.and_then(|place| self.seen.get(place));
        slot.is_some_and(Option::is_some)
    }

    /// Missing sequence numbers from `from` to the newest arrival.
    pub fn missing_since(&self, from: u64) -> impl Iterator<Item = u64> + '_ {
        let skip = from.saturating_sub(self.first) as usize;
        let seen = self.seen.iter().enumerate().skip(skip);
        seen.filter(|(_, s)| s.is_none())
            .map(|(i, _)| self.first + i as u64)
    }

    /// Sequence number of the newest packet that arrived at `at` or before.
    pub fn newest_until(&self, at: Time) -> Option<u64> {
        let until = |slot: &Option<Received>| slot.is_some_and(|packet| packet.at <= at);
        let place = self.seen.iter().rposition(until)?;
        Some(self.first + place as u64)
    }

    /// Time of the first arrival of a packet after `seq`; `None` if there is none.
    pub fn first_after(&self, seq: u64) -> Option<Time> {
        let skip = (seq + 1).saturating_sub(self.first) as usize;
        let later = self.seen.iter().skip(skip).flatten();
        later.map(|packet| packet.at).min()
    }

    /// Entries of a report made now: the first sequence number and one entry per packet up to the
    /// newest. Consecutive reports overlap by `overlap`, so that the loss of one report loses no
    /// information.
    //= rfc8888-3.1-overlap
    pub fn report(&mut self, now: Time, overlap: Duration) -> Option<(u64, Vec<Option<Received>>)> {
        if self.seen.is_empty() {
            return None;
        }
        let recent = |s: &Option<Received>| s.is_some_and(|r| now.since(r.at) <= overlap);
        let old = self.seen.iter().take_while(|s| !recent(s)).count() as u64;
        let begin = (self.first + old).min(self.reported.max(self.first));
        let begin = begin.max((self.first + self.seen.len() as u64).saturating_sub(MAX_LINES));
        let lines = self
            .seen
            .iter()
            .skip((begin - self.first) as usize)
            .copied();
        self.fresh = false;
        // Everything before the newest packet has been reported once.
        self.reported = self.first + self.seen.len() as u64 - 1;
        Some((begin, lines.collect()))
    }
}

/// Number of arrivals kept: 4 s at 12 Mb/s.
const WINDOW: u64 = 4_096;
/// Entries per report: 1,000 bytes, so that a media and a repair block fit into one packet.
const MAX_LINES: u64 = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Ecn;

    fn at(ms: u64) -> Received {
        Received {
            ecn: Ecn::NotEct,
            at: Time::from_millis(ms),
        }
    }

    //= rfc3550-6.4.1-loss (test)
    #[test]
    fn loss_and_highest_sequence_follow_appendix_a() {
        let mut r = ReceiverStats::default();
        for seq in (65_530..65_550).filter(|s| s % 5 != 0) {
            r.on_packet(seq, 0, 0);
        }
        let block = r.report();
        // 65,531..65,549: 19 expected, 16 received.
        assert_eq!(block.cumulative_lost, 3);
        assert_eq!(block.fraction_lost, (3 * 256 / 19) as u8);
        assert_eq!(block.highest, 65_549);
        assert_eq!(r.report().fraction_lost, 0);
    }

    //= rfc3550-6.4.1-jitter (test)
    #[test]
    fn jitter_is_zero_for_constant_transit_and_converges_for_alternating_transit() {
        let (mut still, mut busy) = (ReceiverStats::default(), ReceiverStats::default());
        for i in 0..500_i64 {
            still.on_packet(i as u64, i * 3_000, i * 3_000 + 77);
            busy.on_packet(i as u64, i * 3_000, i * 3_000 + (i % 2) * 160);
        }
        assert_eq!(still.report().jitter, 0);
        assert!((155..=160).contains(&busy.report().jitter));
    }

    //= rfc8888-3.1-overlap (test)
    #[test]
    fn reports_overlap_and_end_at_the_newest_packet() {
        let mut a = Arrivals::default();
        let overlap = Duration::from_millis(50);
        for i in [10_u64, 11, 13] {
            assert!(a.on_packet(i, at(i)));
        }
        assert!(!a.on_packet(11, at(99)));
        let (begin, lines) = a.report(Time::from_millis(20), overlap).unwrap();
        assert_eq!((begin, lines.len()), (10, 4));
        assert!(lines[2].is_none());
        assert_eq!(lines[1], Some(at(11)));
        assert!(!a.is_fresh());
        // Much later the report has only new packets and the newest reported one.
        a.on_packet(14, at(1_000));
        let (begin, lines) = a.report(Time::from_secs(1), overlap).unwrap();
        assert_eq!((begin, lines.len()), (13, 2));
        assert_eq!(a.missing_since(0).collect::<Vec<_>>(), [12]);
    }

    #[test]
    fn packets_before_the_first_arrival_are_accepted() {
        let mut a = Arrivals::default();
        assert!(a.on_packet(5_000, at(0)));
        assert!(a.on_packet(4_000, at(1)) && a.on_packet(4_001, at(2)));
        assert!(!a.on_packet(4_000, at(3)) && !a.on_packet(800, at(4)));
        assert_eq!((a.len(), a.missing_since(0).count()), (1_001, 998));
    }

    #[test]
    fn sequence_jumps_do_not_grow_memory() {
        let mut a = Arrivals::default();
        for i in 0..1_000_u64 {
            a.on_packet(i * 60_000, at(i));
            assert!(a.seen.len() as u64 <= 2 * WINDOW);
        }
    }
}
