//! From what was played to a run folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Time};
use tidegate_sim::flow_endpoints::{FlowInstance, FlowResult};
use tidegate_sim::offline_optimum::FloorSender;
use tidegate_sim::run::{
    BinRow, FlowInfo, FlowRun, Manifest, PacketRow, ReceivedFrame, Run, RunReader, RunWriter,
    SavableRow, SentFrame, ShownFrame, Span, TotalsRow, World, summarise,
};
use tidegate_sim::runner::RunResult;
use tidegate_sim::scenario::{EncoderKind, Scenario};

use crate::video_quality;
use crate::video_source::VideoInput;

/// A scenario file as it was read, and where its pictures come from.
#[derive(Debug)]
pub(crate) struct LoadedScenario {
    pub(crate) scenario: Scenario,
    pub(crate) text: String,
    pub(crate) studio: VideoInput,
}

impl LoadedScenario {
    /// # Errors
    /// When the file cannot be read or is no scenario; the message names line and mend.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let scenario = Scenario::load(path)?;
        let text = std::fs::read_to_string(path)?;
        let studio = VideoInput::default();
        Ok(Self {
            scenario,
            text,
            studio,
        })
    }
}

/// Writes the run folder `dir` and reads it again, as everybody else will.
///
/// # Errors
/// When the disk refuses, or the pictures cannot be judged.
pub(crate) fn write(
    dir: &Path,
    script: &LoadedScenario,
    manifest: Manifest,
    seed: Seed,
    takes: Vec<RunResult>,
) -> Result<Run> {
    // Judging pictures takes its time, in which an earlier run is still whole.
    keep(dir, assemble(script, manifest, seed, takes)?)
}

/// Writes a run that was assembled, and reads it again.
///
/// # Errors
/// When the disk refuses.
pub(crate) fn keep(dir: &Path, run: Run) -> Result<Run> {
    let mut writer = RunWriter::create(dir)?;
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
    // What is read again takes as much memory.
    drop(run);
    Ok(RunReader::load(dir)?)
}

/// The run in memory, with its summary; the same as what [`write`] leaves on the disk.
///
/// # Errors
/// When the pictures cannot be judged.
pub(crate) fn assemble(
    script: &LoadedScenario,
    mut manifest: Manifest,
    seed: Seed,
    takes: Vec<RunResult>,
) -> Result<Run> {
    let scenario = &script.scenario;
    manifest.scenario_text = Some(script.text.clone());
    manifest.seed = Some(seed.0);
    let infos = scenario.flow_infos().into_iter();
    let mut infos: BTreeMap<_, _> = infos.map(|info| (info.name.clone(), info)).collect();
    let played = |(role, _): &(FlowInstance, FlowResult)| {
        let active = Some(role.active());
        let info = infos.remove(&role.name)?;
        Some(FlowInfo { active, ..info })
    };
    let flows = takes.iter().flat_map(|take| &take.flows);
    manifest.flows = flows.filter_map(played).collect();
    manifest.links = scenario.link_infos();
    let mut run = Run::new(Path::new(""), manifest);
    let mut rows: BTreeMap<String, Rows> = judge_all(script, &takes, seed)?;
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
    run.round_as_kept();
    run.summary = Some(summarise(&run, &scenario.expect));
    Ok(run)
}

/// The rows of a flow.
struct Rows {
    sent: Vec<SentFrame>,
    received: Vec<ReceivedFrame>,
    shown: Vec<ShownFrame>,
    packets: Vec<PacketRow>,
    savable: Vec<SavableRow>,
}

impl Rows {
    fn fill(self, flow: &mut FlowRun) {
        flow.sent = self.sent;
        flow.received = self.received;
        flow.shown = self.shown;
        flow.packets = self.packets;
        flow.savable = self.savable;
    }
}

/// The rows of each flow. Looking at pictures takes most of the time, so each flow that has any
/// has a thread.
fn judge_all(
    script: &LoadedScenario,
    takes: &[RunResult],
    seed: Seed,
) -> Result<BTreeMap<String, Rows>> {
    let flows = takes.iter().flat_map(|take| &take.flows);
    std::thread::scope(|scope| {
        let judge = |(role, takings): &'_ (FlowInstance, FlowResult)| {
            let rows = judge_flow(script, role, takings, seed)?;
            Ok((role.name.clone(), rows))
        };
        let has_pictures = |role: &FlowInstance| {
            let video = role.plan.media.video();
            video.is_some_and(|video| matches!(video.encoder, EncoderKind::Real(_)))
        };
        let (seen, modelled): (Vec<_>, Vec<_>) = flows.partition(|(role, _)| has_pictures(role));
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
    script: &LoadedScenario,
    role: &FlowInstance,
    takings: &FlowResult,
    seed: Seed,
) -> Result<Rows> {
    let (sent, mut received, packets) = takings.rows();
    let shown = video_quality::judge(role, takings, &sent, &mut received, &script.studio, seed)?;
    let savable = role.plan.media.video().map_or_else(Vec::new, |video| {
        let oracle = FloorSender {
            floor: video.floor,
            frame_rate: video.frame_rate,
            payload: PAYLOAD,
            overhead: HEADERS,
            bound: video.delay_bound,
        };
        let captured: Vec<Time> = sent.iter().map(|f| f.captured).collect();
        let savable = match &takings.stream {
            Some(record) => oracle.savable_over(&record.connection(), &captured),
            None => oracle.savable(&script.scenario.road(&role.plan), &captured),
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
    })
}

/// What was counted of the flows.
fn count(run: &mut Run, take: &RunResult) {
    let length = take.meter.bin_length();
    for (i, (role, takings)) in take.flows.iter().enumerate() {
        let flow = || role.name.clone();
        let mut at = Time::ZERO;
        let bins = take.meter.bins(i);
        if i == 0 {
            // A list that grows by itself has room for twice as much, of which a day has hundreds of
            // megabytes.
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
        let mut active = role.active();
        let ends = role.plan.media.is_finite();
        totals.done = takings.done.filter(|at| ends && *at < active.to);
        // A rate is over the time in which there was to be one.
        active.to = totals.done.unwrap_or(active.to);
        totals.span = active.overlap(run.manifest.measured()).length();
        run.totals.push(TotalsRow { flow, totals });
    }
}

/// A manifest for a scenario that is played in `world`.
pub(crate) fn manifest(world: World, scenario: &Scenario) -> Manifest {
    let mut manifest = Manifest::new(world, &scenario.name, scenario.duration);
    let (from, to) = scenario.window();
    let measure = Span { from, to };
    manifest.measure = (measure != manifest.measured()).then_some(measure);
    manifest
}

/// Sees that a run can be written to `dir`, before it is played. An earlier run stays until then.
///
/// # Errors
/// When the folder holds something else, or cannot be made.
pub(crate) fn claim(dir: &Path) -> Result<()> {
    RunWriter::check(dir)?;
    Ok(())
}

/// The folder that a run goes to unless told.
pub(crate) fn default_dir(world: &str, scenario: &Scenario, seed: Seed) -> PathBuf {
    PathBuf::from("runs").join(format!("{}-{world}-{}", scenario.name, seed.0))
}

/// Payload of a packet of 1,200 bytes, and its headers: IPv4, UDP, RTP.
const PAYLOAD: Bytes = Bytes(1_160);
const HEADERS: Bytes = Bytes(40);
