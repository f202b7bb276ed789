//! A run with its scenario and fair shares, and common queries on its time series.

pub(crate) mod fairness;
pub(super) mod scores;

use core::ops::Range;
use core::time::Duration;

use super::fair::{Shares, is_on};
use super::is_media;
use super::outcome::{FlowOutcome, Outcome};
use tidegate_sim::scenario::{FlowPlan, Scenario};

/// A run with its scenario and fair shares.
pub(super) struct View<'a> {
    pub(super) scenario: &'a Scenario,
    /// Length of a bin.
    pub(super) bin: Duration,
    pub(super) shares: Shares,
    /// The flows under test, one entry each.
    pub(super) media: Vec<SimFlow<'a>>,
    /// The competing flows, one entry per plan.
    pub(super) others: Vec<SimFlow<'a>>,
}

/// A flow, or several flows of one plan, with their time series.
pub(super) struct SimFlow<'a> {
    pub(super) name: String,
    pub(super) plan: &'a FlowPlan,
    pub(super) curves: Vec<&'a FlowOutcome>,
}

impl<'a> View<'a> {
    pub(super) fn new(scenario: &'a Scenario, outcome: &'a Outcome) -> Self {
        let mut widths = outcome.flows.iter().map(|flow| flow.bins_ms);
        let width = widths.find(|ms| *ms > 0).unwrap_or(200);
        let bin = Duration::from_millis(width);
        let (media, others): (Vec<_>, Vec<_>) =
            scenario.flows.iter().partition(|plan| is_media(&plan.name));
        let alone = |plan: &'a FlowPlan, name: String| SimFlow {
            curves: outcome.flow(&name).into_iter().collect(),
            name,
            plan,
        };
        let media = media.into_iter().flat_map(|plan: &FlowPlan| {
            (1..=plan.count).map(move |number| alone(plan, plan.name_of(number)))
        });
        let others = others.into_iter().map(|plan: &FlowPlan| {
            let names = (1..=plan.count).map(|number| plan.name_of(number));
            SimFlow {
                name: plan.name.clone(),
                plan,
                curves: names.filter_map(|name| outcome.flow(&name)).collect(),
            }
        });
        Self {
            bin,
            shares: Shares::of(scenario, bin),
            media: media.collect(),
            others: others.collect(),
            scenario,
        }
    }

    pub(super) fn bins(&self) -> usize {
        self.scenario
            .duration
            .as_nanos()
            .div_ceil(self.bin.as_nanos()) as usize
    }

    pub(super) fn middle(&self, bin: usize) -> Duration {
        self.bin * bin as u32 + self.bin / 2
    }

    pub(super) fn bins_in(&self, span: Duration) -> usize {
        (span.as_nanos() / self.bin.as_nanos()).max(1) as usize
    }

    /// Mean receiving rate in b/s over the bins that `with` selects. None if it selects none.
    pub(super) fn mean(&self, member: &SimFlow<'_>, with: impl Fn(usize) -> bool) -> Option<f64> {
        let bins = (0..self.bins()).filter(|bin| with(*bin));
        mean(bins.map(|bin| member.rate(bin)))
    }

    /// Whether all flows under test are active and have had [`CONVERGENCE_TIME`] to converge.
    pub(super) fn all_on(&self, bin: usize) -> bool {
        let at = self.middle(bin);
        let ready = |member: &SimFlow<'_>| {
            at >= member.plan.start + CONVERGENCE_TIME && is_on(member.plan, at)
        };
        self.media.iter().all(ready)
    }

    /// Spans in which the fair shares of all `members` are constant, without the first [`CONVERGENCE_TIME`]
    /// of each.
    pub(super) fn statics(&self, members: &[&SimFlow<'_>]) -> Vec<Range<usize>> {
        if self.shares.is_trace_driven {
            return Vec::new();
        }
        let shares: Vec<&[f64]> = members.iter().map(|m| self.shares.flow(&m.name)).collect();
        let constant = |bin: &usize| {
            let same = |fair: &&[f64]| fair[*bin] > 0.0 && !differs(fair[*bin - 1], fair[*bin]);
            shares.iter().all(same)
        };
        let mut spans = Vec::new();
        let mut from = 0;
        for bin in 1..=self.bins() {
            if bin == self.bins() || !constant(&bin) {
                spans.push(from + self.bins_in(CONVERGENCE_TIME)..bin);
                from = bin;
            }
        }
        let on = |span: &Range<usize>| shares.iter().all(|fair| fair[span.start] > 0.0);
        spans.retain(|span| span.start < span.end && on(span));
        spans
    }
}

impl SimFlow<'_> {
    /// Receiving rate of a bin, in b/s.
    pub(super) fn rate(&self, bin: usize) -> f64 {
        let rates = self.curves.iter().filter_map(|flow| flow.rate_bps.get(bin));
        rates.map(|rate| *rate as f64).sum()
    }

    /// Sending rate of a bin, in b/s; the receiving rate if the sending rate is unknown.
    pub(super) fn sent(&self, bin: usize) -> f64 {
        let sent = |flow: &&FlowOutcome| {
            let known = if flow.sent_bps.is_empty() {
                &flow.rate_bps
            } else {
                &flow.sent_bps
            };
            known.get(bin).copied()
        };
        let rates = self.curves.iter().filter_map(sent);
        rates.map(|rate| rate as f64).sum()
    }
}

pub(super) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value;
        count += 1.0;
    }
    (count > 0.0).then(|| sum / count)
}

/// Whether two values of a fair share differ.
pub(super) fn differs(a: f64, b: f64) -> bool {
    (a - b).abs() > SHARE_CHANGE * a.max(b)
}

/// Startup of a flow, excluded from the scores because the path is unknown.
pub const STARTUP: Duration = Duration::from_secs(5);
/// Time to converge before rates are compared.
pub const CONVERGENCE_TIME: Duration = Duration::from_secs(10);
/// Window of the starvation metric.
pub const STARVATION_WINDOW: Duration = Duration::from_secs(10);
/// Relative tolerance of convergence.
pub const CONVERGENCE_TOLERANCE: f64 = 0.2;
/// Averaging window of the rate for convergence. Video is bursty: frames and key frames.
pub const CONVERGENCE_AVERAGING: Duration = Duration::from_secs(1);
/// Minimum time within [`CONVERGENCE_TOLERANCE`] of the fair share for convergence.
pub const CONVERGED_FOR: Duration = Duration::from_secs(5);
/// Relative difference above which a fair share counts as changed.
pub const SHARE_CHANGE: f64 = 0.05;
