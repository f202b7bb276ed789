//! The program `tidegate-eventsd`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;
use tidegate_eventsd::ServeArgs;

/// Serve TCP events of their own sockets to applications, subject to a policy
#[derive(Debug, Parser)]
#[command(
    name = "tidegate-eventsd",
    version,
    after_help = "Exit codes: 0 success, 2 invalid arguments or policy, 3 the machine fails (no \
        privilege, unsupported kernel, socket in use)"
)]
struct Arguments {
    #[command(flatten)]
    serve: ServeArgs,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tidegate_eventsd::run(&arguments.serve).unwrap_or_else(|e| {
        // A closed standard error is no reason to panic.
        let _ = writeln!(io::stderr(), "tidegate-eventsd: {e:#}");
        let of_environment = e
            .chain()
            .any(|cause| cause.is::<io::Error>() || tidegate_eventsd::is_environment(cause));
        ExitCode::from(if of_environment {
            ENVIRONMENT
        } else {
            BAD_INPUT
        })
    })
}

/// Exit codes, as those of `tidegate`.
const BAD_INPUT: u8 = 2;
const ENVIRONMENT: u8 = 3;
