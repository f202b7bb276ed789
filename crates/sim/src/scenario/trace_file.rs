//! Recorded capacity in the format of mahimahi: one line per delivery opportunity, in milliseconds.

use tidegate_core::link::{Trace, TraceError};

/// Recorded moments of delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityTrace {
    /// As the scenario names the file.
    pub file: String,
    /// The moments in milliseconds from the start, none before its predecessor. The last one is
    /// also the period after which all repeat. For those who do without `trace`, as the oracle.
    pub millis: Vec<u32>,
    /// The same for links.
    pub trace: Trace,
}

impl CapacityTrace {
    /// Reads the text of a trace file.
    ///
    /// # Errors
    /// [`TraceError`], with the line.
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
