//! How much later, and how completely, an unprivileged process sees what the kernel tells.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_kernel::{Event, EventKind, Events, Wanted, monotonic};
use tidegate_live::emulator::{Blackhole, Emulator, Host};
use tidegate_live::netns::Namespace;

use crate::verdict::Verdict;
use crate::{path, quantiles, wait_until};

/// Both watch the same transfers, which have losses and outages: once on the machine as it is, and once
/// on processors that never sleep. To get a processor of a virtual machine going takes its host tens of
/// microseconds, and now and then hundreds.
pub(crate) fn run() -> Vec<Verdict> {
    println!("on the machine as it is");
    let mut aims = Compared::over(ROUNDS).verdicts([
        "without privilege, all recoveries seen, p99 within 100 µs",
        "without privilege, all time-outs seen, p99 within 100 µs",
    ]);
    let Some(_awake) = keep_awake() else {
        println!("processors may sleep here: /dev/cpu_dma_latency cannot be written to");
        return aims;
    };
    println!("on processors that do not sleep");
    aims.extend(Compared::over(ROUNDS).verdicts([
        "the same of recoveries, on processors that do not sleep",
        "the same of time-outs, on processors that do not sleep",
    ]));
    aims
}

/// Asks that no processor sleeps as long as the answer is kept (the kernel's `pm_qos_interface`).
fn keep_awake() -> Option<File> {
    let mut wish = File::create("/dev/cpu_dma_latency").ok()?;
    wish.write_all(&0_i32.to_ne_bytes()).ok()?;
    Some(wish)
}

/// What was seen of each of [`KINDS`].
#[derive(Default)]
struct Compared {
    late: [Vec<Duration>; 3],
    missed: [u32; 3],
    made_up: [usize; 3],
    /// From when a time-out was seen to a thread that waits for events.
    handed_on: Vec<Duration>,
}

impl Compared {
    fn over(rounds: u64) -> Self {
        let mut this = Self::default();
        for round in 0..rounds {
            let (exact, weak) = this.watch(round);
            for number in 0..KINDS.len() {
                this.compare(number, &exact, &weak);
            }
        }
        this
    }

    /// One transfer, as the kernel's events have it and as it is seen without privilege.
    fn watch(&mut self, round: u64) -> (Vec<Event>, Vec<Event>) {
        let config = path::config(170 + 10 * round as u32, Vec::new());
        let emulator = Emulator::start(&config).unwrap();
        let (stream, _sink) = path::connect(&emulator);
        let_others_run();
        let exact = Events::in_process().unwrap();
        // A process sees the timers of its own network namespace.
        let inside = emulator.namespace(Host::A);
        let weak = Arc::new(inside.within(Events::unprivileged).unwrap().unwrap());
        exact.subscribe(&stream, Wanted::ALL).unwrap();
        let allowed = weak.allowed();
        weak.subscribe(&stream, allowed).unwrap();
        let cuts = cut(inside, round);
        let writing = write(&stream, &weak);
        let mut told = Vec::new();
        while !writing.is_finished() {
            if let Some(event) = weak.next(Some(Duration::from_millis(100))).unwrap() {
                if event.what.kind() == EventKind::Timeout {
                    self.handed_on.push(monotonic().saturating_sub(event.time));
                }
                told.push(event);
            }
        }
        writing.join().unwrap();
        cuts.join().unwrap();
        told.extend(std::iter::from_fn(|| weak.try_next()));
        let exact = std::iter::from_fn(|| exact.try_next());
        (exact.collect(), told)
    }

    /// Finds for each event of a kind when it was seen.
    fn compare(&mut self, number: usize, exact: &[Event], weak: &[Event]) {
        let kind = KINDS[number];
        let of = |all: &[Event]| -> Vec<Duration> {
            let all = all.iter().filter(|e| e.what.kind() == kind);
            all.map(|e| e.time).collect()
        };
        let mut seen = of(weak);
        for time in of(exact) {
            let near = |&s: &Duration| s + SLACK >= time && s < time + NEAR;
            let found = seen.iter().position(near).map(|at| seen.remove(at));
            match found {
                Some(at) => self.late[number].push(at.saturating_sub(time)),
                None => self.missed[number] += 1,
            }
        }
        self.made_up[number] += seen.len();
    }

    /// Prints what was seen, and judges it.
    fn verdicts(self, aims: [&'static str; 2]) -> Vec<Verdict> {
        let late = self.late.into_iter().enumerate().map(|(number, late)| {
            println!(
                "{}: {} missed, {} made up",
                KINDS[number], self.missed[number], self.made_up[number]
            );
            quantiles("  how late", late)
        });
        let late: Vec<_> = late.collect();
        quantiles("time-outs, from there to whoever waits", self.handed_on);
        let verdicts = aims.into_iter().zip(late).zip(self.missed);
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
}

/// Sends for [`SPAN`], through the library.
fn write(stream: &TcpStream, events: &Arc<Events>) -> thread::JoinHandle<()> {
    let events = Arc::clone(events);
    let stream = stream.try_clone().unwrap();
    thread::spawn(move || {
        let bytes = vec![0; 14_480];
        let start = Instant::now();
        while start.elapsed() < SPAN {
            events.write_all(&stream, &bytes).unwrap();
        }
    })
}

/// Has all that the host sends lost, twice. Not in the emulator, which stands for a network of other
/// machines: to hand a packet to that would take the kernel as long as waking a processor.
fn cut(host: &Namespace, round: u64) -> thread::JoinHandle<()> {
    let nowhere = Blackhole::new(host).unwrap();
    let start = Instant::now();
    thread::spawn(move || {
        for begin in [2_000, 7_000].map(|at| Duration::from_millis(at + 130 * round)) {
            for (at, lost) in [(begin, true), (begin + CUT, false)] {
                wait_until(start, at);
                nowhere.lead(lost).unwrap();
            }
        }
    })
}

/// Takes its real-time priority from the emulator, which stands for a network of other machines: it
/// must not have a processor to itself, for milliseconds, where the sender runs.
fn let_others_run() {
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap();
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if name.trim_end() != "emulator" {
            continue;
        }
        let number = task.file_name().to_string_lossy().parse().unwrap();
        let ordinary = libc::sched_param { sched_priority: 0 };
        // SAFETY: the parameters are whole and ours. A refusal leaves it as it is.
        unsafe { libc::sched_setscheduler(number, libc::SCHED_OTHER, &raw const ordinary) };
    }
}

const KINDS: [EventKind; 3] = [
    EventKind::Recovery,
    EventKind::Timeout,
    EventKind::Threshold,
];
const ROUNDS: u64 = 10;
/// Of a transfer.
const SPAN: Duration = Duration::from_secs(12);
/// Of a path that is cut.
const CUT: Duration = Duration::from_millis(900);
/// What is seen within this time is the same event.
const NEAR: Duration = Duration::from_millis(100);
/// The threshold is seen earlier here, where the acknowledgement that leads to it is done with.
const SLACK: Duration = Duration::from_millis(10);
