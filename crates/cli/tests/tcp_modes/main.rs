//! Modes of iTCP over kernel sockets, on paths with outages.

#[path = "../calm/mod.rs"]
mod calm;
#[path = "../daemon/mod.rs"]
mod daemon;
#[path = "../../../../tests/tests/lab/mod.rs"]
#[expect(dead_code, reason = "these tests capture no packets")]
mod lab;
#[path = "../program/mod.rs"]
#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

mod kernel_events;
mod mode_run;
mod published;
mod transcoder;

use std::time::Duration;
use std::{fs, thread};

use calm::judged;
use lab::namespaces::in_lab;
use mode_run::{ModeRun, cut_path};
use tidegate_core::tcp_rate::TcpEvent;
use tidegate_core::trace::DropCause;
use tidegate_core::units::Rate;

/// Delay bound.
const BOUND: Duration = Duration::from_secs(2);

/// Twelve seconds of video with a delay bound of two seconds.
fn play(name: &str, mode: &str) -> ModeRun {
    let options = format!("--size 320x180 --rate 2Mb/s --duration 12s --mode {mode}");
    ModeRun::new(name, cut_path, ("2s", &options), |_| ())
}

#[test]
fn iopt_is_on_time_after_an_outage_and_classic_is_late() {
    //= itcp-4.4-late (test)
    in_real_time(
        "iopt_is_on_time_after_an_outage_and_classic_is_late",
        compare,
    );
}

/// Runs the test where namespaces are available; repeats it after stalls of the machine.
fn in_real_time(test: &str, body: fn()) {
    in_lab(test, || judged(test, body));
}

fn compare() {
    let known = fs::read_to_string(AVAILABLE).unwrap();
    let is_known = |tcp: &&str| known.split_whitespace().any(|name| name == *tcp);
    let (tcps, unknown): (Vec<_>, Vec<_>) =
        ["reno", "cubic", "bbr"].into_iter().partition(is_known);
    if !unknown.is_empty() {
        eprintln!("left out, as this kernel lacks them: {unknown:?}");
    }
    let classic = thread::spawn(|| play("classic", "classic --congestion reno"));
    let over = |tcp: &str| format!("iopt --events-from unprivileged --congestion {tcp}");
    let iopt = tcps.iter().map(|tcp| (*tcp, over(tcp)));
    let iopt = iopt.map(|(tcp, mode)| thread::spawn(move || (tcp, play(tcp, &mode))));
    let iopt: Vec<_> = iopt.collect();
    // Joins all threads before a panic, so that none is left running.
    let iopt: Vec<_> = iopt.into_iter().map(thread::JoinHandle::join).collect();
    let classic = classic.join().unwrap();

    let (came, in_time) = classic.came();
    print("classic", &classic);
    // A slow encoder on a busy machine skips frames.
    assert_eq!(came + classic.dropped(DropCause::Skipped), 360);
    assert!(classic.late() >= 30, "{in_time} of {came} in time");
    assert!(classic.answers().is_empty());
    for run in iopt {
        let (tcp, iopt) = run.unwrap();
        check(tcp, &iopt, &classic);
    }
}

/// Checks one congestion control with a known window growth.
fn check(tcp: &str, iopt: &ModeRun, classic: &ModeRun) {
    print(&format!("iopt over {tcp}"), iopt);
    let (came, in_time) = iopt.came();
    let left_out = iopt.dropped(DropCause::Late) + iopt.dropped(DropCause::Skipped);
    assert_eq!(came + left_out, 360, "{tcp}: {}", iopt.said);
    // Five frames were in flight before the sender could detect the outage. A busy machine delays
    // some more: the first ones after the outage arrive at the bound.
    assert!(
        iopt.late() * 4 <= classic.late(),
        "{tcp}: {} of {came} are late",
        iopt.late()
    );
    assert!(in_time > classic.came().1, "{tcp}: {}", iopt.said);
    let tcp_events = iopt.tcp_events();
    let timed_out = tcp_events.iter().filter(|(_, e)| *e == TcpEvent::TimedOut);
    assert!(timed_out.count() >= 2, "{tcp}: {}", iopt.said);
    // Frames that would be late were dropped, and the rate recovered completely.
    assert!(iopt.answers().len() >= 2, "{tcp}: {}", iopt.said);
    assert!(iopt.dropped(DropCause::Late) > 0, "{tcp}: {}", iopt.said);
    let last = iopt.course().last().map(|(_, rate)| *rate);
    assert_eq!(last, Some(Rate::kbps(2_000)), "{tcp}: {}", iopt.said);
    assert!(
        iopt.said.contains("events without privilege"),
        "{}",
        iopt.said
    );
}

/// Records of TLS add bytes and a buffer to the connection, and the mode responds to an outage as
/// without them.
#[test]
fn iopt_over_tls_is_as_timely_as_without() {
    in_real_time("iopt_over_tls_is_as_timely_as_without", compare_tls);
}

fn compare_tls() {
    const IOPT: &str = "iopt --events-from unprivileged --congestion reno";
    let classic = thread::spawn(|| play("classic-tls", "classic --congestion reno"));
    let plain = thread::spawn(|| play("plain", IOPT));
    let options = format!("--size 320x180 --rate 2Mb/s --duration 12s --mode {IOPT}");
    let tls = thread::spawn(move || ModeRun::over_tls("iopt", cut_path, ("2s", &options)));
    // Joins all threads before a panic, so that none is left running.
    let [classic, plain, tls] = [classic, plain, tls].map(thread::JoinHandle::join);
    let [classic, plain, tls] = [classic, plain, tls].map(Result::unwrap);
    print("iopt without TLS", &plain);
    check("reno over TLS", &tls, &classic);
    // Each connection has timers of its own.
    for run in [&plain, &tls] {
        let (least, (_, in_time)) = (run.least_in_time(BOUND), run.came());
        assert!(
            in_time >= least,
            "{in_time} of {least} in time: {}",
            run.said
        );
    }
}

fn print(mode: &str, run: &ModeRun) {
    let (came, in_time) = run.came();
    let dead = run.dead_time();
    println!("{mode}: {came} of 360 frames came, {in_time} in time, none for {dead:?}");
    println!("{}", run.said);
}

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
