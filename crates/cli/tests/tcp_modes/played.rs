//! A stream over a path of its own, and what sender and player wrote down of it.

use std::path::Path;
use std::time::Duration;

use tidegate_core::link::{Capacity, DropTailConfig, LinkConfig, Outage, QueueConfig};
use tidegate_core::tcp_rate::TcpEvent;
use tidegate_core::trace::{DropCause, Event};
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_live::emulator::{Emulator, EmulatorConfig, Host, Hosts};
use tidegate_sim::run::{Run, RunReader};

use crate::daemon::client;
use crate::party::{Party, Scratch, text};

/// 10 Mb/s with a queue of so many packets and a delay each way. Nothing passes between the
/// moments of a cut, in ms from now.
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

/// 66 ms there and back, a bandwidth-delay product of queue. Nothing passes for three seconds.
pub(crate) fn cut_path() -> EmulatorConfig {
    path(Duration::from_millis(33), 55, &[(5_000, 8_000)])
}

/// What sender and player wrote down.
pub(crate) struct Played {
    pub(crate) sent: Run,
    pub(crate) seen: Run,
    pub(crate) said: String,
}

impl Played {
    /// Sends as `options` say, which name the `bound` of the player too. `meanwhile` is told of the
    /// sender once the stream has begun.
    pub(crate) fn new(
        name: &str,
        path: fn() -> EmulatorConfig,
        (bound, options): (&str, &str),
        meanwhile: impl FnOnce(&mut Party),
    ) -> Self {
        // Nobody serves there.
        let nowhere = Path::new("/nonexistent/events.sock");
        Self::beside_daemon(name, path, (bound, options), nowhere, meanwhile)
    }

    /// The same, with the daemon of events at `socket`.
    pub(crate) fn beside_daemon(
        name: &str,
        path: fn() -> EmulatorConfig,
        (bound, options): (&str, &str),
        socket: &Path,
        meanwhile: impl FnOnce(&mut Party),
    ) -> Self {
        let scratch = Scratch::new(&format!("modes-{name}"));
        let [sent, seen] = ["sent", "seen"].map(|name| scratch.path(name));
        let hosts = Hosts::new(2).unwrap();
        let player = player(&hosts, bound, text(&seen));
        // Its clock starts when all that takes long is done.
        let emulator = Emulator::join(hosts, &path()).unwrap();
        let sender = format!(
            "send --transport tcp --to {}:5004 --preset ultrafast --delay-bound {bound} {options} \
             --run {}",
            Host::B.address(),
            text(&sent)
        );
        let host = emulator.namespace(Host::A);
        let mut sender = client(&sender, socket);
        let mut sender = host.within(|| Party::start(&mut sender)).unwrap();
        sender.says("sending ");
        meanwhile(&mut sender);
        let sender = sender.ends();
        sender.succeeded();
        player.ends().succeeded();
        Self {
            sent: RunReader::load(&sent).unwrap(),
            seen: RunReader::load(&seen).unwrap(),
            said: sender.said,
        }
    }

    /// Frames that came whole, and of those the ones that came in time.
    pub(crate) fn came(&self) -> (usize, usize) {
        came(&self.seen)
    }

    /// Frames that came whole, but too late.
    pub(crate) fn late(&self) -> usize {
        let (came, in_time) = self.came();
        came - in_time
    }

    pub(crate) fn dropped(&self, cause: DropCause) -> usize {
        let sent = self.sent.flows[0].sent.iter();
        sent.filter(|frame| frame.dropped == Some(cause)).count()
    }

    /// What TCP told of, and when.
    pub(crate) fn told(&self) -> Vec<(Time, TcpEvent)> {
        told(&self.sent)
    }

    /// The rates with which events were answered, and when.
    pub(crate) fn answers(&self) -> Vec<(Time, Rate)> {
        let answer = |event: &Event| match event {
            Event::Plan { media, .. } => Some(*media),
            _ => None,
        };
        happenings(&self.sent, answer)
    }

    /// The Q of each of those answers.
    pub(crate) fn planned_for(&self) -> Vec<Bytes> {
        let backlog = |event: &Event| match event {
            Event::Plan { backlog, .. } => Some(*backlog),
            _ => None,
        };
        let plans = happenings(&self.sent, backlog);
        plans.into_iter().map(|(_, backlog)| backlog).collect()
    }

    /// The rates at which frames were ordered, and since when; without that of the first.
    pub(crate) fn course(&self) -> Vec<(Time, Rate)> {
        course(&self.sent)
    }
}

/// A player at the far end that takes a frame if it comes within `bound`.
pub(crate) fn player(hosts: &Hosts, bound: &str, run: &str) -> Party {
    let player =
        format!("recv --transport tcp --listen 5004 --discard-threshold {bound} --run {run}");
    let host = hosts.namespace(Host::B);
    let mut player = host.within(|| Party::tidegate(&player)).unwrap();
    player.says("waiting for a stream");
    player
}

/// Frames that came whole, and of those the ones that came in time.
pub(crate) fn came(seen: &Run) -> (usize, usize) {
    let flow = &seen.flows[0];
    let whole = flow
        .received
        .iter()
        .filter(|frame| frame.complete.is_some());
    let shown = flow.shown.iter().filter(|frame| frame.on_time);
    (whole.count(), shown.count())
}

pub(crate) fn told(sent: &Run) -> Vec<(Time, TcpEvent)> {
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
