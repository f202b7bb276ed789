//! Congestion control feedback (RFC 8888): arrival time and ECN mark of each packet.

use core::time::Duration;

use super::bytes::{u16_at, u32_at};
use super::ntp::{Ntp, NtpShort};
use super::rtcp::{Fault, MAX_LEN, RtcpError, RtcpPacket, TRANSPORT_FEEDBACK, Writer};
use crate::control::Ecn;
use crate::units::{RemoteTime, Time, nanos};

/// A congestion control feedback packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ccfb<'a> {
    /// The blocks, without the report timestamp.
    blocks: &'a [u8],
    sender: u32,
    timestamp: NtpShort,
}

impl<'a> Ccfb<'a> {
    pub(super) const FORMAT: u8 = 11;

    /// # Errors
    /// If the body is too short for SSRC and timestamp, if the blocks do not fill the space between
    /// them exactly, or if a block has more than 16,384 reports.
    pub fn new_checked(packet: RtcpPacket<'a>) -> Result<Self, RtcpError> {
        let body = packet.body_of(8)?;
        //= rfc8888-3.1-order
        let end = body.len() - 4;
        let blocks = body.get(4..end).unwrap_or_default();
        let mut rest = blocks;
        while !rest.is_empty() {
            if rest.len() < BLOCK_HEADER {
                let need = body.len() - rest.len() + BLOCK_HEADER;
                return Err(packet.malformed(Fault::TooShort {
                    need,
                    have: body.len(),
                }));
            }
            let reports = u16_at(rest, 6);
            let (_, after) =
                split_block(rest).ok_or(packet.malformed(Fault::TooManyReports { reports }))?;
            rest = after;
        }
        Ok(Self {
            blocks,
            sender: u32_at(body, 0),
            timestamp: NtpShort(u32_at(body, end)),
        })
    }

    /// SSRC of the reporting receiver.
    pub const fn sender(&self) -> u32 {
        self.sender
    }

    /// Time of the report on the receiver's clock; see [`super::ntp::RemoteClock`].
    pub const fn timestamp(&self) -> NtpShort {
        self.timestamp
    }

    /// The blocks, each about a range of one stream.
    pub fn blocks(&self) -> impl Iterator<Item = CcfbBlock<'a>> + use<'a> {
        let mut rest = self.blocks;
        core::iter::from_fn(move || {
            let (block, after) = split_block(rest)?;
            rest = after;
            Some(block)
        })
    }

    /// The packets of all blocks.
    pub fn packets(&self) -> impl Iterator<Item = CcfbPacket> + use<'a> {
        self.blocks().flat_map(|block| block.packets())
    }
}

/// Report on a range of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CcfbBlock<'a> {
    /// SSRC of the stream.
    pub ssrc: u32,
    /// Sequence number of the first packet.
    pub begin: u16,
    /// Two bytes per packet.
    metrics: &'a [u8],
}

impl<'a> CcfbBlock<'a> {
    /// Number of packets in the range, at most 16,384.
    pub fn len(&self) -> usize {
        self.metrics.len() / 2
    }

    /// Whether the range is empty.
    pub fn is_empty(&self) -> bool {
        self.metrics.is_empty()
    }

    /// The packets in ascending sequence number order, modulo 2¹⁶.
    pub fn packets(&self) -> impl Iterator<Item = CcfbPacket> + use<'a> {
        let Self {
            ssrc,
            begin,
            metrics,
        } = *self;
        //= rfc8888-3.1-range
        metrics
            .chunks_exact(2)
            .enumerate()
            .map(move |(i, metric)| CcfbPacket {
                ssrc,
                sequence: begin.wrapping_add(i as u16),
                arrival: Arrival::from_bits(u16_at(metric, 0)),
            })
    }
}

/// Report on one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CcfbPacket {
    /// SSRC of the stream.
    pub ssrc: u32,
    /// Sequence number in the stream.
    pub sequence: u16,
    /// Arrival of the packet.
    pub arrival: Arrival,
}

/// Arrival of one packet, as of the time of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The packet has not arrived yet.
    NotReceived,
    /// The packet has arrived.
    Received {
        /// ECN field on arrival.
        ecn: Ecn,
        /// Time from the arrival to the report.
        offset: Offset,
    },
}

impl Arrival {
    const fn from_bits(bits: u16) -> Self {
        //= rfc8888-3.1-not-received
        if bits & RECEIVED == 0 {
            return Self::NotReceived;
        }
        Self::Received {
            ecn: Ecn::from_bits((bits >> 13) as u8),
            offset: Offset(bits & Offset::MASK),
        }
    }

    const fn bits(self) -> u16 {
        match self {
            Self::NotReceived => 0,
            Self::Received { ecn, offset } => RECEIVED | (ecn.bits() as u16) << 13 | offset.0,
        }
    }
}

/// Time from the arrival of a packet to the report: units of 1/1024 s, up to 7.997 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset(u16);

impl Offset {
    /// The arrival is too long ago for the field.
    pub const OVER_RANGE: Self = Self(0x1ffe);
    /// The arrival time is unknown, or later than the report timestamp.
    pub const UNAVAILABLE: Self = Self(0x1fff);
    const MASK: u16 = 0x1fff;

    /// From `arrived` to `reported`, rounded to the nearest unit.
    pub fn between(arrived: Time, reported: Time) -> Self {
        //= rfc8888-3.1-unavailable
        if arrived > reported {
            return Self::UNAVAILABLE;
        }
        // Nanoseconds times 1024 are below 2^74: no overflow in 128 bits.
        let units =
            (u128::from(nanos(reported.since(arrived))) * 1024 + 500_000_000) / 1_000_000_000;
        //= rfc8888-3.1-over-range
        if units < u128::from(Self::OVER_RANGE.0) {
            Self(units as u16)
        } else {
            Self::OVER_RANGE
        }
    }

    /// As a duration; `None` for [`OVER_RANGE`](Self::OVER_RANGE) and
    /// [`UNAVAILABLE`](Self::UNAVAILABLE).
    pub fn as_span(self) -> Option<Duration> {
        // 8189 units are 8e12 ns: no overflow.
        (self.0 < Self::OVER_RANGE.0)
            .then(|| Duration::from_nanos(u64::from(self.0) * 1_000_000_000 / 1024))
    }

    /// Arrival time on the receiver's clock, for a report made at `reported`.
    pub fn before(self, reported: RemoteTime) -> Option<RemoteTime> {
        let span = self.as_span()?;
        Some(RemoteTime(reported.0.saturating_sub(nanos(span))))
    }

    /// The 13 bits on the wire.
    pub const fn bits(self) -> u16 {
        self.0
    }
}

/// A received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// ECN field on arrival.
    pub ecn: Ecn,
    /// Arrival time.
    pub at: Time,
}

impl Received {
    /// Merges a duplicate: the first arrival time, and CE if either copy has it.
    pub fn and_again(self, copy: Self) -> Self {
        //= rfc8888-3.1-duplicates
        let ecn = if copy.ecn == Ecn::Ce {
            Ecn::Ce
        } else {
            self.ecn
        };
        Self {
            ecn,
            at: self.at.min(copy.at),
        }
    }
}

/// Writes one congestion control feedback packet, which is complete only after
/// [`finish`](Self::finish).
#[derive(Debug)]
#[must_use]
pub struct CcfbBuilder<'a> {
    writer: Writer<'a>,
    at: Time,
}

impl<'a> CcfbBuilder<'a> {
    /// Starts a report by `sender`, made at `at`, appended to `out`.
    pub fn new(sender: u32, at: Time, out: &'a mut Vec<u8>) -> Self {
        //= rfc8888-3.1-header
        let mut writer = Writer::begin(TRANSPORT_FEEDBACK, Ccfb::FORMAT, out);
        writer.put_u32(sender);
        Self { writer, at }
    }

    /// Adds a block about the packets of `ssrc` from sequence number `begin` on, one entry per
    /// packet; `None` is a packet that has not arrived.
    ///
    /// # Errors
    /// If there are more than 16,384 entries, or the packet would exceed the 256 KiB of its length
    /// field. Nothing is added then.
    pub fn block(
        &mut self,
        ssrc: u32,
        begin: u16,
        reports: impl IntoIterator<Item = Option<Received>>,
    ) -> Result<(), BlockError> {
        let start = self.writer.len();
        self.writer.put_u32(ssrc);
        self.writer.put_u16(begin);
        self.writer.put_u16(0);
        let mut count: u16 = 0;
        for report in reports {
            //= rfc8888-3.1-limit
            if count == MAX_REPORTS {
                self.writer.truncate(start);
                return Err(BlockError::TooManyReports);
            }
            let arrival = report.map_or(Arrival::NotReceived, |Received { ecn, at }| {
                Arrival::Received {
                    ecn,
                    offset: Offset::between(at, self.at),
                }
            });
            self.writer.put_u16(arrival.bits());
            count += 1;
        }
        self.writer.patch_u16(start + 6, count);
        //= rfc8888-3.1-padding
        self.writer.align();
        if self.writer.len() + TIMESTAMP > MAX_LEN {
            self.writer.truncate(start);
            return Err(BlockError::PacketFull);
        }
        Ok(())
    }

    /// Size of the packet that [`finish`](Self::finish) would complete, in bytes.
    pub fn size(&self) -> usize {
        self.writer.len() + TIMESTAMP
    }

    /// Completes the packet. `epoch` is the wall-clock time of [`Time::ZERO`], as used by sender
    /// reports.
    pub fn finish(mut self, epoch: Ntp) {
        //= rfc8888-3.1-timestamp
        self.writer.put_u32(epoch.at(self.at).middle().0);
        self.writer.finish();
    }
}

/// Reason why a block was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The packet would exceed its length field: start another packet.
    #[error("congestion control feedback exceeds 256 KiB: start another packet")]
    PacketFull,
    /// More than 16,384 packets: split the block.
    #[error("feedback block exceeds {MAX_REPORTS} packets: split the block")]
    TooManyReports,
}

/// Splits off the block at the start of `bytes`. `None` if it is truncated or too long.
fn split_block(bytes: &[u8]) -> Option<(CcfbBlock<'_>, &[u8])> {
    //= rfc8888-3.1-count
    let reports = u16_at(bytes, 6);
    //= rfc8888-3.1-limit
    if reports > MAX_REPORTS {
        return None;
    }
    let (block, rest) =
        bytes.split_at_checked(BLOCK_HEADER + (2 * usize::from(reports)).next_multiple_of(4))?;
    let metrics = block.get(BLOCK_HEADER..BLOCK_HEADER + 2 * usize::from(reports))?;
    Some((
        CcfbBlock {
            ssrc: u32_at(block, 0),
            begin: u16_at(block, 4),
            metrics,
        },
        rest,
    ))
}

/// A quarter of the sequence numbers, so that old and new ones remain distinguishable.
const MAX_REPORTS: u16 = 16_384;
const BLOCK_HEADER: usize = 8;
const TIMESTAMP: usize = 4;
const RECEIVED: u16 = 1 << 15;

#[cfg(test)]
mod tests;
