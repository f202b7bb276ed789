//! Position in a `Range` header (RFC 2326 sections 3.6 and 12.29).

use core::time::Duration;

/// Start of a range of normal play time; `Ok(None)` for the present position (`npt=now-`, or no
/// start). The end of the range is ignored: a title is played to its end.
///
/// # Errors
/// The range has another unit or is malformed.
pub fn start_of_range(text: &str) -> Result<Option<Duration>, RangeError> {
    let range = text.split(';').next().unwrap_or_default().trim();
    let (unit, range) = range.split_once('=').ok_or(RangeError)?;
    let (start, _) = range.split_once('-').ok_or(RangeError)?;
    match (unit.trim(), start.trim()) {
        ("npt", "" | "now") => Ok(None),
        ("npt", start) => seconds(start).map(Some).ok_or(RangeError),
        _ => Err(RangeError),
    }
}

/// A range of another unit, or a malformed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeError;

/// `SECONDS[.FRACTION]` or `HH:MM:SS[.FRACTION]`.
fn seconds(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| is_number)
    };
    let whole = match whole.split(':').collect::<Vec<_>>()[..] {
        [seconds] => number(seconds)?,
        [hours, minutes, seconds] => {
            let (minutes, seconds) = (number(minutes)?, number(seconds)?);
            let is_clock = minutes < 60 && seconds < 60;
            let hours = number(hours).filter(|_| is_clock)?;
            hours
                .checked_mul(3_600)?
                .checked_add(minutes * 60 + seconds)?
        }
        _ => return None,
    };
    // Nine digits are nanoseconds; further ones are cut.
    let digits: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    let is_valid = whole <= LONGEST && fraction.bytes().all(|c| c.is_ascii_digit());
    is_valid.then_some(())?;
    Some(Duration::new(whole, digits.parse().ok()?))
}

/// Longest position in seconds: ten years.
const LONGEST: u64 = 315_360_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_parsed() {
        let ms = Duration::from_millis;
        for (text, start) in [
            ("npt=0.000-", Some(ms(0))),
            ("npt=12.5-20", Some(ms(12_500))),
            ("npt=1:02:03.25-", Some(ms(3_723_250))),
            ("npt=now-", None),
            ("npt=-20", None),
            ("npt=7-;time=19970123T143720Z", Some(ms(7_000))),
        ] {
            assert_eq!(start_of_range(text), Ok(start), "{text}");
        }
        for wrong in [
            "",
            "npt",
            "npt=",
            "npt=5",
            "npt=x-",
            "npt=1:2-",
            "npt=0:61:00-",
            "npt=1.x-",
            "npt=99999999999999999999-",
            "npt=9999999999-",
            "smpte=0:10:20-",
            "npt=+1-",
        ] {
            assert_eq!(start_of_range(wrong), Err(RangeError), "{wrong}");
        }
    }
}
