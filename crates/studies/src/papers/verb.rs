//! `tidegate papers`: figures and tables of papers, ours beside the published.

mod bursts;
mod files;
mod hosts;
mod law;
mod options;
mod program;
mod text;
mod traffic;

use core::time::Duration;
use std::fs;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use crate::papers::{Bottleneck, ENTRIES, Encoder, Entry, Options, Simulator, Tcp, World};
use anyhow::{Context as _, Result};
use serde_json::json;
use tidegate_core::units::Rate;
use tidegate_live::driver::Interrupts;
use tidegate_report::plot::Figure;
use tidegate_sim::scenario::quantity;

use self::bursts::BurstArgs;
use self::hosts::HostsArgs;
use self::law::LawArgs;
use self::options::RunPlan;
use self::text::{summary, text};
use self::traffic::TrafficArgs;
pub use program::{Injector, Lab, Program, Sender, Streamed};
use tidegate_console::arguments::{self, RtoBackoff};
use tidegate_console::output::{self, output};
use tidegate_console::progress::say;
use tidegate_console::signals::{self, Made};

/// What to do with papers.
#[derive(Debug, clap::Args)]
pub struct PapersArgs {
    #[command(subcommand)]
    verb: PapersVerb,
}

#[derive(Debug, clap::Subcommand)]
enum PapersVerb {
    /// Say which figures and tables there are
    List {
        /// Print the list as one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Play figures and tables, and print ours beside the published
    Run(RunArgs),
    /// Answer of the throttling laws for a slope, a backlog and a delay bound
    Law(LawArgs),
    /// Stream to players on other hosts, which are started by ssh, in each mode in turn
    Hosts(HostsArgs),
    /// Send cross traffic, or count it; `papers hosts --cross` starts both on other hosts
    Traffic(TrafficArgs),
}

/// What to play, and how thoroughly.
#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Names as `papers list` has them, beginnings of names as "itcp/", or "all"
    names: Vec<String>,
    /// How many runs of each kind, with the seeds from 1 [default: 10; with --lab 2 of the first
    /// paper, of which a table takes about a quarter of an hour, and 5 of the report, as published]
    #[arg(long, value_name = "N", value_parser = arguments::seeds)]
    seeds: Option<u64>,
    /// The same as --seeds
    // An alias would do, but for errors that name what nobody wrote.
    #[arg(long, value_name = "N", conflicts_with = "seeds", value_parser = arguments::seeds)]
    runs: Option<u64>,
    /// Over which TCP: bsd (as in the papers' time), linux-reno, cubic or bbr; may be given again
    /// [default: bsd; for itcp/table4 and table5 all four; with --lab cubic]
    #[arg(long = "tcp", value_name = "TCP", value_parser = tcp)]
    tcps: Vec<Tcp>,
    /// Only to nodes whose names begin so, as "princeton"; may be given again
    #[arg(long = "node", value_name = "NAME")]
    nodes: Vec<String>,
    /// What makes the video: model, mpeg2 or x264 [default: model; for itcp/fig11 and abone/, which
    /// tell the quality of pictures, mpeg2 as in the papers]
    #[arg(long, value_name = "ENCODER", value_parser = encoder)]
    encoder: Option<Encoder>,
    /// Longest retransmission time-out of the video's TCP, from 1s to 120s
    #[arg(long, value_name = "TIME", value_parser = arguments::rto_max)]
    rto_max: Option<Duration>,
    /// Growth of consecutive timeouts, in every mode; over bsd always exponential [default:
    /// exponential; in the simulator itcp/table4, table5 and cuts play both]
    #[arg(long, value_enum)]
    rto_backoff: Option<RtoBackoff>,
    /// Runs at the same time; one per core unless told, with --lab eight
    #[arg(long, value_name = "N", value_parser = arguments::jobs)]
    jobs: Option<NonZeroUsize>,
    /// Where tables, numbers and drawings go
    #[arg(long, value_name = "DIR", default_value = "runs/papers")]
    out: PathBuf,
    /// Over the kernel's own TCP in real time, rather than in the simulator; keeps a run folder per
    /// run in --out
    #[arg(long)]
    lab: bool,
    /// Rate of the paths; 10Mb/s unless told
    #[arg(long, value_name = "RATE", value_parser = quantity::rate)]
    bottleneck: Option<Rate>,
    /// Queue in front of it, in bandwidth-delay products; 1 unless told
    #[arg(long, value_name = "PRODUCTS", value_parser = products)]
    queue: Option<f64>,
    #[command(flatten)]
    bursts: BurstArgs,
    /// With --lab: what cuts the path
    #[arg(long, value_enum, default_value_t, requires = "lab")]
    injector: Injector,
    /// Exit with 1 if a claim fails
    #[arg(long)]
    strict: bool,
    /// Print the numbers as JSON: one object, or an array of several
    #[arg(long)]
    json: bool,
}

/// Lists or plays. A claim that does not hold is printed, and is no error. The exit code is 130 after
/// Ctrl-C.
///
/// # Errors
/// An option is wrong, or a run fails.
pub fn run(args: &PapersArgs, program: &dyn Program) -> Result<ExitCode> {
    match &args.verb {
        PapersVerb::List { json } => list(*json),
        PapersVerb::Run(args) => play(args, program),
        PapersVerb::Law(args) => law::answer(args),
        PapersVerb::Hosts(args) => hosts::run(args, program),
        PapersVerb::Traffic(args) => traffic::run(args),
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
    let asked = options::read(args)?;
    if let Some(longest) = args.rto_max.filter(|_| args.lab) {
        program.check_rto_max(longest)?;
    }
    let runs = args.out.join("lab");
    let made = Made::by(&runs);
    // Known now and not when the first figure is played.
    fs::create_dir_all(&args.out).with_context(|| {
        let dir = args.out.display();
        format!("cannot make the folder {dir}: choose another --out")
    })?;
    let exit = play_asked(args, program, &asked, runs);
    made.undo();
    exit
}

/// Plays one entry after the other; of the lab the runs are kept in `runs`.
fn play_asked(
    args: &RunArgs,
    program: &dyn Program,
    asked: &RunPlan,
    runs_in: PathBuf,
) -> Result<ExitCode> {
    let interrupts = Arc::new(signals::catch()?);
    let lab = args
        .lab
        .then(|| program.lab(runs_in, args.injector, Arc::clone(&interrupts)));
    let lab = lab.transpose()?;
    let options = Options {
        bottleneck: asked.bottleneck,
        bursts: asked.bursts.clone(),
        ..options(args, program, lab.as_ref())
    };
    let entries = &asked.entries;
    for note in &asked.notes {
        say(note);
    }
    let mut figures = Vec::with_capacity(entries.len());
    // The lab ends its runs itself, and what they were is drawn.
    let heeded = lab.is_none().then_some(&*interrupts);
    let mut at = "";
    for entry in entries {
        at = entry.name;
        let options = Options {
            seeds: how_often(args, entry),
            ..options.clone()
        };
        let Some(mut figure) = play_one(entry, &options, heeded)? else {
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
    if args.json {
        print_json(&figures)?;
    } else if figures.len() > 1 {
        write!(output(), "{}", summary(&figures))?;
    }
    let fails = |figure: &Figure| figure.claims.iter().any(|claim| claim.holds == Some(false));
    Ok(if args.strict && figures.iter().any(fails) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// How many of each kind an entry has.
fn how_often(args: &RunArgs, entry: &Entry) -> u64 {
    let usual = if args.lab {
        entry.published_runs().unwrap_or(LAB_RUNS)
    } else {
        RUNS
    };
    args.seeds.or(args.runs).unwrap_or(usual)
}

/// How all entries are played, but for their number of runs and their path.
fn options(args: &RunArgs, program: &dyn Program, lab: Option<&Arc<dyn Lab>>) -> Options {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let jobs = args.jobs.map(NonZeroUsize::get);
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
        threads: jobs.unwrap_or(cores),
        memory: Arc::default(),
    };
    let Some(lab) = lab else { return options };
    Options {
        world: Arc::clone(lab) as Arc<dyn World>,
        tcps: if args.tcps.is_empty() {
            vec![Tcp::Cubic]
        } else {
            options.tcps
        },
        threads: jobs.unwrap_or(cores * LABS),
        ..options
    }
}

fn play_one(
    entry: &'static Entry,
    options: &Options,
    heeded: Option<&Interrupts>,
) -> Result<Option<Figure>> {
    let options = options.clone();
    let figure = signals::attend(heeded, "playing", move |done| {
        entry.play(&options, &|share| done.set(share))
    });
    figure.transpose().with_context(|| entry.name)
}

/// What there is after Ctrl-C in the entry `at`.
fn kept(figures: &[Figure], wanted: usize, at: &str, args: &RunArgs) -> String {
    let partly = match figures.last() {
        Some(last) if last.name == at => ", the last from the runs that were over",
        _ => "",
    };
    let kept = match figures.len() {
        0 => "no figure or table can be kept".to_owned(),
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
    known.ok_or_else(|| {
        format!("there is no TCP \"{text}\" here; write bsd, linux-reno, cubic or bbr")
    })
}

fn products(text: &str) -> Result<f64, String> {
    let number = text.parse();
    number.map_err(|_| "write how many bandwidth-delay products, as 0.5".to_owned())
}

fn encoder(text: &str) -> Result<Encoder, String> {
    let known = Encoder::ALL.into_iter().find(|e| e.name() == text);
    known.ok_or_else(|| format!("there is no encoder \"{text}\" here; write model, mpeg2 or x264"))
}

/// Of each kind.
const RUNS: u64 = 10;
/// The same in real time, where the paper does not say.
const LAB_RUNS: u64 = 2;
/// Labs side by side, per core: a run of the papers costs a few percent of one.
const LABS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_as_many_runs_in_the_lab_as_were_published() {
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
