//! iOPT with kernel events, from the daemon or from its own BPF programs. Tests are skipped without
//! root.

use std::path::Path;
use std::thread;
use std::time::Duration;

use tidegate_core::tcp_rate::TcpEvent;
use tidegate_core::trace::DropCause;
use tidegate_core::units::{Rate, Time};

use crate::daemon::{ANYTHING, Daemon};
use crate::mode_run::{ModeRun, cut_path};
use crate::print;
use crate::program::Program;
use crate::{BOUND, in_real_time};

/// Twelve seconds of video with a delay bound of two seconds, over a path with an outage.
fn play(name: &str, from: &str, socket: &Path, meanwhile: impl FnOnce(&mut Program)) -> ModeRun {
    let options = format!(
        "--size 320x180 --rate 2Mb/s --duration 12s --congestion reno --mode iopt --events-from {from}"
    );
    ModeRun::beside_daemon(name, cut_path, ("2s", &options), socket, meanwhile)
}

/// Checks that RTOs were reported and responded to, and that received frames were on time.
fn check(name: &str, run: &ModeRun) {
    print(name, run);
    let tcp_events = run.tcp_events();
    let times = |kind: TcpEvent| -> Vec<Time> {
        let events = tcp_events.iter().filter(|(_, event)| *event == kind);
        events.map(|(at, _)| *at).collect()
    };
    let [timed_out, repaired] = [TcpEvent::TimedOut, TcpEvent::Repaired].map(times);
    assert!(timed_out.len() >= 2, "{tcp_events:?}: {}", run.said);
    assert!(!repaired.is_empty(), "{tcp_events:?}: {}", run.said);
    assert!(run.answers().len() >= 2, "{}", run.said);
    let (came, in_time) = run.came();
    let left_out = run.dropped(DropCause::Late) + run.dropped(DropCause::Skipped);
    assert_eq!(came + left_out, 360, "{}", run.said);
    let least = run.least_in_time(BOUND);
    assert!(
        in_time >= least,
        "{in_time} of {least} in time: {}",
        run.said
    );
    // The first timeout is up to 0.6 s after the last frame, with a probe before it, and frames arrive
    // within some round trips after the repair.
    let dead = repaired[0].since(timed_out[0]) + Duration::from_secs(1);
    assert!(
        run.dead_time() <= dead,
        "{:?}: {}",
        run.dead_time(),
        run.said
    );
    assert!(run.late() <= 30, "{} late: {}", run.late(), run.said);
    let last = run.course().last().map(|(_, rate)| *rate);
    assert_eq!(last, Some(Rate::kbps(2_000)), "{}", run.said);
}

#[test]
fn iopt_with_kernel_events_is_on_time_after_an_outage() {
    in_real_time(
        "kernel_events::iopt_with_kernel_events_is_on_time_after_an_outage",
        with_kernel_events,
    );
}

fn with_kernel_events() {
    let Some(daemon) = Daemon::start("modes-with_kernel_events", ANYTHING, "") else {
        return;
    };
    let runs = ["daemon", "in-process"].map(|source| {
        let socket = daemon.socket();
        thread::spawn(move || (play(source, source, &socket, |_| ()), source))
    });
    // Joins all threads before a panic, so that none is left running.
    for run in runs.map(thread::JoinHandle::join) {
        let (run, source) = run.unwrap();
        check(source, &run);
        assert!(run.said.contains("events come from the kernel"));
        assert!(!run.said.contains("without privilege"), "{}", run.said);
    }
    daemon.interrupted();
}

#[test]
fn a_stream_continues_without_its_daemon_and_reports_that() {
    in_real_time(
        "kernel_events::a_stream_continues_without_its_daemon_and_reports_that",
        after_the_daemon,
    );
}

fn after_the_daemon() {
    let Some(daemon) = Daemon::start("modes-killed", ANYTHING, "") else {
        return;
    };
    let socket = daemon.socket();
    let run = play("killed", "daemon", &socket, |sender| {
        // The stream has started; the outage follows.
        sender.wait_for_line(" of 2.00 Mb/s");
        daemon.program.kill();
    });
    check("killed", &run);
    assert!(run.said.contains("events come from the kernel"));
    let message = "events without privilege (the event daemon is gone";
    assert!(run.said.contains(message), "{}", run.said);
}
