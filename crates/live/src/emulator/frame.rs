//! IPv4 packets as the link models see them.

use tidegate_core::control::Ecn;
use tidegate_core::link::Packet;
use tidegate_core::units::Bytes;

/// A whole IPv4 packet.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) id: u64,
    bytes: Box<[u8]>,
}

impl Frame {
    /// `None` if the bytes are no IPv4 packet with just this length.
    pub(super) fn new(id: u64, bytes: &[u8]) -> Option<Self> {
        let [version, _, high, low, ..] = *bytes else {
            return None;
        };
        let whole = usize::from(u16::from_be_bytes([high, low])) == bytes.len();
        (version >> 4 == 4 && bytes.len() >= HEADER && whole).then(|| Self {
            id,
            bytes: bytes.into(),
        })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Packet for Frame {
    fn size(&self) -> Bytes {
        Bytes(self.bytes.len() as u64)
    }

    fn ecn(&self) -> Ecn {
        Ecn::from_bits(self.bytes[TRAFFIC_CLASS])
    }

    fn set_ce(&mut self) {
        let old = self.bytes[TRAFFIC_CLASS];
        let new = old | Ecn::Ce.bits();
        self.bytes[TRAFFIC_CLASS] = new;
        let checksum = u16::from_be_bytes([self.bytes[CHECKSUM], self.bytes[CHECKSUM + 1]]);
        // The version shares the word and stays, so that its part of the difference is zero.
        let fixed = update_checksum(checksum, old.into(), new.into());
        self.bytes[CHECKSUM..CHECKSUM + 2].copy_from_slice(&fixed.to_be_bytes());
    }
}

/// The Internet checksum after a word of what it covers has changed: RFC 1624, equation 3.
fn update_checksum(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let folded = (sum & 0xffff) + (sum >> 16);
    // Three 16-bit numbers carry at most 2, and one more from folding those in.
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}

/// The shortest IPv4 header, and offsets in it (RFC 791 section 3.1).
const HEADER: usize = 20;
const TRAFFIC_CLASS: usize = 1;
const CHECKSUM: usize = 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// From scratch, as RFC 1071 has it: zero over a header that is right.
    fn checksum(header: &[u8]) -> u16 {
        let sum: u32 = header
            .chunks(2)
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
            .sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        !(((folded & 0xffff) + (folded >> 16)) as u16)
    }

    proptest! {
        #[test]
        fn a_mark_keeps_the_checksum_right(mut header: [u8; 20]) {
            header[0] = 0x45;
            header[2..4].copy_from_slice(&20_u16.to_be_bytes());
            header[10..12].fill(0);
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            let mut frame = Frame::new(0, &header).unwrap();
            prop_assert_eq!(frame.ecn(), Ecn::from_bits(header[1]));
            frame.set_ce();
            prop_assert_eq!(frame.ecn(), Ecn::Ce);
            prop_assert_eq!(frame.bytes()[1] >> 2, header[1] >> 2);
            prop_assert_eq!(checksum(frame.bytes()), 0);
        }
    }

    #[test]
    fn only_whole_ipv4_packets_pass() {
        let mut bytes = [0; 24];
        bytes[0] = 0x45;
        bytes[3] = 24;
        assert!(Frame::new(0, &bytes).is_some());
        assert!(Frame::new(0, &bytes[..23]).is_none());
        assert!(Frame::new(0, &[0x45, 0, 0, 4]).is_none());
        assert!(Frame::new(0, &[]).is_none());
        bytes[0] = 0x60;
        assert!(Frame::new(0, &bytes).is_none());
    }
}
