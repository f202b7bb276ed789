//! The modes as published: reported events and the course of the target rate. All run in parallel,
//! each over its own path to Finland (Table 2 of the first paper).

use std::fs;
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use tidegate_core::delay_bound::{Burst, Frames, TcpPath};
use tidegate_core::tcp_rate::TcpEvent;
use tidegate_core::tcp_rate::{CongestionEvent, Law, Response, backlog_of_reaction};
use tidegate_core::trace::{DropCause, Event};
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_live::emulator::EmulatorConfig;
use tidegate_record::EventRow;

use crate::in_real_time;
use crate::mode_run::{ModeRun, path};
use crate::program::{Program, Scratch, text};

/// Each of the first two outages loses a frame or two, which duplicate acknowledgements indicate.
/// The last one lasts for at least two RTOs.
fn finland() -> EmulatorConfig {
    path(
        Duration::from_millis(83),
        140,
        &[(5_500, 5_550), (6_500, 6_550), (8_000, 9_500)],
    )
}

/// Sixteen seconds of small pictures at 1 Mb/s.
fn play(name: &str, mode: &str, meanwhile: impl FnOnce(&mut Program)) -> ModeRun {
    let options = format!(
        "--size 176x120 --fps 25 --rate 1Mb/s --floor 50kb/s --duration 16s --congestion reno \
         --events-from unprivileged --mode {mode}"
    );
    ModeRun::new(name, finland, (BOUND, &options), meanwhile)
}

#[test]
fn published_modes_take_their_course() {
    //= itcp-6.3-iexp (test)
    //= itcp-5.2-recovery-timer (test)
    //= itcp-4.4-symbiosis (test)
    in_real_time("published::published_modes_take_their_course", body);
}

fn body() {
    let runs = [
        thread::spawn(ioff),
        thread::spawn(iexp_fixed_by_timeouts),
        thread::spawn(iexp_fixed_by_losses),
        thread::spawn(iexp_additive_by_timeouts),
        thread::spawn(iexp_additive_by_losses),
        thread::spawn(|| printed(Law::Paper)),
        thread::spawn(|| printed(Law::PaperM)),
    ];
    // Joins all threads before a panic, so that none is left running.
    for ended in runs.map(thread::JoinHandle::join) {
        ended.unwrap();
    }
}

/// Subscribes to events without responding: all frames are sent, even late ones.
fn ioff() {
    let run = play("ioff", "ioff --subscribe timeout,third-duplicate", |_| ());
    assert_loss_events(&run);
    assert_eq!((run.answers(), run.course()), (vec![], vec![]));
    let (came, _) = run.came();
    assert_eq!(came + run.dropped(DropCause::Skipped), 400, "{}", run.said);
    assert!(run.late() >= 20, "{}", run.said);
    assert!(run.said.contains("rate changed 0 times"), "{}", run.said);
}

/// The first paper's recovery: 0.35 of the rate for 4 s, after an RTO only. The rate is written to
/// a file.
fn iexp_fixed_by_timeouts() {
    let scratch = Scratch::new("modes-rate-file");
    let par = scratch.path("rate.par");
    let read = || fs::read_to_string(&par).unwrap();
    let mode = format!("iexp --rate-to file:{}", text(&par));
    let mut lower = String::new();
    let run = play("fixed", &mode, |sender| {
        sender.wait_for_line(" of 1.00 Mb/s");
        assert_eq!(read(), "1000000\n");
        // Progress is reported every second; the rate stays low for four seconds.
        sender.wait_for_line(" for 4.0 s");
        lower = read();
    });
    assert_eq!(read(), "1000000\n", "{}", run.said);
    let lower = Rate::bps(lower.trim().parse().unwrap());
    assert!(
        rates_of(&run.answers()).contains(&lower),
        "{lower}: {}",
        run.said
    );
    assert_timeouts_only(&run);
    falls_and_returns(&run);
}

/// The same, after a third duplicate as well. The rate is written to a socket.
fn iexp_fixed_by_losses() {
    let scratch = Scratch::new("modes-rate-fixed");
    let socket = scratch.path("rate");
    let mode = format!(
        "iexp --recovery fixed --ratio 0.35 --hold 4s --subscribe timeout,third-duplicate \
         --rate-to unix:{}",
        text(&socket)
    );
    let mut reader = None;
    let run = play("fixed-losses", &mode, |_| {
        let socket = UnixStream::connect(&socket).unwrap();
        reader = Some(thread::spawn(move || rates(BufReader::new(socket))));
    });
    let read = reader.unwrap().join().unwrap();
    assert_loss_events(&run);
    falls_and_returns(&run);
    assert_eq!(read, published_rates(&run), "{}", run.said);
}

/// The report's recovery: 0.55 of the rate, plus a hundredth of the normal rate per second.
fn iexp_additive_by_timeouts() {
    let run = play("additive", "iexp --recovery additive", |_| ());
    assert_timeouts_only(&run);
    falls_and_climbs(&run);
}

/// The same, after a third duplicate as well. The rate is written to a socket.
fn iexp_additive_by_losses() {
    let scratch = Scratch::new("modes-rate-socket");
    let socket = scratch.path("rate");
    let mode = format!(
        "iexp --recovery additive --subscribe timeout,third-duplicate --rate-to unix:{}",
        text(&socket)
    );
    let mut reader = None;
    let run = play("additive-losses", &mode, |_| {
        let socket = UnixStream::connect(&socket).unwrap();
        reader = Some(thread::spawn(move || rates(BufReader::new(socket))));
    });
    let read = reader.unwrap().join().unwrap();
    assert_loss_events(&run);
    falls_and_climbs(&run);
    assert_eq!(read[0], NORMAL, "{}", run.said);
    let falls: Vec<Rate> = read
        .windows(2)
        .filter(|pair| pair[1] < pair[0])
        .map(|pair| pair[1])
        .collect();
    assert_eq!(falls, rates_of(&run.answers()), "{}", run.said);
    // Each step of the increase is written.
    let back = read.len() - 1 - falls.len();
    assert!(back >= 50, "{back} steps: {}", run.said);
}

/// iOPT with a law as printed: its rate for its duration, by the measured reaction time.
fn printed(law: Law) {
    let run = play(law.name(), &format!("iopt --law {law}"), |_| ());
    assert_timeouts_only(&run);
    follows_at_once(&run);
    let (answers, course, reactions) = (run.answers(), run.course(), reactions(&run));
    let backlogs = run.planned_for();
    assert_eq!(
        moments(&answers),
        moments(&run.tcp_events()),
        "each event has a response"
    );
    let slope = law.slope(PATH);
    for ((at, rate), backlog) in answers.iter().zip(&backlogs) {
        // Q is the backlog of the largest reaction so far, at the previous sending rate.
        let measured = reactions.iter().filter(|(measured, _)| measured < at);
        let tau = measured.map(|(_, tau)| *tau).max().unwrap_or(ASSUMED);
        let whole = backlog_of_reaction(NORMAL, tau, slope).get() as f64;
        // Q is smaller if the path was silent before.
        let known = (0.3 * whole - 8.0)..=(1.05 * whole + 8.0);
        println!("{law}: {rate}, {backlog:?} of {whole} by {tau:?}");
        assert!(
            known.contains(&(backlog.get() as f64)),
            "{backlog:?} by {tau:?}"
        );
        let expected = respond(law, *backlog).rate.as_f64();
        assert!(
            (rate.as_f64() / expected - 1.0).abs() < 0.1,
            "{rate}: {expected}"
        );
    }
    assert!(answers[0].1 < NORMAL, "{}", run.said);
    assert!(rates_of(&answers).contains(&course[0].1), "{course:?}");
    // The normal rate returns after the duration of the last response.
    let ((since, _), (back, last)) = (answers[answers.len() - 1], course[course.len() - 1]);
    assert_eq!(last, NORMAL, "{}", run.said);
    let lasts = respond(law, backlogs[backlogs.len() - 1]).duration.unwrap();
    let took = back.since(since);
    assert!(
        took > lasts * 9 / 10 && took < lasts * 11 / 10 + SOON,
        "{took:?} of {lasts:?}"
    );
}

/// Response of the law on this path, at the minimum RTT.
fn respond(law: Law, backlog: Bytes) -> Response {
    law.respond(&CongestionEvent {
        path: PATH,
        normal: NORMAL,
        reaction: Duration::ZERO,
        backlog: Some(backlog),
        budget: Duration::from_millis(600).saturating_sub(PATH.rtt / 2),
        burst: Burst::default(),
        floor: FLOOR,
        ceiling: NORMAL,
        curve: None,
        frames: Frames {
            next: Duration::ZERO,
            interval: Duration::from_millis(40),
        },
    })
}

fn reactions(run: &ModeRun) -> Vec<(Time, Duration)> {
    let rows = run.sent.events.iter();
    let measured = rows.filter_map(|row| match row.event {
        Event::Reacted { reaction, .. } => Some((row.at, reaction)),
        _ => None,
    });
    measured.collect()
}

/// Checks the events of short losses and of the long outage.
fn assert_loss_events(run: &ModeRun) {
    let tcp_events = run.tcp_events();
    let count = |kind| {
        tcp_events
            .iter()
            .filter(|(_, event)| *event == kind)
            .count()
    };
    assert!(count(TcpEvent::ThirdDuplicate) >= 1, "{}", run.said);
    assert!(count(TcpEvent::TimedOut) >= 2, "{}", run.said);
}

/// Checks that only RTOs changed the rate; the frames lost before did not.
fn assert_timeouts_only(run: &ModeRun) {
    let tcp_events = run.tcp_events();
    assert!(tcp_events.len() >= 2, "{}", run.said);
    assert!(
        tcp_events.iter().all(|(_, e)| *e == TcpEvent::TimedOut),
        "{tcp_events:?}"
    );
    let changed = run.course().first().map(|(at, _)| *at);
    assert!(changed >= Some(tcp_events[0].0), "{}", run.said);
}

/// Checks that the rate falls to 0.35 at each event, at once, and returns 4 s after the last one.
fn falls_and_returns(run: &ModeRun) {
    let (tcp_events, answers, course) = (run.tcp_events(), run.answers(), run.course());
    assert_eq!(
        moments(&tcp_events),
        moments(&answers),
        "each event has a response"
    );
    let (mut rate, mut since) = (NORMAL.as_f64(), Time::ZERO);
    for (at, answer) in &answers {
        let before = if at.since(since) < HOLD {
            rate
        } else {
            NORMAL.as_f64()
        };
        rate = (before * 0.35).max(FLOOR.as_f64());
        assert!((answer.as_f64() - rate).abs() <= 1.0, "{answers:?}");
        since = *at;
    }
    follows_at_once(run);
    let ((ended, _), (back, last)) = (tcp_events[tcp_events.len() - 1], course[course.len() - 1]);
    assert_eq!(last, NORMAL, "{}", run.said);
    let held = back.since(ended);
    // The next frame is up to 40 ms later, plus scheduling delay.
    assert!(held >= HOLD && held < HOLD + SOON, "{held:?}: {}", run.said);
    // The minimum in between equals the lowest response.
    assert_eq!(
        rates_of(&course).into_iter().min(),
        rates_of(&answers).into_iter().min()
    );
}

/// Checks that the rate falls to 0.55 at each event, at once, and then rises by 10 kb/s per second.
fn falls_and_climbs(run: &ModeRun) {
    let (tcp_events, answers, course) = (run.tcp_events(), run.answers(), run.course());
    assert_eq!(
        moments(&tcp_events),
        moments(&answers),
        "each event has a response"
    );
    let mut known: Option<(Time, Rate)> = None;
    for (at, rate) in answers {
        // Rate at the event or shortly before.
        let before = known.map_or(NORMAL.as_f64(), |(since, rate)| climbed(rate, since, at));
        assert!(
            (rate.as_f64() - before * 0.55).abs() < 5_000.0,
            "{}",
            run.said
        );
        known = Some((at, rate));
    }
    follows_at_once(run);
    let (since, rate) = known.expect("at least one event was reported");
    let (now, reached) = course[course.len() - 1];
    assert!(now.since(since) > Duration::from_secs(3), "{}", run.said);
    let expected = climbed(rate, since, now);
    assert!(
        (reached.as_f64() - expected).abs() < 600.0,
        "{reached} of {expected}"
    );
    let steps = course.iter().filter(|(at, _)| *at > since);
    assert!(steps.map(|(_, rate)| *rate).is_sorted(), "{course:?}");
}

/// The rate after an increase of a hundredth of the normal rate per second.
fn climbed(rate: Rate, since: Time, now: Time) -> f64 {
    rate.as_f64() + 0.01 * NORMAL.as_f64() * now.since(since).as_secs_f64()
}

/// Checks that the first frame after each event has the new rate, which determines the reaction
/// time.
fn follows_at_once(run: &ModeRun) {
    let (tcp_events, course) = (run.tcp_events(), run.course());
    let first = course.first().map(|(at, _)| at.since(tcp_events[0].0));
    assert!(first.is_some_and(|span| span < SOON), "{}", run.said);
    let reactions = reactions(run);
    assert!(!reactions.is_empty() && reactions.len() <= tcp_events.len());
    assert!(run.said.contains(", within "), "{}", run.said);
    // Events are observed with a delay.
    let at_once = |row: &EventRow| match row.event {
        Event::Reacted { signal, .. } => signal.is_zero(),
        _ => false,
    };
    assert!(!run.sent.events.iter().any(at_once), "{}", run.said);
    for (at, reaction) in reactions {
        assert!(reaction < SOON, "{reaction:?} at {at:?}: {}", run.said);
    }
}

fn moments<T>(happenings: &[(Time, T)]) -> Vec<Time> {
    happenings.iter().map(|(at, _)| *at).collect()
}

fn rates_of(happenings: &[(Time, Rate)]) -> Vec<Rate> {
    happenings.iter().map(|(_, rate)| *rate).collect()
}

/// Rates that should be written to other encoders: the current rate, and each change.
fn published_rates(run: &ModeRun) -> Vec<Rate> {
    let (mut rates, mut since) = (vec![NORMAL], Time::ZERO);
    for (at, rate) in run.answers() {
        if at.since(since) >= HOLD {
            rates.push(NORMAL);
        }
        rates.push(rate);
        since = at;
    }
    rates.push(NORMAL);
    rates.dedup();
    rates
}

/// Parses lines of bits per second until the end of the file.
fn rates(lines: impl std::io::BufRead) -> Vec<Rate> {
    let rate = |line: Result<String, _>| Rate::bps(line.unwrap().parse().unwrap());
    lines.lines().map(rate).collect()
}

const BOUND: &str = "600ms";
const NORMAL: Rate = Rate::kbps(1_000);
const FLOOR: Rate = Rate::kbps(50);
/// Duration of a rate after an event.
const HOLD: Duration = Duration::from_secs(4);
/// Reaction time τ before the first measurement.
const ASSUMED: Duration = Duration::from_millis(20);
/// Far above the time of a frame and the encoder, even on a busy machine.
const SOON: Duration = Duration::from_secs(1);
/// Segments have time stamps.
const PATH: TcpPath = TcpPath {
    mss: Bytes(1_448),
    rtt: Duration::from_millis(166),
    limit: None,
};
