//! `tidegate events`: live events of the kernel's TCP.

mod show;
mod transfer;
mod watch;

use std::process::ExitCode;

use anyhow::Result;

/// Arguments of `tidegate events`.
#[derive(Debug, clap::Args)]
pub(crate) struct EventsArgs {
    #[command(subcommand)]
    verb: EventsVerb,
}

#[derive(Debug, clap::Subcommand)]
enum EventsVerb {
    /// Serve TCP events of their own sockets to applications, subject to a policy (requires root at
    /// start)
    Serve(tidegate_eventsd::ServeArgs),
    /// Run a transfer over a lossy path and print its TCP events
    Watch(watch::WatchArgs),
}

/// Runs the selected subcommand.
pub(crate) fn run(args: &EventsArgs) -> Result<ExitCode> {
    match &args.verb {
        EventsVerb::Serve(args) => tidegate_eventsd::run(args),
        EventsVerb::Watch(args) => watch::run(args),
    }
}
