//! Parsers of option values, with errors that name the valid values.

use std::num::NonZeroUsize;
use std::time::Duration;

use tidegate_core::quantity;

/// Parses the seed of a run.
///
/// # Errors
/// The text is not a whole number from 0 to 2⁶⁴ - 1.
pub fn seed(text: &str) -> Result<u64, String> {
    let number = text.parse();
    number.map_err(|_| format!("a seed is a whole number from 0 to {}", u64::MAX))
}

/// Parses a number of seeds.
///
/// # Errors
/// The text is not a whole number from 1 to 1,000.
pub fn seeds(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|n| (1..=MAX_SEEDS).contains(n));
    number.ok_or_else(|| format!("write a whole number from 1 to {MAX_SEEDS}"))
}

/// Parses a number of parallel runs.
///
/// # Errors
/// The text is not a whole number from 1 to 1,024.
pub fn jobs(text: &str) -> Result<NonZeroUsize, String> {
    let number = text
        .parse()
        .ok()
        .filter(|n: &NonZeroUsize| n.get() <= MAX_JOBS);
    number.ok_or_else(|| format!("write a whole number from 1 to {MAX_JOBS}"))
}

/// Parses a duration that is not zero.
///
/// # Errors
/// The text is not a duration, or is zero.
pub fn lasting(text: &str) -> Result<Duration, String> {
    let span = quantity::duration(text).map_err(|error| error.to_string())?;
    if span.is_zero() {
        return Err(
            "a duration of zero: give a longer one, such as 10s, or omit the option".to_owned(),
        );
    }
    Ok(span)
}

/// Parses an upper limit of retransmission timeouts.
///
/// # Errors
/// The text is not a duration, or outside of the kernel's range (`TCP_RTO_MAX_MS`), 1 s to 120 s.
pub fn rto_max(text: &str) -> Result<Duration, String> {
    let longest = quantity::duration(text).map_err(|error| error.to_string())?;
    let spans = Duration::from_secs(1)..=Duration::from_mins(2);
    if spans.contains(&longest) {
        Ok(longest)
    } else {
        Err("the kernel accepts 1s to 120s".to_owned())
    }
}

const MAX_SEEDS: u64 = 1_000;
const MAX_JOBS: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_valid_values() {
        assert_eq!((seed("0"), seeds("1000")), (Ok(0), Ok(1_000)));
        assert_eq!(jobs("1024").map(NonZeroUsize::get), Ok(1_024));
        let wrong = ["-1", "", "x", "1.5", "99999999999999999999"];
        for text in wrong {
            assert!(seed(text).unwrap_err().contains("whole number from 0"));
        }
        for text in wrong.into_iter().chain(["0", "1025"]) {
            let wanted = "write a whole number from 1 to 10";
            assert!(seeds(text).unwrap_err().starts_with(wanted));
            assert!(jobs(text).unwrap_err().starts_with(wanted));
        }
    }
}
