//! Benchmark of rate controllers: alone on paths with losses, among their kind, beside TCP, with video,
//! and after blackouts.
//!
//! A `Group` is an embedded scenario with a sweep, in which some flows are under test, and a list of
//! criteria. Each point of the sweep is played with each controller and seed; `judge` computes the
//! rows of a table from the results. `docs/bench.md` gives definitions and reasons.

mod cost;
mod drawn;
mod groups;
mod judge;
mod metrics;
mod recorded;
mod synthetic;
mod table;
pub mod verb;

use serde::{Serialize, Serializer};
use tidegate_core::controller::ControllerConfig;
use tidegate_core::random::Seed;
use tidegate_sim::runner::{self, Keep, PlayError};
use tidegate_sim::scenario::{FlowPlan, Point, Scenario, ScenarioError, Sweep};

use crate::rmcat::{self, Bound};
use metrics::Played;
use recorded::NamedPath;

/// Tests with one scenario.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// Name on the command line and in the table.
    pub(crate) name: &'static str,
    /// File name of the scenario in errors.
    file: &'static str,
    /// Text of the scenario.
    text: &'static str,
    /// Beginning of the names of the flows under test.
    own: &'static str,
    /// Points of the scenario.
    points: Points,
    /// Records that the criteria need.
    keep: Keep,
    /// Criteria, in the order of the table.
    criteria: &'static [Criterion],
}

/// Points of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Points {
    /// Those of its sweep. Each combination of values of so many first axes has rows of its own; the
    /// points of the other axes are its cells.
    Swept(usize),
    /// The scenario as it is.
    Single,
    /// So many paths with drawn properties.
    Drawn(u64),
    /// Recorded paths. Those of a kind have rows of their own, besides those of all.
    Recorded,
}

/// What is measured in each run of a group, and its required range.
#[derive(Clone, Copy, Debug)]
struct Criterion {
    what: &'static str,
    unit: Unit,
    of: fn(&Played<'_>) -> f64,
    /// Whether the quantity is divided by the rate of a flow if all flows are of TCP.
    of_tcp_share: bool,
    over: Over,
    gate: Gate,
    /// Wanted range.
    aim: Option<Bound>,
}

impl Criterion {
    const fn new(what: &'static str, unit: Unit, of: fn(&Played<'_>) -> f64) -> Self {
        Self {
            what,
            unit,
            of,
            of_tcp_share: false,
            over: Over::Mean,
            gate: Gate::None,
            aim: None,
        }
    }

    /// Number of the cells whose mean over the seeds is within a range.
    const fn count(self, what: &'static str, within: Bound) -> Self {
        Self {
            what,
            unit: Unit::Cells,
            over: Over::Count(within),
            ..self
        }
    }

    const fn over(self, what: &'static str, over: Over) -> Self {
        Self { what, over, ..self }
    }

    const fn required(self, bound: Bound) -> Self {
        self.gate(Gate::Required(bound))
    }

    const fn gate(self, gate: Gate) -> Self {
        Self { gate, ..self }
    }

    const fn wanted(self, bound: Bound) -> Self {
        Self {
            aim: Some(bound),
            ..self
        }
    }
}

/// How the values of cells and seeds become one number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Over {
    /// Mean of all.
    Mean,
    /// Number of the cells whose mean over the seeds is within this range.
    Count(Bound),
    /// Lowest mean of a cell.
    Least,
    /// Highest mean of a cell.
    Most,
    /// Median of all runs.
    Median,
    /// Highest of all runs.
    Maximum,
    /// Mean of the last cell over that of the first.
    LastOverFirst,
}

/// Required range of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Gate {
    /// The same in all rows.
    Required(Bound),
    /// This in the row of a point.
    RequiredAt(&'static [(&'static str, Bound)]),
    /// At least what TFRC has.
    AtLeastTfrc,
    /// Printed as it is.
    None,
}

/// Unit of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// Rate in kb/s.
    KbPerS,
    /// Time in milliseconds.
    Ms,
    /// Time in nanoseconds.
    Ns,
    /// Share, in 0..=1.
    Share,
    /// Number of cells.
    Cells,
    /// Index, in 0..=1.
    Index,
    /// Ratio.
    Ratio,
}

impl Unit {
    /// A value with its unit.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            _ if value.is_nan() => "-".to_owned(),
            _ if value.is_infinite() => "never".to_owned(),
            Self::KbPerS => format!("{value:.0} kb/s"),
            Self::Ms => format!("{value:.0} ms"),
            Self::Ns => format!("{value:.0} ns"),
            Self::Share => format!("{:.1} %", value * 100.0),
            Self::Cells => format!("{value:.0}"),
            Self::Index => format!("{value:.3}"),
            Self::Ratio => format!("{value:.2}"),
        }
    }
}

/// One number of one controller.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    /// Name of the group.
    pub(crate) group: &'static str,
    /// Values of the axes that have rows of their own; may be empty.
    pub(crate) point: String,
    /// Quantity.
    pub(crate) what: &'static str,
    /// Controller.
    pub(crate) control: String,
    /// Path with the measured value, if it is that of one path with a name.
    pub(crate) path: Option<String>,
    /// Unit of the numbers.
    pub(crate) unit: Unit,
    /// Measured value; null if it could not be measured, or is infinite.
    #[serde(serialize_with = "finite")]
    pub(crate) measured: f64,
    /// Lowest value over the seeds.
    #[serde(serialize_with = "finite")]
    pub(crate) least: f64,
    /// Highest value over the seeds.
    #[serde(serialize_with = "finite")]
    pub(crate) most: f64,
    /// Number of cells and of seeds.
    pub(crate) cells: usize,
    /// Number of seeds.
    pub(crate) seeds: u64,
    /// Required range.
    pub(crate) gate: Option<Bound>,
    /// Whether the measured value is within the required range; null without one.
    pub(crate) holds: Option<bool>,
    /// Wanted range.
    pub(crate) aim: Option<Bound>,
    /// Whether the measured value is within the wanted range.
    pub(crate) reached: Option<bool>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature of serde")]
fn finite<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    value.is_finite().then_some(*value).serialize(serializer)
}

/// A controller under test, or a reference.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Subject {
    /// A controller with its name on the command line.
    Control(String, ControllerConfig),
    /// The flows under test are of TCP, as the flow `tcp` of the scenario.
    Tcp,
}

/// A point of a group with the scenario of one subject.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// Points whose rows it is part of: the values of the axes that have rows of their own, or all
    /// and the kind of a recorded path.
    rows: Vec<String>,
    /// Name of a recorded path.
    path: Option<String>,
    scenario: Scenario,
}

/// An invalid scenario or a failed run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// A scenario of the benchmark is invalid.
    #[error("{0}")]
    Scenario(ScenarioError),
    /// A run fails: group, subject and seed, and the cause.
    #[error("{0}: {1}")]
    Play(String, PlayError),
}

impl Group {
    /// Whether it needs runs with TCP only.
    fn needs_tcp(&self) -> bool {
        self.criteria.iter().any(|one| one.of_tcp_share)
    }

    /// Whether it needs runs with TFRC.
    fn needs_tfrc(&self) -> bool {
        let mut gates = self.criteria.iter().map(|one| one.gate);
        gates.any(|gate| gate == Gate::AtLeastTfrc)
    }

    /// All points, with the flows under test of `subject`. Recorded paths are those of `paths`.
    ///
    /// # Errors
    /// The embedded scenario is invalid.
    fn cells(&self, subject: &Subject, paths: &[NamedPath]) -> Result<Vec<Cell>, BenchError> {
        let no_files = |_: &str| Err("the program has no trace of this name".to_owned());
        let parse = || Scenario::parse(self.file, self.text, &no_files);
        let cell = |row: String, scenario| Cell {
            rows: vec![row],
            path: None,
            scenario,
        };
        let cells = match self.points {
            Points::Single => {
                let scenario = parse().map_err(BenchError::Scenario)?;
                vec![cell(String::new(), scenario)]
            }
            Points::Drawn(count) => {
                let base = parse().map_err(BenchError::Scenario)?;
                let drawn = |number| cell(String::new(), drawn::path(&base, number));
                (1..=count).map(drawn).collect()
            }
            Points::Recorded => {
                let base = parse().map_err(BenchError::Scenario)?;
                let cell = |one: &NamedPath| Cell {
                    rows: vec![ALL.to_owned(), one.kind.clone()],
                    path: Some(one.name.clone()),
                    scenario: recorded::scenario(&base, &one.path),
                };
                paths.iter().map(cell).collect()
            }
            Points::Swept(axes) => {
                let sweep = Sweep::parse(self.file, self.text, &no_files);
                let sweep = sweep.map_err(BenchError::Scenario)?;
                let keys: Vec<&str> = sweep.axes.iter().map(|axis| short(&axis.key)).collect();
                let swept =
                    |point: Point| cell(label(&keys[..axes], &point.values), point.scenario);
                sweep.points.into_iter().map(swept).collect()
            }
        };
        let with = |mut cell: Cell| {
            self.put(subject, &mut cell.scenario);
            cell
        };
        Ok(cells.into_iter().map(with).collect())
    }

    fn put(&self, subject: &Subject, scenario: &mut Scenario) {
        scenario.baselines.clear();
        scenario.expect.clear();
        let tcp = scenario
            .flows
            .iter()
            .find(|flow| flow.name == "tcp")
            .cloned();
        for flow in &mut scenario.flows {
            if !flow.name.starts_with(self.own) {
                continue;
            }
            match (subject, &tcp) {
                (Subject::Control(_, config), _) => flow.control = Some(config.clone()),
                (Subject::Tcp, Some(tcp)) => {
                    *flow = FlowPlan {
                        name: flow.name.clone(),
                        ..tcp.clone()
                    };
                }
                (Subject::Tcp, None) => {}
            }
        }
    }

    /// Values of all criteria in a run, and the mean rate of a flow in b/s.
    ///
    /// # Errors
    /// The run fails.
    fn play(&self, scenario: &Scenario, seed: Seed) -> Result<(Vec<f64>, f64), PlayError> {
        let result = runner::flows(scenario, seed, self.keep, &rmcat::encoder)?;
        let played = Played {
            scenario,
            result: &result,
            own: self.own,
        };
        let values = self.criteria.iter().map(|one| (one.of)(&played));
        Ok((values.collect(), played.mean_rate_of_all()))
    }
}

/// Last part of a key of a sweep: `delay` of `link.up.delay, link.down.delay`.
fn short(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// `kind sack, count 5`.
fn label(keys: &[&str], values: &[String]) -> String {
    let pairs = keys.iter().zip(values);
    let pairs: Vec<String> = pairs.map(|(key, value)| format!("{key} {value}")).collect();
    pairs.join(", ")
}

/// Point of all recorded paths.
const ALL: &str = "all";
