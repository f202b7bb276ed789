//! Errors of parsing and checking an expectation.

use core::fmt;

use super::{FLOW_METRICS, LINK_METRICS, Needs, Unit};

/// Error of an expectation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExpectError {
    /// Invalid syntax.
    Malformed {
        /// Text of the expectation.
        text: String,
    },
    /// The number has a unit.
    NotPlain {
        /// Text of the expectation.
        text: String,
        /// The number with its unit.
        value: String,
        /// The metric that it is compared with.
        metric: &'static str,
    },
    /// Unknown metric.
    UnknownMetric {
        /// Text of the expectation.
        text: String,
        /// The unknown name.
        metric: String,
        /// Known metrics.
        allowed: &'static [&'static str],
    },
    /// The flow never has the metric.
    NeverRecorded {
        /// Text of the expectation.
        text: String,
        /// Name of the flow.
        name: String,
        /// The metric.
        metric: &'static str,
        /// Property that a flow needs to have it.
        needs: Needs,
    },
    /// Unknown flow or link.
    UnknownName {
        /// Text of the expectation.
        text: String,
        /// The unknown name.
        name: String,
        /// Known names.
        known: Vec<String>,
    },
}

impl fmt::Display for ExpectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { text } => write!(
                f,
                "{text:?} is not a valid expectation: write FLOW.METRIC or link.LINK.METRIC, then >=, <=, \
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
                    "{text:?}: {value:?} is not a plain number, and {metric} is {}; write ",
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
            Self::NeverRecorded {
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
                    "{text:?}: only flows with {needs} have {metric}, unlike {name:?}: compare \
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
