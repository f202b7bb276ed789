//! From what was played to a run folder.

use std::path::{Path, PathBuf};

use anyhow::Result;
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Time};
use tidegate_sim::cast::{Role, Takings};
use tidegate_sim::oracle::FloorSender;
use tidegate_sim::play::Take;
use tidegate_sim::run::{
    Manifest, Run, RunReader, RunWriter, SavableRow, Summary, World, summarise,
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
    manifest.flows = scenario.flow_infos();
    manifest.links = scenario.link_infos();
    let mut writer = RunWriter::create(dir)?;
    writer.manifest(&manifest)?;
    for take in takes {
        for row in &take.events {
            writer.event(row.at, &row.flow, row.side, &row.event)?;
        }
        for row in &take.links {
            writer.link_sample(row)?;
        }
        for (role, takings) in &take.flows {
            write_flow(&mut writer, script, role, takings, seed)?;
        }
    }
    writer.flush()?;
    let run = RunReader::load(dir)?;
    let summary = summarise(&run, &scenario.expect);
    writer.summary(&summary)?;
    writer.flush()?;
    Ok(RunReader::load(dir)?)
}

fn write_flow(
    writer: &mut RunWriter,
    script: &Script,
    role: &Role,
    takings: &Takings,
    seed: Seed,
) -> Result<()> {
    let (sent, mut received, packets) = takings.rows();
    let shown = judge::judge(role, takings, &sent, &mut received, &script.studio, seed)?;
    for row in &packets {
        writer.packet(&role.name, row)?;
    }
    for row in &sent {
        writer.sent_frame(&role.name, row)?;
    }
    for row in &received {
        writer.received_frame(&role.name, row)?;
    }
    for row in &shown {
        writer.shown_frame(&role.name, row)?;
    }
    if let Some(video) = role.plan.media.video() {
        let oracle = FloorSender {
            floor: video.floor,
            frame_rate: video.frame_rate,
            payload: PAYLOAD,
            overhead: HEADERS,
            bound: video.delay_bound,
        };
        let captured: Vec<Time> = sent.iter().map(|f| f.captured).collect();
        let savable = oracle.savable(&script.scenario.road(&role.plan), &captured);
        for (frame, savable) in sent.iter().zip(savable) {
            let frame = frame.frame;
            writer.savable(&role.name, &SavableRow { frame, savable })?;
        }
    }
    Ok(())
}

/// A manifest for a scenario that is played in `world`.
pub(crate) fn manifest(world: World, scenario: &Scenario) -> Manifest {
    Manifest::new(world, &scenario.name, scenario.duration)
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
