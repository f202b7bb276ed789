//! `tidegate sim rmcat`

mod peers;

use core::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::control_argument;
use crate::parallel::{self, in_parallel};
use crate::rmcat::{
    self, CASES, Case, Metric, Outcome, Scores, Source, Verdict, is_media, judge, score, scorecard,
};
use anyhow::{Context as _, Result, anyhow};
use serde_json::{Value, json};
use tidegate_core::controller::{ControllerConfig, Controllers};
use tidegate_core::random::Seed;

use tidegate_console::arguments;
use tidegate_console::output::{output, print_json};
use tidegate_console::progress::say;
use tidegate_console::signals::{self, CreatedFolders, Share};

/// Options of the comparison.
#[derive(Debug, clap::Args)]
pub struct RmcatArgs {
    /// Controller of a video call, written as in a scenario, or "fixed" for 1.5 Mb/s; the suffix
    /// "+greedy" replaces video by unlimited data; repeatable
    /// [default: tide, tfrc, rap, these with +greedy, and fixed]
    #[arg(long = "control", value_name = "CONTROL")]
    controls: Vec<String>,
    /// Test case, such as 5.1; repeatable [default: all]
    #[arg(long = "case", value_name = "CASE", value_parser = case)]
    cases: Vec<&'static Case>,
    /// Number of seeds, from 1
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = arguments::seeds)]
    seeds: u64,
    /// Results of other programs for comparison: a folder as `make peers` writes it, or one file
    #[arg(long, value_name = "PATH")]
    peers: Option<PathBuf>,
    /// Folder for the scorecard and the results
    #[arg(long, value_name = "DIR", default_value = "runs/rmcat")]
    out: PathBuf,
    /// Print the metrics as JSON, a list of runs
    #[arg(long)]
    json: bool,
}

/// A controller with its name and source.
#[derive(Clone, Debug)]
struct Control {
    name: String,
    config: ControllerConfig,
    source: Source,
}

/// Runs of one case with one controller, one per seed.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) case: &'static Case,
    pub(crate) control: String,
    /// Whether the runs are of another program.
    pub(crate) peer: bool,
    /// At least one run.
    pub(crate) runs: Vec<ScoredRun>,
}

/// One run with its scores and verdicts.
#[derive(Debug)]
pub(crate) struct ScoredRun {
    pub(crate) outcome: Outcome,
    pub(crate) scores: Scores,
    pub(crate) verdicts: Vec<Verdict>,
}

impl Entry {
    /// Number of runs within all limits.
    pub(crate) fn passes(&self) -> usize {
        self.runs.iter().filter(|run| run.passes()).count()
    }

    /// Mean, minimum and maximum of a metric over the runs that have it.
    pub(crate) fn spread(&self, metric: Metric) -> Option<[f64; 3]> {
        let values: Vec<f64> = self
            .runs
            .iter()
            .filter_map(|r| r.scores.get(metric))
            .collect();
        let least = values.iter().copied().reduce(f64::min)?;
        let most = values.iter().copied().reduce(f64::max)?;
        Some([
            values.iter().sum::<f64>() / values.len() as f64,
            least,
            most,
        ])
    }

    /// Whether all runs are within the limit of this metric; true if it has no limit.
    pub(crate) fn keeps(&self, metric: Metric) -> bool {
        let mut verdicts = self.runs.iter().flat_map(|run| &run.verdicts);
        verdicts.all(|verdict| verdict.metric != metric || verdict.holds)
    }
}

impl ScoredRun {
    /// Scores an outcome, also of another program. The fair shares are those of the case; the
    /// demand of a greedy source is unlimited.
    fn new(case: &'static Case, outcome: Outcome) -> Result<Self> {
        let scenario = case.scenario_sending(outcome.source)?;
        let scores = score(case, &scenario, &outcome);
        let verdicts = judge(case, &scores);
        Ok(Self {
            outcome,
            scores,
            verdicts,
        })
    }

    fn passes(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.holds)
    }
}

/// Runs the cases, prints the table and draws the scorecard. An exceeded limit is printed and is
/// not an error. The exit code is 130 after Ctrl-C.
///
/// # Errors
/// An option is wrong, a run fails, or the results cannot be written.
pub fn run(args: &RmcatArgs, controllers: &Controllers) -> Result<ExitCode> {
    let cases: Vec<&'static Case> = match args.cases.as_slice() {
        [] => CASES.iter().collect(),
        some => some.to_vec(),
    };
    // Errors in the arguments are reported before the runs, which take minutes.
    let named: &[String] = match args.controls.as_slice() {
        [] => &DEFAULT.map(str::to_owned),
        some => some,
    };
    let named = named.iter().map(|text| control(text, controllers));
    let controls: Vec<Control> = named.collect::<Result<_>>()?;
    let interrupts = signals::catch()?;
    let results = args.out.join("results");
    let made = CreatedFolders::by(&results);
    make_folder(&results)?;
    let others = args.peers.as_deref().map(|path| peers::read(path, &cases));
    let others = others.transpose()?.unwrap_or_default();
    let seeds = args.seeds;
    let entries = signals::run_interruptible(Some(&interrupts), "playing", move |done| {
        play(&cases, &controls, seeds, done)
    });
    let Some(entries) = entries else {
        made.undo();
        let what = "the comparison of controllers";
        say(signals::nothing_kept(what, &args.out));
        return Ok(signals::exit_code());
    };
    finish(args, entries?, others)
}

fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|error| {
        anyhow!(
            "cannot make the folder {}: {error}; choose another with --out",
            folder.display()
        )
    })
}

/// Writes the results, the scorecard and the table. `others` are results of other programs.
fn finish(args: &RmcatArgs, mut entries: Vec<Entry>, others: Vec<Entry>) -> Result<ExitCode> {
    let results = args.out.join("results");
    for entry in &entries {
        let outcome = &entry.runs[0].outcome;
        let path = results.join(outcome.file_name());
        let text = serde_json::to_string(outcome)?;
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    entries.extend(others);
    // Order of the cases; Tidegate's controllers before those of other programs.
    let place = |case: &Case| CASES.iter().position(|known| known.id == case.id);
    entries.sort_by_key(|entry| (place(entry.case), entry.peer));
    let page = args.out.join("scorecard.html");
    fs::write(&page, scorecard::page(&entries))
        .with_context(|| format!("cannot write {}: choose another --out", page.display()))?;
    let mut out = output();
    if args.json {
        print_json(&as_json(&entries))?;
    } else {
        write!(out, "{}", table(&entries))?;
        writeln!(out, "\nscorecard: {}", page.display())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs every case with every controller and seed, with one thread per processor.
fn play(
    cases: &[&'static Case],
    controls: &[Control],
    seeds: u64,
    share: &Share,
) -> Result<Vec<Entry>> {
    let mut jobs = Vec::new();
    for case in cases {
        for control in controls {
            let scenario = case.scenario_with(&control.config, control.source)?;
            jobs.extend((1..=seeds).map(|seed| (*case, control, scenario.clone(), seed)));
        }
    }
    let threads = parallel::threads(None);
    let played = in_parallel(jobs.len(), threads, &|done| share.set(done), |n| {
        let (case, control, scenario, seed) = &jobs[n];
        let outcome = rmcat::play(scenario, &control.name, Seed(*seed));
        let scored = outcome.map_err(anyhow::Error::from);
        let scored = scored.and_then(|outcome| ScoredRun::new(case, outcome));
        scored
            .map(|mut scored| {
                // Only the first run is drawn. The time series of all runs would use too much
                // memory.
                if *seed > 1 {
                    scored.outcome.flows.clear();
                }
                scored
            })
            .with_context(|| format!("case {} with {}, seed {seed}", case.id, control.name))
    })?;
    let mut played = played.into_iter();
    let groups = jobs.chunks(seeds as usize);
    let entries = groups.map(|group| {
        let (case, control, ..) = &group[0];
        Entry {
            case,
            control: control.name.clone(),
            peer: false,
            runs: played.by_ref().take(group.len()).collect(),
        }
    });
    Ok(entries.collect())
}

fn case(text: &str) -> Result<&'static Case, String> {
    let known = CASES.map(|case| case.id).join(", ");
    Case::named(text).ok_or_else(|| format!("there is no case \"{text}\"; use {known}"))
}

/// A controller, or "fixed", with an optional source.
fn control(text: &str, controllers: &Controllers) -> Result<Control> {
    let name = text.to_owned();
    let (text, source) = match text.strip_suffix("+greedy") {
        Some(text) => (text, Source::Greedy),
        None => (text, Source::Video),
    };
    let text = match text {
        "fixed" => "fixed:1.5Mb/s",
        other => other,
    };
    Ok(Control {
        name,
        config: control_argument::parse(text, controllers).map_err(|why| anyhow!(why))?,
        source,
    })
}

fn as_json(entries: &[Entry]) -> Value {
    let runs = entries.iter().flat_map(|entry| {
        entry.runs.iter().map(|run| {
            let mut object = json!({
                "case": entry.case.id,
                "title": entry.case.title,
                "source": entry.case.source,
                "control": entry.control,
                "peer": entry.peer,
                "seed": run.outcome.seed,
                "passed": run.passes(),
                "limits": run.verdicts,
                "scores": run.scores,
                "converged": run.scores.converged(),
                "convergence_s": run.scores.convergence_s(),
            });
            // Tidegate's controllers have no library.
            if !run.outcome.library.is_empty() {
                object["library"] = json!(run.outcome.library);
            }
            object
        })
    });
    Value::Array(runs.collect())
}

/// Table for the terminal: a line per case and controller. A value outside its limit has a `!`.
fn table(entries: &[Entry]) -> String {
    let mut out = String::new();
    let width = entries
        .iter()
        .map(|entry| entry.control.chars().count())
        .max();
    let width = width.unwrap_or(0).max(7);
    let _ = writeln!(
        out,
        "{:<14} {:<width$}  {:<8} {:>9} {:>6} {:>9} {:>8} {:>6} {:>6} {:>6} {:>6}  {:>9}",
        "case",
        "control",
        "passes",
        "rate",
        "used",
        "queue p95",
        "loss",
        "Jain",
        "alike",
        "share",
        "least",
        "converged",
    );
    for entry in entries {
        let cell = |metric: Metric| {
            let value = entry.spread(metric).map(|[mean, ..]| metric.show(mean));
            let sign = if entry.keeps(metric) { "" } else { "!" };
            value.map_or_else(|| "-".to_owned(), |value| format!("{value}{sign}"))
        };
        let (followed, of) = converged(entry);
        let _ = writeln!(
            out,
            "{:<14} {:<width$}  {:<8} {:>9} {:>6} {:>9} {:>8} {:>6} {:>6} {:>6} {:>6}  {:>9}",
            entry.case.id,
            entry.control,
            passes(entry),
            format!("{:.2} Mb/s", rate(entry) / 1e6),
            cell(Metric::Utilisation),
            cell(Metric::Queueing),
            cell(Metric::Loss),
            cell(Metric::Jain),
            cell(Metric::Ratio),
            cell(Metric::Share),
            cell(Metric::Least),
            if of > 0 {
                format!("{followed} of {of}")
            } else {
                "-".to_owned()
            },
        );
    }
    out
}

/// `yes`, `no`, or the number of passed seeds and of all seeds.
pub(crate) fn passes(entry: &Entry) -> String {
    match (entry.passes(), entry.runs.len()) {
        (0, 1) => "no".to_owned(),
        (1, 1) => "yes".to_owned(),
        (some, all) => format!("{some} of {all}"),
    }
}

/// Number of changes of the fair share with convergence, and of all changes, over all runs.
pub(crate) fn converged(entry: &Entry) -> (usize, usize) {
    let counts = entry.runs.iter().map(|run| run.scores.converged());
    counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Mean rate of a flow under test, in b/s.
pub(crate) fn rate(entry: &Entry) -> f64 {
    let flows = entry.runs.iter().flat_map(|run| &run.scores.flows);
    let rates = flows
        .filter(|flow| is_media(&flow.name))
        .map(|flow| flow.rate_bps);
    let (sum, count) = rates.fold((0.0, 0.0), |(sum, count), rate| (sum + rate, count + 1.0));
    sum / f64::max(count, 1.0)
}

/// Default controllers: in a call, with greedy sources, and without adaptation.
const DEFAULT: [&str; 7] = [
    "tide",
    "tfrc",
    "rap",
    "tide+greedy",
    "tfrc+greedy",
    "rap+greedy",
    "fixed",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_results_are_in_table_json_and_scorecard() {
        let folder = std::env::temp_dir().join(format!("tidegate-rmcat-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("rmcat-5-1.half.json"), peers::tests::PEER).unwrap();
        fs::write(
            folder.join("other.json"),
            peers::tests::PEER.replace("rmcat-5-1", "other"),
        )
        .unwrap();
        fs::write(folder.join("notes.txt"), "not a result").unwrap();
        let entries = peers::read(&folder, &[case("5.1").unwrap()]);
        fs::write(folder.join("broken.json"), "{}").unwrap();
        let broken = peers::read(&folder, &[]).unwrap_err().to_string();
        fs::remove_dir_all(&folder).unwrap();
        let wanted = "broken.json: not a result of a peer (missing field `scenario`";
        assert!(broken.contains(wanted), "{broken}");
        let entries = entries.unwrap();
        assert_eq!(entries.len(), 1);
        let json = as_json(&entries);
        let run = &json[0];
        assert_eq!(
            (&run["case"], &run["control"]),
            (&json!("5.1"), &json!("half"))
        );
        assert_eq!(
            (&run["peer"], &run["passed"]),
            (&json!(true), &json!(false))
        );
        assert!(run.get("library").is_none(), "the peer names no library");
        let used = &run["limits"][0];
        assert_eq!(
            (&used["metric"], &used["holds"]),
            (&json!("utilisation"), &json!(false))
        );
        assert_eq!(used["bound"], json!({ "at_least": 0.75 }));
        assert!(
            used["measured"]
                .as_f64()
                .is_some_and(|used| (used - 0.5).abs() < 0.01)
        );
        assert_eq!(run["scores"]["queueing_p95_ms"], json!(350.0));
        let page = scorecard::page(&entries);
        assert!(page.contains("✗ fails") && page.contains("<small>peer</small>"));
        assert!(!page.contains("http"), "the page loads no resources");
        assert!(table(&entries).contains("350 ms!"));
    }

    #[test]
    fn controllers_have_the_syntax_of_scenarios() {
        let control = |text| super::control(text, &tidegate_sim::controllers());
        for (text, name) in [
            ("tfrc", "tfrc"),
            ("{ rap = { fine_grain = true } }", "rap"),
            ("fixed", "fixed"),
        ] {
            assert_eq!(control(text).unwrap().config.name(), name);
        }
        let error = control("tcp-friendly").unwrap_err().to_string();
        assert_eq!(
            error,
            "\"tcp-friendly\" is not a rate control: choose tfrc, rap, rcs, tide or fixed:2Mb/s"
        );
        assert!(control("{ rap = { fine = true } }").is_err());
        let error = case("9.9").unwrap_err();
        assert!(
            error.starts_with("there is no case \"9.9\"; use 5.1, 5.1-far, "),
            "{error}"
        );
    }
}
