//! UDP datagrams within IP packets: where their fields are, and changes that keep the checksum right.
//!
//! A [`Datagram`] has positions instead of references, so that a forwarder can change the packet.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Range;

use super::bytes::{u8_at, u16_at};
use crate::control::Ecn;

/// A whole UDP datagram in an IP packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Address of the sender.
    pub source: IpAddr,
    /// Address of the receiver.
    pub destination: IpAddr,
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
    /// ECN field of the IP header.
    pub ecn: Ecn,
    /// Position of the UDP header. The payload begins [`HEADER`] bytes later.
    pub header: usize,
    /// Position of the payload.
    pub payload: Range<usize>,
}

/// Length of a UDP header in bytes.
pub const HEADER: usize = 8;

/// A packet that has no UDP datagram that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDatagram {
    /// A fragment. The datagram is in several packets.
    Fragment,
    /// Another protocol, or an IPv6 packet with extension headers.
    OtherProtocol,
    /// Lengths that contradict each other or the length of the packet.
    Truncated,
}

impl Datagram {
    /// Finds the datagram of an IPv4 or IPv6 packet. Bytes after the packet, such as the padding of
    /// short Ethernet frames, are ignored.
    ///
    /// # Errors
    /// See [`NoDatagram`].
    pub fn locate(packet: &[u8]) -> Result<Self, NoDatagram> {
        match u8_at(packet, 0) >> 4 {
            4 => ipv4(packet),
            6 => ipv6(packet),
            _ => Err(NoDatagram::OtherProtocol),
        }
    }

    /// Replaces the bytes at the start of the payload and corrects the checksum (RFC 1624
    /// equation 3). A datagram without checksum remains without. If `change` is longer than the
    /// payload, or the packet is not that of the datagram, nothing changes.
    pub fn replace(&self, packet: &mut [u8], change: &[u8], checksum: Checksum) {
        let (at, end) = (self.payload.start, self.payload.start + change.len());
        let Some(place) = packet.get_mut(at..end).filter(|_| end <= self.payload.end) else {
            return;
        };
        let difference = difference(place, change);
        place.copy_from_slice(change);
        let at = self.header + CHECKSUM;
        let old = u16_at(packet, at);
        if checksum == Checksum::Complete && old != 0 {
            let new = !fold(u32::from(!old) + u32::from(difference));
            // Zero is no checksum; both represent the same sum (RFC 768).
            let new = if new == 0 { 0xffff } else { new };
            packet[at..at + 2].copy_from_slice(&new.to_be_bytes());
        }
    }

    /// A packet in the opposite direction with this payload of up to 1,000 bytes, from the receiver
    /// of the datagram to its sender.
    pub fn answer(&self, payload: &[u8]) -> Vec<u8> {
        let length = (HEADER + payload.len()) as u16;
        let mut out = Vec::with_capacity(IPV6_HEADER + usize::from(length));
        match (self.destination, self.source) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                out.extend_from_slice(&[0x45, 0]);
                out.extend_from_slice(&(IPV4_HEADER as u16 + length).to_be_bytes());
                out.extend_from_slice(&[0, 0, DONT_FRAGMENT, 0, HOP_LIMIT, UDP, 0, 0]);
                out.extend_from_slice(&from.octets());
                out.extend_from_slice(&to.octets());
                let sum = !fold(sum(&out));
                out[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            (from, to) => {
                out.extend_from_slice(&[0x60, 0, 0, 0]);
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(&[UDP, HOP_LIMIT]);
                for address in [from, to] {
                    out.extend_from_slice(&mapped(address).octets());
                }
            }
        }
        let header = out.len();
        out.extend_from_slice(&self.destination_port.to_be_bytes());
        out.extend_from_slice(&self.source_port.to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(payload);
        let checksum = checksum(&out, header);
        out[header + CHECKSUM..header + CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
        out
    }

    /// Whether the checksum is right or absent.
    pub fn is_intact(&self, packet: &[u8]) -> bool {
        let end = self.payload.end.min(packet.len());
        let stated = u16_at(packet, self.header + CHECKSUM);
        let bare = self.pseudo_sum(end) + sum(packet.get(self.header..end).unwrap_or(&[]));
        stated == 0 || fold(bare) == 0xffff
    }

    fn pseudo_sum(&self, end: usize) -> u32 {
        pseudo_header(
            self.source,
            self.destination,
            end.saturating_sub(self.header),
        )
    }
}

/// Who completes the checksum of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// The field has the whole checksum.
    Complete,
    /// The field has the sum of the pseudo header. The device that transmits the packet adds the
    /// rest (checksum offload).
    Partial,
}

fn ipv4(packet: &[u8]) -> Result<Datagram, NoDatagram> {
    let first: &[u8; IPV4_HEADER] = packet.first_chunk().ok_or(NoDatagram::Truncated)?;
    let length = usize::from(u16_at(first, 2));
    let header = usize::from(first[0] & 0xf) * 4;
    if header < IPV4_HEADER || header > length || length > packet.len() {
        return Err(NoDatagram::Truncated);
    }
    if u16_at(first, 6) & MORE_OR_OFFSET != 0 {
        return Err(NoDatagram::Fragment);
    }
    if first[9] != UDP {
        return Err(NoDatagram::OtherProtocol);
    }
    let address = |at: usize| Ipv4Addr::new(first[at], first[at + 1], first[at + 2], first[at + 3]);
    let (source, destination) = (address(12).into(), address(16).into());
    let ecn = Ecn::from_bits(first[1]);
    udp(&packet[..length], header, (source, destination), ecn)
}

fn ipv6(packet: &[u8]) -> Result<Datagram, NoDatagram> {
    let first: &[u8; IPV6_HEADER] = packet.first_chunk().ok_or(NoDatagram::Truncated)?;
    let length = IPV6_HEADER + usize::from(u16_at(first, 4));
    if length > packet.len() {
        return Err(NoDatagram::Truncated);
    }
    match first[6] {
        UDP => {}
        FRAGMENT => return Err(NoDatagram::Fragment),
        _ => return Err(NoDatagram::OtherProtocol),
    }
    let address = |at: usize| {
        let octets: Option<&[u8; 16]> = first[at..].first_chunk();
        IpAddr::from(Ipv6Addr::from(octets.copied().unwrap_or_default()))
    };
    let ecn = Ecn::from_bits(first[1] >> 4);
    udp(
        &packet[..length],
        IPV6_HEADER,
        (address(8), address(24)),
        ecn,
    )
}

/// The datagram at `header` of a packet without padding.
fn udp(
    packet: &[u8],
    header: usize,
    (source, destination): (IpAddr, IpAddr),
    ecn: Ecn,
) -> Result<Datagram, NoDatagram> {
    let length = usize::from(u16_at(packet, header + 4));
    if length < HEADER || header + length > packet.len() {
        return Err(NoDatagram::Truncated);
    }
    Ok(Datagram {
        source,
        destination,
        source_port: u16_at(packet, header),
        destination_port: u16_at(packet, header + 2),
        ecn,
        header,
        payload: header + HEADER..header + length,
    })
}

/// Checksum of the datagram that ends `packet`, whose own field is zero.
fn checksum(packet: &[u8], header: usize) -> u16 {
    let address = |at: usize, len: usize| -> IpAddr {
        let octets = &packet[at..at + len];
        match octets.first_chunk::<16>().filter(|_| len == 16) {
            Some(octets) => Ipv6Addr::from(*octets).into(),
            None => Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]).into(),
        }
    };
    let (source, destination) = if header == IPV6_HEADER {
        (address(8, 16), address(24, 16))
    } else {
        (address(12, 4), address(16, 4))
    };
    let datagram = &packet[header..];
    match !fold(pseudo_header(source, destination, datagram.len()) + sum(datagram)) {
        0 => 0xffff,
        checksum => checksum,
    }
}

fn pseudo_header(source: IpAddr, destination: IpAddr, length: usize) -> u32 {
    let addresses = |address| match address {
        IpAddr::V4(address) => sum(&address.octets()),
        IpAddr::V6(address) => sum(&address.octets()),
    };
    addresses(source) + addresses(destination) + u32::from(UDP) + length as u32
}

/// Sum of 16-bit words, not folded. Datagrams have fewer than 2^15 words, so it has no overflow.
fn sum(bytes: &[u8]) -> u32 {
    // An odd last byte is the high half of a word.
    let words = bytes.chunks(2);
    words
        .map(|word| u32::from(u8_at(word, 0)) << 8 | u32::from(u8_at(word, 1)))
        .sum()
}

/// What a change adds to the ones' complement sum.
fn difference(old: &[u8], new: &[u8]) -> u16 {
    let removed = !fold(sum(old));
    fold(u32::from(removed) + sum(new))
}

/// Ones' complement sum in 16 bits.
fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
/// Position of the checksum in a UDP header.
const CHECKSUM: usize = 6;
/// Flag "more fragments" and the offset.
const MORE_OR_OFFSET: u16 = 0x3fff;
const DONT_FRAGMENT: u8 = 0x40;
const HOP_LIMIT: u8 = 64;

#[cfg(test)]
mod tests;
