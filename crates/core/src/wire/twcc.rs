//! Transport-wide congestion control feedback: the arrival time of each packet of a transport, by
//! its transport-wide sequence number
//! (draft-holmer-rmcat-transport-wide-cc-extensions-01).

use super::bytes::{u16_at, u32_at};
use super::rtcp::{Fault, RtcpError, RtcpPacket, TRANSPORT_FEEDBACK, Writer};

/// A transport-wide feedback packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twcc<'a> {
    sender: u32,
    media: u32,
    base: u16,
    count: u16,
    /// Reference time in units of 64 ms, a signed 24-bit number.
    reference: i32,
    chunks: &'a [u8],
    deltas: &'a [u8],
}

impl<'a> Twcc<'a> {
    pub(super) const FORMAT: u8 = 15;

    /// # Errors
    /// If the body ends before the status or the delta of its last packet, or if it reports more
    /// than 16,384 packets.
    pub fn new_checked(packet: RtcpPacket<'a>) -> Result<Self, RtcpError> {
        let body = packet.body_of(FIXED)?;
        let count = u16_at(body, 10);
        if count > MAX_REPORTS {
            return Err(packet.malformed(Fault::TooManyReports { reports: count }));
        }
        let rest = body.get(FIXED..).unwrap_or_default();
        let mut symbols = Symbols::new(rest, count);
        let size: usize = symbols.by_ref().map(Symbol::delta_len).sum();
        let chunks = rest.len() - symbols.rest.len();
        let need = FIXED + chunks + size;
        if symbols.left > 0 || body.len() < need {
            return Err(packet.malformed(Fault::TooShort {
                need: need + usize::from(symbols.left > 0) * CHUNK,
                have: body.len(),
            }));
        }
        let (chunks, deltas) = rest.split_at(chunks);
        Ok(Self {
            sender: u32_at(body, 0),
            media: u32_at(body, 4),
            base: u16_at(body, 8),
            count,
            // The shift to the right extends the sign of the 24-bit number.
            reference: u32_at(body, 12).cast_signed() >> 8,
            chunks,
            deltas,
        })
    }

    /// SSRC of the reporting receiver.
    pub const fn sender(&self) -> u32 {
        self.sender
    }

    /// SSRC of one of the streams that the transport carries.
    pub const fn media(&self) -> u32 {
        self.media
    }

    /// The packets in ascending order of the transport-wide sequence number, modulo 2¹⁶.
    pub fn packets(&self) -> impl Iterator<Item = TwccPacket> + use<'a> {
        let mut deltas = self.deltas;
        let base = self.base;
        let mut ticks = i64::from(self.reference) * TICKS_PER_REFERENCE;
        let symbols = Symbols::new(self.chunks, self.count);
        symbols.enumerate().map(move |(i, symbol)| {
            let (delta, rest) = deltas.split_at(symbol.delta_len().min(deltas.len()));
            deltas = rest;
            let change = match *delta {
                [small] => Some(i64::from(small)),
                [high, low] => Some(i64::from(i16::from_be_bytes([high, low]))),
                _ => None,
            };
            ticks += change.unwrap_or(0);
            TwccPacket {
                sequence: base.wrapping_add(i as u16),
                arrival: change.map(|_| Ticks(ticks)),
            }
        })
    }
}

/// Report on one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TwccPacket {
    /// Transport-wide sequence number.
    pub sequence: u16,
    /// Arrival time; `None` if the packet has not arrived.
    pub arrival: Option<Ticks>,
}

/// Time on the receiver's clock, in units of 250 µs. It may be negative, and wraps after 12 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticks(pub i64);

impl Ticks {
    /// Nanoseconds per unit.
    pub const NANOS: u64 = 250_000;
}

/// Appends one feedback packet by `sender` about a transport with the stream `media`. The reports
/// begin at the transport-wide sequence number `base`; `None` is a packet that has not arrived.
/// `number` counts the feedback packets, modulo 256.
///
/// # Errors
/// See [`TwccError`]. Nothing is appended then.
pub fn emit_twcc(
    (sender, media): (u32, u32),
    (base, number): (u16, u8),
    reports: &[Option<Ticks>],
    out: &mut Vec<u8>,
) -> Result<(), TwccError> {
    let count = u16::try_from(reports.len()).map_err(|_| TwccError::TooManyReports)?;
    if count > MAX_REPORTS {
        return Err(TwccError::TooManyReports);
    }
    let first = reports.iter().flatten().next().map_or(0, |ticks| ticks.0);
    let reference = first.div_euclid(TICKS_PER_REFERENCE);
    let mut last = reference * TICKS_PER_REFERENCE;
    let (mut symbols, mut deltas) = (Vec::new(), Vec::new());
    for report in reports {
        let Some(Ticks(at)) = *report else {
            symbols.push(Symbol::NotReceived);
            continue;
        };
        let delta = at - last;
        last = at;
        if let Ok(small) = u8::try_from(delta) {
            symbols.push(Symbol::SmallDelta);
            deltas.push(small);
        } else {
            let large = i16::try_from(delta).map_err(|_| TwccError::DeltaTooLarge)?;
            symbols.push(Symbol::LargeDelta);
            deltas.extend_from_slice(&large.to_be_bytes());
        }
    }
    let mut writer = Writer::begin(TRANSPORT_FEEDBACK, Twcc::FORMAT, out);
    writer.put_u32(sender);
    writer.put_u32(media);
    writer.put_u16(base);
    writer.put_u16(count);
    writer.put_u32((reference as u32) << 8 | u32::from(number));
    let mut rest = symbols.as_slice();
    while let Some(&symbol) = rest.first() {
        let run = rest.iter().take_while(|s| **s == symbol).count();
        let taken = if run >= PER_VECTOR {
            let run = run.min(MAX_RUN);
            writer.put_u16((symbol as u16) << 13 | run as u16);
            run
        } else {
            let taken = rest.len().min(PER_VECTOR);
            let bits = (0..PER_VECTOR).fold(0, |bits, i| {
                bits << 2 | rest.get(i).map_or(0, |symbol| *symbol as u16)
            });
            writer.put_u16(0xc000 | bits);
            taken
        };
        rest = &rest[taken..];
    }
    writer.put(&deltas);
    writer.finish();
    Ok(())
}

/// Reason why reports do not fit into one feedback packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TwccError {
    /// Two successive arrivals are more than 8 s apart.
    #[error("two arrivals are more than 8 s apart: start another feedback packet")]
    DeltaTooLarge,
    /// More than 16,384 packets.
    #[error("transport-wide feedback exceeds {MAX_REPORTS} packets: split it")]
    TooManyReports,
}

/// Status of a packet, by its two-bit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Symbol {
    NotReceived = 0,
    SmallDelta = 1,
    LargeDelta = 2,
    Reserved = 3,
}

impl Symbol {
    const fn from_bits(bits: u16) -> Self {
        match bits & 0b11 {
            0 => Self::NotReceived,
            1 => Self::SmallDelta,
            2 => Self::LargeDelta,
            _ => Self::Reserved,
        }
    }

    /// Size of the packet's delta in bytes.
    const fn delta_len(self) -> usize {
        match self {
            Self::NotReceived | Self::Reserved => 0,
            Self::SmallDelta => 1,
            Self::LargeDelta => 2,
        }
    }
}

/// Iterator over the statuses of the packets.
#[derive(Clone, Debug)]
struct Symbols<'a> {
    /// Bytes after the present chunk.
    rest: &'a [u8],
    chunk: Chunk,
    /// Packets whose status was not returned yet.
    left: u16,
}

#[derive(Clone, Copy, Debug)]
enum Chunk {
    Run { symbol: Symbol, left: u16 },
    Vector { bits: u16, width: u16, left: u16 },
}

impl<'a> Symbols<'a> {
    fn new(rest: &'a [u8], count: u16) -> Self {
        let chunk = Chunk::Run {
            symbol: Symbol::Reserved,
            left: 0,
        };
        Self {
            rest,
            chunk,
            left: count,
        }
    }
}

impl Iterator for Symbols<'_> {
    type Item = Symbol;

    fn next(&mut self) -> Option<Symbol> {
        if self.left == 0 {
            return None;
        }
        loop {
            match &mut self.chunk {
                Chunk::Run { symbol, left } if *left > 0 => {
                    *left -= 1;
                    self.left -= 1;
                    return Some(*symbol);
                }
                Chunk::Vector { bits, width, left } if *left > 0 => {
                    *left -= 1;
                    self.left -= 1;
                    let code = *bits >> (*left * *width);
                    let mask = if *width == 1 { 0b01 } else { 0b11 };
                    return Some(Symbol::from_bits(code & mask));
                }
                _ => {}
            }
            let (chunk, rest) = self.rest.split_at_checked(CHUNK)?;
            self.rest = rest;
            let bits = u16_at(chunk, 0);
            self.chunk = match (bits >> 15, bits >> 14 & 1) {
                (0, _) => Chunk::Run {
                    symbol: Symbol::from_bits(bits >> 13),
                    left: bits & 0x1fff,
                },
                (_, 0) => Chunk::Vector {
                    bits,
                    width: 1,
                    left: 14,
                },
                _ => Chunk::Vector {
                    bits,
                    width: 2,
                    left: 7,
                },
            };
        }
    }
}

/// As for RFC 8888: a quarter of the sequence numbers, so that old and new ones remain
/// distinguishable.
const MAX_REPORTS: u16 = 16_384;
/// Bytes before the chunks: two SSRCs, base and count, reference time and number.
const FIXED: usize = 16;
const CHUNK: usize = 2;
/// Two-bit codes in a chunk.
const PER_VECTOR: usize = 7;
/// 13 bits.
const MAX_RUN: usize = 0x1fff;
/// 64 ms in units of 250 µs.
const TICKS_PER_REFERENCE: i64 = 256;

#[cfg(test)]
mod tests;
