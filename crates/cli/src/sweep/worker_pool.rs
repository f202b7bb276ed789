//! Runs simulations on all cores.

use std::cmp::Reverse;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tidegate_core::random::Seed;
use tidegate_record::World;
use tidegate_sim::runner;
use tidegate_sim::scenario::Scenario;

use super::results_file::Job;
use super::rows::{self, Row};
use crate::run_folder::{self, LoadedScenario};
use tidegate_console::signals::{self, GLANCE};

/// Threads that execute the pending runs.
#[derive(Debug)]
pub(super) struct WorkerPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    results: mpsc::Receiver<(usize, Result<Vec<Row>>)>,
}

/// Result of a sweep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    /// All runs are complete. `busy` is the share of time in which the threads worked, in 0..=1.
    Done { busy: f64 },
    /// Interrupted by Ctrl-C.
    Interrupted,
}

#[derive(Debug)]
struct Shared {
    /// Scenario of each point.
    scenarios: Vec<LoadedScenario>,
    seeds: Vec<Seed>,
    jobs: Vec<Job>,
    /// Index of the next pending job.
    next: AtomicUsize,
    busy_nanos: AtomicU64,
}

impl WorkerPool {
    /// Starts `jobs` on `threads` threads.
    pub(super) fn start(
        scenarios: Vec<LoadedScenario>,
        seeds: Vec<Seed>,
        mut jobs: Vec<Job>,
        threads: usize,
    ) -> Self {
        // Longest first, so that no core is idle at the end.
        jobs.sort_by_key(|(point, _)| Reverse(work(&scenarios[*point].scenario)));
        let shared = Arc::new(Shared {
            scenarios,
            seeds,
            jobs,
            next: AtomicUsize::new(0),
            busy_nanos: AtomicU64::new(0),
        });
        let (sender, results) = mpsc::channel();
        // Not scoped: after Ctrl-C the program exits without waiting for the threads.
        let threads = (0..threads.min(shared.jobs.len()))
            .map(|_| {
                let (shared, sender) = (Arc::clone(&shared), sender.clone());
                thread::spawn(move || shared.work(&sender))
            })
            .collect();
        Self {
            shared,
            threads,
            results,
        }
    }

    /// Passes the rows of each completed run to `keep`.
    ///
    /// # Errors
    /// The first error of a run or of `keep`.
    pub(super) fn attend(self, keep: &mut dyn FnMut(Job, Vec<Row>) -> Result<()>) -> Result<End> {
        let interrupts = signals::catch()?;
        let shared = &self.shared;
        let mut progress =
            ProgressLine::new(shared.jobs.iter().map(|job| shared.work_of(*job)).sum());
        let mut done = 0;
        while done < shared.jobs.len() {
            match self.results.recv_timeout(GLANCE) {
                Ok((place, rows)) => {
                    let job = shared.jobs[place];
                    keep(job, rows?)?;
                    done += 1;
                    progress.add(shared.work_of(job));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if interrupts.count() > 0 {
                while let Ok((place, rows)) = self.results.try_recv() {
                    keep(shared.jobs[place], rows?)?;
                }
                progress.clear();
                return Ok(End::Interrupted);
            }
            progress.show(done, shared.jobs.len());
        }
        progress.clear();
        let wall = progress.began.elapsed().as_secs_f64() * self.threads.len() as f64;
        for thread in self.threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        let busy = Duration::from_nanos(shared.busy_nanos.load(Ordering::Relaxed));
        Ok(End::Done {
            busy: (busy.as_secs_f64() / wall).min(1.0),
        })
    }
}

impl Shared {
    fn work(&self, results: &mpsc::Sender<(usize, Result<Vec<Row>>)>) {
        loop {
            let place = self.next.fetch_add(1, Ordering::Relaxed);
            let Some((point, seed)) = self.jobs.get(place) else {
                return;
            };
            let began = Instant::now();
            let rows = play(&self.scenarios[*point], self.seeds[*seed]);
            let rows =
                rows.with_context(|| format!("point {}, seed {}", point + 1, self.seeds[*seed].0));
            let busy = began.elapsed().as_nanos() as u64;
            self.busy_nanos.fetch_add(busy, Ordering::Relaxed);
            // The receiver is gone if the sweep has been abandoned.
            if results.send((place, rows)).is_err() {
                return;
            }
        }
    }

    fn work_of(&self, (point, _): Job) -> u128 {
        work(&self.scenarios[point].scenario)
    }
}

/// Executes one run in memory.
fn play(loaded: &LoadedScenario, seed: Seed) -> Result<Vec<Row>> {
    let scenario = &loaded.scenario;
    let encoder = |flow: &str, plan: &_, seed| loaded.video.encoder(flow, plan, seed);
    let takes = runner::scenario(scenario, seed, &encoder, &mut |_| {})?;
    let run = run_folder::assemble(
        loaded,
        run_folder::manifest(World::Sim, scenario),
        seed,
        takes,
    )?;
    let summary = run.summary.as_ref();
    let summary = summary.expect("a run that was assembled has one");
    Ok(rows::of_run(scenario, &run, summary))
}

/// Estimated work of a run: flows times milliseconds.
pub(super) fn work(scenario: &Scenario) -> u128 {
    let flows: u32 = scenario.flows.iter().map(|flow| flow.count).sum();
    let flows = u128::from(flows) + scenario.baselines.len() as u128;
    flows * scenario.duration.as_millis()
}

/// Progress of the sweep on standard error.
#[derive(Debug)]
struct ProgressLine {
    terminal: bool,
    began: Instant,
    shown: Option<Instant>,
    done: u128,
    whole: u128,
}

impl ProgressLine {
    fn new(whole: u128) -> Self {
        Self {
            terminal: stderr().is_terminal(),
            began: Instant::now(),
            shown: None,
            done: 0,
            whole,
        }
    }

    fn add(&mut self, work: u128) {
        self.done += work;
    }

    /// On a terminal a line that is overwritten; elsewhere a line after the first run and at
    /// intervals.
    fn show(&mut self, done: usize, runs: usize) {
        let pause = if self.terminal { REFRESH } else { LOG_INTERVAL };
        let is_due = match self.shown {
            Some(shown) => shown.elapsed() >= pause,
            None => done > 0 || self.began.elapsed() >= pause,
        };
        if !is_due || done == runs {
            return;
        }
        self.shown = Some(Instant::now());
        let share = self.done as f64 / self.whole.max(1) as f64;
        let line = progress(share, done, runs, self.began.elapsed());
        // Write errors are ignored, so that the runs continue.
        let _ = if self.terminal {
            write!(stderr(), "\r{line}\x1b[K")
        } else {
            writeln!(stderr(), "{line}")
        };
    }

    fn clear(&mut self) {
        if self.terminal && self.shown.is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

fn progress(share: f64, done: usize, runs: usize, elapsed: Duration) -> String {
    let full = (share * BAR as f64) as usize;
    let bar = format!("{}{}", "#".repeat(full), "-".repeat(BAR - full.min(BAR)));
    let left = if done > 0 {
        let left = elapsed.as_secs_f64() * (1.0 - share) / share;
        format!(", {} left", short_duration(Duration::from_secs_f64(left)))
    } else {
        String::new()
    };
    format!("[{bar}] {done} of {runs} runs{left}")
}

/// A duration in one or two units.
pub(super) fn short_duration(span: Duration) -> String {
    match span.as_secs() {
        0 => format!("{:.1} s", span.as_secs_f64()),
        secs @ 1..60 => format!("{secs} s"),
        secs @ 60..3_600 => format!("{} min {} s", secs / 60, secs % 60),
        secs => format!("{} h {} min", secs / 3_600, secs / 60 % 60),
    }
}

/// Refresh interval on a terminal.
const REFRESH: Duration = Duration::from_millis(250);
/// Interval between lines of a log.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Width of the bar in characters.
const BAR: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_shows_the_remaining_time() {
        let at = |share, done| progress(share, done, 8, Duration::from_secs(30));
        let (empty, half) = ("-".repeat(30), "#".repeat(15) + &"-".repeat(15));
        assert_eq!(at(0.0, 0), format!("[{empty}] 0 of 8 runs"));
        assert_eq!(at(0.5, 6), format!("[{half}] 6 of 8 runs, 30 s left"));
        assert!(at(1.0, 8).starts_with(&format!("[{}]", "#".repeat(30))));
    }

    #[test]
    fn durations_have_one_or_two_units() {
        for (secs, text) in [
            (0.25, "0.2 s"),
            (59.9, "59 s"),
            (80.0, "1 min 20 s"),
            (7_500.0, "2 h 5 min"),
        ] {
            assert_eq!(short_duration(Duration::from_secs_f64(secs)), text);
        }
    }
}
