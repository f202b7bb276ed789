//! How a path is cut.

use core::time::Duration;
use std::thread::{self, JoinHandle};

use anyhow::Result;
use tidegate_core::link::{NetworkConfig, Outage, RouteId};
use tidegate_core::units::Time;
use tidegate_live::clock::Clock;
use tidegate_live::driver::StopFlag;
use tidegate_live::emulator::Blackhole;
use tidegate_live::netns::Namespace;

/// What cuts the path of a video over TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Injector {
    /// The link loses what it carries, as in the simulator
    #[default]
    Link,
    /// The sender's host has a route by which all is lost
    Route,
}

/// Takes the outages out of the links of these routes; when they are on each.
pub(super) fn lift(network: &mut NetworkConfig, routes: &[RouteId]) -> Vec<Vec<Outage>> {
    let links = |network: &NetworkConfig, route: &RouteId| network.routes[route.0].clone();
    let cuts = routes.iter().map(|route| {
        let links = links(network, route).into_iter();
        let outages = links.flat_map(|link| network.links[link.0].config.outages.clone());
        let mut outages: Vec<Outage> = outages.collect();
        outages.sort_by_key(|outage| outage.from);
        outages
    });
    let cuts = cuts.collect();
    for link in routes
        .iter()
        .flat_map(|route| links(network, route))
        .collect::<Vec<_>>()
    {
        network.links[link.0].config.outages.clear();
    }
    cuts
}

/// Has what a host sends lead nowhere for so long, on a thread of its own.
///
/// # Errors
/// There is no device that leads there, or the system has no thread left.
pub(super) fn divert(
    host: &Namespace,
    outages: Vec<Outage>,
    clock: Clock,
    stop: StopFlag,
) -> Result<JoinHandle<Result<()>>> {
    let nowhere = Blackhole::new(host)?;
    let wait = move |at: Time| {
        while clock.now() < at && !stop.is_set() {
            thread::sleep(clock.until(at).min(GLANCE));
        }
        !stop.is_set()
    };
    let work = move || {
        for outage in outages {
            if !wait(outage.from) {
                break;
            }
            nowhere.lead(true)?;
            let on = wait(outage.to);
            nowhere.lead(false)?;
            if !on {
                break;
            }
        }
        Ok(())
    };
    Ok(thread::Builder::new().name("injector".into()).spawn(work)?)
}

const GLANCE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use tidegate_core::link::{LinkConfig, LinkId, NamedLink};

    use super::*;

    #[test]
    fn outages_move_from_the_links_to_the_hosts() {
        let outage = |from, to| Outage {
            from: Time::from_secs(from),
            to: Time::from_secs(to),
        };
        let link = |outages| NamedLink {
            name: "l".into(),
            config: LinkConfig {
                outages,
                ..LinkConfig::default()
            },
        };
        let (early, late, other) = (outage(1, 2), outage(5, 6), outage(8, 9));
        let mut network = NetworkConfig {
            links: vec![link(vec![late]), link(vec![early]), link(vec![other])],
            routes: vec![vec![LinkId(0), LinkId(1)], vec![LinkId(2)], vec![LinkId(0)]],
        };
        let cuts = lift(&mut network, &[RouteId(0), RouteId(2)]);
        // A link that two share is cut for both.
        assert_eq!(cuts, [vec![early, late], vec![late]]);
        let left = network.links.iter().map(|link| link.config.outages.len());
        assert_eq!(left.collect::<Vec<_>>(), [0, 0, 1]);
    }
}
