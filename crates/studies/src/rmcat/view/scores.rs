//! Metrics of RFC 8868, computed from time series.

use core::ops::Range;
use core::time::Duration;

use serde::Serialize;

use super::fairness::{Fairness, jain, percentile, ratio};
use super::{
    CONVERGED_FOR, CONVERGENCE_AVERAGING, CONVERGENCE_TIME, CONVERGENCE_TOLERANCE, STARTUP,
    STARVATION_WINDOW, SimFlow, View, differs, mean,
};
use crate::rmcat::cases::{Case, Metric};
use crate::rmcat::fair::{capacity, is_on};
use crate::rmcat::outcome::Outcome;
use tidegate_sim::scenario::{FlowPlan, Scenario};

//= rfc8867-4.1-metrics
/// Metrics of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scores {
    /// Flows under test, then competing flows, with one entry per plan.
    pub flows: Vec<FlowScore>,
    /// Receiving rate over the bottleneck, relative to the sum of all fair shares, which is the
    /// capacity or the demand, from [`STARTUP`] after the first start. Minimum over the
    /// bottlenecks.
    pub utilisation: Option<f64>,
    /// Mean of the sending rates of all flows over the capacity at the same time (RFC 8868
    /// section 3, item 10), while flows under test are active. Minimum over the bottlenecks.
    pub sent_of_capacity: Option<f64>,
    /// 95th percentile of one-way delay above propagation of the worst flow under test.
    pub queueing_p95_ms: Option<f64>,
    /// Share of packets lost of the worst flow under test.
    pub loss: Option<f64>,
    /// Jain's index of the rates relative to fair shares, while all flows under test are active,
    /// from [`CONVERGENCE_TIME`] after the last start. None for a single flow.
    pub jain: Option<f64>,
    /// Minimum over maximum of these rates.
    pub ratio: Option<f64>,
    /// The same ratio over windows of 1, 5 and 20 s while fair shares are constant.
    pub fairness: Vec<Fairness>,
    /// Mean rate of a flow under test over that of a TCP transfer while both are active.
    pub share: Option<f64>,
    /// Minimum over flows under test of the mean rate over [`STARVATION_WINDOW`], relative to the fair share
    /// at that time.
    pub least: Option<f64>,
    /// Coefficient of variation of the sending rate in windows of 1 s while the fair share is
    /// constant. Maximum over the flows under test.
    pub variation: Option<f64>,
    /// Changes of that rate per minute from at most half of its mean to at least twice its mean, or
    /// back, in bins. Maximum over the flows under test.
    pub swings_per_min: Option<f64>,
    /// Share of frames lost after repair of the worst flow.
    pub frames_lost: Option<f64>,
    /// Convergence after each change of a fair share.
    pub changes: Vec<Change>,
}

/// One flow in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowScore {
    /// Name of the flow.
    pub name: String,
    /// Mean receiving rate in b/s from [`STARTUP`] after the start, without pauses.
    pub rate_bps: f64,
    /// Percentiles 50, 95 and 99 of one-way delay in ms over the same time. Bins are weighted by
    /// their receiving rate.
    pub delay_ms: Option<[f64; 3]>,
    /// Percentile 95 of `delay_ms` minus propagation.
    pub queueing_p95_ms: Option<f64>,
    /// Share of packets lost.
    pub loss: Option<f64>,
    /// Share of the sent frames that could not be decoded.
    pub frames_lost: Option<f64>,
}

/// A change of a fair share, and the time in which the flow converged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Name of the flow.
    pub flow: String,
    /// Time of the change, in seconds from the start of the run.
    pub at_s: f64,
    /// New fair share in b/s.
    pub fair_bps: f64,
    /// Seconds until the rate is within [`CONVERGENCE_TOLERANCE`] of the share for [`CONVERGED_FOR`]. None if the flow does
    /// not converge before the next change.
    pub after_s: Option<f64>,
}

impl Scores {
    /// Value of a metric.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Utilisation => self.utilisation,
            Metric::Queueing => self.queueing_p95_ms,
            Metric::Loss => self.loss,
            Metric::Jain => self.jain,
            Metric::Ratio => self.ratio,
            Metric::Share => self.share,
            Metric::Least => self.least,
        }
    }

    /// Number of changes with convergence, and of all changes.
    pub fn converged(&self) -> (usize, usize) {
        let followed = self.changes.iter().filter(|c| c.after_s.is_some());
        (followed.count(), self.changes.len())
    }

    /// Median convergence time in seconds. None if the flows did not converge after more than half
    /// of the changes.
    pub fn convergence_s(&self) -> Option<f64> {
        let mut times: Vec<f64> = self
            .changes
            .iter()
            .map(|change| change.after_s.unwrap_or(f64::INFINITY))
            .collect();
        times.sort_by(f64::total_cmp);
        let middle = times.get(times.len().saturating_sub(1) / 2)?;
        middle.is_finite().then_some(*middle)
    }
}

/// Computes the scores of a run of `case`. Flows that are not in the scenario are ignored. Flows
/// that are not in the outcome count as silent.
pub fn score(case: &Case, scenario: &Scenario, outcome: &Outcome) -> Scores {
    let view = View::new(scenario, outcome);
    let media = || view.media.iter();
    let flows: Vec<FlowScore> = media()
        .chain(&view.others)
        .map(|member| view.flow(member))
        .collect();
    let worst = |pick: fn(&FlowScore) -> Option<f64>| {
        let media = flows.iter().take(view.media.len());
        media.filter_map(pick).reduce(f64::max)
    };
    let relative = view.relative_rates();
    Scores {
        utilisation: view.utilisation(case.bottlenecks),
        sent_of_capacity: view.sent_of_capacity(case.bottlenecks),
        queueing_p95_ms: worst(|flow| flow.queueing_p95_ms),
        loss: worst(|flow| flow.loss),
        jain: relative.as_deref().map(jain),
        ratio: relative.as_deref().map(ratio),
        fairness: view.fairness(),
        share: view.share(),
        least: media().filter_map(|flow| view.least(flow)).reduce(f64::min),
        variation: media()
            .filter_map(|flow| view.variation(flow))
            .reduce(f64::max),
        swings_per_min: media()
            .filter_map(|flow| view.swings(flow))
            .reduce(f64::max),
        frames_lost: worst(|flow| flow.frames_lost),
        changes: media().flat_map(|flow| view.changes(flow)).collect(),
        flows,
    }
}

impl View<'_> {
    fn flow(&self, member: &SimFlow<'_>) -> FlowScore {
        let plan = member.plan;
        let from = plan.start + STARTUP;
        let on = |bin: usize| {
            let at = self.middle(bin);
            at >= from && is_on(plan, at)
        };
        let mut delays = Vec::new();
        let (mut sent, mut lost) = (0.0, 0.0);
        for flow in &member.curves {
            for bin in (0..self.bins()).filter(|bin| on(*bin)) {
                let weight = flow.rate_bps.get(bin).map_or(0.0, |rate| *rate as f64);
                if let Some(Some(delay)) = flow.delay_ms.get(bin) {
                    delays.push((*delay, weight));
                }
                let weight = flow.sent_bps.get(bin).map_or(weight, |rate| *rate as f64);
                if let Some(Some(loss)) = flow.loss.get(bin) {
                    sent += weight;
                    lost += loss * weight;
                }
            }
        }
        delays.sort_by(|a, b| a.0.total_cmp(&b.0));
        let percentile = |share| percentile(&delays, share);
        let delay_ms = percentile(0.95).map(|middle| {
            let of = |share| percentile(share).unwrap_or(middle);
            [of(0.5), middle, of(0.99)]
        });
        let propagation = self.propagation(plan).as_secs_f64() * 1e3;
        let frames_lost = member.curves.iter().filter_map(|flow| flow.frames_lost);
        FlowScore {
            name: member.name.clone(),
            rate_bps: self.mean(member, on).unwrap_or(0.0),
            delay_ms,
            queueing_p95_ms: delay_ms.map(|[_, p95, _]| (p95 - propagation).max(0.0)),
            loss: (sent > 0.0).then(|| lost / sent),
            frames_lost: frames_lost.reduce(f64::max),
        }
    }

    /// One-way propagation delay to the receiver, including the flow's own links.
    fn propagation(&self, plan: &FlowPlan) -> Duration {
        let links = plan
            .path
            .iter()
            .map(|link| self.scenario.links[*link].delay);
        let own = [&plan.access, &plan.exit];
        let own = own.into_iter().flatten().map(|link| link.delay);
        links.chain(own).sum()
    }

    /// Minimum of `of` over the indices of these links.
    fn least_of(&self, links: &[&str], of: impl Fn(usize) -> Option<f64>) -> Option<f64> {
        let known = self.scenario.links.iter();
        let place = |name: &&str| known.clone().position(|link| link.name == **name);
        links
            .iter()
            .filter_map(place)
            .filter_map(of)
            .reduce(f64::min)
    }

    /// Sum of the rates of all flows whose path to the receiver crosses a link, in b/s.
    fn crossing(&self, link: usize, rate: impl Fn(&SimFlow<'_>) -> f64) -> f64 {
        let members = self.media.iter().chain(&self.others);
        let crossing = members.filter(|member| member.plan.path.contains(&link));
        crossing.map(rate).sum()
    }

    /// Bins from [`STARTUP`] after the first start.
    fn settled(&self) -> Range<usize> {
        let members = self.media.iter().chain(&self.others);
        let first = members.map(|member| member.plan.start).min();
        self.bins_in(first.unwrap_or_default() + STARTUP)..self.bins()
    }

    fn utilisation(&self, bottlenecks: &[&str]) -> Option<f64> {
        self.least_of(bottlenecks, |link| {
            let (mut carried, mut could) = (0.0, 0.0);
            for bin in self.settled() {
                let fair = self.shares.over(link, bin);
                if fair > 0.0 {
                    could += fair;
                    carried += self.crossing(link, |member| member.rate(bin));
                }
            }
            (could > 0.0 && could.is_finite()).then(|| carried / could)
        })
    }

    fn sent_of_capacity(&self, bottlenecks: &[&str]) -> Option<f64> {
        if self.shares.is_trace_driven {
            return None;
        }
        let infos = self.scenario.link_infos();
        let any_on = |bin: &usize| {
            let at = self.middle(*bin);
            self.media.iter().any(|member| is_on(member.plan, at))
        };
        self.least_of(bottlenecks, |link| {
            let bins = self.settled().filter(any_on);
            let ratio = |bin: usize| {
                let capacity = capacity(&infos[link], self.middle(bin));
                let sent = self.crossing(link, |member| member.sent(bin));
                (capacity > 0.0 && capacity.is_finite()).then(|| sent / capacity)
            };
            mean(bins.filter_map(ratio))
        })
    }

    fn least(&self, member: &SimFlow<'_>) -> Option<f64> {
        let fair = self.shares.flow(&member.name);
        let window = self.bins_in(STARVATION_WINDOW);
        let first =
            ((member.plan.start + CONVERGENCE_TIME).as_nanos() / self.bin.as_nanos()) as usize;
        let on = |bin: usize| is_on(member.plan, self.middle(bin));
        let ratio = |from: usize| {
            let bins = from..from + window;
            // A flow has the same time to converge after a pause as after its start.
            let resumed = from.saturating_sub(self.bins_in(CONVERGENCE_TIME));
            if !(resumed..bins.end).all(on) {
                return None;
            }
            let rate: f64 = bins.clone().map(|bin| member.rate(bin)).sum();
            let fair: f64 = fair[bins].iter().sum();
            (fair > 0.0).then(|| rate / fair)
        };
        let windows = first..(self.bins() + 1).saturating_sub(window);
        windows.filter_map(ratio).reduce(f64::min)
    }

    fn changes(&self, member: &SimFlow<'_>) -> Vec<Change> {
        if self.shares.is_trace_driven {
            return Vec::new();
        }
        let fair = self.shares.flow(&member.name);
        let mut starts: Vec<usize> = (0..fair.len())
            .filter(|bin| *bin == 0 || differs(fair[*bin - 1], fair[*bin]))
            .collect();
        starts.push(fair.len());
        let spans = starts.windows(2).filter(|span| fair[span[0]] > 0.0);
        let change = |span: &[usize]| {
            let (from, to) = (span[0], span[1]);
            let bins = from..to;
            let smooth = self.bins_in(CONVERGENCE_AVERAGING);
            let rates: Vec<f64> = bins.map(|bin| member.rate(bin)).collect();
            let near: Vec<bool> = (0..rates.len())
                .map(|i| {
                    let recent = &rates[i.saturating_sub(smooth - 1)..=i];
                    let mean = recent.iter().sum::<f64>() / recent.len() as f64;
                    (mean / fair[from] - 1.0).abs() <= CONVERGENCE_TOLERANCE
                })
                .collect();
            let stays = near.windows(self.bins_in(CONVERGED_FOR));
            let place = stays.enumerate().find(|(_, all)| !all.contains(&false));
            let seconds = |bins: usize| bins as f64 * self.bin.as_secs_f64();
            Change {
                flow: member.name.clone(),
                at_s: seconds(from),
                fair_bps: fair[from],
                after_s: place.map(|(place, _)| seconds(place)),
            }
        };
        let long = |span: &&[usize]| span[1] - span[0] >= self.bins_in(CONVERGED_FOR);
        spans.filter(long).map(change).collect()
    }
}
