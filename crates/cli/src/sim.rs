//! `tidegate sim`: scenarios in the simulator.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use tidegate_console::arguments;
use tidegate_console::exit::{EXPECTATION_FAILS, INCONCLUSIVE};
use tidegate_console::output::{output, print_json};
use tidegate_console::progress::say;
use tidegate_console::signals;
use tidegate_core::controller::Controllers;
use tidegate_core::link::LinkForm;
use tidegate_core::random::Seed;
use tidegate_live::terminal;
use tidegate_record::{ExpectationResult, Run, StagedRun, Summary, World};
use tidegate_report as report;
use tidegate_sim::runner;
use tidegate_studies::bench::verb::{self as bench, BenchArgs};
use tidegate_studies::rmcat::comparison::{self as rmcat, RmcatArgs};
use tidegate_studies::validate::verb::{self as validate, ValidateArgs};

use crate::recording::{self, ConvertArgs};
use crate::run_folder::{self, LoadedScenario};
use crate::sweep::{self, MergeArgs, SweepArgs};
use crate::{memory, table};

/// Arguments of `tidegate sim`.
#[derive(Debug, clap::Args)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    verb: SimVerb,
}

#[derive(Debug, clap::Subcommand)]
enum SimVerb {
    /// Run a scenario in virtual time and check its expectations
    Run(SimRunArgs),
    /// Run a scenario with several values and seeds, on all cores
    Sweep(SweepArgs),
    /// Join the shards of a sweep that ran on several machines
    Merge(MergeArgs),
    /// Compare controllers on paths with losses, beside TCP, among their kind, and with video
    Bench(BenchArgs),
    /// Print a recording of mahimahi, iperf3 or ndt7 as a recorded path (CSV)
    Convert(ConvertArgs),
    /// Run the test cases of RFC 8867 and RFC 8869, and draw a scorecard
    Rmcat(RmcatArgs),
    /// Compare the simulator with results of ns-2
    Validate(ValidateArgs),
}

#[derive(Debug, clap::Args)]
struct SimRunArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Simulate all links by the plain model, without the fast paths; the results are the same
    #[arg(long)]
    plain_links: bool,
}

/// Arguments of a scenario run.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Scenario file (TOML)
    pub(crate) scenario: PathBuf,
    /// Random seed [default: the scenario's]
    #[arg(long, value_name = "N", value_parser = arguments::seed)]
    pub(crate) seed: Option<u64>,
    /// Run folder [default: `runs/<scenario>-<world>-<seed>`]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the summary as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Do not draw the report
    #[arg(long)]
    pub(crate) no_report: bool,
}

/// Result of a run.
#[derive(Debug)]
pub(crate) enum End {
    /// Complete run.
    Whole(Run),
    /// Run up to Ctrl-C.
    Cut(Run),
    /// No results; the reason has been printed.
    Nothing,
}

/// Runs the subcommand. The exit code is 1 if an expectation of the scenario fails, and 130 after
/// Ctrl-C.
pub(crate) fn run(args: &SimArgs, controllers: &Controllers) -> Result<ExitCode> {
    match &args.verb {
        SimVerb::Run(args) => run_one(args, controllers),
        SimVerb::Bench(args) => bench::run(args, controllers),
        SimVerb::Convert(args) => recording::run(args),
        SimVerb::Merge(args) => sweep::merge(args, controllers),
        SimVerb::Rmcat(args) => rmcat::run(args, controllers),
        SimVerb::Sweep(args) => sweep::run(args, controllers),
        SimVerb::Validate(args) => validate::run(args),
    }
}

fn run_one(
    SimRunArgs { run, plain_links }: &SimRunArgs,
    controllers: &Controllers,
) -> Result<ExitCode> {
    let args = run;
    let mut loaded = LoadedScenario::load(&args.scenario, controllers)?;
    if *plain_links {
        loaded.scenario.link_form = LinkForm::Plain;
    }
    let seed = args.seed.map_or(loaded.scenario.seed, Seed);
    let dir = args.out.clone();
    let dir = dir.unwrap_or_else(|| run_folder::default_dir("sim", &loaded.scenario, seed));
    finish(&simulate(loaded, seed, &dir)?, args, &dir)
}

/// Runs a scenario in the simulator and writes a run folder if the run completes.
pub(crate) fn simulate(loaded: LoadedScenario, seed: Seed, dir: &Path) -> Result<End> {
    memory::check(&loaded.scenario, 1)?;
    loaded.warn_of_slow_pictures();
    let interrupts = signals::catch()?;
    let staged = StagedRun::claim(dir)?;
    let what = format!("the run of {}, seed {}", loaded.scenario.name, seed.0);
    let run = signals::run_interruptible(Some(&interrupts), "simulating", move |done| {
        let encoder = |flow: &str, plan: &_, seed| loaded.video.encoder(flow, plan, seed);
        let takes = runner::scenario(&loaded.scenario, seed, &encoder, &mut |share| {
            done.set(share);
        })?;
        let manifest = run_folder::manifest(World::Sim, &loaded.scenario);
        run_folder::assemble(&loaded, manifest, seed, takes)
    });
    let Some(run) = run else {
        drop(staged);
        say(signals::nothing_kept(&what, dir));
        return Ok(End::Nothing);
    };
    let run = run_folder::keep(staged, run?, &|_| Ok(()))?;
    if interrupts.count() > 0 {
        let dir = dir.display();
        say(format_args!(
            "interrupted after {what}, which is kept in {dir} without a report: tidegate report \
            {dir} \
             draws one"
        ));
        return Ok(End::Nothing);
    }
    Ok(End::Whole(run))
}

/// Prints the results of a run. An interrupted run has no JSON output, which would look like that
/// of a complete run.
pub(crate) fn finish(end: &End, args: &RunArgs, dir: &Path) -> Result<ExitCode> {
    let (run, is_cut) = match end {
        End::Whole(run) => (run, false),
        End::Cut(run) => (run, true),
        End::Nothing => return Ok(signals::exit_code()),
    };
    let page = if args.no_report {
        None
    } else {
        Some(report::write(std::slice::from_ref(run), dir)?.page)
    };
    if args.json && is_cut {
        return Ok(signals::exit_code());
    }
    let code = show(run, args.json, page.as_deref(), dir)?;
    Ok(if is_cut { signals::exit_code() } else { code })
}

/// Prints the results of a run, as a table or as JSON. Returns the exit code of a complete run.
///
/// # Errors
/// Standard output is closed or full.
pub(crate) fn show(run: &Run, json: bool, page: Option<&Path>, dir: &Path) -> Result<ExitCode> {
    let summary = run.summary.as_ref();
    let summary = summary.expect("a run that was just written has one");
    if json {
        print_json(summary)?;
    } else {
        let mut out = output();
        let room = terminal::columns(out.as_fd());
        write!(out, "{}", table::render(run, summary, room))?;
        for note in table::notes(&run.manifest) {
            writeln!(out, "note: {note}")?;
        }
        match page {
            Some(page) => writeln!(out, "\nreport: {}", page.display())?,
            None => writeln!(out, "\nrun folder: {}", dir.display())?,
        }
    }
    Ok(exit_code(summary))
}

/// Exit code of a complete run: 1 if an expectation fails, 75 if the machine was too busy to judge
/// one.
fn exit_code(summary: &Summary) -> ExitCode {
    match summary.all_held() {
        ExpectationResult::Yes => ExitCode::SUCCESS,
        ExpectationResult::Unsure => ExitCode::from(INCONCLUSIVE),
        ExpectationResult::No => ExitCode::from(EXPECTATION_FAILS),
    }
}
