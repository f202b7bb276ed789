//! The test cases of RFC 8867 and, as far as the link models allow, of RFC 8869, with the metrics
//! of RFC 8868.
//!
//! A [`Case`] is an embedded scenario in which flows named `media…` are under test, and a list of
//! limits. A run with a controller produces an [`Outcome`]: time series in bins of 200 ms, which
//! other programs can write as well. [`score`] computes [`Scores`] from it, and [`judge`] compares
//! the scores with the limits. `docs/rmcat.md` gives definitions and reasons.

mod cases;
pub mod comparison;
mod fair;
mod outcome;
mod scorecard;
pub(crate) mod view;

use core::time::Duration;

use tidegate_core::media::{EncodeError, FrameEncoder};
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate, Time};

use tidegate_sim::model_flow::Workload;
use tidegate_sim::runner::{self, PlayError};
use tidegate_sim::scenario::{BulkPlan, EncoderKind, FlowPlan, Scenario, VideoPlan};

pub use cases::{Bound, CASES, Case, Limit, Metric};
pub use fair::Shares;
pub use outcome::{FlowOutcome, Outcome};
pub use view::fairness::Fairness;
pub use view::scores::{Change, FlowScore, Scores, score};
pub use view::{
    CONVERGED_FOR, CONVERGENCE_AVERAGING, CONVERGENCE_TIME, CONVERGENCE_TOLERANCE, SHARE_CHANGE,
    STARTUP, STARVATION_WINDOW,
};

/// Result of a limit.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Verdict {
    /// The metric.
    pub metric: Metric,
    /// The limit of the metric.
    pub bound: Bound,
    /// Measured value. None if it could not be measured, which fails the limit.
    pub measured: Option<f64>,
    /// Whether the measured value is within the limit.
    pub holds: bool,
    /// Reason for the limit.
    pub why: &'static str,
}

fn media(scenario: &mut Scenario) -> impl Iterator<Item = &mut FlowPlan> {
    let flows = scenario.flows.iter_mut();
    flows.filter(|flow| is_media(&flow.name))
}

/// Source of the flows under test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Full packets whenever the controller allows, except in pauses. This tests the controller
    /// alone.
    Greedy,
    /// Video with a delay bound, as in a call.
    #[default]
    Video,
}

/// The greedy source that replaces `video`, with the same pauses.
fn greedy(video: &VideoPlan) -> BulkPlan {
    let mut steps = vec![(Time::ZERO, Rate::MAX)];
    for (from, to) in &video.pauses {
        steps.push((Time::ZERO + *from, Rate::ZERO));
        steps.push((Time::ZERO + *to, Rate::MAX));
    }
    BulkPlan {
        packet: Bytes(1_200),
        workload: match video.pauses.as_slice() {
            [] => Workload::Greedy,
            _ => Workload::Application(steps),
        },
        overhead: Duration::ZERO,
    }
}

/// Whether the flow of this name is under test.
pub fn is_media(name: &str) -> bool {
    name.starts_with("media")
}

/// Runs `scenario` with the encoder model as its video source. `control` is only the
/// controller's name in the outcome.
///
/// # Errors
/// The network, an encoder or a flow endpoint fails; the message names it.
pub fn play(scenario: &Scenario, control: &str, seed: Seed) -> Result<Outcome, PlayError> {
    let results = runner::scenario(scenario, seed, &encoder, &mut |_| {})?;
    Ok(Outcome::of(scenario, control, seed, &results[0]))
}

/// The encoder model for `flow`, whatever encoder it has in the scenario.
pub(crate) fn encoder(
    flow: &str,
    plan: &VideoPlan,
    seed: Seed,
) -> Result<Box<dyn FrameEncoder>, EncodeError> {
    let plan = VideoPlan {
        encoder: EncoderKind::Model,
        ..plan.clone()
    };
    let none = || EncodeError::Codec("the plan has no modelled encoder".to_owned());
    plan.modelled(flow, seed).ok_or_else(none)
}

/// Compares the scores with the limits of `case`.
pub fn judge(case: &Case, scores: &Scores) -> Vec<Verdict> {
    let verdict = |limit: &Limit| {
        let measured = scores.get(limit.metric);
        Verdict {
            metric: limit.metric,
            bound: limit.bound,
            measured,
            holds: measured.is_some_and(|value| limit.bound.holds(value)),
            why: limit.why,
        }
    };
    case.limits.iter().map(verdict).collect()
}

/// The synthetic cellular trace of the scenarios.
const CELLULAR: &str = include_str!("../../../scenarios/traces/cellular.mahi");

#[cfg(test)]
mod rfc8867;
#[cfg(test)]
mod tests;
