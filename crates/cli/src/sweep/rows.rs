//! Metrics that a sweep keeps of each run, and their mean and deviation over the seeds.

use std::collections::BTreeMap;

use tidegate_record::expect::{FLOW_METRICS, LINK_METRICS, flow_metric, link_metric};
use tidegate_record::metrics::FlowSummary;
use tidegate_record::{Expectation, Run, Summary};
use tidegate_sim::scenario::Scenario;

/// Metrics of a flow, link or expectation in one run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) name: String,
    /// Number of flows in the class.
    pub(super) members: u32,
    /// One per [metric](metrics). `None` if a metric does not apply or is unknown.
    pub(super) values: Vec<Option<f64>>,
}

/// Subject of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Expect,
    Flow,
    Link,
}

impl Kind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Expect => "expect",
            Self::Flow => "flow",
            Self::Link => "link",
        }
    }
}

/// Metric columns, in order.
pub(super) fn metrics() -> impl Iterator<Item = &'static str> {
    let flows = FLOW_METRICS.iter().chain(&CLASS_METRICS);
    flows.chain(LINK_METRICS).chain(&VERDICT).copied()
}

/// Index of a metric among [`metrics`]. Panics if the metric is unknown.
pub(super) fn place(metric: &str) -> usize {
    let place = metrics().position(|known| known == metric);
    place.expect("callers use names of known metrics")
}

/// Kind and name of each row of a run of `scenario`, in order.
pub(super) fn labels(scenario: &Scenario) -> Vec<(Kind, &str)> {
    let flows = scenario.flows.iter().map(|flow| flow.name.as_str());
    let baselines = scenario.baselines.iter().map(|b| b.name.as_str());
    let links = scenario.links.iter().map(|link| link.name.as_str());
    let expect = scenario.expect.iter().map(Expectation::text);
    let of = |kind: Kind| move |name| (kind, name);
    let flows = flows.chain(baselines).map(of(Kind::Flow));
    let links = links.map(of(Kind::Link));
    flows
        .chain(links)
        .chain(expect.map(of(Kind::Expect)))
        .collect()
}

/// Rows of a run, in the order of [`labels`].
pub(super) fn of_run(scenario: &Scenario, run: &Run, summary: &Summary) -> Vec<Row> {
    let mut classes: BTreeMap<&str, Vec<&FlowSummary>> = BTreeMap::new();
    for flow in &summary.flows {
        classes.entry(&flow.class).or_default().push(flow);
    }
    let mut links = summary.links.iter();
    let mut verdicts = summary.expect.iter();
    let row = |(kind, name): (Kind, &str)| {
        let (mut flow, mut link, mut verdict) = (
            vec![None; FLOW_METRICS.len() + CLASS_METRICS.len()],
            vec![None; LINK_METRICS.len()],
            vec![None; VERDICT.len()],
        );
        let mut members = 1;
        match kind {
            Kind::Flow => {
                let all = classes.get(name).map_or(&[][..], Vec::as_slice);
                members = all.len() as u32;
                flow = of_class(run, all);
            }
            Kind::Link => {
                let summary = links.next();
                let metrics = LINK_METRICS.iter();
                link = metrics.map(|m| link_metric(summary?, m)).collect();
            }
            Kind::Expect => {
                let summary = verdicts.next();
                verdict = vec![
                    summary.and_then(|v| v.measured),
                    summary.map(|v| f64::from(u8::from(v.holds))),
                ];
            }
        }
        let values = [flow, link, verdict].concat();
        let name = name.to_owned();
        Row {
            kind,
            name,
            members,
            values,
        }
    };
    labels(scenario).into_iter().map(row).collect()
}

/// Means over the flows that have the metric, then [`CLASS_METRICS`].
fn of_class(run: &Run, flows: &[&FlowSummary]) -> Vec<Option<f64>> {
    let over = |metric: &str| -> Vec<f64> {
        let values = flows
            .iter()
            .filter_map(|flow| flow_metric(run, flow, metric));
        values.collect()
    };
    let mut values: Vec<Option<f64>> = FLOW_METRICS.iter().map(|m| mean(&over(m))).collect();
    let received = over("receive_bps");
    let several = received.len() > 1;
    let squares: f64 = received.iter().map(|r| r * r).sum();
    let sum: f64 = received.iter().sum();
    let jain = sum * sum / (received.len() as f64 * squares);
    values.extend([
        received
            .iter()
            .copied()
            .reduce(f64::min)
            .filter(|_| several),
        received
            .iter()
            .copied()
            .reduce(f64::max)
            .filter(|_| several),
        Some(tidy(jain)).filter(|_| several && squares > 0.0),
    ]);
    values
}

/// A metric over the seeds of a point.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) point: usize,
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) members: u32,
    pub(super) metric: &'static str,
    pub(super) mean: f64,
    /// Standard deviation of the sample. `None` for a single run.
    pub(super) deviation: Option<f64>,
    /// Number of runs that have the metric.
    pub(super) runs: usize,
}

/// Each metric that any run of the point has. `runs` are its rows, one list per seed.
pub(super) fn figures(point: usize, runs: &[&[Row]]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (i, row) in runs.first().copied().unwrap_or_default().iter().enumerate() {
        for (j, metric) in metrics().enumerate() {
            let values: Vec<f64> = runs.iter().filter_map(|run| run[i].values[j]).collect();
            let Some(mean) = mean(&values) else {
                continue;
            };
            figures.push(Figure {
                point,
                kind: row.kind,
                name: row.name.clone(),
                members: row.members,
                metric,
                mean,
                deviation: deviation(&values, mean),
                runs: values.len(),
            });
        }
    }
    figures
}

fn mean(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    (!values.is_empty()).then(|| tidy(values.iter().sum::<f64>() / count))
}

/// Sample standard deviation, with n - 1.
fn deviation(values: &[f64], mean: f64) -> Option<f64> {
    let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
    (values.len() > 1).then(|| tidy((squares / (values.len() - 1) as f64).sqrt()))
}

/// Rounds to twelve digits: further digits are rounding errors of the division.
fn tidy(value: f64) -> f64 {
    format!("{value:.11e}").parse().unwrap_or(value)
}

/// Metrics of classes with several flows: lowest and highest receive rate, and Jain's index (sum of
/// rates squared over n times the sum of their squares: 1 if all are equal, 1/n if one has all).
const CLASS_METRICS: [&str; 3] = ["receive_bps.min", "receive_bps.max", "jain"];

/// Metrics of an expectation: its left-hand side, and 1 if it holds or 0 if not.
const VERDICT: [&str; 2] = ["measured", "holds"];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tidegate_record::{Manifest, World};

    use super::*;

    #[test]
    fn column_names_are_unique() {
        let mut all: Vec<&str> = metrics().collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
    }

    #[test]
    fn a_class_has_a_mean_extremes_and_fairness() {
        let flow = |receive: Option<f64>| FlowSummary {
            receive_bps: receive,
            ..FlowSummary::default()
        };
        let flows = [flow(Some(1e6)), flow(Some(3e6)), flow(None)];
        let manifest = Manifest::new(World::Sim, "s", core::time::Duration::ZERO);
        let run = Run::new(Path::new(""), manifest);
        let of = |flows: &[&FlowSummary], metric: &str| of_class(&run, flows)[place(metric)];
        let three: Vec<&FlowSummary> = flows.iter().collect();
        assert_eq!(of(&three, "receive_bps"), Some(2e6));
        assert_eq!(of(&three, "receive_bps.min"), Some(1e6));
        assert_eq!(of(&three, "receive_bps.max"), Some(3e6));
        assert_eq!(of(&three, "jain"), Some(0.8));
        assert_eq!(of(&three, "loss"), None);
        assert_eq!(of(&three[..1], "receive_bps"), Some(1e6));
        assert_eq!(of(&three[..1], "jain"), None);
    }

    #[test]
    fn metrics_without_values_are_dropped() {
        let row = |value: Option<f64>| {
            let mut values = vec![None; metrics().count()];
            values[place("drops")] = value;
            vec![Row {
                kind: Kind::Link,
                name: "up".to_owned(),
                members: 1,
                values,
            }]
        };
        let runs = [row(Some(2.0)), row(Some(4.0)), row(None)];
        let runs: Vec<&[Row]> = runs.iter().map(Vec::as_slice).collect();
        let figures = figures(7, &runs);
        assert_eq!(figures.len(), 1);
        let figure = &figures[0];
        assert_eq!((figure.point, figure.metric, figure.runs), (7, "drops", 2));
        assert!((figure.mean - 3.0).abs() < 1e-12);
        assert!((figure.deviation.unwrap() - 2.0_f64.sqrt()).abs() < 1e-11);
        assert_eq!(super::figures(0, &runs[..1])[0].deviation, None);
    }
}
