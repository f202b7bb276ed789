use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use tidegate_core::units::Rate;

use super::*;
use crate::gather::{GatherConfig, Gatherer, Notice};
use crate::sample::{Measurement, Observation, Sample, Scale};
use crate::trajectory::log2;
use crate::{AddressPolicy, WallTime};

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-knowledge-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("created");
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("store.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// 2024-10-04 00:00 UTC.
fn start() -> WallTime {
    WallTime::of_day(20_000)
}

fn measured(at: WallTime, scale: Scale, kbps: u64) -> Measurement {
    Measurement {
        at,
        scale,
        rate: Rate::kbps(kbps),
        rtt: Some(Duration::from_millis(20)),
        loss: Some(0.01),
        is_limited: false,
    }
}

fn sample(client: &str, measurement: Measurement) -> Sample {
    Sample {
        cloud: client.parse().expect("an address"),
        client: Client::new(client).expect("a name"),
        measurement,
        tag: None,
    }
}

fn all(store: &Store) -> Vec<Sample> {
    let mut samples = Vec::new();
    let read = store.each_sample(|sample| {
        samples.push(sample);
        ControlFlow::Continue(())
    });
    read.expect("read");
    samples
}

/// A store with samples on many pages.
fn fill(folder: &Folder) {
    let mut store = Store::open(&folder.file(), start()).expect("open").store;
    let batch: Vec<Sample> = (0..2_000)
        .map(|i| sample("192.0.2.7", measured(start(), Scale::Minute, 500 + i)))
        .collect();
    store.ingest(&batch).expect("written");
}

#[test]
fn samples_are_kept_while_another_connection_reads() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.file(), start()).expect("open").store;
    let first = sample("192.0.2.7", measured(start(), Scale::Minute, 500));
    let mut second = sample("2001:db8::7", measured(start(), Scale::RoundTrip, 900));
    second.tag = Some("title".to_owned());
    second.measurement.rtt = None;
    let invalid = sample("192.0.2.7", measured(start(), Scale::Minute, 0));
    let reader = Store::read(&folder.file()).expect("read");
    let ingested = store.ingest(&[first.clone(), second.clone(), invalid]);
    let ingested = ingested.expect("written");
    assert_eq!((ingested.written, ingested.invalid), (2, 1));
    assert_eq!(all(&reader), [first, second]);
    let counts = reader.counts().expect("read");
    assert_eq!((counts.clouds, counts.clients), (2, 2));
}

#[test]
fn a_damaged_store_is_set_aside() {
    let folder = Folder::new();
    fill(&folder);
    let mut bytes = fs::read(folder.file()).expect("read");
    // The second half of the file is overwritten; the header stays.
    let half = bytes.len() / 2;
    bytes[half..].fill(0xa5);
    fs::write(folder.file(), &bytes).expect("written");
    let error = Store::read(&folder.file())
        .expect_err("damaged")
        .to_string();
    assert!(error.contains("is damaged"), "{error}");
    let opened = Store::open(&folder.file(), start()).expect("opened");
    let aside = opened.set_aside.expect("set aside").path;
    assert_eq!(fs::read(aside).expect("kept"), bytes);
    assert_eq!(all(&opened.store), []);
}

#[test]
fn files_of_others_are_left_alone() {
    let folder = Folder::new();
    let database = |script: &str| {
        let other = rusqlite::Connection::open(folder.file()).expect("created");
        other.execute_batch(script).expect("executed");
        drop(other);
        let bytes = fs::read(folder.file()).expect("read");
        fs::remove_file(folder.file()).expect("removed");
        bytes
    };
    for bytes in [
        b"no database".to_vec(),
        "no database at all, but text of some length"
            .repeat(100)
            .into_bytes(),
        database("CREATE TABLE places(url TEXT)"),
        database("PRAGMA application_id = 7; CREATE TABLE meta(key TEXT, value TEXT)"),
        database(
            "CREATE TABLE t(v TEXT); CREATE VIEW meta AS SELECT 'version' AS key, '3' AS value",
        ),
    ] {
        fs::write(folder.file(), &bytes).expect("written");
        for opened in [
            Store::open(&folder.file(), start()).map(drop),
            Store::read(&folder.file()).map(drop),
        ] {
            let error = opened.expect_err("refused").to_string();
            assert!(
                error.contains("is no knowledge store, and is left"),
                "{error}"
            );
        }
        assert_eq!(fs::read(folder.file()).expect("kept"), bytes);
        let files = fs::read_dir(&folder.0).expect("read").count();
        assert_eq!(files, 1);
    }
}

#[test]
fn triggers_of_a_file_do_not_run() {
    let folder = Folder::new();
    drop(Store::open(&folder.file(), start()).expect("open"));
    let other = rusqlite::Connection::open(folder.file()).expect("opened");
    let trigger = "CREATE TRIGGER t AFTER INSERT ON samples BEGIN DELETE FROM samples; END";
    other.execute_batch(trigger).expect("created");
    drop(other);
    let mut store = Store::open(&folder.file(), start()).expect("open").store;
    let one = sample("192.0.2.7", measured(start(), Scale::Minute, 500));
    store.ingest(std::slice::from_ref(&one)).expect("written");
    assert_eq!(all(&store), [one]);
}

#[test]
fn an_import_adds_what_is_new() {
    let mut store = Store::in_memory();
    let one = |client: &str, kbps: u64| sample(client, measured(start(), Scale::Minute, kbps));
    let batch = [
        one("192.0.2.1", 500),
        one("192.0.2.2", 500),
        one("192.0.2.1", 501),
    ];
    assert_eq!(store.import(&batch[..2]).expect("written").written, 2);
    let again = store.import(&batch).expect("written");
    assert_eq!((again.written, again.known), (1, 2));
    assert_eq!(all(&store).len(), 3);
    // Sessions that measure the same are two samples.
    assert_eq!(store.ingest(&batch[..1]).expect("written").written, 1);
    assert_eq!(all(&store).len(), 4);
}

#[test]
fn a_store_of_another_version_is_left_alone() {
    let folder = Folder::new();
    let store = Store::open(&folder.file(), start()).expect("open").store;
    let changed = store.connection.execute("UPDATE meta SET value = '99'", []);
    changed.expect("changed");
    drop(store);
    let error = Store::open(&folder.file(), start()).expect_err("refused");
    assert!(error.to_string().contains("version 99"), "{error}");
    let missing = Store::read(&folder.0.join("other")).expect_err("missing");
    assert!(missing.to_string().contains("does not exist"), "{missing}");
}

#[test]
fn a_full_disk_loses_a_batch_and_not_the_store() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.file(), start()).expect("open").store;
    let batch = |kbps: u64| {
        let one = |i: u64| sample("192.0.2.7", measured(start(), Scale::Minute, kbps + i));
        (0..5_000).map(one).collect::<Vec<_>>()
    };
    store.ingest(&batch(100)).expect("written");
    let pages: u64 = store
        .connection
        .pragma_query_value(None, "page_count", |row| row.get(0))
        .expect("read");
    let limit = |pages: u64| {
        let set = store
            .connection
            .pragma_update(None, "max_page_count", pages);
        set.expect("set");
    };
    limit(pages);
    let error = store.ingest(&batch(10_000)).expect_err("full");
    assert!(matches!(error.cause(), StoreFault::Full), "{error}");
    assert!(error.is_environment());
    assert_eq!(all(&store).len(), 5_000);
    let set = store
        .connection
        .pragma_update(None, "max_page_count", pages * 10);
    set.expect("set");
    store.ingest(&batch(20_000)).expect("written");
    assert_eq!(all(&store).len(), 10_000);
}

#[test]
fn a_bin_is_the_median_of_the_clients() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.file(), start()).expect("open").store;
    let at = start().after(Duration::from_mins(61));
    let mut batch = vec![
        sample("192.0.2.1", measured(at, Scale::Minute, 900)),
        sample("192.0.2.2", measured(at, Scale::Minute, 1_000)),
    ];
    // One client that reports much, and far too high rates.
    let poison = sample("192.0.2.3", measured(at, Scale::Minute, 900_000_000));
    batch.extend(std::iter::repeat_n(poison, 1_000));
    store.ingest(&batch).expect("written");
    assert_eq!(store.update_trajectories().expect("updated"), 1);
    assert_eq!(store.update_trajectories().expect("updated"), 0);
    let trajectories = store.trajectories().expect("read");
    assert_eq!(trajectories.len(), 1);
    let trajectory = &trajectories[0].trajectory;
    assert_eq!(trajectory.present(), 1);
    let expected = log2(Rate::kbps(1_000)) as f32;
    assert_eq!(trajectory.get(12), Some(expected));
    // A second day counts twice as much.
    let next = at.after(DAY);
    let more = sample("192.0.2.1", measured(next, Scale::Minute, 8_000));
    store.ingest(&[more]).expect("written");
    assert_eq!(store.update_trajectories().expect("updated"), 1);
    let value = store.trajectories().expect("read")[0].trajectory.get(12);
    let mean = (log2(Rate::kbps(1_000)) + 2.0 * log2(Rate::kbps(8_000))) / 3.0;
    assert!((f64::from(value.expect("a bin")) - mean).abs() < 1e-5);
}

#[test]
fn retention_counts_from_the_samples_and_not_from_the_clock() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.file(), start()).expect("open").store;
    let late = start().after(10 * DAY);
    let wrong = start().after(3_000 * DAY);
    let batch = [
        sample("192.0.2.1", measured(start(), Scale::RoundTrip, 900)),
        sample("192.0.2.1", measured(start(), Scale::Minute, 900)),
        sample("192.0.2.1", measured(late, Scale::RoundTrip, 900)),
        // Written while the clock was years ahead.
        sample("192.0.2.1", measured(wrong, Scale::Minute, 900)),
    ];
    store.ingest(&batch).expect("written");
    let now = late.after(DAY);
    assert_eq!(store.newest(now).expect("read"), Some(late));
    assert_eq!(store.newest(start().before(DAY)).expect("read"), None);
    let deleted = store.prune(late, Retention::default()).expect("pruned");
    assert_eq!(deleted, 1);
    assert_eq!(all(&store).len(), 3);
}

fn observation(i: u64) -> Observation {
    let octet = (i % 200) as u8 + 1;
    Observation {
        address: std::net::Ipv4Addr::new(192, 0, 2, octet).into(),
        measurement: measured(start(), Scale::RoundTrip, 500 + i),
        tag: None,
    }
}

#[test]
fn a_gatherer_writes_or_counts_each_observation() {
    let folder = Folder::new();
    let store = Store::open(&folder.file(), start()).expect("open").store;
    let mut config = GatherConfig::new(AddressPolicy::Plain);
    config.queue = 16;
    let gatherer = Gatherer::start(store, config, start(), |_| {}).expect("a thread");
    let recorder = gatherer.recorder();
    for i in 0..10_000 {
        recorder.record(observation(i));
    }
    recorder.record(Observation {
        address: std::net::Ipv4Addr::UNSPECIFIED.into(),
        ..observation(0)
    });
    drop(recorder);
    let counts = gatherer.finish();
    let sum = counts.written + counts.dropped + counts.invalid;
    assert_eq!((sum, counts.lost), (10_001, 0), "{counts:?}");
    let store = Store::read(&folder.file()).expect("read");
    assert_eq!(all(&store).len() as u64, counts.written);
}

/// The process runs for longer than the retention, and is never restarted.
#[test]
fn a_store_that_began_empty_is_pruned_while_samples_arrive() {
    let folder = Folder::new();
    let store = Store::open(&folder.file(), start()).expect("open").store;
    let config = GatherConfig::new(AddressPolicy::Plain);
    let gatherer = Gatherer::start(store, config, start(), |_| {}).expect("a thread");
    gatherer.recorder().record(observation(1));
    // The next one is not in the same batch.
    while gatherer.counts().written == 0 {
        std::thread::yield_now();
    }
    let mut later = observation(2);
    later.measurement.at = start().after(Retention::default().round_trip + DAY);
    gatherer.recorder().record(later);
    assert_eq!(gatherer.finish().written, 2);
    let store = Store::read(&folder.file()).expect("read");
    let left: Vec<_> = all(&store).iter().map(|s| s.measurement.at).collect();
    assert_eq!(left, [start().after(Retention::default().round_trip + DAY)]);
}

#[test]
fn a_store_that_is_damaged_while_it_is_written_is_replaced() {
    let folder = Folder::new();
    fill(&folder);
    let store = Store::open(&folder.file(), start()).expect("open").store;
    let length = fs::metadata(folder.file()).expect("there").len() as usize;
    fs::write(folder.file(), vec![0xa5; length]).expect("written");
    // Otherwise the pages that were read at the start are used.
    let shrunk = store.connection.execute_batch("PRAGMA shrink_memory");
    shrunk.expect("shrunk");
    let (tell, notices) = std::sync::mpsc::channel();
    let notify = move |notice: Notice| tell.send(notice.to_string()).expect("read");
    let config = GatherConfig::new(AddressPolicy::Plain);
    let gatherer = Gatherer::start(store, config, start(), notify).expect("a thread");
    gatherer.recorder().record(observation(1));
    let counts = gatherer.finish();
    assert_eq!((counts.written, counts.lost), (1, 0), "{counts:?}");
    let notice = notices.recv().expect("a notice");
    assert!(notice.contains("is damaged: it was renamed"), "{notice}");
    let store = Store::read(&folder.file()).expect("read");
    assert_eq!(all(&store).len(), 1);
}
