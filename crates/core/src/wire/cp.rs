//! The header of the Coordination Protocol (CP), the first 20 bytes of the UDP payload.
//!
//! A sending endpoint writes the form [`Role::Origin`]. The aggregation point of its site rewrites
//! it to [`Role::Probe`], with which both aggregation points measure the path between the sites.
//! The aggregation point of the other site rewrites it to [`Role::Report`], from which the
//! receiving endpoint reads the state of the path in its own sending direction. The length never
//! changes. `docs/coordination-protocol.md` specifies each byte and has test vectors.
//!
//! Source: D. E. Ott, T. Sparks, K. Mayer-Patel, *Aggregate Congestion Control for Distributed
//! Multimedia Applications*, INFOCOM 2004, sections III-C and VI-A. The paper gives the contents of
//! the header but no layout.

use core::time::Duration;

use super::bytes::{u8_at, u16_at, u32_at};
use crate::units::{Bytes, Rate, Time, nanos};

/// Length of the header in bytes.
pub const LEN: usize = 20;
/// Version in the first four bits.
pub const VERSION: u8 = 1;
/// Largest number of flowshares that an application can ask for.
pub const MAX_SHARES: u8 = 64;

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cp {
    /// Application to which the flow belongs.
    pub application: ApplicationId,
    /// Flow within the application.
    pub flow: u16,
    /// In [`Role::Origin`] and [`Role::Probe`] the flowshares that the application asks for, in
    /// [`Role::Report`] those that it may use.
    pub shares: Shares,
    /// Part that depends on the sender of the header.
    pub role: Role,
}

/// Identifier of a cluster-to-cluster application, unique between two sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct ApplicationId(pub u16);

/// A number of flowshares, 1 to [`MAX_SHARES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shares(u8);

/// Part of a header that depends on its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// From an endpoint to its aggregation point.
    Origin,
    /// Between the aggregation points.
    Probe(Probe),
    /// From an aggregation point to an endpoint.
    Report(PathReport),
}

/// Measurements between two aggregation points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Sequence number among the packets of the application in this direction, modulo 2^24.
    pub seq: u32,
    /// Departure from the aggregation point, on its clock.
    pub stamp: Stamp,
    /// Latest timestamp received from the other aggregation point.
    pub echo: Option<Echo>,
    /// Loss rate of the opposite direction.
    pub loss: LossCode,
    /// Available bandwidth of one flowshare in the opposite direction; zero if unknown.
    pub available: RateCode,
    /// The circuit breaker of the opposite direction is open: its packets must stop.
    pub stop: bool,
}

/// A timestamp and the time that it spent at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The timestamp.
    pub stamp: Stamp,
    /// Time between its arrival and the departure of this header.
    pub delay: Delay,
}

/// State of the path from the site of the receiving endpoint to the other site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathReport {
    /// Smoothed round-trip time between the aggregation points; zero if unknown. At most 268 s.
    pub rtt: Stamp,
    /// Its mean deviation.
    pub deviation: Delay,
    /// Smoothed loss rate.
    pub loss: LossCode,
    /// Available bandwidth of one flowshare; zero if unknown.
    pub available: RateCode,
    /// Bandwidth that the application uses.
    pub used: RateCode,
    /// Mean size of its packets, all headers included.
    pub packet_size: u16,
    /// Number of active flows of the application at this aggregation point; 255 if there are more.
    pub flows: u8,
    /// The other aggregation point has not been heard from: endpoints control their own rates.
    pub peer_lost: bool,
    /// The circuit breaker of the application is open: endpoints must stop.
    pub stop: bool,
}

/// A time in units of [`TICK`], modulo 2^24 (268 s).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(u32);

/// A span in units of [`TICK`], at most 1.05 s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay(u16);

/// A rate in 16 bits: an 11-bit mantissa and a 5-bit exponent of 2, in bits per second. Precision
/// 0.1 %, at most 4.4 Tb/s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateCode(u16);

/// A loss rate in 8 bits, on a logarithmic scale of 16 steps per factor of 2. Precision 2.2 %.
/// The smallest rate above zero is 1.7e-5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossCode(u8);

impl Cp {
    /// Splits a UDP payload into its header and the data of the application.
    ///
    /// # Errors
    /// If the payload is too short, or has another version, an unknown role or an invalid number
    /// of flowshares.
    pub fn parse(payload: &[u8]) -> Result<(Self, &[u8]), CpError> {
        let (header, data) = payload.split_at_checked(LEN).ok_or(CpError::Short)?;
        let first = u8_at(header, 0);
        if first >> 4 != VERSION {
            return Err(CpError::Version(first >> 4));
        }
        let shares = Shares::new(u8_at(header, 1)).ok_or(CpError::Shares)?;
        let role = match (first >> 2) & 0b11 {
            ORIGIN => Role::Origin,
            PROBE => Role::Probe(probe(header, first)),
            REPORT => Role::Report(report(header, first)),
            _ => return Err(CpError::Role),
        };
        let header = Self {
            application: ApplicationId(u16_at(header, 2)),
            flow: u16_at(header, 4),
            shares,
            role,
        };
        Ok((header, data))
    }

    /// The header as bytes.
    pub fn to_bytes(&self) -> [u8; LEN] {
        let (role, first, second) = match &self.role {
            Role::Origin => (ORIGIN, false, false),
            Role::Probe(probe) => (PROBE, probe.echo.is_some(), probe.stop),
            Role::Report(report) => (REPORT, report.peer_lost, report.stop),
        };
        let mut out = [0; LEN];
        out[0] = VERSION << 4 | role << 2 | u8::from(first) << 1 | u8::from(second);
        out[1] = self.shares.0;
        out[2..4].copy_from_slice(&self.application.0.to_be_bytes());
        out[4..6].copy_from_slice(&self.flow.to_be_bytes());
        match &self.role {
            Role::Origin => {}
            Role::Probe(probe) => {
                let echo = probe.echo.unwrap_or_default();
                out[6..9].copy_from_slice(&low24(probe.seq));
                out[9..12].copy_from_slice(&low24(probe.stamp.0));
                out[12..15].copy_from_slice(&low24(echo.stamp.0));
                out[15..17].copy_from_slice(&echo.delay.0.to_be_bytes());
                out[17] = probe.loss.0;
                out[18..20].copy_from_slice(&probe.available.0.to_be_bytes());
            }
            Role::Report(report) => {
                out[6..9].copy_from_slice(&low24(report.rtt.0));
                out[9..11].copy_from_slice(&report.deviation.0.to_be_bytes());
                out[11] = report.loss.0;
                out[12..14].copy_from_slice(&report.available.0.to_be_bytes());
                out[14..16].copy_from_slice(&report.used.0.to_be_bytes());
                out[16..18].copy_from_slice(&report.packet_size.to_be_bytes());
                out[18] = report.flows;
            }
        }
        out
    }

    /// Appends the header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bytes());
    }

    /// Replaces the header at the start of a UDP payload of at least [`LEN`] bytes; a shorter
    /// payload remains unchanged.
    pub fn rewrite(&self, payload: &mut [u8]) {
        if let Some(header) = payload.first_chunk_mut() {
            *header = self.to_bytes();
        }
    }
}

fn probe(header: &[u8], first: u8) -> Probe {
    let echo = Echo {
        stamp: Stamp(u24_at(header, 12)),
        delay: Delay(u16_at(header, 15)),
    };
    Probe {
        seq: u24_at(header, 6),
        stamp: Stamp(u24_at(header, 9)),
        echo: (first & 0b10 != 0).then_some(echo),
        loss: LossCode(u8_at(header, 17)),
        available: RateCode(u16_at(header, 18)),
        stop: first & 0b01 != 0,
    }
}

fn report(header: &[u8], first: u8) -> PathReport {
    PathReport {
        rtt: Stamp(u24_at(header, 6)),
        deviation: Delay(u16_at(header, 9)),
        loss: LossCode(u8_at(header, 11)),
        available: RateCode(u16_at(header, 12)),
        used: RateCode(u16_at(header, 14)),
        packet_size: u16_at(header, 16),
        flows: u8_at(header, 18),
        peer_lost: first & 0b10 != 0,
        stop: first & 0b01 != 0,
    }
}

fn u24_at(bytes: &[u8], at: usize) -> u32 {
    u32_at(bytes, at) >> 8
}

fn low24(value: u32) -> [u8; 3] {
    let [_, high, middle, low] = value.to_be_bytes();
    [high, middle, low]
}

impl Default for Echo {
    fn default() -> Self {
        Self {
            stamp: Stamp(0),
            delay: Delay(0),
        }
    }
}

impl Shares {
    /// One flowshare.
    pub const ONE: Self = Self(1);

    /// A number of flowshares; `None` outside of 1 to [`MAX_SHARES`].
    pub const fn new(shares: u8) -> Option<Self> {
        if shares >= 1 && shares <= MAX_SHARES {
            Some(Self(shares))
        } else {
            None
        }
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Stamp {
    /// The 24 bits in a header.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The timestamp of a time.
    pub fn at(time: Time) -> Self {
        Self((time.as_nanos() / TICK_NANOS) as u32 & MASK)
    }

    /// A span, rounded; those beyond the range become the longest one.
    pub fn span(span: Duration) -> Self {
        let ticks = nanos(span).saturating_add(TICK_NANOS / 2) / TICK_NANOS;
        Self(ticks.min(u64::from(MASK)) as u32)
    }

    /// As a span since zero.
    pub fn to_duration(self) -> Duration {
        Duration::from_nanos(u64::from(self.0) * TICK_NANOS)
    }

    /// Time elapsed since `earlier`, modulo 2^24 ticks.
    pub fn since(self, earlier: Self) -> Duration {
        Self(self.0.wrapping_sub(earlier.0) & MASK).to_duration()
    }
}

impl Delay {
    /// The code in a header.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// A span, rounded; longer ones become the longest one, [`is_saturated`](Self::is_saturated).
    pub fn of(span: Duration) -> Self {
        let ticks = nanos(span).saturating_add(TICK_NANOS / 2) / TICK_NANOS;
        Self(ticks.min(u64::from(u16::MAX)) as u16)
    }

    /// The span.
    pub fn to_duration(self) -> Duration {
        Duration::from_nanos(u64::from(self.0) * TICK_NANOS)
    }

    /// Whether the span may be longer than stated.
    pub fn is_saturated(self) -> bool {
        self.0 == u16::MAX
    }
}

impl RateCode {
    /// The code in a header.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// From the code in a header.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// The largest representable rate that is at most `rate`.
    pub fn of(rate: Rate) -> Self {
        let bps = rate.as_bps().min(MAX_BPS);
        let bits = u64::BITS - bps.leading_zeros();
        let exponent = bits.saturating_sub(MANTISSA_BITS);
        Self((exponent << MANTISSA_BITS) as u16 | (bps >> exponent) as u16)
    }

    /// The rate.
    pub fn to_rate(self) -> Rate {
        let mantissa = u64::from(self.0) & MANTISSA;
        Rate::bps(mantissa << (self.0 >> MANTISSA_BITS))
    }
}

impl LossCode {
    /// The code in a header.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// From the code in a header.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// The closest code of a rate in 0..=1, by the ratio. NaN counts as zero.
    pub fn of(rate: f64) -> Self {
        if rate > 0.0 {
            let steps = 16.0 * libm::log2(rate.min(1.0)) + 255.0;
            // `as` saturates at zero.
            Self((steps + 0.5) as u8)
        } else {
            Self(0)
        }
    }

    /// The rate, in 0..=1.
    pub fn to_rate(self) -> f64 {
        match self.0 {
            0 => 0.0,
            code => libm::exp2((f64::from(code) - 255.0) / 16.0),
        }
    }
}

/// Reports the size of a packet in the 16 bits of [`PathReport::packet_size`].
pub fn packet_size(size: Bytes) -> u16 {
    size.get().min(u64::from(u16::MAX)) as u16
}

/// A UDP payload that has no valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CpError {
    /// The role is not defined.
    #[error("the role of the CP header is undefined")]
    Role,
    /// The number of flowshares is not in 1 to [`MAX_SHARES`].
    #[error("the flowshares are not in 1 to {MAX_SHARES}")]
    Shares,
    /// The payload has fewer than [`LEN`] bytes.
    #[error("shorter than a CP header of {LEN} bytes")]
    Short,
    /// The version is not [`VERSION`].
    #[error("version {0} of CP; only {VERSION} is supported")]
    Version(u8),
}

const ORIGIN: u8 = 0;
const PROBE: u8 = 1;
const REPORT: u8 = 2;

/// Resolution of times: 24 bits of it last 268 s, longer than any round trip, and 16 bits last
/// longer than a second, for the interval between the packets of a slow application.
pub const TICK: Duration = Duration::from_nanos(TICK_NANOS);
const TICK_NANOS: u64 = 16_000;
/// Range of a [`Stamp`].
const MASK: u32 = 0xff_ffff;

const MANTISSA_BITS: u32 = 11;
const MANTISSA: u64 = (1 << MANTISSA_BITS) - 1;
/// The largest rate: 31 is the largest exponent.
const MAX_BPS: u64 = MANTISSA << 31;

#[cfg(test)]
mod tests;
