//! A stream over an emulated path, and the run folders of its sender and player.

use std::path::Path;
use std::time::Duration;

use tidegate_core::link::{Capacity, DropTailConfig, LinkConfig, Outage, QueueConfig};
use tidegate_core::tcp_rate::TcpEvent;
use tidegate_core::trace::{DropCause, Event};
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_live::emulator::{Emulator, EmulatorConfig, Host, UnconnectedHosts};
use tidegate_record::{Run, RunReader};

use crate::daemon::client;
use crate::program::{Program, Scratch, text};

/// A path of 10 Mb/s with a queue of `queue` packets and a delay in each direction. It drops all
/// packets during `cuts`, in ms from the start.
pub(crate) fn path(delay: Duration, queue: u32, cuts: &[(u64, u64)]) -> EmulatorConfig {
    let outage = |(from, to): &(u64, u64)| Outage {
        from: Time::from_millis(*from),
        to: Time::from_millis(*to),
    };
    let there = LinkConfig {
        capacity: Capacity::Fixed(Rate::kbps(10_000)),
        queue: QueueConfig::DropTail(DropTailConfig::packets(queue)),
        outages: cuts.iter().map(outage).collect(),
        delay,
        ..LinkConfig::default()
    };
    let back = LinkConfig {
        delay,
        ..LinkConfig::default()
    };
    EmulatorConfig {
        limit: Duration::from_mins(1),
        ..EmulatorConfig::path(there, back)
    }
}

/// RTT of 66 ms, a queue of the bandwidth-delay product, and an outage of three seconds.
pub(crate) fn cut_path() -> EmulatorConfig {
    path(Duration::from_millis(33), 55, &[(5_000, 8_000)])
}

/// Run folders of sender and player, and the messages of the sender.
pub(crate) struct ModeRun {
    pub(crate) sent: Run,
    pub(crate) seen: Run,
    pub(crate) said: String,
}

impl ModeRun {
    /// Runs a sender with `options` and a player with the delay `bound`. `meanwhile` is called with
    /// the sender after the start of the stream.
    pub(crate) fn new(
        name: &str,
        path: fn() -> EmulatorConfig,
        (bound, options): (&str, &str),
        meanwhile: impl FnOnce(&mut Program),
    ) -> Self {
        // No daemon exists at this path.
        let absent = Path::new("/nonexistent/events.sock");
        Self::beside_daemon(name, path, (bound, options), absent, meanwhile)
    }

    /// The same over TLS.
    pub(crate) fn over_tls(
        name: &str,
        path: fn() -> EmulatorConfig,
        (bound, options): (&str, &str),
    ) -> Self {
        let scratch = Scratch::new(&format!("modes-{name}-tls"));
        let [certificate, key] = ["cert.pem", "key.pem"].map(|name| scratch.path(name));
        let files = format!("--tls-cert {} --tls-key {}", text(&certificate), text(&key));
        let made = Program::tidegate(&format!("certificate {files}")).wait();
        let fingerprint = format!("--tls-fingerprint {}", made.succeeded().output.trim());
        let absent = Path::new("/nonexistent/events.sock");
        let security = (&*fingerprint, &*files);
        Self::secured(name, path, (bound, options), absent, security, |_| ())
    }

    /// The same, with an event daemon at `socket`.
    pub(crate) fn beside_daemon(
        name: &str,
        path: fn() -> EmulatorConfig,
        (bound, options): (&str, &str),
        socket: &Path,
        meanwhile: impl FnOnce(&mut Program),
    ) -> Self {
        let plain = ("--insecure", "--insecure");
        Self::secured(name, path, (bound, options), socket, plain, meanwhile)
    }

    /// `security` has options of sender and player.
    fn secured(
        name: &str,
        path: fn() -> EmulatorConfig,
        (bound, options): (&str, &str),
        socket: &Path,
        security: (&str, &str),
        meanwhile: impl FnOnce(&mut Program),
    ) -> Self {
        let scratch = Scratch::new(&format!("modes-{name}"));
        let [sent, seen] = ["sent", "seen"].map(|name| scratch.path(name));
        let hosts = UnconnectedHosts::new(2).unwrap();
        let player = player(&hosts, bound, text(&seen), security.1);
        // Started after all slow preparations, since its clock starts now.
        let emulator = Emulator::join(hosts, &path()).unwrap();
        let sender = format!(
            "send --transport tcp --to {}:5004 --preset ultrafast --delay-bound {bound} {options} \
             {} --run {}",
            Host::B.address(),
            security.0,
            text(&sent)
        );
        let host = emulator.namespace(Host::A);
        let mut sender = client(&sender, socket);
        let mut sender = host.within(|| Program::start(&mut sender)).unwrap();
        sender.wait_for_line("sending ");
        meanwhile(&mut sender);
        let (sender, player) = (sender.wait(), player.wait());
        let ended = sender.status.success() && player.status.success();
        assert!(ended, "sender: {}\nplayer: {}", sender.said, player.said);
        Self {
            sent: RunReader::load(&sent).unwrap(),
            seen: RunReader::load(&seen).unwrap(),
            said: sender.said,
        }
    }

    /// Number of complete frames, and of those on time.
    pub(crate) fn came(&self) -> (usize, usize) {
        came(&self.seen)
    }

    /// Longest time without a frame at the player: an outage, and the time until TCP repairs it, by its
    /// exponential backoff.
    pub(crate) fn dead_time(&self) -> Duration {
        let frames = self.seen.flows[0].received.iter();
        let times: Vec<Time> = frames.filter_map(|frame| frame.complete).collect();
        let gaps = times.windows(2).map(|pair| pair[1].since(pair[0]));
        gaps.max().unwrap()
    }

    /// Number of the 360 frames that are in time if the sender learns of the outage: all but those whose
    /// `bound` passes before TCP has repaired it. Slow start, and frames that were in flight, take another
    /// 0.2 to 0.4 s (27 runs). A sender without events delivers 217 to 226 in time, and this is 258 at
    /// least.
    pub(crate) fn least_in_time(&self, bound: Duration) -> usize {
        let late = (self.dead_time() + Duration::from_millis(500)).saturating_sub(bound);
        360_usize.saturating_sub((late.as_secs_f64() * 30.0) as usize)
    }

    /// Number of complete frames that were late.
    pub(crate) fn late(&self) -> usize {
        let (came, in_time) = self.came();
        came - in_time
    }

    pub(crate) fn dropped(&self, cause: DropCause) -> usize {
        let sent = self.sent.flows[0].sent.iter();
        sent.filter(|frame| frame.dropped == Some(cause)).count()
    }

    /// Reported TCP events.
    pub(crate) fn tcp_events(&self) -> Vec<(Time, TcpEvent)> {
        tcp_events(&self.sent)
    }

    /// Rates chosen in response to events.
    pub(crate) fn answers(&self) -> Vec<(Time, Rate)> {
        let answer = |event: &Event| match event {
            Event::Plan { media, .. } => Some(*media),
            _ => None,
        };
        happenings(&self.sent, answer)
    }

    /// Backlog Q of each response.
    pub(crate) fn planned_for(&self) -> Vec<Bytes> {
        let backlog = |event: &Event| match event {
            Event::Plan { backlog, .. } => Some(*backlog),
            _ => None,
        };
        let plans = happenings(&self.sent, backlog);
        plans.into_iter().map(|(_, backlog)| backlog).collect()
    }

    /// Target rates of frames over time, without the initial one.
    pub(crate) fn course(&self) -> Vec<(Time, Rate)> {
        course(&self.sent)
    }
}

/// A player on the far host that discards frames later than `bound`.
pub(crate) fn player(hosts: &UnconnectedHosts, bound: &str, run: &str, security: &str) -> Program {
    let player = format!(
        "recv --transport tcp --listen 5004 --discard-threshold {bound} --run {run} {security}"
    );
    let host = hosts.namespace(Host::B);
    let mut player = host.within(|| Program::tidegate(&player)).unwrap();
    player.wait_for_line("waiting for a stream");
    player
}

/// Number of complete frames, and of those on time.
pub(crate) fn came(seen: &Run) -> (usize, usize) {
    let flow = &seen.flows[0];
    let whole = flow
        .received
        .iter()
        .filter(|frame| frame.complete.is_some());
    let shown = flow.shown.iter().filter(|frame| frame.on_time);
    (whole.count(), shown.count())
}

pub(crate) fn tcp_events(sent: &Run) -> Vec<(Time, TcpEvent)> {
    happenings(sent, |event| match event {
        Event::Transport { event } => Some(*event),
        _ => None,
    })
}

pub(crate) fn course(sent: &Run) -> Vec<(Time, Rate)> {
    happenings(sent, |event| match event {
        Event::RateChanged { to, .. } => Some(*to),
        _ => None,
    })
}

fn happenings<T>(run: &Run, what: impl Fn(&Event) -> Option<T>) -> Vec<(Time, T)> {
    let rows = run.events.iter();
    rows.filter_map(|row| Some((row.at, what(&row.event)?)))
        .collect()
}
