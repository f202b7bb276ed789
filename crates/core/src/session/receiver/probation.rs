//! Probation of RTP packets that do not continue the stream (RFC 3550 appendix A.1).

use std::collections::VecDeque;

use crate::control::Ecn;
use crate::media::MEDIA_CLOCK;
use crate::units::Time;
use crate::wire::rtp::RtpHeader;

/// Holds packets of unknown sources and packets with implausible numbers, until the next packet of
/// the same source follows the held one. A single packet, forged or stray, therefore changes no
/// state.
#[derive(Debug, Default)]
pub(super) struct Probation {
    held: VecDeque<HeldPacket>,
}

/// A packet in probation.
#[derive(Clone, Debug)]
pub(super) struct HeldPacket {
    ssrc: u32,
    sequence: u16,
    timestamp: u32,
    /// Arrival time.
    pub(super) at: Time,
    /// ECN field at arrival.
    pub(super) ecn: Ecn,
    /// The whole RTP packet.
    pub(super) datagram: Vec<u8>,
}

impl Probation {
    /// The packet that the present one confirms. If there is none, the present one is held.
    //= rfc3550-A.1-probation
    pub(super) fn confirm(
        &mut self,
        now: Time,
        header: &RtpHeader,
        ecn: Ecn,
        datagram: &[u8],
    ) -> Option<HeldPacket> {
        let same = self.held.iter().position(|held| held.ssrc == header.ssrc);
        let before = same.and_then(|place| self.held.remove(place));
        if let Some(held) = before.filter(|held| held.is_followed_by(now, header)) {
            return Some(held);
        }
        if self.held.len() >= MAX_HELD {
            self.held.pop_front();
        }
        self.held.push_back(HeldPacket {
            ssrc: header.ssrc,
            sequence: header.sequence,
            timestamp: header.timestamp,
            at: now,
            ecn,
            datagram: datagram.to_vec(),
        });
        None
    }
}

impl HeldPacket {
    fn is_followed_by(&self, now: Time, header: &RtpHeader) -> bool {
        let last = LastPacket {
            sequence: self.sequence,
            timestamp: self.timestamp,
            at: self.at,
            queued: 0,
        };
        header.sequence == self.sequence.wrapping_add(1)
            && last.is_timestamp_near(now, header.timestamp)
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
const MAX_HELD: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::config::MEDIA_TYPE;

    fn confirms(probation: &mut Probation, ssrc: u32, sequence: u16, timestamp: u32) -> bool {
        let header = RtpHeader {
            payload_type: MEDIA_TYPE,
            sequence,
            timestamp,
            ssrc,
            marker: false,
        };
        let now = Time::from_secs(1);
        let confirmed = probation.confirm(now, &header, Ecn::NotEct, &[sequence as u8]);
        assert!(
            confirmed
                .iter()
                .all(|held| held.datagram == [(sequence - 1) as u8])
        );
        confirmed.is_some()
    }

    //= rfc3550-A.1-probation (test)
    #[test]
    fn two_packets_in_sequence_are_needed() {
        let mut probation = Probation::default();
        assert!(!confirms(&mut probation, 1, 10, 0));
        assert!(!confirms(&mut probation, 1, 12, 0));
        assert!(!confirms(&mut probation, 2, 13, 0));
        assert!(confirms(&mut probation, 1, 13, 3_000));
        assert!(!confirms(&mut probation, 1, 14, 3_000));
        assert!(!confirms(&mut probation, 1, 15, u32::MAX / 2));
    }

    #[test]
    fn memory_is_bounded() {
        let mut probation = Probation::default();
        (0..1_000).for_each(|ssrc| assert!(!confirms(&mut probation, ssrc, 1, 0)));
        assert_eq!(probation.held.len(), MAX_HELD);
    }
}
