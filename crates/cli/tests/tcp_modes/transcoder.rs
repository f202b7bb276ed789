//! Figure 7 of the first paper: server, transcoder and player, with an outage on the last hop.

use std::path::{Path, PathBuf};
use std::thread;

use tidegate_core::tcp_rate::TcpEvent;
use tidegate_core::trace::DropCause;
use tidegate_core::units::Rate;
use tidegate_live::emulator::{Emulator, Host, UnconnectedHosts};
use tidegate_record::{Run, RunReader};

use crate::daemon::{ANYTHING, Daemon, client};
use crate::in_real_time;
use crate::mode_run::{came, course, cut_path, player, tcp_events};
use crate::program::{Program, Scratch, text};

/// Run folders of transcoder and player for twelve seconds of video, with a delay bound of two
/// seconds from the transcoder.
struct Figure7 {
    made: Run,
    seen: Run,
    said: String,
}

impl Figure7 {
    /// Runs with an event daemon at `socket`.
    fn new(name: &str, options: &str, socket: &Path) -> Self {
        let scratch = Scratch::new(&format!("figure-7-{name}"));
        let [made, seen] = ["made", "seen"].map(|name| scratch.path(name));
        let hosts = UnconnectedHosts::new(2).unwrap();
        let player = player(&hosts, "2s", text(&seen), "--insecure");
        let near = hosts.namespace(Host::A);
        let transcode = format!(
            "transcode --listen 127.0.0.1:0 --to {}:5004 --rate 1Mb/s --delay-bound 2s \
             --congestion reno --insecure {options} --run {}",
            Host::B.address(),
            text(&made)
        );
        let mut transcode = client(&transcode, socket);
        let mut transcoder = near.within(|| Program::start(&mut transcode)).unwrap();
        let port = transcoder.number("waiting for a stream at port ");
        let server = format!(
            "send --transport tcp --to 127.0.0.1:{port} --size 320x180 --codec mpeg2 --rate 2Mb/s \
             --duration 12s"
        );
        // Started after all slow preparations, since its clock starts now.
        let emulator = Emulator::join(hosts, &cut_path()).unwrap();
        let near = emulator.namespace(Host::A);
        let server = near.within(|| Program::tidegate(&server)).unwrap();
        server.wait().succeeded();
        let transcoder = transcoder.wait();
        transcoder.succeeded();
        player.wait().succeeded();
        Self {
            made: RunReader::load(&made).unwrap(),
            seen: RunReader::load(&seen).unwrap(),
            said: transcoder.said,
        }
    }

    fn dropped(&self, cause: DropCause) -> usize {
        let made = self.made.flows[0].sent.iter();
        made.filter(|frame| frame.dropped == Some(cause)).count()
    }
}

#[test]
fn a_transcoder_with_tcp_events_is_on_time_after_an_outage() {
    //= itcp-4.4-symbiosis (test)
    in_real_time(
        "transcoder::a_transcoder_with_tcp_events_is_on_time_after_an_outage",
        compare,
    );
}

fn compare() {
    let daemon = Daemon::start("figure-7-daemon", ANYTHING, "");
    let socket = daemon.as_ref().map_or_else(PathBuf::new, Daemon::socket);
    let iopt = "--mode iopt --events-from";
    let mut runs = vec![
        ("classic", "--mode classic".to_owned()),
        ("iopt", format!("{iopt} unprivileged")),
    ];
    if daemon.is_some() {
        runs.push(("kernel-events", format!("{iopt} daemon")));
    }
    let runs = runs.into_iter().map(|(name, options)| {
        let socket = socket.clone();
        thread::spawn(move || (name, Figure7::new(name, &options, &socket)))
    });
    let runs: Vec<_> = runs.collect();
    // Joins all threads before a panic, so that none is left running.
    let runs: Vec<_> = runs.into_iter().map(thread::JoinHandle::join).collect();
    let runs: Vec<_> = runs.into_iter().map(Result::unwrap).collect();
    for (name, run) in &runs {
        let (came, in_time) = came(&run.seen);
        println!("{name}: {came} frames came, {in_time} in time");
        println!("{}", run.said);
    }
    let (_, classic) = &runs[0];
    assert_eq!(
        (tcp_events(&classic.made), course(&classic.made)),
        (vec![], vec![])
    );
    for (name, iopt) in &runs[1..] {
        let from_kernel = iopt.said.contains("events come from the kernel");
        assert_eq!(from_kernel, *name == "kernel-events", "{}", iopt.said);
        check(iopt, classic);
    }
    if let Some(daemon) = daemon {
        daemon.interrupted();
    }
}

fn check(iopt: &Figure7, classic: &Figure7) {
    // The target falls at the event, not before, and recovers.
    let (tcp_events, course) = (tcp_events(&iopt.made), course(&iopt.made));
    let (event, kind) = tcp_events[0];
    assert_eq!(kind, TcpEvent::TimedOut, "{}", iopt.said);
    let (fell, rate) = course[0];
    assert!(fell >= event && rate < NORMAL, "{course:?}: {}", iopt.said);
    assert_eq!(course.last().map(|(_, rate)| *rate), Some(NORMAL));

    // By the player's clock: a frame that waited too long is dropped rather than late.
    let [(all, in_time), (some, more_in_time)] = [classic, iopt].map(|run| came(&run.seen));
    let (late, fewer_late) = (all - in_time, some - more_in_time);
    assert!(late >= 30, "{in_time} of {all} in time: {}", classic.said);
    assert!(fewer_late * 4 <= late, "{fewer_late} late: {}", iopt.said);
    assert!(more_in_time > in_time, "{}", iopt.said);
    assert!(iopt.dropped(DropCause::Late) > 0, "{}", iopt.said);
}

const NORMAL: Rate = Rate::kbps(1_000);
