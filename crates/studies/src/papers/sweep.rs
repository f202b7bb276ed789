//! Simulated runs over values of a parameter, with the seeds of the options.

use core::time::Duration;

use tidegate_core::random::Seed;
use tidegate_record::Totals;
use tidegate_report::plot::{Cell, Figure, Point, Series, Table};
use tidegate_sim::runner::{self, Keep, RunResult};

use super::runs::{Job, scenario};
use super::{Options, PapersError, Progress};
use crate::parallel::in_parallel;
use crate::rmcat::view::fairness;

/// A network and its flows.
pub(super) trait ScenarioText {
    /// Note of each figure about the network; may be empty.
    const NOTE: &'static str = "";

    /// The scenario as the text of a file.
    fn text(&self) -> String;
}

/// Counters of one run.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    /// Name of the group and counters of each flow.
    flows: Vec<(String, Totals)>,
    /// Bytes received by each group in each bin of the measurement.
    bins: Vec<(String, Vec<f64>)>,
}

impl Run {
    /// Data packets per second of each flow of a group.
    pub(super) fn shares(&self, group: &str) -> Vec<f64> {
        let of_group = self.flows.iter().filter(|(name, _)| name == group);
        let rate = |totals: &Totals| totals.received.packets as f64 / totals.span.as_secs_f64();
        of_group.map(|(_, totals)| rate(totals)).collect()
    }

    /// Data packets per second of a group.
    pub(super) fn total(&self, group: &str) -> f64 {
        self.shares(group).iter().sum()
    }

    /// Mean of the flows of a group.
    pub(super) fn mean(&self, group: &str) -> f64 {
        mean(&self.shares(group))
    }

    /// Throughput of a group in b/s, with all headers.
    pub(super) fn rate(&self, group: &str) -> f64 {
        self.rates(group).sum()
    }

    /// Number of flows of a group.
    pub(super) fn count(&self, group: &str) -> f64 {
        self.rates(group).count() as f64
    }

    /// The smallest or largest throughput of a flow of a group in b/s; `select` chooses between two.
    pub(super) fn extreme(&self, group: &str, select: fn(f64, f64) -> f64) -> f64 {
        self.rates(group).reduce(select).unwrap_or(f64::NAN)
    }

    fn rates(&self, group: &str) -> impl Iterator<Item = f64> {
        let of_group = self.flows.iter().filter(move |(name, _)| name == group);
        of_group.map(|(_, totals)| totals.received.bytes.bits() as f64 / totals.span.as_secs_f64())
    }

    /// Coefficient of variation of the throughput of a group, sampled in bins of [`BIN`].
    pub(super) fn variation(&self, group: &str) -> f64 {
        let mut bins = self.bins.iter();
        let Some((_, bins)) = bins.find(|(name, _)| name == group) else {
            return f64::NAN;
        };
        let mean = mean(bins);
        let squares = bins.iter().map(|bin| (bin - mean) * (bin - mean));
        (squares.sum::<f64>() / bins.len() as f64).sqrt() / mean
    }

    /// Share of the packets of groups that were lost.
    pub(super) fn loss(&self, groups: &[&str]) -> f64 {
        let of_groups = self.flows.iter();
        let of_groups = of_groups.filter(|(name, _)| groups.contains(&name.as_str()));
        let (sent, lost) = of_groups.fold((0, 0), |(sent, lost), (_, totals)| {
            (sent + totals.sent.packets, lost + totals.dropped)
        });
        lost as f64 / sent as f64
    }

    /// Share of dummy packets in all packets sent by a group.
    pub(super) fn overhead(&self, group: &str) -> f64 {
        let of_group = || self.flows.iter().filter(|(name, _)| name == group);
        let dummies: u64 = of_group().map(|(_, totals)| totals.dummies.sent).sum();
        let data: u64 = of_group().map(|(_, totals)| totals.sent.packets).sum();
        dummies as f64 / (dummies + data) as f64
    }

    /// Jain's index of all flows, equation (8).
    pub(super) fn jain(&self, groups: &[&str]) -> f64 {
        let shares: Vec<f64> = groups.iter().flat_map(|group| self.shares(group)).collect();
        fairness::jain(&shares)
    }
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// One curve: a path for each value of the parameter.
pub(super) struct Curve<'a> {
    pub(super) name: String,
    text: Box<dyn Fn(f64) -> String + 'a>,
    note: &'static str,
}

impl<'a> Curve<'a> {
    pub(super) fn new<T: ScenarioText>(
        name: impl Into<String>,
        scenario: impl Fn(f64) -> T + 'a,
    ) -> Self {
        Self {
            name: name.into(),
            text: Box::new(move |value| scenario(value).text()),
            note: T::NOTE,
        }
    }
}

/// All runs of a figure.
#[derive(Debug)]
pub(super) struct Sweep {
    pub(super) values: Vec<f64>,
    pub(super) names: Vec<String>,
    note: &'static str,
    /// By curve, value and seed; without runs of the lab that failed.
    runs: Vec<Vec<Vec<Run>>>,
}

impl Sweep {
    /// Plays every curve at every value with every seed.
    ///
    /// # Errors
    /// A run fails.
    pub(super) fn play(
        values: &[f64],
        curves: &[Curve<'_>],
        options: &Options,
        progress: Progress<'_>,
    ) -> Result<Self, PapersError> {
        let mut jobs = Vec::new();
        for curve in curves {
            for value in values {
                let label = format!("{}-{value}", curve.name);
                let job = Job::new(&label, (curve.text)(*value))?;
                jobs.extend((1..=options.seeds).map(|seed| job.with_seed(seed)));
            }
        }
        let mut played = play_all(&jobs, options, progress)?.into_iter();
        let mut seeds = || {
            let seeds = played.by_ref().take(options.seeds as usize);
            seeds.flatten().collect()
        };
        let runs = curves
            .iter()
            .map(|_| values.iter().map(|_| seeds()).collect());
        Ok(Self {
            runs: runs.collect(),
            values: values.to_vec(),
            names: curves.iter().map(|curve| curve.name.clone()).collect(),
            note: curves.first().map_or("", |curve| curve.note),
        })
    }

    /// A quantity of each run of a curve at a value.
    pub(super) fn each(&self, curve: usize, value: usize, of: impl Fn(&Run) -> f64) -> Vec<f64> {
        self.runs[curve][value].iter().map(of).collect()
    }

    /// Its mean over the seeds.
    pub(super) fn mean(&self, curve: usize, value: usize, of: impl Fn(&Run) -> f64) -> f64 {
        mean(&self.each(curve, value, of))
    }

    /// The mean at the value where it is farthest from one.
    pub(super) fn deviant(&self, curve: usize, of: impl Fn(&Run) -> f64) -> f64 {
        let means = (0..self.values.len()).map(|value| self.mean(curve, value, &of));
        let worst = means.max_by(|a, b| (a - 1.0).abs().total_cmp(&(b - 1.0).abs()));
        worst.unwrap_or(f64::NAN)
    }

    /// Mean over all values.
    pub(super) fn row_mean(&self, curve: usize, of: impl Fn(&Run) -> f64) -> f64 {
        let means = (0..self.values.len()).map(|value| self.mean(curve, value, &of));
        mean(&means.collect::<Vec<_>>())
    }

    /// Position of the value closest to `value`.
    pub(super) fn at(&self, value: f64) -> usize {
        let distance = |n: &usize| (self.values[*n] - value).abs();
        let all = 0..self.values.len();
        all.min_by(|a, b| distance(a).total_cmp(&distance(b)))
            .unwrap_or(0)
    }

    /// Points of a curve.
    fn series(
        &self,
        name: String,
        units: (&str, &str),
        curve: usize,
        of: impl Fn(&Run, f64) -> f64,
    ) -> Series {
        let point = |n: usize| {
            let value = self.values[n];
            Point::over(value, &self.each(curve, n, |run| of(run, value)))
        };
        let points = (0..self.values.len()).filter_map(point).collect();
        Series::new(name, units, points)
    }

    /// Adds a column per curve to the table and a series to the drawing.
    pub(super) fn draw(
        &self,
        figure: &mut Figure,
        panel: &str,
        units: (&str, &str),
        of: impl Fn(&Run) -> f64,
        curves: impl IntoIterator<Item = usize>,
    ) {
        self.draw_each(figure, panel, units, curves, |run, _| of(run));
    }

    /// The same for a quantity that depends on the value of the parameter.
    pub(super) fn draw_each(
        &self,
        figure: &mut Figure,
        panel: &str,
        units: (&str, &str),
        curves: impl IntoIterator<Item = usize>,
        of: impl Fn(&Run, f64) -> f64,
    ) {
        if figure.table.is_none() && !self.note.is_empty() {
            figure.notes.push(self.note.to_owned());
        }
        let table = figure.table.get_or_insert_with(|| Table {
            columns: vec![units.0.to_owned()],
            rows: self
                .values
                .iter()
                .map(|value| vec![short(*value)])
                .collect(),
        });
        for curve in curves {
            let name = &self.names[curve];
            let heading = if panel.is_empty() {
                name.clone()
            } else {
                format!("{panel}: {name}")
            };
            table.columns.push(heading.clone());
            for (n, row) in table.rows.iter_mut().enumerate() {
                let value = self.values[n];
                let values = self.each(curve, n, |run| of(run, value));
                let point = Point::over(value, &values);
                row.push(point.map_or(Cell::Empty, |point| spread(&point)));
            }
            figure.series.push(self.series(heading, units, curve, &of));
        }
    }
}

/// Mean, and the range over the seeds. The series have the same as numbers.
fn spread(point: &Point) -> Cell {
    let Point { y, lo, hi, .. } = point;
    if lo >= hi {
        return Cell::from(*y);
    }
    Cell::Text(format!("{y:.3} ({lo:.3} to {hi:.3})"))
}

/// Small probabilities would be rounded to zero.
fn short(value: f64) -> Cell {
    Cell::Text(format!("{value}"))
}

/// Plays the jobs on the testbed of the options. None for runs of the lab that failed.
fn play_all(
    jobs: &[Job],
    options: &Options,
    progress: Progress<'_>,
) -> Result<Vec<Option<Run>>, PapersError> {
    // Entries that differ in their quantities only have the same runs.
    let memory = options.is_lab().then(|| options.memory.flows());
    let known = |job: &Job| memory.and_then(|memory| memory.recall(job));
    let left: Vec<Job> = jobs
        .iter()
        .filter(|job| known(job).is_none())
        .cloned()
        .collect();
    if !left.is_empty() {
        options.world.begin(&left, options.threads);
    }
    in_parallel(jobs.len(), options.threads, progress, |n| {
        if let Some(run) = known(&jobs[n]) {
            return Ok(Some(run));
        }
        let run = options.world.flows(&jobs[n], KEEP)?;
        let run = run.as_ref().map(counters);
        if let (Some(memory), Some(run)) = (memory, &run) {
            memory.keep(&jobs[n], run);
        }
        Ok(run)
    })
}

/// Plays one run.
///
/// # Errors
/// The run fails.
pub(super) fn play(text: &str, seed: u64, keep: Keep) -> Result<RunResult, PapersError> {
    let scenario = scenario("papers", text)?;
    let encoder = |_: &str, _: &_, _| unreachable!("no flow has video");
    runner::flows(&scenario, Seed(seed), keep, &encoder).map_err(PapersError::Play)
}

/// Counters of a run.
pub(super) fn counters(run: &RunResult) -> Run {
    let flows = run.flows.iter().enumerate();
    let flows = flows.map(|(n, (flow, _))| (flow.class.clone(), run.meter.totals(n)));
    let mut bins: Vec<(String, Vec<f64>)> = Vec::new();
    let (from, to) = run.meter.window();
    let inside = (from.as_secs_f64() / BIN.as_secs_f64()) as usize
        ..(to.as_secs_f64() / BIN.as_secs_f64()) as usize;
    for (n, (flow, _)) in run.flows.iter().enumerate() {
        let group = bins.iter().position(|(name, _)| *name == flow.class);
        let group = group.unwrap_or_else(|| {
            bins.push((flow.class.clone(), vec![0.0; inside.len()]));
            bins.len() - 1
        });
        for (number, bin) in run.meter.bins(n).enumerate() {
            if inside.contains(&number) {
                bins[group].1[number - inside.start] += bin.received.bytes.get() as f64;
            }
        }
    }
    Run {
        flows: flows.collect(),
        bins,
    }
}

/// Sampling interval of the throughput.
const BIN: Duration = Duration::from_secs(1);

const KEEP: Keep = Keep {
    bin: BIN,
    ..Keep::COUNTERS
};
