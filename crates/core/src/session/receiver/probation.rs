//! Probation of RTP packets that do not continue the stream (RFC 3550 appendix A.1).

use std::collections::VecDeque;

use super::NEAR;
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
        header.sequence == self.sequence.wrapping_add(1)
            && is_timestamp_near((self.timestamp, self.at), header.timestamp, now)
    }
}

/// Whether a timestamp differs from an earlier one by at most the elapsed time and [`NEAR`].
pub(super) fn is_timestamp_near(earlier: (u32, Time), timestamp: u32, now: Time) -> bool {
    let ticks = timestamp.wrapping_sub(earlier.0).cast_signed();
    let tolerance = now.since(earlier.1) + NEAR;
    u64::from(ticks.unsigned_abs()) <= tolerance.as_millis() as u64 * u64::from(MEDIA_CLOCK / 1_000)
}

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
