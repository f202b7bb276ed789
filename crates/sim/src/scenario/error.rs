//! Errors of scenario files: location, cause and fix.

use core::fmt;

use tidegate_core::link::TraceError;
use tidegate_core::quantity::QuantityError;
use tidegate_record::ExpectError;

use super::recorded_path::RecordedError;

/// The first error of a scenario file.
///
/// Displayed as `file:line: place: key: cause; fix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// Path of the file, as the caller gave it.
    pub file: String,
    /// Line number from one; absent if the file could not be read.
    pub line: Option<usize>,
    /// The table, as `link "uplink"`; empty for keys before the first table.
    pub table: String,
    /// The key; empty if the error concerns the whole table.
    pub key: String,
    /// Cause and fix. Boxed to keep `Result` small.
    pub fault: Box<Fault>,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        for part in [&self.table, &self.key] {
            if !part.is_empty() {
                write!(f, ": {part}")?;
            }
        }
        write!(f, ": {}", self.fault)
    }
}

impl core::error::Error for ScenarioError {}

/// Cause of an error in a scenario file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A word that is not one of the allowed values.
    Choice {
        /// The text in the file.
        value: String,
        /// The allowed values.
        allowed: &'static [&'static str],
    },
    /// Keys that exclude or require each other.
    Conflict {
        /// The cause.
        why: String,
        /// The fix.
        fix: String,
    },
    /// A name that is used twice.
    Duplicate {
        /// The name.
        name: String,
        /// Line of its first use.
        first: usize,
    },
    /// An expectation that cannot be evaluated.
    Expect(ExpectError),
    /// A key is missing.
    Missing {
        /// An example line.
        example: &'static str,
    },
    /// A reference to an object that does not exist.
    Name {
        /// Type of the object: "link" or "flow".
        what: &'static str,
        /// The text in the file.
        value: String,
        /// The existing names.
        known: Vec<String>,
    },
    /// A number with a unit is malformed.
    Quantity(QuantityError),
    /// A value outside its range.
    Range {
        /// The cause, with the value.
        why: String,
        /// The fix, with the allowed range.
        fix: String,
    },
    /// A recorded path is malformed.
    Recorded {
        /// The file.
        file: String,
        /// The cause, with its line.
        cause: RecordedError,
    },
    /// A controller or one of its options is invalid: cause and fix.
    Setting(String),
    /// The file is not valid TOML.
    Syntax(String),
    /// A trace file is malformed.
    Trace {
        /// The trace file.
        file: String,
        /// The cause, with the line of the trace file.
        cause: TraceError,
    },
    /// A value of the wrong type.
    Type {
        /// The type in the file.
        found: &'static str,
        /// The required type.
        wanted: &'static str,
    },
    /// A key that does not exist here.
    UnknownKey {
        /// The allowed keys.
        allowed: &'static [&'static str],
        /// The most similar key, or the table that has this key.
        hint: Option<String>,
    },
    /// A file could not be read.
    Unreadable {
        /// Name of the file, unless it is the scenario itself.
        file: String,
        /// Reason given by the operating system.
        why: String,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Choice { value, allowed } => {
                write!(f, "\"{value}\" is not known here; use {}", one_of(allowed))
            }
            Self::Conflict { why, fix } | Self::Range { why, fix } => write!(f, "{why}; {fix}"),
            Self::Duplicate { name, first } => write!(
                f,
                "the name \"{name}\" is already used in line {first}; choose another"
            ),
            Self::Expect(error) => error.fmt(f),
            Self::Missing { example } => write!(f, "is missing; add, for example, {example}"),
            Self::Name { what, value, known } if known.is_empty() => {
                write!(
                    f,
                    "there is no {what} \"{value}\", nor any other; add a [[{what}]]"
                )
            }
            Self::Name { what, value, known } => write!(
                f,
                "there is no {what} \"{value}\"; use {}",
                one_of(&known.iter().map(String::as_str).collect::<Vec<_>>())
            ),
            Self::Quantity(error) => error.fmt(f),
            Self::Setting(text) => f.write_str(text),
            Self::Syntax(message) => write!(f, "invalid TOML: {message}"),
            Self::Recorded { file, cause } => write!(f, "{file}: {cause}"),
            Self::Trace { file, cause } => write!(f, "{file}: {cause}"),
            Self::Type { found, wanted } => write!(f, "is {found}; write {wanted}"),
            Self::UnknownKey { allowed, hint } => {
                f.write_str("no such key")?;
                if let Some(hint) = hint {
                    write!(f, "; {hint}")?;
                }
                // A hint that ends in a question mark starts a new sentence after it.
                let asks = hint.as_ref().is_some_and(|hint| hint.ends_with('?'));
                f.write_str(if asks { " The" } else { "; the" })?;
                write!(f, " keys here are {}", allowed.join(", "))
            }
            Self::Unreadable { file, why } => {
                write!(f, "cannot read {file}: {why}; check the path")
            }
        }
    }
}

fn one_of(words: &[&str]) -> String {
    words
        .iter()
        .map(|word| format!("\"{word}\""))
        .collect::<Vec<_>>()
        .join(" or ")
}
