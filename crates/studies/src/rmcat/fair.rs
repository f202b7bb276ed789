//! Max-min fair allocation of the capacity over time.

use core::time::Duration;

use tidegate_core::units::{Rate, Time};

use tidegate_record::LinkInfo;
use tidegate_sim::model_flow::Workload;
use tidegate_sim::scenario::{FlowPlan, MediaPlan, RatePlan, Scenario};

/// Max-min fair shares in bins.
///
/// Streams without congestion control, such as audio, take their full rate. The other flows share
/// the rest. The demand of video is the encoder's maximum rate, and zero in pauses. Web flows
/// start and end within seconds and are ignored: their rate does not reduce the other shares.
#[derive(Clone, Debug)]
pub struct Shares {
    /// Names of the flows, as in the [`Outcome`](super::Outcome) of a run.
    pub names: Vec<String>,
    /// Share of each flow in b/s per bin; zero while the flow is inactive.
    pub shares: Vec<Vec<f64>>,
    /// Links of each flow's path to its receiver, as indices into the scenario's links.
    paths: Vec<Vec<usize>>,
    /// Whether a capacity follows a trace, so that the shares are never constant.
    pub is_trace_driven: bool,
}

impl Shares {
    /// Computes the shares in bins of length `bin`, which must not be zero.
    pub fn of(scenario: &Scenario, bin: Duration) -> Self {
        let links = scenario.link_infos();
        let mut flows: Vec<(&FlowPlan, u32)> = Vec::new();
        for plan in &scenario.flows {
            flows.extend((1..=plan.count).map(|number| (plan, number)));
        }
        let bins = scenario.duration.as_nanos().div_ceil(bin.as_nanos()) as u32;
        let mut shares = vec![Vec::with_capacity(bins as usize); flows.len()];
        for index in 0..bins {
            // Unambiguous, as capacities change at bin boundaries.
            let at = bin * index + bin / 2;
            let demands = flows.iter().map(|(plan, _)| Demand::of(plan, at));
            for (shares, share) in
                shares
                    .iter_mut()
                    .zip(allocate(&links, &demands.collect::<Vec<_>>(), at))
            {
                shares.push(share);
            }
        }
        let traced =
            |link: &tidegate_sim::scenario::LinkPlan| matches!(link.rate, Some(RatePlan::Trace(_)));
        Self {
            names: flows
                .iter()
                .map(|(plan, number)| plan.name_of(*number))
                .collect(),
            paths: flows.iter().map(|(plan, _)| plan.path.clone()).collect(),
            shares,
            is_trace_driven: scenario.links.iter().any(traced),
        }
    }

    /// Sum of the shares on a link in a bin, in b/s.
    pub(super) fn over(&self, link: usize, bin: usize) -> f64 {
        let crossing = self.paths.iter().zip(&self.shares);
        let crossing = crossing.filter(|(path, _)| path.contains(&link));
        crossing.filter_map(|(_, shares)| shares.get(bin)).sum()
    }

    /// The shares of the flow `name`; empty if the flow is unknown.
    pub fn flow(&self, name: &str) -> &[f64] {
        let place = self.names.iter().position(|known| known == name);
        place.map_or(&[], |place| &self.shares[place])
    }
}

/// Capacity of a link in b/s, `at` after the start of the run.
pub(super) fn capacity(link: &LinkInfo, at: Duration) -> f64 {
    let rate = link.capacity_at(Time::ZERO + at);
    rate.map_or(f64::INFINITY, Rate::as_f64)
}

/// Whether the flow has data to send.
pub(super) fn is_on(plan: &FlowPlan, at: Duration) -> bool {
    plan.start <= at
        && at < plan.stop
        && match &plan.media {
            MediaPlan::Video(video) => {
                let mut pauses = video.pauses.iter();
                !pauses.any(|(from, to)| *from <= at && at < *to)
            }
            MediaPlan::Bulk(bulk) => match &bulk.workload {
                Workload::Application(steps) => {
                    let passed = steps.partition_point(|step| step.0 <= Time::ZERO + at);
                    passed > 0 && steps[passed - 1].1 > Rate::ZERO
                }
                Workload::Greedy | Workload::Packets(_) => true,
            },
            MediaPlan::Cp(_) | MediaPlan::Tcp(_) | MediaPlan::Udp(_) | MediaPlan::Web(_) => true,
        }
}

/// Demand of a flow at a moment.
struct Demand<'a> {
    path: &'a [usize],
    /// In b/s.
    most: f64,
    /// Whether the flow has no congestion control and takes its demand in any case.
    unresponsive: bool,
}

impl<'a> Demand<'a> {
    fn of(plan: &'a FlowPlan, at: Duration) -> Self {
        let most = match &plan.media {
            _ if !is_on(plan, at) => 0.0,
            MediaPlan::Video(video) => video.ceiling.as_f64() * HEADERS,
            MediaPlan::Bulk(_) | MediaPlan::Cp(_) | MediaPlan::Tcp(_) => f64::INFINITY,
            MediaPlan::Udp(config) => config.rate.at(Time::ZERO + at).as_f64(),
            MediaPlan::Web(_) => 0.0,
        };
        Self {
            path: &plan.path,
            most,
            unresponsive: matches!(plan.media, MediaPlan::Udp(_)),
        }
    }
}

/// Progressive filling (water filling).
///
/// Streams without congestion control are served first. Then all shares grow equally. A share
/// stops growing when a link of its path is full or its demand is met.
fn allocate(links: &[LinkInfo], demands: &[Demand<'_>], at: Duration) -> Vec<f64> {
    let mut left: Vec<f64> = links.iter().map(|link| capacity(link, at)).collect();
    let mut shares = vec![0.0; demands.len()];
    for (demand, share) in demands
        .iter()
        .zip(&mut shares)
        .filter(|(demand, _)| demand.unresponsive)
    {
        *share = demand
            .path
            .iter()
            .map(|link| left[*link])
            .fold(demand.most, f64::min);
        for link in demand.path {
            left[*link] -= *share;
        }
    }
    let mut growing: Vec<bool> = demands
        .iter()
        .map(|demand| demand.most > 0.0 && !demand.unresponsive)
        .collect();
    loop {
        let users = |link: usize, growing: &[bool]| {
            let uses = demands.iter().zip(growing);
            uses.filter(|(demand, on)| **on && demand.path.contains(&link))
                .count()
        };
        let by_links = (0..links.len()).filter_map(|link| {
            let users = users(link, &growing);
            (users > 0).then(|| left[link] / users as f64)
        });
        let by_demands = (0..demands.len())
            .filter(|i| growing[*i])
            .map(|i| demands[i].most - shares[i]);
        let step = by_links.chain(by_demands).fold(f64::INFINITY, f64::min);
        if !growing.contains(&true) || !step.is_finite() {
            return shares;
        }
        for (link, left) in left.iter_mut().enumerate() {
            *left -= step * users(link, &growing) as f64;
        }
        for ((demand, share), on) in demands.iter().zip(&mut shares).zip(&mut growing) {
            if *on {
                *share += step;
                let full = demand.path.iter().any(|link| left[*link] <= EPSILON);
                *on = demand.most - *share > EPSILON && !full;
            }
        }
    }
}

/// Rate with headers over the rate of the encoder. The headers of RTP, UDP and IP add about 1/25
/// to a packet of video.
const HEADERS: f64 = 1.04;
/// Rounding tolerance in b/s.
const EPSILON: f64 = 1.0;
