//! What must hold of a run: `tidegate.delay_ms.p99 <= 400`.
//!
//! An expectation compares a number of a flow, `FLOW.METRIC`, or of a link, `link.LINK.METRIC`,
//! with a number or with another metric, which may have a factor: `a.rate_bps >= 0.8 * b.rate_bps`.
//! The name of flows that are several stands for their mean.
//! The comparisons are `>=`, `<=`, `>`, `<` and `==`. A metric that the run does not tell makes
//! the expectation fail.

use core::fmt;
use core::str::FromStr;

use super::metrics::{FlowSummary, LinkSummary, Summary, Verdict, on_time_of_savable};
use super::reader::Run;
use crate::scenario::quantity;

/// Something that must hold of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    text: String,
    left: Path,
    comparison: Comparison,
    right: Right,
}

impl Expectation {
    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Sees that the flows and links that it names exist.
    ///
    /// # Errors
    /// With the first that does not.
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

    /// The numbers of flows that it compares: flow and metric.
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

    /// Whether it holds of `run`, whose numbers are `summary`.
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
        // The two-letter signs first: `>` is also found in `>=`.
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

/// Why a text is no expectation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExpectError {
    /// It does not have the form.
    Malformed {
        /// The whole text.
        text: String,
    },
    /// The number has a unit.
    NotPlain {
        /// The whole text.
        text: String,
        /// The number as it was written.
        value: String,
        /// What it is compared with.
        metric: &'static str,
    },
    /// There is no such number.
    UnknownMetric {
        /// The whole text.
        text: String,
        /// The part that is wrong.
        metric: String,
        /// What may stand there.
        allowed: &'static [&'static str],
    },
    /// The flow never has that number.
    NeverTold {
        /// The whole text.
        text: String,
        /// The flow.
        name: String,
        /// What it has not.
        metric: &'static str,
        /// What flows need to have it.
        needs: Needs,
    },
    /// There is no such flow or link.
    UnknownName {
        /// The whole text.
        text: String,
        /// The part that is wrong.
        name: String,
        /// What may stand there.
        known: Vec<String>,
    },
}

impl fmt::Display for ExpectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { text } => write!(
                f,
                "{text:?} is no expectation: write FLOW.METRIC or link.LINK.METRIC, then >=, <=, \
                 >, < or ==, then a number or another metric, as in \
                 `tidegate.delay_ms.p99 <= 400` or `a.rate_bps >= 0.8 * b.rate_bps`; metrics of \
                 flows are {}, of links {}",
                FLOW_METRICS.join(", "),
                LINK_METRICS.join(", ")
            ),
            Self::NotPlain {
                text,
                value,
                metric,
            } => {
                let unit = Unit::of(metric);
                write!(
                    f,
                    "{text:?}: {value:?} is no plain number, and {metric} is {}; write ",
                    unit.name()
                )?;
                match unit.plain(value) {
                    Some(number) => write!(f, "{number}"),
                    None => write!(f, "one, as {}", unit.example()),
                }
            }
            Self::UnknownMetric { text, metric, .. } if LINK_METRICS.contains(&metric.as_str()) => {
                write!(
                    f,
                    "{text:?}: {metric:?} is a number of links: write link.NAME.{metric}"
                )
            }
            Self::UnknownMetric {
                text,
                metric,
                allowed,
            } => write!(
                f,
                "{text:?}: there is no metric {metric:?}; use one of {}",
                allowed.join(", ")
            ),
            Self::NeverTold {
                text,
                name,
                metric,
                needs,
            } => {
                let needs = match needs {
                    Needs::Limit => "a limit",
                    Needs::Video => "video",
                };
                write!(
                    f,
                    "{text:?}: only flows with {needs} have {metric}, and {name:?} is none: compare \
                     another number, or remove it"
                )
            }
            Self::UnknownName { text, name, known } => write!(
                f,
                "{text:?}: there is nothing named {name:?}; use one of {}",
                known.join(", ")
            ),
        }
    }
}

impl core::error::Error for ExpectError {}

/// The number of `flow`, a flow of `run`, that is called `metric`, one of [`FLOW_METRICS`]; none if
/// the run does not tell.
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

/// What a flow needs to have some of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// An end of what there is to send.
    Limit,
    /// Frames.
    Video,
}

impl Needs {
    /// Of a metric of [`FLOW_METRICS`]; none if all flows have it.
    pub fn of(metric: &str) -> Option<Self> {
        if metric == "completion_s" {
            return Some(Self::Limit);
        }
        let video = OF_VIDEO.iter().any(|start| metric.starts_with(start));
        video.then_some(Self::Video)
    }
}

/// How metrics of videos begin.
const OF_VIDEO: [&str; 6] = [
    "delay_ms.",
    "frames.",
    "freezes",
    "on_time_of_",
    "psnr_",
    "ssim",
];

/// The number of `link` that is called `metric`, one of [`LINK_METRICS`]; none if the run does not
/// tell.
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

/// Whether a text that is no number, and no product, was meant as one: names begin with a letter.
fn begins_a_number(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-', '.']);
    digits.starts_with(|c: char| c.is_ascii_digit()) && !text.contains('*')
}

/// What a metric is measured in.
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

    /// The number to write for a quantity as scenarios have it, if it is one of this unit.
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

/// What can be expected of a flow. `on_time_of_savable` is the share of the savable frames that
/// were on time, `on_time_of_all` that of all captured ones.
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

/// What can be expected of a link.
pub const LINK_METRICS: &[&str] = &[
    "utilisation",
    "drops",
    "drops_queue",
    "drops_random",
    "drops_outage",
    "marks",
    "queue_p95_ms",
];

/// Numbers in summaries are rounded, so equality is up to a part in a million.
const EQUAL: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::super::manifest::{Manifest, World};
    use super::super::metrics::PacketDelaySummary;
    use super::*;

    fn empty_run() -> Run {
        Run::new(
            std::path::Path::new("none"),
            Manifest::new(World::Sim, "s", core::time::Duration::ZERO),
        )
    }

    fn judge(text: &str, flows: Vec<FlowSummary>) -> Verdict {
        let run = empty_run();
        let summary = Summary {
            flows,
            ..Summary::default()
        };
        let expectation: Expectation = text.parse().expect(text);
        expectation.judge(&run, &summary)
    }

    fn flow(name: &str, rate: f64) -> FlowSummary {
        FlowSummary {
            name: name.to_owned(),
            rate_bps: Some(rate),
            ..FlowSummary::default()
        }
    }

    #[test]
    fn comparisons_mean_what_they_say() {
        let cases = [
            ("a.rate_bps >= 100", true),
            ("a.rate_bps > 100", false),
            ("a.rate_bps<=100", true),
            ("a.rate_bps < 1e3", true),
            ("a.rate_bps == 100.0", true),
            ("a.rate_bps == 101", false),
            ("a.rate_bps > b.rate_bps", true),
            ("a.rate_bps >= 3 * b.rate_bps", false),
            ("a.rate_bps >= 2 * b.rate_bps", true),
        ];
        for (text, holds) in cases {
            let verdict = judge(text, vec![flow("a", 100.0), flow("b", 50.0)]);
            assert_eq!(
                (verdict.holds, verdict.measured),
                (holds, Some(100.0)),
                "{text}"
            );
            assert_eq!(verdict.text, text);
        }
    }

    #[test]
    fn what_the_run_does_not_tell_does_not_hold() {
        for text in ["a.psnr_y_db > 0", "b.rate_bps > 0", "link.x.drops == 0"] {
            let verdict = judge(text, vec![flow("a", 1.0)]);
            assert_eq!((verdict.measured, verdict.holds), (None, false), "{text}");
        }
    }

    #[test]
    fn every_metric_is_known_to_the_evaluation() {
        use super::super::metrics::{DelaySummary, FrameSummary, QueueSummary};
        let flow = FlowSummary {
            class: "a".to_owned(),
            name: "a".to_owned(),
            control: String::new(),
            rate_bps: Some(1.0),
            receive_bps: Some(1.0),
            loss: Some(1.0),
            loss_event_rate: Some(1.0),
            rtt_ms: Some(1.0),
            completion_s: Some(1.0),
            packet_delay_ms: PacketDelaySummary {
                mean: Some(1.0),
                p50: Some(1.0),
                p95: Some(1.0),
                p99: Some(1.0),
                max: Some(1.0),
            },
            delay_ms: DelaySummary {
                p50: Some(1.0),
                p95: Some(1.0),
                p99: Some(1.0),
                max: Some(1.0),
            },
            queue_ms: QueueSummary {
                mean: Some(1.0),
                p95: Some(1.0),
            },
            frames: FrameSummary {
                made: Some(1),
                sent: Some(1),
                on_time: Some(1),
                savable: Some(1),
                late: Some(1),
                dropped: Some(1),
            },
            psnr_y_db: Some(1.0),
            ssim: Some(1.0),
            freezes: Some(1),
        };
        for metric in FLOW_METRICS.iter().filter(|m| **m != "on_time_of_savable") {
            let value = flow_metric(&empty_run(), &flow, metric);
            assert_eq!(value, Some(1.0), "{metric}");
        }
        let link = LinkSummary {
            name: String::new(),
            utilisation: Some(1.0),
            drops: Some(1),
            drops_queue: Some(1),
            drops_random: Some(1),
            drops_outage: Some(1),
            marks: Some(1),
            queue_p95_ms: Some(1.0),
        };
        for metric in LINK_METRICS {
            assert_eq!(link_metric(&link, metric), Some(1.0), "{metric}");
        }
    }

    #[test]
    fn errors_name_the_culprit_and_the_mend() {
        for text in [
            "a.rate_bps => 3",
            "",
            "a.loss",
            "a.loss = 3",
            "loss < 3",
            "a.loss < b * 3",
            "1 < a.loss",
        ] {
            let error = text.parse::<Expectation>().expect_err(text).to_string();
            assert!(
                error.starts_with(&format!("{text:?} is no expectation")),
                "{error}"
            );
        }
        let error = "a.lost < 3".parse::<Expectation>().expect_err("no metric");
        let error = error.to_string();
        assert!(
            error.contains("\"lost\"") && error.contains("on_time_of_savable"),
            "{error}"
        );
        let error = "link.l.loss < 3"
            .parse::<Expectation>()
            .expect_err("no metric");
        assert!(error.to_string().contains("queue_p95_ms"), "{error}");
    }

    #[test]
    fn a_number_with_a_unit_is_answered_with_the_plain_one() {
        for (text, mend) in [
            (
                "a.rate_bps >= 5Mb/s",
                "\"5Mb/s\" is no plain number, and rate_bps is in bits per second; write 5000000",
            ),
            (
                "a.delay_ms.p99 <= 0.4s",
                "\"0.4s\" is no plain number, and delay_ms.p99 is in milliseconds; write 400",
            ),
            (
                "a.loss <= 5%",
                "\"5%\" is no plain number, and loss is a share from 0 to 1; write 0.05",
            ),
            (
                "link.l.drops < 10 packets",
                "\"10 packets\" is no plain number, and drops is a count; write 10",
            ),
            (
                "a.rate_bps >= 5Mbps",
                "\"5Mbps\" is no plain number, and rate_bps is in bits per second; write one, as \
                 2000000",
            ),
            (
                "a.rate_bps >= 5,000,000",
                "\"5,000,000\" is no plain number, and rate_bps is in bits per second; write one, \
                 as 2000000",
            ),
        ] {
            let error = text.parse::<Expectation>().expect_err(text).to_string();
            assert_eq!(error, format!("{text:?}: {mend}"));
        }
    }

    #[test]
    fn names_are_checked_against_the_scenario() {
        let text = "a.loss <= link.l.utilisation";
        let expectation: Expectation = text.parse().expect(text);
        assert_eq!(expectation.check(&["a"], &["l"]), Ok(()));
        let error = expectation.check(&["a"], &["m"]).expect_err("no such link");
        assert!(error.to_string().contains("\"l\"; use one of m"), "{error}");
    }
}
