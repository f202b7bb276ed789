//! From what was played to a run folder.

use std::path::{Path, PathBuf};

use anyhow::Result;
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Time};
use tidegate_sim::cast::{Role, Takings};
use tidegate_sim::oracle::FloorSender;
use tidegate_sim::play::Take;
use tidegate_sim::run::{
    BinRow, Manifest, PacketRow, ReceivedFrame, Run, RunReader, RunWriter, SavableRow, SentFrame,
    ShownFrame, Summary, TotalsRow, World, summarise,
};
use tidegate_sim::scenario::Scenario;

use crate::judge;
use crate::studio::Studio;

/// A scenario file as it was read, and where its pictures come from.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) scenario: Scenario,
    pub(crate) text: String,
    pub(crate) studio: Studio,
}

impl Script {
    /// # Errors
    /// When the file cannot be read or is no scenario; the message names line and mend.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let scenario = Scenario::load(path)?;
        let text = std::fs::read_to_string(path)?;
        let studio = Studio::default();
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
    script: &Script,
    mut manifest: Manifest,
    seed: Seed,
    takes: &[Take],
) -> Result<Run> {
    let scenario = &script.scenario;
    manifest.scenario_text = Some(script.text.clone());
    manifest.seed = Some(seed.0);
    let played = |name: &str| {
        let flows = takes.iter().flat_map(|take| &take.flows);
        flows
            .map(|(role, _)| &role.name)
            .any(|played| played == name)
    };
    manifest.flows = scenario.flow_infos();
    manifest.flows.retain(|flow| played(&flow.name));
    manifest.links = scenario.link_infos();
    let mut writer = RunWriter::create(dir)?;
    writer.manifest(&manifest)?;
    let judged = judge_all(script, takes, seed)?;
    let mut judged = judged.iter();
    for take in takes {
        for row in &take.events {
            writer.event(row.at, &row.flow, row.side, &row.event)?;
        }
        for row in &take.links {
            writer.link_sample(row)?;
        }
        for ((role, _), rows) in take.flows.iter().zip(&mut judged) {
            write_flow(&mut writer, &role.name, rows)?;
        }
        write_counts(&mut writer, take)?;
    }
    writer.flush()?;
    let run = RunReader::load(dir)?;
    let summary = summarise(&run, &scenario.expect);
    writer.summary(&summary)?;
    writer.flush()?;
    Ok(RunReader::load(dir)?)
}

/// What a flow leaves in the folder.
struct Rows {
    sent: Vec<SentFrame>,
    received: Vec<ReceivedFrame>,
    shown: Vec<ShownFrame>,
    packets: Vec<PacketRow>,
    savable: Vec<SavableRow>,
}

/// The rows of each flow. Looking at pictures takes most of the time, so each flow has a thread.
fn judge_all(script: &Script, takes: &[Take], seed: Seed) -> Result<Vec<Rows>> {
    let flows = takes.iter().flat_map(|take| &take.flows);
    std::thread::scope(|scope| {
        let judge = |(role, takings)| scope.spawn(move || judge_flow(script, role, takings, seed));
        let threads: Vec<_> = flows.map(|(role, t)| judge((role, t))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Rows>>| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}

fn judge_flow(script: &Script, role: &Role, takings: &Takings, seed: Seed) -> Result<Rows> {
    let (sent, mut received, packets) = takings.rows();
    let shown = judge::judge(role, takings, &sent, &mut received, &script.studio, seed)?;
    let savable = role.plan.media.video().map_or_else(Vec::new, |video| {
        let oracle = FloorSender {
            floor: video.floor,
            frame_rate: video.frame_rate,
            payload: PAYLOAD,
            overhead: HEADERS,
            bound: video.delay_bound,
        };
        let captured: Vec<Time> = sent.iter().map(|f| f.captured).collect();
        let savable = oracle.savable(&script.scenario.road(&role.plan), &captured);
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

fn write_flow(writer: &mut RunWriter, flow: &str, rows: &Rows) -> Result<()> {
    for row in &rows.packets {
        writer.packet(flow, row)?;
    }
    for row in &rows.sent {
        writer.sent_frame(flow, row)?;
    }
    for row in &rows.received {
        writer.received_frame(flow, row)?;
    }
    for row in &rows.shown {
        writer.shown_frame(flow, row)?;
    }
    for row in &rows.savable {
        writer.savable(flow, row)?;
    }
    Ok(())
}

/// What was counted of the flows.
fn write_counts(writer: &mut RunWriter, take: &Take) -> Result<()> {
    let length = take.meter.bin_length();
    for (i, (role, _)) in take.flows.iter().enumerate() {
        let flow = || role.name.clone();
        let mut at = Time::ZERO;
        for bin in take.meter.bins(i) {
            let (flow, bin) = (flow(), *bin);
            writer.bin(&BinRow { at, flow, bin })?;
            at += length;
        }
        let (flow, totals) = (flow(), take.meter.totals(i));
        writer.totals(&TotalsRow { flow, totals })?;
    }
    Ok(())
}

/// A manifest for a scenario that is played in `world`.
pub(crate) fn manifest(world: World, scenario: &Scenario) -> Manifest {
    Manifest::new(world, &scenario.name, scenario.duration)
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

/// Whether everything held that the scenario expects.
pub(crate) fn all_hold(summary: &Summary) -> bool {
    summary.expect.iter().all(|verdict| verdict.holds)
}

/// Payload of a packet of 1,200 bytes, and its headers: IPv4, UDP, RTP.
const PAYLOAD: Bytes = Bytes(1_160);
const HEADERS: Bytes = Bytes(40);
