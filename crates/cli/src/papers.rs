//! `tidegate papers`: figures and tables of papers, ours beside the published.

mod bursts;
mod hosts;
mod lab;
mod text;
mod traffic;

use core::time::Duration;
use std::fs;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use tidegate_core::units::Rate;
use tidegate_live::driver::Interrupts;
use tidegate_sim::papers::{
    Bottleneck, ENTRIES, Encoder, Entry, Figure, ITCP_VIDEO, Options, Simulator, Tcp, World,
};
use tidegate_sim::scenario::quantity;

use self::bursts::BurstArgs;
use self::hosts::HostsArgs;
use self::lab::Lab;
use self::text::text;
use self::traffic::TrafficArgs;
use crate::interrupted::{self, Made};
use crate::lab::Injector;
use crate::studio::Studio;
use crate::tcp::RtoBackoff;
use crate::tcp::ready::rto_max;
use crate::{numbers, report};

/// What to do with papers.
#[derive(Debug, clap::Args)]
pub(crate) struct PapersArgs {
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
    #[arg(long, value_name = "N", value_parser = numbers::seeds)]
    seeds: Option<u64>,
    /// The same as --seeds
    // An alias would do, but for errors that name what nobody wrote.
    #[arg(long, value_name = "N", conflicts_with = "seeds", value_parser = numbers::seeds)]
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
    #[arg(long, value_name = "TIME", value_parser = crate::tcp::rto_max)]
    rto_max: Option<Duration>,
    /// Whether time-outs in a row double, which over bsd they always do; each mode's own unless told
    #[arg(long, value_enum)]
    rto_backoff: Option<RtoBackoff>,
    /// Runs at the same time; one per core unless told, with --lab eight
    #[arg(long, value_name = "N", value_parser = numbers::jobs)]
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
    #[arg(long, value_name = "PRODUCTS")]
    queue: Option<f64>,
    #[command(flatten)]
    bursts: BurstArgs,
    /// With --lab: what cuts the path
    #[arg(long, value_enum, default_value_t, requires = "lab")]
    injector: Injector,
    /// Print the numbers as JSON: one object, or an array of several
    #[arg(long)]
    json: bool,
}

/// Lists or plays. What does not hold is shown, and is no error. The exit code is 130 after Ctrl-C.
pub(crate) fn run(args: &PapersArgs) -> Result<ExitCode> {
    match &args.verb {
        PapersVerb::List { json } => list(*json),
        PapersVerb::Run(args) => play(args),
        PapersVerb::Hosts(args) => hosts::run(args),
        PapersVerb::Traffic(args) => traffic::run(args),
    }
}

fn list(json: bool) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    if json {
        let entry = |e: &Entry| json!({ "name": e.name, "about": e.about, "source": e.source });
        let entries: Vec<_> = ENTRIES.iter().map(entry).collect();
        serde_json::to_writer(&mut out, &entries)?;
        writeln!(out)?;
        return Ok(ExitCode::SUCCESS);
    }
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

fn play(args: &RunArgs) -> Result<ExitCode> {
    ensure!(
        !args.names.is_empty(),
        "papers run: which? `tidegate papers list` has the names; \"itcp/\" stands for all that begin so, \
         and \"all\" for all"
    );
    let entries = chosen(&args.names)?;
    let without = refuse_idle(args, &entries)?;
    let bursts = args.bursts.read(ITCP_VIDEO)?;
    let bottleneck = bottleneck(args)?;
    args.rto_max.filter(|_| args.lab).map_or(Ok(()), rto_max)?;
    let made = Made::by(&args.out);
    // Known now and not when the first figure is played.
    fs::create_dir_all(&args.out).with_context(|| {
        let dir = args.out.display();
        format!("cannot make the folder {dir}: choose another --out")
    })?;
    let interrupts = Arc::new(interrupted::catch()?);
    let lab = args.lab.then(|| {
        let out = args.out.join("lab");
        Lab::new(out, args.injector, Arc::clone(&interrupts))
    });
    let lab = lab.transpose()?.map(Arc::new);
    let options = Options {
        bottleneck,
        bursts,
        ..options(args, lab.as_ref())
    };
    for note in without {
        eprintln!("{note}");
    }
    let mut figures = Vec::with_capacity(entries.len());
    // The lab ends its runs itself, and what they were is drawn.
    let heeded = lab.is_none().then_some(&*interrupts);
    let mut at = "";
    for entry in &entries {
        at = entry.name;
        let options = Options {
            seeds: runs(args, entry),
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
        let drawing = keep(&figure, &args.out)?;
        if !args.json {
            let mut out = std::io::stdout().lock();
            write!(out, "{}", text(&figure))?;
            writeln!(out, "drawing: {}\n", drawing.display())?;
        }
        figures.push(figure);
        if interrupts.count() > 0 {
            break;
        }
    }
    if interrupts.count() > 0 && (lab.is_some() || figures.len() < entries.len()) {
        made.undo();
        eprintln!("{}", kept(&figures, entries.len(), at, args));
        return Ok(interrupted::exit_code());
    }
    if args.json {
        return print_json(&figures);
    }
    Ok(ExitCode::SUCCESS)
}

/// What limits the path.
fn bottleneck(args: &RunArgs) -> Result<Bottleneck> {
    let usual = Bottleneck::default();
    let rate = args.bottleneck.unwrap_or(usual.rate());
    let products = args.queue.unwrap_or(usual.products());
    Bottleneck::new(rate, products).context("--bottleneck and --queue")
}

/// How many of each kind an entry has.
fn runs(args: &RunArgs, entry: &Entry) -> u64 {
    let usual = if args.lab {
        entry.published_runs().unwrap_or(LAB_RUNS)
    } else {
        RUNS
    };
    args.seeds.or(args.runs).unwrap_or(usual)
}

/// How all entries are played, but for their number of runs and their path.
fn options(args: &RunArgs, lab: Option<&Arc<Lab>>) -> Options {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let jobs = args.jobs.map(NonZeroUsize::get);
    let options = Options {
        world: Arc::new(Simulator::new(Arc::new(Studio::default()))),
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
    let figure = interrupted::attend(heeded, "playing", move |done| {
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

/// Refuses options that would change nothing: what is asked for by its name has to take them. Of
/// entries that were asked for with others a note says so.
fn refuse_idle(args: &RunArgs, entries: &[&Entry]) -> Result<Vec<String>> {
    type Takes = fn(&Entry) -> bool;
    let only_bsd = !args.tcps.is_empty() && args.tcps.iter().all(|tcp| *tcp == Tcp::Bsd);
    ensure!(
        args.rto_backoff.is_none() || !only_bsd,
        "--rto-backoff changes nothing over bsd, whose time-outs always double: leave it out, or add \
         a TCP of today, as --tcp cubic"
    );
    let with_nodes: Takes = Entry::has_nodes;
    let with_cuts: Takes = Entry::has_cuts;
    let with_lengths: Takes = |entry| entry.takes_bursts() && !entry.has_lengths();
    let cuts_otherwise = args.injector != Injector::default();
    let options = [
        ("--seeds", args.seeds.is_some(), with_nodes),
        ("--runs", args.runs.is_some(), with_nodes),
        ("--node", !args.nodes.is_empty(), with_nodes),
        ("--encoder", args.encoder.is_some(), with_nodes),
        ("--bottleneck", args.bottleneck.is_some(), with_nodes),
        ("--queue", args.queue.is_some(), with_nodes),
        ("--rto-max", args.rto_max.is_some(), with_nodes),
        ("--rto-backoff", args.rto_backoff.is_some(), with_nodes),
        ("--injector", cuts_otherwise, with_cuts),
        ("--cut", !args.bursts.cuts.is_empty(), with_lengths),
        ("--gap", args.bursts.gap.is_some(), Entry::takes_bursts),
    ];
    let mut notes = Vec::new();
    for entry in entries {
        let idle = options.iter();
        let idle = idle.filter(|(_, is_given, takes)| *is_given && !takes(entry));
        let idle: Vec<_> = idle.collect();
        if idle.is_empty() {
            continue;
        }
        let names: Vec<&str> = idle.iter().map(|(name, ..)| *name).collect();
        let (name, names) = (entry.name, names.join(" or "));
        if args.names.iter().any(|asked| asked == name) {
            let takes_all = |entry: &&Entry| idle.iter().all(|(.., takes)| takes(entry));
            let others = ENTRIES.iter().filter(takes_all);
            let others: Vec<&str> = others.map(|entry| entry.name).collect();
            bail!(
                "{name} takes no {names}: leave that out, or name what takes it: {}",
                others.join(", ")
            );
        }
        notes.push(format!("{name} takes no {names}: it is played without"));
    }
    Ok(notes)
}

/// One object, or an array of several.
fn print_json(figures: &[Figure]) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    match figures {
        [only] => serde_json::to_writer(&mut out, only)?,
        several => serde_json::to_writer(&mut out, several)?,
    }
    writeln!(out)?;
    Ok(ExitCode::SUCCESS)
}

/// The entries that are called so, or whose names begin so.
fn chosen(names: &[String]) -> Result<Vec<&'static Entry>> {
    let wanted = |entry: &Entry, name: &str| {
        name == "all" || entry.name == name || (name.ends_with('/') && entry.name.starts_with(name))
    };
    for name in names {
        if !ENTRIES.iter().any(|entry| wanted(entry, name)) {
            let known: Vec<&str> = ENTRIES.iter().map(|entry| entry.name).collect();
            bail!(
                "there is no figure or table \"{name}\"; write one of {}, itcp/, abone/ or all",
                known.join(", ")
            );
        }
    }
    let any = |entry: &&Entry| names.iter().any(|name| wanted(entry, name));
    Ok(ENTRIES.iter().filter(any).collect())
}

fn tcp(text: &str) -> Result<Tcp, String> {
    let known = Tcp::ALL.into_iter().find(|tcp| tcp.name() == text);
    known.ok_or_else(|| {
        format!("there is no TCP \"{text}\" here; write bsd, linux-reno, cubic or bbr")
    })
}

fn encoder(text: &str) -> Result<Encoder, String> {
    let known = Encoder::ALL.into_iter().find(|e| e.name() == text);
    known.ok_or_else(|| format!("there is no encoder \"{text}\" here; write model, mpeg2 or x264"))
}

/// Leaves the numbers, the text and the drawing in `dir`; returns where the drawing is.
fn keep(figure: &Figure, dir: &Path) -> Result<PathBuf> {
    let stem = dir.join(figure.name.replace('/', "-"));
    let write = |end: &str, bytes: &[u8]| {
        let path = stem.with_extension(end);
        fs::write(&path, bytes).with_context(|| path.display().to_string())?;
        Ok::<PathBuf, anyhow::Error>(path)
    };
    write("json", serde_json::to_string_pretty(figure)?.as_bytes())?;
    write("txt", text(figure).as_bytes())?;
    let (svg, png) = report::figure(figure)?;
    write("svg", svg.as_bytes())?;
    write("png", &png)
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
    fn names_select_and_unknown_ones_are_refused() {
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
            chosen(&names).map(|entries| entries.iter().map(|e| e.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["all"]).unwrap().len(), ENTRIES.len());
        assert_eq!(names(&["itcp/fig9"]).unwrap(), ["itcp/fig9"]);
        let abone = names(&["abone/"]).unwrap();
        assert!(abone.len() == 7 && abone.iter().all(|n| n.starts_with("abone/")));
        let error = names(&["itcp/fig99"]).unwrap_err().to_string();
        assert!(error.contains("fig99") && error.contains("itcp/table4"));
        // Only a beginning that ends in a stroke stands for several.
        assert!(names(&["itcp"]).is_err());
    }

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }

    #[test]
    fn options_that_a_figure_does_not_take_are_refused() {
        let refused = |line: &str| {
            let words = ["run"].into_iter().chain(line.split_whitespace());
            let args = <Line as clap::Parser>::try_parse_from(words).unwrap().run;
            let entries = chosen(&args.names).unwrap();
            refuse_idle(&args, &entries).map_err(|e| e.to_string())
        };
        for option in [
            "--node princeton",
            "--seeds 3",
            "--runs 3",
            "--encoder x264",
            "--rto-max 1s",
            "--bottleneck 3Mb/s",
            "--queue 2",
        ] {
            let name = option.split(' ').next().unwrap();
            let error = refused(&format!("itcp/fig3 {option}")).unwrap_err();
            let parts = ["itcp/fig3 takes no", name, "itcp/cuts", "abone/fig10"];
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
            assert!(!error.contains(", itcp/fig3"), "{error}");
            // Who asks for all of them means those that take it.
            let note = refused(&format!("itcp/ {option}")).unwrap();
            assert_eq!(note.len(), 1);
            assert!(note[0].contains(name), "{note:?}");
            assert_eq!(refused(&format!("itcp/fig9 {option}")), Ok(Vec::new()));
        }
        assert_eq!(refused("itcp/fig3 --tcp cubic"), Ok(Vec::new()));
        let error = refused("itcp/fig9 --tcp bsd --rto-backoff linear").unwrap_err();
        assert!(error.contains("add a TCP of today"), "{error}");
        let both = "itcp/fig9 --tcp bsd --tcp cubic --rto-backoff linear";
        assert_eq!(refused(both), Ok(Vec::new()));
        let route = "--lab --injector route";
        assert_eq!(refused(&format!("itcp/fig3 {route}")), Ok(Vec::new()));
        let error = refused(&format!("abone/fig6 {route}")).unwrap_err();
        assert!(error.contains("itcp/cuts"), "{error}");
        assert!(!error.contains("abone/table5"), "{error}");
        assert_eq!(refused(&format!("all {route}")).unwrap().len(), 7);
        // One that varies the lengths itself takes the gap only.
        let error = refused("itcp/cuts --cut 2s").unwrap_err();
        assert!(error.contains("itcp/cuts takes no --cut"), "{error}");
        assert_eq!(refused("itcp/cuts --gap 5s"), Ok(Vec::new()));
        assert_eq!(refused("itcp/table4 --cut 2s --gap 5s"), Ok(Vec::new()));
        for entry in ["itcp/fig3", "abone/fig6"] {
            assert!(refused(&format!("{entry} --gap 5s")).is_err());
        }
    }

    #[test]
    fn a_bottleneck_is_within_reason() {
        let read = |line: &str| {
            let words = ["run", "abone/"].into_iter().chain(line.split_whitespace());
            let line = <Line as clap::Parser>::try_parse_from(words);
            line.map_err(|e| e.to_string())
                .and_then(|line| bottleneck(&line.run).map_err(|e| crate::told(&e)))
        };
        assert_eq!(read("").unwrap(), Bottleneck::default());
        let both = read("--bottleneck 4.5Mb/s --queue 0.5").unwrap();
        assert_eq!((both.rate(), both.products()), (Rate::kbps(4_500), 0.5));
        for (line, says) in [
            (
                "--bottleneck 50kb/s",
                "a bottleneck of 50 kb/s: give 100 kb/s",
            ),
            (
                "--queue 0",
                "a queue of 0 bandwidth-delay products: give 0.01",
            ),
            ("--queue inf", "a queue of inf"),
            ("--bottleneck 4", "has no unit"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }

    #[test]
    fn the_report_has_as_many_runs_in_the_lab_as_were_published() {
        let runs = |line: &str| {
            let words = ["run"].into_iter().chain(line.split_whitespace());
            let args = <Line as clap::Parser>::try_parse_from(words).unwrap().run;
            runs(&args, chosen(&args.names).unwrap()[0])
        };
        assert_eq!(runs("abone/table5 --lab"), 5);
        assert_eq!(runs("itcp/table4 --lab"), 2);
        assert_eq!(runs("abone/table5"), 10);
        assert_eq!(runs("abone/fig6 --lab --runs 3"), 3);
    }
}
