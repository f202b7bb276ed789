//! Background jobs of a run and their results: cross traffic, captures and outages.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::capture::{self, Capture};
use super::cross::{Cross, RunningCrossTraffic};
use super::injector::Cut;
use super::list::Host;
use super::player::Ssh;
use super::remote_process::here;
use tidegate_console::context::LiveContext;
use tidegate_console::progress::say;

/// Running background jobs.
#[derive(Debug, Default)]
pub(super) struct BackgroundJobs {
    crossings: Vec<RunningCrossTraffic>,
    captures: Vec<Capture>,
    /// Reasons of missing captures.
    without: Vec<String>,
}

/// Path conditions of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct PathConditions {
    pub(super) cuts: Vec<Cut>,
    /// JSON object per host with cross traffic.
    cross: Vec<Value>,
    captures: Vec<PathBuf>,
    without: Vec<String>,
}

/// The run of the background jobs.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobContext<'a> {
    pub(super) ssh: &'a Ssh,
    pub(super) player: &'a Host,
    /// TCP port of the player.
    pub(super) port: u16,
    pub(super) dir: &'a Path,
    /// Maximum duration of the jobs.
    pub(super) limit: Duration,
    pub(super) around: &'a LiveContext,
}

impl BackgroundJobs {
    /// Starts all cross traffic, and captures at both ends if they are `wanted`. A capture that
    /// fails is reported, and the run continues without it. None after Ctrl-C.
    ///
    /// # Errors
    /// Cross traffic cannot be started: the cause.
    pub(super) fn start(
        at: JobContext<'_>,
        crosses: &[Cross],
        wanted: bool,
    ) -> Result<Option<Self>> {
        let mut jobs = Self::default();
        if wanted {
            let port = [at.port.to_string()];
            let there = at.ssh.command(at.player, capture::SCRIPT, &port);
            let here = here(capture::SCRIPT, &port);
            let sides = [
                (here, "this host", "sender"),
                (there, at.player.name.as_str(), "player"),
            ];
            for (command, place, side) in sides {
                match Capture::start(command, place, (at.dir, side), at.around) {
                    Ok(Some(capture)) => jobs.captures.push(capture),
                    Ok(None) => return Ok(None),
                    Err(why) => jobs.miss(&why),
                }
            }
        }
        for cross in crosses {
            let crossing = RunningCrossTraffic::start(
                cross,
                at.ssh,
                at.player,
                (at.dir, at.limit),
                at.around,
            )?;
            match crossing {
                Some(crossing) => jobs.crossings.push(crossing),
                None => return Ok(None),
            }
        }
        Ok(Some(jobs))
    }

    fn miss(&mut self, why: &anyhow::Error) {
        let why = tidegate_console::describe(why);
        say(&why);
        self.without.push(why);
    }

    /// Ends all jobs.
    ///
    /// # Errors
    /// Cross traffic has failed during the run, so that its amount is unknown.
    pub(super) fn end(mut self, cuts: Vec<Cut>) -> Result<PathConditions> {
        let crossings = std::mem::take(&mut self.crossings).into_iter();
        let cross = crossings
            .map(RunningCrossTraffic::end)
            .collect::<Result<_>>()?;
        let mut captures = Vec::new();
        for capture in std::mem::take(&mut self.captures) {
            match capture.end() {
                Ok(file) => captures.push(file),
                Err(why) => self.miss(&why),
            }
        }
        Ok(PathConditions {
            cuts,
            cross,
            captures,
            without: self.without,
        })
    }
}

impl PathConditions {
    /// Adds the path conditions to the JSON object of a run.
    pub(super) fn add_to(&self, run: &mut Value) {
        let cuts = self.cuts.iter();
        let cuts = cuts.map(|cut| json!({ "at_s": cut.from.as_secs_f64(), "lasts_s": cut.to.since(cut.from).as_secs_f64() }));
        run["cuts"] = cuts.collect();
        run["cross"] = json!(self.cross);
        run["captures"] = json!(self.captures);
        run["without_capture"] = json!(self.without);
    }
}
