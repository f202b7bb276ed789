//! iOPT that hears the kernel itself, through the daemon or from programs of its own. What takes
//! root is skipped without it.

use std::path::Path;
use std::thread;

use tidegate_core::tcp_rate::TcpEvent;
use tidegate_core::trace::DropCause;
use tidegate_core::units::Rate;

use crate::daemon::{ANYTHING, Daemon};
use crate::in_real_time;
use crate::party::Party;
use crate::played::{Played, cut_path};
use crate::tell;

/// Twelve seconds of video that are to be there within two, over a path with a cut.
fn play(name: &str, from: &str, socket: &Path, meanwhile: impl FnOnce(&mut Party)) -> Played {
    let options = format!(
        "--size 320x180 --rate 2Mb/s --duration 12s --congestion reno --mode iopt --events-from {from}"
    );
    Played::beside_daemon(name, cut_path, ("2s", &options), socket, meanwhile)
}

/// Time-outs were told and answered, and what came was in time.
fn check(name: &str, run: &Played) {
    tell(name, run);
    let told = run.told();
    let count = |kind: TcpEvent| told.iter().filter(|(_, event)| *event == kind).count();
    assert!(count(TcpEvent::TimedOut) >= 2, "{told:?}: {}", run.said);
    assert!(count(TcpEvent::Repaired) >= 1, "{told:?}: {}", run.said);
    assert!(run.answers().len() >= 2, "{}", run.said);
    let (came, in_time) = run.came();
    let left_out = run.dropped(DropCause::Late) + run.dropped(DropCause::Skipped);
    assert_eq!(came + left_out, 360, "{}", run.said);
    // Three seconds of the twelve are cut, of which two can be made up for; an ordinary sender has 226.
    assert!(in_time >= 270, "{in_time} of {came} in time: {}", run.said);
    assert!(run.late() <= 30, "{} late: {}", run.late(), run.said);
    let last = run.course().last().map(|(_, rate)| *rate);
    assert_eq!(last, Some(Rate::kbps(2_000)), "{}", run.said);
}

#[test]
fn iopt_that_hears_the_kernel_is_in_time_after_a_cut() {
    in_real_time(
        "kernel_events::iopt_that_hears_the_kernel_is_in_time_after_a_cut",
        hears,
    );
}

fn hears() {
    let Some(daemon) = Daemon::start("modes-hears", ANYTHING, "") else {
        return;
    };
    let runs = ["daemon", "in-process"].map(|source| {
        let socket = daemon.socket();
        thread::spawn(move || (play(source, source, &socket, |_| ()), source))
    });
    // None is left behind by one that failed.
    for run in runs.map(thread::JoinHandle::join) {
        let (run, source) = run.unwrap();
        check(source, &run);
        assert!(run.said.contains("events come from the kernel"));
        assert!(!run.said.contains("without privilege"), "{}", run.said);
    }
    daemon.interrupted();
}

#[test]
fn a_stream_whose_daemon_is_killed_goes_on_and_says_so() {
    in_real_time(
        "kernel_events::a_stream_whose_daemon_is_killed_goes_on_and_says_so",
        outlives,
    );
}

fn outlives() {
    let Some(daemon) = Daemon::start("modes-killed", ANYTHING, "") else {
        return;
    };
    let socket = daemon.socket();
    let run = play("killed", "daemon", &socket, |sender| {
        // It is on its way, and the cut is to come.
        sender.says(" of 2.00 Mb/s");
        daemon.party.kill();
    });
    check("killed", &run);
    assert!(run.said.contains("events come from the kernel"));
    let news = "events without privilege (the event daemon is gone";
    assert!(run.said.contains(news), "{}", run.said);
}
