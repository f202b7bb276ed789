//! `tidegate papers`: reproduced figures and tables of papers.

mod bursts;
mod files;
mod law;
mod options;
mod program;
mod text;

use core::time::Duration;
use std::fs;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use crate::papers::{Bottleneck, ENTRIES, Encoder, Entry, Options, Simulator, Tcp, Testbed};
use anyhow::{Context as _, Result};
use serde_json::json;
use tidegate_core::quantity;
use tidegate_core::units::Rate;
use tidegate_live::driver::Interrupts;
use tidegate_report::plot::Figure;

use self::bursts::BurstArgs;
use self::law::LawArgs;
use self::options::RunPlan;
use self::text::{summary, text};
pub use program::{Injector, Lab, Program};
use tidegate_console::arguments;
use tidegate_console::exit::EXPECTATION_FAILS;
use tidegate_console::output::{self, output};
use tidegate_console::progress::say;
use tidegate_console::signals::{self, CreatedFolders};

/// Options of `tidegate papers`.
#[derive(Debug, clap::Args)]
pub struct PapersArgs {
    #[command(subcommand)]
    verb: PapersVerb,
}

#[derive(Debug, clap::Subcommand)]
enum PapersVerb {
    /// List the figures and tables
    List {
        /// Print the list as one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Reproduce figures and tables, and print measured beside published values
    Run(RunArgs),
    /// Answer of the throttling laws for a slope, a backlog and a delay bound
    Law(LawArgs),
}

/// Options of `papers run`.
#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Names as in `papers list`, prefixes such as "itcp/", or "all"
    names: Vec<String>,
    /// Runs of each kind, with seeds from 1 [default: 10, and 20 for cp/fig5 to fig10 as published; with
    /// --lab 2, since tables of the first paper take about 15 minutes each, and 5 for the report as
    /// published]
    #[arg(long, value_name = "N", value_parser = arguments::seeds)]
    seeds: Option<u64>,
    /// Same as --seeds
    // Not an alias, because errors would name --seeds.
    #[arg(long, value_name = "N", conflicts_with = "seeds", value_parser = arguments::seeds)]
    runs: Option<u64>,
    /// TCP: bsd (of the papers' time), linux-reno, cubic or bbr; repeatable [default: bsd; for
    /// itcp/table4 and table5 all four; with --lab cubic]
    #[arg(long = "tcp", value_name = "TCP", value_parser = tcp)]
    tcps: Vec<Tcp>,
    /// Only nodes whose names begin with NAME, such as "princeton"; repeatable
    #[arg(long = "node", value_name = "NAME")]
    nodes: Vec<String>,
    /// Video encoder: model, mpeg2 or x264 [default: model; mpeg2, as in the papers, for entries
    /// that measure picture quality or sizes: itcp/fig10, itcp/fig11 and abone/]
    #[arg(long, value_name = "ENCODER", value_parser = encoder)]
    encoder: Option<Encoder>,
    /// Maximum retransmission time-out of the video's TCP, from 1s to 120s
    #[arg(long, value_name = "TIME", value_parser = arguments::rto_max)]
    rto_max: Option<Duration>,
    /// Growth of consecutive timeouts in the simulator, in every mode; over bsd always exponential
    /// [default: exponential; itcp/table4, table5 and cuts play both]
    #[arg(long, value_enum, conflicts_with = "lab")]
    rto_backoff: Option<RtoBackoff>,
    /// Number of concurrent runs [default: one per core; with --lab eight per core, three for rcs/
    /// and start/, one for cp/]
    #[arg(long, value_name = "N", value_parser = arguments::jobs)]
    jobs: Option<NonZeroUsize>,
    /// Folder for tables, values and charts
    #[arg(long, value_name = "DIR", default_value = "runs/papers")]
    out: PathBuf,
    /// Use the kernel's TCP in real time instead of the simulator; keeps a run folder per run in
    /// --out
    #[arg(long)]
    lab: bool,
    /// Rate of the paths [default: 10Mb/s]
    #[arg(long, value_name = "RATE", value_parser = quantity::rate)]
    bottleneck: Option<Rate>,
    /// Queue of the bottleneck in bandwidth-delay products [default: 1]
    #[arg(long, value_name = "PRODUCTS", value_parser = queue_bdp)]
    queue: Option<f64>,
    #[command(flatten)]
    bursts: BurstArgs,
    /// With --lab: method of cutting the path
    #[arg(long, value_enum, default_value_t, requires = "lab")]
    injector: Injector,
    /// Exit with 1 if a claim fails
    #[arg(long)]
    strict: bool,
    /// Print the numbers as JSON: one object, or an array of several
    #[arg(long)]
    json: bool,
}

/// Growth of consecutive retransmission timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum RtoBackoff {
    /// Each timeout is twice the previous one
    Exponential,
    /// From the third timeout on, each lasts 100 ms less than the first, at least 250 ms, and at
    /// least 1 s after 33 timeouts
    Linear,
}

impl RtoBackoff {
    /// Whether the growth is linear.
    fn is_linear(self) -> bool {
        self == Self::Linear
    }
}

/// Runs the command. A claim that does not hold is printed and is not an error. The exit code is
/// 130 after Ctrl-C.
///
/// # Errors
/// An option is invalid, or a run fails.
pub fn run(args: &PapersArgs, program: &dyn Program) -> Result<ExitCode> {
    match &args.verb {
        PapersVerb::List { json } => list(*json),
        PapersVerb::Run(args) => play(args, program),
        PapersVerb::Law(args) => law::answer(args),
    }
}

fn list(json: bool) -> Result<ExitCode> {
    if json {
        let entry = |e: &Entry| json!({ "name": e.name, "about": e.about, "source": e.source });
        let entries: Vec<_> = ENTRIES.iter().map(entry).collect();
        output::print_json(&entries)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output();
    let mut source = "";
    for entry in ENTRIES {
        if entry.source != source {
            source = entry.source;
            writeln!(out, "{source}")?;
        }
        writeln!(out, "  {:14} {}", entry.name, entry.about)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn play(args: &RunArgs, program: &dyn Program) -> Result<ExitCode> {
    let plan = options::read(args)?;
    if let Some(longest) = args.rto_max.filter(|_| args.lab) {
        program.check_rto_max(longest)?;
    }
    let runs = args.out.join("lab");
    let made = CreatedFolders::by(&runs);
    // Detects an invalid --out before the first run.
    fs::create_dir_all(&args.out).with_context(|| {
        let dir = args.out.display();
        format!("cannot make the folder {dir}: choose another --out")
    })?;
    let exit = play_plan(args, program, &plan, runs);
    made.undo();
    exit
}

/// Runs the entries in order. Run folders of the lab are in `runs_in`.
fn play_plan(
    args: &RunArgs,
    program: &dyn Program,
    plan: &RunPlan,
    runs_in: PathBuf,
) -> Result<ExitCode> {
    let interrupts = Arc::new(signals::catch()?);
    let lab = args
        .lab
        .then(|| program.lab(runs_in, args.injector, Arc::clone(&interrupts)));
    let lab = lab.transpose()?;
    let options = Options {
        bottleneck: plan.bottleneck,
        bursts: plan.bursts.clone(),
        ..options(args, program, lab.as_ref())
    };
    let entries = &plan.entries;
    for note in &plan.notes {
        say(note);
    }
    let mut figures = Vec::with_capacity(entries.len());
    // The lab ends its runs itself, and complete runs are drawn.
    let interruptible_by = lab.is_none().then_some(&*interrupts);
    let mut at = "";
    for entry in entries {
        at = entry.name;
        let options = Options {
            seeds: how_often(args, entry),
            threads: concurrent(args, entry),
            ..options.clone()
        };
        let Some(mut figure) = play_one(entry, &options, interruptible_by)? else {
            break;
        };
        if let Some(lab) = &lab {
            if !lab.has_runs()? {
                break;
            }
            figure.notes.splice(0..0, lab.notes());
        }
        let drawing = files::write(&figure, &args.out)?;
        if !args.json {
            let mut out = output();
            write!(out, "{}", text(&figure))?;
            writeln!(out, "drawing: {}\n", drawing.display())?;
        }
        figures.push(figure);
        if interrupts.count() > 0 {
            break;
        }
    }
    if interrupts.count() > 0 && (lab.is_some() || figures.len() < entries.len()) {
        say(kept(&figures, entries.len(), at, args));
        return Ok(signals::exit_code());
    }
    conclude(args, &figures)
}

/// Prints the numbers of all figures, or how many of their claims hold.
fn conclude(args: &RunArgs, figures: &[Figure]) -> Result<ExitCode> {
    if args.json {
        print_json(figures)?;
    } else if figures.len() > 1 {
        write!(output(), "{}", summary(figures))?;
    }
    let fails = |figure: &Figure| figure.claims.iter().any(|claim| claim.holds == Some(false));
    Ok(if args.strict && figures.iter().any(fails) {
        ExitCode::from(EXPECTATION_FAILS)
    } else {
        ExitCode::SUCCESS
    })
}

/// Number of runs of each kind of an entry.
fn how_often(args: &RunArgs, entry: &Entry) -> u64 {
    let published = entry.published_runs();
    let usual = if args.lab {
        published.unwrap_or(LAB_RUNS)
    } else {
        published.unwrap_or(0).max(RUNS)
    };
    args.seeds.or(args.runs).unwrap_or(usual)
}

/// Number of concurrent runs of an entry.
fn concurrent(args: &RunArgs, entry: &Entry) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let usual = match (args.lab, entry.has_flows()) {
        (false, _) => cores,
        (true, false) => cores * LABS,
        (true, true) => cores * entry.labs_per_core(),
    };
    args.jobs.map_or(usual, NonZeroUsize::get)
}

/// Options of all entries, except for the numbers of runs and the path.
fn options(args: &RunArgs, program: &dyn Program, lab: Option<&Arc<dyn Lab>>) -> Options {
    let options = Options {
        world: Arc::new(Simulator::new(program.pictures())),
        seeds: RUNS,
        tcps: args.tcps.clone(),
        nodes: args.nodes.clone(),
        encoder: args.encoder,
        rto_max: args.rto_max,
        linear: args.rto_backoff.map(RtoBackoff::is_linear),
        bottleneck: Bottleneck::default(),
        bursts: None,
        threads: 1,
        memory: Arc::default(),
    };
    let Some(lab) = lab else { return options };
    Options {
        world: Arc::clone(lab) as Arc<dyn Testbed>,
        tcps: if args.tcps.is_empty() {
            vec![Tcp::Cubic]
        } else {
            options.tcps
        },
        ..options
    }
}

fn play_one(
    entry: &'static Entry,
    options: &Options,
    interruptible_by: Option<&Interrupts>,
) -> Result<Option<Figure>> {
    let options = options.clone();
    let figure = signals::run_interruptible(interruptible_by, "playing", move |done| {
        entry.play(&options, &|share| done.set(share))
    });
    figure.transpose().with_context(|| entry.name)
}

/// Message after Ctrl-C in the entry `at`.
fn kept(figures: &[Figure], wanted: usize, at: &str, args: &RunArgs) -> String {
    let partly = match figures.last() {
        Some(last) if last.name == at => ", the last one from the completed runs",
        _ => "",
    };
    let kept = match figures.len() {
        0 => "no figure or table is complete".to_owned(),
        some => format!(
            "figures and tables kept in {}: {some} of {}{partly}",
            args.out.display(),
            wanted
        ),
    };
    format!("interrupted in {at}: {kept}")
}

/// One object, or an array of several.
fn print_json(figures: &[Figure]) -> Result<()> {
    match figures {
        [only] => output::print_json(only)?,
        several => output::print_json(&several)?,
    }
    Ok(())
}

fn tcp(text: &str) -> Result<Tcp, String> {
    let known = Tcp::ALL.into_iter().find(|tcp| tcp.name() == text);
    known.ok_or_else(|| format!("unknown TCP \"{text}\"; use bsd, linux-reno, cubic or bbr"))
}

fn queue_bdp(text: &str) -> Result<f64, String> {
    let number = text.parse();
    number.map_err(|_| "not a number of bandwidth-delay products; use 0.5, for example".to_owned())
}

fn encoder(text: &str) -> Result<Encoder, String> {
    let known = Encoder::ALL.into_iter().find(|e| e.name() == text);
    known.ok_or_else(|| format!("unknown encoder \"{text}\"; use model, mpeg2 or x264"))
}

/// Of each kind.
const RUNS: u64 = 10;
/// Default number of runs in real time, if the paper does not state it.
const LAB_RUNS: u64 = 2;
/// Concurrent lab runs per core: a run of the papers uses a few percent of a core.
const LABS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lab_runs_of_the_report_default_to_the_published_number() {
        let runs = |line: &str| {
            let args = options::tests::args(line).unwrap();
            how_often(&args, options::read(&args).unwrap().entries[0])
        };
        assert_eq!(runs("abone/table5 --lab"), 5);
        assert_eq!(runs("itcp/table4 --lab"), 2);
        assert_eq!(runs("abone/table5"), 10);
        assert_eq!(runs("abone/fig6 --lab --runs 3"), 3);
    }
}
