//! Numbers on the command line, whose refusals say what to write.

use std::num::NonZeroUsize;

/// The seed of a run.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    let number = text.parse();
    number.map_err(|_| format!("a seed is a whole number from 0 to {}", u64::MAX))
}

/// How many seeds.
pub(crate) fn seeds(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|n| (1..=MOST_SEEDS).contains(n));
    number.ok_or_else(|| format!("write a whole number from 1 to {MOST_SEEDS}"))
}

/// How many at the same time.
pub(crate) fn jobs(text: &str) -> Result<NonZeroUsize, String> {
    let number = text
        .parse()
        .ok()
        .filter(|n: &NonZeroUsize| n.get() <= MOST_JOBS);
    number.ok_or_else(|| format!("write a whole number from 1 to {MOST_JOBS}"))
}

const MOST_SEEDS: u64 = 1_000;
const MOST_JOBS: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_to_write() {
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
