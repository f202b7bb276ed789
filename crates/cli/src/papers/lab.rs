//! Runs of `tidegate papers` on kernel TCP, in parallel labs.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, ensure};
use tidegate_core::random::Seed;
use tidegate_core::units::Time;
use tidegate_live::driver::Interrupts;
use tidegate_record as record;
use tidegate_record::StagedRun;
use tidegate_sim::flow_endpoints::{FlowInstance, FlowResult};
use tidegate_sim::runner::{Keep, RunResult};
use tidegate_sim::topology;
use tidegate_studies::papers::verb;
use tidegate_studies::papers::{Job, PapersError, PictureSource, Testbed};

use crate::lab::{self, Injector, LabResult, LabRun, Service};
use crate::run_folder::{self, LoadedScenario};
use crate::video_source::VideoInput;
use tidegate_console::exit::EnvironmentError;
use tidegate_console::progress::say;

/// The labs of this process.
pub(super) struct Lab {
    service: Service,
    video: VideoInput,
    interrupts: Arc<Interrupts>,
    injector: Injector,
    /// Parent of the run folders.
    out: PathBuf,
    begun: AtomicUsize,
    all: AtomicUsize,
    /// Number of runs whose emulator was late, after the repetition if there was one.
    late: AtomicUsize,
    /// Differences from the kernel's behaviour, and failed runs.
    said: Mutex<BTreeSet<String>>,
    /// Number of runs with a run folder.
    kept: AtomicUsize,
}

impl Lab {
    /// Must be called while the process is single-threaded.
    ///
    /// # Errors
    /// Namespaces are unavailable, or the TCP event service cannot start.
    pub(super) fn new(
        out: PathBuf,
        injector: Injector,
        interrupts: Arc<Interrupts>,
    ) -> Result<Self> {
        lab::prepare()?;
        let service = Service::start().context(
            "papers need the events of kernel TCP; omit --lab to run them in the simulator",
        )?;
        Ok(Self {
            service,
            video: VideoInput::default(),
            interrupts,
            injector,
            out,
            begun: AtomicUsize::new(0),
            all: AtomicUsize::new(0),
            late: AtomicUsize::new(0),
            said: Mutex::default(),
            kept: AtomicUsize::new(0),
        })
    }

    /// Whether the user has interrupted the runs.
    fn is_interrupted(&self) -> bool {
        self.interrupts.count() > 0
    }

    /// Plays the job and reads from the result. The run ends with the video if `has_video`. None if
    /// the user has interrupted it.
    fn try_play<T>(
        &self,
        job: &Job,
        has_video: bool,
        read: impl Fn(&RunResult) -> Result<T>,
    ) -> Result<Option<T>> {
        let number = 1 + self.begun.fetch_add(1, Ordering::Relaxed);
        let loaded = LoadedScenario {
            scenario: job.scenario.clone(),
            text: job.text.clone(),
            video: self.video.clone(),
        };
        let seed = Seed(job.seed);
        let stage = LabRun {
            loaded: &loaded,
            seed,
            interrupts: &self.interrupts,
            service: Some(&self.service),
            ends_with_video: has_video,
            injector: self.injector,
            partial: None,
        };
        if self.is_interrupted() {
            return Ok(None);
        }
        let instances = topology::flow_instances(&loaded.scenario, seed);
        let played = stage.play_in_time(&instances, &mut |_| {}, &|| {})?;
        // An incomplete run has no result.
        if !played.is_whole {
            return Ok(None);
        }
        if !played.kept_up() {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
        let value = read(&played.take)?;
        self.keep(&loaded, job, played, number)?;
        Ok(Some(value))
    }

    /// Says why a run failed. Other runs continue.
    fn settle<T>(&self, job: &Job, played: Result<Option<T>>) -> Option<T> {
        if let Err(why) = &played {
            let failed = format!("run {} of seed {} failed: {why:#}", job.label, job.seed);
            say(&failed);
            if let Ok(mut said) = self.said.lock() {
                said.insert(failed);
            }
        }
        played.unwrap_or_default()
    }

    /// Writes the run folder.
    fn keep(
        &self,
        loaded: &LoadedScenario,
        job: &Job,
        result: LabResult,
        number: usize,
    ) -> Result<()> {
        let dir = self.out.join(format!("{}-{}", job.label, job.seed));
        let mut manifest = run_folder::manifest(record::World::Lab, &loaded.scenario);
        manifest.timing.push(result.timing());
        if let Ok(mut said) = self.said.lock() {
            said.extend(result.notes.iter().cloned());
        }
        manifest.notes.extend(result.notes.clone());
        let captures = lab::captures(&result);
        let late = if result.kept_up() { "" } else { "; LATE" };
        let takes = vec![result.take];
        let staged = StagedRun::claim(&dir)?;
        let also = |dir: &Path| captures.write(dir);
        let run = run_folder::write(staged, loaded, manifest, Seed(job.seed), takes, &also)?;
        let summary = run.summary.as_ref();
        let flow = summary.and_then(|s| s.flows.iter().find(|f| f.name == "video"));
        let frames = flow.map(|flow| &flow.frames);
        let on_time_text = frames.and_then(|f| {
            let on_time = f.on_time?;
            Some(format!(": {on_time} of {} frames on time", f.made?))
        });
        let on_time_text = on_time_text.unwrap_or_default();
        let all = self.all.load(Ordering::Relaxed);
        self.kept.fetch_add(1, Ordering::Relaxed);
        say(format_args!(
            "run {number} of {all}, {} seed {}{on_time_text}{late}",
            job.label, job.seed
        ));
        Ok(())
    }
}

impl verb::Lab for Lab {
    fn has_runs(&self) -> Result<bool> {
        if self.kept.load(Ordering::Relaxed) > 0 {
            return Ok(true);
        }
        ensure!(
            self.is_interrupted(),
            EnvironmentError::new("no run succeeded; the errors are printed above")
        );
        Ok(false)
    }

    fn notes(&self) -> Vec<String> {
        let said = self.said.lock();
        let mut notes: Vec<String> =
            said.map_or_else(|_| Vec::new(), |said| said.iter().cloned().collect());
        let count = |number: &AtomicUsize| number.load(Ordering::Relaxed);
        let late = count(&self.late);
        if late > 0 {
            notes.push(format!(
                "in {late} of {} runs the emulator was late by more than a millisecond for one of \
                 a hundred packets, or by 50 ms for any: this machine was too busy",
                count(&self.all)
            ));
        }
        if self.is_interrupted() {
            notes.push("interrupted: runs are missing".to_owned());
        }
        notes
    }
}

impl Testbed for Lab {
    fn name(&self) -> Option<String> {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Some(format!("the TCP of Linux {}", release.trim()))
    }

    fn begin(&self, jobs: &[Job], at_a_time: usize) {
        for number in [&self.begun, &self.late, &self.kept] {
            number.store(0, Ordering::Relaxed);
        }
        if let Ok(mut said) = self.said.lock() {
            said.clear();
        }
        self.all.store(jobs.len(), Ordering::Relaxed);
        let last: Duration = jobs.iter().map(lasts).sum();
        let whole = last.as_secs_f64() / at_a_time.max(1) as f64 / 60.0;
        say(format_args!(
            "runs in real time: {}, in parallel: {at_a_time}, about {} minutes; run folders \
             in {}",
            jobs.len(),
            whole.ceil(),
            self.out.display()
        ));
    }

    fn play(&self, job: &Job) -> Result<Option<(FlowInstance, FlowResult)>, PapersError> {
        let played = self.try_play(job, true, |run| {
            let video = run
                .flows
                .iter()
                .find(|(instance, _)| instance.name == "video");
            Ok(video.context("the run has no video")?.clone())
        });
        Ok(self.settle(job, played))
    }

    // The lab keeps all records.
    fn flows(&self, job: &Job, _: Keep) -> Result<Option<RunResult>, PapersError> {
        Ok(self.settle(job, self.try_play(job, false, |run| Ok(run.clone()))))
    }

    fn pictures(&self) -> &dyn PictureSource {
        &self.video
    }
}

impl fmt::Debug for Lab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lab")
            .field("out", &self.out)
            .finish_non_exhaustive()
    }
}

/// Duration of a run in real time: up to the last frame or the end of the last outage, plus setup.
fn lasts(job: &Job) -> Duration {
    let whole = job.scenario.duration;
    let video = job.video();
    let frames = video.and_then(|video| Some((video, video.stream.as_ref()?.frames?)));
    let links = job.scenario.links.iter();
    let cuts = links.flat_map(|link| &link.outages);
    let restored = cuts.map(|cut| cut.to.since(Time::ZERO)).max();
    frames.map_or(whole, |(video, frames)| {
        let last = video.frame_rate.at(frames);
        last.max(restored.unwrap_or_default()).min(whole)
    }) + AROUND
}

/// Random start of the video within one second, drain of packets in flight, output of the run
/// folder.
const AROUND: Duration = Duration::from_secs(3);
