//! What each flow would get if capacity were shared fairly: the max-min fair allocation, over time.

use core::time::Duration;

use tidegate_core::units::{Rate, Time};

use tidegate_sim::model_flow::Workload;
use tidegate_sim::run::LinkInfo;
use tidegate_sim::scenario::{FlowPlan, MediaPlan, RatePlan, Scenario};

/// Max-min fair shares in bins, and who takes part when.
///
/// Streams that nobody controls, as audio, take their rate in any case; the others share what is
/// left. Video takes no more than its encoder can make, and nothing while its camera is off.
/// Browsers, which come and go within seconds, are left out: what they take is not counted against
/// the others.
#[derive(Clone, Debug)]
pub struct Shares {
    /// Names of the flows, as in the outcome of a run.
    pub names: Vec<String>,
    /// For each flow its share in b/s in each bin; zero while it takes no part.
    pub shares: Vec<Vec<f64>>,
    /// For each flow the links that it crosses to its receiver, as places in the scenario.
    paths: Vec<Vec<usize>>,
    /// Whether the capacity follows a recording, so that it never rests.
    pub restless: bool,
}

impl Shares {
    /// For bins of the length `bin`, which is above zero.
    pub fn of(scenario: &Scenario, bin: Duration) -> Self {
        let links = scenario.link_infos();
        let mut flows: Vec<(&FlowPlan, u32)> = Vec::new();
        for plan in &scenario.flows {
            flows.extend((1..=plan.count).map(|number| (plan, number)));
        }
        let bins = scenario.duration.as_nanos().div_ceil(bin.as_nanos()) as u32;
        let mut shares = vec![Vec::with_capacity(bins as usize); flows.len()];
        for index in 0..bins {
            // The middle of a bin is on one side of every change.
            let at = bin * index + bin / 2;
            let claims = flows.iter().map(|(plan, _)| Claim::of(plan, at));
            for (shares, share) in
                shares
                    .iter_mut()
                    .zip(allocate(&links, &claims.collect::<Vec<_>>(), at))
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
            restless: scenario.links.iter().any(traced),
        }
    }

    /// What all flows together can make of a link in a bin, in b/s.
    pub(super) fn over(&self, link: usize, bin: usize) -> f64 {
        let crossing = self.paths.iter().zip(&self.shares);
        let crossing = crossing.filter(|(path, _)| path.contains(&link));
        crossing.filter_map(|(_, shares)| shares.get(bin)).sum()
    }

    /// The share of the flow called `name`; empty if there is none.
    pub fn flow(&self, name: &str) -> &[f64] {
        let place = self.names.iter().position(|known| known == name);
        place.map_or(&[], |place| &self.shares[place])
    }
}

/// Capacity in b/s of a link at a moment from the start of the run.
pub(super) fn capacity(link: &LinkInfo, at: Duration) -> f64 {
    let rate = link.capacity_at(Time::ZERO + at);
    rate.map_or(f64::INFINITY, Rate::as_f64)
}

/// Whether the flow has something to send.
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
            MediaPlan::Tcp(_) | MediaPlan::Udp(_) | MediaPlan::Web(_) => true,
        }
}

/// What a flow wants at a moment.
struct Claim<'a> {
    path: &'a [usize],
    /// In b/s.
    most: f64,
    /// Whether it takes that whatever is left for others.
    insists: bool,
}

impl<'a> Claim<'a> {
    fn of(plan: &'a FlowPlan, at: Duration) -> Self {
        let most = match &plan.media {
            _ if !is_on(plan, at) => 0.0,
            MediaPlan::Video(video) => video.ceiling.as_f64() * HEADERS,
            MediaPlan::Bulk(_) | MediaPlan::Tcp(_) => f64::INFINITY,
            MediaPlan::Udp(config) => config.rate.at(Time::ZERO + at).as_f64(),
            MediaPlan::Web(_) => 0.0,
        };
        Self {
            path: &plan.path,
            most,
            insists: matches!(plan.media, MediaPlan::Udp(_)),
        }
    }
}

/// Serves those who insist; then fills all shares alike until a link is full or a claim is met;
/// those stop, the others go on.
fn allocate(links: &[LinkInfo], claims: &[Claim<'_>], at: Duration) -> Vec<f64> {
    let mut left: Vec<f64> = links.iter().map(|link| capacity(link, at)).collect();
    let mut shares = vec![0.0; claims.len()];
    for (claim, share) in claims
        .iter()
        .zip(&mut shares)
        .filter(|(claim, _)| claim.insists)
    {
        *share = claim
            .path
            .iter()
            .map(|link| left[*link])
            .fold(claim.most, f64::min);
        for link in claim.path {
            left[*link] -= *share;
        }
    }
    let mut growing: Vec<bool> = claims
        .iter()
        .map(|claim| claim.most > 0.0 && !claim.insists)
        .collect();
    loop {
        let users = |link: usize, growing: &[bool]| {
            let uses = claims.iter().zip(growing);
            uses.filter(|(claim, on)| **on && claim.path.contains(&link))
                .count()
        };
        let by_links = (0..links.len()).filter_map(|link| {
            let users = users(link, &growing);
            (users > 0).then(|| left[link] / users as f64)
        });
        let by_claims = (0..claims.len())
            .filter(|i| growing[*i])
            .map(|i| claims[i].most - shares[i]);
        let step = by_links.chain(by_claims).fold(f64::INFINITY, f64::min);
        if !growing.contains(&true) || !step.is_finite() {
            return shares;
        }
        for (link, left) in left.iter_mut().enumerate() {
            *left -= step * users(link, &growing) as f64;
        }
        for ((claim, share), on) in claims.iter().zip(&mut shares).zip(&mut growing) {
            if *on {
                *share += step;
                let full = claim.path.iter().any(|link| left[*link] <= ALMOST);
                *on = claim.most - *share > ALMOST && !full;
            }
        }
    }
}

/// What an encoder makes, with its headers: with those of RTP, UDP and IP, a packet of video is
/// about a twenty-fifth larger than what it carries.
const HEADERS: f64 = 1.04;
/// A bit per second is nothing.
const ALMOST: f64 = 1.0;
