//! The program `tidegate-eventsd`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;
use tidegate_eventsd::ServeArgs;

/// Serve TCP events of their own sockets to applications, subject to a policy
#[derive(Debug, Parser)]
#[command(name = "tidegate-eventsd", version)]
struct Arguments {
    #[command(flatten)]
    serve: ServeArgs,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tidegate_eventsd::run(&arguments.serve).unwrap_or_else(|e| {
        // A closed standard error is no reason to panic.
        let _ = writeln!(io::stderr(), "tidegate-eventsd: {e:#}");
        ExitCode::FAILURE
    })
}
