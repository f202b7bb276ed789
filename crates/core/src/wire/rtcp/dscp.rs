//! DSCP with which packets of a stream arrive: an application-defined packet (RFC 3550 section 6.7).

use super::{APPLICATION, RtcpPacket, Writer};
use crate::wire::bytes::{u8_at, u32_at};

/// Report of a receiver that packets of a stream were sent with one DSCP and have arrived with
/// another, or the same. Networks change this field as they like (RFC 2474 section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivedDscp {
    /// SSRC of the receiver.
    pub sender: u32,
    /// SSRC of the stream.
    pub media: u32,
    /// DSCP at the sender, according to the packet, in 0..=63.
    pub sent: u8,
    /// DSCP of the newest such packet on arrival, in 0..=63.
    pub arrived: u8,
}

impl ArrivedDscp {
    /// Subtype of the packet.
    pub(super) const FORMAT: u8 = 0;

    /// `None` for packets of another application.
    pub(super) fn parse(packet: RtcpPacket<'_>) -> Option<Self> {
        let body = packet.body_of(LENGTH).ok()?;
        let is_ours = body.len() == LENGTH && u32_at(body, 4) == NAME;
        is_ours.then(|| Self {
            sender: u32_at(body, 0),
            media: u32_at(body, 8),
            sent: u8_at(body, 12) & MASK,
            arrived: u8_at(body, 13) & MASK,
        })
    }

    /// Appends the packet.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::begin(APPLICATION, Self::FORMAT, out);
        writer.put_u32(self.sender);
        writer.put_u32(NAME);
        writer.put_u32(self.media);
        let dscps = [self.sent & MASK, self.arrived & MASK];
        writer.put_u16(u16::from_be_bytes(dscps));
        writer.put_u16(0);
        writer.finish();
    }
}

/// Name of the application.
const NAME: u32 = u32::from_be_bytes(*b"DSCP");
const LENGTH: usize = 16;
const MASK: u8 = 0x3f;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::rtcp::{Rtcp, packets};

    proptest! {
        #[test]
        fn reports_round_trip(sender: u32, media: u32, sent in 0..64_u8, arrived in 0..64_u8) {
            let report = ArrivedDscp { sender, media, sent, arrived };
            let mut bytes = Vec::new();
            report.emit(&mut bytes);
            let parsed: Vec<_> = packets(&bytes).collect();
            prop_assert_eq!(parsed, [Ok(Rtcp::ArrivedDscp(report))]);
        }
    }

    #[test]
    fn packets_of_other_applications_are_not_parsed() {
        let mut bytes = Vec::new();
        let report = ArrivedDscp {
            sender: 1,
            media: 2,
            sent: 1,
            arrived: 0,
        };
        report.emit(&mut bytes);
        bytes[11] = b'Q';
        assert!(matches!(packets(&bytes).next(), Some(Ok(Rtcp::Other(_)))));
        let (mut short, words) = (bytes[..12].to_vec(), 2);
        short[3] = words;
        assert!(matches!(packets(&short).next(), Some(Ok(Rtcp::Other(_)))));
    }
}
