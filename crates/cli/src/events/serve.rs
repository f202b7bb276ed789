//! `tidegate events serve`.

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use tidegate_kernel::{Policy, Server, default_path, interruptions};

use tidegate_console::output::output;
use tidegate_console::progress::say;

/// How to serve.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Where applications find the daemon; `TIDEGATE_EVENTS_SOCKET` or /run/tidegate/events.sock
    /// unless told
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Who may subscribe to what and read what; only root and everything unless told
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Become this user, by name or number, once the programs are in the kernel; the group is the
    /// user's own unless told, and has to be told of a number that no user has
    #[arg(long, value_name = "USER[:GROUP]")]
    user: Option<String>,
    /// Say nothing of clients that come, go or are refused
    #[arg(long)]
    quiet: bool,
    /// Read the policy, say what is wrong with it, and go
    #[arg(long, requires = "policy")]
    check: bool,
}

/// Serves until SIGINT or SIGTERM.
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
        say(format_args!("events: the policy: {note}"));
    }
    // Before there are threads.
    let stop = interruptions().context("SIGINT and SIGTERM cannot be taken")?;
    let log = |line: &str| say(format_args!("events: {line}"));
    let mut server = Server::new(policy, log)?;
    if args.quiet {
        server.hush();
    }
    let socket = args.socket.clone().unwrap_or_else(default_path);
    server.listen(&socket)?;
    server.drop_privileges(args.user.as_deref())?;
    // From here on through the log, for which nobody waits.
    server.announce(&format!("serving at {}", socket.display()));
    if args.policy.is_none() {
        server.announce("no --policy: only root may subscribe");
    }
    server
        .run(stop.as_fd())
        .context("the daemon cannot go on")?;
    server.announce("ends, and takes its programs out of the kernel");
    Ok(ExitCode::SUCCESS)
}

/// Says that the policy can be used, and what in it is hardly meant.
fn check(policy: &Policy) -> io::Result<()> {
    let mut out = output();
    if policy.notes().is_empty() {
        return writeln!(out, "the policy is right");
    }
    writeln!(out, "the policy can be used, but:")?;
    for note in policy.notes() {
        writeln!(out, "  {note}")?;
    }
    Ok(())
}
