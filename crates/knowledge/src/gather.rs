//! Gathering: observations of running sessions into the store, on a thread of its own.
//!
//! The thread of a session never waits: [`Recorder::record`] puts an observation into a bounded
//! queue or counts it as dropped.

use std::fmt::{self, Display};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::client::AddressPolicy;
use crate::cloud::Cloud;
use crate::sample::{LONGEST_TAG, Observation, Sample};
use crate::store::{Retention, SetAside, Store, StoreError, StoreFault};
use crate::wall_time::WallTime;

/// Settings of a [`Gatherer`].
#[derive(Clone, Debug)]
pub struct GatherConfig {
    /// What is kept of addresses.
    pub addresses: AddressPolicy,
    /// For how long samples are kept.
    pub retention: Retention,
    /// Observations that may wait to be written; more are dropped and counted.
    pub queue: usize,
}

impl GatherConfig {
    /// Settings with the defaults: a queue of 65,536 observations.
    pub fn new(addresses: AddressPolicy) -> Self {
        Self {
            addresses,
            retention: Retention::default(),
            queue: 65_536,
        }
    }
}

/// Counters of a [`Gatherer`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct GatherCounts {
    /// Samples in the store.
    pub written: u64,
    /// Observations dropped because the queue was full.
    pub dropped: u64,
    /// Observations with an address of no host or a value out of range.
    pub invalid: u64,
    /// Samples that the store refused: the disk was full, or the file could not be written.
    pub lost: u64,
}

/// An event of the writer that the user should know.
#[derive(Debug)]
pub enum Notice {
    /// The store was damaged; an empty one took its place.
    SetAside {
        /// File of the store.
        store: PathBuf,
        /// The damaged file.
        aside: SetAside,
    },
    /// Samples are lost until the store can be written again. Reported once per cause.
    NotWritten(StoreError),
}

impl Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetAside { store, aside } => write!(
                f,
                "{} is damaged: it was renamed to {}, and an empty store takes its place",
                store.display(),
                aside.path.display()
            ),
            Self::NotWritten(error) => write!(f, "samples of sessions are lost: {error}"),
        }
    }
}

/// Writes the observations of sessions to a store.
#[derive(Debug)]
pub struct Gatherer {
    recorder: Recorder,
    shared: Arc<Shared>,
    writer: JoinHandle<()>,
}

/// Input of a [`Gatherer`], for the thread of a session.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: SyncSender<Observation>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    written: AtomicU64,
    dropped: AtomicU64,
    invalid: AtomicU64,
    lost: AtomicU64,
}

impl Recorder {
    /// Queues an observation; drops it if the queue is full. Never waits.
    ///
    /// Its time should be the wall-clock time at the start of the session plus the time elapsed on
    /// the session's monotonic clock, so that steps of the wall clock do not reorder samples.
    pub fn record(&self, observation: Observation) {
        if self.queue.try_send(observation).is_err() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Gatherer {
    /// Starts the writer. `notify` is called on its thread.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(
        store: Store,
        config: GatherConfig,
        now: WallTime,
        notify: impl FnMut(Notice) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (queue, observations) = sync_channel(config.queue.max(1));
        let shared = Arc::new(Shared::default());
        let writer = Writer {
            store,
            config,
            observations,
            shared: Arc::clone(&shared),
            notify: Box::new(notify),
            waiting: Vec::new(),
            reference: Reference::default(),
            is_reported: false,
        };
        let thread = thread::Builder::new().name("knowledge".to_owned());
        Ok(Self {
            recorder: Recorder {
                queue,
                shared: Arc::clone(&shared),
            },
            shared,
            writer: thread.spawn(move || writer.run(now))?,
        })
    }

    /// An input for a session.
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// Counters so far.
    pub fn counts(&self) -> GatherCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        GatherCounts {
            written: read(&self.shared.written),
            dropped: read(&self.shared.dropped),
            invalid: read(&self.shared.invalid),
            lost: read(&self.shared.lost),
        }
    }

    /// Writes what is queued and ends, once all other recorders are dropped.
    pub fn finish(self) -> GatherCounts {
        let Self {
            recorder,
            shared,
            writer,
        } = self;
        drop(recorder);
        // A panic of the writer was reported by the panic hook; its counters remain.
        let _ = writer.join();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        GatherCounts {
            written: read(&shared.written),
            dropped: read(&shared.dropped),
            invalid: read(&shared.invalid),
            lost: read(&shared.lost),
        }
    }
}

struct Writer {
    store: Store,
    config: GatherConfig,
    observations: Receiver<Observation>,
    shared: Arc<Shared>,
    notify: Box<dyn FnMut(Notice) + Send>,
    waiting: Vec<Sample>,
    reference: Reference,
    is_reported: bool,
}

impl Writer {
    fn run(mut self, now: WallTime) {
        match self.store.newest(now) {
            Ok(Some(newest)) => {
                self.reference.stored = Some(newest);
                self.prune(newest);
            }
            Ok(None) => self.reference.began_empty = true,
            // Nothing is deleted without the time of the newest sample.
            Err(_) => {}
        }
        loop {
            let is_open = self.fill();
            if let Some(due) = self.reference.due(&self.waiting) {
                self.prune(due);
            }
            self.write(now);
            if !is_open {
                // What another process blocked until now.
                self.count_lost();
                return;
            }
        }
    }

    /// Takes observations until a batch is complete; `false` if no more can come.
    fn fill(&mut self) -> bool {
        let deadline = Instant::now() + BATCH_INTERVAL;
        while self.waiting.len() < MAX_WAITING {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.observations.recv_timeout(left) {
                Ok(observation) => self.accept(observation),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        true
    }

    fn accept(&mut self, observation: Observation) {
        let tag_fits = |tag: &String| tag.len() <= LONGEST_TAG;
        let is_valid =
            observation.measurement.is_valid() && observation.tag.as_ref().is_none_or(tag_fits);
        match Cloud::of(observation.address) {
            Ok(cloud) if is_valid => self.waiting.push(Sample {
                cloud,
                client: self.config.addresses.client(observation.address),
                measurement: observation.measurement,
                tag: observation.tag,
            }),
            _ => {
                self.shared.invalid.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn write(&mut self, now: WallTime) {
        if self.waiting.is_empty() {
            return;
        }
        let mut written = self.store.ingest(&self.waiting);
        if let Err(error) = &written
            && matches!(error.cause(), StoreFault::Damaged)
        {
            written = self.restart(now);
        }
        match written {
            Ok(ingested) => {
                let shared = &self.shared;
                shared
                    .written
                    .fetch_add(ingested.written, Ordering::Relaxed);
                shared
                    .invalid
                    .fetch_add(ingested.invalid, Ordering::Relaxed);
                self.waiting.clear();
                self.is_reported = false;
            }
            // The batch is written again at the next turn, unless it is full.
            Err(error)
                if matches!(error.cause(), StoreFault::Busy)
                    && self.waiting.len() < MAX_WAITING => {}
            Err(error) => {
                self.count_lost();
                if !std::mem::replace(&mut self.is_reported, true) {
                    (self.notify)(Notice::NotWritten(error));
                }
            }
        }
    }

    /// Replaces a store that was found damaged, and writes the batch to the new one.
    fn restart(&mut self, now: WallTime) -> Result<crate::store::Ingested, StoreError> {
        let path = self.store.path().to_owned();
        let opened = Store::replace_damaged(&path, now)?;
        self.store = opened.store;
        self.reference.began_empty = true;
        if let Some(aside) = opened.set_aside {
            (self.notify)(Notice::SetAside { store: path, aside });
        }
        self.store.ingest(&self.waiting)
    }

    fn count_lost(&mut self) {
        let lost = self.waiting.len() as u64;
        self.shared.lost.fetch_add(lost, Ordering::Relaxed);
        self.waiting.clear();
    }

    fn prune(&mut self, reference: WallTime) {
        // A failure shows at the next write.
        let _ = self.store.prune(reference, self.config.retention);
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

/// Time from which the age of samples is counted: that of the newest sample at the start, plus the
/// time over which samples arrived since. The wall clock at the start may be wrong; a wrong year must
/// not delete the store. A store that began empty has only samples of this clock, so that their own
/// time counts.
#[derive(Debug, Default)]
struct Reference {
    stored: Option<WallTime>,
    began_empty: bool,
    first: Option<WallTime>,
    pruned: Option<WallTime>,
}

impl Reference {
    /// The reference, if an hour has passed since the last one.
    fn due(&mut self, arrived: &[Sample]) -> Option<WallTime> {
        let newest = arrived.iter().map(|sample| sample.measurement.at).max()?;
        let first = *self.first.get_or_insert(newest);
        let own = self.began_empty.then_some(first);
        let reference = self.stored.or(own)?.after(newest.since(first));
        let pruned = *self.pruned.get_or_insert(reference);
        let is_due = reference.since(pruned) >= PRUNE_INTERVAL;
        is_due.then(|| {
            self.pruned = Some(reference);
            reference
        })
    }
}

/// Interval of commits: a process that is killed loses the samples of less than a second.
const BATCH_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum size of a batch.
const MAX_WAITING: usize = 65_536;

/// Interval between two deletions of old samples.
const PRUNE_INTERVAL: Duration = Duration::from_hours(1);
