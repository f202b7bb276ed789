//! `tidegate sim bench`

use std::collections::HashSet;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use tidegate_console::arguments;
use tidegate_console::exit::EXPECTATION_FAILS;
use tidegate_console::output::{output, print_json};
use tidegate_console::progress::say;
use tidegate_console::signals::{self, Share};
use tidegate_core::controller::tfrc::TfrcConfig;
use tidegate_core::controller::{ControllerConfig, Controllers};
use tidegate_core::random::Seed;
use tidegate_sim::scenario::Scenario;

use super::groups::GROUPS;
use super::judge::{References, Values, judge};
use super::recorded::{self, NamedPath};
use super::{BenchError, Cell, Group, Row, Subject, cost, synthetic, table};
use crate::control_argument;
use crate::parallel::{self, in_parallel};

/// Options of the benchmark.
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    /// Controllers, written as in a scenario [default: tide tfrc]
    #[arg(value_name = "CONTROL")]
    controls: Vec<String>,
    /// Group of tests, such as alone or tcp; repeatable [default: all]
    #[arg(long, value_name = "GROUP", value_parser = group)]
    only: Vec<&'static str>,
    /// Folder of recorded paths (CSV) for the group recorded [default: a synthetic set]
    #[arg(long, value_name = "DIR")]
    recorded: Option<PathBuf>,
    /// Number of seeds, from 1
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = arguments::seeds)]
    seeds: u64,
    /// Number of threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = arguments::jobs)]
    jobs: Option<NonZeroUsize>,
    /// Exit with 1 if a gate of the first controller fails
    #[arg(long)]
    strict: bool,
    /// Print the rows as one JSON array
    #[arg(long)]
    json: bool,
}

/// A controller with its name.
#[derive(Clone, Debug)]
struct Control {
    name: String,
    config: ControllerConfig,
}

/// Plays the groups and prints the table. A gate that fails is printed and is not an error, except
/// with `--strict`. The exit code is 130 after Ctrl-C.
///
/// # Errors
/// A run fails.
pub fn run(args: &BenchArgs, controllers: &Controllers) -> Result<ExitCode> {
    let named: &[String] = match args.controls.as_slice() {
        [] => &DEFAULT.map(str::to_owned),
        some => some,
    };
    let named = named.iter().map(|text| control(text, controllers));
    let controls: Vec<Control> = named.collect::<Result<_>>()?;
    let mut names = controls.iter().map(|control| &control.name);
    let mut seen = HashSet::new();
    if let Some(twice) = names.find(|name| !seen.insert(*name)) {
        bail!("the controller {twice} is given twice: remove one");
    }
    let is_wanted = |name: &str| args.only.is_empty() || args.only.contains(&name);
    let groups: Vec<&'static Group> = GROUPS
        .iter()
        .filter(|group| is_wanted(group.name))
        .collect();
    let paths = match &args.recorded {
        Some(_) if !is_wanted(RECORDED) => {
            bail!("--recorded is for the group {RECORDED}: add --only {RECORDED}, or remove it");
        }
        Some(folder) => recorded::folder(folder)?,
        None => synthetic::paths(),
    };
    let interrupts = signals::catch()?;
    let (seeds, threads) = (args.seeds, parallel::threads(args.jobs));
    let subjects = controls.clone();
    let rows = signals::run_interruptible(Some(&interrupts), "playing", move |done| {
        play(&groups, &subjects, &paths, (seeds, threads), done)
    });
    let Some(rows) = rows else {
        say("interrupted in the benchmark: no results are kept");
        return Ok(signals::exit_code());
    };
    let mut rows = rows?;
    if is_wanted(cost::NAME) {
        // After the runs, which occupy the processors.
        rows.extend(controls.iter().map(|one| cost::row(&one.name, &one.config)));
    }
    let names: Vec<String> = controls.into_iter().map(|control| control.name).collect();
    let mut out = output();
    if args.json {
        print_json(&rows)?;
    } else {
        write!(out, "{}", table::table(&rows, &names, &abouts()))?;
    }
    let fails = |row: &Row| row.control == names[0] && row.holds == Some(false);
    Ok(if args.strict && rows.iter().any(fails) {
        ExitCode::from(EXPECTATION_FAILS)
    } else {
        ExitCode::SUCCESS
    })
}

/// Description of each group.
fn abouts() -> Vec<(&'static str, String)> {
    let about = |group: &'static Group| {
        let scenario = Scenario::parse(group.file, group.text, &|_| Err(String::new()));
        (group.name, scenario.map_or(String::new(), |one| one.about))
    };
    let cost = (
        cost::NAME,
        "10 Mb/s, a report every 50 ms, one loss in 100".to_owned(),
    );
    GROUPS.iter().map(about).chain([cost]).collect()
}

/// One run.
struct Job<'a> {
    group: &'static Group,
    subject: &'a Subject,
    cell: &'a Cell,
    seed: Seed,
}

/// Cells of each subject of a group, the controllers of the command line first.
struct Play {
    group: &'static Group,
    /// Number of controllers of the command line.
    controls: usize,
    subjects: Vec<(Subject, Vec<Cell>)>,
}

fn play(
    groups: &[&'static Group],
    controls: &[Control],
    paths: &[NamedPath],
    (seeds, threads): (u64, usize),
    share: &Share,
) -> Result<Vec<Row>, BenchError> {
    let plays: Vec<Play> = groups
        .iter()
        .map(|group| Play::new(group, controls, paths))
        .collect::<Result<_, _>>()?;
    let mut jobs = Vec::new();
    for play in &plays {
        for (subject, cells) in &play.subjects {
            for cell in cells {
                jobs.extend((1..=seeds).map(|seed| Job {
                    group: play.group,
                    subject,
                    cell,
                    seed: Seed(seed),
                }));
            }
        }
    }
    let played = in_parallel(jobs.len(), threads, &|done| share.set(done), |n| {
        let job = &jobs[n];
        let result = job.group.play(&job.cell.scenario, job.seed);
        result.map_err(|error| BenchError::Play(job.label(), error))
    })?;
    let mut played = played.into_iter();
    let rows = plays.iter().map(|play| play.rows(seeds, &mut played));
    Ok(rows.flatten().collect())
}

impl Job<'_> {
    fn label(&self) -> String {
        format!(
            "{} with {}, seed {}",
            self.group.name,
            self.subject.name(),
            self.seed.0
        )
    }
}

impl Subject {
    fn name(&self) -> &str {
        match self {
            Self::Control(name, _) => name,
            Self::Tcp => "tcp",
        }
    }
}

impl Play {
    fn new(
        group: &'static Group,
        controls: &[Control],
        paths: &[NamedPath],
    ) -> Result<Self, BenchError> {
        let named = |one: &Control| Subject::Control(one.name.clone(), one.config.clone());
        let mut subjects: Vec<Subject> = controls.iter().map(named).collect();
        if group.needs_tcp() {
            subjects.push(Subject::Tcp);
        }
        if group.needs_tfrc() && !subjects.iter().any(|one| one.name() == TFRC) {
            let config = ControllerConfig::from(TfrcConfig::default());
            subjects.push(Subject::Control(TFRC.to_owned(), config));
        }
        let subjects = subjects.into_iter().map(|subject| {
            let cells = group.cells(&subject, paths)?;
            Ok((subject, cells))
        });
        Ok(Self {
            group,
            controls: controls.len(),
            subjects: subjects.collect::<Result<_, BenchError>>()?,
        })
    }

    /// Rows of the controllers of the command line from the results of all jobs, in their order.
    fn rows(&self, seeds: u64, played: &mut impl Iterator<Item = (Vec<f64>, f64)>) -> Vec<Row> {
        let mut all: Vec<(&Subject, Values)> = Vec::new();
        for (subject, cells) in &self.subjects {
            let (mut runs, mut rates) = (Vec::new(), Vec::new());
            for _ in cells {
                let of_cell: Vec<_> = played.by_ref().take(seeds as usize).collect();
                rates.push(of_cell.iter().map(|(_, rate)| rate).sum::<f64>() / seeds as f64);
                runs.push(of_cell.into_iter().map(|(values, _)| values).collect());
            }
            all.push((subject, Values { runs, rates }));
        }
        let reference = |name: &str| {
            let found = all.iter().rev().find(|(subject, _)| subject.name() == name);
            found.map(|(_, values)| values)
        };
        let references = References {
            tcp: reference(TCP),
            tfrc: reference(TFRC),
        };
        let cells = &self.subjects[0].1;
        let own = all.iter().take(self.controls);
        own.flat_map(|(subject, values)| {
            judge(self.group, cells, (subject.name(), values), references)
        })
        .collect()
    }
}

fn control(text: &str, controllers: &Controllers) -> Result<Control> {
    Ok(Control {
        name: text.to_owned(),
        config: control_argument::parse(text, controllers).map_err(|why| anyhow!(why))?,
    })
}

fn group(text: &str) -> Result<&'static str, String> {
    let names = || GROUPS.iter().map(|group| group.name).chain([cost::NAME]);
    names().find(|name| *name == text).ok_or_else(|| {
        let names: Vec<&str> = names().collect();
        format!("there is no group \"{text}\"; use {}", names.join(", "))
    })
}

const DEFAULT: [&str; 2] = ["tide", TFRC];
const RECORDED: &str = "recorded";
const TFRC: &str = "tfrc";
const TCP: &str = "tcp";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_their_cells_and_are_documented() {
        let docs = include_str!("../../../../docs/bench.md");
        let tide = control("tide", &tidegate_sim::controllers()).unwrap();
        for group in &GROUPS {
            let name = group.name;
            assert!(docs.contains(&format!("| `{name}` |")), "{name}");
            let play = Play::new(group, std::slice::from_ref(&tide), &synthetic::paths()).unwrap();
            let cells = &play.subjects[0].1;
            let want = match name {
                "alone" | "alone-video" | "ten" | "aqm" => 80,
                "tcp" => 4 * 80,
                "drawn" => 40,
                "recorded" => synthetic::paths().len(),
                "ten-mixed" => 16,
                "calls" | "blackouts" => 24,
                "jitter" => 4,
                "video" => 2,
                _ => 1,
            };
            assert_eq!(cells.len(), want, "{name}");
            let own = cells[0].scenario.flows.iter();
            assert!(
                own.clone().any(|flow| flow.name.starts_with(group.own)),
                "{name}"
            );
        }
    }

    #[test]
    fn rows_are_those_of_the_controllers() {
        let controls =
            ["tide", "rap"].map(|name| control(name, &tidegate_sim::controllers()).unwrap());
        let of = |name: &str| {
            let group = GROUPS.iter().find(|group| group.name == name).unwrap();
            play(&[group], &controls, &[], (2, 2), &Share::default()).unwrap()
        };
        let steps = of("steps");
        assert_eq!(steps.len(), 2 * 4);
        let rate = |control: &str| {
            let mut rows = steps.iter();
            let row = rows.find(|row| row.control == control && row.what == "rate");
            row.unwrap().measured
        };
        // The mean capacity is 1.23 Mb/s.
        assert!(
            (1_000.0..1_250.0).contains(&rate("tide")),
            "{}",
            rate("tide")
        );
        assert!((500.0..1_250.0).contains(&rate("rap")), "{}", rate("rap"));
        assert!(
            steps
                .iter()
                .all(|row| row.seeds == 2 && row.least <= row.most)
        );
        let video = of("video");
        let points: Vec<&str> = video.iter().map(|row| row.point.as_str()).collect();
        let [none, one] = ["loss 0.0", "loss 0.01"];
        assert_eq!(points[..6], [none, none, none, one, one, one]);
        let tcp = GROUPS.iter().find(|group| group.name == "tcp").unwrap();
        let cells = tcp.cells(&Subject::Tcp, &[]).unwrap();
        assert_eq!(
            (cells[0].rows[0].as_str(), cells[319].rows[0].as_str()),
            ("kind sack, count 5", "kind cubic, count 1")
        );
    }
}
