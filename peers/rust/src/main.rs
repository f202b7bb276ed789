//! Plays scenarios with other projects' controllers.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand};
use tidegate_core::quantity;
use tidegate_core::random::Seed;
use tidegate_core::units::Rate;
use tidegate_peers::call::FIRST_RATE;
use tidegate_peers::peer::Peer;
use tidegate_peers::play::{self, Options};
use tidegate_peers::result::{self, Outcome};
use tidegate_sim::scenario::Scenario;

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
    /// Plays everything, as many at a time as there are processors, and prints the summaries.
    /// What fails is named and does not keep the rest from being played.
    fn all(&self) -> anyhow::Result<()> {
        let works = self.works()?;
        fs::create_dir_all(&self.out).with_context(|| self.out.display().to_string())?;
        let queue = Mutex::new(works.iter());
        let next = || queue.lock().ok().and_then(|mut works| works.next());
        let worker = || {
            let mut played = Vec::new();
            while let Some((place, scenario, peer)) = next() {
                match self.one(scenario, *peer) {
                    Ok(outcome) => played.push((*place, outcome)),
                    Err(error) => eprintln!("{} with {}: {error:#}", scenario.name, peer.name()),
                }
            }
            played
        };
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let mut played = Vec::new();
        thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
            for worker in workers {
                played.extend(worker.join().unwrap_or_default());
            }
        });
        played.sort_by_key(|(place, _)| *place);
        let outcomes: Vec<_> = played.into_iter().map(|(_, outcome)| outcome).collect();
        print!("{}", result::table(&outcomes));
        if outcomes.len() < works.len() {
            bail!(
                "{} of {} runs failed",
                works.len() - outcomes.len(),
                works.len()
            );
        }
        Ok(())
    }

    /// What is to be played, with its place in the table.
    fn works(&self) -> anyhow::Result<Vec<(usize, Scenario, Peer)>> {
        let peers = self.peers()?;
        let mut works: Vec<(usize, Scenario, Peer)> = Vec::new();
        for path in &self.scenarios {
            let scenario = Scenario::load(path, &tidegate_sim::controllers())?;
            if works
                .iter()
                .any(|(_, other, _)| other.name == scenario.name)
            {
                bail!(
                    "{}: another scenario is called {:?} too, and results are named after them",
                    path.display(),
                    scenario.name
                );
            }
            for peer in &peers {
                works.push((works.len(), scenario.clone(), *peer));
            }
        }
        Ok(works)
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
