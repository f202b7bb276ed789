//! `tidegate sim sweep`: a scenario with several parameter values and seeds.

mod results_file;
mod rows;
mod table;
mod worker_pool;

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tidegate_core::controller::Controllers;
use tidegate_live::terminal;
use tidegate_sim::scenario::{Point, Sweep};

use crate::memory;
use crate::run_folder::LoadedScenario;
use crate::video_source::VideoInput;
use results_file::{Job, ResultsFile};
use rows::{Figure, Row};
use tidegate_console::exit::EXPECTATION_FAILS;
use tidegate_console::output::{output, print_json};
use tidegate_console::progress::{counted, say};
use tidegate_console::signals;
use worker_pool::{End, WorkerPool, short_duration};

/// Arguments of `tidegate sim sweep`.
#[derive(Debug, clap::Args)]
pub(crate) struct SweepArgs {
    /// Scenario file (TOML) with a [sweep]
    scenario: PathBuf,
    /// Folder of the results [default: `runs/<scenario>-sweep`]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Number of parallel runs [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    jobs: Option<u16>,
    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
    /// Remove the results of an earlier sweep in this folder rather than resume it
    #[arg(long)]
    fresh: bool,
}

/// Runs each missing pair of point and seed. The exit code is 1 if an expectation fails in any run,
/// and 130 after Ctrl-C.
pub(crate) fn run(args: &SweepArgs, controllers: &Controllers) -> Result<ExitCode> {
    let sweep = Sweep::load(&args.scenario, controllers)?;
    let dir = args.out.clone();
    let dir = dir.unwrap_or_else(|| PathBuf::from(format!("runs/{}-sweep", sweep.base.name)));
    let threads = threads(args)?;
    let packets = |point: &&Point| -> f64 {
        let logged = point.scenario.logged_packets();
        logged.iter().map(|logged| logged.packets).sum()
    };
    let largest = sweep.points.iter();
    let largest = largest.max_by(|a, b| packets(a).total_cmp(&packets(b)));
    if let Some(largest) = largest {
        memory::check(&largest.scenario, threads.min(sweep.runs()))?;
    }
    let mut results = ResultsFile::open(&dir, &sweep, args.fresh)?;
    if play(threads, &sweep, &dir, &mut results)? == End::Interrupted {
        let (done, all) = (results.done(), sweep.runs());
        let all = counted(all as u64, "run");
        say(format_args!(
            "interrupted after {done} of {all}; run the same command again to continue"
        ));
        return Ok(signals::exit_code());
    }
    let figures = results.finish()?;
    let failures = results.failures();
    let mut out = output();
    if args.json {
        print_json(&as_json(&sweep, &figures, &failures))?;
    } else {
        let room = terminal::columns(out.as_fd());
        write!(out, "{}", table::render(&sweep, &figures, room))?;
        write!(out, "{}", table::failures(&sweep, &failures))?;
        writeln!(out, "\nresults: {}", dir.display())?;
    }
    Ok(if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXPECTATION_FAILS)
    })
}

/// Number of parallel runs.
fn threads(args: &SweepArgs) -> Result<usize> {
    if let Some(jobs) = args.jobs {
        return Ok(usize::from(jobs));
    }
    let cores = available_parallelism();
    let cores = cores.context("cannot determine the number of cores: give --jobs")?;
    Ok(cores.get())
}

/// Executes the missing runs and adds their rows to `results`.
fn play(threads: usize, sweep: &Sweep, dir: &Path, results: &mut ResultsFile<'_>) -> Result<End> {
    let seeds = sweep.seeds.len();
    let jobs = (0..sweep.points.len()).flat_map(|point| (0..seeds).map(move |seed| (point, seed)));
    let jobs: Vec<Job> = jobs.filter(|job| !results.is_done(*job)).collect();
    let runs = jobs.len();
    if results.done() > 0 {
        let (dir, done, all) = (dir.display(), results.done(), sweep.runs());
        let all = counted(all as u64, "run");
        say(format_args!("{dir} has {done} of {all}, {runs} remaining"));
    }
    if runs == 0 {
        return Ok(End::Done { busy: 1.0 });
    }
    let loaded = |point: &Point| LoadedScenario {
        scenario: point.scenario.clone(),
        text: sweep.text.clone(),
        video: VideoInput::default(),
    };
    let scripts = sweep.points.iter().map(loaded).collect();
    let began = Instant::now();
    let crew = WorkerPool::start(scripts, sweep.seeds.clone(), jobs, threads);
    let end = crew.attend(&mut |job, rows| results.add(job, rows))?;
    if let End::Done { busy } = end {
        say(format_args!(
            "{} in {}, {} at a time; threads were busy {:.1} % of the time",
            counted(runs as u64, "run"),
            short_duration(began.elapsed()),
            threads.min(runs),
            busy * 100.0
        ));
    }
    Ok(end)
}

fn as_json(sweep: &Sweep, figures: &[Figure], failures: &[(Job, &Row)]) -> Value {
    let values = |point: usize| -> Value {
        let keys = sweep.axes.iter().map(|axis| axis.key.clone());
        let values = sweep.points[point].values.iter();
        keys.zip(values.map(|value| json!(value))).collect()
    };
    let figure = |f: &Figure| {
        json!({
            "point": f.point + 1,
            "values": values(f.point),
            "kind": f.kind.word(),
            "name": f.name,
            "members": f.members,
            "metric": f.metric,
            "mean": f.mean,
            "sd": f.deviation,
            "n": f.runs,
        })
    };
    let failure = |((point, seed), row): &(Job, &Row)| {
        json!({
            "point": point + 1,
            "values": values(*point),
            "seed": sweep.seeds[*seed].0,
            "text": row.name,
            "measured": row.values[rows::place("measured")],
        })
    };
    json!({
        "scenario": sweep.base.name,
        "seeds": sweep.seeds.iter().map(|seed| seed.0).collect::<Vec<_>>(),
        "points": sweep.points.len(),
        "runs": sweep.runs(),
        "failed": failures.iter().map(failure).collect::<Vec<_>>(),
        "summary": figures.iter().map(figure).collect::<Vec<_>>(),
    })
}
