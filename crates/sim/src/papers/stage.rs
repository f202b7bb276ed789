//! Runs of one video over TCP, and what is measured of each.

use core::fmt;
use core::time::Duration;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_core::media::{EncodeError, Quality};
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate, Time};

use super::{Options, Progress};
use crate::interactive::Record;
use crate::oracle::FloorSender;
use crate::play::{self, Keep, PlayError};
use crate::scenario::{Scenario, ScenarioError};

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
                "{ kind = \"reno\", packet = \"1500B\", window = \"44 packets\", min_rto = \"1s\" }"
            }
            Self::LinuxReno => "\"linux-reno\"",
            Self::Cubic => "\"cubic\"",
            Self::Bbr => "\"bbr\"",
        }
    }
}

/// One run: a scenario with a flow "video", and a seed.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) scenario: Scenario,
    pub(super) seed: u64,
}

/// A frame of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) captured: Time,
    /// When all of it was there.
    pub(super) complete: Option<Time>,
    /// Its share of the target rate, and its size.
    pub(super) target_bits: u64,
    pub(super) bits: u64,
    pub(super) quality: Option<Quality>,
    /// Could have been saved over this connection, and if only its time-outs counted.
    pub(super) savable: bool,
    pub(super) savable_by_path: bool,
}

/// What a run left behind.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) start: Time,
    pub(super) bound: Duration,
    /// A frame at the full rate, in bits.
    pub(super) full: f64,
    pub(super) frames: Vec<Frame>,
    pub(super) record: Record,
}

impl Frame {
    /// From its capture to its arrival, in seconds.
    pub(super) fn delay(&self) -> Option<f64> {
        Some(self.complete?.since(self.captured).as_secs_f64())
    }
}

impl Outcome {
    fn on_time(&self, frame: &Frame) -> bool {
        frame
            .complete
            .is_some_and(|at| at <= frame.captured + self.bound)
    }

    fn share(&self, of: impl Fn(&Frame) -> bool, that: impl Fn(&Frame) -> bool) -> f64 {
        let all: Vec<&Frame> = self.frames.iter().filter(|f| of(f)).collect();
        let good = all.iter().filter(|f| that(f)).count();
        good as f64 / all.len().max(1) as f64
    }

    /// Share of all frames that were there within the bound.
    pub(super) fn accepted(&self) -> f64 {
        self.share(|_| true, |f| self.on_time(f))
    }

    /// The same of the savable frames.
    pub(super) fn of_savable(&self) -> f64 {
        self.share(|f| f.savable, |f| self.on_time(f))
    }

    /// The same of those that the path and the time-outs alone would have let through.
    pub(super) fn of_savable_by_path(&self) -> f64 {
        self.share(|f| f.savable_by_path, |f| self.on_time(f))
    }

    /// Mean delay of the frames that arrived, in seconds.
    pub(super) fn mean_delay(&self) -> f64 {
        let delays: Vec<f64> = self.frames.iter().filter_map(Frame::delay).collect();
        delays.iter().sum::<f64>() / delays.len().max(1) as f64
    }

    /// Bits of the frames on time over what the savable ones would have had at the full rate.
    pub(super) fn bits_kept(&self) -> f64 {
        let kept = self.frames.iter().filter(|f| self.on_time(f));
        let kept: u64 = kept.map(|f| f.bits).sum();
        let savable = self.frames.iter().filter(|f| f.savable).count();
        kept as f64 / (savable as f64 * self.full)
    }

    /// Bits asked for and bits made, over those of all frames at the full rate.
    pub(super) fn bits_of_full(&self) -> (f64, f64) {
        let full = self.full * self.frames.len() as f64;
        let target: u64 = self.frames.iter().map(|f| f.target_bits).sum();
        let made: u64 = self.frames.iter().map(|f| f.bits).sum();
        (target as f64 / full, made as f64 / full)
    }

    /// From the first capture to the last arrival, in seconds.
    pub(super) fn lasted(&self) -> f64 {
        let last = self.frames.iter().filter_map(|f| f.complete).max();
        last.map_or(0.0, |at| at.since(self.start).as_secs_f64())
    }
}

/// Plays all jobs, in order, as many at a time as there are threads.
pub(super) fn play_all(
    jobs: &[Job],
    options: &Options,
    progress: Progress<'_>,
) -> Result<Vec<Outcome>, PapersError> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<Outcome, PapersError>)>> = Mutex::default();
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(number) else {
                return;
            };
            let outcome = play_one(job);
            if let Ok(mut done) = done.lock() {
                done.push((number, outcome));
                progress(done.len() as f64 / jobs.len() as f64);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..options.threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(work);
        }
    });
    let mut done = done
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Reads a scenario that was put together here.
pub(super) fn scenario(name: &str, text: &str) -> Result<Scenario, PapersError> {
    let none = |_: &str| Err("papers bring no files".to_owned());
    Scenario::parse(name, text, &none).map_err(PapersError::Scenario)
}

fn play_one(job: &Job) -> Result<Outcome, PapersError> {
    let encoder = |flow: &str, plan: &crate::scenario::VideoPlan, seed| {
        plan.modelled(flow, seed)
            .ok_or_else(|| EncodeError::Codec("papers are played with the model".to_owned()))
    };
    let take = play::flows(&job.scenario, Seed(job.seed), Keep::default(), &encoder);
    let take = take.map_err(PapersError::Play)?;
    let mut flows = take.flows.into_iter();
    let (role, takings) = flows
        .find(|(role, _)| role.name == "video")
        .ok_or(PapersError::NoVideo)?;
    let video = role.plan.media.video().ok_or(PapersError::NoVideo)?;
    let record = takings.stream.clone().unwrap_or_default();
    let captured: Vec<Time> = takings.sent.iter().map(|f| f.captured).collect();
    let oracle = FloorSender {
        floor: video.floor,
        frame_rate: video.frame_rate,
        payload: Bytes(1_448),
        overhead: Bytes(52),
        bound: video.delay_bound,
    };
    let connection = record.connection();
    let savable = oracle.savable_over(&connection, &captured);
    let by_path = oracle.savable_after_time_outs(&connection, &captured);
    let complete: std::collections::BTreeMap<u64, Time> = takings
        .received
        .iter()
        .filter_map(|f| Some((f.timestamp, f.complete?)))
        .collect();
    let frame = |(i, f): (usize, &tidegate_core::session::sender::SentFrame)| Frame {
        captured: f.captured,
        complete: complete.get(&u64::from(f.timestamp)).copied(),
        target_bits: f.target_bits,
        bits: f.bits,
        quality: f.quality,
        savable: savable[i],
        savable_by_path: by_path[i],
    };
    Ok(Outcome {
        start: Time::ZERO + role.plan.start,
        bound: video.delay_bound,
        full: (video.ceiling * video.frame_rate.interval()).bits() as f64,
        frames: takings.sent.iter().enumerate().map(frame).collect(),
        record,
    })
}

/// A bandwidth-delay product.
pub(super) fn product(rate: Rate, rtt: Duration) -> Bytes {
    rate * rtt
}

/// Why a figure could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum PapersError {
    /// A run left no video.
    NoVideo,
    /// A run failed.
    Play(PlayError),
    /// A scenario that was put together here does not stand.
    Scenario(ScenarioError),
}

impl fmt::Display for PapersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoVideo => f.write_str("the run has no flow called video: a fault of ours"),
            Self::Play(error) => write!(f, "{error}"),
            Self::Scenario(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for PapersError {}
