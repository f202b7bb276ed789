//! The modes as published: what is told, and which course the target takes. All are played side by
//! side, each over a path of its own to Finland (Table 2 of the first paper).

use std::fs::{self, File};
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use tidegate_core::delay_bound::{
    Burst, Congested, Frames, Law, Response, TcpPath, backlog_of_reaction,
};
use tidegate_core::tcp_rate::TcpEvent;
use tidegate_core::trace::{DropCause, Event};
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_live::emulator::EmulatorConfig;
use tidegate_sim::run::EventRow;

use crate::in_real_time;
use crate::party::{Party, Scratch, text};
use crate::played::{Played, path};

/// The first two cuts lose a frame or two each, which duplicate acknowledgements tell of; the last
/// one lasts until the timer has expired twice at least.
fn finland() -> EmulatorConfig {
    path(
        Duration::from_millis(83),
        140,
        &[(5_500, 5_550), (6_500, 6_550), (8_000, 9_500)],
    )
}

/// Sixteen seconds of small pictures at 1 Mb/s.
fn play(name: &str, mode: &str, meanwhile: impl FnOnce(&mut Party)) -> Played {
    let options = format!(
        "--size 176x120 --fps 25 --rate 1Mb/s --floor 50kb/s --duration 16s --congestion reno \
         --events-from unprivileged --mode {mode}"
    );
    Played::new(name, finland, (BOUND, &options), meanwhile)
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
        thread::spawn(iexp_fixed_by_time_outs),
        thread::spawn(iexp_fixed_by_losses),
        thread::spawn(iexp_additive_by_time_outs),
        thread::spawn(iexp_additive_by_losses),
        thread::spawn(|| printed(Law::Paper)),
        thread::spawn(|| printed(Law::PaperM)),
    ];
    // None is left behind by one that failed.
    for ended in runs.map(thread::JoinHandle::join) {
        ended.unwrap();
    }
}

/// It is told, and does nothing: all is sent, late or not.
fn ioff() {
    let run = play("ioff", "ioff --subscribe timeout,third-duplicate", |_| ());
    heard_of_losses(&run);
    assert_eq!((run.answers(), run.course()), (vec![], vec![]));
    let (came, _) = run.came();
    assert_eq!(came + run.dropped(DropCause::Skipped), 400, "{}", run.said);
    assert!(run.late() >= 20, "{}", run.said);
    assert!(run.said.contains("rate changed 0 times"), "{}", run.said);
}

/// The first paper's: to 0.35 for 4 s, at a time-out only. Others read the rate in a file.
fn iexp_fixed_by_time_outs() {
    let scratch = Scratch::new("modes-rate-file");
    let par = scratch.path("rate.par");
    let read = || fs::read_to_string(&par).unwrap();
    let mode = format!("iexp --rate-to file:{}", text(&par));
    let mut lower = String::new();
    let run = play("fixed", &mode, |sender| {
        sender.says(" of 1.00 Mb/s");
        assert_eq!(read(), "1000000\n");
        // Progress is told of every second, and it stays low for four.
        sender.says(" for 4.0 s");
        lower = read();
    });
    assert_eq!(read(), "1000000\n", "{}", run.said);
    let lower = Rate::bps(lower.trim().parse().unwrap());
    assert!(
        rates_of(&run.answers()).contains(&lower),
        "{lower}: {}",
        run.said
    );
    heard_of_time_outs_only(&run);
    falls_and_returns(&run);
}

/// The same, and at a third duplicate. Others read the rate from a pipe.
fn iexp_fixed_by_losses() {
    let scratch = Scratch::new("modes-rate-pipe");
    let pipe = scratch.path("rate");
    let mode = format!(
        "iexp --recovery fixed --ratio 0.35 --hold 4s --subscribe timeout,third-duplicate \
         --rate-to pipe:{}",
        text(&pipe)
    );
    let mut reader = None;
    let run = play("fixed-losses", &mode, |_| {
        let pipe = File::open(&pipe).unwrap();
        reader = Some(thread::spawn(move || rates(BufReader::new(pipe))));
    });
    let read = reader.unwrap().join().unwrap();
    heard_of_losses(&run);
    falls_and_returns(&run);
    assert_eq!(read, told_to_others(&run), "{}", run.said);
}

/// The report's: to 0.55, and a hundredth of the normal rate more per second.
fn iexp_additive_by_time_outs() {
    let run = play("additive", "iexp --recovery additive", |_| ());
    heard_of_time_outs_only(&run);
    falls_and_climbs(&run);
}

/// The same, and at a third duplicate. Others read the rate from a socket.
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
    heard_of_losses(&run);
    falls_and_climbs(&run);
    assert_eq!(read[0], NORMAL, "{}", run.said);
    let falls: Vec<Rate> = read
        .windows(2)
        .filter(|pair| pair[1] < pair[0])
        .map(|pair| pair[1])
        .collect();
    assert_eq!(falls, rates_of(&run.answers()), "{}", run.said);
    // It is told of every step on the way back.
    let back = read.len() - 1 - falls.len();
    assert!(back >= 50, "{back} steps: {}", run.said);
}

/// iOPT by a law as printed: to its rate for its time, by a reaction that was measured.
fn printed(law: Law) {
    let run = play(law.name(), &format!("iopt --law {law}"), |_| ());
    heard_of_time_outs_only(&run);
    follows_at_once(&run);
    let (answers, course, reactions) = (run.answers(), run.course(), reactions(&run));
    let backlogs = run.planned_for();
    assert_eq!(moments(&answers), moments(&run.told()), "each is answered");
    let slope = law.slope(PATH);
    for ((at, rate), backlog) in answers.iter().zip(&backlogs) {
        // Q is what piles up in the largest reaction so far, at what was sent until now.
        let measured = reactions.iter().filter(|(measured, _)| measured < at);
        let tau = measured.map(|(_, tau)| *tau).max().unwrap_or(ASSUMED);
        let whole = backlog_of_reaction(NORMAL, tau, slope).get() as f64;
        // Which is less where the path was silent before.
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
    // All of it when the time of the last one is over.
    let ((since, _), (back, last)) = (answers[answers.len() - 1], course[course.len() - 1]);
    assert_eq!(last, NORMAL, "{}", run.said);
    let lasts = respond(law, backlogs[backlogs.len() - 1]).duration.unwrap();
    let took = back.since(since);
    assert!(
        took > lasts * 9 / 10 && took < lasts * 11 / 10 + SOON,
        "{took:?} of {lasts:?}"
    );
}

/// The law's answer on this path, if the round trip is the shortest.
fn respond(law: Law, backlog: Bytes) -> Response {
    law.respond(&Congested {
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

fn reactions(run: &Played) -> Vec<(Time, Duration)> {
    let rows = run.sent.events.iter();
    let measured = rows.filter_map(|row| match row.event {
        Event::Reacted { reaction, .. } => Some((row.at, reaction)),
        _ => None,
    });
    measured.collect()
}

/// A cut that lost a frame or two, and the longer one.
fn heard_of_losses(run: &Played) {
    let told = run.told();
    let count = |kind| told.iter().filter(|(_, event)| *event == kind).count();
    assert!(count(TcpEvent::ThirdDuplicate) >= 1, "{}", run.said);
    assert!(count(TcpEvent::TimedOut) >= 2, "{}", run.said);
}

/// The frames that the first cuts lost moved nothing.
fn heard_of_time_outs_only(run: &Played) {
    let told = run.told();
    assert!(told.len() >= 2, "{}", run.said);
    assert!(
        told.iter().all(|(_, e)| *e == TcpEvent::TimedOut),
        "{told:?}"
    );
    let changed = run.course().first().map(|(at, _)| *at);
    assert!(changed >= Some(told[0].0), "{}", run.said);
}

/// 0.35 of the rate at each event, at once; all of it 4 s after the last.
fn falls_and_returns(run: &Played) {
    let (told, answers, course) = (run.told(), run.answers(), run.course());
    assert_eq!(moments(&told), moments(&answers), "each is answered");
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
    let ((ended, _), (back, last)) = (told[told.len() - 1], course[course.len() - 1]);
    assert_eq!(last, NORMAL, "{}", run.said);
    let held = back.since(ended);
    // The next picture came up to 40 ms later, and had to find a processor.
    assert!(held >= HOLD && held < HOLD + SOON, "{held:?}: {}", run.said);
    // In between it was as low as the lowest answer says.
    assert_eq!(
        rates_of(&course).into_iter().min(),
        rates_of(&answers).into_iter().min()
    );
}

/// 0.55 of the rate at each event, at once, and 10 kb/s more per second.
fn falls_and_climbs(run: &Played) {
    let (told, answers, course) = (run.told(), run.answers(), run.course());
    assert_eq!(moments(&told), moments(&answers), "each is answered");
    let mut known: Option<(Time, Rate)> = None;
    for (at, rate) in answers {
        // What it was when the event came, or a little before.
        let before = known.map_or(NORMAL.as_f64(), |(since, rate)| climbed(rate, since, at));
        assert!(
            (rate.as_f64() - before * 0.55).abs() < 5_000.0,
            "{}",
            run.said
        );
        known = Some((at, rate));
    }
    follows_at_once(run);
    let (since, rate) = known.expect("it was told of something");
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

/// A hundredth of the normal rate per second.
fn climbed(rate: Rate, since: Time, now: Time) -> f64 {
    rate.as_f64() + 0.01 * NORMAL.as_f64() * now.since(since).as_secs_f64()
}

/// The first frame behind each event was made at the new rate, which that was measured by.
fn follows_at_once(run: &Played) {
    let (told, course) = (run.told(), run.course());
    let first = course.first().map(|(at, _)| at.since(told[0].0));
    assert!(first.is_some_and(|span| span < SOON), "{}", run.said);
    let reactions = reactions(run);
    assert!(!reactions.is_empty() && reactions.len() <= told.len());
    assert!(run.said.contains(", within "), "{}", run.said);
    // None is heard of in the moment in which it happens.
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

/// What an encoder of others should have been told: the rate of the moment, and each that is new.
fn told_to_others(run: &Played) -> Vec<Rate> {
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

/// Lines of bits per second, until whoever writes them ends.
fn rates(lines: impl std::io::BufRead) -> Vec<Rate> {
    let rate = |line: Result<String, _>| Rate::bps(line.unwrap().parse().unwrap());
    lines.lines().map(rate).collect()
}

const BOUND: &str = "600ms";
const NORMAL: Rate = Rate::kbps(1_000);
const FLOOR: Rate = Rate::kbps(50);
/// For so long a rate is kept that was answered with.
const HOLD: Duration = Duration::from_secs(4);
/// τ before it was measured.
const ASSUMED: Duration = Duration::from_millis(20);
/// Far more than a picture and an encoder take, also on a machine that does other things.
const SOON: Duration = Duration::from_secs(1);
/// Its segments carry time stamps.
const PATH: TcpPath = TcpPath {
    mss: Bytes(1_448),
    rtt: Duration::from_millis(166),
    limit: None,
};
