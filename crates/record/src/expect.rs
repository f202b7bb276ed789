//! Expectations of a run, such as `tidegate.delay_ms.p99 <= 400`.
//!
//! An expectation compares a metric of a flow, `FLOW.METRIC`, or of a link, `link.LINK.METRIC`,
//! with a number or with another metric, which may have a factor: `a.rate_bps >= 0.8 * b.rate_bps`.
//! The name of a class of several flows stands for their mean.
//! The comparisons are `>=`, `<=`, `>`, `<` and `==`. An expectation fails if the run does not
//! record its metric.

mod error;

use core::str::FromStr;

use tidegate_core::quantity;

use crate::metrics::{FlowSummary, LinkSummary, Summary, Verdict, on_time_of_savable};
use crate::reader::Run;
pub use error::ExpectError;

/// A condition on the metrics of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    text: String,
    left: Path,
    comparison: Comparison,
    right: Right,
}

impl Expectation {
    /// Text of the expectation as in the scenario.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Checks that its flows and links exist.
    ///
    /// # Errors
    /// The first unknown name.
    pub fn check(&self, flows: &[&str], links: &[&str]) -> Result<(), ExpectError> {
        let right = match &self.right {
            Right::Number(_) => None,
            Right::Metric { path, .. } => Some(path),
        };
        for path in core::iter::once(&self.left).chain(right) {
            let (name, known) = match path {
                Path::Flow { name, .. } => (name, flows),
                Path::Link { name, .. } => (name, links),
            };
            if !known.contains(&name.as_str()) {
                return Err(ExpectError::UnknownName {
                    text: self.text.clone(),
                    name: name.clone(),
                    known: known.iter().map(|&k| k.to_owned()).collect(),
                });
            }
        }
        Ok(())
    }

    /// Metrics of flows that it compares: flow and metric.
    pub fn of_flows(&self) -> impl Iterator<Item = (&str, &'static str)> {
        let right = match &self.right {
            Right::Number(_) => None,
            Right::Metric { path, .. } => Some(path),
        };
        let paths = core::iter::once(&self.left).chain(right);
        paths.filter_map(|path| match path {
            Path::Flow { name, metric } => Some((name.as_str(), *metric)),
            Path::Link { .. } => None,
        })
    }

    /// Evaluates the condition for `run`, whose metrics are `summary`.
    pub fn judge(&self, run: &Run, summary: &Summary) -> Verdict {
        let measured = self.left.value(run, summary);
        let wanted = match &self.right {
            Right::Number(number) => Some(*number),
            Right::Metric { factor, path } => path.value(run, summary).map(|v| v * factor),
        };
        let holds = measured
            .zip(wanted)
            .is_some_and(|(measured, wanted)| self.comparison.holds(measured, wanted));
        Verdict {
            text: self.text.clone(),
            measured,
            holds,
        }
    }
}

impl FromStr for Expectation {
    type Err = ExpectError;

    fn from_str(text: &str) -> Result<Self, ExpectError> {
        let malformed = || ExpectError::Malformed {
            text: text.to_owned(),
        };
        if ["=>", "=<"].iter().any(|slip| text.contains(slip)) {
            return Err(malformed());
        }
        // Two-character operators first: `>` is a prefix of `>=`.
        let (sign, comparison) = COMPARISONS
            .into_iter()
            .find(|(sign, _)| text.contains(sign))
            .ok_or_else(malformed)?;
        let (left, right) = text.split_once(sign).ok_or_else(malformed)?;
        let right = right.trim();
        let right = if let Some(number) = number(right) {
            Right::Number(number)
        } else if begins_a_number(right) {
            let metric = Path::parse(left.trim(), text)?.metric();
            return Err(ExpectError::NotPlain {
                text: text.to_owned(),
                value: right.to_owned(),
                metric,
            });
        } else {
            let (factor, path) = match right.split_once('*') {
                Some((factor, path)) => (number(factor.trim()).ok_or_else(malformed)?, path),
                None => (1.0, right),
            };
            let path = Path::parse(path.trim(), text)?;
            Right::Metric { factor, path }
        };
        Ok(Self {
            text: text.to_owned(),
            left: Path::parse(left.trim(), text)?,
            comparison,
            right,
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Right {
    Number(f64),
    Metric { factor: f64, path: Path },
}

#[derive(Clone, Debug, PartialEq)]
enum Path {
    Flow { name: String, metric: &'static str },
    Link { name: String, metric: &'static str },
}

impl Path {
    fn parse(path: &str, text: &str) -> Result<Self, ExpectError> {
        let malformed = || ExpectError::Malformed {
            text: text.to_owned(),
        };
        let known = |metric: &str, metrics: &'static [&'static str]| {
            let found = metrics.iter().find(|m| **m == metric).copied();
            found.ok_or_else(|| ExpectError::UnknownMetric {
                text: text.to_owned(),
                metric: metric.to_owned(),
                allowed: metrics,
            })
        };
        let (name, metric) = path.split_once('.').ok_or_else(malformed)?;
        let (name, metric) = match name {
            "link" => {
                let (name, metric) = metric.split_once('.').ok_or_else(malformed)?;
                let metric = known(metric, LINK_METRICS)?;
                return if is_name(name) {
                    let name = name.to_owned();
                    Ok(Self::Link { name, metric })
                } else {
                    Err(malformed())
                };
            }
            name if is_name(name) => (name.to_owned(), known(metric, FLOW_METRICS)?),
            _ => return Err(malformed()),
        };
        Ok(Self::Flow { name, metric })
    }

    fn metric(&self) -> &'static str {
        match self {
            Self::Flow { metric, .. } | Self::Link { metric, .. } => metric,
        }
    }

    fn value(&self, run: &Run, summary: &Summary) -> Option<f64> {
        match self {
            Self::Flow { name, metric } => {
                let of = |flow| flow_metric(run, flow, metric);
                let flows = summary.flows.iter();
                let named = |flow: &&FlowSummary| flow.name == *name || flow.class == *name;
                let values: Option<Vec<f64>> = flows.filter(named).map(of).collect();
                let values = values.filter(|values| !values.is_empty())?;
                Some(values.iter().sum::<f64>() / values.len() as f64)
            }
            Self::Link { name, metric } => {
                let link = summary.links.iter().find(|link| link.name == *name)?;
                link_metric(link, metric)
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    AtLeast,
    AtMost,
    Equal,
    Less,
    More,
}

impl Comparison {
    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::AtLeast => left >= right,
            Self::AtMost => left <= right,
            Self::Equal => (left - right).abs() <= EQUAL * right.abs().max(1.0),
            Self::Less => left < right,
            Self::More => left > right,
        }
    }
}

/// Value of `metric`, one of [`FLOW_METRICS`], for `flow`, a flow of `run`. `None` if the run does
/// not record it.
pub fn flow_metric(run: &Run, flow: &FlowSummary, metric: &str) -> Option<f64> {
    let frames = &flow.frames;
    let count = |n: Option<u64>| n.map(|n| n as f64);
    match metric {
        "delay_ms.max" => flow.delay_ms.max,
        "delay_ms.p50" => flow.delay_ms.p50,
        "delay_ms.p95" => flow.delay_ms.p95,
        "delay_ms.p99" => flow.delay_ms.p99,
        "frames.dropped" => count(frames.dropped),
        "frames.late" => count(frames.late),
        "frames.made" => count(frames.made),
        "frames.on_time" => count(frames.on_time),
        "frames.savable" => count(frames.savable),
        "frames.sent" => count(frames.sent),
        "freezes" => count(flow.freezes),
        "loss" => flow.loss,
        "loss_event_rate" => flow.loss_event_rate,
        "on_time_of_all" => {
            let made = count(frames.made).filter(|made| *made > 0.0)?;
            Some(count(frames.on_time)? / made)
        }
        "on_time_of_savable" => on_time_of_savable(&run.manifest, run.flow(&flow.name)?),
        "packet_delay_ms.max" => flow.packet_delay_ms.max,
        "packet_delay_ms.mean" => flow.packet_delay_ms.mean,
        "packet_delay_ms.p50" => flow.packet_delay_ms.p50,
        "packet_delay_ms.p95" => flow.packet_delay_ms.p95,
        "packet_delay_ms.p99" => flow.packet_delay_ms.p99,
        "psnr_y_db" => flow.psnr_y_db,
        "queue_ms.mean" => flow.queue_ms.mean,
        "queue_ms.p95" => flow.queue_ms.p95,
        "rate_bps" => flow.rate_bps,
        "receive_bps" => flow.receive_bps,
        "rtt_ms" => flow.rtt_ms,
        "completion_s" => flow.completion_s,
        "ssim" => flow.ssim,
        _ => None,
    }
}

/// Property that a flow needs for a metric to exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// A limit on the data that it sends.
    Limit,
    /// Video frames.
    Video,
}

impl Needs {
    /// What a flow has, as in "flows with …".
    const fn name(self) -> &'static str {
        match self {
            Self::Limit => "a limit",
            Self::Video => "video",
        }
    }

    /// Requirement of a metric of [`FLOW_METRICS`]; `None` if all flows have the metric.
    pub fn of(metric: &str) -> Option<Self> {
        if metric == "completion_s" {
            return Some(Self::Limit);
        }
        let video = OF_VIDEO.iter().any(|start| metric.starts_with(start));
        video.then_some(Self::Video)
    }
}

/// Prefixes of the metrics of video flows.
const OF_VIDEO: [&str; 6] = [
    "delay_ms.",
    "frames.",
    "freezes",
    "on_time_of_",
    "psnr_",
    "ssim",
];

/// Value of `metric`, one of [`LINK_METRICS`], for `link`. `None` if the run does not record it.
pub fn link_metric(link: &LinkSummary, metric: &str) -> Option<f64> {
    match metric {
        "drops" => link.drops.map(|n| n as f64),
        "drops_outage" => link.drops_outage.map(|n| n as f64),
        "drops_queue" => link.drops_queue.map(|n| n as f64),
        "drops_random" => link.drops_random.map(|n| n as f64),
        "marks" => link.marks.map(|n| n as f64),
        "queue_p95_ms" => link.queue_p95_ms,
        "utilisation" => link.utilisation,
        _ => None,
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|n: &f64| n.is_finite())
}

/// Whether a text that is neither a number nor a product was meant as a number: names begin with a
/// letter.
fn begins_a_number(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-', '.']);
    digits.starts_with(|c: char| c.is_ascii_digit()) && !text.contains('*')
}

/// Unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    BitsPerSecond,
    Count,
    Decibels,
    Milliseconds,
    Share,
}

impl Unit {
    fn of(metric: &str) -> Self {
        match metric {
            "loss" | "loss_event_rate" | "on_time_of_all" | "on_time_of_savable" | "ssim"
            | "utilisation" => Self::Share,
            "psnr_y_db" => Self::Decibels,
            _ if metric.ends_with("_bps") => Self::BitsPerSecond,
            _ if metric.contains("_ms") => Self::Milliseconds,
            _ => Self::Count,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::BitsPerSecond => "in bits per second",
            Self::Count => "a count",
            Self::Decibels => "in decibels",
            Self::Milliseconds => "in milliseconds",
            Self::Share => "a share from 0 to 1",
        }
    }

    fn example(self) -> &'static str {
        match self {
            Self::BitsPerSecond => "2000000",
            Self::Count => "10",
            Self::Decibels => "35",
            Self::Milliseconds => "400",
            Self::Share => "0.05",
        }
    }

    /// Number in this unit for a quantity in scenario syntax; `None` if the quantity has another
    /// dimension.
    fn plain(self, value: &str) -> Option<f64> {
        match self {
            Self::BitsPerSecond => Some(quantity::rate(value).ok()?.as_f64()),
            Self::Milliseconds => Some(quantity::duration(value).ok()?.as_nanos() as f64 / 1e6),
            Self::Share => quantity::share(value).ok(),
            Self::Count => Some(f64::from(quantity::packets(value).ok()?)),
            Self::Decibels => number(value.strip_suffix("dB")?.trim()),
        }
    }
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    !name.is_empty() && name.chars().all(plain)
}

const COMPARISONS: [(&str, Comparison); 5] = [
    (">=", Comparison::AtLeast),
    ("<=", Comparison::AtMost),
    ("==", Comparison::Equal),
    (">", Comparison::More),
    ("<", Comparison::Less),
];

/// Metrics of flows. `on_time_of_savable` is the share of the savable frames that were on time,
/// `on_time_of_all` the share of all captured frames.
pub const FLOW_METRICS: &[&str] = &[
    "rate_bps",
    "receive_bps",
    "loss",
    "loss_event_rate",
    "rtt_ms",
    "completion_s",
    "packet_delay_ms.mean",
    "packet_delay_ms.p50",
    "packet_delay_ms.p95",
    "packet_delay_ms.p99",
    "packet_delay_ms.max",
    "delay_ms.p50",
    "delay_ms.p95",
    "delay_ms.p99",
    "delay_ms.max",
    "queue_ms.mean",
    "queue_ms.p95",
    "frames.made",
    "frames.sent",
    "frames.on_time",
    "frames.savable",
    "frames.late",
    "frames.dropped",
    "on_time_of_savable",
    "on_time_of_all",
    "psnr_y_db",
    "ssim",
    "freezes",
];

/// Metrics of links.
pub const LINK_METRICS: &[&str] = &[
    "utilisation",
    "drops",
    "drops_queue",
    "drops_random",
    "drops_outage",
    "marks",
    "queue_p95_ms",
];

/// Relative tolerance of `==`: numbers in summaries are rounded.
const EQUAL: f64 = 1e-6;

#[cfg(test)]
mod tests;
