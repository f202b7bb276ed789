//! Runs of one video over TCP: TCP implementations, encoders and testbeds.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_core::media::{EncodeError, FrameEncoder};
use tidegate_core::random::Seed;

use super::outcome::{Outcome, outcome};
use super::sweep::Run;
use super::{Options, Progress};
use tidegate_sim::flow_endpoints::{FlowInstance, FlowResult};
use tidegate_sim::runner::{self, Keep, PlayError, RunResult};
use tidegate_sim::scenario::{Scenario, ScenarioError, VideoPlan};

/// TCP implementation of the video.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tcp {
    /// Reno of the papers' time: a window of 64 kB, a minimum RTO of 1 s, and a slow-start
    /// threshold that decreases with every time-out.
    Bsd,
    /// Reno of current Linux.
    LinuxReno,
    /// CUBIC of current Linux.
    Cubic,
    /// BBR of current Linux.
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
    /// Model of the frame sizes and quality of an H.264 encoder, without pictures.
    #[default]
    Model,
    /// MPEG-2 as in the papers, with a generated scene.
    Mpeg2,
    /// H.264 with the same scene.
    X264,
}

impl Encoder {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Model, Self::Mpeg2, Self::X264];

    /// Name on the command line and in a scenario.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Mpeg2 => "mpeg2",
            Self::X264 => "x264",
        }
    }

    /// Suffix of a run's label; empty for the default.
    pub(super) fn label(self) -> String {
        match self {
            Self::Model => String::new(),
            _ => format!(" {}", self.name()),
        }
    }

    /// Sentence fragment for notes.
    pub(super) const fn describe(self) -> &'static str {
        match self {
            Self::Model => "The video is a model of an H.264 encoder",
            Self::Mpeg2 => "The video is a generated scene in Tidegate's MPEG-2",
            Self::X264 => "The video is a generated scene in H.264 by x264",
        }
    }

    /// Note on the quality and sizes of this encoder.
    pub(super) const fn remark(self) -> &'static str {
        match self {
            Self::Model => {
                "Quality is the model's PSNR of Y, and 3.0 and 3.5 dB more for U and V, independently of \
                 the picture. The paper has the SNR of MPEG-2, so modes can be compared, but not decibels."
            }
            Self::Mpeg2 | Self::X264 => {
                "SNR is relative to the variance of the original plane, as in MPEG's Test Model 5, not to \
                 the peak. It is much lower for U and V, which vary less than Y. At the finest quantiser, a \
                 picture with little detail needs fewer bits than its target."
            }
        }
    }
}

/// One run: a scenario with a flow "video", and a seed.
#[derive(Clone, Debug)]
pub struct Job {
    /// Label that is valid as a folder name. Jobs that differ only in their seed have the same
    /// label.
    pub label: String,
    /// The scenario.
    pub scenario: Scenario,
    /// The scenario as the text of a file.
    pub text: String,
    /// Random seed.
    pub seed: u64,
}

impl Job {
    /// A job of the scenario `text` with seed 1.
    pub(super) fn new(label: &str, text: String) -> Result<Self, PapersError> {
        let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        Ok(Self {
            label: label.to_lowercase().chars().map(word).collect(),
            scenario: scenario("papers", &text)?,
            text,
            seed: 1,
        })
    }

    /// The same job with another seed.
    pub(super) fn with_seed(&self, seed: u64) -> Self {
        Self {
            seed,
            ..self.clone()
        }
    }

    /// The video of the measured flow, if there is one.
    pub fn video(&self) -> Option<&VideoPlan> {
        let flow = self.scenario.flows.iter().find(|f| f.name == VIDEO)?;
        flow.media.video()
    }
}

/// Testbed of the runs.
pub trait Testbed: fmt::Debug + Send + Sync {
    /// Name that is appended to the source of each figure. None for the simulator.
    fn name(&self) -> Option<String>;

    /// Announces jobs, and how many run concurrently.
    fn begin(&self, jobs: &[Job], at_a_time: usize);

    /// Runs a job. None if the run is interrupted or has failed without affecting the others; the
    /// figure then omits it.
    ///
    /// # Errors
    /// The run fails and no figure can be produced.
    fn play(&self, job: &Job) -> Result<Option<(FlowInstance, FlowResult)>, PapersError>;

    /// Runs a job of flows without video. None as in [`Self::play`]. By default the flows are
    /// simulated.
    ///
    /// # Errors
    /// The run fails and no figure can be produced.
    fn flows(&self, job: &Job, keep: Keep) -> Result<Option<RunResult>, PapersError> {
        let encoder =
            |_: &str, _: &VideoPlan, _| Err(EncodeError::Codec("the run has a video".to_owned()));
        let run = runner::flows(&job.scenario, Seed(job.seed), keep, &encoder);
        run.map(Some).map_err(PapersError::Play)
    }

    /// Source of the pictures; none by default.
    fn pictures(&self) -> &dyn PictureSource {
        &NoPictures
    }
}

/// Source of pictures and their encoders.
pub trait PictureSource: fmt::Debug + Send + Sync {
    /// Creates the encoder of flow `flow`.
    ///
    /// # Errors
    /// The pictures or the codec are not available.
    fn encoder(
        &self,
        flow: &str,
        plan: &VideoPlan,
        seed: Seed,
    ) -> Result<Box<dyn FrameEncoder>, EncodeError>;

    /// Variances of Y, U and V of the first `frames` original frames. Empty without pictures.
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

/// No pictures: supports only [`Encoder::Model`].
#[derive(Clone, Copy, Debug)]
pub struct NoPictures;

impl PictureSource for NoPictures {
    fn encoder(
        &self,
        flow: &str,
        plan: &VideoPlan,
        seed: Seed,
    ) -> Result<Box<dyn FrameEncoder>, EncodeError> {
        let none = || EncodeError::Codec("only the encoder model is available".to_owned());
        plan.modelled(flow, seed).ok_or_else(none)
    }

    fn variances(&self, _: &VideoPlan, _: Seed, _: u64) -> Result<Vec<[f64; 3]>, EncodeError> {
        Ok(Vec::new())
    }
}

/// Testbed that simulates runs in virtual time.
#[derive(Debug)]
pub struct Simulator {
    pictures: Arc<dyn PictureSource>,
}

impl Simulator {
    /// A simulator with the encoders of `pictures`.
    pub fn new(pictures: Arc<dyn PictureSource>) -> Self {
        Self { pictures }
    }
}

impl Testbed for Simulator {
    fn name(&self) -> Option<String> {
        None
    }

    fn begin(&self, _jobs: &[Job], _at_a_time: usize) {}

    fn play(&self, job: &Job) -> Result<Option<(FlowInstance, FlowResult)>, PapersError> {
        let encoder = |flow: &str, plan: &VideoPlan, seed| self.pictures.encoder(flow, plan, seed);
        let run = runner::flows(&job.scenario, Seed(job.seed), Keep::default(), &encoder);
        let mut flows = run.map_err(PapersError::Play)?.flows.into_iter();
        let video = flows.find(|(role, _)| role.name == VIDEO);
        video.map(Some).ok_or(PapersError::NoVideo)
    }

    fn pictures(&self) -> &dyn PictureSource {
        &*self.pictures
    }
}

/// Cache of results of expensive runs, for entries with the same runs.
#[derive(Debug, Default)]
pub struct RunCache {
    videos: Cache<Arc<Outcome>>,
    flows: Cache<Run>,
}

impl RunCache {
    /// Counters of the runs of many flows.
    pub(super) fn flows(&self) -> &Cache<Run> {
        &self.flows
    }
}

/// Results by scenario and seed.
#[derive(Debug)]
pub(super) struct Cache<T>(Mutex<BTreeMap<(String, u64), T>>);

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Cache<T> {
    pub(super) fn recall(&self, job: &Job) -> Option<T> {
        let known = self.0.lock().ok()?;
        known.get(&(job.text.clone(), job.seed)).cloned()
    }

    pub(super) fn keep(&self, job: &Job, result: &T) {
        if let Ok(mut known) = self.0.lock() {
            known.insert((job.text.clone(), job.seed), result.clone());
        }
    }
}

/// Result of a job. None if the testbed has skipped it.
type JobResult = Result<Option<Arc<Outcome>>, PapersError>;

/// Runs all jobs that are not in the cache, concurrently on the configured threads. Runs are
/// ordered by seed, so that changes of the environment affect all kinds of runs. Skipped jobs have
/// no outcome.
pub(super) fn play_all(
    jobs: &[Job],
    options: &Options,
    progress: Progress<'_>,
) -> Result<Vec<Option<Arc<Outcome>>>, PapersError> {
    if jobs.is_empty() {
        return Err(PapersError::NoNode(options.nodes.clone()));
    }
    let memory = options.remembers().then_some(&options.memory.videos);
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

/// Runs these jobs in order, and returns the results with their numbers.
fn play_left(
    jobs: &[(usize, &Job)],
    options: &Options,
    progress: Progress<'_>,
) -> Vec<(usize, JobResult)> {
    let threads = options.threads.clamp(1, jobs.len());
    let announced: Vec<Job> = jobs.iter().map(|(_, job)| (*job).clone()).collect();
    options.world.begin(&announced, threads);
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, JobResult)>> = Mutex::default();
    let work = || {
        while let Some((number, job)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let played = options.world.play(job);
            let outcome = played.and_then(|played| match played {
                Some((role, result)) => Ok(Some(Arc::new(outcome(
                    &role,
                    &result,
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

/// Runs each job with all seeds. The outcomes are in the order of `jobs` and of the seeds, without
/// skipped runs.
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

/// Parses a generated scenario.
pub(super) fn scenario(name: &str, text: &str) -> Result<Scenario, PapersError> {
    let none = |_: &str| Err("generated scenarios have no files".to_owned());
    Scenario::parse(name, text, &none).map_err(PapersError::Scenario)
}

/// Variances of the original frames of a run.
fn variances(job: &Job, options: &Options) -> Result<Vec<[f64; 3]>, PapersError> {
    let Some(video) = job.video().filter(|_| options.encoder() != Encoder::Model) else {
        return Ok(Vec::new());
    };
    let frames = video.stream.as_ref().and_then(|stream| stream.frames);
    let pictures = options.world.pictures();
    let variances = pictures.variances(video, Seed(job.seed), frames.unwrap_or(0));
    variances.map_err(PapersError::Pictures)
}

/// Error in the production of a figure.
#[derive(Debug)]
#[non_exhaustive]
pub enum PapersError {
    /// No node of the paper has a name with this prefix.
    NoNode(Vec<String>),
    /// A run has no video.
    NoVideo,
    /// The original frames of a run are not available.
    Pictures(EncodeError),
    /// A run failed.
    Play(PlayError),
    /// A generated scenario is invalid.
    Scenario(ScenarioError),
}

impl fmt::Display for PapersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNode(names) => {
                write!(
                    f,
                    "unknown node {}: itcp has {}; abone has {}",
                    names.join(" or "),
                    super::itcp::node_names().join(", "),
                    super::abone::NODES.map(|node| node.name).join(", "),
                )
            }
            Self::NoVideo => f.write_str("internal error: the run has no flow \"video\""),
            Self::Pictures(error) => write!(f, "{error}"),
            Self::Play(error) => write!(f, "{error}"),
            Self::Scenario(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for PapersError {}

/// Name of the measured flow.
const VIDEO: &str = "video";
