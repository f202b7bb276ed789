//! JSON output of a live session: a summary at the end, and an object per second.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use tidegate_core::units::Time;
use tidegate_record::Summary;

use tidegate_console::output::{output, print_json};

/// Options of JSON output.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct JsonArgs {
    /// Print the summary as one JSON object at the end
    #[arg(long)]
    json: bool,
    /// Print a JSON object per second while the stream runs, and the summary as the last line
    #[arg(long, conflicts_with = "json")]
    json_lines: bool,
}

impl JsonArgs {
    /// Whether the summary is printed.
    pub(crate) fn summary(self) -> bool {
        self.json || self.json_lines
    }

    /// Prints the summary, if it is requested.
    ///
    /// # Errors
    /// Standard output is closed or full.
    pub(crate) fn print(self, summary: Option<&Summary>) -> Result<()> {
        summary
            .filter(|_| self.summary())
            .map_or(Ok(()), print_json)
    }

    /// Output of an object per second, if it is requested.
    pub(crate) fn lines(self) -> Option<JsonLines> {
        self.json_lines.then_some(JsonLines {
            next: Time::ZERO + INTERVAL,
        })
    }
}

/// Schedule of the objects. Times are those of the session's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonLines {
    next: Time,
}

impl JsonLines {
    /// Prints an object on a line, if one is due. A write error appears again when the summary is
    /// printed, and ends the session there.
    pub(crate) fn print_if_due(&mut self, now: Time, object: impl FnOnce() -> serde_json::Value) {
        if self.is_due(now) {
            let mut out = output();
            let _ = writeln!(out, "{}", object()).and_then(|()| out.flush());
        }
    }

    /// After a pause only one object is due.
    fn is_due(&mut self, now: Time) -> bool {
        if now < self.next {
            return false;
        }
        self.next += INTERVAL;
        if self.next <= now {
            self.next = now + INTERVAL;
        }
        true
    }
}

/// Rounds a number of an object to three decimals.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

const INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_due_once_per_second() {
        let json = JsonArgs {
            json: false,
            json_lines: true,
        };
        let mut lines = json.lines().unwrap();
        let due = |lines: &mut JsonLines, ms| lines.is_due(Time::ZERO + Duration::from_millis(ms));
        assert!(!due(&mut lines, 999) && due(&mut lines, 1_010) && !due(&mut lines, 1_990));
        assert!(due(&mut lines, 2_000) && due(&mut lines, 7_500) && !due(&mut lines, 7_501));
    }
}
