//! What each flow would get if capacity were shared fairly: the max-min fair allocation, over time.

use core::time::Duration;

use tidegate_core::units::{Rate, Time};

use crate::run::LinkInfo;
use crate::scenario::{FlowPlan, MediaPlan, RatePlan, Scenario};

/// Max-min fair shares in bins, and who takes part when.
///
/// Video takes no more than its encoder can make, and nothing while its camera is off; streams that
/// nobody controls take their rate in any case, but none of the cases has one. Browsers, which come
/// and go within seconds, are left out: what they take is not counted against the others.
#[derive(Clone, Debug)]
pub struct Shares {
    /// Names of the flows, as in the outcome of a run.
    pub names: Vec<String>,
    /// For each flow its share in b/s in each bin; zero while it takes no part.
    pub shares: Vec<Vec<f64>>,
    /// Whether the capacity follows a recording, so that it never rests.
    pub restless: bool,
}

/// A flow that wants a share.
struct Claim<'a> {
    plan: &'a FlowPlan,
    most: f64,
}

impl Shares {
    /// For bins of the length `bin`, which is above zero.
    pub fn of(scenario: &Scenario, bin: Duration) -> Self {
        let links = scenario.link_infos();
        let mut names = Vec::new();
        let mut claims = Vec::new();
        for plan in &scenario.flows {
            for number in 1..=plan.count {
                names.push(plan.name_of(number));
                claims.push(Claim {
                    plan,
                    most: most(plan),
                });
            }
        }
        let bins = scenario.duration.as_nanos().div_ceil(bin.as_nanos()) as u32;
        let mut shares = vec![Vec::with_capacity(bins as usize); claims.len()];
        for index in 0..bins {
            // The middle of a bin is on one side of every change.
            let at = bin * index + bin / 2;
            for (shares, share) in shares.iter_mut().zip(allocate(&links, &claims, at)) {
                shares.push(share);
            }
        }
        let traced =
            |link: &crate::scenario::LinkPlan| matches!(link.rate, Some(RatePlan::Trace(_)));
        Self {
            names,
            shares,
            restless: scenario.links.iter().any(traced),
        }
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
    let paused = |video: &crate::scenario::VideoPlan| {
        video
            .pauses
            .iter()
            .any(|(from, to)| *from <= at && at < *to)
    };
    plan.start <= at && at < plan.stop && !plan.media.video().is_some_and(paused)
}

fn most(plan: &FlowPlan) -> f64 {
    match &plan.media {
        MediaPlan::Video(video) => video.ceiling.as_f64(),
        MediaPlan::Bulk(_) | MediaPlan::Tcp(_) | MediaPlan::Udp(_) => f64::INFINITY,
        MediaPlan::Web(_) => 0.0,
    }
}

/// Fills all shares alike until a link is full or a claim is met; those stop, the others go on.
fn allocate(links: &[LinkInfo], claims: &[Claim<'_>], at: Duration) -> Vec<f64> {
    let mut left: Vec<f64> = links.iter().map(|link| capacity(link, at)).collect();
    let mut shares = vec![0.0; claims.len()];
    let mut growing: Vec<bool> = claims
        .iter()
        .map(|claim| claim.most > 0.0 && is_on(claim.plan, at))
        .collect();
    loop {
        let users = |link: usize, growing: &[bool]| {
            let uses = claims.iter().zip(growing);
            uses.filter(|(claim, on)| **on && claim.plan.path.contains(&link))
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
                let full = claim.plan.path.iter().any(|link| left[*link] <= ALMOST);
                *on = claim.most - *share > ALMOST && !full;
            }
        }
    }
}

/// A bit per second is nothing.
const ALMOST: f64 = 1.0;
