//! Congestion control feedback (RFC 8888): when each packet arrived, and with which ECN mark.

use core::fmt;
use core::time::Duration;

use super::bytes::{u16_at, u32_at};
use super::ntp::{Ntp, NtpShort};
use super::rtcp::{Fault, MAX_LEN, RtcpError, RtcpPacket, TRANSPORT_FEEDBACK, Writer};
use crate::control::Ecn;
use crate::units::{RemoteTime, Time, nanos};

/// A congestion control feedback packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ccfb<'a> {
    /// From the first block on, without the report timestamp.
    blocks: &'a [u8],
    sender: u32,
    timestamp: NtpShort,
}

impl<'a> Ccfb<'a> {
    pub(super) const FORMAT: u8 = 11;

    /// # Errors
    /// When the body is too short for its sender and timestamp, or the blocks do not fill exactly
    /// what is between, or one of them has more than 16,384 reports.
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

    /// Who reports.
    pub const fn sender(&self) -> u32 {
        self.sender
    }

    /// When it reported, on its own clock; see [`super::ntp::RemoteClock`].
    pub const fn timestamp(&self) -> NtpShort {
        self.timestamp
    }

    /// One block for each stretch of a stream.
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

/// What is said of a stretch of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CcfbBlock<'a> {
    /// The stream.
    pub ssrc: u32,
    /// Sequence number of the first packet.
    pub begin: u16,
    /// Two bytes each.
    metrics: &'a [u8],
}

impl<'a> CcfbBlock<'a> {
    /// How many packets it covers, at most 16,384.
    pub fn len(&self) -> usize {
        self.metrics.len() / 2
    }

    /// Whether it covers no packet.
    pub fn is_empty(&self) -> bool {
        self.metrics.is_empty()
    }

    /// The packets, by ascending sequence number, modulo 2¹⁶.
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

/// What is said of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CcfbPacket {
    /// The stream.
    pub ssrc: u32,
    /// Its sequence number there.
    pub sequence: u16,
    /// What became of it.
    pub arrival: Arrival,
}

/// What became of one packet, by the time of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It may still come.
    NotReceived,
    /// It came.
    Received {
        /// As it came.
        ecn: Ecn,
        /// How long before the report.
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

/// How long before the report a packet came: units of 1/1024 s, up to 7.997 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset(u16);

impl Offset {
    /// It came longer ago than can be told.
    pub const OVER_RANGE: Self = Self(0x1ffe);
    /// It came at an unknown time, or after the moment that the report timestamp tells.
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

    /// As a span; `None` for [`OVER_RANGE`](Self::OVER_RANGE) and
    /// [`UNAVAILABLE`](Self::UNAVAILABLE).
    pub fn as_span(self) -> Option<Duration> {
        // 8189 units are 8e12 ns: no overflow.
        (self.0 < Self::OVER_RANGE.0)
            .then(|| Duration::from_nanos(u64::from(self.0) * 1_000_000_000 / 1024))
    }

    /// When the packet came if the report was made at `reported`, by the clock of the receiver.
    pub fn before(self, reported: RemoteTime) -> Option<RemoteTime> {
        let span = self.as_span()?;
        Some(RemoteTime(reported.0.saturating_sub(nanos(span))))
    }

    /// The 13 bits of the wire.
    pub const fn bits(self) -> u16 {
        self.0
    }
}

/// A packet that a receiver has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// As it came.
    pub ecn: Ecn,
    /// When it came.
    pub at: Time,
}

impl Received {
    /// What to report when the same packet comes again: the first arrival, and congestion
    /// experienced if either copy says so.
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

/// Writes one congestion control feedback packet, which is complete after
/// [`finish`](Self::finish) only.
#[derive(Debug)]
#[must_use]
pub struct CcfbBuilder<'a> {
    writer: Writer<'a>,
    at: Time,
}

impl<'a> CcfbBuilder<'a> {
    /// Starts a report by `sender`, made at `at`, behind what is in `out`.
    pub fn new(sender: u32, at: Time, out: &'a mut Vec<u8>) -> Self {
        //= rfc8888-3.1-header
        let mut writer = Writer::begin(TRANSPORT_FEEDBACK, Ccfb::FORMAT, out);
        writer.put_u32(sender);
        Self { writer, at }
    }

    /// Adds a block about the packets of `ssrc` from number `begin` on, one report for each;
    /// `None` is a packet that has not come.
    ///
    /// # Errors
    /// When there are more than 16,384 reports, or the packet would pass the 256 KiB that its
    /// length field can tell. Nothing is added then.
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

    /// Bytes that [`finish`](Self::finish) would leave.
    pub fn size(&self) -> usize {
        self.writer.len() + TIMESTAMP
    }

    /// Completes the packet. `epoch` is the wall-clock time of [`Time::ZERO`], the one that sender
    /// reports use.
    pub fn finish(mut self, epoch: Ntp) {
        //= rfc8888-3.1-timestamp
        self.writer.put_u32(epoch.at(self.at).middle().0);
        self.writer.finish();
    }
}

/// Why a block was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// The packet would be longer than its length field can tell: start another one.
    PacketFull,
    /// More than 16,384 packets: split the stretch.
    TooManyReports,
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PacketFull => {
                f.write_str("congestion control feedback above 256 KiB: start another packet")
            }
            Self::TooManyReports => write!(
                f,
                "a feedback block of more than {MAX_REPORTS} packets: split the block"
            ),
        }
    }
}

impl core::error::Error for BlockError {}

/// The block at the start of `bytes` and what follows it. `None` when it is cut off or too long.
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

/// A quarter of the sequence numbers: beyond, old and new could not be told apart.
const MAX_REPORTS: u16 = 16_384;
const BLOCK_HEADER: usize = 8;
const TIMESTAMP: usize = 4;
const RECEIVED: u16 = 1 << 15;

#[cfg(test)]
mod tests;
