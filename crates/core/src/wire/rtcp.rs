//! RTCP datagrams: compound packets (RFC 3550 section 6.1) and reduced-size ones (RFC 5506).

use core::fmt;

use super::bytes::{u8_at, u16_at};
use super::ccfb::Ccfb;
use super::rtp::VERSION;
use super::twcc::Twcc;

mod bye;
mod dscp;
mod feedback;
mod report;
mod sdes;

pub use bye::{Bye, emit_bye};
pub use dscp::ArrivedDscp;
pub use feedback::{Nack, NackEntry, Pli, emit_nack, nack_entries};
pub use report::{
    ReceiverReport, ReportBlock, ReportBlocks, SenderInfo, SenderReport, emit_receiver_report,
};
pub use sdes::{Cname, Sdes, SdesChunk, SdesItem, emit_sdes};

/// The RTCP packets of a datagram, in order.
///
/// Ends after the first error, because the start of the next packet is unknown then.
pub fn packets(datagram: &[u8]) -> Packets<'_> {
    Packets {
        rest: datagram,
        at: 0,
    }
}

/// Validates a whole datagram before any packet is used, and returns its form.
///
/// # Errors
/// The first error that [`packets`] would return; also if the datagram is empty.
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

/// Whether a datagram on a port shared by RTP and RTCP is RTCP (RFC 5761 section 4).
pub fn is_rtcp(datagram: &[u8]) -> bool {
    //= rfc5761-4-demultiplex
    datagram.len() >= HEADER
        && u8_at(datagram, 0) >> 6 == VERSION
        && matches!(u8_at(datagram, 1), 192..=223)
}

/// Form of an RTCP datagram, by its first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Begins with a sender or receiver report (RFC 3550).
    Compound,
    /// Begins with another packet (RFC 5506): for peers that have negotiated it.
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
    /// The DSCP with which packets of a stream arrive.
    ArrivedDscp(ArrivedDscp),
    /// A BYE: sources that leave.
    Bye(Bye<'a>),
    /// Arrival times and ECN marks per packet (RFC 8888).
    Ccfb(Ccfb<'a>),
    /// Missing packets (RFC 4585).
    Nack(Nack<'a>),
    /// A packet type that this crate does not parse; RFC 3550 section 6.1 requires that it is
    /// ignored.
    Other(RtcpPacket<'a>),
    /// A picture loss indication (RFC 4585).
    Pli(Pli),
    /// A receiver report.
    ReceiverReport(ReceiverReport<'a>),
    /// Source descriptions.
    Sdes(Sdes<'a>),
    /// A sender report.
    SenderReport(SenderReport<'a>),
    /// Arrival times by transport-wide sequence number.
    Twcc(Twcc<'a>),
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
            (TRANSPORT_FEEDBACK, Twcc::FORMAT) => Self::Twcc(Twcc::new_checked(packet)?),
            (PAYLOAD_FEEDBACK, Pli::FORMAT) => Self::Pli(Pli::parse(packet)?),
            (APPLICATION, ArrivedDscp::FORMAT) => {
                ArrivedDscp::parse(packet).map_or(Self::Other(packet), Self::ArrivedDscp)
            }
            _ => Self::Other(packet),
        })
    }
}

/// An RTCP packet of any type, with validated header, length and padding.
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
    /// Splits off the packet at the start of `bytes`, which is at offset `at` in its datagram.
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
        // Transport-wide feedback of WebRTC counts the bytes that fill the last word as padding.
        let is_twcc = u8_at(packet, 1) == TRANSPORT_FEEDBACK && first & 0x1f == Twcc::FORMAT;
        let plausible = (padding % 4 == 0 || is_twcc) && usize::from(padding) <= room;
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

    /// RTCP packet type.
    pub const fn packet_type(&self) -> u8 {
        self.packet_type
    }

    /// The five-bit field: number of reports, chunks or sources, or the feedback format.
    pub const fn count(&self) -> u8 {
        self.first & 0x1f
    }

    /// Bytes after the first four, without padding. A multiple of four bytes.
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

/// Writes a packet: reserves the header, and fills in the length at the end.
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

    /// Bytes written so far, header included.
    pub(super) fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Pads with zeros to the next multiple of four bytes.
    pub(super) fn align(&mut self) {
        let len = self.len().next_multiple_of(4);
        self.out.resize(self.start + len, 0);
    }

    /// Overwrites two bytes at offset `at`, counted from the start of the header.
    pub(super) fn patch_u16(&mut self, at: usize, value: u16) {
        if let Some(bytes) = self.out.get_mut(self.start + at..self.start + at + 2) {
            bytes.copy_from_slice(&value.to_be_bytes());
        }
    }

    /// Removes everything after the first `len` bytes.
    pub(super) fn truncate(&mut self, len: usize) {
        self.out.truncate(self.start + len);
    }

    pub(super) fn finish(mut self) {
        self.align();
        //= rfc3550-6.4.1-length
        // Every caller limits its packet to `MAX_LEN`, so the quotient fits 16 bits.
        let words = self.len() / 4 - 1;
        self.patch_u16(2, words as u16);
    }
}

/// Reason why a datagram is not RTCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RtcpError {
    /// The contents of a packet are inconsistent.
    #[error("RTCP packet of type {packet_type} at byte {at}: {fault}")]
    Malformed {
        /// Offset of the packet.
        at: usize,
        /// Packet type.
        packet_type: u8,
        /// The inconsistency.
        fault: Fault,
    },
    /// The padding count is not a multiple of four between 4 and the length of the body.
    #[error(
        "RTCP packet at byte {at}: padding of {padding} bytes, expected a multiple of 4 up to {room}"
    )]
    Padding {
        /// Offset of the packet.
        at: usize,
        /// Padding count in the last byte.
        padding: u8,
        /// Bytes after the header.
        room: usize,
    },
    /// A packet other than the last one is padded.
    #[error("RTCP packet at byte {at} is padded but not the last of its datagram")]
    PaddingNotLast {
        /// Offset of the packet.
        at: usize,
    },
    /// The datagram is empty or ends within a packet.
    #[error("RTCP packet at byte {at} takes {need} bytes, the datagram has {have} more")]
    Truncated {
        /// Offset of the packet.
        at: usize,
        /// Length of the packet in bytes, as far as known.
        need: usize,
        /// Available bytes.
        have: usize,
    },
    /// The version of a packet is not 2.
    #[error("RTCP packet at byte {at}: version {version} where 2 is expected")]
    Version {
        /// Offset of the packet.
        at: usize,
        /// Version in the packet.
        version: u8,
    },
}

/// Inconsistency within an RTCP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// An SDES item or a BYE reason exceeds the space left for it.
    ItemCutOff,
    /// A text is not UTF-8.
    NotUtf8,
    /// The body is too short for the contents that the header announces.
    TooShort {
        /// Required bytes.
        need: usize,
        /// Bytes in the body.
        have: usize,
    },
    /// A block of congestion control feedback exceeds the limit of reports, or its space.
    TooManyReports {
        /// Number of reports in the block.
        reports: u16,
    },
    /// The body is longer than the contents that the header announces.
    TooLong {
        /// Expected bytes.
        need: usize,
        /// Bytes in the body.
        have: usize,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ItemCutOff => f.write_str("a text exceeds the space left for it"),
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

/// The largest packet that the length field can express.
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
const APPLICATION: u8 = 204;
const PAYLOAD_FEEDBACK: u8 = 206;

#[cfg(test)]
mod tests;
