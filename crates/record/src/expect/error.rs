//! Errors of parsing and checking an expectation.

use super::{FLOW_METRICS, LINK_METRICS, Needs, Unit};

/// Error of an expectation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpectError {
    /// Invalid syntax.
    #[error("{text:?} is not a valid expectation: write FLOW.METRIC or link.LINK.METRIC, then >=, \
         <=, >, < or ==, then a number or another metric, as in `tidegate.delay_ms.p99 <= 400` \
         or `a.rate_bps >= 0.8 * b.rate_bps`; metrics of flows are {}, of links {}",
        FLOW_METRICS.join(", "), LINK_METRICS.join(", "))]
    Malformed {
        /// Text of the expectation.
        text: String,
    },
    /// The number has a unit.
    #[error(
        "{text:?}: {value:?} is not a plain number, and {metric} is {}; write {}",
        Unit::of(.metric).name(), plain(.metric, .value)
    )]
    NotPlain {
        /// Text of the expectation.
        text: String,
        /// The number with its unit.
        value: String,
        /// The metric that it is compared with.
        metric: &'static str,
    },
    /// Unknown metric.
    #[error("{text:?}: {}", unknown(.metric, .allowed))]
    UnknownMetric {
        /// Text of the expectation.
        text: String,
        /// The unknown name.
        metric: String,
        /// Known metrics.
        allowed: &'static [&'static str],
    },
    /// The flow never has the metric.
    #[error("{text:?}: only flows with {} have {metric}, unlike {name:?}: compare another number, \
         or remove it", .needs.name())]
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
    #[error("{text:?}: there is nothing named {name:?}; use one of {}", .known.join(", "))]
    UnknownName {
        /// Text of the expectation.
        text: String,
        /// The unknown name.
        name: String,
        /// Known names.
        known: Vec<String>,
    },
}

/// The number in the unit of the metric, or an example.
fn plain(metric: &str, value: &str) -> String {
    let unit = Unit::of(metric);
    let number = unit.plain(value).map(|number| number.to_string());
    number.unwrap_or_else(|| format!("one, as {}", unit.example()))
}

fn unknown(metric: &str, allowed: &[&str]) -> String {
    if LINK_METRICS.contains(&metric) {
        format!("{metric:?} is a number of links: write link.NAME.{metric}")
    } else {
        let allowed = allowed.join(", ");
        format!("there is no metric {metric:?}; use one of {allowed}")
    }
}
