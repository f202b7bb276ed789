//! RTCP datagrams: compound packets (RFC 3550 section 6.1) and reduced-size ones (RFC 5506).

use core::fmt;

use super::bytes::{u8_at, u16_at};
use super::ccfb::Ccfb;
use super::rtp::VERSION;

mod bye;
mod feedback;
mod report;
mod sdes;

pub use bye::{Bye, emit_bye};
pub use feedback::{Nack, NackEntry, Pli, emit_nack, nack_entries};
pub use report::{
    ReceiverReport, ReportBlock, ReportBlocks, SenderInfo, SenderReport, emit_receiver_report,
};
pub use sdes::{Cname, Sdes, SdesChunk, SdesItem, emit_sdes};

/// The RTCP packets of a datagram, in their order.
///
/// Ends after the first error: behind it, nothing is known to be where it should be.
pub fn packets(datagram: &[u8]) -> Packets<'_> {
    Packets {
        rest: datagram,
        at: 0,
    }
}

/// Checks a whole datagram before any of it is believed, and tells its form.
///
/// # Errors
/// What [`packets`] would come to sooner or later; also when the datagram is empty.
pub fn form(datagram: &[u8]) -> Result<Form, RtcpError> {
    let mut form = None;
    for packet in packets(datagram) {
        //= rfc3550-6.1-first
        //= rfc5506-3.4-reduced
        let first = match packet? {
            Rtcp::SenderReport(_) | Rtcp::ReceiverReport(_) => Form::Compound,
            _ => Form::ReducedSize,
        };
        form.get_or_insert(first);
    }
    form.ok_or(RtcpError::Truncated {
        at: 0,
        need: HEADER,
        have: 0,
    })
}

/// Whether a datagram on a port that RTP and RTCP share is RTCP (RFC 5761 section 4).
pub fn is_rtcp(datagram: &[u8]) -> bool {
    //= rfc5761-4-demultiplex
    datagram.len() >= HEADER
        && u8_at(datagram, 0) >> 6 == VERSION
        && matches!(u8_at(datagram, 1), 192..=223)
}

/// How a datagram begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// With a sender or receiver report: RTCP as everybody understands it.
    Compound,
    /// With anything else: for peers that have agreed to it.
    ReducedSize,
}

/// See [`packets`].
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Packets<'a> {
    type Item = Result<Rtcp<'a>, RtcpError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let packet = RtcpPacket::split(self.rest, self.at);
        self.rest = match packet {
            Ok((_, rest)) => rest,
            Err(_) => &[],
        };
        let typed = packet.and_then(|(packet, rest)| {
            self.at += packet.len;
            //= rfc3550-6.1-padding-last
            if packet.padded && !rest.is_empty() {
                return Err(RtcpError::PaddingNotLast { at: packet.at });
            }
            Rtcp::of(packet)
        });
        if typed.is_err() {
            self.rest = &[];
        }
        Some(typed)
    }
}

/// One packet of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rtcp<'a> {
    /// Sources that leave.
    Bye(Bye<'a>),
    /// Arrival times and ECN marks, packet by packet (RFC 8888).
    Ccfb(Ccfb<'a>),
    /// Packets that are missing (RFC 4585).
    Nack(Nack<'a>),
    /// Something that this crate does not read; by RFC 3550 section 6.1 it is to be ignored.
    Other(RtcpPacket<'a>),
    /// A request for a key frame (RFC 4585).
    Pli(Pli),
    /// What somebody receives who sends nothing.
    ReceiverReport(ReceiverReport<'a>),
    /// Names of sources.
    Sdes(Sdes<'a>),
    /// What somebody sends and receives.
    SenderReport(SenderReport<'a>),
}

impl<'a> Rtcp<'a> {
    fn of(packet: RtcpPacket<'a>) -> Result<Self, RtcpError> {
        //= rfc3550-6.1-unknown
        Ok(match (packet.packet_type(), packet.count()) {
            (SENDER_REPORT, _) => Self::SenderReport(SenderReport::new_checked(packet)?),
            (RECEIVER_REPORT, _) => Self::ReceiverReport(ReceiverReport::new_checked(packet)?),
            (SDES, _) => Self::Sdes(Sdes::new_checked(packet)?),
            (BYE, _) => Self::Bye(Bye::new_checked(packet)?),
            (TRANSPORT_FEEDBACK, Nack::FORMAT) => Self::Nack(Nack::new_checked(packet)?),
            (TRANSPORT_FEEDBACK, Ccfb::FORMAT) => Self::Ccfb(Ccfb::new_checked(packet)?),
            (PAYLOAD_FEEDBACK, Pli::FORMAT) => Self::Pli(Pli::parse(packet)?),
            _ => Self::Other(packet),
        })
    }
}

/// An RTCP packet of any type: header, length and padding checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtcpPacket<'a> {
    first: u8,
    packet_type: u8,
    body: &'a [u8],
    padded: bool,
    at: usize,
    len: usize,
}

impl<'a> RtcpPacket<'a> {
    /// The packet at the start of `bytes`, which is at `at` in its datagram, and what follows it.
    fn split(bytes: &'a [u8], at: usize) -> Result<(Self, &'a [u8]), RtcpError> {
        let have = bytes.len();
        if have < HEADER {
            return Err(RtcpError::Truncated {
                at,
                need: HEADER,
                have,
            });
        }
        let first = u8_at(bytes, 0);
        if first >> 6 != VERSION {
            return Err(RtcpError::Version {
                at,
                version: first >> 6,
            });
        }
        //= rfc3550-6.4.1-length
        let need = 4 * (usize::from(u16_at(bytes, 2)) + 1);
        let Some((packet, rest)) = bytes.split_at_checked(need) else {
            return Err(RtcpError::Truncated { at, need, have });
        };
        let padded = first & PADDED != 0;
        let padding = if padded { u8_at(packet, need - 1) } else { 0 };
        let room = need - HEADER;
        //= rfc3550-6.4.1-padding
        let plausible = padding % 4 == 0 && usize::from(padding) <= room;
        if padded && (padding == 0 || !plausible) {
            return Err(RtcpError::Padding { at, padding, room });
        }
        let body = packet
            .get(HEADER..need - usize::from(padding))
            .unwrap_or_default();
        let packet = Self {
            first,
            packet_type: u8_at(bytes, 1),
            body,
            padded,
            at,
            len: need,
        };
        Ok((packet, rest))
    }

    /// Which packet this is.
    pub const fn packet_type(&self) -> u8 {
        self.packet_type
    }

    /// The five bits that count reports, chunks or sources, or tell the format of feedback.
    pub const fn count(&self) -> u8 {
        self.first & 0x1f
    }

    /// What follows the first four bytes, without padding. A multiple of four bytes.
    pub const fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The body, if it has at least `need` bytes.
    pub(super) fn body_of(&self, need: usize) -> Result<&'a [u8], RtcpError> {
        if self.body.len() < need {
            return Err(self.malformed(Fault::TooShort {
                need,
                have: self.body.len(),
            }));
        }
        Ok(self.body)
    }

    pub(super) fn malformed(&self, fault: Fault) -> RtcpError {
        RtcpError::Malformed {
            at: self.at,
            packet_type: self.packet_type,
            fault,
        }
    }
}

/// A packet that is being written: reserves the header, and fills in the length in the end.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn begin(packet_type: u8, count: u8, out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[VERSION << 6 | count & 0x1f, packet_type, 0, 0]);
        Self { out, start }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub(super) fn put_u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    pub(super) fn put_u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    /// Bytes so far, header included.
    pub(super) fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Zeros up to the next multiple of four bytes.
    pub(super) fn align(&mut self) {
        let len = self.len().next_multiple_of(4);
        self.out.resize(self.start + len, 0);
    }

    /// Overwrites what was put at `at`, counted from the start of the header.
    pub(super) fn patch_u16(&mut self, at: usize, value: u16) {
        if let Some(bytes) = self.out.get_mut(self.start + at..self.start + at + 2) {
            bytes.copy_from_slice(&value.to_be_bytes());
        }
    }

    /// Takes back what was put after the first `len` bytes.
    pub(super) fn truncate(&mut self, len: usize) {
        self.out.truncate(self.start + len);
    }

    pub(super) fn finish(mut self) {
        self.align();
        //= rfc3550-6.4.1-length
        // Every caller bounds its packet by `MAX_LEN`, so the quotient fits 16 bits.
        let words = self.len() / 4 - 1;
        self.patch_u16(2, words as u16);
    }
}

/// Why a datagram is no RTCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RtcpError {
    /// The inside of a packet contradicts itself.
    Malformed {
        /// Where the packet starts.
        at: usize,
        /// Its type.
        packet_type: u8,
        /// What is wrong.
        fault: Fault,
    },
    /// The padding count is no multiple of four from 4 up to the length of the body.
    Padding {
        /// Where the packet starts.
        at: usize,
        /// As counted by the last byte.
        padding: u8,
        /// Bytes after the header.
        room: usize,
    },
    /// A packet is padded and not the last one.
    PaddingNotLast {
        /// Where the packet starts.
        at: usize,
    },
    /// The datagram ends inside a packet, or is empty.
    Truncated {
        /// Where the packet starts.
        at: usize,
        /// Bytes that it takes, as far as known.
        need: usize,
        /// Bytes that are there.
        have: usize,
    },
    /// A packet is not of version 2.
    Version {
        /// Where the packet starts.
        at: usize,
        /// The version that it claims.
        version: u8,
    },
}

/// What is wrong inside an RTCP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A description item or a reason is longer than what is left for it.
    ItemCutOff,
    /// A text is not UTF-8.
    NotUtf8,
    /// The body is too short for what the header announces.
    TooShort {
        /// Bytes wanted.
        need: usize,
        /// Bytes in the body.
        have: usize,
    },
    /// A block of congestion control feedback reports more packets than it may, or has room for.
    TooManyReports {
        /// How many it claims.
        reports: u16,
    },
    /// The body is longer than what the header announces.
    TooLong {
        /// Bytes wanted.
        need: usize,
        /// Bytes in the body.
        have: usize,
    },
}

impl fmt::Display for RtcpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed {
                at,
                packet_type,
                fault,
            } => {
                write!(f, "RTCP packet of type {packet_type} at byte {at}: {fault}")
            }
            Self::Padding { at, padding, room } => write!(
                f,
                "RTCP packet at byte {at}: padding of {padding} bytes, expected a multiple of 4 up to {room}"
            ),
            Self::PaddingNotLast { at } => {
                write!(
                    f,
                    "RTCP packet at byte {at} is padded but not the last of its datagram"
                )
            }
            Self::Truncated { at, need, have } => {
                write!(
                    f,
                    "RTCP packet at byte {at} takes {need} bytes, the datagram has {have} more"
                )
            }
            Self::Version { at, version } => {
                write!(
                    f,
                    "RTCP packet at byte {at}: version {version} where 2 is expected"
                )
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ItemCutOff => f.write_str("a text is longer than the room left for it"),
            Self::NotUtf8 => f.write_str("a text is not UTF-8"),
            Self::TooShort { need, have } => {
                write!(f, "body of {have} bytes where {need} are needed")
            }
            Self::TooManyReports { reports } => write!(
                f,
                "a block claims {reports} packet reports, above the limit or the length of the packet"
            ),
            Self::TooLong { need, have } => {
                write!(f, "body of {have} bytes where {need} are expected")
            }
        }
    }
}

impl core::error::Error for RtcpError {}

/// The largest packet that the length field can tell.
pub(super) const MAX_LEN: usize = 4 << 16;
pub(super) const TRANSPORT_FEEDBACK: u8 = 205;
/// The counter in the header has five bits.
const MAX_COUNT: usize = 31;
const HEADER: usize = 4;
const PADDED: u8 = 0x20;
const SENDER_REPORT: u8 = 200;
const RECEIVER_REPORT: u8 = 201;
const SDES: u8 = 202;
const BYE: u8 = 203;
const PAYLOAD_FEEDBACK: u8 = 206;

#[cfg(test)]
mod tests;
