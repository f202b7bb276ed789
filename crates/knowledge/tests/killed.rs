//! A writer that is killed during ingest loses the samples of less than a second.

use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use tidegate_core::random::{Seed, unit};
use tidegate_core::units::Rate;
use tidegate_knowledge::gather::{GatherConfig, Gatherer};
use tidegate_knowledge::{AddressPolicy, Measurement, Observation, Scale, Store, WallTime};

/// The process that is killed; nothing without the variable.
#[test]
fn writer() {
    let Some(path) = env::var_os(STORE) else {
        return;
    };
    let start = WallTime::of_day(20_000);
    let store = Store::open(Path::new(&path), start).expect("open").store;
    let config = GatherConfig::new(AddressPolicy::Plain);
    let gatherer = Gatherer::start(store, config, start, |notice| panic!("{notice}"));
    let gatherer = gatherer.expect("a thread");
    let (recorder, began) = (gatherer.recorder(), Instant::now());
    for number in 0_u64.. {
        recorder.record(Observation {
            address: [192, 0, 2, 7].into(),
            measurement: Measurement {
                at: start.after(Duration::from_millis(number)),
                scale: Scale::RoundTrip,
                rate: Rate::kbps(100 + number),
                rtt: None,
                loss: None,
                is_limited: false,
            },
            tag: None,
        });
        if number.is_multiple_of(BURST) {
            let written = gatherer.counts().written;
            let elapsed = began.elapsed().as_millis();
            // The parent has closed the pipe if it was killed itself.
            if writeln!(std::io::stderr(), "{number} {written} {elapsed}").is_err() {
                return;
            }
            // 5,000 samples/s.
            thread::park_timeout(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_kill_loses_less_than_a_second() {
    let next = AtomicU64::new(0);
    let intervals = Mutex::new(Vec::new());
    let folder = env::temp_dir().join(format!("tidegate-killed-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("created");
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(kill) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).filter(|kill| *kill < KILLS)
                {
                    let measured = kill_one(&folder.join(format!("{kill}.db")), kill);
                    intervals.lock().expect("no panic").extend(measured);
                }
            });
        }
    });
    fs::remove_dir_all(folder).expect("removed");
    // A kill loses the samples of less than two intervals between commits. These are less than a
    // second if one is less than 500 ms: the median, since a stall of the machine lengthens some.
    let mut intervals = intervals.into_inner().expect("no panic");
    intervals.sort();
    let median = intervals[intervals.len() / 2];
    assert!(median < Duration::from_millis(500), "{intervals:?}");
}

/// Kills a writer and checks what it has stored. Returns the intervals between its commits.
fn kill_one(path: &Path, seed: u64) -> Vec<Duration> {
    let mut child = Command::new(env::current_exe().expect("this test"))
        .args(["--exact", "writer", "--nocapture"])
        .env(STORE, path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    // At any moment between two commits or in one.
    let moment = unit(&mut Seed(seed).stream("kill"));
    let span = Duration::from_millis(500).mul_f64(moment);
    // Stays open, since the writer ends by itself without it.
    let mut messages = child.stderr.take().expect("piped");
    let commits = watch(&mut messages, span);
    child.kill().expect("killed");
    child.wait().expect("ended");
    // The writer opens the store again, so that a damaged one would be replaced.
    let opened = Store::open(path, WallTime::of_day(20_000)).expect("open");
    assert_eq!(opened.set_aside, None);
    let mut next = 0;
    let read = opened.store.each_sample(|sample| {
        assert_eq!(
            sample.measurement.rate,
            Rate::kbps(100 + next),
            "one is missing"
        );
        next += 1;
        ControlFlow::Continue(())
    });
    read.expect("read");
    // The last commit has all samples that were recorded before the end of the one before. The
    // writer reports both itself, so that this holds on a machine that stalls, too.
    let [.., before, last] = &commits[..] else {
        panic!("{commits:?}");
    };
    assert!(
        next > before.recorded && next >= last.written,
        "seed {seed}: {next} samples stored, {commits:?}"
    );
    let pairs = commits.windows(2);
    pairs
        .map(|pair| pair[1].at.saturating_sub(pair[0].at))
        .collect()
}

/// End of a commit, as the writer's messages show it.
#[derive(Debug)]
struct Commit {
    /// Since the start of the writer.
    at: Duration,
    /// Number of a sample that was recorded before.
    recorded: u64,
    /// Samples in the store.
    written: u64,
}

/// Reads the messages of a writer until three commits and a span after them.
fn watch(messages: &mut ChildStderr, span: Duration) -> Vec<Commit> {
    let mut commits: Vec<Commit> = Vec::new();
    let (mut before, mut stored) = (0, 0);
    for line in BufReader::new(messages).lines() {
        let line = line.expect("a line");
        let numbers: Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
        let Ok([number, written, elapsed]) = numbers.as_deref() else {
            panic!("{line}");
        };
        let (number, written, at) = (*number, *written, Duration::from_millis(*elapsed));
        if written > stored {
            commits.push(Commit {
                at,
                recorded: before,
                written,
            });
        }
        (before, stored) = (number, written);
        let is_done = |third: &Commit| at >= third.at + span;
        if commits.get(2).is_some_and(is_done) {
            return commits;
        }
        assert!(number < written + QUEUE, "no commit after {commits:?}");
    }
    panic!("the writer has ended after {commits:?}");
}

const STORE: &str = "TIDEGATE_KILLED_STORE";
const BURST: u64 = 25;
const KILLS: u64 = 100;
/// Samples that may wait, in a queue of the default length.
const QUEUE: u64 = 65_536;

/// Writers that run at once. They wait most of the time.
const AT_A_TIME: usize = 10;
