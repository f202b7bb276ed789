//! `tidegate sim merge`: joins the shards of a sweep.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use tidegate_console::exit::EXPECTATION_FAILS;
use tidegate_console::progress::{counted, say};
use tidegate_console::signals;
use tidegate_core::controller::Controllers;
use tidegate_sim::scenario::Sweep;

use super::results_file::{Job, ResultsFile};
use super::shard::Shard;
use super::worker_pool::End;

/// Arguments of `tidegate sim merge`.
#[derive(Debug, clap::Args)]
pub(crate) struct MergeArgs {
    /// Scenario file (TOML) of the sweep
    scenario: PathBuf,
    /// Folders of the shards [default: all `shard-I-of-N` in the folder of the results]
    #[arg(value_name = "SHARD")]
    shards: Vec<PathBuf>,
    /// Folder of the results [default: `runs/<scenario>-sweep`]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Repeat K of the runs here and compare their results
    #[arg(long, value_name = "K", default_value_t = 0, hide_default_value = true)]
    verify: usize,
    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
    /// Remove earlier results in the folder of the results
    #[arg(long)]
    fresh: bool,
}

/// Writes the results of all shards as one sweep writes them. The exit code is 1 if runs are
/// missing, a repeated run has another result, or an expectation fails.
pub(crate) fn run(args: &MergeArgs, controllers: &Controllers) -> Result<ExitCode> {
    let sweep = Sweep::load(&args.scenario, controllers)?;
    let dir = args.out.clone();
    let dir = dir.unwrap_or_else(|| super::default_dir(&sweep));
    let mut folders = args.shards.clone();
    if folders.is_empty() {
        folders = shards_in(&dir)?;
    }
    let mut results = ResultsFile::open(&dir, &sweep, None, args.fresh)?;
    let mut count = 0;
    for folder in &folders {
        count = results.take_shard(folder)?.count();
    }
    let missing: Vec<Job> = results.missing().collect();
    if !missing.is_empty() {
        report_missing(&sweep, &missing, count, &args.scenario, &dir);
        return Ok(ExitCode::from(EXPECTATION_FAILS));
    }
    if args.verify > 0
        && let Some(code) = verify(args.verify, &sweep, &results)?
    {
        return Ok(code);
    }
    super::conclude(&sweep, &results, &dir, args.json)
}

/// Folders of shards in `dir`, by name.
fn shards_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| {
        let dir = dir.display();
        format!("cannot read {dir}: give the folders of the shards, or the folder above with --out")
    })?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(Shard::is_folder) {
            found.push(entry.path());
        }
    }
    if found.is_empty() {
        bail!(
            "{} has no folder of a shard: give them as arguments, or the folder above with --out",
            dir.display()
        );
    }
    found.sort();
    Ok(found)
}

/// Names what is missing by the arguments that execute it.
fn report_missing(sweep: &Sweep, missing: &[Job], count: usize, scenario: &Path, dir: &Path) {
    let seeds = sweep.seeds.len();
    let indices = missing.iter();
    let indices: BTreeSet<usize> = indices
        .map(|(point, seed)| (point * seeds + seed) % count)
        .collect();
    let (scenario, dir) = (scenario.display(), dir.display());
    say(format_args!(
        "{} of {} missing, of these shards:",
        counted(missing.len() as u64, "run"),
        sweep.runs()
    ));
    for index in indices {
        say(format_args!("  --shard {}", Shard::of(index, count)));
    }
    say(format_args!(
        "execute them and merge again, or all on this machine: \
         tidegate sim sweep {scenario} --out {dir}"
    ));
}

/// Repeats `count` runs, evenly spread over the sweep. Returns an exit code if a result differs or
/// the user interrupts.
///
/// # Errors
/// A run fails.
fn verify(count: usize, sweep: &Sweep, results: &ResultsFile<'_>) -> Result<Option<ExitCode>> {
    let all: Vec<Job> = results.jobs().collect();
    let count = count.min(all.len());
    // The middle of each of `count` equal parts.
    let chosen = (0..count).map(|i| all[(2 * i + 1) * all.len() / (2 * count)]);
    let threads = super::threads(None)?;
    super::check_memory(sweep, threads)?;
    let mut differing = Vec::new();
    let end = super::execute(threads, sweep, chosen.collect(), &mut |job, rows| {
        if !results.has(job, &rows) {
            differing.push(job);
        }
        Ok(())
    })?;
    if end == End::Interrupted {
        return Ok(Some(signals::exit_code()));
    }
    for (point, seed) in &differing {
        let (point, seed) = (point + 1, sweep.seeds[*seed].0);
        say(format_args!(
            "point {point}, seed {seed} has another result on this machine than in its shard"
        ));
    }
    if differing.is_empty() {
        let runs = counted(count as u64, "run");
        say(format_args!("{runs} repeated with equal results"));
        return Ok(None);
    }
    say(format_args!(
        "processors or C libraries do not compute alike: execute the sweep on machines of one kind"
    ));
    Ok(Some(ExitCode::from(EXPECTATION_FAILS)))
}
