//! `tidegate events serve`: the event daemon.

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use tidegate_kernel::{Policy, Server, default_path, hangups, interruptions};

use tidegate_console::output::output;
use tidegate_console::progress::say;

/// Arguments of `tidegate events serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Socket of the daemon [default: `TIDEGATE_EVENTS_SOCKET` or /run/tidegate/events.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Policy file: permitted users, events and variables [default: root, everything]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Run as this user (name or number) once the BPF programs are loaded [default group: the
    /// user's; required for a number without a user]
    #[arg(long, value_name = "USER[:GROUP]")]
    user: Option<String>,
    /// Do not log connections, disconnections and rejections of clients
    #[arg(long)]
    quiet: bool,
    /// Check the policy, print its problems and exit
    #[arg(long, requires = "policy")]
    check: bool,
}

/// Serves until SIGINT or SIGTERM. SIGHUP reads the policy again.
pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode> {
    let policy = match &args.policy {
        Some(path) => Policy::load(path)?,
        None => Policy::root_only(),
    };
    if args.check {
        check(&policy)?;
        return Ok(ExitCode::SUCCESS);
    }
    for note in policy.notes() {
        say(format_args!("events: policy: {note}"));
    }
    // Signals are blocked before the first thread starts.
    let stop = interruptions()?;
    let reload = hangups()?;
    let log = |line: &str| say(format_args!("events: {line}"));
    let mut server = Server::new(policy, log)?;
    if args.quiet {
        server.hush();
    }
    let socket = args.socket.clone().unwrap_or_else(default_path);
    server.listen(&socket)?;
    server.reload_policy_on(reload, args.policy.as_deref());
    server.drop_privileges(args.user.as_deref())?;
    // From here on messages go through the log, which never blocks the server.
    server.announce(&format!("serving at {}", socket.display()));
    if args.policy.is_none() {
        server.announce("no --policy: only root may subscribe");
    }
    server.run(stop.as_fd()).context("the daemon failed")?;
    server.announce("stopping; unloading the BPF programs");
    Ok(ExitCode::SUCCESS)
}

/// Prints whether the policy is valid, and its probable mistakes.
fn check(policy: &Policy) -> io::Result<()> {
    let mut out = output();
    if policy.notes().is_empty() {
        return writeln!(out, "the policy is valid");
    }
    writeln!(out, "the policy is valid, with warnings:")?;
    for note in policy.notes() {
        writeln!(out, "  {note}")?;
    }
    Ok(())
}
