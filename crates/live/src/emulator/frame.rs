//! IPv4 packets as input to the link models.

use std::net::Ipv4Addr;

use tidegate_core::control::Ecn;
use tidegate_core::link::Packet;
use tidegate_core::units::Bytes;

use super::MTU;
use super::report::Segment;

/// Buffer for a packet of maximum length plus one byte, which detects longer packets.
pub(super) type Buffer = Box<[u8; MTU + 1]>;

/// Pool of buffers. A packet dropped in the network also drops its buffer. All other packets need
/// no allocation.
#[derive(Debug, Default)]
pub(super) struct Pool {
    spare: Vec<Buffer>,
}

impl Pool {
    /// Takes a buffer with arbitrary content.
    pub(super) fn take(&mut self) -> Buffer {
        let spare = self.spare.pop();
        spare.unwrap_or_else(|| Box::new([0; MTU + 1]))
    }

    pub(super) fn give(&mut self, buffer: Buffer) {
        self.spare.push(buffer);
    }
}

/// Header fields used by the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) destination: Ipv4Addr,
    /// TCP header fields of an unfragmented packet.
    pub(super) segment: Option<Segment>,
    flow: u32,
    length: usize,
}

impl Header {
    /// Parses a packet; `None` if the bytes are not an IPv4 packet of this length, or too long, or
    /// have an impossible header length.
    pub(super) fn new(bytes: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER] = bytes.first_chunk()?;
        let whole = usize::from(u16::from_be_bytes([header[2], header[3]])) == bytes.len();
        // RFC 791 section 3.1: a header has at least five words.
        let ours = header[0] >> 4 == 4 && header[0] & 0xf >= 5 && bytes.len() <= MTU && whole;
        ours.then(|| Self {
            destination: Ipv4Addr::from([header[16], header[17], header[18], header[19]]),
            segment: segment(header, bytes),
            flow: flow(header, bytes),
            length: bytes.len(),
        })
    }
}

/// A complete IPv4 packet.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) id: u64,
    /// Destination port in the emulator.
    pub(super) to: usize,
    header: Header,
    buffer: Buffer,
}

impl Frame {
    /// A packet; `header` must be the header of `buffer`.
    pub(super) fn new(id: u64, to: usize, header: Header, buffer: Buffer) -> Self {
        Self {
            id,
            to,
            header,
            buffer,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.header.length]
    }

    pub(super) fn into_buffer(self) -> Buffer {
        self.buffer
    }

    fn set_traffic_class(&mut self, new: u8) {
        let old = self.buffer[TRAFFIC_CLASS];
        self.buffer[TRAFFIC_CLASS] = new;
        let checksum = u16::from_be_bytes([self.buffer[CHECKSUM], self.buffer[CHECKSUM + 1]]);
        // The version is in the same word and unchanged, so its part of the difference is zero.
        let fixed = update_checksum(checksum, old.into(), new.into());
        self.buffer[CHECKSUM..CHECKSUM + 2].copy_from_slice(&fixed.to_be_bytes());
    }
}

impl Packet for Frame {
    fn size(&self) -> Bytes {
        Bytes(self.header.length as u64)
    }

    fn ecn(&self) -> Ecn {
        Ecn::from_bits(self.buffer[TRAFFIC_CLASS])
    }

    fn set_ce(&mut self) {
        self.set_traffic_class(self.buffer[TRAFFIC_CLASS] | Ecn::Ce.bits());
    }

    fn flow(&self) -> u32 {
        self.header.flow
    }

    fn dscp(&self) -> u8 {
        self.buffer[TRAFFIC_CLASS] >> 2
    }

    fn set_dscp(&mut self, dscp: u8) {
        self.set_traffic_class(dscp << 2 | self.ecn().bits());
    }
}

/// Hash of addresses, protocol and ports. Collisions are possible. Fragments are hashed without
/// ports, because only the first one has them.
fn flow(header: &[u8; HEADER], bytes: &[u8]) -> u32 {
    let protocol = header[9];
    let has_ports = PROTOCOLS_WITH_PORTS.contains(&protocol) && !is_fragment(header);
    let payload = 4 * usize::from(header[0] & 0xf);
    let ports = bytes.get(payload..payload + 4).filter(|_| has_ports);
    let addresses = &header[12..20];
    let all = addresses
        .iter()
        .chain([&protocol])
        .chain(ports.unwrap_or_default());
    all.fold(FNV_BASIS, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(FNV_PRIME)
    })
}

/// TCP header fields of a packet (RFC 9293 section 3.1).
fn segment(header: &[u8; HEADER], bytes: &[u8]) -> Option<Segment> {
    if header[9] != TCP || is_fragment(header) {
        return None;
    }
    let tcp = bytes.get(4 * usize::from(header[0] & 0xf)..)?;
    let first: &[u8; TCP_HEADER] = tcp.first_chunk()?;
    let offset = 4 * usize::from(first[12] >> 4);
    let payload = tcp.len().checked_sub(offset)?;
    if offset < TCP_HEADER {
        return None;
    }
    Some(Segment {
        sequence: u32::from_be_bytes([first[4], first[5], first[6], first[7]]),
        payload: payload as u16,
        syn: first[13] & SYN != 0,
    })
}

fn is_fragment(header: &[u8; HEADER]) -> bool {
    u16::from_be_bytes([header[6], header[7]]) & MORE_OR_OFFSET != 0
}

/// Updates the Internet checksum after a change of one word (RFC 1624 equation 3).
fn update_checksum(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let folded = (sum & 0xffff) + (sum >> 16);
    // The sum of three 16-bit numbers has a carry of at most 2. Adding it may carry once more.
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}

/// Minimum IPv4 header length, and offsets (RFC 791 section 3.1).
const HEADER: usize = 20;
const TRAFFIC_CLASS: usize = 1;
const CHECKSUM: usize = 10;
/// Mask of more-fragments flag and fragment offset.
const MORE_OR_OFFSET: u16 = 0x3fff;
const TCP: u8 = 6;
/// Minimum TCP header length, and the SYN flag.
const TCP_HEADER: usize = 20;
const SYN: u8 = 0b10;
/// TCP, UDP, DCCP, SCTP and UDP-Lite begin with source and destination port.
const PROTOCOLS_WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];
/// Parameters of 32-bit FNV-1a (Fowler, Noll and Vo).
const FNV_BASIS: u32 = 0x811c_9dc5;
const FNV_PRIME: u32 = 0x0100_0193;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(bytes: &[u8]) -> Option<Frame> {
        let mut buffer = Pool::default().take();
        buffer[..bytes.len()].copy_from_slice(bytes);
        Some(Frame::new(0, 0, Header::new(bytes)?, buffer))
    }

    /// Computes the checksum of RFC 1071; zero for a valid header.
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
        fn ce_mark_keeps_the_checksum_valid(mut header: [u8; 20]) {
            header[0] = 0x45;
            header[2..4].copy_from_slice(&20_u16.to_be_bytes());
            header[10..12].fill(0);
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            let mut frame = frame(&header).unwrap();
            prop_assert_eq!(frame.ecn(), Ecn::from_bits(header[1]));
            prop_assert_eq!(frame.dscp(), header[1] >> 2);
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
            frame(&bytes[..length]).is_some()
        };
        assert!(passes(20, 20) && passes(24, 24) && passes(MTU, MTU));
        assert!(!passes(23, 24) && !passes(24, 23) && !passes(4, 4) && !passes(0, 0));
        assert!(!passes(MTU + 1, MTU + 1));
        bytes[0] = 0x60;
        bytes[3] = 24;
        assert!(frame(&bytes[..24]).is_none());
    }

    #[test]
    fn flow_hash_distinguishes_flows() {
        let flow = |change: &dyn Fn(&mut [u8])| {
            let mut bytes = [0; 28];
            bytes[..4].copy_from_slice(&[0x45, 0, 0, 28]);
            bytes[9] = 17;
            bytes[12..24].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2, 1, 2, 3, 4]);
            change(&mut bytes);
            frame(&bytes).unwrap().flow()
        };
        let same = flow(&|_| {});
        assert_eq!(flow(&|b| b[4] = 9), same, "the identification");
        assert_eq!(flow(&|b| b[6] = 0x40), same, "don't fragment");
        assert_eq!(flow(&|b| b[27] = 9), same, "the payload");
        for place in [9, 12, 19, 20, 23] {
            assert_ne!(flow(&|b| b[place] ^= 1), same, "byte {place}");
        }
        // The first fragment, another, and one that has other bytes in place of the ports.
        let first = flow(&|b| b[6] = 0x20);
        assert_eq!(flow(&|b| b[7] = 3), first);
        assert_eq!(
            flow(&|b| b[6..24]
                .copy_from_slice(&[0, 3, 0, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2, 9, 9, 9, 9])),
            first
        );
        // Options move the ports.
        let options = flow(&|b| {
            b[0] = 0x46;
            b.copy_within(20..24, 24);
            b[20..24].fill(0);
        });
        assert_eq!(options, same);
        // A header length that exceeds the packet.
        assert_eq!(flow(&|b| b[0] = 0x4f), first);
    }

    #[test]
    fn tcp_header_fields_are_parsed() {
        let mut bytes = [0; 60];
        bytes[..4].copy_from_slice(&[0x45, 0, 0, 60]);
        bytes[9] = 6;
        bytes[24..28].copy_from_slice(&7_u32.to_be_bytes());
        // With 12 bytes of options: 8 are left.
        bytes[32] = 8 << 4;
        let segment = |bytes: &[u8; 60]| Header::new(bytes).unwrap().segment;
        let plain = Segment {
            sequence: 7,
            payload: 8,
            syn: false,
        };
        assert_eq!(segment(&bytes), Some(plain));
        bytes[33] = 0x12;
        assert_eq!(segment(&bytes), Some(Segment { syn: true, ..plain }));
        // Later fragments have no header, and a header length may exceed the packet.
        let none = |place: usize, value: u8| {
            let mut bytes = bytes;
            bytes[place] = value;
            segment(&bytes).is_none()
        };
        assert!(none(7, 9) && none(9, 17) && none(32, 0xf0) && none(0, 0x4f));
    }

    #[test]
    fn buffers_are_reused() {
        let mut pool = Pool::default();
        let mut buffer = pool.take();
        buffer[0] = 7;
        pool.give(buffer);
        let first = [pool.take(), pool.take()].map(|buffer| buffer[0]);
        assert_eq!(first, [7, 0]);
    }
}
