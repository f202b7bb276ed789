//! A writer that is killed during ingest loses the samples of less than a second.

use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
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
    let recorder = gatherer.expect("a thread").recorder();
    for number in 0_u64.. {
        recorder.record(Observation {
            address: [192, 0, 2, 7].into(),
            measurement: Measurement {
                at: start.after(Duration::from_millis(number)),
                scale: Scale::RoundTrip,
                rate: Rate::kbps(100 + number),
                rtt: None,
                loss: None,
            },
            tag: None,
        });
        if number.is_multiple_of(BURST) {
            // The parent has closed the pipe if it was killed itself.
            if writeln!(std::io::stderr(), "{number}").is_err() {
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
    let folder = env::temp_dir().join(format!("tidegate-killed-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("created");
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(kill) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).filter(|kill| *kill < KILLS)
                {
                    kill_one(&folder.join(format!("{kill}.db")), kill);
                }
            });
        }
    });
    fs::remove_dir_all(folder).expect("removed");
}

fn kill_one(path: &Path, seed: u64) {
    // At any moment between two commits or in one.
    let moment = unit(&mut Seed(seed).stream("kill"));
    let span = Duration::from_millis(1_050) + Duration::from_millis(500).mul_f64(moment);
    let mut child = Command::new(env::current_exe().expect("this test"))
        .args(["--exact", "writer", "--nocapture"])
        .env(STORE, path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut recorded: Vec<(Instant, u64)> = Vec::new();
    for line in lines {
        let line = line.expect("a line");
        let number = line.parse().unwrap_or_else(|_| panic!("{line}"));
        recorded.push((Instant::now(), number));
        if recorded[0].0.elapsed() >= span {
            break;
        }
    }
    let killed = Instant::now();
    child.kill().expect("killed");
    child.wait().expect("ended");
    let before = |(at, _): &&(Instant, u64)| killed - *at >= Duration::from_secs(1);
    let (_, old) = recorded
        .iter()
        .rfind(before)
        .expect("the writer ran longer");
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
    assert!(
        next > *old,
        "seed {seed}: {next} samples stored, {old} recorded a second before"
    );
}

const STORE: &str = "TIDEGATE_KILLED_STORE";
const BURST: u64 = 25;
const KILLS: u64 = 100;

/// Writers that run at once. They wait most of the time.
const AT_A_TIME: usize = 10;
