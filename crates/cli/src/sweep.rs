//! `tidegate sim sweep`: a scenario with several parameter values and seeds, and `tidegate sim
//! merge`, which joins the parts of a sweep that ran on several machines.

mod merge;
mod results_file;
mod rows;
mod shard;
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
pub(crate) use merge::{MergeArgs, run as merge};
use results_file::{Job, ResultsFile};
use rows::{Figure, Row};
use shard::Shard;
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
    /// Folder of the results [default: `runs/<scenario>-sweep`, and in it `shard-I-of-N` with
    /// --shard]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Number of parallel runs [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    jobs: Option<u16>,
    /// Execute only part I of N, counted from 0, of the runs; `sim merge` joins the parts
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Print the runs as CSV, or with --json as an object per line, and execute none
    #[arg(long, conflicts_with_all = ["out", "jobs", "fresh"])]
    list: bool,
    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
    /// Remove the results of an earlier sweep in this folder rather than resume it
    #[arg(long)]
    fresh: bool,
}

/// Runs each missing pair of point and seed. The exit code is 1 if an expectation fails in any run,
/// and 130 after Ctrl-C. Expectations of a shard are left to the merge.
pub(crate) fn run(args: &SweepArgs, controllers: &Controllers) -> Result<ExitCode> {
    let sweep = Sweep::load(&args.scenario, controllers)?;
    if args.list {
        list(&sweep, args.shard, args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let dir = args.out.clone().unwrap_or_else(|| {
        let whole = default_dir(&sweep);
        args.shard
            .map_or(whole.clone(), |shard| shard.folder(&whole))
    });
    let threads = threads(args.jobs)?;
    check_memory(&sweep, threads)?;
    let mut results = ResultsFile::open(&dir, &sweep, args.shard, args.fresh)?;
    if play(threads, &sweep, &dir, &mut results)? == End::Interrupted {
        let (done, all) = (results.done(), results.jobs().count());
        let all = counted(all as u64, "run");
        say(format_args!(
            "interrupted after {done} of {all}; run the same command again to continue"
        ));
        return Ok(signals::exit_code());
    }
    match args.shard {
        Some(shard) => conclude_shard(&results, shard, &dir, args.json),
        None => conclude(&sweep, &results, &dir, args.json),
    }
}

/// Folder of the results if the arguments name none.
fn default_dir(sweep: &Sweep) -> PathBuf {
    PathBuf::from(format!("runs/{}-sweep", sweep.base.name))
}

/// Fails if the machine has too little memory for `threads` of the largest runs.
fn check_memory(sweep: &Sweep, threads: usize) -> Result<()> {
    let packets = |point: &&Point| -> f64 {
        let logged = point.scenario.logged_packets();
        logged.iter().map(|logged| logged.packets).sum()
    };
    let largest = sweep.points.iter();
    let largest = largest.max_by(|a, b| packets(a).total_cmp(&packets(b)));
    if let Some(largest) = largest {
        memory::check(&largest.scenario, threads.min(sweep.runs()))?;
    }
    Ok(())
}

/// Prints the runs with their numbers, from 0, and their estimated work: flows times seconds.
fn list(sweep: &Sweep, shard: Option<Shard>, json: bool) -> Result<()> {
    let mut out = output();
    let axes = || sweep.axes.iter().map(|axis| axis.key.clone());
    let mut table = csv::Writer::from_writer(Vec::new());
    if !json {
        let head = ["run", "point"].map(str::to_owned).into_iter();
        let tail = ["seed", "flow_seconds"].map(str::to_owned);
        table.write_record(head.chain(axes()).chain(tail))?;
    }
    for (run, (point, seed)) in results_file::jobs(sweep, shard) {
        let (at, seed) = (&sweep.points[point], sweep.seeds[seed].0);
        let work = worker_pool::work(&at.scenario) as f64 / 1e3;
        if json {
            let line = json!({
                "run": run,
                "point": point + 1,
                "values": values(sweep, point),
                "seed": seed,
                "flow_seconds": work,
            });
            writeln!(out, "{line}")?;
        } else {
            let head = [run, point + 1].map(|number| number.to_string());
            let tail = [seed.to_string(), work.to_string()];
            let cells = head.into_iter().chain(at.values.iter().cloned());
            table.write_record(cells.chain(tail))?;
        }
    }
    out.write_all(&table.into_inner()?)?;
    Ok(())
}

/// Reports a complete shard.
fn conclude_shard(
    results: &ResultsFile<'_>,
    shard: Shard,
    dir: &Path,
    json: bool,
) -> Result<ExitCode> {
    results.sort()?;
    let runs = results.done();
    let mut out = output();
    if json {
        print_json(&json!({ "shard": shard.to_string(), "runs": runs, "results": dir }))?;
    } else {
        writeln!(out, "results: {}", dir.display())?;
    }
    say(format_args!(
        "shard {shard} is complete with {}; `tidegate sim merge` joins the shards",
        counted(runs as u64, "run")
    ));
    Ok(ExitCode::SUCCESS)
}

/// Writes and prints the summary of all runs.
fn conclude(sweep: &Sweep, results: &ResultsFile<'_>, dir: &Path, json: bool) -> Result<ExitCode> {
    let figures = results.finish()?;
    let failures = results.failures();
    let mut out = output();
    if json {
        print_json(&as_json(sweep, &figures, &failures))?;
    } else {
        let room = terminal::columns(out.as_fd());
        write!(out, "{}", table::render(sweep, &figures, room))?;
        write!(out, "{}", table::failures(sweep, &failures))?;
        writeln!(out, "\nresults: {}", dir.display())?;
    }
    Ok(if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXPECTATION_FAILS)
    })
}

/// Number of parallel runs.
fn threads(jobs: Option<u16>) -> Result<usize> {
    if let Some(jobs) = jobs {
        return Ok(usize::from(jobs));
    }
    let cores = available_parallelism();
    let cores = cores.context("cannot determine the number of cores: give --jobs")?;
    Ok(cores.get())
}

/// Executes the missing runs and adds their rows to `results`.
fn play(threads: usize, sweep: &Sweep, dir: &Path, results: &mut ResultsFile<'_>) -> Result<End> {
    let jobs: Vec<Job> = results.missing().collect();
    let runs = jobs.len();
    if results.done() > 0 {
        let (dir, done) = (dir.display(), results.done());
        let all = counted(results.jobs().count() as u64, "run");
        say(format_args!("{dir} has {done} of {all}, {runs} remaining"));
    }
    if runs == 0 {
        return Ok(End::Done { busy: 1.0 });
    }
    execute(threads, sweep, jobs, &mut |job, rows| {
        results.add(job, rows)
    })
}

/// Executes runs and passes the rows of each to `keep`.
fn execute(
    threads: usize,
    sweep: &Sweep,
    jobs: Vec<Job>,
    keep: &mut dyn FnMut(Job, Vec<Row>) -> Result<()>,
) -> Result<End> {
    let runs = jobs.len();
    let loaded = |point: &Point| LoadedScenario {
        scenario: point.scenario.clone(),
        text: sweep.text.clone(),
        video: VideoInput::default(),
    };
    let scripts = sweep.points.iter().map(loaded).collect();
    let began = Instant::now();
    let crew = WorkerPool::start(scripts, sweep.seeds.clone(), jobs, threads);
    let end = crew.attend(keep)?;
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

/// The swept keys of a point with their values.
fn values(sweep: &Sweep, point: usize) -> Value {
    let keys = sweep.axes.iter().map(|axis| axis.key.clone());
    let values = sweep.points[point].values.iter();
    keys.zip(values.map(|value| json!(value))).collect()
}

fn as_json(sweep: &Sweep, figures: &[Figure], failures: &[(Job, &Row)]) -> Value {
    let figure = |f: &Figure| {
        json!({
            "point": f.point + 1,
            "values": values(sweep, f.point),
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
            "values": values(sweep, *point),
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
