//! Checks before listening or connecting that the system supports the options. An error after that
//! would break the stream of the first player, and of all that wait behind it.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;
use tidegate_console::exit::EnvironmentError;

use anyhow::{Context as _, Result, ensure};
use tidegate_core::tcp_rate::{Mode, Subscription, TcpEvent};
use tidegate_kernel::{Connection, EventSet, Events, default_path, set_congestion_control};
use tidegate_live::tcp::set_rto_max;

use super::TcpArgs;
use super::modes::EventsFrom;
use super::rates::{Channel, Incoming, Outgoing, file};

/// # Errors
/// The system does not support the value of an option. The message names the option and the
/// alternatives.
pub(crate) fn ready(args: &TcpArgs) -> Result<()> {
    if let Some(name) = &args.congestion {
        congestion(name)?;
    }
    if let Some(span) = args.rto_max {
        rto_max(span)?;
    }
    if let (Some(mode), Some(from)) = (args.choice().symbiosis(), args.modes.events_from) {
        events(from, args.modes.subscribed(mode))?;
    }
    if let Some(Channel::File(path)) = &args.rate_from {
        file::readable(path)?;
    }
    if let Some(Channel::File(path)) = &args.rate_to {
        file::writable(path)?;
    }
    // Opened again for each player.
    args.rate_from.as_ref().map(Incoming::open).transpose()?;
    args.rate_to.as_ref().map(Outgoing::open).transpose()?;
    Ok(())
}

/// Notes on modes that differ from what the options suggest.
pub(crate) fn remarks(args: &TcpArgs) -> Vec<String> {
    let growth = args.congestion.clone().or_else(|| setting(USUAL));
    let choice = args.choice();
    let silent = args.modes.is_without_events().then(|| {
        "--flags with itcp but without event is not in Table 3: no events are delivered, so the \
        mode is classic"
            .to_owned()
    });
    let unknown = growth.filter(|name| !FORECAST.contains(&name.as_str()));
    let planned = choice.symbiosis().is_some_and(Mode::is_exact);
    let guessed = unknown.filter(|_| planned).map(|name| {
        format!(
            "the window growth of {name} is unknown, so the forecast assumes Reno; forecasts \
            exist for --congestion reno, cubic and bbr"
        )
    });
    silent.into_iter().chain(guessed).collect()
}

/// Checks that the event source is available and may report all events of the mode.
fn events(from: EventsFrom, subscribed: Subscription) -> Result<()> {
    let (source, who, fix) = match from {
        EventsFrom::Daemon => {
            let path = default_path();
            let source = Events::connect(&path).context(
                "--events-from daemon is unavailable: leave it out, or choose in-process or \
                unprivileged",
            )?;
            let who = format!("the policy of the event daemon at {}", path.display());
            let who = format!("{who} does not allow this user");
            (source, who, format!("ask the administrator, {OTHERWISE}"))
        }
        EventsFrom::InProcess => {
            let source = Events::in_process().context(
                "--events-from in-process is unavailable: leave it out, or choose daemon or \
                unprivileged",
            )?;
            let who = "this kernel does not report".to_owned();
            (source, who, OTHERWISE.to_owned())
        }
        EventsFrom::Unprivileged => return Ok(()),
    };
    let allowed = source.allowed().events;
    let missing = Connection::kinds(subscribed).without(allowed);
    ensure!(
        missing.is_empty(),
        EnvironmentError::new(format_args!(
            "{who} {missing}, which the mode requires: {fix}{}",
            reduced_subscription(subscribed, allowed)
        ))
    );
    Ok(())
}

/// Option that requests only allowed events. Empty if none is allowed.
fn reduced_subscription(subscribed: Subscription, allowed: EventSet) -> String {
    let is_allowed = |event: &TcpEvent| {
        let kinds = Connection::kinds(Subscription::of(&[*event]));
        !kinds.and(allowed).is_empty()
    };
    let left = subscribed.iter().filter(is_allowed).map(TcpEvent::name);
    let left: Vec<&str> = left.collect();
    if left.is_empty() {
        return String::new();
    }
    format!("; --subscribe {} is allowed", left.join(","))
}

/// Sets the algorithm on a temporary socket.
fn congestion(name: &str) -> Result<()> {
    // If no socket can be created, the connection attempt reports the reason.
    let Ok(socket) = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) else {
        return Ok(());
    };
    set_congestion_control(&socket, name).with_context(|| {
        let there = setting(AVAILABLE).unwrap_or_default();
        format!("--congestion {name} is unavailable: choose one of {there}, or load its module")
    })
}

/// Checks the limit of retransmission timeouts in the same way.
///
/// # Errors
/// The kernel has no such option.
pub(crate) fn rto_max(span: Duration) -> Result<()> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) {
        Ok(socket) => rto_max_of(socket.as_fd(), span),
        Err(_) => Ok(()),
    }
}

fn rto_max_of(socket: BorrowedFd<'_>, span: Duration) -> Result<()> {
    set_rto_max(socket, span).with_context(|| {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let release = release.trim();
        format!(
            "--rto-max requires Linux 6.15 (TCP_RTO_MAX_MS), and this is {release}, whose timeouts \
            double up to 120 s: leave it out, or use a newer kernel"
        )
    })
}

fn setting(name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
    Some(text.trim().to_owned())
}

const AVAILABLE: &str = "tcp_available_congestion_control";
const USUAL: &str = "tcp_congestion_control";
const OTHERWISE: &str = "leave --events-from out, or choose unprivileged";
/// Algorithms with a known window growth.
const FORECAST: [&str; 3] = ["reno", "cubic", "bbr"];

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        // Conflicts with `--serve`.
        #[arg(long)]
        to: Option<String>,
        #[command(flatten)]
        tcp: TcpArgs,
    }

    fn args(line: &str) -> TcpArgs {
        let words = ["send"].into_iter().chain(line.split_whitespace());
        let line = Line::try_parse_from(words).unwrap();
        assert_eq!(line.to, None);
        line.tcp
    }

    #[test]
    fn unsupported_values_are_named_with_the_alternatives() {
        for (line, culprit, fix) in [
            ("--congestion nosuch", "nosuch", "reno"),
            ("--rate-to file:/nosuch/x", "/nosuch/x", "--rate-to"),
            ("--rate-to file:/", "\"/\"", "--rate-to"),
        ] {
            let error = format!("{:#}", ready(&args(line)).unwrap_err());
            assert!(error.contains(culprit), "{line}: {error}");
            assert!(error.contains(fix), "{line}: {error}");
        }
        ready(&args("--congestion reno")).unwrap();
    }

    /// A UDP socket rejects TCP options with `ENOPROTOOPT`, like an older kernel.
    #[test]
    fn a_kernel_without_rto_max_is_reported_before_a_connection() {
        let older = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let error = rto_max_of(older.as_fd(), Duration::from_secs(2)).unwrap_err();
        let error = tidegate_console::describe(&error);
        for part in [
            "--rto-max",
            "6.15",
            "leave it out",
            "Protocol not available",
        ] {
            assert!(error.contains(part), "{error}");
        }
        // No kernel accepts a millisecond; the option's parser would reject it.
        let mut short = args("");
        short.rto_max = Some(Duration::from_millis(1));
        let error = ready(&short).unwrap_err().to_string();
        assert!(error.contains("--rto-max requires Linux 6.15"), "{error}");
    }

    #[test]
    fn misleading_modes_are_noted() {
        for (line, part) in [
            ("--flags itcp,opt --congestion reno", "the mode is classic"),
            ("--flags itcp --congestion reno", "the mode is classic"),
            ("--mode iopt --congestion vegas", "vegas"),
        ] {
            let [said] = &remarks(&args(line))[..] else {
                panic!("one line for {line}");
            };
            assert!(said.contains(part), "{line}: {said}");
        }
        for line in [
            "--mode classic --congestion vegas",
            "--flags itcp,event --congestion reno",
            "--mode iopt --congestion cubic",
            "--mode iopt --law paper --congestion vegas",
        ] {
            assert_eq!(remarks(&args(line)), [""; 0], "{line}");
        }
    }
}
