//! `tidegate events`: what the kernel's TCP goes through, as it happens.

mod serve;
mod show;
mod transfer;
mod watch;

use std::process::ExitCode;

use anyhow::Result;

/// Events of the kernel's TCP.
#[derive(Debug, clap::Args)]
pub(crate) struct EventsArgs {
    #[command(subcommand)]
    verb: EventsVerb,
}

#[derive(Debug, clap::Subcommand)]
enum EventsVerb {
    /// Serve the events of their own sockets to applications, as a policy allows; needs root to
    /// start
    Serve(serve::ServeArgs),
    /// Make a transfer over a path that loses packets and print what TCP goes through
    Watch(watch::WatchArgs),
}

/// Serves or watches.
pub(crate) fn run(args: &EventsArgs) -> Result<ExitCode> {
    match &args.verb {
        EventsVerb::Serve(args) => serve::run(args),
        EventsVerb::Watch(args) => watch::run(args),
    }
}
