//! Whether an aim holds.

use std::fmt;

/// What was aimed at and what was measured.
pub(crate) struct Verdict {
    /// What, and how much or little of it.
    pub(crate) aim: &'static str,
    /// In the unit of the aim.
    pub(crate) measured: String,
    pub(crate) holds: bool,
}

/// One line: `holds` or `FAILS`, the aim, the value.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.holds { "holds" } else { "FAILS" };
        write!(f, "{word}  {}: {}", self.aim, self.measured)
    }
}
