//! IPv4 packets as the link models see them.

use tidegate_core::control::Ecn;
use tidegate_core::link::Packet;
use tidegate_core::units::Bytes;

use super::MTU;

/// Room for a packet, and for a sign that it is too long.
pub(super) type Buffer = Box<[u8; MTU + 1]>;

/// Buffers that wait to be used again. A packet that gets lost in the network takes its buffer
/// with it; for all others there is nothing to allocate.
#[derive(Debug, Default)]
pub(super) struct Pool {
    spare: Vec<Buffer>,
}

impl Pool {
    /// Filled with anything.
    pub(super) fn take(&mut self) -> Buffer {
        let spare = self.spare.pop();
        spare.unwrap_or_else(|| Box::new([0; MTU + 1]))
    }

    pub(super) fn give(&mut self, buffer: Buffer) {
        self.spare.push(buffer);
    }
}

/// A whole IPv4 packet.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) id: u64,
    /// The port that it goes to.
    pub(super) to: usize,
    length: usize,
    buffer: Buffer,
}

impl Frame {
    /// Gives the buffer back if its first `length` bytes are no IPv4 packet with just this
    /// length.
    pub(super) fn new(id: u64, to: usize, buffer: Buffer, length: usize) -> Result<Self, Buffer> {
        let [version, _, high, low, ..] = *buffer;
        let whole = usize::from(u16::from_be_bytes([high, low])) == length;
        if version >> 4 == 4 && (HEADER..=MTU).contains(&length) && whole {
            Ok(Self {
                id,
                to,
                length,
                buffer,
            })
        } else {
            Err(buffer)
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    pub(super) fn into_buffer(self) -> Buffer {
        self.buffer
    }
}

impl Packet for Frame {
    fn size(&self) -> Bytes {
        Bytes(self.length as u64)
    }

    fn ecn(&self) -> Ecn {
        Ecn::from_bits(self.buffer[TRAFFIC_CLASS])
    }

    fn set_ce(&mut self) {
        let old = self.buffer[TRAFFIC_CLASS];
        let new = old | Ecn::Ce.bits();
        self.buffer[TRAFFIC_CLASS] = new;
        let checksum = u16::from_be_bytes([self.buffer[CHECKSUM], self.buffer[CHECKSUM + 1]]);
        // The version shares the word and stays, so that its part of the difference is zero.
        let fixed = update_checksum(checksum, old.into(), new.into());
        self.buffer[CHECKSUM..CHECKSUM + 2].copy_from_slice(&fixed.to_be_bytes());
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

    fn frame(bytes: &[u8]) -> Result<Frame, Buffer> {
        let mut buffer = Pool::default().take();
        buffer[..bytes.len()].copy_from_slice(bytes);
        Frame::new(0, 0, buffer, bytes.len())
    }

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
            let mut frame = frame(&header).unwrap();
            prop_assert_eq!(frame.ecn(), Ecn::from_bits(header[1]));
            frame.set_ce();
            prop_assert_eq!(frame.ecn(), Ecn::Ce);
            prop_assert_eq!(frame.bytes()[1] >> 2, header[1] >> 2);
            prop_assert_eq!(checksum(frame.bytes()), 0);
        }
    }

    #[test]
    fn only_whole_ipv4_packets_pass() {
        let mut bytes = [0; MTU + 1];
        bytes[0] = 0x45;
        let mut passes = |length: usize, said: usize| {
            bytes[2..4].copy_from_slice(&(said as u16).to_be_bytes());
            frame(&bytes[..length]).is_ok()
        };
        assert!(passes(20, 20) && passes(24, 24) && passes(MTU, MTU));
        assert!(!passes(23, 24) && !passes(24, 23) && !passes(4, 4) && !passes(0, 0));
        assert!(!passes(MTU + 1, MTU + 1));
        bytes[0] = 0x60;
        bytes[3] = 24;
        assert!(frame(&bytes[..24]).is_err());
    }

    #[test]
    fn buffers_are_used_again() {
        let mut pool = Pool::default();
        let mut buffer = pool.take();
        buffer[0] = 7;
        pool.give(buffer);
        let first = [pool.take(), pool.take()].map(|buffer| buffer[0]);
        assert_eq!(first, [7, 0]);
    }
}
