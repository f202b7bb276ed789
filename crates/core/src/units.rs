//! Time, size and rate. All are integers, so that a run has the same result on every machine.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};
use core::time::Duration;

/// A time on the local clock: nanoseconds since an epoch that the driver chooses.
///
/// 64 bits last 584 years. Sums saturate, so that [`FAR`](Self::FAR) plus any span stays `FAR`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Time(u64);

impl Time {
    /// The epoch.
    pub const ZERO: Self = Self(0);
    /// Later than any event.
    pub const FAR: Self = Self(u64::MAX);

    /// From nanoseconds since the epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// From microseconds since the epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// From milliseconds since the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// From whole seconds since the epoch.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(NANOS))
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the epoch, for reports and plots.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS as f64
    }

    /// Time elapsed since `earlier`, or zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self` minus `span`, not before the epoch.
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(nanos(rhs)))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / NANOS, self.0 % NANOS)
    }
}

/// A time on the receiver's clock, in nanoseconds.
///
/// The epoch is unknown to the sender. The type therefore has differences, but no conversion to
/// [`Time`]: subtracting a local from a remote time does not compile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct RemoteTime(pub u64);

impl RemoteTime {
    /// Time elapsed since `earlier`, or zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Bytes(pub u64);

impl Bytes {
    /// Zero bytes.
    pub const ZERO: Self = Self(0);

    /// The number as a plain integer.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// In bits, saturating.
    pub const fn bits(self) -> u64 {
        self.0.saturating_mul(8)
    }

    /// `self` minus `rhs`, at least zero. The operator `-` does the same.
    pub const fn saturating_sub(self, rhs: Self) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }

    /// `self` times `num/den`, rounded down, saturating. `den` of zero counts as one.
    pub fn scale(self, num: u64, den: u64) -> Self {
        Self(scale(self.0, num, den))
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, rhs: Self) {
        *self = *self - rhs;
    }
}

impl core::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

/// Bits per second.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Rate(u64);

impl Rate {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// No limit.
    pub const MAX: Self = Self(u64::MAX);

    /// From bits per second.
    pub const fn bps(bps: u64) -> Self {
        Self(bps)
    }

    /// From thousands of bits per second.
    pub const fn kbps(kbps: u64) -> Self {
        Self(kbps.saturating_mul(1_000))
    }

    /// In bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// From bits per second in floating point. Rounds and saturates; negative numbers and NaN
    /// become zero.
    pub fn from_f64(bps: f64) -> Self {
        // `as` saturates and maps NaN to zero. Adding a half rounds without `f64::round`.
        Self((bps + 0.5) as u64)
    }

    /// In bits per second, in floating point.
    pub const fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// `self` times `num/den`, rounded down, saturating. `den` of zero counts as one.
    pub fn scale(self, num: u64, den: u64) -> Self {
        Self(scale(self.0, num, den))
    }
}

impl Add for Rate {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl Sub for Rate {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }
}

/// Serialisation time, rounded up: a packet has left once its last bit has. A rate of zero counts
/// as 1 b/s; check for [`Rate::ZERO`] where a dead link matters.
impl Div<Rate> for Bytes {
    type Output = Duration;
    fn div(self, rhs: Rate) -> Duration {
        // 2^64 bytes * 8 * 1e9 < 2^98: no overflow in 128 bits.
        let nanos = (u128::from(self.0) * 8 * u128::from(NANOS)).div_ceil(u128::from(rhs.0.max(1)));
        Duration::from_nanos(nanos.min(u128::from(u64::MAX)) as u64)
    }
}

/// Bytes carried at a rate in a time span, rounded down.
impl Mul<Duration> for Rate {
    type Output = Bytes;
    fn mul(self, rhs: Duration) -> Bytes {
        // A Duration of 2^64 s is 2^94 ns, so the product with a rate could exceed 2^128: clamp
        // first.
        let nanos = rhs.as_nanos().min(u128::from(u64::MAX));
        let bytes = u128::from(self.0) * nanos / (8 * u128::from(NANOS));
        Bytes(bytes.min(u128::from(u64::MAX)) as u64)
    }
}

/// Mean rate over a time span. A span of zero counts as one nanosecond.
impl Div<Duration> for Bytes {
    type Output = Rate;
    fn div(self, rhs: Duration) -> Rate {
        let bps = u128::from(self.0) * 8 * u128::from(NANOS) / rhs.as_nanos().max(1);
        Rate(bps.min(u128::from(u64::MAX)) as u64)
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}kbit/s", self.0 / 1_000, self.0 % 1_000)
    }
}

/// Largest of b/s, kb/s, Mb/s, Gb/s, Tb/s in which the number is at least one.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bps = self.as_f64();
        match self.0 {
            0..1_000 => write!(f, "{} b/s", self.0),
            1_000..1_000_000 => write!(f, "{:.0} kb/s", bps / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.2} Mb/s", bps / 1e6),
            1_000_000_000..1_000_000_000_000 => write!(f, "{:.2} Gb/s", bps / 1e9),
            _ => write!(f, "{:.2} Tb/s", bps / 1e12),
        }
    }
}

fn scale(value: u64, num: u64, den: u64) -> u64 {
    let wide = u128::from(value) * u128::from(num) / u128::from(den.max(1));
    wide.min(u128::from(u64::MAX)) as u64
}

/// A duration in nanoseconds, saturating.
pub fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

const NANOS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn multiplication_inverts_serialisation_time(bytes in 1_u64..1_000_000, bps in 1_000_u64..1_000_000_000_000) {
            let took = Bytes(bytes) / Rate::bps(bps);
            let carried = Rate::bps(bps) * took;
            // Rounding up the time by less than 1 ns carries at most bps/8e9 bytes more.
            prop_assert!(carried >= Bytes(bytes) || carried.0 + 1 >= bytes);
            prop_assert!(carried.0 <= bytes + bps / 8_000_000_000 + 1);
        }

        #[test]
        fn arithmetic_saturates(a: u64, b: u64, s: u64, n: u32) {
            let d = Duration::new(s, n % 1_000_000_000);
            let _ = (Time::from_nanos(a) + d, Bytes(a) / Rate::bps(b), Rate::bps(a) * d, Bytes(a) / d);
            let _ = (Rate::bps(a).scale(b, s), Bytes(a) + Bytes(b), Rate::bps(a) + Rate::bps(b));
        }
    }

    #[test]
    fn rates_display_in_the_largest_fitting_unit() {
        assert_eq!(Rate::bps(999).to_string(), "999 b/s");
        assert_eq!(Rate::kbps(150).to_string(), "150 kb/s");
        assert_eq!(Rate::kbps(4_000).to_string(), "4.00 Mb/s");
        assert_eq!(Rate::from_f64(f64::NAN), Rate::ZERO);
        assert_eq!(Rate::from_f64(-3.0), Rate::ZERO);
    }
}
