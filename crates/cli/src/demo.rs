//! `tidegate demo`

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use tidegate_live::terminal;
use tidegate_sim::run::{Run, World};
use tidegate_sim::scenario::Scenario;

use crate::run_folder::{self, LoadedScenario};
use crate::sim::End;
use crate::video_source::VideoInput;
use crate::{lab, sim, table};
use tidegate_console::output::{output, print_json};
use tidegate_console::progress::say;
use tidegate_console::signals;
use tidegate_report as report;

/// What to show.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// A video to use instead of the generated scene: anything that FFmpeg reads
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Play in the simulator, even where the real network stack is to be had
    #[arg(long)]
    sim: bool,
    /// The run folder; `runs/demo-<world>-<seed>` unless told
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the numbers as one JSON object
    #[arg(long)]
    json: bool,
}

/// Shows. Without namespaces or TUN devices it simulates, and says so; it fails instead if
/// `TIDEGATE_REQUIRE_NETNS` is set to 1.
pub(crate) fn run(args: &DemoArgs) -> Result<ExitCode> {
    let script = LoadedScenario {
        scenario: Scenario::parse("demo.toml", DEMO, &|_| {
            Err("not part of the demo".to_owned())
        })?,
        text: DEMO.to_owned(),
        studio: VideoInput {
            input: args.input.clone(),
        },
    };
    let scenario = &script.scenario;
    // An input that cannot be read is told now, not after a minute.
    for video in scenario.flows.iter().filter_map(|flow| flow.media.video()) {
        script.studio.pictures(video, scenario.seed)?;
    }
    let world = choose(args.sim)?;
    let name = if world == World::Lab { "lab" } else { "sim" };
    let dir = args.out.clone();
    let dir = dir.unwrap_or_else(|| run_folder::default_dir(name, scenario, scenario.seed));
    announce(&script, world);
    let end = match world {
        World::Lab => lab::play(&script, scenario.seed, &dir)?,
        World::Sim | World::Live => {
            let seed = scenario.seed;
            sim::simulate(script, seed, &dir)?
        }
    };
    match &end {
        End::Whole(run) => show(run, &dir, args.json),
        // Of a part there is no JSON, which would look like that of a whole run.
        End::Cut(run) if !args.json => show(run, &dir, false).map(|_| signals::exit_code()),
        End::Cut(_) | End::Nothing => Ok(signals::exit_code()),
    }
}

/// The real network stack where it is to be had.
fn choose(simulate: bool) -> Result<World> {
    if simulate {
        return Ok(World::Sim);
    }
    let Err(missing) = lab::prepare() else {
        return Ok(World::Lab);
    };
    if std::env::var_os("TIDEGATE_REQUIRE_NETNS").is_some_and(|v| v == "1") {
        bail!("{missing:#}\nTIDEGATE_REQUIRE_NETNS=1 forbids to simulate instead");
    }
    say(format_args!(
        "{missing:#}\nSo the demo is simulated: same links, same sender, virtual time.\n"
    ));
    Ok(World::Sim)
}

fn announce(script: &LoadedScenario, world: World) {
    let scenario = &script.scenario;
    say(&scenario.about);
    say(scenario.topology().trim_end());
    if world == World::Lab {
        let runs = 1 + scenario.baselines.len() as u64;
        let minutes = (scenario.duration.as_secs() + 4) * runs / 60;
        say(format_args!(
            "Real time, real sockets, the kernel's own network stack: {runs} runs, about \
             {minutes} minutes."
        ));
    }
}

fn show(run: &Run, dir: &Path, json: bool) -> Result<ExitCode> {
    let page = report::write(std::slice::from_ref(run), dir)?.page;
    let summary = run
        .summary
        .as_ref()
        .expect("a run that was just written has one");
    let mut out = output();
    if json {
        print_json(summary)?;
        return Ok(ExitCode::SUCCESS);
    }
    let room = terminal::columns(out.as_fd());
    write!(out, "{}", table::render(run, summary, room))?;
    for note in &run.manifest.notes {
        writeln!(out, "note: {note}")?;
    }
    writeln!(out, "\nreport: {}", page.display())?;
    Ok(ExitCode::SUCCESS)
}

/// The scenario, so that an installed binary needs no file.
const DEMO: &str = include_str!("../../../scenarios/demo.toml");
