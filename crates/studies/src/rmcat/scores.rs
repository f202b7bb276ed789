//! From curves to the metrics of RFC 8868.

use core::ops::Range;
use core::time::Duration;

use serde::Serialize;

use super::cases::{Case, Metric};
use super::fair::{capacity, is_on};
use super::fairness::{Fairness, jain, percentile, ratio};
use super::outcome::Outcome;
use super::view::{DROUGHT, NEAR, SETTLED, SETTLING, SMOOTH, STAYS, SimFlow, View, differs, mean};
use tidegate_sim::scenario::{FlowPlan, Scenario};

//= rfc8867-4.1-metrics
/// The numbers of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scores {
    /// Flows under test first, then those that they compete with, as one where there are several.
    pub flows: Vec<FlowScore>,
    /// What arrived over the bottleneck, of what all fair shares together would be, which is its
    /// capacity or all that encoders can make; of the least used one, from [`SETTLING`] after the
    /// first start on.
    pub utilisation: Option<f64>,
    /// Mean of the sending rates of all flows over the capacity at the same time (RFC 8868
    /// section 3, item 10); of the least used bottleneck, while flows under test are on.
    pub sent_of_capacity: Option<f64>,
    /// 95th percentile of one-way delay above propagation, of the flow under test that fares worst.
    pub queueing_p95_ms: Option<f64>,
    /// Share of packets lost, likewise.
    pub loss: Option<f64>,
    /// Jain's index of the rates over their fair shares, while all flows under test are on, from
    /// [`SETTLED`] after the last has started; none for a single flow.
    pub jain: Option<f64>,
    /// The least of these rates over the most.
    pub ratio: Option<f64>,
    /// The same over windows of 1, 5 and 20 s while fair shares rest.
    pub fairness: Vec<Fairness>,
    /// Mean rate of a flow under test over that of a TCP transfer while both are on.
    pub share: Option<f64>,
    /// The lowest mean rate over [`DROUGHT`] of any flow under test, over its fair share then.
    pub least: Option<f64>,
    /// Standard deviation of the sending rate over its mean, of seconds while the fair share
    /// rests; of the flow under test that varies most.
    pub variation: Option<f64>,
    /// How often in a minute of such time that rate went from half its mean or less to twice that
    /// or more or back, in bins; of the flow that does so most.
    pub swings_per_min: Option<f64>,
    /// Share of the frames lost after repair, of the worst flow.
    pub frames_lost: Option<f64>,
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
    /// Share of the frames that left and could never be decoded.
    pub frames_lost: Option<f64>,
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
            Metric::Ratio => self.ratio,
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
        let from = plan.start + SETTLING;
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

    /// The least of what `of` makes of the places of these links.
    fn least_of(&self, links: &[&str], of: impl Fn(usize) -> Option<f64>) -> Option<f64> {
        let known = self.scenario.links.iter();
        let place = |name: &&str| known.clone().position(|link| link.name == **name);
        links
            .iter()
            .filter_map(place)
            .filter_map(of)
            .reduce(f64::min)
    }

    /// Of all flows that cross a link to their receiver, in b/s.
    fn crossing(&self, link: usize, rate: impl Fn(&SimFlow<'_>) -> f64) -> f64 {
        let members = self.media.iter().chain(&self.others);
        let crossing = members.filter(|member| member.plan.path.contains(&link));
        crossing.map(rate).sum()
    }

    /// From [`SETTLING`] after the first start on.
    fn settled(&self) -> Range<usize> {
        let members = self.media.iter().chain(&self.others);
        let first = members.map(|member| member.plan.start).min();
        self.bins_in(first.unwrap_or_default() + SETTLING)..self.bins()
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
        if self.shares.restless {
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
        let window = self.bins_in(DROUGHT);
        let first = ((member.plan.start + SETTLED).as_nanos() / self.bin.as_nanos()) as usize;
        let on = |bin: usize| is_on(member.plan, self.middle(bin));
        let ratio = |from: usize| {
            let bins = from..from + window;
            // Who has just come back is given as long as who has just come.
            let rested = from.saturating_sub(self.bins_in(SETTLED));
            if !(rested..bins.end).all(on) {
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
        if self.shares.restless {
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
            let smooth = self.bins_in(SMOOTH);
            let rates: Vec<f64> = bins.map(|bin| member.rate(bin)).collect();
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
                flow: member.name.clone(),
                at_s: seconds(from),
                fair_bps: fair[from],
                after_s: place.map(|(place, _)| seconds(place)),
            }
        };
        let long = |span: &&[usize]| span[1] - span[0] >= self.bins_in(STAYS);
        spans.filter(long).map(change).collect()
    }
}
