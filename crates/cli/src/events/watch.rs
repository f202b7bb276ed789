//! `tidegate events watch`: a transfer and its TCP events.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use tidegate_core::quantity;
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate};
use tidegate_kernel::{
    Event, EventRequest, EventSet, Events, EventsError, Snapshot, Variable, VariableSet, monotonic,
};
use tidegate_live::driver::{Interrupts, StopFlag};

use super::show;
use super::transfer::{ConnectLimits, Connection, GLANCE, Path};
use crate::lab;
use tidegate_console::output::output;
use tidegate_console::progress::{counted, say};
use tidegate_console::signals;

/// Arguments of `tidegate events watch`.
#[derive(Debug, clap::Args)]
pub(crate) struct WatchArgs {
    /// Send to this host, which must discard the data, rather than over an emulated path
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = PATH)]
    to: Option<String>,
    /// Rate of the emulated path
    #[arg(long, value_name = "RATE", default_value = "8Mb/s", value_parser = path_rate)]
    rate: Rate,
    /// One-way delay of the path
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = quantity::duration)]
    delay: Duration,
    /// Queue of the path
    #[arg(long, value_name = "SIZE", default_value = "60kB", value_parser = queue)]
    queue: Bytes,
    /// Packet loss of the path
    #[arg(long, value_name = "SHARE", default_value = "0.1%", value_parser = loss)]
    loss: f64,
    /// Outage of the path: start and length, such as `4s+1s`
    #[arg(long, value_name = "TIME+TIME", value_parser = outage)]
    outage: Option<(Duration, Duration)>,
    /// Random seed of the path
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Congestion control of the kernel [default: the system's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Write at this rate [default: without limit]
    #[arg(long, value_name = "RATE", value_parser = send_rate)]
    send: Option<Rate>,
    /// Duration of the transfer
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = quantity::duration)]
    span: Duration,
    /// Source of the events
    #[arg(long, value_enum, default_value_t = SourceArg::Auto)]
    source: SourceArg,
    /// Socket of the daemon, with the source `daemon` or `auto`
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Events by name, or `all` that are allowed
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "all"
    )]
    events: Vec<EventSet>,
    /// Variables by name or group
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "all"
    )]
    variables: Vec<VariableSet>,
    /// Print one JSON object per event
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SourceArg {
    /// The daemon if it runs, else this process with privilege, else without
    Auto,
    /// The daemon
    Daemon,
    /// BPF programs loaded by this process (requires root)
    InProcess,
    /// Timestamps and `TCP_INFO`, without privilege
    Unprivileged,
}

/// Runs the transfer and prints its events.
pub(crate) fn run(args: &WatchArgs) -> Result<ExitCode> {
    let has_socket = matches!(args.source, SourceArg::Auto | SourceArg::Daemon);
    ensure!(
        has_socket || args.socket.is_none(),
        "--socket requires --source daemon or auto: leave it out, or choose one of these"
    );
    if args.to.is_none() {
        lab::prepare().context("cannot create the emulated path: name a host with --to")?;
    }
    // A second Ctrl-C ends the program, even while it waits for a reader or the daemon.
    let interrupts = Interrupts::catch_first(&StopFlag::new()?);
    let interrupts = interrupts.context("cannot install the handler of Ctrl-C")?;
    let named = named(args);
    let Some(connection) = connect(args, &interrupts)? else {
        say("interrupted before the connection was established");
        return Ok(signals::exit_code());
    };
    let events = Arc::new(connection.inside(|| source(args, named))??);
    let wanted = wanted(named, events.allowed());
    if !events.from_kernel() {
        let missing = wanted.variables.without(events.allowed().variables);
        if !missing.is_empty() {
            say(format_args!(
                "events: unavailable without privilege: {missing}"
            ));
        }
    }
    let id = events.subscribe(&*connection.stream, wanted)?;
    let start = monotonic();
    let mut transfer = connection.write(&events, args.send, args.span);
    let mut seen = 0_u64;
    let mut show = |event: &Event| {
        seen += 1;
        print(event, start, args.json)
    };
    while !transfer.is_over() {
        if interrupts.count() > 0 {
            transfer.stop();
        }
        if let Some(event) = events.next(Some(GLANCE))? {
            show(&event)?;
        }
    }
    let took = monotonic().saturating_sub(start).as_secs_f64();
    // Stop the subscription first, so that the remaining events are a complete set.
    events.change(id, EventRequest::default())?;
    while let Some(event) = events.try_next() {
        show(&event)?;
    }
    let tally = events.tally(id)?;
    let state = events.probe(&*connection.stream)?;
    let written = transfer.written()?;
    say(format_args!(
        "events: {seen} of {} seen, {} dropped; {} written in {took:.1} s",
        tally.events,
        tally.lost,
        counted(written, "byte")
    ));
    print_counters(&state);
    connection.end()?;
    Ok(ExitCode::SUCCESS)
}

fn print(event: &Event, start: Duration, json: bool) -> io::Result<()> {
    let (now, mut out) = (monotonic(), output());
    if json {
        writeln!(out, "{}", show::object(event, now))
    } else {
        writeln!(out, "{}", show::line(event, start, now))
    }
}

/// `None` after Ctrl-C.
fn connect(args: &WatchArgs, interrupts: &Interrupts) -> Result<Option<Connection>> {
    let span = args.span;
    let (patience, congestion) = (
        ConnectLimits { interrupts, span },
        args.congestion.as_deref(),
    );
    if let Some(host) = args.to.clone() {
        return Connection::to(host, congestion, patience);
    }
    let path = Path {
        rate: args.rate,
        delay: args.delay,
        queue: args.queue,
        loss: args.loss,
        outage: args.outage,
        seed: Seed(args.seed),
    };
    Connection::emulated(&path, congestion, patience)
}

/// Prints the counters of TCP, if they are readable.
fn print_counters(state: &Snapshot) {
    let counts = COUNTS.iter().filter_map(|&v| Some((v, state.get(v)?)));
    let counts: Vec<String> = counts.map(|(v, n)| format!("{} {n}", v.name())).collect();
    if !counts.is_empty() {
        say(format_args!("events: {}", counts.join(", ")));
    }
}

/// Events and variables named on the command line.
fn named(args: &WatchArgs) -> EventRequest {
    EventRequest {
        events: union(&args.events, EventSet::NONE, EventSet::or),
        variables: union(&args.variables, VariableSet::NONE, VariableSet::or),
    }
}

/// Events and variables to request. `all` stands for those that are allowed. A named item is
/// requested as it is, so that the daemon rejects it with a reason. If no event is allowed, `all`
/// is requested unchanged.
fn wanted(named: EventRequest, allowed: EventRequest) -> EventRequest {
    EventRequest {
        events: match named.events {
            EventSet::ALL if allowed.has_events() => allowed.events,
            some => some,
        },
        variables: match named.variables {
            VariableSet::ALL => allowed.variables,
            some => some,
        },
    }
}

fn source(args: &WatchArgs, named: EventRequest) -> Result<Events> {
    let path = args.socket.clone();
    let path = path.unwrap_or_else(tidegate_kernel::default_path);
    let events = match args.source {
        SourceArg::Daemon => Events::connect(&path)?,
        SourceArg::InProcess => Events::in_process()?,
        SourceArg::Unprivileged => Events::unprivileged()?,
        SourceArg::Auto => match Events::connect(&path) {
            Err(why @ (EventsError::NoDaemon { .. } | EventsError::Untrusted { .. })) => {
                // Mention a missing daemon only if the user named its socket.
                if args.socket.is_some() || matches!(why, EventsError::Untrusted { .. }) {
                    say(format_args!("events: {why}"));
                }
                match Events::in_process() {
                    Ok(events) => events,
                    Err(why) => {
                        say(format_args!("events: {why}"));
                        Events::unprivileged()?
                    }
                }
            }
            Err(why @ EventsError::NotPermitted) if named.events == EventSet::ALL => {
                say(format_args!("events: {why}"));
                Events::unprivileged()?
            }
            Ok(daemon) if named.events == EventSet::ALL && !daemon.allowed().has_events() => {
                say(format_args!(
                    "events: the policy of the daemon at {} allows this user no events: ask the \
                    administrator",
                    path.display()
                ));
                Events::unprivileged()?
            }
            other => other?,
        },
    };
    if !events.from_kernel() {
        say(
            "events: without privilege; each write starts a new segment, and these events are \
            less exact:",
        );
        for (kind, how) in events.limited_events() {
            say(format_args!("events:   {kind}: {how}"));
        }
    }
    Ok(events)
}

fn send_rate(text: &str) -> Result<Rate> {
    let rate = quantity::rate(text)?;
    ensure!(
        rate > Rate::ZERO,
        "a rate of zero writes nothing: give a higher one, or leave --send out"
    );
    Ok(rate)
}

fn path_rate(text: &str) -> Result<Rate> {
    let rate = quantity::rate(text)?;
    ensure!(
        rate > Rate::ZERO,
        "a rate of zero carries nothing: give a higher one"
    );
    Ok(rate)
}

fn queue(text: &str) -> Result<Bytes> {
    let size = quantity::size(text)?;
    ensure!(
        size > Bytes(0),
        "a queue of zero bytes holds no packet: give a larger one"
    );
    Ok(size)
}

fn loss(text: &str) -> Result<f64> {
    let share = quantity::share(text)?;
    ensure!(
        (0.0..=1.0).contains(&share),
        "loss is out of range: choose a share from 0% to 100%"
    );
    Ok(share)
}

fn outage(text: &str) -> Result<(Duration, Duration)> {
    let (from, length) = text
        .split_once('+')
        .context("write a start and a length, such as `4s+1s`")?;
    let (from, length) = (quantity::duration(from)?, quantity::duration(length)?);
    ensure!(!length.is_zero(), "an outage needs a length above zero");
    Ok((from, from + length))
}

fn union<T: Copy>(parts: &[T], none: T, or: fn(T, T) -> T) -> T {
    parts.iter().fold(none, |all, &part| or(all, part))
}

const COUNTS: [Variable; 6] = [
    Variable::AcksSlowStart,
    Variable::AcksAvoidance,
    Variable::AcksRepair,
    Variable::Duplicates,
    Variable::FurtherDuplicates,
    Variable::PhaseChanges,
];
/// Options of the emulated path, which conflict with `--to`.
const PATH: [&str; 6] = ["rate", "delay", "queue", "loss", "outage", "seed"];

#[cfg(test)]
mod tests {
    use tidegate_kernel::EventKind;

    use super::*;

    #[test]
    fn an_invalid_path_is_rejected_by_its_option() {
        assert!(
            path_rate("0b/s")
                .unwrap_err()
                .to_string()
                .contains("a rate of zero")
        );
        let nothing = send_rate("0b/s").unwrap_err().to_string();
        assert!(nothing.contains("--send"), "{nothing}");
        assert!(queue("0B").unwrap_err().to_string().contains("zero bytes"));
        assert!(loss("200%").unwrap_err().to_string().contains("100%"));
        assert!((loss("100%").unwrap() - 1.0).abs() < f64::EPSILON);
        assert_eq!(path_rate("8Mb/s").unwrap(), Rate::kbps(8_000));
        assert_eq!(queue("60kB").unwrap(), Bytes(60_000));
    }

    #[test]
    fn named_events_are_requested_unchanged() {
        let rto = VariableSet::NONE.with(Variable::Rto);
        let timeout = EventSet::NONE.with(EventKind::Timeout);
        let allowed = EventRequest {
            events: EventSet::NONE.with(EventKind::State),
            variables: VariableSet::NONE.with(Variable::Cwnd),
        };
        assert_eq!(wanted(EventRequest::ALL, allowed), allowed);
        let named = EventRequest {
            events: timeout,
            variables: rto,
        };
        assert_eq!(wanted(named, allowed), named);
        // The daemon rejects the request and logs it.
        let nothing = EventRequest {
            events: EventSet::NONE.with(EventKind::Ended),
            ..EventRequest::default()
        };
        assert_eq!(wanted(EventRequest::ALL, nothing).events, EventSet::ALL);
    }
}
