//! Recorded capacity in the format of mahimahi: one line per delivery opportunity, in milliseconds.

use tidegate_core::link::{Trace, TraceError};

/// Recorded delivery times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityTrace {
    /// File name in the scenario.
    pub file: String,
    /// The times in milliseconds from the start, in ascending order. The last one is also the
    /// period after which all times repeat. For users that do not need `trace`, as the offline
    /// optimum.
    pub millis: Vec<u32>,
    /// The same times as input of a link.
    pub trace: Trace,
}

impl CapacityTrace {
    /// Parses the text of a trace file.
    ///
    /// # Errors
    /// [`TraceError`] with the line.
    pub fn parse(file: &str, text: &str) -> Result<Self, TraceError> {
        let trace = Trace::parse(text)?;
        Ok(Self {
            file: file.to_owned(),
            millis: text
                .lines()
                .filter_map(|line| line.trim().parse().ok())
                .collect(),
            trace,
        })
    }
}
