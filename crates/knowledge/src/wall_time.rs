//! Wall-clock time of samples.

use std::fmt::{self, Display};
use std::time::Duration;

use time::format_description::well_known::Iso8601;
use time::{OffsetDateTime, PrimitiveDateTime};

use crate::trajectory::BINS;

/// Milliseconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(u64);

impl WallTime {
    /// Latest time that is accepted: the end of the year 2199.
    pub const LATEST: Self = Self(7_258_118_400_000 - 1);

    /// From milliseconds since 1970; `None` after [`LATEST`](Self::LATEST).
    pub const fn from_millis(millis: u64) -> Option<Self> {
        if millis <= Self::LATEST.0 {
            Some(Self(millis))
        } else {
            None
        }
    }

    /// From a date and time as ISO 8601 has it, such as `2021-10-17T06:02:11.25+02:00`; a space may take
    /// the place of the `T`. Without an offset the time is UTC. `None` for another form and for times
    /// before 1970 or after [`LATEST`](Self::LATEST).
    pub fn of_iso(text: &str) -> Option<Self> {
        let text = text.trim().replacen(' ', "T", 1);
        let at = OffsetDateTime::parse(&text, &Iso8601::DEFAULT).or_else(|_| {
            let local = PrimitiveDateTime::parse(&text, &Iso8601::DEFAULT);
            local.map(PrimitiveDateTime::assume_utc)
        });
        let millis = at.ok()?.unix_timestamp_nanos() / 1_000_000;
        Self::from_millis(millis.try_into().ok()?)
    }

    /// From the time since 1970, at most [`LATEST`](Self::LATEST).
    pub fn since_1970(span: Duration) -> Self {
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self(millis.min(Self::LATEST.0))
    }

    /// Milliseconds since 1970.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The later time, at most [`LATEST`](Self::LATEST).
    pub fn after(self, span: Duration) -> Self {
        Self::since_1970(Duration::from_millis(self.0).saturating_add(span))
    }

    /// The earlier time, at least 1970.
    pub fn before(self, span: Duration) -> Self {
        Self::since_1970(Duration::from_millis(self.0).saturating_sub(span))
    }

    /// Time elapsed since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Number of the day since 1970-01-01, in UTC.
    pub const fn day(self) -> u32 {
        (self.0 / DAY_MS) as u32
    }

    /// Bin of the day, in UTC: 0..[`BINS`].
    pub const fn bin(self) -> usize {
        (self.0 % DAY_MS / (DAY_MS / BINS as u64)) as usize
    }

    /// Start of a day; days after [`LATEST`](Self::LATEST) are limited to it.
    pub fn of_day(day: u32) -> Self {
        Self((u64::from(day) * DAY_MS).min(Self::LATEST.0))
    }
}

/// `2021-10-17 06:02:11.250Z`.
impl Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(u64::from(self.day()));
        let ms = self.0 % DAY_MS;
        let [hour, minute, second] = [ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60];
        let fraction = ms % 1_000;
        write!(
            f,
            "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{fraction:03}Z"
        )
    }
}

/// Gregorian date of a number of days since 1970-01-01. Years begin in March, so that the leap day
/// is the last day of a year.
fn civil(days: u64) -> (u64, u64, u64) {
    // 719,468 days lie between 0000-03-01 and 1970-01-01; 146,097 are in 400 years.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

const DAY_MS: u64 = 86_400_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (millis, text) in [
            (0, "1970-01-01 00:00:00.000Z"),
            (951_782_400_000, "2000-02-29 00:00:00.000Z"),
            (1_634_450_531_250, "2021-10-17 06:02:11.250Z"),
            (WallTime::LATEST.0, "2199-12-31 23:59:59.999Z"),
        ] {
            let time = WallTime::from_millis(millis).expect("in range");
            assert_eq!(time.to_string(), text);
        }
        assert_eq!(WallTime::from_millis(WallTime::LATEST.0 + 1), None);
    }

    #[test]
    fn iso_8601_is_read() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2021-10-17T06:02:11.25Z", 1_634_450_531_250),
            ("2021-10-17 06:02:11.250", 1_634_450_531_250),
            ("2021-10-17T08:02:11.25+02:00", 1_634_450_531_250),
            ("20211017T060211.25Z", 1_634_450_531_250),
        ] {
            assert_eq!(
                WallTime::of_iso(text),
                WallTime::from_millis(millis),
                "{text}"
            );
        }
        for text in [
            "",
            "2021",
            "1969-12-31T23:59:59Z",
            "2200-01-01T00:00:00Z",
            "17.10.2021 06:02",
        ] {
            assert_eq!(WallTime::of_iso(text), None, "{text}");
        }
    }

    #[test]
    fn a_day_has_288_bins() {
        let day = WallTime::of_day(20_000);
        let last = day.after(Duration::from_millis(DAY_MS - 1));
        assert_eq!((day.bin(), last.bin()), (0, BINS - 1));
        assert_eq!(last.day(), 20_000);
        assert_eq!(day.after(Duration::from_mins(5)).bin(), 1);
    }
}
