//! Emulated browsers over the kernel's TCP: a `web` flow of a scenario.
//!
//! All browsers of a flow share a host, and all their servers another one. Each side is one thread.
//! Pages that are incomplete at the stop time of the flow are abandoned.

mod client;
mod server;

use std::sync::Arc;

use anyhow::Result;
use tidegate_core::units::{Bytes, Time};
use tidegate_live::driver::{RunLimits, StopFlag};
use tidegate_live::tcp::ConnectionSet;
use tidegate_sim::flow_endpoints::FlowInstance;
use tidegate_sim::scenario::MediaPlan;
use tidegate_sim::traffic::web::Config;

use super::kernel::KernelTcp;
use super::netns_pair::{Endpoint, NetnsPair, RECEIVER, SENDER};

/// Removes all browsers of each flow but the first, whose hosts they share.
pub(super) fn share_hosts(instances: &mut Vec<FlowInstance>) {
    instances.retain(|instance| {
        let is_first = instance.name == instance.plan.name_of(1);
        is_first || !matches!(instance.plan.media, MediaPlan::Web(_))
    });
}

/// Starts the servers and the browsers of a flow on the hosts of `place`.
///
/// # Errors
/// The servers cannot listen, or a host cannot be entered.
pub(super) fn endpoints(
    place: &NetnsPair<'_>,
    kernel: KernelTcp,
    config: Arc<Config>,
    flag: &StopFlag,
) -> Result<[Endpoint; 2]> {
    let listener = place.listen(SENDER, &kernel)?;
    let end = Time::ZERO + place.instance.plan.stop;
    let (of_server, options_of_server) = (Arc::clone(&config), kernel.options());
    let serve = move |conditions: &RunLimits| {
        let set = ConnectionSet::new(conditions.clone(), options_of_server, Some(listener))?;
        server::serve(set, &of_server, conditions, end)?;
        Ok(Default::default())
    };
    let sender = place.inside(SENDER, flag, serve)?;
    let (instance, seed) = (place.instance.clone(), place.seed);
    let peer = place.listener_of(SENDER);
    let browse = move |conditions: &RunLimits| {
        conditions.sleep_until(Time::ZERO + instance.plan.start);
        let set = ConnectionSet::new(conditions.clone(), kernel.options(), None)?;
        client::browse(&instance, &config, (set, peer, seed), conditions, end)?;
        Ok(Default::default())
    };
    Ok([sender, place.inside(RECEIVER, place.stop, browse)?])
}

/// Payload of a request. Its first eight bytes are the size of the requested object.
fn request_payload(config: &Config) -> usize {
    let payload = config.request.saturating_sub(HEADERS).get() as usize;
    payload.max(SIZE)
}

/// Bytes of the size in a request.
const SIZE: usize = 8;
/// IPv4 and TCP headers with time stamps.
const HEADERS: Bytes = Bytes(52);
