//! Fuzz target of the emulator's packet parser.

use tidegate_core::control::Ecn;
use tidegate_core::link::Packet as _;
use tidegate_core::units::Bytes;

use super::MTU;
use super::frame::{Frame, Header, Pool};

/// A packet from a host: one that passes is an IPv4 packet of its own length, its TCP payload fits
/// behind both headers, and a CE mark changes the ECN field and the checksum only, which stays valid
/// if it was. The flow does not depend on fields that routers change.
///
/// # Panics
///
/// An invariant is violated.
pub fn packet(data: &[u8]) {
    let Some(header) = Header::new(data) else {
        return;
    };
    assert!((20..=MTU).contains(&data.len()) && data[0] >> 4 == 4);
    let options = 4 * usize::from(data[0] & 0xf);
    assert!(options >= 20, "a header of {options} bytes");
    if let Some(segment) = header.segment {
        let payload = usize::from(segment.payload);
        assert!(
            options + 20 + payload <= data.len(),
            "{payload} bytes of payload"
        );
    }
    let mut frame = frame(header, data);
    assert_eq!(
        (frame.bytes(), frame.size()),
        (data, Bytes(data.len() as u64))
    );
    let (flow, dscp, was) = (frame.flow(), frame.dscp(), sum(data));
    frame.set_ce();
    assert_eq!((frame.ecn(), frame.dscp()), (Ecn::Ce, dscp));
    assert!(
        is_same_sum(sum(frame.bytes()), was),
        "the checksum changed its validity"
    );
    let differ = |(at, (a, b)): (usize, (&u8, &u8))| (a != b).then_some(at);
    let changed = data
        .iter()
        .zip(frame.bytes())
        .enumerate()
        .filter_map(differ);
    assert!(changed.into_iter().all(|at| [1, 10, 11].contains(&at)));
    let mut routed = frame.bytes().to_vec();
    // Time to live, and the checksum.
    for at in [8, 10, 11] {
        routed[at] = !routed[at];
    }
    let again = Header::new(&routed).expect("a routed packet passes");
    assert_eq!(self::frame(again, &routed).flow(), flow);
}

fn frame(header: Header, data: &[u8]) -> Frame {
    let mut buffer = Pool::default().take();
    buffer[..data.len()].copy_from_slice(data);
    Frame::new(0, 0, header, buffer)
}

/// Sum of the fixed part of the header in ones' complement (RFC 1071).
fn sum(data: &[u8]) -> u16 {
    let words = data[..20].chunks(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    ((folded & 0xffff) + (folded >> 16)) as u16
}

/// Whether two sums are equal; zero has two representations.
fn is_same_sum(a: u16, b: u16) -> bool {
    a % 0xffff == b % 0xffff
}
