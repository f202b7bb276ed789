//! Recorded capacity in the format of mahimahi: one line per delivery opportunity, in milliseconds.

use core::time::Duration;

use tidegate_core::units::{Bytes, Rate};

/// What one line of a trace lets through: a packet of mahimahi's size, or several that fit.
pub const OPPORTUNITY: Bytes = Bytes(1_504);

/// Recorded moments of delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityTrace {
    /// As the scenario names the file.
    pub file: String,
    /// Milliseconds from the start, none before its predecessor; each carries [`OPPORTUNITY`].
    /// After the last one everything repeats, shifted by it; so it is above zero.
    pub opportunities: Vec<u64>,
}

impl CapacityTrace {
    /// Reads the text of a trace file.
    ///
    /// # Errors
    /// The line, counted from one (zero: the file as a whole), and what is wrong with it.
    pub fn parse(file: &str, text: &str) -> Result<Self, (usize, &'static str)> {
        let mut opportunities = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let at: u64 = line
                .trim()
                .parse()
                .ok()
                .filter(|at| *at <= LONGEST)
                .ok_or((index + 1, NOT_A_TIME))?;
            if opportunities.last().is_some_and(|last| at < *last) {
                return Err((index + 1, BACKWARDS));
            }
            opportunities.push(at);
        }
        match opportunities.last() {
            None => Err((0, EMPTY)),
            Some(0) => Err((0, NO_LENGTH)),
            Some(_) => Ok(Self {
                file: file.to_owned(),
                opportunities,
            }),
        }
    }

    /// After how long it repeats.
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.opportunities.last().copied().unwrap_or(0))
    }

    /// Its mean.
    pub fn mean_rate(&self) -> Rate {
        OPPORTUNITY.scale(self.opportunities.len() as u64, 1) / self.period()
    }
}

/// A week: long enough for any recording, short enough that sums of periods do not overflow.
const LONGEST: u64 = 7 * 24 * 3_600_000;
const NOT_A_TIME: &str =
    "this is no moment; write one whole number of milliseconds per line, at most a week";
const BACKWARDS: &str = "this moment is before the one above; sort the lines";
const EMPTY: &str = "the trace is empty; write one moment of delivery (ms) per line";
const NO_LENGTH: &str = "the trace ends at 0 ms, so it has no length; end it with a later moment";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_moments_a_period_and_a_mean() {
        let trace = CapacityTrace::parse("t", "0\n5\n5\n10\n").unwrap();
        assert_eq!(trace.opportunities, [0, 5, 5, 10]);
        assert_eq!(trace.period(), Duration::from_millis(10));
        // 4 * 1504 * 8 bits in 10 ms.
        assert_eq!(trace.mean_rate(), Rate::bps(4_812_800));
    }

    #[test]
    fn faults_name_their_line() {
        for (text, fault) in [
            ("", (0, EMPTY)),
            ("0\n0\n", (0, NO_LENGTH)),
            ("1\nx\n", (2, NOT_A_TIME)),
            ("1\n\n2\n", (2, NOT_A_TIME)),
            ("1\n-1\n", (2, NOT_A_TIME)),
            ("18446744073709551615\n", (1, NOT_A_TIME)),
            ("3\n2\n", (2, BACKWARDS)),
        ] {
            assert_eq!(CapacityTrace::parse("t", text), Err(fault), "{text:?}");
        }
    }
}
