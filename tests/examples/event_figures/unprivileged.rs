//! How much later, and how completely, an unprivileged process sees what the kernel tells.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tidegate_core::link::Outage;
use tidegate_core::units::Time;
use tidegate_kernel::{Event, EventKind, Events, Wanted, monotonic};
use tidegate_live::emulator::{Emulator, Host};

use crate::verdict::Verdict;
use crate::{path, quantiles};

/// Both watch the same transfers, which have losses and outages.
pub(crate) fn run() -> Vec<Verdict> {
    let mut late: [Vec<Duration>; 3] = Default::default();
    let mut missed = [0; 3];
    let mut made_up = [0; 3];
    let mut handed_on = Vec::new();
    for round in 0..ROUNDS {
        let outage = |at: u64| Outage {
            from: Time::from_millis(at + 130 * round),
            to: Time::from_millis(at + 130 * round + 900),
        };
        let config = path::config(170 + 10 * round as u32, vec![outage(2_000), outage(7_000)]);
        let emulator = Emulator::start(&config).unwrap();
        let (stream, _sink) = path::connect(&emulator);
        let exact = Events::in_process().unwrap();
        // A process sees the timers of its own network namespace.
        let inside = emulator.namespace(Host::A);
        let weak = Arc::new(inside.within(Events::unprivileged).unwrap().unwrap());
        exact.subscribe(&stream, Wanted::ALL).unwrap();
        let allowed = weak.allowed();
        weak.subscribe(&stream, allowed).unwrap();
        let writer = Arc::clone(&weak);
        let copy = stream.try_clone().unwrap();
        let writing = thread::spawn(move || {
            let bytes = vec![0; 14_480];
            let start = std::time::Instant::now();
            while start.elapsed() < Duration::from_secs(12) {
                writer.write_all(&copy, &bytes).unwrap();
            }
        });
        let mut told = Vec::new();
        while !writing.is_finished() {
            if let Some(event) = weak.next(Some(Duration::from_millis(100))).unwrap() {
                told.push((event, monotonic()));
            }
        }
        writing.join().unwrap();
        for (event, at) in &told {
            if event.what.kind() == EventKind::Timeout {
                handed_on.push(at.saturating_sub(event.time));
            }
        }
        let exact: Vec<Event> = std::iter::from_fn(|| exact.try_next()).collect();
        let mut weak: Vec<Event> = std::iter::from_fn(|| weak.try_next()).collect();
        weak.extend(told.into_iter().map(|(event, _)| event));
        for (number, kind) in KINDS.into_iter().enumerate() {
            let of = |all: &[Event]| -> Vec<Duration> {
                let all = all.iter().filter(|e| e.what.kind() == kind);
                all.map(|e| e.time).collect()
            };
            let mut seen = of(&weak);
            for time in of(&exact) {
                let found = seen
                    .iter()
                    .position(|&s| s + SLACK >= time && s < time + NEAR);
                match found.map(|at| seen.remove(at)) {
                    Some(at) => late[number].push(at.saturating_sub(time)),
                    None => missed[number] += 1,
                }
            }
            made_up[number] += seen.len();
        }
    }
    let late = [0, 1, 2].map(|number| {
        println!(
            "{}: {} missed, {} made up",
            KINDS[number], missed[number], made_up[number]
        );
        quantiles("  how late", std::mem::take(&mut late[number]))
    });
    quantiles("time-outs, from there to whoever waits", handed_on);
    let aims = [
        "without privilege, all recoveries seen, p99 within 100 µs",
        "without privilege, all time-outs seen, p99 within 100 µs",
    ];
    let verdicts = aims.into_iter().zip(late).zip(missed);
    let verdicts = verdicts.map(|((aim, late), missed)| Verdict {
        aim,
        measured: format!(
            "{missed} missed, p50 {:.0} µs, p99 {:.0} µs",
            late.p50, late.p99
        ),
        holds: missed == 0 && late.p99 <= 100.0,
    });
    verdicts.collect()
}

const KINDS: [EventKind; 3] = [
    EventKind::Recovery,
    EventKind::Timeout,
    EventKind::Threshold,
];
const ROUNDS: u64 = 10;
/// What is seen within this time is the same event.
const NEAR: Duration = Duration::from_millis(100);
/// The threshold is seen earlier here, where the acknowledgement that leads to it is done with.
const SLACK: Duration = Duration::from_millis(10);
