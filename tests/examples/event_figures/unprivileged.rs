//! Delay and completeness of unprivileged events, compared with kernel events.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_kernel::{Event, EventKind, EventRequest, Events, monotonic};
use tidegate_live::emulator::{Blackhole, Emulator, Host};
use tidegate_live::netns::Namespace;

use crate::verdict::Verdict;
use crate::{path, quantiles, wait_until};

/// Both sources observe the same transfers with losses and outages: with the default processor idle
/// states, and without idle states. Waking a processor of a virtual machine takes its host tens of
/// microseconds, sometimes hundreds.
pub(crate) fn run() -> Vec<Verdict> {
    println!("with processor idle states");
    let mut aims = Compared::over(ROUNDS).verdicts([
        "without privilege, all recoveries seen, p99 within 100 µs",
        "without privilege, all time-outs seen, p99 within 100 µs",
    ]);
    let Some(_awake) = keep_awake() else {
        println!("processors may enter idle states: /dev/cpu_dma_latency is not writable");
        return aims;
    };
    println!("without processor idle states");
    aims.extend(Compared::over(ROUNDS).verdicts([
        "the same of recoveries, without processor idle states",
        "the same of time-outs, without processor idle states",
    ]));
    aims
}

/// Disables idle states while the returned file is open (the kernel's `pm_qos_interface`).
fn keep_awake() -> Option<File> {
    let mut wish = File::create("/dev/cpu_dma_latency").ok()?;
    wish.write_all(&0_i32.to_ne_bytes()).ok()?;
    Some(wish)
}

/// Unprivileged events of each of [`KINDS`], compared with kernel events.
#[derive(Default)]
struct Compared {
    late: [Vec<Duration>; 3],
    missed: [u32; 3],
    spurious: [usize; 3],
    /// Delays from the detection of a time-out to the waiting thread.
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

    /// Runs one transfer. Returns its kernel events and its unprivileged events.
    fn watch(&mut self, round: u64) -> (Vec<Event>, Vec<Event>) {
        let config = path::config(170 + 10 * round as u32, Vec::new());
        let emulator = Emulator::start(&config).unwrap();
        let (stream, _sink) = path::connect(&emulator);
        let_others_run();
        let exact = Events::in_process().unwrap();
        // A process can read the timers of its own network namespace only.
        let inside = emulator.namespace(Host::A);
        let weak = Arc::new(inside.within(Events::unprivileged).unwrap().unwrap());
        exact.subscribe(&stream, EventRequest::ALL).unwrap();
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

    /// Matches kernel events of a kind with unprivileged ones.
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
        self.spurious[number] += seen.len();
    }

    /// Prints the comparison and checks the aims.
    fn verdicts(self, aims: [&'static str; 2]) -> Vec<Verdict> {
        let late = self.late.into_iter().enumerate().map(|(number, late)| {
            println!(
                "{}: {} missed, {} spurious",
                KINDS[number], self.missed[number], self.spurious[number]
            );
            quantiles("  delay", late)
        });
        let late: Vec<_> = late.collect();
        quantiles(
            "time-outs, from detection to the waiting thread",
            self.handed_on,
        );
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

/// Writes for [`SPAN`], through the library.
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

/// Drops all packets of the host twice. A route drops them instead of the emulator, which stands
/// for other machines: passing a packet to the emulator takes the kernel as long as waking a
/// processor.
fn cut(host: &Namespace, round: u64) -> thread::JoinHandle<()> {
    let blackhole = Blackhole::new(host).unwrap();
    let start = Instant::now();
    thread::spawn(move || {
        for begin in [2_000, 7_000].map(|at| Duration::from_millis(at + 130 * round)) {
            for (at, lost) in [(begin, true), (begin + CUT, false)] {
                wait_until(start, at);
                blackhole.set_blackhole(lost).unwrap();
            }
        }
    })
}

/// Removes the real-time priority of the emulator, which stands for other machines: it must not
/// occupy the sender's processor for milliseconds.
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
/// Duration of a transfer.
const SPAN: Duration = Duration::from_secs(12);
/// Duration of an outage.
const CUT: Duration = Duration::from_millis(900);
/// Maximum delay of the same event.
const NEAR: Duration = Duration::from_millis(100);
/// The threshold is detected earlier here, at the end of the processing of the ACK.
const SLACK: Duration = Duration::from_millis(10);
