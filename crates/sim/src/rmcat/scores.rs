//! From curves to the metrics of RFC 8868.

use core::time::Duration;

use serde::Serialize;

use super::cases::{Case, Metric};
use super::fair::{Shares, capacity, is_on};
use super::is_media;
use super::outcome::{FlowOutcome, Outcome};
use crate::scenario::{FlowPlan, MediaPlan, Scenario};

/// The numbers of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scores {
    /// Flows under test first, then those that they compete with, as one where there are several.
    pub flows: Vec<FlowScore>,
    /// What arrived over the bottleneck, of its capacity; of the least used one, from
    /// [`SETTLING`] on.
    pub utilisation: Option<f64>,
    /// 95th percentile of one-way delay above propagation, of the flow under test that fares worst.
    pub queueing_p95_ms: Option<f64>,
    /// Share of packets lost, likewise.
    pub loss: Option<f64>,
    /// Jain's index of the rates over their fair shares, while all flows under test are on, from
    /// [`SETTLED`] after the last has started; none for a single flow.
    pub jain: Option<f64>,
    /// Mean rate of a flow under test over that of a TCP transfer while both are on.
    pub share: Option<f64>,
    /// The lowest mean rate over [`DROUGHT`] of any flow under test, over its fair share then.
    pub least: Option<f64>,
    /// What happened after each change of a fair share.
    pub changes: Vec<Change>,
}

/// One flow in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowScore {
    /// Its name.
    pub name: String,
    /// Mean of what arrived, in b/s, from [`SETTLING`] after its start, without its pauses.
    pub rate_bps: f64,
    /// Percentiles 50, 95 and 99 of one-way delay in milliseconds over the same time: of bins,
    /// weighted by what arrived in them.
    pub delay_ms: Option<[f64; 3]>,
    /// The second less propagation.
    pub queueing_p95_ms: Option<f64>,
    /// Share of packets lost.
    pub loss: Option<f64>,
}

/// A fair share that changed, and how long the flow took to get there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Whose.
    pub flow: String,
    /// When, in seconds from the start of the run.
    pub at_s: f64,
    /// To how much, in b/s.
    pub fair_bps: f64,
    /// So many seconds later the rate stayed within [`NEAR`] of it for [`STAYS`]; none if never
    /// before the next change.
    pub after_s: Option<f64>,
}

impl Scores {
    /// The number that limits of this kind look at.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Utilisation => self.utilisation,
            Metric::Queueing => self.queueing_p95_ms,
            Metric::Loss => self.loss,
            Metric::Jain => self.jain,
            Metric::Share => self.share,
            Metric::Least => self.least,
        }
    }

    /// How many changes were followed, of how many.
    pub fn converged(&self) -> (usize, usize) {
        let followed = self.changes.iter().filter(|c| c.after_s.is_some());
        (followed.count(), self.changes.len())
    }

    /// The middle one of the times that it took to follow, in seconds; none if more than half of
    /// the changes were not followed.
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

/// Makes scores of what was seen of `case`. Flows that the scenario does not have are passed over,
/// and those that the outcome does not have count as silent.
pub fn score(case: &Case, scenario: &Scenario, outcome: &Outcome) -> Scores {
    let width = outcome
        .flows
        .iter()
        .map(|flow| flow.bins_ms)
        .find(|ms| *ms > 0);
    let bin = Duration::from_millis(width.unwrap_or(200));
    let view = View {
        scenario,
        outcome,
        bin,
        shares: Shares::of(scenario, bin),
    };
    let media = || {
        view.scenario
            .flows
            .iter()
            .filter(|plan| is_media(&plan.name))
    };
    let others = view
        .scenario
        .flows
        .iter()
        .filter(|plan| !is_media(&plan.name));
    let flows: Vec<FlowScore> = media().chain(others).map(|plan| view.flow(plan)).collect();
    let worst = |pick: fn(&FlowScore) -> Option<f64>| {
        let media = flows.iter().filter(|flow| is_media(&flow.name));
        media.filter_map(pick).reduce(f64::max)
    };
    Scores {
        utilisation: view.utilisation(case.bottlenecks),
        queueing_p95_ms: worst(|flow| flow.queueing_p95_ms),
        loss: worst(|flow| flow.loss),
        jain: view.jain(),
        share: view.share(),
        least: media().filter_map(|plan| view.least(plan)).reduce(f64::min),
        changes: media().flat_map(|plan| view.changes(plan)).collect(),
        flows,
    }
}

/// A run with what belongs to it.
struct View<'a> {
    scenario: &'a Scenario,
    outcome: &'a Outcome,
    bin: Duration,
    shares: Shares,
}

impl View<'_> {
    fn bins(&self) -> usize {
        self.scenario
            .duration
            .as_nanos()
            .div_ceil(self.bin.as_nanos()) as usize
    }

    fn middle(&self, bin: usize) -> Duration {
        self.bin * bin as u32 + self.bin / 2
    }

    fn bins_in(&self, span: Duration) -> usize {
        (span.as_nanos() / self.bin.as_nanos()).max(1) as usize
    }

    /// The curves of a plan, of all flows that it stands for.
    fn curves(&self, plan: &FlowPlan) -> Vec<&FlowOutcome> {
        let names = (1..=plan.count).map(|number| plan.name_of(number));
        names.filter_map(|name| self.outcome.flow(&name)).collect()
    }

    /// What arrived in a bin of all flows of a plan together, in b/s.
    fn rate(&self, plan: &FlowPlan, bin: usize) -> f64 {
        let curves = self.curves(plan);
        let rates = curves.iter().filter_map(|flow| flow.rate_bps.get(bin));
        rates.map(|rate| *rate as f64).sum()
    }

    /// Mean rate over the bins that `with` picks; none if there are none.
    fn mean(&self, plan: &FlowPlan, with: impl Fn(usize) -> bool) -> Option<f64> {
        mean(
            (0..self.bins())
                .filter(|bin| with(*bin))
                .map(|bin| self.rate(plan, bin)),
        )
    }

    fn flow(&self, plan: &FlowPlan) -> FlowScore {
        let from = plan.start + SETTLING;
        let on = |bin: usize| {
            let at = self.middle(bin);
            at >= from && is_on(plan, at)
        };
        let mut delays = Vec::new();
        let (mut sent, mut lost) = (0.0, 0.0);
        for flow in self.curves(plan) {
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
        FlowScore {
            name: plan.name.clone(),
            rate_bps: self.mean(plan, on).unwrap_or(0.0),
            delay_ms,
            queueing_p95_ms: delay_ms.map(|[_, p95, _]| (p95 - propagation).max(0.0)),
            loss: (sent > 0.0).then(|| lost / sent),
        }
    }

    /// One way to the receiver, the links of the flow's own included.
    fn propagation(&self, plan: &FlowPlan) -> Duration {
        let links = plan
            .path
            .iter()
            .map(|link| self.scenario.links[*link].delay);
        let own = [&plan.access, &plan.exit];
        let own = own.into_iter().flatten().map(|link| link.delay);
        links.chain(own).sum()
    }

    fn utilisation(&self, bottlenecks: &[&str]) -> Option<f64> {
        let infos = self.scenario.link_infos();
        let used = |name: &&str| {
            let place = infos.iter().position(|link| link.name == **name)?;
            let crossing = self.scenario.flows.iter();
            let crossing: Vec<&FlowPlan> =
                crossing.filter(|flow| flow.path.contains(&place)).collect();
            let first = self.bins_in(SETTLING);
            let (mut carried, mut could) = (0.0, 0.0);
            for bin in first..self.bins() {
                could += capacity(&infos[place], self.middle(bin));
                carried += crossing
                    .iter()
                    .map(|plan| self.rate(plan, bin))
                    .sum::<f64>();
            }
            (could > 0.0 && could.is_finite()).then(|| carried / could)
        };
        bottlenecks.iter().filter_map(used).reduce(f64::min)
    }

    fn jain(&self) -> Option<f64> {
        let media: Vec<&FlowPlan> = self.media();
        let last = media.iter().map(|plan| plan.start).max()?;
        let all_on = |bin: usize| {
            let at = self.middle(bin);
            at >= last + SETTLED && media.iter().all(|plan| is_on(plan, at))
        };
        let relative = |plan: &&FlowPlan| {
            let bins = (0..self.bins()).filter(|bin| all_on(*bin));
            let fair = self.shares.flow(&plan.name);
            Some(self.mean(plan, all_on)? / mean(bins.map(|bin| fair[bin]))?)
        };
        let rates: Vec<f64> = media.iter().map(relative).collect::<Option<_>>()?;
        (rates.len() > 1).then(|| jain(&rates))
    }

    fn share(&self) -> Option<f64> {
        let tcp = |plan: &&FlowPlan| matches!(plan.media, MediaPlan::Tcp(_));
        let tcp = self.scenario.flows.iter().find(tcp)?;
        let media = self.media();
        let both = |bin: usize| {
            let at = self.middle(bin);
            let on = |plan: &FlowPlan| is_on(plan, at) && at >= plan.start + SETTLED;
            on(tcp) && media.iter().all(|plan| on(plan))
        };
        let rates = media.iter().filter_map(|plan| self.mean(plan, both));
        let theirs = self.mean(tcp, both)? / f64::from(tcp.count);
        Some(mean(rates)? / theirs.max(1.0))
    }

    fn least(&self, plan: &FlowPlan) -> Option<f64> {
        let fair = self.shares.flow(&plan.name);
        let window = self.bins_in(DROUGHT);
        let first = ((plan.start + SETTLED).as_nanos() / self.bin.as_nanos()) as usize;
        let on = |bin: usize| fair.get(bin).is_some_and(|share| *share > 0.0);
        let ratio = |from: usize| {
            let bins = from..from + window;
            // Who has just come back is given as long as who has just come.
            let rested = from.saturating_sub(self.bins_in(SETTLED));
            if !(rested..bins.end).all(on) {
                return None;
            }
            let rate: f64 = bins.clone().map(|bin| self.rate(plan, bin)).sum();
            Some(rate / fair[bins].iter().sum::<f64>())
        };
        let windows = first..(self.bins() + 1).saturating_sub(window);
        windows.filter_map(ratio).reduce(f64::min)
    }

    fn changes(&self, plan: &FlowPlan) -> Vec<Change> {
        if self.shares.restless {
            return Vec::new();
        }
        let fair = self.shares.flow(&plan.name);
        let differs = |a: f64, b: f64| (a - b).abs() > CHANGED * a.max(b);
        let mut starts: Vec<usize> = (0..fair.len())
            .filter(|bin| *bin == 0 || differs(fair[*bin - 1], fair[*bin]))
            .collect();
        starts.push(fair.len());
        let spans = starts.windows(2).filter(|span| fair[span[0]] > 0.0);
        let change = |span: &[usize]| {
            let (from, to) = (span[0], span[1]);
            let bins = from..to;
            let smooth = self.bins_in(SMOOTH);
            let rates: Vec<f64> = bins.map(|bin| self.rate(plan, bin)).collect();
            let near: Vec<bool> = (0..rates.len())
                .map(|i| {
                    let recent = &rates[i.saturating_sub(smooth - 1)..=i];
                    let mean = recent.iter().sum::<f64>() / recent.len() as f64;
                    (mean / fair[from] - 1.0).abs() <= NEAR
                })
                .collect();
            let stays = near.windows(self.bins_in(STAYS));
            let place = stays.enumerate().find(|(_, all)| !all.contains(&false));
            let seconds = |bins: usize| bins as f64 * self.bin.as_secs_f64();
            Change {
                flow: plan.name.clone(),
                at_s: seconds(from),
                fair_bps: fair[from],
                after_s: place.map(|(place, _)| seconds(place)),
            }
        };
        let long = |span: &&[usize]| span[1] - span[0] >= self.bins_in(STAYS);
        spans.filter(long).map(change).collect()
    }

    fn media(&self) -> Vec<&FlowPlan> {
        let flows = self.scenario.flows.iter();
        flows.filter(|plan| is_media(&plan.name)).collect()
    }
}

/// Jain's fairness index: 1 when all are alike, 1/n when one has everything.
pub(super) fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares > 0.0 {
        sum * sum / (values.len() as f64 * squares)
    } else {
        0.0
    }
}

/// Of values that are sorted and weighted, by nearest rank.
pub(super) fn percentile(sorted: &[(f64, f64)], share: f64) -> Option<f64> {
    let whole: f64 = sorted.iter().map(|(_, weight)| weight).sum();
    let mut seen = 0.0;
    let reached = sorted.iter().find(|(_, weight)| {
        seen += weight;
        seen >= share * whole
    });
    reached.or(sorted.last()).map(|(value, _)| *value)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value;
        count += 1.0;
    }
    (count > 0.0).then(|| sum / count)
}

/// The first seconds of a flow are not judged: there it cannot know the path.
pub const SETTLING: Duration = Duration::from_secs(5);
/// Rates are compared when flows had so long to find their shares.
pub const SETTLED: Duration = Duration::from_secs(10);
/// Who gets next to nothing for so long starves.
pub const DROUGHT: Duration = Duration::from_secs(10);
/// A rate has reached its share when it is within this part of it ...
pub const NEAR: f64 = 0.2;
/// ... averaged over so long, since video comes in frames and key frames ...
pub const SMOOTH: Duration = Duration::from_secs(1);
/// ... for at least so long.
pub const STAYS: Duration = Duration::from_secs(5);
/// A share has changed when it differs by more than this part.
const CHANGED: f64 = 0.05;
