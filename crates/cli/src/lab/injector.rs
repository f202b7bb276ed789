//! Path outages of video over TCP: by the emulated link or by a route change on the host.

use core::time::Duration;
use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow};
use tidegate_core::link::{NetworkConfig, Outage, RouteId};
use tidegate_core::units::Time;
use tidegate_live::clock::Clock;
use tidegate_live::driver::StopFlag;
use tidegate_live::emulator::Blackhole;
use tidegate_live::netns::Namespace;

/// How an outage interrupts the path of a video over TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Injector {
    /// The link drops its packets, as in the simulator
    #[default]
    Link,
    /// A route on the sender's host discards all packets
    Route,
}

/// Removes the outages from the links of `routes`. Returns the outages of each route.
pub(super) fn take_outages(network: &mut NetworkConfig, routes: &[RouteId]) -> Vec<Vec<Outage>> {
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

/// Waits for the threads of [`start_blackhole`].
///
/// # Errors
/// One of them failed.
pub(super) fn join(injectors: Vec<JoinHandle<Result<()>>>) -> Result<()> {
    for injector in injectors {
        let ended = injector.join();
        ended.map_err(|_| anyhow!("the injector panicked"))??;
    }
    Ok(())
}

/// Starts a thread that discards all packets that the host sends during `outages`.
///
/// # Errors
/// The device for the route cannot be created, or no thread can be started.
pub(super) fn start_blackhole(
    host: &Namespace,
    outages: Vec<Outage>,
    clock: Clock,
    stop: StopFlag,
) -> Result<JoinHandle<Result<()>>> {
    let blackhole = Blackhole::new(host)?;
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
            blackhole.set_blackhole(true)?;
            let on = wait(outage.to);
            blackhole.set_blackhole(false)?;
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
        let cuts = take_outages(&mut network, &[RouteId(0), RouteId(2)]);
        // A link that two routes share is interrupted for both.
        assert_eq!(cuts, [vec![early, late], vec![late]]);
        let left = network.links.iter().map(|link| link.config.outages.len());
        assert_eq!(left.collect::<Vec<_>>(), [0, 0, 1]);
    }
}
