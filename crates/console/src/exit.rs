//! Exit codes of the program.

use std::fmt::{self, Display};
use std::io::{self, ErrorKind};

use crate::describe;

/// An expectation does not hold.
pub const EXPECTATION_FAILS: u8 = 1;
/// Arguments, files or configuration are invalid. Also clap's code of usage errors.
pub const BAD_INPUT: u8 = 2;
/// The machine, the network or the other end does not provide what the command needs.
pub const ENVIRONMENT: u8 = 3;
/// The machine was too busy to judge an expectation (`EX_TEMPFAIL` of `sysexits.h`).
pub const INCONCLUSIVE: u8 = 75;
/// Ctrl-C ended the command, as a shell reports it.
pub const INTERRUPTED: u8 = 130;

/// Exit codes for `--help`.
pub const HELP: &str = "Exit codes: 0 success, 1 an expectation fails, 2 invalid arguments, files \
    or configuration, 3 the machine, the network or the other end fails (no privilege, missing \
    device, port in use, full disk, no stream), 75 inconclusive on a busy machine, 130 Ctrl-C";

/// Error of the machine, the network or the other end. Its exit code is [`ENVIRONMENT`].
#[derive(Debug)]
pub struct EnvironmentError(String);

impl EnvironmentError {
    /// An error with a message that names the object and the fix.
    pub fn new(message: impl Display) -> Self {
        Self(message.to_string())
    }

    /// Classifies an error and keeps its message.
    pub fn of(error: impl Into<anyhow::Error>) -> Self {
        Self(describe(&error.into()))
    }
}

impl Display for EnvironmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EnvironmentError {}

/// Whether an error of the system is one of the environment. The others are those of a path or of
/// data that the user gives.
pub fn is_of_environment(error: &io::Error) -> bool {
    use ErrorKind as Kind;
    !matches!(
        error.kind(),
        Kind::NotFound
            | Kind::AddrNotAvailable
            | Kind::AlreadyExists
            | Kind::InvalidData
            | Kind::InvalidFilename
            | Kind::InvalidInput
            | Kind::IsADirectory
            | Kind::NotADirectory
            | Kind::UnexpectedEof
    )
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn errors_of_given_paths_are_bad_input() {
        for kind in [ErrorKind::NotFound, ErrorKind::IsADirectory] {
            assert!(!is_of_environment(&kind.into()), "{kind:?}");
        }
        for kind in [
            ErrorKind::StorageFull,
            ErrorKind::AddrInUse,
            ErrorKind::PermissionDenied,
        ] {
            assert!(is_of_environment(&kind.into()), "{kind:?}");
        }
    }

    #[test]
    fn a_classified_error_keeps_its_message() {
        let error = anyhow!("no such program").context("cannot show pictures");
        let error = EnvironmentError::of(error).to_string();
        assert_eq!(error, "cannot show pictures: no such program");
    }
}
