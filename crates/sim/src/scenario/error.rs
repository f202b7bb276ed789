//! Errors of scenario files: location, cause and fix.

use core::fmt;

use tidegate_core::link::TraceError;

use super::quantity::QuantityError;
use crate::run::ExpectError;

/// The first error of a scenario file.
///
/// Displayed as `file:line: place: key: cause; fix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The file as it was named to us.
    pub file: String,
    /// Counted from one; absent when the file could not be read at all.
    pub line: Option<usize>,
    /// The table, as `link "uplink"`; empty at the head of the file.
    pub place: String,
    /// The key at fault; empty when the table as a whole is.
    pub key: String,
    /// What is wrong. In a box, since an error is rare and a result is not.
    pub fault: Box<Fault>,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        for part in [&self.place, &self.key] {
            if !part.is_empty() {
                write!(f, ": {part}")?;
            }
        }
        write!(f, ": {}", self.fault)
    }
}

impl core::error::Error for ScenarioError {}

/// What is wrong with a scenario file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A word that is none of those allowed.
    Choice {
        /// As it was written.
        value: String,
        /// What may stand here.
        allowed: &'static [&'static str],
    },
    /// Two keys exclude or need each other.
    Clash {
        /// What is the matter.
        why: String,
        /// What to write.
        mend: String,
    },
    /// Two things of one name.
    Duplicate {
        /// The name.
        name: String,
        /// Where it was used first.
        first: usize,
    },
    /// A statement about the outcome that cannot be judged.
    Expect(ExpectError),
    /// A key is missing.
    Missing {
        /// A line that would do.
        example: &'static str,
    },
    /// A reference to something that does not exist.
    Name {
        /// What should have this name: "link" or "flow".
        what: &'static str,
        /// As it was written.
        value: String,
        /// The names that exist.
        known: Vec<String>,
    },
    /// A number with a unit is malformed.
    Quantity(QuantityError),
    /// A value outside its range.
    Range {
        /// What is the matter, with the value.
        why: String,
        /// What may stand here.
        mend: String,
    },
    /// This is no TOML.
    Syntax(String),
    /// A trace file is malformed.
    Trace {
        /// The trace file.
        file: String,
        /// What is the matter, with its line.
        cause: TraceError,
    },
    /// A value of the wrong type.
    Type {
        /// What it is.
        found: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// A key that does not exist here.
    UnknownKey {
        /// Those that do.
        allowed: &'static [&'static str],
        /// What was probably meant, or where the key belongs.
        hint: Option<String>,
    },
    /// A file could not be read.
    Unreadable {
        /// Which, where it is not the file of the error.
        file: String,
        /// The system's reason.
        why: String,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Choice { value, allowed } => {
                write!(f, "\"{value}\" is not known here; use {}", one_of(allowed))
            }
            Self::Clash { why, mend } | Self::Range { why, mend } => write!(f, "{why}; {mend}"),
            Self::Duplicate { name, first } => write!(
                f,
                "the name \"{name}\" is taken since line {first}; choose another"
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
            Self::Syntax(message) => write!(f, "this is no TOML: {message}"),
            Self::Trace { file, cause } => write!(f, "{file}: {cause}"),
            Self::Type { found, wanted } => write!(f, "is {found}; write {wanted}"),
            Self::UnknownKey { allowed, hint } => {
                f.write_str("no such key")?;
                if let Some(hint) = hint {
                    write!(f, "; {hint}")?;
                }
                // A question has its own end.
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
