//! Estimate of the number of packets that a run records, before the run.

use core::time::Duration;

use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_record::LinkInfo;

use super::{FlowPlan, MediaPlan, Scenario, TcpPlan, TcpSender, VideoPlan};
use crate::model_flow::Workload;
use crate::tcp::SourceKind;
use crate::traffic::Schedule;
use crate::traffic::udp::Spacing;

/// Estimated number of recorded packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketEstimate<'a> {
    /// The flow.
    pub flow: &'a str,
    /// Estimate; an upper bound if the flow adapts to the capacity of its path.
    pub packets: f64,
    /// Whether the flow sends this number regardless of the path.
    pub sure: bool,
}

/// Packets that a flow sends.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Load {
    /// Packets.
    count: f64,
    /// The link of its path with the least capacity, if that limits the flow.
    bottleneck: Option<usize>,
}

impl Scenario {
    /// Estimated number of recorded packets per flow name, largest first. Runs only count the
    /// packets of a flow group, unless they are video over RTP. There is no estimate for flows
    /// without a bound: browsers, and greedy flows on a path without limits.
    pub fn logged_packets<'a>(&'a self) -> Vec<PacketEstimate<'a>> {
        let links = self.link_infos();
        let flows = self.flows.iter().filter(|flow| is_logged(flow));
        let loads = flows.filter_map(|flow| Some((flow, self.load_of(flow, &links)?)));
        let mut loads: Vec<(&'a FlowPlan, Load)> = loads.collect();
        // Flows that share a bottleneck share its capacity.
        for link in 0..links.len() {
            let mine = |load: &Load| load.bottleneck == Some(link);
            let shared = loads.iter().filter(|(_, load)| mine(load));
            let most = shared
                .clone()
                .map(|(_, load)| load.count)
                .fold(0.0, f64::max);
            let all: f64 = shared.map(|(_, load)| load.count).sum();
            for (_, load) in loads.iter_mut().filter(|(_, load)| mine(load)) {
                load.count *= most / all.max(1.0);
            }
        }
        let logged = |(flow, load): (&'a FlowPlan, Load)| PacketEstimate {
            flow: &flow.name,
            packets: load.count,
            sure: is_uncontrolled(flow),
        };
        let mut logged: Vec<PacketEstimate<'_>> = loads.into_iter().map(logged).collect();
        logged.sort_by(|a, b| b.packets.total_cmp(&a.packets));
        logged
    }

    fn load_of(&self, flow: &FlowPlan, links: &[LinkInfo]) -> Option<Load> {
        let packet = flow.media.largest_packet().bits().max(1) as f64;
        let life = (flow.start, flow.stop);
        let lasts = flow.stop.saturating_sub(flow.start).as_secs_f64();
        let offered = offered(flow, life);
        if is_uncontrolled(flow) {
            return Some(Load {
                count: offered? / packet * f64::from(flow.count),
                bottleneck: None,
            });
        }
        let carried = flow.path.iter().filter_map(|link| {
            let bits = carried(links.get(*link)?, life)?;
            Some((bits, *link))
        });
        let carried = carried.min_by(|a, b| a.0.total_cmp(&b.0));
        let mut limit = offered.unwrap_or(f64::INFINITY) * f64::from(flow.count);
        if let MediaPlan::Tcp(tcp) = &flow.media {
            let round = self.round_trip(flow).as_secs_f64();
            limit = limit.min(window(tcp) * packet * (lasts / round + 1.0));
        }
        let (bits, bottleneck) = match carried {
            Some((bits, link)) if bits < limit => (bits, Some(link)),
            _ => (limit, None),
        };
        // Browsers are idle most of the time, and their think times are random.
        let is_known = bits.is_finite() && !matches!(flow.media, MediaPlan::Web(_));
        is_known.then_some(Load {
            count: bits / packet,
            bottleneck,
        })
    }
}

/// A run records packets of single flows, and of every flow in a group of video over RTP.
fn is_logged(flow: &FlowPlan) -> bool {
    let over_rtp = |video: &VideoPlan| video.stream.is_none();
    flow.count == 1 || flow.media.video().is_some_and(over_rtp)
}

/// Whether the flow sends regardless of the capacity of its path.
fn is_uncontrolled(flow: &FlowPlan) -> bool {
    flow.fixed_rate().is_some() || matches!(flow.media, MediaPlan::Udp(_))
}

/// Bits that the application of the flow generates, if that amount is bounded.
fn offered(flow: &FlowPlan, life: (Duration, Duration)) -> Option<f64> {
    let lasts = life.1.saturating_sub(life.0).as_secs_f64();
    let over_life = |rate: Rate| rate.as_f64() * lasts;
    let made = match &flow.media {
        MediaPlan::Bulk(bulk) => match &bulk.workload {
            Workload::Greedy => None,
            Workload::Packets(count) => Some(*count as f64 * bulk.packet.bits() as f64),
            Workload::Application(steps) => {
                Some(integral(steps.iter().map(|(at, rate)| (*at, *rate)), life))
            }
        },
        MediaPlan::Tcp(tcp) => of_tcp(tcp, life),
        MediaPlan::Udp(udp) => {
            let share = match udp.spacing {
                Spacing::OnOff { on, off, .. } => {
                    on.as_secs_f64() / (on.as_secs_f64() + off.as_secs_f64())
                }
                Spacing::Constant { .. } | Spacing::Poisson => 1.0,
            };
            Some(share * of_schedule(&udp.rate, life))
        }
        MediaPlan::Video(video) => Some(over_life(video.ceiling)),
        MediaPlan::Cp(_) | MediaPlan::Web(_) => None,
    };
    match (made, flow.fixed_rate().map(over_life)) {
        (Some(made), Some(fixed)) => Some(made.min(fixed)),
        (made, fixed) => made.or(fixed),
    }
}

fn of_tcp(tcp: &TcpPlan, life: (Duration, Duration)) -> Option<f64> {
    let demand = tcp.socket.as_ref().and_then(|s| s.demand.as_ref());
    match (demand, tcp.amount) {
        (Some(demand), _) => Some(of_schedule(demand, life)),
        (None, SourceKind::Bytes(bytes)) => Some(Bytes(bytes).bits() as f64),
        (None, _) => None,
    }
}

/// Window of sender and receiver, in segments.
fn window(tcp: &TcpPlan) -> f64 {
    let window = match &tcp.sender {
        TcpSender::Classic(config) => config.window,
        TcpSender::Modern(config) => config.window,
    };
    let buffer = tcp.socket.as_ref().map(|socket| {
        let segment = tcp.payload().get().max(1);
        socket.buffer.get().div_ceil(segment) as f64
    });
    buffer.map_or(f64::from(window), |buffer| buffer.min(window.into()))
}

fn of_schedule(schedule: &Schedule, life: (Duration, Duration)) -> f64 {
    let first = core::iter::once((Time::ZERO, schedule.first));
    integral(first.chain(schedule.steps.iter().copied()), life)
}

/// Capacity of the link during this interval, in bits; `None` if unlimited.
fn carried(link: &LinkInfo, life: (Duration, Duration)) -> Option<f64> {
    let steps = link.capacity.iter();
    let steps: Option<Vec<(Time, Rate)>> = steps.map(|s| Some((s.from, s.rate?))).collect();
    steps
        .filter(|steps| !steps.is_empty())
        .map(|steps| integral(steps.into_iter(), life))
}

/// Integral of a rate over an interval, in bits.
fn integral(steps: impl Iterator<Item = (Time, Rate)>, life: (Duration, Duration)) -> f64 {
    let (begin, end) = (Time::ZERO + life.0, Time::ZERO + life.1);
    let mut steps = steps.peekable();
    let mut bits = 0.0;
    while let Some((from, rate)) = steps.next() {
        let to = steps.peek().map_or(end, |next| next.0.min(end));
        bits += rate.as_f64() * to.since(from.max(begin)).as_secs_f64();
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(links: &str, flows: &str) -> Vec<(String, f64)> {
        let text = format!("name = \"t\"\nduration = \"10s\"\n{links}\n{flows}");
        let scenario = Scenario::parse("t", &text, &|_| Err(String::new()));
        let scenario = scenario.unwrap_or_else(|e| panic!("{e}"));
        let counts = scenario.logged_packets().into_iter();
        let rounded = |logged: PacketEstimate<'_>| (logged.flow.to_owned(), logged.packets.round());
        counts.map(rounded).collect()
    }

    fn flow(name: &str, what: &str) -> String {
        format!("[[flow]]\nname = \"{name}\"\npath = [\"l\"]\nback = [\"m\"]\n{what}\n")
    }

    const LINKS: &str = "[[link]]\nname = \"l\"\nrate = [[\"0s\", \"12Mb/s\"], [\"5s\", \"6Mb/s\"]]\n\
                         delay = \"100ms\"\nqueue = { droptail = \"60kB\" }\n[[link]]\nname = \"m\"";
    const OPEN: &str = "[[link]]\nname = \"l\"\n[[link]]\nname = \"m\"";

    fn one(links: &str, what: &str) -> Option<f64> {
        let counts = count(links, &flow("f", what));
        counts.first().map(|(_, n)| *n)
    }

    #[test]
    fn uncontrolled_flows_send_at_their_configured_rate() {
        let udp = "udp = { rate = \"1000Gb/s\", packet = \"1250B\" }";
        assert_eq!(one(LINKS, udp), Some(1e9));
        assert_eq!(one(LINKS, &format!("count = 2\n{udp}")), None);
        let short = format!("start = \"2s\"\nstop = \"3s\"\n{udp}");
        assert_eq!(one(LINKS, &short), Some(1e8));
        let bursts = "udp = { rate = \"1Mb/s\", packet = \"1250B\", \
                      spacing = { on = \"1s\", off = \"3s\" } }";
        assert_eq!(one(OPEN, bursts), Some(250.0));
        let fixed = "control = { fixed = \"1Mb/s\" }\nbulk = { packet = \"1250B\" }";
        assert_eq!(one(OPEN, fixed), Some(1_000.0));
        // Packets of 1200 bytes are recorded for each video over RTP in a group.
        let video = "count = 3\ncontrol = \"tfrc\"\nvideo = { ceiling = \"960kb/s\" }\ndelay_bound = \"1s\"";
        assert_eq!(one(OPEN, video), Some(3_000.0));
        assert_eq!(one(LINKS, video), Some(3_000.0));
    }

    #[test]
    fn other_flows_are_limited_by_path_application_and_window() {
        // 90 Mbit in packets of 12 kbit.
        assert_eq!(one(LINKS, "tcp = { kind = \"cubic\" }"), Some(7_500.0));
        let tfrc = "control = \"tfrc\"\nbulk = { packet = \"1500B\" }";
        assert_eq!(one(LINKS, tfrc), Some(7_500.0));
        assert_eq!(one(OPEN, tfrc), None);
        assert_eq!(one(OPEN, "web = {}"), None);
        let app = "tcp = { kind = \"cubic\", demand = \"1.2Mb/s\" }";
        assert_eq!(one(LINKS, app), Some(1_000.0));
        // One window per round trip of 100 ms, and one more.
        let small = "tcp = { kind = \"cubic\", window = \"2 packets\" }";
        assert_eq!(one(LINKS, small), Some(202.0));
    }

    #[test]
    fn flows_on_a_shared_link_share_its_capacity() {
        let three = ["a", "b", "c"].map(|name| flow(name, "tcp = { kind = \"cubic\" }"));
        let counts = count(LINKS, &three.concat());
        let all: f64 = counts.iter().map(|(_, n)| n).sum();
        assert_eq!((counts.len(), all), (3, 7_500.0));
    }
}
