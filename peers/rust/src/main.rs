//! Plays scenarios with other projects' controllers.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand};
use tidegate_core::random::Seed;
use tidegate_core::units::Rate;
use tidegate_peers::call::FIRST_RATE;
use tidegate_peers::peer::Peer;
use tidegate_peers::play::{self, Options};
use tidegate_peers::result::{self, Outcome};
use tidegate_sim::scenario::{Scenario, quantity};

#[derive(Debug, Parser)]
#[command(about = "Plays scenarios with other projects' controllers, in simulated time")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Names the peers
    List,
    /// Plays scenarios and writes what was measured as JSON, a file per scenario and peer
    Run(Run),
    /// Prints the summaries of JSON files as a table
    Table {
        /// Where they are
        folder: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Run {
    /// Scenario files
    #[arg(required = true)]
    scenarios: Vec<PathBuf>,
    /// Where results go
    #[arg(long, default_value = "runs/peers")]
    out: PathBuf,
    /// A peer; may be given again [default: all, pion's only with --pion]
    #[arg(long = "peer")]
    peers: Vec<String>,
    /// The program of peers/pion
    #[arg(long)]
    pion: Option<PathBuf>,
    /// From which peers that send video start, as "1Mb/s" [default: 300kb/s]
    #[arg(long, value_parser = rate)]
    first_rate: Option<Rate>,
    /// In place of each scenario's own
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().verb {
        Verb::List => {
            for peer in Peer::ALL {
                println!("{}", peer.name());
            }
            Ok(())
        }
        Verb::Run(run) => run.all(),
        Verb::Table { folder } => {
            print!("{}", result::table(&read(&folder)?));
            Ok(())
        }
    }
}

impl Run {
    /// Plays everything, as many at a time as there are processors. What fails is named at the
    /// end and does not keep the rest from being played.
    fn all(&self) -> anyhow::Result<()> {
        let mut works: Vec<(Scenario, Peer)> = Vec::new();
        for path in &self.scenarios {
            let scenario = Scenario::load(path)?;
            if works.iter().any(|(other, _)| other.name == scenario.name) {
                bail!(
                    "{}: another scenario is called {:?} too, and results are named after them",
                    path.display(),
                    scenario.name
                );
            }
            works.extend(
                self.peers()?
                    .into_iter()
                    .map(|peer| (scenario.clone(), peer)),
            );
        }
        fs::create_dir_all(&self.out).with_context(|| self.out.display().to_string())?;
        let works = Mutex::new(works.into_iter());
        let failures = Mutex::new(0);
        let next = || works.lock().ok().and_then(|mut works| works.next());
        let worker = || {
            while let Some((scenario, peer)) = next() {
                let title = format!("{} with {}", scenario.name, peer.name());
                match self.one(&scenario, peer) {
                    Ok(outcome) => println!("{title}: {}", line(&outcome)),
                    Err(error) => {
                        eprintln!("{title}: {error:#}");
                        if let Ok(mut failures) = failures.lock() {
                            *failures += 1;
                        }
                    }
                }
            }
        };
        let workers = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(worker);
            }
        });
        match failures.into_inner() {
            Ok(0) => Ok(()),
            Ok(failures) => bail!("{failures} of the runs failed"),
            Err(_) => bail!("a run broke off"),
        }
    }

    fn peers(&self) -> anyhow::Result<Vec<Peer>> {
        if self.peers.is_empty() {
            let peers = Peer::ALL.into_iter();
            let there = |peer: &Peer| *peer != Peer::PionGcc || self.pion.is_some();
            return Ok(peers.filter(there).collect());
        }
        let peers = self.peers.iter().map(|name| Peer::named(name));
        Ok(peers.collect::<Result<_, _>>()?)
    }

    fn one(&self, scenario: &Scenario, peer: Peer) -> anyhow::Result<Outcome> {
        let options = Options {
            seed: self.seed.map_or(scenario.seed, Seed),
            first_rate: self.first_rate.unwrap_or(FIRST_RATE),
            pion: self.pion.clone(),
        };
        let outcome = play::scenario(scenario, peer, &options)?;
        let path = self.out.join(outcome.file_name());
        let text = serde_json::to_string(&outcome)? + "\n";
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        Ok(outcome)
    }
}

fn rate(text: &str) -> Result<Rate, String> {
    quantity::rate(text).map_err(|error| error.to_string())
}

/// The rate of each flow.
fn line(outcome: &Outcome) -> String {
    let flow = |flow: &result::FlowOutcome| {
        let kbps = flow.summary.rate_bps / 1_000;
        format!("{} {kbps} kb/s", flow.name)
    };
    outcome
        .flows
        .iter()
        .map(flow)
        .collect::<Vec<_>>()
        .join(", ")
}

fn read(folder: &Path) -> anyhow::Result<Vec<Outcome>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<_> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|e| e == "json"));
    paths.sort();
    let outcome = |path: &PathBuf| {
        let text = fs::read_to_string(path)?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    };
    paths.iter().map(outcome).collect()
}
