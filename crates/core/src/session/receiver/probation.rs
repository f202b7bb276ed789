//! Probation of RTP packets that do not continue the stream (RFC 3550 appendix A.1).

use std::collections::VecDeque;

use crate::control::Ecn;
use crate::endpoint::Datagram;
use crate::media::MEDIA_CLOCK;
use crate::session::pauses::TAKEOVER;
use crate::units::Time;
use crate::wire::rtp::RtpHeader;

/// Holds packets of unknown sources and packets with implausible numbers, until two in sequence
/// prove their source and the source may replace the current stream. A single packet, forged or
/// stray, therefore changes no state, and the first packets of a successor are not lost.
#[derive(Debug, Default)]
pub(super) struct Probation {
    candidates: VecDeque<Candidate>,
}

/// A source in probation.
#[derive(Debug)]
struct Candidate {
    ssrc: u32,
    /// Arrival of its first packet.
    began: Time,
    newest: LastPacket,
    /// Two successive packets were in sequence.
    is_proven: bool,
    packets: VecDeque<HeldPacket>,
    bytes: usize,
}

/// What is known of a source in probation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Evidence {
    /// Arrival of its first packet.
    pub(super) began: Time,
    /// Two successive packets were in sequence.
    pub(super) is_proven: bool,
}

/// A packet in probation.
#[derive(Clone, Debug)]
pub(super) struct HeldPacket {
    /// Arrival time.
    pub(super) at: Time,
    /// ECN field at arrival.
    pub(super) ecn: Ecn,
    /// The whole RTP packet.
    pub(super) datagram: Vec<u8>,
    /// The packet was counted as rejected.
    pub(super) is_rejected: bool,
}

impl Probation {
    /// Holds a packet with `header`. The packets of a source that began before `current`, the
    /// newest packet of the stream, are of no use but for the last one.
    //= rfc3550-A.1-probation
    pub(super) fn hold(
        &mut self,
        now: Time,
        header: &RtpHeader,
        datagram: &Datagram<'_>,
        is_rejected: bool,
        current: Option<Time>,
    ) -> Evidence {
        let same = |c: &Candidate| c.ssrc == header.ssrc;
        let known = self.candidates.iter().position(same);
        let known = known.and_then(|place| self.candidates.remove(place));
        let mut candidate = known.map_or_else(
            || Candidate::new(now, header),
            |known| known.next(now, header),
        );
        if current.is_some_and(|current| candidate.began <= current) {
            candidate.packets.clear();
            candidate.bytes = 0;
        }
        candidate.bytes += datagram.payload.len();
        candidate.packets.push_back(HeldPacket {
            at: now,
            ecn: datagram.ecn,
            datagram: datagram.payload.to_vec(),
            is_rejected,
        });
        candidate.limit();
        let evidence = Evidence {
            began: candidate.began,
            is_proven: candidate.is_proven,
        };
        if self.candidates.len() >= MAX_CANDIDATES {
            self.candidates.pop_front();
        }
        self.candidates.push_back(candidate);
        evidence
    }

    /// The packets of a source, in order of arrival. Its probation ends.
    pub(super) fn take(&mut self, ssrc: u32) -> VecDeque<HeldPacket> {
        let place = self.candidates.iter().position(|c| c.ssrc == ssrc);
        let candidate = place.and_then(|place| self.candidates.remove(place));
        candidate.map(|c| c.packets).unwrap_or_default()
    }
}

impl Candidate {
    fn new(now: Time, header: &RtpHeader) -> Self {
        Self {
            ssrc: header.ssrc,
            began: now,
            newest: LastPacket::new(now, header),
            is_proven: false,
            packets: VecDeque::new(),
            bytes: 0,
        }
    }

    /// The state before another packet is added.
    fn next(mut self, now: Time, header: &RtpHeader) -> Self {
        if now.since(self.newest.at) > TAKEOVER {
            return Self::new(now, header);
        }
        let is_near = self.newest.is_timestamp_near(now, header.timestamp);
        match self.newest.ahead(header.sequence) {
            1 if is_near => self.is_proven = true,
            // Lost packets, or reordered ones.
            ahead if is_near && ahead.unsigned_abs() <= MAX_MISORDER => {}
            _ => {
                return Self {
                    began: self.began,
                    ..Self::new(now, header)
                };
            }
        }
        self.newest = LastPacket::new(now, header);
        self
    }

    fn limit(&mut self) {
        while self.packets.len() > MAX_PACKETS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.packets.pop_front() else {
                return;
            };
            self.bytes -= oldest.datagram.len();
        }
    }
}

/// The last accepted packet of a source.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastPacket {
    sequence: u16,
    timestamp: u32,
    at: Time,
    /// Transit time above the minimum so far, in units of the media clock.
    queued: i64,
}

impl LastPacket {
    pub(super) fn new(now: Time, header: &RtpHeader) -> Self {
        Self {
            sequence: header.sequence,
            timestamp: header.timestamp,
            at: now,
            queued: 0,
        }
    }

    /// The state after an accepted packet.
    pub(super) fn next(self, now: Time, header: &RtpHeader) -> Self {
        let queued = self.queued_of(now, header.timestamp).max(0);
        Self {
            queued,
            ..Self::new(now, header)
        }
    }

    /// Distance of a sequence number from the last one.
    pub(super) fn ahead(self, sequence: u16) -> i16 {
        sequence.wrapping_sub(self.sequence).cast_signed()
    }

    /// Distance up to which a packet needs no probation: that of a burst of losses, and of an outage since
    /// the last packet.
    pub(super) fn most_ahead(self, now: Time) -> i16 {
        let outage = now.since(self.at).as_millis() * MAX_PER_MILLISECOND;
        i16::try_from(MAX_BURST + outage).unwrap_or(i16::MAX)
    }

    /// Whether a packet with an earlier sequence number may be late, or else shows that the numbers
    /// have started again: a late packet is not newer than the last one.
    pub(super) fn is_in_order(self, header: &RtpHeader) -> bool {
        let behind = -i32::from(self.ahead(header.sequence));
        behind <= i32::from(MAX_MISORDER) || self.later(header.timestamp) < 0
    }

    /// Whether a packet with `timestamp` may arrive now: it was not captured more than [`NEAR`]
    /// before the last packet, and its transit time is not shorter than the minimum by more than
    /// that. A queue that drains delivers timestamps faster than real time.
    pub(super) fn is_timestamp_near(self, now: Time, timestamp: u32) -> bool {
        self.later(timestamp) >= -NEAR && self.queued_of(now, timestamp) >= -NEAR
    }

    fn later(self, timestamp: u32) -> i64 {
        i64::from(timestamp.wrapping_sub(self.timestamp).cast_signed())
    }

    fn queued_of(self, now: Time, timestamp: u32) -> i64 {
        let elapsed = now.since(self.at).as_micros() as i64 * i64::from(MEDIA_CLOCK) / 1_000_000;
        self.queued + elapsed - self.later(timestamp)
    }
}

/// One second of the media clock: an encoder may reorder or skip frames, and a route may become
/// shorter.
const NEAR: i64 = MEDIA_CLOCK as i64;
/// Sources in probation at a time.
const MAX_CANDIDATES: usize = 4;
/// Packets lost at once: a queue in the sender's host that overflows.
const MAX_BURST: u128 = 32;
/// Packets of 1,200 bytes at 77 Mb/s.
const MAX_PER_MILLISECOND: u128 = 8;
/// RFC 3550 appendix A.1.
const MAX_MISORDER: u16 = 100;
/// Packets and bytes of each: two seconds at 2 Mb/s.
const MAX_PACKETS: usize = 1_024;
const MAX_BYTES: usize = 512 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::config::MEDIA_TYPE;

    /// Holds a packet of one byte; returns whether its source is proven.
    fn proves(probation: &mut Probation, ssrc: u32, sequence: u16, timestamp: u32) -> bool {
        let header = RtpHeader {
            payload_type: MEDIA_TYPE,
            sequence,
            timestamp,
            ssrc,
            marker: false,
        };
        let datagram = Datagram {
            ecn: Ecn::NotEct,
            dscp: 0,
            payload: &[sequence as u8],
        };
        let now = Time::from_secs(1);
        probation
            .hold(now, &header, &datagram, false, None)
            .is_proven
    }

    fn held(probation: &mut Probation, ssrc: u32) -> Vec<u8> {
        let packets = probation.take(ssrc);
        packets
            .iter()
            .flat_map(|held| &held.datagram)
            .copied()
            .collect()
    }

    //= rfc3550-A.1-probation (test)
    #[test]
    fn two_packets_in_sequence_are_needed() {
        let mut probation = Probation::default();
        assert!(!proves(&mut probation, 1, 10, 0));
        assert!(!proves(&mut probation, 1, 12, 0));
        assert!(!proves(&mut probation, 2, 13, 0));
        assert!(proves(&mut probation, 1, 13, 3_000));
        assert_eq!(held(&mut probation, 1), [10, 12, 13]);
        assert!(!proves(&mut probation, 1, 14, 3_000));
        assert!(!proves(&mut probation, 1, 15, u32::MAX / 2));
        assert_eq!(held(&mut probation, 1), [15]);
    }

    #[test]
    fn a_source_beside_the_stream_holds_one_packet() {
        let mut probation = Probation::default();
        let datagram = Datagram {
            ecn: Ecn::NotEct,
            dscp: 0,
            payload: &[7; 100],
        };
        for n in 0..10 {
            let now = Time::from_millis(20 * u64::from(n));
            let header = RtpHeader {
                payload_type: MEDIA_TYPE,
                sequence: n,
                timestamp: 0,
                ssrc: 1,
                marker: false,
            };
            let current = Time::from_millis(50);
            let evidence = probation.hold(now, &header, &datagram, true, Some(current));
            assert_eq!(evidence.began, Time::ZERO);
        }
        assert_eq!(probation.take(1).len(), 1);
    }

    #[test]
    fn memory_is_bounded() {
        let mut probation = Probation::default();
        (0..1_000).for_each(|ssrc| assert!(!proves(&mut probation, ssrc, 1, 0)));
        assert_eq!(probation.candidates.len(), MAX_CANDIDATES);
        (0..5_000).for_each(|n| assert_eq!(proves(&mut probation, 9, n, 0), n > 0));
        assert_eq!(held(&mut probation, 9).len(), MAX_PACKETS);
    }
}
