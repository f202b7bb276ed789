//! Aims and whether they hold.

use std::fmt;

/// An aim and its measurement.
pub(crate) struct Verdict {
    /// Quantity and limit.
    pub(crate) aim: &'static str,
    /// Value in the unit of the aim.
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
