//! Feedback of RFC 4585: generic NACK (section 6.2.1) and picture loss indication (6.3.1).

use super::{Fault, PAYLOAD_FEEDBACK, RtcpError, RtcpPacket, TRANSPORT_FEEDBACK, Writer};
use crate::wire::bytes::{u16_at, u32_at};

/// A generic NACK: missing packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nack<'a> {
    body: &'a [u8],
}

impl<'a> Nack<'a> {
    pub(super) const FORMAT: u8 = 1;

    /// # Errors
    /// If the body is too short for the two SSRCs and one entry.
    pub fn new_checked(packet: RtcpPacket<'a>) -> Result<Self, RtcpError> {
        //= rfc4585-6.2.1-entries
        Ok(Self {
            body: packet.body_of(SOURCES + 4)?,
        })
    }

    /// SSRC of the receiver that sends the NACK.
    pub fn sender(&self) -> u32 {
        u32_at(self.body, 0)
    }

    /// SSRC of the stream with the missing packets.
    pub fn media(&self) -> u32 {
        u32_at(self.body, 4)
    }

    /// The entries as on the wire.
    pub fn entries(&self) -> impl Iterator<Item = NackEntry> + 'a {
        let entries = self.body.get(SOURCES..).unwrap_or_default();
        entries.chunks_exact(4).map(|entry| NackEntry {
            first: u16_at(entry, 0),
            following: u16_at(entry, 2),
        })
    }

    /// Sequence numbers of the missing packets.
    pub fn lost(&self) -> impl Iterator<Item = u16> + 'a {
        self.entries().flat_map(NackEntry::lost)
    }
}

/// A missing packet and a bitmap of the 16 packets after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NackEntry {
    /// Sequence number of the first missing packet.
    pub first: u16,
    /// Bit i, counted from the lowest: packet `first + i + 1` is missing too.
    pub following: u16,
}

impl NackEntry {
    /// Sequence numbers of the missing packets.
    pub fn lost(self) -> impl Iterator<Item = u16> {
        //= rfc4585-6.2.1-bitmask
        let more = (0..16).filter(move |bit| self.following >> bit & 1 == 1);
        core::iter::once(self.first).chain(more.map(move |bit| self.first.wrapping_add(bit + 1)))
    }
}

/// Packs sequence numbers, ideally in sending order, into entries.
pub fn nack_entries(lost: impl IntoIterator<Item = u16>) -> impl Iterator<Item = NackEntry> {
    let mut lost = lost.into_iter().peekable();
    core::iter::from_fn(move || {
        let first = lost.next()?;
        let mut following = 0;
        // Distance 0 is a duplicate; 17 and more need a new entry.
        while let Some(next) = lost.next_if(|next| next.wrapping_sub(first) <= 16) {
            let distance = next.wrapping_sub(first);
            if distance > 0 {
                following |= 1 << (distance - 1);
            }
        }
        Some(NackEntry { first, following })
    })
}

/// Appends generic NACKs for the packets `lost` of source `media`: none if `lost` is empty,
/// otherwise one packet of at most 1,036 bytes per 256 entries.
pub fn emit_nack(sender: u32, media: u32, lost: impl IntoIterator<Item = u16>, out: &mut Vec<u8>) {
    let mut entries = nack_entries(lost).peekable();
    while entries.peek().is_some() {
        let mut writer = Writer::begin(TRANSPORT_FEEDBACK, Nack::FORMAT, out);
        writer.put_u32(sender);
        writer.put_u32(media);
        for entry in entries.by_ref().take(MAX_ENTRIES) {
            writer.put_u16(entry.first);
            writer.put_u16(entry.following);
        }
        writer.finish();
    }
}

/// A picture loss indication: requests a key frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pli {
    /// SSRC of the receiver that cannot decode.
    pub sender: u32,
    /// SSRC of the video stream.
    pub media: u32,
}

impl Pli {
    pub(super) const FORMAT: u8 = 1;

    /// # Errors
    /// If the body is not exactly two SSRCs.
    pub fn parse(packet: RtcpPacket<'_>) -> Result<Self, RtcpError> {
        let body = packet.body_of(SOURCES)?;
        //= rfc4585-6.3.1-no-parameters
        if body.len() > SOURCES {
            return Err(packet.malformed(Fault::TooLong {
                need: SOURCES,
                have: body.len(),
            }));
        }
        Ok(Self {
            sender: u32_at(body, 0),
            media: u32_at(body, 4),
        })
    }

    /// Appends the packet.
    pub fn emit(&self, out: &mut Vec<u8>) {
        //= rfc4585-6.1-header
        let mut writer = Writer::begin(PAYLOAD_FEEDBACK, Self::FORMAT, out);
        writer.put_u32(self.sender);
        writer.put_u32(self.media);
        writer.finish();
    }
}

const SOURCES: usize = 8;
/// Keeps a compound packet with reports below the usual MTU.
const MAX_ENTRIES: usize = 256;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::super::{Rtcp, packets};
    use super::*;

    proptest! {
        #[test]
        fn nacks_round_trip(sender: u32, media: u32, start: u16, lost in btree_set(0_u16..30_000, 0..1_000)) {
            //= rfc4585-6.2.1-bitmask (test)
            let lost: Vec<u16> = lost.iter().map(|offset| start.wrapping_add(*offset)).collect();
            let mut bytes = Vec::new();
            emit_nack(sender, media, lost.iter().copied(), &mut bytes);
            prop_assert_eq!(bytes.is_empty(), lost.is_empty());
            let mut found = Vec::new();
            for packet in packets(&bytes) {
                let Ok(Rtcp::Nack(nack)) = packet else { panic!("{packet:?}") };
                prop_assert_eq!((nack.sender(), nack.media()), (sender, media));
                found.extend(nack.lost());
            }
            prop_assert_eq!(found, lost);
        }

        #[test]
        fn nacks_are_independent_of_the_order_of_losses(lost in vec(any::<u16>(), 0..100)) {
            let found: BTreeSet<u16> = nack_entries(lost.iter().copied()).flat_map(NackEntry::lost).collect();
            prop_assert_eq!(found, BTreeSet::from_iter(lost));
        }

        #[test]
        fn plis_round_trip(sender: u32, media: u32) {
            //= rfc4585-6.1-header (test)
            let pli = Pli { sender, media };
            let mut bytes = Vec::new();
            pli.emit(&mut bytes);
            prop_assert_eq!(&bytes[..4], &[0x81, 206, 0, 2]);
            prop_assert_eq!(packets(&bytes).next(), Some(Ok(Rtcp::Pli(pli))));
        }
    }

    #[test]
    fn seventeen_packets_in_a_row_are_one_entry() {
        let entries: Vec<_> = nack_entries(65_530..=65_535)
            .chain(nack_entries((0..=17).map(|n| 100 + n)))
            .collect();
        assert_eq!(
            entries,
            [
                NackEntry {
                    first: 65_530,
                    following: 0b1_1111
                },
                NackEntry {
                    first: 100,
                    following: 0xffff
                },
                NackEntry {
                    first: 117,
                    following: 0
                },
            ]
        );
    }

    #[test]
    fn bodies_of_wrong_length_are_rejected() {
        //= rfc4585-6.2.1-entries (test)
        //= rfc4585-6.3.1-no-parameters (test)
        let fault = |bytes: &[u8]| match packets(bytes).next() {
            Some(Err(RtcpError::Malformed { fault, .. })) => fault,
            other => panic!("{other:?}"),
        };
        let nack = [0x81, 205, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2];
        assert_eq!(fault(&nack), Fault::TooShort { need: 12, have: 8 });
        let pli = [0x81, 206, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0];
        assert_eq!(fault(&pli), Fault::TooLong { need: 8, have: 12 });
    }
}
