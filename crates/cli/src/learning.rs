//! What sessions learn about their paths: a prior from the store at the start, samples into it while
//! streams run.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tidegate_console::progress::{counted, say};
use tidegate_core::control::Prior;
use tidegate_core::session::sender::Status;
use tidegate_core::units::{Rate, Time};
use tidegate_knowledge::cluster::ClusterConfig;
use tidegate_knowledge::gather::{GatherConfig, Gatherer, Recorder};
use tidegate_knowledge::hierarchy::Level;
use tidegate_knowledge::predict::MEDIAN;
use tidegate_knowledge::recluster::recluster;
use tidegate_knowledge::sampler::{Reading, Sampler};
use tidegate_knowledge::start_table::{Prediction, SharedTable, StartTable};
use tidegate_knowledge::{AddressPolicy, Measurement, Observation, Store, WallTime};

use crate::knowledge::access::{self, Writable, store_error};

/// An open store: predictions for new sessions, and a writer for the samples of running ones.
#[derive(Debug)]
pub(crate) struct KnownPaths {
    path: PathBuf,
    addresses: AddressPolicy,
    gatherer: Gatherer,
    table: SharedTable,
    /// Wall-clock time at the zero of the sessions' clock.
    epoch: WallTime,
    /// Wall-clock time at which the store was opened.
    opened: WallTime,
    refresh: Option<Refresh>,
}

/// The thread that computes the predictions again.
#[derive(Debug)]
struct Refresh {
    /// Dropped to end the thread.
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl KnownPaths {
    /// Opens the store, and computes its predictions. `now` is the time of the sessions' clock.
    ///
    /// # Errors
    /// The store cannot be opened, or its thread cannot be started.
    pub(crate) fn open(path: &Path, now: Time) -> Result<Self> {
        let Writable { store, addresses } = access::open(path, None)?;
        let wall = access::now();
        let table = StartTable::build(&store, &addresses, wall).map_err(store_error)?;
        let mut config = GatherConfig::new(addresses.clone());
        config.retention = store.retention().map_err(store_error)?;
        let gatherer = Gatherer::start(store, config, wall, |notice| say(format_args!("{notice}")));
        Ok(Self {
            path: path.to_owned(),
            addresses,
            gatherer: gatherer.context("cannot start the thread that writes the store")?,
            table: SharedTable::new(table),
            epoch: wall.before(now.since(Time::ZERO)),
            opened: wall,
            refresh: None,
        })
    }

    /// Computes the predictions again every minute, and the clusters of networks every hour, on a thread.
    /// Its time is that of the samples: the wall clock at the start plus the time since then, so that a
    /// step of the clock hides no sample.
    ///
    /// # Errors
    /// The system has no thread.
    pub(crate) fn refresh(&mut self) -> Result<()> {
        let (stop, stopped) = channel();
        let (path, table) = (self.path.clone(), self.table.clone());
        let addresses = self.addresses.clone();
        let (wall, start) = (self.opened, Instant::now());
        let thread = thread::Builder::new().name("predictions".into());
        let thread = thread.spawn(move || {
            let mut minutes = 0_u32;
            while stopped.recv_timeout(REFRESH_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let now = wall.after(start.elapsed());
                if minutes.is_multiple_of(CLUSTER_MINUTES) {
                    cluster(&path, now);
                }
                minutes += 1;
                let store = Store::read(&path);
                let built = store.and_then(|store| StartTable::build(&store, &addresses, now));
                match built {
                    Ok(built) => table.replace(built),
                    Err(error) => say(format_args!("predictions are out of date: {error}")),
                }
            }
        });
        let thread = thread.context("cannot start the thread of predictions")?;
        self.refresh = Some(Refresh { stop, thread });
        Ok(())
    }

    /// Prediction of the path to `peer`; `None` if nothing is known about it.
    pub(crate) fn predict(&self, peer: IpAddr) -> Option<Prediction> {
        self.table.predict(peer).filter(Prediction::is_known)
    }

    /// Input for the samples of a session with `peer`.
    pub(crate) fn learner(&self, peer: IpAddr) -> Learner {
        Learner {
            recorder: self.gatherer.recorder(),
            sampler: Sampler::new(self.epoch),
            peer,
            next: Time::ZERO,
            reported: 0,
        }
    }

    /// Writes what is left, and reports it. All learners must have finished.
    pub(crate) fn finish(self) {
        if let Some(Refresh { stop, thread }) = self.refresh {
            drop(stop);
            // A panic was printed by the thread.
            let _ = thread.join();
        }
        let counts = self.gatherer.finish();
        let lost = counts.dropped + counts.invalid + counts.lost;
        let lost = match lost {
            0 => String::new(),
            lost => format!(", {lost} not"),
        };
        say(format_args!(
            "{} kept{lost}",
            counted(counts.written, "sample")
        ));
    }
}

/// Computes the clusters of the networks in the store, beside its writer.
fn cluster(path: &Path, now: WallTime) {
    let done = Store::open(path, now)
        .and_then(|mut opened| recluster(&mut opened.store, ClusterConfig::default(), now));
    match done {
        Ok(done) if done.clouds > 0 => say(format_args!(
            "{} of {}",
            counted(done.clusters as u64, "cluster"),
            counted(done.clouds as u64, "network")
        )),
        Ok(_) => {}
        Err(error) => say(format_args!("the clusters are out of date: {error}")),
    }
}

/// The store of a session with one peer.
#[derive(Debug)]
pub(crate) struct Knowledge {
    known: KnownPaths,
    learner: Learner,
    /// What is known about the path at the start.
    pub(crate) prior: Option<Prior>,
}

impl Knowledge {
    /// Opens the store, and says what it knows about the path to `peer`. `now` is the time of the
    /// session's clock.
    ///
    /// # Errors
    /// As [`KnownPaths::open`].
    pub(crate) fn open(path: &Path, peer: IpAddr, now: Time) -> Result<Self> {
        let known = KnownPaths::open(path, now)?;
        let found = known.predict(peer);
        say(described(found.as_ref()));
        Ok(Self {
            learner: known.learner(peer),
            prior: found.and_then(|found| found.prior()),
            known,
        })
    }

    /// As [`Learner::turn`].
    pub(crate) fn turn(&mut self, status: &Status, now: Time) {
        self.learner.turn(status, now);
    }

    /// Writes what is left, and reports it.
    pub(crate) fn finish(self, now: Time) {
        self.learner.finish(now);
        self.known.finish();
    }
}

/// Samples of one session.
#[derive(Debug)]
pub(crate) struct Learner {
    recorder: Recorder,
    sampler: Sampler,
    peer: IpAddr,
    /// Time of the next reading.
    next: Time,
    /// Packets whose arrival had been reported at the last reading.
    reported: u64,
}

impl Learner {
    /// Takes a reading, if one is due. Never waits for the store.
    pub(crate) fn turn(&mut self, status: &Status, now: Time) {
        if now >= self.next && !status.reports_only {
            self.next = now + READING_INTERVAL;
            self.read(status, now);
        }
    }

    /// Takes a reading after a receiver report, between which nothing is measured.
    pub(crate) fn on_receiver_report(&mut self, status: &Status, now: Time) {
        if status.reports_only {
            self.read(status, now);
        }
    }

    /// Queues what is left.
    pub(crate) fn finish(self, now: Time) {
        let Self {
            recorder,
            sampler,
            peer,
            ..
        } = self;
        if let Some(rest) = sampler.finish(now) {
            record(&recorder, peer, rest);
        }
    }

    fn read(&mut self, status: &Status, now: Time) {
        let Some(rtt) = status.rtt else { return };
        if status.blackout || status.stopped || status.left {
            return;
        }
        // While nothing arrives, as from an idle source or at a paused player that goes on reporting,
        // the receive rate is an earlier one.
        if std::mem::replace(&mut self.reported, status.reported) == status.reported {
            return;
        }
        let samples = self.sampler.on_reading(&Reading {
            now,
            rate: status.receive_rate,
            rtt,
            loss: status.loss,
            is_limited: status.receive_rate.as_f64() < LIMITED * status.target.send.as_f64(),
        });
        for measurement in samples {
            record(&self.recorder, self.peer, measurement);
        }
    }
}

fn record(recorder: &Recorder, address: IpAddr, measurement: Measurement) {
    recorder.record(Observation {
        address,
        measurement,
        tag: None,
    });
}

/// The prediction of a path, for the user.
fn described(found: Option<&Prediction>) -> String {
    let Some(found) = found else {
        return "nothing is known about the path: the start is slow".to_owned();
    };
    let start = match found.rtt {
        Some(_) => "the start is informed",
        None => "its round-trip time is unknown: the start is slow",
    };
    let evidence = found.evidence();
    let sum = |levels: [Level; 2]| {
        levels
            .map(|level| evidence.count(level))
            .iter()
            .sum::<f64>()
    };
    let counts = [
        (sum(Level::CLIENT), "earlier visit"),
        (sum(Level::NETWORK), "other client"),
        (evidence.count(Level::Cluster), "similar network"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0.0);
    let counts: Vec<String> = counts.map(|(n, unit)| counted(*n as u64, unit)).collect();
    format!("{} from {}: {start}", expected(found), counts.join(", "))
}

/// Median and range of a prediction.
pub(crate) fn expected(found: &Prediction) -> String {
    let rates: [Rate; _] = found.rates();
    format!(
        "{} expected ({} to {} with 90 %)",
        rates[MEDIAN],
        rates[0],
        rates[rates.len() - 1],
    )
}

const READING_INTERVAL: Duration = Duration::from_millis(100);
const REFRESH_INTERVAL: Duration = Duration::from_mins(1);
/// Minutes between two computations of clusters.
const CLUSTER_MINUTES: u32 = 60;
/// A rate below this share of what the controller allows is that of the application.
const LIMITED: f64 = 0.8;

#[cfg(test)]
mod tests {
    use tidegate_core::control::Target;

    use super::*;

    /// State of a sender at a steady rate whose receiver has reported so many packets.
    fn status(reported: u64, reports_only: bool) -> Status {
        Status {
            target: Target::of(Rate::kbps(1_000)),
            loss: 0.0,
            rtt: Some(Duration::from_millis(20)),
            queueing: Duration::ZERO,
            receive_rate: Rate::kbps(1_000),
            reported,
            blackout: false,
            stopped: false,
            left: false,
            reports_only,
            has_answered: true,
            frames: 0,
            lower_effort: None,
            packet_size: None,
            path_changes: 0,
        }
    }

    /// A player that pauses goes on reporting, and the last rate remains.
    #[test]
    fn a_pause_with_reports_gives_no_samples() {
        let folder = std::env::temp_dir().join(format!("tidegate-learning-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let samples = |pause: u64, reports_only: bool| {
            let file = folder.join(format!("{pause}-{reports_only}.db"));
            let known = KnownPaths::open(&file, Time::ZERO).unwrap();
            let mut learner = known.learner(IpAddr::from([192, 0, 2, 1]));
            for ms in (0..10_000 + pause).step_by(25) {
                let status = status(ms.min(10_000), reports_only);
                learner.turn(&status, Time::from_millis(ms));
                learner.on_receiver_report(&status, Time::from_millis(ms));
            }
            learner.finish(Time::from_millis(10_000 + pause));
            known.gatherer.finish().written
        };
        for reports_only in [false, true] {
            let streaming = samples(0, reports_only);
            assert!((10..20).contains(&streaming), "{streaming}");
            assert_eq!(samples(50_000, reports_only), streaming);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
