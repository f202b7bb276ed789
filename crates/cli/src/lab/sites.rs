//! Sites of cluster-to-cluster flows: endpoints behind aggregation points in namespaces of their own.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow, bail};
use tidegate_core::aggregate::sender::CpSenderConfig;
use tidegate_core::aggregate::sites::{Numbers, SiteRule};
use tidegate_core::control::Kind;
use tidegate_core::random::Seed;
use tidegate_core::units::Time;
use tidegate_live::cp::source::{CpPassage, CpSource, answer};
use tidegate_live::cp::{CpLabel, CpSocket};
use tidegate_live::driver::{RunLimits, StopFlag};
use tidegate_live::emulator::{
    Host, HostRoute, PATH_INTERFACE, SITE_INTERFACE, Site, UnconnectedHosts,
};
use tidegate_live::gateway::{Gateway, GatewayConfig};
use tidegate_live::netns::{Namespace, Worker};
use tidegate_sim::coordination::{AggregationPlan, Answers, CpPlan};
use tidegate_sim::flow_endpoints::{FlowInstance, FlowResult, Passage};
use tidegate_sim::scenario::Scenario;
use tidegate_sim::topology::{Leg, leg_of};

use super::netns_pair::{Endpoint, NetnsPair, RECEIVER, SENDER, StartGate};
use super::records::Records;

/// A pair of sites, and the aggregation points between them.
pub(super) struct SitePair {
    pub(super) hosts: [Host; 2],
    sites: [Site; 2],
    gateways: Vec<Worker<Result<()>>>,
}

/// The pairs of sites of a run by the number of their aggregation.
pub(super) type Sites = BTreeMap<usize, SitePair>;

impl SitePair {
    /// Endpoints of both sites.
    pub(super) fn namespaces(&self) -> [&Namespace; 2] {
        self.sites.each_ref().map(|site| &site.endpoints)
    }

    /// Starts the gateways, which wait for the gate and end when `stop` is set.
    fn start(
        &mut self,
        plan: &AggregationPlan,
        seed: Seed,
        gate: &StartGate,
        stop: &StopFlag,
    ) -> Result<()> {
        for (side, site) in self.sites.iter().enumerate() {
            let config = GatewayConfig {
                site_interface: SITE_INTERFACE.to_owned(),
                path_interface: PATH_INTERFACE.to_owned(),
                aggregation: plan.config.clone(),
                remote: vec![SiteRule {
                    hosts: vec![self.hosts[1 - side].address().to_string().parse()?],
                    ports: vec![Numbers::new(FIRST_PORT, u16::MAX)],
                    ..SiteRule::default()
                }],
            };
            let (start, stop) = (gate.queue(), stop.clone());
            let mut rng = seed.stream(&format!("aggregation/{}/{side}", plan.name));
            let run = move || match start.recv() {
                Ok(clock) => {
                    let mut gateway = Gateway::open(&config, clock)?;
                    Ok(gateway.run(&stop, None, &mut rng, || false, |_| {})?)
                }
                // The gate was dropped without a start, after another failure.
                Err(_) => Ok(()),
            };
            self.gateways.push(site.gateway.run(run)?);
        }
        Ok(())
    }
}

/// Checks that the flows of each aggregation have the same path, since they share the hosts of its
/// sites.
pub(super) fn check(scenario: &Scenario) -> Result<()> {
    let mut paths = BTreeMap::new();
    for flow in &scenario.flows {
        let Some(plan) = flow.media.cp() else {
            continue;
        };
        let own = (&flow.path, &flow.back);
        if *paths.entry(plan.points).or_insert(own) != own {
            bail!(
                "flow {:?}: all flows of the aggregation {:?} have one path in the lab: give them the same, \
                 or run the scenario in the simulator (tidegate sim run)",
                flow.name,
                scenario.aggregations[plan.points].name
            );
        }
    }
    Ok(())
}

/// Creates the sites of all cluster-to-cluster flows. Those of one aggregation share its sites.
pub(super) fn start(
    instances: &[FlowInstance],
    plans: &[AggregationPlan],
    hosts: impl Fn(usize) -> [Host; 2],
    unconnected: &UnconnectedHosts,
    seed: Seed,
    (gate, stop): (&StartGate, &StopFlag),
) -> Result<Sites> {
    let mut sites = Sites::new();
    for (i, instance) in instances.iter().enumerate() {
        let Some(points) = instance.plan.media.cp().map(|plan| plan.points) else {
            continue;
        };
        if sites.contains_key(&points) {
            continue;
        }
        let [sender, receiver] = hosts(i);
        let mut pair = SitePair {
            hosts: [sender, receiver],
            sites: [
                unconnected.add_site(sender)?,
                unconnected.add_site(receiver)?,
            ],
            gateways: Vec::new(),
        };
        let plan = &plans[points];
        pair.start(plan, seed, gate, stop)
            .with_context(|| format!("aggregation {:?}", plan.name))?;
        sites.insert(points, pair);
    }
    Ok(sites)
}

/// Waits for the gateways, whose stop flag is set.
pub(super) fn end(mut sites: Sites) -> Result<()> {
    // The namespaces remain until all gateways have ended: an interface ends with that of its peer.
    let gateways = sites.values_mut().flat_map(|pair| pair.gateways.drain(..));
    for gateway in gateways {
        let ended = gateway.join();
        ended
            .map_err(|_| anyhow!("a gateway panicked"))?
            .context("a gateway")?;
    }
    Ok(())
}

/// Routes of a flow between the hosts of its sites. All flows of the sites share those of the first.
pub(super) fn routes(
    instances: &[FlowInstance],
    flow: usize,
    [sender, receiver]: [Host; 2],
) -> Option<[HostRoute; 2]> {
    let points = |instance: &FlowInstance| instance.plan.media.cp().map(|plan| plan.points);
    let own = points(&instances[flow])?;
    let is_first = instances[..flow]
        .iter()
        .all(|instance| points(instance) != Some(own));
    let leg = |leg| leg_of(instances, flow, leg);
    is_first.then(|| HostRoute::both(sender, receiver, leg(Leg::There), leg(Leg::Back)))
}

/// Starts sender and receiver of the flow with this number on the hosts of `place`.
pub(super) fn endpoints(
    place: &NetnsPair<'_>,
    plan: &CpPlan,
    number: u16,
    flag: &StopFlag,
    records: [Records; 2],
) -> Result<[Endpoint; 2]> {
    let sockets = [SENDER, RECEIVER].map(|side| place.bind(side, FIRST_PORT + number));
    let [sender, receiver] = sockets;
    let [of_sender, of_receiver] = records;
    let end = Time::ZERO + place.instance.plan.stop;
    let label = CpLabel {
        application: plan.application,
        flow: number,
        shares: plan.shares,
    };
    let config = CpSenderConfig {
        application: plan.application,
        flow: number,
        shares: plan.shares,
        part: plan.part,
        packet_size: plan.packet,
        start: Time::ZERO + place.instance.plan.start,
    };
    let (udp, peer) = sender?;
    let settings = config.clone();
    let send = move |limits: &RunLimits| {
        let socket = CpSocket::connected(udp, peer, label, limits.clock)?;
        let mut source = CpSource::new(socket, settings);
        source.run(limits, end, |passage| record(&of_sender, passage));
        Ok(of_sender.take())
    };
    let sender = place.inside(SENDER, flag, send)?;
    let (udp, peer) = receiver?;
    let answers = plan.answers;
    let receive = move |limits: &RunLimits| {
        let mut socket = CpSocket::connected(udp, peer, label, limits.clock)?;
        let note = |passage| record(&of_receiver, passage);
        match answers {
            Answers::Data => CpSource::new(socket, config).run(limits, end, note),
            Answers::Each(size) => answer(&mut socket, size, limits, Time::FAR, note),
        }
        Ok(of_receiver.take())
    };
    Ok([sender, place.inside(RECEIVER, place.stop, receive)?])
}

fn record(records: &Records, passage: CpPassage) {
    let row = Passage {
        at: passage.at,
        sent: passage.sent,
        size: passage.size.get() as u32,
        arrived: passage.is_arrival,
        kind: Kind::Media,
    };
    records.with(|result: &mut FlowResult, _| result.passages.push(row));
}

/// Port of the first flow.
const FIRST_PORT: u16 = 5_008;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_of_an_aggregation_have_one_path() {
        let flow = |name: &str, path: &str| {
            format!(
                "[[flow]]\nname = \"{name}\"\npath = [\"{path}\"]\nback = [\"back\"]\naccess = {{ delay = \
                 \"1ms\" }}\nexit = {{ delay = \"1ms\" }}\ncp = {{ points = \"points\", packet = \"1000B\" }}\n"
            )
        };
        let with = |second: &str| {
            let mut names = vec!["there", second, "back"];
            names.dedup();
            let links: Vec<String> = names
                .iter()
                .map(|name| format!("[[link]]\nname = \"{name}\"\n"))
                .collect();
            let flows = [flow("a", "there"), flow("b", second)].concat();
            let text = format!(
                "name = \"t\"\nduration = \"5s\"\n{}[[aggregation]]\nname = \"points\"\n{flows}",
                links.concat()
            );
            check(&Scenario::parse("t", &text, &|_| Err(String::new())).unwrap())
        };
        assert!(with("there").is_ok());
        let refusal = with("other").unwrap_err().to_string();
        assert!(
            refusal.starts_with("flow \"b\": all flows of the aggregation \"points\""),
            "{refusal}"
        );
    }
}
