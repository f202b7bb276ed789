//! Figure 7 of the first paper: server, transcoder and player, and a cut on the last hop.

use std::path::{Path, PathBuf};
use std::thread;

use tidegate_core::tcp_rate::TcpEvent;
use tidegate_core::trace::DropCause;
use tidegate_core::units::Rate;
use tidegate_live::emulator::{Emulator, Host, Hosts};
use tidegate_sim::run::{Run, RunReader};

use crate::daemon::{ANYTHING, Daemon, client};
use crate::in_real_time;
use crate::party::{Party, Scratch, text};
use crate::played::{came, course, cut_path, player, told};

/// What transcoder and player wrote down of twelve seconds of video, which is to be there two seconds
/// after the transcoder had it.
struct Figure7 {
    made: Run,
    seen: Run,
    said: String,
}

impl Figure7 {
    /// With the daemon of events at `socket`.
    fn new(name: &str, options: &str, socket: &Path) -> Self {
        let scratch = Scratch::new(&format!("figure-7-{name}"));
        let [made, seen] = ["made", "seen"].map(|name| scratch.path(name));
        let hosts = Hosts::new(2).unwrap();
        let player = player(&hosts, "2s", text(&seen));
        let near = hosts.namespace(Host::A);
        let transcode = format!(
            "transcode --listen 127.0.0.1:0 --to {}:5004 --rate 1Mb/s --delay-bound 2s \
             --congestion reno {options} --run {}",
            Host::B.address(),
            text(&made)
        );
        let mut transcode = client(&transcode, socket);
        let mut transcoder = near.within(|| Party::start(&mut transcode)).unwrap();
        let port = transcoder.number("waiting for a stream at port ");
        let server = format!(
            "send --transport tcp --to 127.0.0.1:{port} --size 320x180 --codec mpeg2 --rate 2Mb/s \
             --duration 12s"
        );
        // Its clock starts when all that takes long is done.
        let emulator = Emulator::join(hosts, &cut_path()).unwrap();
        let near = emulator.namespace(Host::A);
        let server = near.within(|| Party::tidegate(&server)).unwrap();
        server.ends().succeeded();
        let transcoder = transcoder.ends();
        transcoder.succeeded();
        player.ends().succeeded();
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
fn a_transcoder_that_hears_its_tcp_is_in_time_after_a_cut() {
    //= itcp-4.4-symbiosis (test)
    in_real_time(
        "transcoder::a_transcoder_that_hears_its_tcp_is_in_time_after_a_cut",
        compare,
    );
}

fn compare() {
    let daemon = Daemon::start("figure-7-daemon", ANYTHING, "");
    let socket = daemon.as_ref().map_or_else(PathBuf::new, Daemon::socket);
    // With linear time-outs a machine that stands still at the wrong moment loses the connection.
    let iopt = "--mode iopt --rto-backoff exponential --events-from";
    let mut runs = vec![
        ("classic", "--mode classic".to_owned()),
        ("iopt", format!("{iopt} unprivileged")),
    ];
    if daemon.is_some() {
        runs.push(("heard", format!("{iopt} daemon")));
    }
    let runs = runs.into_iter().map(|(name, options)| {
        let socket = socket.clone();
        thread::spawn(move || (name, Figure7::new(name, &options, &socket)))
    });
    let runs: Vec<_> = runs.collect();
    // None is left behind by one that failed.
    let runs: Vec<_> = runs.into_iter().map(thread::JoinHandle::join).collect();
    let runs: Vec<_> = runs.into_iter().map(Result::unwrap).collect();
    for (name, run) in &runs {
        let (came, in_time) = came(&run.seen);
        println!("{name}: {came} frames came, {in_time} in time");
        println!("{}", run.said);
    }
    let (_, classic) = &runs[0];
    assert_eq!(
        (told(&classic.made), course(&classic.made)),
        (vec![], vec![])
    );
    for (name, iopt) in &runs[1..] {
        let from_kernel = iopt.said.contains("events come from the kernel");
        assert_eq!(from_kernel, *name == "heard", "{}", iopt.said);
        check(iopt, classic);
    }
    if let Some(daemon) = daemon {
        daemon.interrupted();
    }
}

fn check(iopt: &Figure7, classic: &Figure7) {
    // The target falls at the event, not before, and comes back.
    let (told, course) = (told(&iopt.made), course(&iopt.made));
    let (event, kind) = told[0];
    assert_eq!(kind, TcpEvent::TimedOut, "{}", iopt.said);
    let (fell, rate) = course[0];
    assert!(fell >= event && rate < NORMAL, "{course:?}: {}", iopt.said);
    assert_eq!(course.last().map(|(_, rate)| *rate), Some(NORMAL));

    // By the clock of the player, a frame that waited too long is left out rather than late.
    let [(all, in_time), (some, more_in_time)] = [classic, iopt].map(|run| came(&run.seen));
    let (late, fewer_late) = (all - in_time, some - more_in_time);
    assert!(late >= 30, "{in_time} of {all} in time: {}", classic.said);
    assert!(fewer_late * 4 <= late, "{fewer_late} late: {}", iopt.said);
    assert!(more_in_time > in_time, "{}", iopt.said);
    assert!(iopt.dropped(DropCause::Late) > 0, "{}", iopt.said);
}

const NORMAL: Rate = Rate::kbps(1_000);
