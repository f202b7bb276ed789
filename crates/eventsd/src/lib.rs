//! The event daemon: the program `tidegate-eventsd`, and `tidegate events serve`.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tidegate_kernel::{
    EventsError, LoadError, Policy, ServeError, Server, default_path, hangups, interruptions,
};

/// Options of the daemon.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// Socket of the daemon [default: the socket that systemd passes, else `TIDEGATE_EVENTS_SOCKET`,
    /// else /run/tidegate/events.sock]
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

/// Serves until SIGINT or SIGTERM. SIGHUP reads the policy again. After its start the process has
/// one capability (`CAP_BPF`) and makes the system calls of a serving daemon only. The calling
/// process has one thread.
///
/// # Errors
///
/// The policy is invalid, the programs cannot be loaded, or the socket cannot be used. The message
/// names the fix.
pub fn run(args: &ServeArgs) -> Result<ExitCode> {
    let policy = match &args.policy {
        Some(path) => Policy::load(path)?,
        None => Policy::root_only(),
    };
    if args.check {
        check(&policy)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut log = log();
    for note in policy.notes() {
        log(&format!("policy: {note}"));
    }
    // Signals are blocked before the first thread starts.
    let (stop, reload) = (interruptions()?, hangups()?);
    let mut server = Server::new(policy, log)?;
    if args.quiet {
        server.hush();
    }
    let socket = listen(&mut server, args)?;
    server.reload_policy_on(reload, args.policy.as_deref());
    server.drop_privileges(args.user.as_deref())?;
    server.restrict_system_calls()?;
    server.announce(&format!("serving at {}", socket.display()));
    if args.policy.is_none() {
        server.announce("no --policy: only root may subscribe");
    }
    server.run(stop.as_fd()).context("the daemon failed")?;
    server.announce("stopping; unloading the BPF programs");
    Ok(ExitCode::SUCCESS)
}

/// Whether an error is one of the machine or of another process: exit code 3. Other errors are those
/// of arguments and of the policy: exit code 2.
pub fn is_environment(cause: &(dyn std::error::Error + 'static)) -> bool {
    let of_daemon = cause.downcast_ref().is_some_and(|error| {
        use ServeError as Error;
        matches!(
            error,
            Error::InUse(_)
                | Error::Others(_)
                | Error::Privileges(_)
                | Error::Seccomp(_)
                | Error::Signals(_)
                | Error::Socket { .. }
        )
    });
    of_daemon || cause.is::<EventsError>() || cause.is::<LoadError>()
}

/// Listens, and returns the path.
fn listen(server: &mut Server, args: &ServeArgs) -> Result<PathBuf> {
    if let Some(path) = server.listen_inherited()? {
        if let Some(other) = &args.socket {
            bail!(
                "the service manager passes the socket {}, so --socket {} has no effect: omit it",
                path.display(),
                other.display()
            );
        }
        return Ok(path);
    }
    let path = args.socket.clone().unwrap_or_else(default_path);
    server.listen(&path)?;
    Ok(path)
}

/// The log at standard error, from which journald reads it. A line is dropped, and counted, if its
/// write would block: a terminal that is held or a full pipe delays no client. Write errors are
/// ignored: the daemon serves without a log.
fn log() -> impl FnMut(&str) + Send {
    let mut dropped = 0_u64;
    move |line| {
        let mut log = io::stderr().lock();
        let mut room = [PollFd::new(&log, PollFlags::OUT)];
        if poll(&mut room, Some(&Timespec::default())) == Ok(0) {
            dropped += 1;
            return;
        }
        let mut text = format!("events: {line}\n");
        if dropped > 0 {
            text = format!("events: {dropped} lines dropped, since the log was not read\n{text}");
            dropped = 0;
        }
        let _ = log.write_all(text.as_bytes());
    }
}

/// Prints whether the policy is valid, and its probable mistakes.
fn check(policy: &Policy) -> Result<()> {
    let mut text = String::from("the policy is valid\n");
    if !policy.notes().is_empty() {
        text = String::from("the policy is valid, with warnings:\n");
    }
    for note in policy.notes() {
        let _ = writeln!(text, "  {note}");
    }
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // As in `--check | head -1`.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write standard output"),
    }
}
