//! `tidegate lab`: scenarios on the kernel's network stack, between network namespaces.

mod browsers;
mod bulk;
mod capture;
mod capture_file;
mod endpoint_load;
mod flow_results;
mod injector;
mod kernel;
mod lab_run;
mod netns_pair;
mod partial_run;
mod records;
mod replay;
mod service;
mod sites;
mod stream;
mod tcp_sampler;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use tidegate_core::controller::Controllers;
use tidegate_core::random::Seed;
use tidegate_core::units::Time;
use tidegate_live::emulator::{FILES_PER_HOST, MAX_HOSTS};
use tidegate_live::limits;
use tidegate_live::netns::{Availability, availability, enter_user_namespace};
use tidegate_record::{Manifest, RunWriter, Span, StagedRun, World};
use tidegate_sim::runner::{RunResult, baseline};
use tidegate_sim::scenario::{FlowPlan, MediaPlan, Scenario, TcpPlan, VideoPlan};
use tidegate_sim::topology;

use self::capture_file::Captures;
pub(crate) use self::capture_file::captures;
pub(crate) use self::injector::Injector;
pub(crate) use self::lab_run::{LabResult, LabRun};
use self::partial_run::PartialRun;
pub(crate) use self::service::Service;
use crate::memory;
use crate::run_folder::{self, LoadedScenario};
use crate::sim::End;
use crate::sim::{self, RunArgs};
use tidegate_console::exit::EnvironmentError;
use tidegate_console::progress::Bar;
use tidegate_console::progress::say;
use tidegate_console::signals::{self, CreatedFolders};

/// Arguments of `tidegate lab`.
#[derive(Debug, clap::Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    verb: LabVerb,
}

#[derive(Debug, clap::Subcommand)]
enum LabVerb {
    /// Run a scenario in real time between network namespaces; baselines run one after another
    Run(LabRunArgs),
}

/// Arguments of `tidegate lab run`.
#[derive(Debug, clap::Args)]
struct LabRunArgs {
    #[command(flatten)]
    run: RunArgs,
    /// How an outage interrupts the path of video over TCP
    #[arg(long, value_enum, default_value_t)]
    injector: Injector,
}

/// Runs the scenario. The exit code is 1 if an expectation fails, 75 if one fails and the machine
/// was too busy to judge it, and 130 after Ctrl-C.
pub(crate) fn run(args: &LabArgs, controllers: &Controllers) -> Result<ExitCode> {
    let LabVerb::Run(LabRunArgs {
        run: args,
        injector,
    }) = &args.verb;
    let loaded = LoadedScenario::load(&args.scenario, controllers)?;
    let seed = args.seed.map_or(loaded.scenario.seed, Seed);
    let dir = args.out.clone();
    let dir = dir.unwrap_or_else(|| run_folder::default_dir("lab", &loaded.scenario, seed));
    // Only here: other callers of `prepare` have no scenario file to simulate.
    prepare().map_err(|e| {
        EnvironmentError::new(format_args!(
            "{e:#}\nThe simulator runs the same file: tidegate sim run"
        ))
    })?;
    let end = play_with(&loaded, seed, &dir, *injector)?;
    sim::finish(&end, args, &dir)
}

/// Checks that the lab is available, and enters a user namespace if necessary. The caller must be
/// single-threaded.
///
/// # Errors
/// Namespaces or TUN devices are unavailable. The message names what is missing.
pub(crate) fn prepare() -> Result<()> {
    match availability() {
        Availability::Root => Ok(()),
        Availability::UserNamespace => enter_user_namespace().context("no user namespace"),
        Availability::Missing(missing) => bail!(EnvironmentError::new(format_args!(
            "the lab is unavailable: {missing}"
        ))),
    }
}

/// Runs a scenario in real time and writes a run folder. [`prepare`] comes first.
pub(crate) fn play(loaded: &LoadedScenario, seed: Seed, dir: &Path) -> Result<End> {
    play_with(loaded, seed, dir, Injector::Link)
}

fn play_with(loaded: &LoadedScenario, seed: Seed, dir: &Path, injector: Injector) -> Result<End> {
    let scenario = &loaded.scenario;
    kernel::check_kernel_tcp(scenario)?;
    memory::check(scenario, 1)?;
    loaded.warn_of_slow_pictures();
    check_limits(&FlowCounts::of(scenario), limits::open_files())?;
    check_supported(scenario)?;
    sites::check(scenario)?;
    // Ctrl-C ends the current run; its results so far are kept.
    let interrupts = signals::catch()?;
    let made = CreatedFolders::by(dir);
    let has_earlier = RunWriter::check(dir)?;
    let mut manifest = run_folder::manifest(World::Lab, scenario);
    let (service, missing) = service(scenario);
    manifest.notes.extend(missing);
    let partial = PartialRun::new(
        dir,
        run_folder::described(loaded, manifest.clone(), seed),
        scenario.flow_infos(),
    );
    let stage = LabRun {
        loaded,
        seed,
        interrupts: &interrupts,
        service: service.as_ref(),
        ends_with_video: false,
        injector,
        // An earlier run stays until this one is complete.
        partial: (!has_earlier).then_some(&partial),
    };
    let runs = play_runs(&stage, &mut manifest).inspect_err(|_| made.undo())?;
    let is_cut = interrupts.count() > 0;
    if is_cut {
        let Some(note) = runs.interruption() else {
            made.undo();
            say("interrupted before the first run: no results are kept");
            return Ok(End::Nothing);
        };
        say(format_args!(
            "{note}; the results so far are in {}",
            dir.display()
        ));
        manifest.notes.push(note);
        // An incomplete run has no metrics.
        if !runs.is_whole {
            let planned = manifest.measured();
            manifest.measure = Some(Span {
                from: planned.from.min(runs.ended),
                to: planned.to.min(runs.ended),
            });
        }
    }
    let captures = runs.captures;
    let also = |dir: &Path| captures.iter().try_for_each(|captures| captures.write(dir));
    let staged = StagedRun::claim(dir)?;
    let run = run_folder::write(staged, loaded, manifest, seed, runs.results, &also)?;
    Ok(if is_cut {
        End::Cut(run)
    } else {
        End::Whole(run)
    })
}

/// The run of the flows, and one of each baseline.
struct Runs {
    results: Vec<RunResult>,
    captures: Vec<Captures>,
    /// End of the last run.
    ended: Time,
    /// Whether the last run is complete.
    is_whole: bool,
}

impl Runs {
    /// What an interrupt left; `None` if it came before the first run.
    fn interruption(&self) -> Option<String> {
        let name = &self.results.last()?.flows[0].0.name;
        Some(if self.is_whole {
            format!("interrupted after the run of {name}, which is complete")
        } else {
            format!("interrupted in the run of {name}: later results are missing")
        })
    }
}

/// Plays the flows, then each baseline, until an interrupt. Adds timing and notes to `manifest`.
fn play_runs(stage: &LabRun<'_>, manifest: &mut Manifest) -> Result<Runs> {
    let scenario = &stage.loaded.scenario;
    let count = 1 + scenario.baselines.len();
    let mut bar = Bar::new("running in real time");
    let mut runs = Runs {
        results: Vec::with_capacity(count),
        captures: Vec::with_capacity(count),
        ended: Time::FAR,
        is_whole: false,
    };
    for number in 0..count {
        if stage.interrupts.count() > 0 {
            break;
        }
        let flows = match number.checked_sub(1) {
            None => topology::flow_instances(scenario, stage.seed),
            Some(i) => {
                let plan = &scenario.baselines[i];
                vec![baseline(scenario, plan, &runs.results[0], stage.seed)]
            }
        };
        let name = &flows[0].name;
        let mut progress = |share: f64| bar.show((number as f64 + share) / count as f64);
        say(format_args!("running {name} in real time"));
        let again = || {
            say(format_args!(
                "the machine was too busy for the emulator or an encoder to keep up: running {name} again"
            ));
        };
        let played = stage.play_in_time(&flows, &mut progress, &again)?;
        manifest.timing.push(played.timing());
        runs.captures.push(captures(&played));
        runs.ended = played.ended;
        runs.is_whole = played.is_whole;
        manifest.notes.extend(played.notes);
        runs.results.push(played.take);
    }
    bar.done();
    Ok(runs)
}

/// TCP event service if the scenario has video over TCP, or a note with the reason it is missing.
fn service(scenario: &Scenario) -> (Option<Service>, Option<String>) {
    if FlowCounts::of(scenario).streams == 0 {
        return (None, None);
    }
    match Service::start() {
        Ok(service) => (Some(service), None),
        Err(why) => (
            None,
            Some(format!(
                "senders use the events that an unprivileged process can observe, for which \
                 each write is split into its own segments; kernel events are not recorded: \
                 {why:#}"
            )),
        ),
    }
}

/// Number of concurrent flows. Browsers of a flow share hosts, and count as one.
struct FlowCounts {
    flows: usize,
    browsers: usize,
    /// Flows and baselines that are video over TCP.
    streams: usize,
}

impl FlowCounts {
    fn of(scenario: &Scenario) -> Self {
        let over_tcp = |video: &VideoPlan| video.stream.is_some();
        let streams = scenario.flows_and_baselines();
        let streams = streams
            .iter()
            .filter(|flow| flow.media.video().is_some_and(over_tcp));
        let is_web = |flow: &&FlowPlan| matches!(flow.media, MediaPlan::Web(_));
        let browsers = scenario.flows.iter().filter(is_web);
        let flows = scenario.flows.iter();
        let flows = flows.map(|flow| {
            if is_web(&flow) {
                1
            } else {
                flow.count as usize
            }
        });
        Self {
            flows: flows.sum(),
            browsers: browsers.map(|flow| flow.count as usize).sum(),
            streams: streams.map(|flow| flow.count as usize).sum(),
        }
    }

    /// Maximum number of open files.
    fn files(&self) -> u64 {
        let Self {
            flows,
            browsers,
            streams,
        } = *self;
        let each = [
            (flows, FILES_PER_FLOW),
            (browsers, FILES_PER_BROWSER),
            (streams, FILES_PER_STREAM),
        ];
        let each = each.iter().map(|(count, files)| *count as u64 * files);
        FILES + each.sum::<u64>()
    }
}

/// Checks that the lab has enough hosts and that `files` open files suffice. Threads and memory are
/// not checked.
fn check_limits(counts: &FlowCounts, files: u64) -> Result<()> {
    let (flows, most) = (counts.flows, usize::from(MAX_HOSTS) / 2);
    if flows > most {
        bail!(
            "{flows} flows exceed the lab's limit of {most}: the simulator has no such limit \
            (tidegate sim run)"
        );
    }
    let wanted = counts.files();
    if wanted > files {
        bail!(EnvironmentError::new(format_args!(
            "{flows} flows in the lab need up to {wanted} open files, and the limit of this \
            process is {files}: raise the hard limit (ulimit -Hn {wanted}, as root), or reduce \
            the number of flows"
        )));
    }
    Ok(())
}

/// Checks that the kernel supports the scenario's video over TCP. A bulk transfer over Prague uses
/// the TCP model; a video needs events of a kernel connection.
fn check_supported(scenario: &Scenario) -> Result<()> {
    let over_prague = |flow: &&FlowPlan| {
        let video = flow.media.video().is_some();
        video && flow.media.tcp().is_some_and(TcpPlan::is_scalable)
    };
    match scenario.flows_and_baselines().iter().find(over_prague) {
        Some(flow) => bail!(
            "flow {:?}: video over TCP uses the kernel's TCP in the lab, and Linux has no Prague: \
            choose tcp = \"cubic\", or run the scenario in the simulator (tidegate sim run)",
            flow.name
        ),
        None => Ok(()),
    }
}

/// Each flow has two hosts. Each end of a datagram flow has a socket, an epoll instance and a
/// timer, and the sender has an eventfd: 11 files including the hosts. A TCP transfer has one less.
const FILES_PER_FLOW: u64 = 2 * FILES_PER_HOST + 8;
/// Both ends of a connection. Browsers that fetch all objects of a page at once have more of them, and
/// most browsers have none while they wait.
const FILES_PER_BROWSER: u64 = 2;
/// A video over TCP takes 22, most of them for TCP events, and 23 with a route injector.
const FILES_PER_STREAM: u64 = 12;
/// Other open files of a run: standard streams, event service, output files. At most 28 were
/// observed.
const FILES: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_video_over_prague_is_rejected() {
        let with = |flow: &str| {
            let text = format!(
                "name = \"t\"\nduration = \"5s\"\n[[link]]\nname = \"l\"\n[[link]]\nname = \"m\"\n\
                 [[flow]]\nname = \"f\"\npath = [\"l\"]\nback = [\"m\"]\n{flow}\n"
            );
            check_supported(&Scenario::parse("t", &text, &|_| Err(String::new())).unwrap())
        };
        let video = |tcp| {
            format!(
                "video = {{ fps = 30 }}\ndelay_bound = \"1s\"\ntransport = {{ tcp = \"{tcp}\", \
                mode = \
                 \"iopt\" }}"
            )
        };
        assert!(with("tcp = { kind = \"prague\" }").is_ok());
        assert!(with(&video("cubic")).is_ok());
        let refusal = with(&video("prague")).unwrap_err().to_string();
        assert!(refusal.starts_with("flow \"f\": ") && refusal.contains("Linux has no Prague"));
    }

    #[test]
    fn more_flows_than_the_lab_supports_are_rejected() {
        let check_limits = |flows, streams, files| {
            let browsers = 0;
            check_limits(
                &FlowCounts {
                    flows,
                    browsers,
                    streams,
                },
                files,
            )
        };
        let says =
            |flows, streams, files| check_limits(flows, streams, files).unwrap_err().to_string();
        assert!(check_limits(512, 0, 1 << 20).is_ok());
        assert!(says(513, 0, 1 << 20).starts_with("513 flows exceed the lab's limit of"));
        // Default soft limit of most systems.
        assert!(check_limits(80, 0, 1_024).is_ok() && check_limits(40, 40, 1_024).is_ok());
        let refusal = says(81, 0, 1_024);
        assert!(
            refusal.contains("up to 1036 open files")
                && refusal.contains(
                    "this process is \
        1024"
                )
        );
        assert!(says(41, 41, 1_024).contains("up to 1048 open files"));
    }
}
