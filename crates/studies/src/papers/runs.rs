//! Runs of one video over TCP: over what, with which encoder, in which world.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_core::media::{EncodeError, FrameEncoder};
use tidegate_core::random::Seed;

use super::outcome::{Outcome, outcome};
use super::{Options, Progress};
use tidegate_sim::flow_endpoints::{FlowInstance, FlowResult};
use tidegate_sim::runner::{self, Keep, PlayError};
use tidegate_sim::scenario::{Scenario, ScenarioError, VideoPlan};

/// A transport to play over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tcp {
    /// Reno as in the senders of the papers' time: a window of 64 kB, a time-out of at least a
    /// second, and a threshold that falls with every time-out.
    Bsd,
    /// Reno as in Linux today.
    LinuxReno,
    /// CUBIC as in Linux today.
    Cubic,
    /// BBR as in Linux today.
    Bbr,
}

impl Tcp {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Bsd, Self::LinuxReno, Self::Cubic, Self::Bbr];

    /// On the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bsd => "bsd",
            Self::LinuxReno => "linux-reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }

    /// In a scenario.
    pub(super) const fn toml(self) -> &'static str {
        match self {
            Self::Bsd => {
                "{ kind = \"reno\", packet = \"1500B\", window = \"44 packets\", min_rto = \"1s\", slow_start_at_threshold = true }"
            }
            Self::LinuxReno => "\"linux-reno\"",
            Self::Cubic => "\"cubic\"",
            Self::Bbr => "\"bbr\"",
        }
    }
}

/// A transport with the growth of its consecutive timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stack {
    pub(super) tcp: Tcp,
    /// Timeouts are linear, in every mode; never over [`Tcp::Bsd`].
    pub(super) is_linear: bool,
}

impl Stack {
    /// Name in tables and series.
    pub(super) const fn name(self) -> &'static str {
        match (self.tcp, self.is_linear) {
            (tcp, false) | (tcp @ Tcp::Bsd, true) => tcp.name(),
            (Tcp::LinuxReno, true) => "linux-reno linear",
            (Tcp::Cubic, true) => "cubic linear",
            (Tcp::Bbr, true) => "bbr linear",
        }
    }
}

/// What makes the video.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoder {
    /// Frame sizes and quality as of an H.264 encoder, without pictures.
    #[default]
    Model,
    /// MPEG-2, as in the papers, of a generated scene.
    Mpeg2,
    /// H.264, of the same.
    X264,
}

impl Encoder {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Model, Self::Mpeg2, Self::X264];

    /// On the command line, and in a scenario.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Mpeg2 => "mpeg2",
            Self::X264 => "x264",
        }
    }

    /// Behind a label, so that runs of two encoders have two.
    pub(super) fn label(self) -> String {
        match self {
            Self::Model => String::new(),
            _ => format!(" {}", self.name()),
        }
    }

    /// As a subject.
    pub(super) const fn describe(self) -> &'static str {
        match self {
            Self::Model => "The video is a model of an H.264 encoder",
            Self::Mpeg2 => "The video is a generated scene in our MPEG-2",
            Self::X264 => "The video is a generated scene in H.264 by x264",
        }
    }

    /// What the reader of its decibels and sizes should know.
    pub(super) const fn remark(self) -> &'static str {
        match self {
            Self::Model => {
                "Quality is the PSNR that the model tells, of Y and 3.0 and 3.5 dB more of U and V, \
                 whatever the picture, where the paper has the SNR of MPEG-2: modes can be compared, \
                 decibels cannot."
            }
            Self::Mpeg2 | Self::X264 => {
                "SNR is against the variance of the original plane, as MPEG's Test Model 5 prints it, \
                 not against the peak: of U and V, which vary less than Y, it is much lower. At the \
                 finest quantiser a calm picture takes fewer bits than it may."
            }
        }
    }
}

/// One run: a scenario with a flow "video", and a seed.
#[derive(Clone, Debug)]
pub struct Job {
    /// What is compared, and with what, in words that can be a folder's name. Jobs that differ in
    /// their seed alone share it.
    pub label: String,
    /// What is played.
    pub scenario: Scenario,
    /// The same as a file has it.
    pub text: String,
    /// Of all luck.
    pub seed: u64,
}

impl Job {
    /// The first run of what `text` says.
    pub(super) fn new(label: &str, text: String) -> Result<Self, PapersError> {
        let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        Ok(Self {
            label: label.to_lowercase().chars().map(word).collect(),
            scenario: scenario("papers", &text)?,
            text,
            seed: 1,
        })
    }

    /// Another run of the same.
    pub(super) fn with_seed(&self, seed: u64) -> Self {
        Self {
            seed,
            ..self.clone()
        }
    }

    /// The video, if there is any.
    pub fn video(&self) -> Option<&VideoPlan> {
        let flow = self.scenario.flows.iter().find(|f| f.name == VIDEO)?;
        flow.media.video()
    }
}

/// Where runs are played.
pub trait World: fmt::Debug + Send + Sync {
    /// Added to the source of each figure; nothing for the simulator.
    fn name(&self) -> Option<String>;

    /// These are about to be played, so many at a time.
    fn begin(&self, jobs: &[Job], at_a_time: usize);

    /// Plays one. None if it was interrupted, or failed in a way that lets others go on: the figure
    /// is made without it.
    ///
    /// # Errors
    /// Why there can be no figure.
    fn play(&self, job: &Job) -> Result<Option<(FlowInstance, FlowResult)>, PapersError>;

    /// Where its pictures are from; it has none unless told.
    fn pictures(&self) -> &dyn Pictures {
        &NoPictures
    }
}

/// Who makes the pictures, and codes them.
pub trait Pictures: fmt::Debug + Send + Sync {
    /// The encoder of flow `flow`.
    ///
    /// # Errors
    /// There are no such pictures, or no such codec.
    fn encoder(
        &self,
        flow: &str,
        plan: &VideoPlan,
        seed: Seed,
    ) -> Result<Box<dyn FrameEncoder>, EncodeError>;

    /// Variance of Y, U and V of the originals of the first `frames` frames, in order; empty where there
    /// are no pictures.
    ///
    /// # Errors
    /// As [`Self::encoder`].
    fn variances(
        &self,
        plan: &VideoPlan,
        seed: Seed,
        frames: u64,
    ) -> Result<Vec<[f64; 3]>, EncodeError>;
}

/// Nobody: plays nothing but [`Encoder::Model`].
#[derive(Clone, Copy, Debug)]
pub struct NoPictures;

impl Pictures for NoPictures {
    fn encoder(
        &self,
        flow: &str,
        plan: &VideoPlan,
        seed: Seed,
    ) -> Result<Box<dyn FrameEncoder>, EncodeError> {
        let none = || EncodeError::Codec("there is nothing but the model here".to_owned());
        plan.modelled(flow, seed).ok_or_else(none)
    }

    fn variances(&self, _: &VideoPlan, _: Seed, _: u64) -> Result<Vec<[f64; 3]>, EncodeError> {
        Ok(Vec::new())
    }
}

/// Virtual time.
#[derive(Debug)]
pub struct Simulator {
    pictures: Arc<dyn Pictures>,
}

impl Simulator {
    /// With the encoders of `pictures`.
    pub fn new(pictures: Arc<dyn Pictures>) -> Self {
        Self { pictures }
    }
}

impl World for Simulator {
    fn name(&self) -> Option<String> {
        None
    }

    fn begin(&self, _jobs: &[Job], _at_a_time: usize) {}

    fn play(&self, job: &Job) -> Result<Option<(FlowInstance, FlowResult)>, PapersError> {
        let encoder = |flow: &str, plan: &VideoPlan, seed| self.pictures.encoder(flow, plan, seed);
        let take = runner::flows(&job.scenario, Seed(job.seed), Keep::default(), &encoder);
        let mut flows = take.map_err(PapersError::Play)?.flows.into_iter();
        let video = flows.find(|(role, _)| role.name == VIDEO);
        video.map(Some).ok_or(PapersError::NoVideo)
    }

    fn pictures(&self) -> &dyn Pictures {
        &*self.pictures
    }
}

/// What came of runs that are dear, for entries that need the same.
#[derive(Debug, Default)]
pub struct Memory(Mutex<BTreeMap<(String, u64), Arc<Outcome>>>);

impl Memory {
    fn recall(&self, job: &Job) -> Option<Arc<Outcome>> {
        let known = self.0.lock().ok()?;
        known.get(&(job.text.clone(), job.seed)).cloned()
    }

    fn keep(&self, job: &Job, outcome: &Arc<Outcome>) {
        if let Ok(mut known) = self.0.lock() {
            known.insert((job.text.clone(), job.seed), Arc::clone(outcome));
        }
    }
}

/// What came of a job; nothing if the world played none.
type Played = Result<Option<Arc<Outcome>>, PapersError>;

/// Plays all jobs that are not remembered, as many at a time as there are threads: one run of each,
/// then another of each, so that whatever changes meanwhile meets all of them. Those that were not
/// played have no outcome.
pub(super) fn play_all(
    jobs: &[Job],
    options: &Options,
    progress: Progress<'_>,
) -> Result<Vec<Option<Arc<Outcome>>>, PapersError> {
    if jobs.is_empty() {
        return Err(PapersError::NoNode(options.nodes.clone()));
    }
    let memory = options.remembers().then_some(&*options.memory);
    let mut outcomes: Vec<Option<Arc<Outcome>>> = jobs
        .iter()
        .map(|job| memory.and_then(|memory| memory.recall(job)))
        .collect();
    let mut left: Vec<usize> = (0..jobs.len()).filter(|n| outcomes[*n].is_none()).collect();
    if left.is_empty() {
        return Ok(outcomes);
    }
    left.sort_by_key(|number| jobs[*number].seed);
    let left: Vec<(usize, &Job)> = left.into_iter().map(|n| (n, &jobs[n])).collect();
    for (number, played) in play_left(&left, options, progress) {
        outcomes[number] = played?;
        if let (Some(memory), Some(outcome)) = (memory, &outcomes[number]) {
            memory.keep(&jobs[number], outcome);
        }
    }
    Ok(outcomes)
}

/// Plays these in their order, and gives each its number.
fn play_left(
    jobs: &[(usize, &Job)],
    options: &Options,
    progress: Progress<'_>,
) -> Vec<(usize, Played)> {
    let threads = options.threads.clamp(1, jobs.len());
    let told: Vec<Job> = jobs.iter().map(|(_, job)| (*job).clone()).collect();
    options.world.begin(&told, threads);
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Played)>> = Mutex::default();
    let work = || {
        while let Some((number, job)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let played = options.world.play(job);
            let outcome = played.and_then(|played| match played {
                Some((role, takings)) => Ok(Some(Arc::new(outcome(
                    &role,
                    &takings,
                    job.seed,
                    &variances(job, options)?,
                )?))),
                None => Ok(None),
            });
            if let Ok(mut done) = done.lock() {
                done.push((*number, outcome));
                progress(done.len() as f64 / jobs.len() as f64);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut done = done
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done
}

/// Plays each job with all seeds that are asked for. What came of them is in the order of `jobs`,
/// and in that of the seeds; what was not played is missing.
pub(super) fn play_seeds(
    jobs: &[Job],
    options: &Options,
    progress: Progress<'_>,
) -> Result<Vec<Vec<Arc<Outcome>>>, PapersError> {
    let seeds = |job: &Job| -> Vec<Job> {
        (1..=options.seeds)
            .map(|seed| job.with_seed(seed))
            .collect()
    };
    let all: Vec<Job> = jobs.iter().flat_map(seeds).collect();
    let mut outcomes = play_all(&all, options, progress)?.into_iter();
    let mut runs = || -> Vec<Arc<Outcome>> {
        let runs = outcomes.by_ref().take(options.seeds as usize);
        runs.flatten().collect()
    };
    Ok(jobs.iter().map(|_| runs()).collect())
}

/// Reads a scenario that was put together here.
fn scenario(name: &str, text: &str) -> Result<Scenario, PapersError> {
    let none = |_: &str| Err("papers bring no files".to_owned());
    Scenario::parse(name, text, &none).map_err(PapersError::Scenario)
}

/// Of the originals of a run.
fn variances(job: &Job, options: &Options) -> Result<Vec<[f64; 3]>, PapersError> {
    let Some(video) = job.video().filter(|_| options.encoder() != Encoder::Model) else {
        return Ok(Vec::new());
    };
    let frames = video.stream.as_ref().and_then(|stream| stream.frames);
    let pictures = options.world.pictures();
    let variances = pictures.variances(video, Seed(job.seed), frames.unwrap_or(0));
    variances.map_err(PapersError::Pictures)
}

/// Why a figure could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum PapersError {
    /// The paper has no node whose name begins so.
    NoNode(Vec<String>),
    /// A run left no video.
    NoVideo,
    /// The originals of a run cannot be had.
    Pictures(EncodeError),
    /// A run failed.
    Play(PlayError),
    /// A scenario that was put together here does not stand.
    Scenario(ScenarioError),
}

impl fmt::Display for PapersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNode(names) => {
                write!(
                    f,
                    "no node is called {}: itcp has {}; abone has {}",
                    names.join(" or "),
                    super::itcp::node_names().join(", "),
                    super::abone::NODES.map(|node| node.name).join(", "),
                )
            }
            Self::NoVideo => f.write_str("the run has no flow called video: a fault of ours"),
            Self::Pictures(error) => write!(f, "{error}"),
            Self::Play(error) => write!(f, "{error}"),
            Self::Scenario(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for PapersError {}

/// The flow that is measured.
const VIDEO: &str = "video";
