//! Writes the results of a run to a run folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tidegate_console::progress::say;
use tidegate_core::controller::Controllers;
use tidegate_core::delay_bound::check_frame_time;
use tidegate_core::random::Seed;
use tidegate_core::units::Time;
use tidegate_record::{
    BinRow, FlowInfo, FlowRun, Manifest, PacketRow, ReceivedFrame, Run, RunReader, RunWriter,
    SavableRow, SentFrame, ShownFrame, Span, StagedRun, StoredPicture, TotalsRow, World, summarise,
};
use tidegate_sim::flow_endpoints::{FlowInstance, FlowResult};
use tidegate_sim::runner::RunResult;
use tidegate_sim::scenario::{EncoderKind, Scenario};

use crate::video_quality;
use crate::video_source::VideoInput;

/// Scenario file with its text and video input.
#[derive(Debug)]
pub(crate) struct LoadedScenario {
    pub(crate) scenario: Scenario,
    pub(crate) text: String,
    pub(crate) video: VideoInput,
}

impl LoadedScenario {
    /// # Errors
    /// The file cannot be read or is not a scenario. The message names the line and the fix.
    pub(crate) fn load(path: &Path, controllers: &Controllers) -> Result<Self> {
        let scenario = Scenario::load(path, controllers)?;
        let text = std::fs::read_to_string(path)?;
        let video = VideoInput::default();
        Ok(Self {
            scenario,
            text,
            video,
        })
    }
}

impl LoadedScenario {
    /// Prints a warning for each flow over RTP with a delay bound that is shorter than its frames.
    pub(crate) fn warn_of_slow_pictures(&self) {
        for flow in &self.scenario.flows {
            let video = flow.media.video().filter(|video| video.stream.is_none());
            let checked = video.map(|v| check_frame_time(v.delay_bound, v.frame_rate, v.floor));
            if let Some(Err(slow)) = checked {
                say(format_args!("warning: flow {:?}: {slow}", flow.name));
            }
        }
    }
}

/// Writes a run folder and reads it back, like any other reader. `also` writes further files.
///
/// # Errors
/// A write fails, or the pictures cannot be compared.
pub(crate) fn write(
    staged: StagedRun,
    loaded: &LoadedScenario,
    manifest: Manifest,
    seed: Seed,
    takes: Vec<RunResult>,
    also: &dyn Fn(&Path) -> Result<()>,
) -> Result<Run> {
    // Comparing pictures takes long. An earlier run stays complete until then.
    keep(staged, assemble(loaded, manifest, seed, takes)?, also)
}

/// Writes an assembled run and reads it back. `also` writes further files.
///
/// # Errors
/// A write fails.
pub(crate) fn keep(staged: StagedRun, run: Run, also: &dyn Fn(&Path) -> Result<()>) -> Result<Run> {
    let mut writer = RunWriter::create(staged.dir())?;
    writer.manifest(&run.manifest)?;
    for row in &run.events {
        writer.event(row.at, &row.flow, row.side, &row.event)?;
    }
    for row in &run.links {
        writer.link_sample(&row)?;
    }
    for flow in &run.flows {
        writer.flow(flow)?;
    }
    for row in &run.bins {
        writer.bin(row)?;
    }
    for row in &run.totals {
        writer.totals(row)?;
    }
    let summary = run.summary.as_ref();
    writer.summary(summary.expect("a run that was assembled has one"))?;
    writer.flush()?;
    also(staged.dir())?;
    let dir = staged.target().to_owned();
    let _lock = staged.publish()?;
    // Reading the run back takes as much memory again.
    drop(run);
    Ok(RunReader::load(dir)?)
}

/// The run in memory with its summary, equal to the run that [`keep`] leaves in the folder.
///
/// # Errors
/// The pictures cannot be compared.
pub(crate) fn assemble(
    loaded: &LoadedScenario,
    mut manifest: Manifest,
    seed: Seed,
    takes: Vec<RunResult>,
) -> Result<Run> {
    let scenario = &loaded.scenario;
    manifest = described(loaded, manifest, seed);
    let infos = scenario.flow_infos().into_iter();
    let mut infos: BTreeMap<_, _> = infos.map(|info| (info.name.clone(), info)).collect();
    let played = |(instance, _): &(FlowInstance, FlowResult)| {
        let active = Some(instance.active());
        let info = infos.remove(&instance.name)?;
        Some(FlowInfo { active, ..info })
    };
    let flows = takes.iter().flat_map(|take| &take.flows);
    manifest.flows = flows.filter_map(played).collect();
    let mut run = Run::new(Path::new(""), manifest);
    let mut rows: BTreeMap<String, Rows> = flow_rows(loaded, &run.manifest, &takes, seed)?;
    for flow in &mut run.flows {
        if let Some(rows) = rows.remove(&flow.info.name) {
            rows.fill(flow);
        }
    }
    for take in takes {
        count(&mut run, &take);
        run.events.extend(take.events);
        if run.links.is_empty() {
            run.links = take.links;
        } else {
            run.links.extend(&take.links);
        }
    }
    run.round_as_written();
    run.summary = Some(summarise(&run, &scenario.expect));
    Ok(run)
}

/// The manifest with the text, the links and the seed of a scenario, and without flows.
pub(crate) fn described(loaded: &LoadedScenario, mut manifest: Manifest, seed: Seed) -> Manifest {
    manifest.scenario_text = Some(loaded.text.clone());
    manifest.seed = Some(seed.0);
    manifest.links = loaded.scenario.link_infos();
    manifest
}

/// Rows of a flow.
struct Rows {
    sent: Vec<SentFrame>,
    received: Vec<ReceivedFrame>,
    shown: Vec<ShownFrame>,
    packets: Vec<PacketRow>,
    savable: Vec<SavableRow>,
    pictures: Vec<StoredPicture>,
}

impl Rows {
    fn fill(self, flow: &mut FlowRun) {
        flow.sent = self.sent;
        flow.received = self.received;
        flow.shown = self.shown;
        flow.packets = self.packets;
        flow.savable = self.savable;
        flow.pictures = self.pictures;
    }
}

/// Rows of each flow. Picture comparison takes most of the time, so each flow with pictures has a
/// thread.
fn flow_rows(
    loaded: &LoadedScenario,
    manifest: &Manifest,
    takes: &[RunResult],
    seed: Seed,
) -> Result<BTreeMap<String, Rows>> {
    let flows = takes.iter().flat_map(|take| &take.flows);
    std::thread::scope(|scope| {
        let judge = |(instance, results): &'_ (FlowInstance, FlowResult)| {
            let rows = judge_flow(loaded, manifest, (instance, results), seed)?;
            Ok((instance.name.clone(), rows))
        };
        let has_pictures = |instance: &FlowInstance| {
            let video = instance.plan.media.video();
            video.is_some_and(|video| matches!(video.encoder, EncoderKind::Real(_)))
        };
        let (seen, modelled): (Vec<_>, Vec<_>) =
            flows.partition(|(instance, _)| has_pictures(instance));
        let threads: Vec<_> = seen
            .into_iter()
            .map(|flow| scope.spawn(move || judge(flow)))
            .collect();
        let modelled: Vec<Result<_>> = modelled.into_iter().map(judge).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<_>>| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        modelled
            .into_iter()
            .chain(threads.into_iter().map(join))
            .collect()
    })
}

fn judge_flow(
    loaded: &LoadedScenario,
    manifest: &Manifest,
    (instance, results): (&FlowInstance, &FlowResult),
    seed: Seed,
) -> Result<Rows> {
    let (sent, mut received, packets) = results.rows();
    let info = manifest
        .flows
        .iter()
        .find(|info| info.name == instance.name);
    let moments = info.map_or_else(Vec::new, |info| manifest.moments(info));
    let at: Vec<Time> = moments.into_iter().map(|(_, at)| at).collect();
    let frames = (&sent[..], &mut received[..], &at[..]);
    let (shown, pictures) = video_quality::judge(instance, results, frames, &loaded.video, seed)?;
    let savable = instance.plan.media.video().map_or_else(Vec::new, |video| {
        let oracle = video.floor_sender();
        let captured: Vec<Time> = sent.iter().map(|f| f.captured).collect();
        let savable = match &results.stream {
            Some(record) => oracle.savable_over(&record.connection(), &captured),
            None => oracle.savable(&loaded.scenario.path_hops(&instance.plan), &captured),
        };
        let row = |(frame, savable): (&SentFrame, bool)| SavableRow {
            frame: frame.frame,
            savable,
        };
        sent.iter().zip(savable).map(row).collect()
    });
    Ok(Rows {
        sent,
        received,
        shown,
        packets,
        savable,
        pictures,
    })
}

/// Adds the counts of the flows to the run.
fn count(run: &mut Run, take: &RunResult) {
    let length = take.meter.bin_length();
    for (i, (instance, results)) in take.flows.iter().enumerate() {
        let flow = || instance.name.clone();
        let mut at = Time::ZERO;
        let bins = take.meter.bins(i);
        if i == 0 {
            // A vector that grows by doubling would waste hundreds of megabytes in a run of a day.
            run.bins.reserve_exact(bins.len() * take.flows.len());
        }
        for bin in bins {
            run.bins.push(BinRow {
                at,
                flow: flow(),
                bin,
            });
            at += length;
        }
        let (flow, mut totals) = (flow(), take.meter.totals(i));
        let mut active = instance.active();
        let ends = instance.plan.media.is_finite();
        totals.done = results.done.filter(|at| ends && *at < active.to);
        // The rate of a transfer is the mean up to its completion.
        active.to = totals.done.unwrap_or(active.to);
        totals.span = active.overlap(run.manifest.measured()).length();
        run.totals.push(TotalsRow { flow, totals });
    }
}

/// Manifest of a scenario in `world`.
pub(crate) fn manifest(world: World, scenario: &Scenario) -> Manifest {
    let mut manifest = Manifest::new(world, &scenario.name, scenario.duration);
    let (from, to) = scenario.window();
    let measure = Span { from, to };
    manifest.measure = (measure != manifest.measured()).then_some(measure);
    manifest
}

/// Default run folder.
pub(crate) fn default_dir(world: &str, scenario: &Scenario, seed: Seed) -> PathBuf {
    PathBuf::from("runs").join(format!("{}-{world}-{}", scenario.name, seed.0))
}
