//! A disk that is full while samples are gathered: sessions do not notice it, the user gets one
//! message, and samples are stored again once there is room.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;
use std::{env, fs, thread};

use tidegate_core::units::Rate;
use tidegate_knowledge::gather::{GatherConfig, GatherCounts, Gatherer, Notice, Recorder};
use tidegate_knowledge::{AddressPolicy, Measurement, Observation, Scale, Store, WallTime};

#[test]
fn a_full_disk_loses_samples_only() {
    let folder = env::temp_dir().join(format!("tidegate-full-disk-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("created");
    // The file system exists in the mount namespace of the child process only.
    let script = "mount -t tmpfs -o size=1m none \"$1\" && shift && exec \"$@\"";
    let mut shell = Command::new("unshare");
    shell
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .args(["sh".as_ref(), folder.as_os_str()])
        .arg(env::current_exe().expect("this test"))
        .args(["--exact", "on_a_small_disk", "--nocapture"])
        .env(FOLDER, &folder);
    let mount = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "true"])
        .output();
    if mount.is_ok_and(|output| output.status.success()) {
        let output = shell.output().expect("started");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains(DONE), "{text}");
    } else {
        eprintln!("skipped: no mount namespace is available");
    }
    fs::remove_dir(folder).expect("removed");
}

/// Runs in the child process; nothing without the variable.
#[test]
fn on_a_small_disk() {
    let Some(folder) = env::var_os(FOLDER) else {
        return;
    };
    let folder = Path::new(&folder);
    let (file, ballast) = (folder.join("store.db"), folder.join("ballast"));
    fs::write(&ballast, vec![7; 512 << 10]).expect("there is room");
    let now = WallTime::of_day(20_000);
    let store = Store::open(&file, now).expect("open").store;
    let (report, notices) = mpsc::channel();
    let (resume, resumed) = mpsc::channel();
    let notify = move |notice: Notice| {
        report.send(notice.to_string()).expect("read");
        // The session has read the counts, or takes no more notices.
        let _ = resumed.recv();
    };
    let config = GatherConfig::new(AddressPolicy::Plain);
    let gatherer = Gatherer::start(store, config, now, notify).expect("a thread");
    let recorder = gatherer.recorder();
    let mut session = Session::new(notices, resume);
    let mut seen = session.run(&gatherer, &recorder, |counts| counts.lost > 0);
    // Three batches in a row. A batch that is smaller than the first one may fit into the space
    // that the store had allocated for that, and the failure of the next one is another cause.
    let mut batches = 1;
    session.run(&gatherer, &recorder, |counts| {
        batches += u32::from(counts.lost > seen.lost);
        if counts.written > seen.written {
            batches = 0;
        }
        seen = *counts;
        batches >= 3
    });
    fs::remove_file(ballast).expect("removed");
    let again = gatherer.counts();
    session.run(&gatherer, &recorder, |counts| {
        counts.written > again.written + 1_000
    });
    drop(recorder);
    let counts = session.finish(gatherer);
    // The queue never fills, so that no observation is dropped while the disk is full.
    assert_eq!((counts.dropped, counts.invalid), (0, 0));
    assert_eq!(counts.written + counts.lost, session.recorded);
    session.check_notices();
    let opened = Store::open(&file, now).expect("open");
    assert_eq!(opened.set_aside, None);
    let stored = opened.store.counts().expect("read").round_trip_samples;
    assert_eq!(stored, counts.written);
    eprintln!("{DONE}");
}

/// A session that records 20,000 samples per second, and reads the notices.
struct Session {
    recorded: u64,
    notices: Receiver<String>,
    /// The writer waits for it after a notice; `None` once the session takes no more notices.
    resume: Option<Sender<()>>,
    /// Notices and the counts at their time.
    noticed: Vec<(String, GatherCounts)>,
    /// All counts that were read.
    counts: Vec<GatherCounts>,
}

impl Session {
    fn new(notices: Receiver<String>, resume: Sender<()>) -> Self {
        Self {
            recorded: 0,
            notices,
            resume: Some(resume),
            noticed: Vec::new(),
            counts: Vec::new(),
        }
    }

    fn run(
        &mut self,
        gatherer: &Gatherer,
        recorder: &Recorder,
        mut is_done: impl FnMut(&GatherCounts) -> bool,
    ) -> GatherCounts {
        for _ in 0..200_000 {
            for _ in 0..100 {
                recorder.record(observation(self.recorded));
                self.recorded += 1;
            }
            if let Ok(notice) = self.notices.try_recv() {
                self.noticed.push((notice, gatherer.counts()));
                let resume = self.resume.as_ref().expect("not finished");
                resume.send(()).expect("the writer waits");
            }
            let counts = gatherer.counts();
            self.counts.push(counts);
            if is_done(&counts) {
                return counts;
            }
            thread::park_timeout(Duration::from_millis(5));
        }
        panic!("after {} samples: {:?}", self.recorded, gatherer.counts());
    }

    /// There is room, so that no notice is to come.
    fn finish(&mut self, gatherer: Gatherer) -> GatherCounts {
        self.resume = None;
        let counts = gatherer.finish();
        assert_eq!(self.notices.iter().collect::<Vec<_>>(), [""; 0]);
        counts
    }

    /// The user gets one message for any number of batches that fail for one cause. Samples are
    /// stored between two causes, so each has a number of stored samples of its own.
    fn check_notices(&self) {
        let noticed = &self.noticed;
        for (message, _) in noticed {
            assert!(message.contains("the disk is full"), "{noticed:?}");
        }
        let causes: Vec<u64> = noticed.iter().map(|(_, counts)| counts.written).collect();
        assert!(causes.is_sorted_by(|a, b| a < b), "{noticed:?}");
        // The counters of `after` are not read at one time, but all before those of `next`.
        for [before, after, next] in self.counts.array_windows() {
            let has_cause = |cause: &u64| (before.written..=next.written).contains(cause);
            assert!(
                after.lost == before.lost || causes.iter().any(has_cause),
                "{before:?} {after:?}: {noticed:?}"
            );
        }
    }
}

fn observation(number: u64) -> Observation {
    Observation {
        address: [192, 0, 2, 7].into(),
        measurement: Measurement {
            at: WallTime::of_day(20_000).after(Duration::from_millis(number)),
            scale: Scale::RoundTrip,
            rate: Rate::kbps(100 + number),
            rtt: None,
            loss: None,
            is_limited: false,
        },
        tag: None,
    }
}

const FOLDER: &str = "TIDEGATE_SMALL_DISK";
const DONE: &str = "full disk: all checks hold";
