//! Why a text is no expectation.

use core::fmt;

use super::{FLOW_METRICS, LINK_METRICS, Needs, Unit};

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
