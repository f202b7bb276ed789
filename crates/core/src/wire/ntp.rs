//! NTP timestamps as RTCP uses them (RFC 3550 section 4).

use core::time::Duration;

use super::seq::Unwrap32;
use crate::units::{RemoteTime, Time, nanos};

/// Wall-clock time: seconds since 1900 in the upper, fractions of 2⁻³² s in the lower 32 bits.
///
/// The seconds wrap in 2036, as the format does; sums wrap with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ntp(pub u64);

impl Ntp {
    /// From the time since 1970-01-01 UTC, which a driver reads once from its wall clock.
    pub fn from_unix(since_1970: Duration) -> Self {
        Self(UNIX_EPOCH << 32).plus(since_1970)
    }

    /// The wall-clock time of `time` when `self` is the wall-clock time of [`Time::ZERO`].
    pub fn at(self, time: Time) -> Self {
        //= rfc3550-6.4.1-ntp
        self.plus(time.since(Time::ZERO))
    }

    /// `self` and `span`, rounded to the nearest 2⁻³² s.
    pub fn plus(self, span: Duration) -> Self {
        // The product is below 2^64 * 2^32: no overflow in 128 bits.
        let fractions =
            ((u128::from(nanos(span)) << 32) + u128::from(NANOS / 2)) / u128::from(NANOS);
        Self(self.0.wrapping_add(fractions as u64))
    }

    /// The middle 32 bits (RFC 3550 section 4).
    pub const fn middle(self) -> NtpShort {
        //= rfc3550-6.4.1-lsr
        NtpShort((self.0 >> 16) as u32)
    }
}

/// The middle 32 bits of an NTP timestamp: units of 1/65536 s, wrapping every 18.2 hours.
///
/// Also the unit of "delay since last SR".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NtpShort(pub u32);

impl NtpShort {
    /// A span in these units, rounded down and limited to 18.2 hours.
    pub fn from_span(span: Duration) -> Self {
        let units = (u128::from(nanos(span)) << 16) / u128::from(NANOS);
        Self(u32::try_from(units).unwrap_or(u32::MAX))
    }

    /// The span as a duration.
    pub fn as_span(self) -> Duration {
        Duration::from_nanos(in_nanos(u64::from(self.0)))
    }

    /// Time elapsed since `earlier`; the two must be within 9.1 hours. Zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        let ahead = self.0.wrapping_sub(earlier.0);
        if ahead > 1 << 31 {
            return Duration::ZERO;
        }
        Self(ahead).as_span()
    }
}

/// Round-trip time from a reception report (RFC 3550 section 6.4.1): the report arrived at `now`,
/// and the sender report sent at `last_sr` had arrived `delay` before the report left. `None` if no
/// sender report had arrived, or if the values are inconsistent.
pub fn round_trip(now: NtpShort, last_sr: NtpShort, delay: NtpShort) -> Option<Duration> {
    //= rfc3550-6.4.1-rtt
    if last_sr == NtpShort(0) {
        return None;
    }
    let units = now.0.wrapping_sub(last_sr.0).wrapping_sub(delay.0);
    // A negative result wraps to hours. Rounding of the clock units may make a tiny round-trip time
    // negative.
    (units < 1 << 31).then(|| NtpShort(units).as_span())
}

/// Unwraps the 32-bit timestamps of the peer's clock.
///
/// Only differences between results are meaningful. Results may decrease after reordering, never
/// because of a wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteClock {
    unwrap: Unwrap32,
}

impl RemoteClock {
    /// A clock without a timestamp.
    pub const fn new() -> Self {
        Self {
            unwrap: Unwrap32::new(),
        }
    }

    /// The remote time of `timestamp`, which has just arrived.
    pub fn at(&mut self, timestamp: NtpShort) -> RemoteTime {
        RemoteTime(in_nanos(self.unwrap.unwrap(timestamp.0)))
    }
}

/// Units of 1/65536 s in nanoseconds, rounded down. Up to 2⁴⁹ units (272 years) fit.
fn in_nanos(units: u64) -> u64 {
    let wide = (u128::from(units) * u128::from(NANOS)) >> 16;
    u64::try_from(wide).unwrap_or(u64::MAX)
}

const NANOS: u64 = 1_000_000_000;

/// 1970-01-01 in seconds since 1900-01-01: 70 years of 365 days and 17 leap days.
const UNIX_EPOCH: u64 = (70 * 365 + 17) * 86_400;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_rfc_3550_gives_its_rtt() {
        //= rfc3550-6.4.1-lsr (test)
        //= rfc3550-6.4.1-rtt (test)
        // RFC 3550 figure 2: the report arrives at 46864.500 s and refers to an SR sent at
        // 46853.125 s with a delay of 5.250 s; the round-trip time is 6.125 s.
        let now = NtpShort(0xb710_8000);
        let last_sr = Ntp(0xb44d_b705_2000_0000).middle();
        assert_eq!(last_sr, NtpShort(0xb705_2000));
        let rtt = round_trip(now, last_sr, NtpShort(0x0005_4000));
        assert_eq!(rtt, Some(Duration::from_millis(6_125)));
        assert_eq!(round_trip(now, NtpShort(0), NtpShort(0)), None);
        assert_eq!(round_trip(last_sr, last_sr, NtpShort(1)), None);
    }

    #[test]
    fn unix_time_starts_in_1970() {
        //= rfc3550-6.4.1-ntp (test)
        assert_eq!(Ntp::from_unix(Duration::ZERO), Ntp(2_208_988_800 << 32));
        let epoch = Ntp::from_unix(Duration::from_secs(1));
        let half = epoch.at(Time::from_millis(500));
        assert_eq!(half, Ntp((2_208_988_801 << 32) | (1 << 31)));
    }

    #[test]
    fn the_remote_clock_unwraps_timestamps() {
        let mut clock = RemoteClock::new();
        let before = clock.at(NtpShort(u32::MAX - 65_535));
        let after = clock.at(NtpShort(65_536));
        assert_eq!(after.since(before), Duration::from_secs(2));
        assert_eq!(clock.at(NtpShort(u32::MAX - 65_535)), before);
    }

    proptest! {
        #[test]
        fn short_spans_round_trip(units: u32) {
            let span = NtpShort(units).as_span();
            let back = NtpShort::from_span(span).0;
            prop_assert!(units - back <= 1, "{} became {}", units, back);
        }

        #[test]
        fn middle_bits_keep_spans(base: u64, millis in 0_u64..30_000_000) {
            let span = Duration::from_millis(millis);
            let (a, b) = (Ntp(base).middle(), Ntp(base).plus(span).middle());
            let error = b.since(a).abs_diff(span);
            prop_assert!(error <= Duration::from_micros(16), "{:?}", error);
        }
    }
}
