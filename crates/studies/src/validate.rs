//! Validation of the simulator against ns-2.
//!
//! The reference is data of ns-2 (`data/ns2`, means over seeds). The scenarios are a few files
//! (`scenarios/validate`), in which each point of the data changes some lines. A [`Case`] is one
//! such point: it builds the [`Scenario`], [runs](Case::play) it with a seed and
//! [compares](Case::judge) the means over seeds. `docs/validation.md` gives the tolerances and the
//! results.

mod figures;
mod measure;
mod points;
mod reference;
pub mod verb;

use core::fmt;

use serde::Serialize;
use tidegate_core::media::EncodeError;
use tidegate_core::random::Seed;

use measure::Measured;
use points::Set;
use reference::{Mean, PacketArrival};
use tidegate_report::plot::Figure;
use tidegate_sim::runner::{self, PlayError};
use tidegate_sim::scenario::{Scenario, ScenarioError};

/// One point: a scenario and the results of ns-2.
#[derive(Clone, Debug)]
pub struct Case {
    set: Set,
    point: String,
    means: Vec<Mean>,
    marks: Vec<PacketArrival>,
}

/// One metric of one point: the reference and the simulator's result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Set, point and metric, such as `shared tfrc_vs_tfrc exp_25_125 8: a.pps`.
    pub what: String,
    /// Mean over the seeds of the reference.
    pub theirs: f64,
    /// Mean over the simulator's seeds. None if the metric could not be measured.
    pub ours: Option<f64>,
    /// Standard deviation over the seeds of the reference.
    pub spread: f64,
    /// Standard deviation over the seeds of the simulator.
    pub our_spread: f64,
    /// Number of seeds of the reference.
    pub n: u32,
    /// Number of seeds of the simulator.
    pub our_n: u32,
    /// Allowed difference of the two means.
    pub allowed: f64,
    /// Whether the difference is within the allowed one.
    pub holds: bool,
    /// Known reason for a larger difference, if the difference is within the limit of that reason.
    pub excuse: Option<&'static str>,
}

/// Charts of rows: reference and simulator.
pub fn figures(rows: &[Row]) -> Vec<Figure> {
    figures::figures(rows)
}

/// Measurements of one seed.
#[derive(Clone, Debug)]
pub struct SeedMetrics(Vec<Measured>);

impl Case {
    /// All cases, or a short list for tests.
    pub fn all(quick: bool) -> Vec<Self> {
        let mut cases: Vec<Self> = Vec::new();
        for (set, point, mean) in reference::means() {
            case(&mut cases, &set, &point).means.push(mean);
        }
        for (set, point, mark) in reference::marks() {
            case(&mut cases, &set, &point).marks.push(mark);
        }
        cases.retain(|case| !quick || QUICK.contains(&case.name().as_str()));
        cases
    }

    /// Set and point, such as `response reno reno 0.01 0.1 26.7 890.2`.
    pub fn name(&self) -> String {
        format!("{} {}", self.set.name(), self.point)
    }

    /// Number of seeds: that of the reference, but at least three to estimate the spread.
    /// One if the case is deterministic.
    pub fn seeds(&self) -> u32 {
        let theirs = self.means.iter().map(|mean| mean.n).max().unwrap_or(1);
        if self.is_random() {
            theirs.max(MIN_SEEDS)
        } else {
            1
        }
    }

    /// Whether results depend on the seed. Cases with arrival times per packet are deterministic.
    pub fn is_random(&self) -> bool {
        self.marks.is_empty()
    }

    /// Whether `pattern` is a prefix of the name at a word boundary.
    pub fn matches(&self, pattern: &str) -> bool {
        format!(" {}", self.name()).contains(&format!(" {pattern}"))
    }

    /// The scenario.
    ///
    /// # Errors
    /// The scenario file with the lines of this point is invalid, which is a bug.
    pub fn scenario(&self) -> Result<Scenario, ScenarioError> {
        let text = self.set.text(&self.point);
        let file = format!("{}.toml", self.set.file());
        Scenario::parse(&file, &text, &|_| {
            Err("embedded scenarios have no files".to_owned())
        })
    }

    /// Runs the case.
    ///
    /// # Errors
    /// The scenario is invalid or its run fails.
    pub fn play(&self, seed: Seed) -> Result<SeedMetrics, CaseError> {
        let failed = |fault| CaseError {
            case: self.name(),
            fault,
        };
        let scenario = self.scenario();
        let scenario = scenario.map_err(|error| failed(CaseErrorKind::Scenario(error)))?;
        let no_video =
            |_: &str, _: &_, _| Err(EncodeError::Source("no encoder available".to_owned()));
        let keep = measure::keep(&self.means, &self.marks);
        let take = runner::flows(&scenario, seed, keep, &no_video);
        let take = take.map_err(|error| failed(CaseErrorKind::Play(error)))?;
        let means = self.means.iter().map(|mean| mean.what.as_str());
        let mut measured: Vec<Measured> = means
            .map(|what| measure::number(what, &scenario, &take))
            .collect();
        if !self.marks.is_empty() {
            measured.extend(measure::packets(&self.marks, &scenario, &take));
        }
        Ok(SeedMetrics(measured))
    }

    /// Compares the runs with the reference: one row per metric.
    pub fn judge(&self, played: &[SeedMetrics]) -> Vec<Row> {
        let mut whats: Vec<Mean> = self.means.clone();
        if !self.marks.is_empty() {
            whats.extend(reference::of_marks(&self.marks));
        }
        let rows = whats.iter().enumerate().filter_map(|(i, mean)| {
            let ours: Vec<f64> = played.iter().filter_map(|p| p.0[i]).collect();
            let exact = self.set.is_exact(&self.point);
            // Where ties decide, individual packets are not expected to match ns-2.
            let comparable = exact || mean.what != reference::FURTHEST;
            comparable.then(|| self.row(mean, &ours, exact))
        });
        rows.collect()
    }

    fn row(&self, mean: &Mean, ours: &[f64], exact: bool) -> Row {
        let (our_mean, our_spread) = mean_and_spread(ours);
        // One or two runs of the reference do not give a spread.
        let spread = if mean.n < 3 {
            mean.spread.max(our_spread)
        } else {
            mean.spread
        };
        // Two standard errors of the difference of two means.
        let error = 2.0
            * (spread * spread / f64::from(mean.n)
                + our_spread * our_spread / (ours.len() as f64).max(1.0))
            .sqrt();
        let allowed = match mean.what.as_str() {
            reference::FURTHEST => FURTHEST_US,
            reference::PACKETS | "dropped" | "sent" if exact => 0.0,
            what => (tolerance(what) * mean.value).max(spread).max(error),
        };
        let off = (our_mean - mean.value).abs();
        let excuse = self.set.excuse(&self.point, mean);
        Row {
            what: format!("{}: {}", self.name(), mean.what),
            theirs: mean.value,
            ours: (!ours.is_empty()).then_some(our_mean),
            spread,
            our_spread,
            n: mean.n,
            our_n: ours.len() as u32,
            allowed,
            holds: !ours.is_empty() && off <= allowed,
            excuse: excuse.and_then(|(why, times)| (off <= times * allowed).then_some(why)),
        }
    }
}

/// The case of this point, appended if it is new.
fn case<'a>(cases: &'a mut Vec<Case>, set: &str, point: &str) -> &'a mut Case {
    let set = Set::named(set);
    let known = cases
        .iter()
        .position(|case| case.set == set && case.point == point);
    let place = known.unwrap_or(cases.len());
    if known.is_none() {
        cases.push(Case {
            set,
            point: point.to_owned(),
            means: Vec::new(),
            marks: Vec::new(),
        });
    }
    &mut cases[place]
}

/// Relative tolerance. Losses are rarer than packets, hence less certain.
fn tolerance(what: &str) -> f64 {
    let of_losses = [
        "dropped",
        "loss",
        "loss_events",
        "queue_loss",
        "reported_1_p",
        "reported_p",
    ];
    let metric = what.rsplit('.').next().unwrap_or(what);
    if of_losses.contains(&metric) {
        0.15
    } else {
        0.1
    }
}

/// Mean and standard deviation of a sample.
fn mean_and_spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

/// Error of a case.
#[derive(Debug)]
pub struct CaseError {
    /// Name of the case.
    pub case: String,
    /// Cause.
    pub fault: CaseErrorKind,
}

/// Cause of a [`CaseError`].
#[derive(Debug)]
pub enum CaseErrorKind {
    /// The run fails.
    Play(PlayError),
    /// The scenario is invalid.
    Scenario(ScenarioError),
}

impl fmt::Display for CaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.case)?;
        match &self.fault {
            CaseErrorKind::Play(error) => write!(f, "{error}"),
            CaseErrorKind::Scenario(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for CaseError {}

/// Minimum number of seeds for an estimate of the spread.
const MIN_SEEDS: u32 = 3;

/// Tolerance of a packet's arrival time in µs. ns-2 adds floating-point seconds, the simulator
/// integer nanoseconds, and some decisions compare two sums.
const FURTHEST_US: f64 = 50.0;

/// Cases of `--quick`: at least one of each set and of each controller.
const QUICK: &[&str] = &[
    "shared sack_vs_tfrc exp_25_125 4",
    "start std_q50_ov0.0008",
    "satellite P rap 0.01 0.55 50 0",
    "response default tfrc 0.01 0.1 26.7 890.2",
    "response reno reno 0.01 0.1 26.7 890.2",
    "red exp_25_125 1.1",
    "queue reno",
    "queue rap",
    "every sack",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_parse_and_have_all_reference_metrics() {
        let cases = Case::all(false);
        assert!(cases.len() > 150, "{}", cases.len());
        for case in &cases {
            let scenario = case.scenario().unwrap_or_else(|error| panic!("{error}"));
            for mean in &case.means {
                assert!(measure::is_known(&mean.what, &scenario), "{}", mean.what);
            }
        }
    }

    #[test]
    fn quick_cases_exist() {
        let names: Vec<String> = Case::all(true).iter().map(Case::name).collect();
        for quick in QUICK {
            assert!(names.iter().any(|name| name == quick), "{quick}");
        }
    }

    #[test]
    fn row_holds_within_tolerance_or_spread() {
        let case = &Case::all(true)[0];
        let row = |what: &str, spread, n, ours: &[f64]| {
            let mean = Mean {
                what: what.to_owned(),
                value: 100.0,
                spread,
                n,
            };
            case.row(&mean, ours, false).holds
        };
        assert!(row("a.pps", 1.0, 5, &[109.0, 110.0]));
        assert!(!row("a.pps", 1.0, 5, &[109.0, 112.0]));
        assert!(row("a.loss", 1.0, 5, &[114.0]));
        assert!(row("a.pps", 13.0, 5, &[112.0]));
        // ns-2 ran once: the spread is that of the simulator.
        assert!(row("a.pps", 0.0, 1, &[80.0, 120.0, 140.0]));
        assert!(row("a.pps", 0.0, 5, &[90.0, 110.0, 136.0]));
        assert!(!row("a.pps", 0.0, 5, &[110.0, 113.0, 115.0]));
        assert!(!row("a.pps", 1.0, 5, &[]));
    }
}
