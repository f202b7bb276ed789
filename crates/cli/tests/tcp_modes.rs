//! Modes of iTCP over kernel sockets, on a path that is cut for a while.

#[path = "../../../tests/tests/lab/mod.rs"]
#[expect(dead_code, reason = "these tests capture no packets")]
mod lab;
#[expect(dead_code, reason = "nobody is interrupted or killed here")]
mod party;

use std::thread;
use std::time::Duration;

use lab::in_lab;
use party::{Party, Scratch, text};
use tidegate_core::link::{Capacity, DropTailConfig, LinkConfig, Outage, QueueConfig};
use tidegate_core::symbiosis::TcpEvent;
use tidegate_core::trace::{DropCause, Event};
use tidegate_core::units::{Rate, Time};
use tidegate_live::emulator::{Emulator, EmulatorConfig, Host};
use tidegate_sim::run::{Run, RunReader};

/// 10 Mb/s, 66 ms there and back, a bandwidth-delay product of queue. Nothing passes for three
/// seconds.
fn path() -> EmulatorConfig {
    let delay = Duration::from_millis(33);
    let outage = Outage {
        from: Time::from_secs(5),
        to: Time::from_secs(8),
    };
    let there = LinkConfig {
        capacity: Capacity::Fixed(Rate::kbps(10_000)),
        queue: QueueConfig::DropTail(DropTailConfig::packets(55)),
        outages: vec![outage],
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

/// What sender and player wrote down of a stream of twelve seconds over a path of its own.
struct Played {
    sent: Run,
    seen: Run,
    said: String,
}

impl Played {
    fn new(mode: &str, options: &str) -> Self {
        let scratch = Scratch::new(&format!("modes-{mode}"));
        let [sent, seen] = ["sent", "seen"].map(|name| scratch.path(name));
        let emulator = Emulator::start(&path()).unwrap();
        let player = format!(
            "recv --transport tcp --listen 5004 --delay-bound 2s --run {}",
            text(&seen)
        );
        let host = emulator.namespace(Host::B);
        let mut player = host.within(|| Party::tidegate(&player)).unwrap();
        player.says("waiting for a stream");
        let sender = format!(
            "send --transport tcp --to {}:5004 --size 320x180 --preset ultrafast --rate 2Mb/s \
             --duration 12s --delay-bound 2s --congestion reno --mode {mode} {options} --run {}",
            Host::B.address(),
            text(&sent)
        );
        let host = emulator.namespace(Host::A);
        let sender = host.within(|| Party::tidegate(&sender)).unwrap().ends();
        sender.succeeded();
        player.ends().succeeded();
        Self {
            sent: RunReader::load(&sent).unwrap(),
            seen: RunReader::load(&seen).unwrap(),
            said: sender.said,
        }
    }

    /// Frames that came whole, and of those the ones that came in time.
    fn came(&self) -> (usize, usize) {
        let flow = &self.seen.flows[0];
        let whole = flow
            .received
            .iter()
            .filter(|frame| frame.complete.is_some());
        let shown = flow.shown.iter().filter(|frame| frame.on_time);
        (whole.count(), shown.count())
    }

    fn dropped(&self, cause: DropCause) -> usize {
        let sent = self.sent.flows[0].sent.iter();
        sent.filter(|frame| frame.dropped == Some(cause)).count()
    }

    fn happened(&self, is_it: fn(&Event) -> bool) -> usize {
        self.sent
            .events
            .iter()
            .filter(|row| is_it(&row.event))
            .count()
    }
}

#[test]
fn iopt_is_in_time_after_a_cut_where_classic_is_late() {
    //= itcp-4.4-late (test)
    in_lab("iopt_is_in_time_after_a_cut_where_classic_is_late", compare);
}

fn compare() {
    let classic = thread::spawn(|| Played::new("classic", ""));
    let iopt = Played::new("iopt", "--events-from unprivileged");
    let classic = classic.join().unwrap();

    for (mode, run) in [("classic", &classic), ("iopt", &iopt)] {
        let (came, in_time) = run.came();
        println!("{mode}: {came} of 360 frames came, {in_time} in time");
        println!("{}", run.said);
    }

    // Frames that the encoder was too slow for on a busy machine were left out.
    let (came, in_time) = classic.came();
    assert_eq!(came + classic.dropped(DropCause::Skipped), 360);
    let classic_late = came - in_time;
    assert!(classic_late >= 30, "{in_time} of {came} in time");
    assert_eq!(classic.happened(|e| matches!(e, Event::Plan { .. })), 0);

    let (came, iopt_in_time) = iopt.came();
    let left_out = iopt.dropped(DropCause::Late) + iopt.dropped(DropCause::Skipped);
    assert_eq!(came + left_out, 360, "{}", iopt.said);
    // Five were in flight before anybody could know. A busy machine makes some more late: the first
    // ones after the cut come at the bound.
    let late = came - iopt_in_time;
    assert!(late * 4 <= classic_late, "{late} of {came} are late");
    assert!(iopt_in_time > in_time, "{}", iopt.said);
    let timed_out = |event: &Event| {
        matches!(
            event,
            Event::Transport {
                event: TcpEvent::TimedOut
            }
        )
    };
    assert!(iopt.happened(timed_out) >= 2, "{}", iopt.said);
    assert!(iopt.happened(|e| matches!(e, Event::Plan { .. })) >= 2);
    assert!(
        iopt.said.contains("events without privilege"),
        "{}",
        iopt.said
    );
}
