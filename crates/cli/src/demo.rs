//! `tidegate demo`: the demo scenario in the lab or the simulator.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use tidegate_record::{Run, World};
use tidegate_sim::scenario::Scenario;

use crate::run_folder::{self, LoadedScenario};
use crate::sim::End;
use crate::video_source::VideoInput;
use crate::{lab, sim};
use tidegate_console::exit::EnvironmentError;
use tidegate_console::progress::say;
use tidegate_console::signals;
use tidegate_report as report;

/// Arguments of `tidegate demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Video file in any format of FFmpeg [default: the generated scene]
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// The second act: the same path with 1 % of the packets lost, tide beside TFRC
    #[arg(long)]
    losses: bool,
    /// Run in the simulator even if the lab is available
    #[arg(long)]
    sim: bool,
    /// Run folder [default: `runs/demo-<world>-<seed>`, or `runs/demo-losses-<world>-<seed>`]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the demo. Without namespaces or TUN devices, runs it in the simulator and prints the
/// reason. If `TIDEGATE_REQUIRE_NETNS` is 1, fails instead. The exit code is that of `lab run`.
pub(crate) fn run(args: &DemoArgs) -> Result<ExitCode> {
    let (file, text) = if args.losses { LOSSES } else { DEMO };
    let loaded = LoadedScenario {
        scenario: Scenario::parse(file, text, &|_| Err("not part of the demo".to_owned()))?,
        text: text.to_owned(),
        video: VideoInput {
            input: args.input.clone(),
        },
    };
    let scenario = &loaded.scenario;
    // Report an unreadable input before the run starts.
    for video in scenario.flows.iter().filter_map(|flow| flow.media.video()) {
        loaded.video.pictures(video, scenario.seed)?;
    }
    let world = choose_world(args.sim)?;
    let name = if world == World::Lab { "lab" } else { "sim" };
    let dir = args.out.clone();
    let dir = dir.unwrap_or_else(|| run_folder::default_dir(name, scenario, scenario.seed));
    announce(&loaded, world);
    let end = match world {
        World::Lab => lab::play(&loaded, scenario.seed, &dir)?,
        World::Sim | World::Live => {
            let seed = scenario.seed;
            sim::simulate(loaded, seed, &dir)?
        }
    };
    match &end {
        End::Whole(run) => show(run, &dir, args.json),
        // No JSON for an interrupted run: it would look like the summary of a complete run.
        End::Cut(run) if !args.json => show(run, &dir, false).map(|_| signals::exit_code()),
        End::Cut(_) | End::Nothing => Ok(signals::exit_code()),
    }
}

/// The lab if it is available, else the simulator.
fn choose_world(simulate: bool) -> Result<World> {
    if simulate {
        return Ok(World::Sim);
    }
    let Err(missing) = lab::prepare() else {
        return Ok(World::Lab);
    };
    if std::env::var_os("TIDEGATE_REQUIRE_NETNS").is_some_and(|v| v == "1") {
        bail!(EnvironmentError::new(format_args!(
            "{missing:#}\nTIDEGATE_REQUIRE_NETNS=1 forbids the simulator as a substitute"
        )));
    }
    say(format_args!(
        "{missing:#}\nThe demo runs in the simulator instead: same links, same sender, virtual \
        time.\n"
    ));
    Ok(World::Sim)
}

fn announce(loaded: &LoadedScenario, world: World) {
    let scenario = &loaded.scenario;
    say(&scenario.about);
    say(scenario.topology().trim_end());
    if world == World::Lab {
        let runs = 1 + scenario.baselines.len() as u64;
        let minutes = (scenario.duration.as_secs() + 4) * runs / 60;
        say(format_args!(
            "Real time, sockets and the network stack of the kernel: {runs} runs, about {minutes} \
            minutes."
        ));
    }
}

fn show(run: &Run, dir: &Path, json: bool) -> Result<ExitCode> {
    let page = report::write(std::slice::from_ref(run), dir)?.page;
    sim::show(run, json, Some(&page), dir)
}

/// Built in, so that an installed binary needs no scenario file.
const DEMO: (&str, &str) = ("demo.toml", include_str!("../../../scenarios/demo.toml"));
const LOSSES: (&str, &str) = (
    "demo-losses.toml",
    include_str!("../../../scenarios/demo-losses.toml"),
);
