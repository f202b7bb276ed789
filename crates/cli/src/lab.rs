//! `tidegate lab`: scenarios on the real network stack.

mod bulk;
mod capture;
mod injector;
mod keep;
mod kernel;
mod replay;
mod service;
mod stage;
mod stream;
mod watch;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use tidegate_core::random::Seed;
use tidegate_live::driver::{Interrupts, StopFlag};
use tidegate_live::emulator::MOST_HOSTS;
use tidegate_live::netns::{Availability, availability, enter_user_namespace};
use tidegate_sim::play::{Take, baseline};
use tidegate_sim::run::{Run, World};
use tidegate_sim::scenario::{Scenario, VideoPlan};
use tidegate_sim::staging;

pub(crate) use self::injector::Injector;
pub(crate) use self::keep::captures;
pub(crate) use self::service::Service;
pub(crate) use self::stage::{Played, Stage, describe};
use crate::folder::{self, Script};
use crate::sim::{self, Bar, RunArgs};

/// What to play in the lab.
#[derive(Debug, clap::Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    verb: LabVerb,
}

#[derive(Debug, clap::Subcommand)]
enum LabVerb {
    /// Play a scenario in real time between network namespaces; baselines follow one by one
    Run(LabRunArgs),
}

/// What to play, and how.
#[derive(Debug, clap::Args)]
struct LabRunArgs {
    #[command(flatten)]
    run: RunArgs,
    /// What cuts the path of video over TCP in an outage
    #[arg(long, value_enum, default_value_t)]
    injector: Injector,
}

/// Plays. The exit code is 1 when an expectation of the scenario does not hold.
pub(crate) fn run(args: &LabArgs) -> Result<ExitCode> {
    let LabVerb::Run(LabRunArgs {
        run: args,
        injector,
    }) = &args.verb;
    let script = Script::load(&args.scenario)?;
    let seed = args.seed.map_or(script.scenario.seed, Seed);
    let dir = args.out.clone();
    let dir = dir.unwrap_or_else(|| folder::default_dir("lab", &script.scenario, seed));
    prepare()?;
    let run = play_with(&script, seed, &dir, *injector)?;
    sim::finish(&run, args, &dir)
}

/// Sees that the lab can work, and enters a user namespace if that is what it takes. To be
/// called before the process has threads.
///
/// # Errors
/// When the system has no namespaces or TUN devices for us; the message says what is missing.
pub(crate) fn prepare() -> Result<()> {
    match availability() {
        Availability::Root => Ok(()),
        Availability::UserNamespace => enter_user_namespace().context("no user namespace"),
        Availability::Missing(missing) => bail!(
            "the lab cannot work here: {missing}\nThe simulator plays the same file: tidegate sim run"
        ),
    }
}

/// Plays a scenario in real time and leaves a run folder. [`prepare`] comes first.
pub(crate) fn play(script: &Script, seed: Seed, dir: &Path) -> Result<Run> {
    play_with(script, seed, dir, Injector::Link)
}

fn play_with(script: &Script, seed: Seed, dir: &Path, injector: Injector) -> Result<Run> {
    let scenario = &script.scenario;
    few_hosts(scenario)?;
    folder::claim(dir)?;
    let runs = 1 + scenario.baselines.len();
    let mut bar = Bar::new("playing in real time");
    let mut manifest = folder::manifest(World::Lab, scenario);
    let mut takes: Vec<Take> = Vec::with_capacity(runs);
    let mut kept = Vec::with_capacity(runs);
    // Ctrl-C ends the take that is on; what was played until then is kept.
    let interrupts = Interrupts::catch(&StopFlag::new()?).context("Ctrl-C cannot be caught")?;
    let (service, missing) = service(scenario);
    manifest.notes.extend(missing);
    let stage = Stage {
        script,
        seed,
        interrupts: &interrupts,
        service: service.as_ref(),
        ends_with_video: false,
        injector,
    };
    for number in 0..runs {
        if interrupts.count() > 0 {
            break;
        }
        let cast = match number.checked_sub(1) {
            None => staging::roles(scenario, seed),
            Some(i) => vec![baseline(scenario, &scenario.baselines[i], &takes[0], seed)],
        };
        let mut progress = |share: f64| bar.show((number as f64 + share) / runs as f64);
        eprintln!("playing {} in real time", cast[0].name);
        let played = stage.play(cast, &mut progress)?;
        let name = &played.take.flows[0].0.name;
        manifest.notes.push(describe(name, &played.report));
        kept.push(captures(&played));
        manifest.notes.extend(played.notes);
        takes.push(played.take);
    }
    bar.done();
    if interrupts.count() > 0 {
        let name = &takes[takes.len() - 1].flows[0].0.name;
        let note = format!("interrupted in the run of {name}: what comes after is missing");
        eprintln!("{note}");
        manifest.notes.push(note);
    }
    let run = folder::write(dir, script, manifest, seed, takes)?;
    kept.iter().try_for_each(|captures| captures.write(dir))?;
    Ok(run)
}

/// The service of events, if any video goes over TCP, and why there is none if there should be one.
fn service(scenario: &Scenario) -> (Option<Service>, Option<String>) {
    let mut flows = scenario.flows.iter();
    let over_tcp = |video: &VideoPlan| video.stream.is_some();
    if !flows.any(|flow| flow.media.video().is_some_and(over_tcp)) {
        return (None, None);
    }
    match Service::start() {
        Ok(service) => (Some(service), None),
        Err(why) => (
            None,
            Some(format!(
                "senders have the events that a process without privilege sees, which cuts writes \
                 into segments of their own; those of the kernel itself are not written down: \
                 {why:#}"
            )),
        ),
    }
}

/// Each flow has two hosts, and the emulator joins so many.
fn few_hosts(scenario: &Scenario) -> Result<()> {
    let (flows, most) = (
        scenario.flow_infos().len() - scenario.baselines.len(),
        usize::from(MOST_HOSTS) / 2,
    );
    if flows > most {
        bail!(
            "{flows} flows are too many for the lab, which has hosts for {most}: the simulator has \
             no such limit (tidegate sim run)"
        );
    }
    Ok(())
}
