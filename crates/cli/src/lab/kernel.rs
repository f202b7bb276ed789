//! What a TCP of a scenario is in the kernel.

use core::time::Duration;

use anyhow::{Result, bail};
use tidegate_core::units::Bytes;
use tidegate_live::tcp_sysctls::{Limits, Stack};
use tidegate_sim::scenario::{MediaPlan, Scenario, TcpPlan, TcpSender};
use tidegate_sim::tcp::classic::Flavour;
use tidegate_sim::tcp::modern::{self, CongestionConfig, CubicConfig, Detection};
use tidegate_sim::tcp::{SinkConfig, classic};

/// A connection as the kernel is asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KernelTcp {
    /// The congestion control, by the kernel's name for it.
    pub(super) congestion: &'static str,
    /// Of both hosts.
    pub(super) stack: Stack,
    /// Of the receiver.
    pub(super) limits: Limits,
    /// The longest time-out.
    pub(super) rto_max: Option<Duration>,
    /// Whether time-outs in a row are not doubled.
    pub(super) linear: bool,
    /// Whether segments are spaced, which BBR's are in any case.
    pub(super) paced: bool,
    /// What of the plan the kernel has in its own way.
    pub(super) notes: Vec<String>,
}

impl KernelTcp {
    /// What comes closest to `plan`, with ECN or without.
    pub(super) fn new(plan: &TcpPlan, ecn: bool) -> Self {
        let mut tcp = match &plan.sender {
            TcpSender::Modern(config) => of_today(config),
            TcpSender::Classic(config) => as_in_ns2(config),
        };
        tcp.stack.ecn = ecn;
        let SinkConfig {
            delay, ack_size, ..
        } = SinkConfig::default();
        if plan.sink.delay != delay || plan.sink.ack_size != ack_size {
            tcp.notes.push(
                "delayed_ack and ack: the kernel's receiver acknowledges when and as it does"
                    .to_owned(),
            );
        }
        tcp
    }
}

/// Sees that the kernel can play the TCP of all flows.
///
/// # Errors
/// Names the first flow and the key that it cannot.
pub(super) fn fits(scenario: &Scenario) -> Result<()> {
    for flow in &scenario.flows {
        let stream = flow.media.video().and_then(|video| video.stream.as_deref());
        let plan = match &flow.media {
            MediaPlan::Tcp(plan) => Some(plan),
            _ => stream.map(|stream| &stream.tcp),
        };
        // A model of which no kernel has the like is played as it is.
        let plan = plan.filter(|plan| !plan.is_scalable());
        let Some(TcpSender::Modern(config)) = plan.map(|plan| &plan.sender) else {
            continue;
        };
        let is_standard = match config.congestion {
            CongestionConfig::Cubic(cubic) => cubic == CubicConfig::default(),
            _ => true,
        };
        if config.detection != Detection::RackTlp {
            bail!(
                "flow {:?}: recovery = \"duplicates\" is not to be had of the kernel, which finds \
                 losses by RACK (since Linux 6.17 in no other way): remove it for the lab, or play \
                 in the simulator: tidegate sim run",
                flow.name
            );
        }
        if !is_standard {
            bail!(
                "flow {:?}: hystart = false is not to be had for one flow of the kernel, whose CUBIC \
                 has one switch for all of the machine (module parameter tcp_cubic.hystart): remove \
                 it for the lab, or play in the simulator: tidegate sim run",
                flow.name
            );
        }
    }
    Ok(())
}

fn of_today(config: &modern::Config) -> KernelTcp {
    let standard = modern::Config::default();
    let payload = u64::from(config.packet_size.saturating_sub(config.header_size));
    let mut notes = Vec::new();
    if config.initial_window != standard.initial_window {
        notes.push("initial_window: the kernel begins with 10 segments".to_owned());
    }
    let given = |value: Duration, standard| (value != standard).then_some(value);
    KernelTcp {
        congestion: match config.congestion {
            CongestionConfig::Bbr(_) => "bbr",
            CongestionConfig::Cubic(_) => "cubic",
            CongestionConfig::Prague(_) => "prague",
            CongestionConfig::Reno(_) => "reno",
        },
        stack: Stack {
            min_rto: given(config.timeout.min, standard.timeout.min),
            no_tail_probes: !config.tail_probes,
            ..Stack::default()
        },
        limits: Limits {
            window: (config.window != standard.window)
                .then(|| Bytes(u64::from(config.window) * payload)),
            packet: (config.packet_size != standard.packet_size)
                .then(|| Bytes(u64::from(config.packet_size))),
        },
        rto_max: given(config.timeout.max, standard.timeout.max),
        linear: config.timeout.linear,
        paced: config.pacing,
        notes,
    }
}

/// ns-2's laws are none of the kernel's. Its Reno with the same window and time-outs is what
/// comes closest.
fn as_in_ns2(config: &classic::Config) -> KernelTcp {
    let standard = classic::Config::default();
    let (kind, no_sack) = match config.flavour {
        Flavour::Reno => ("reno", true),
        Flavour::NewReno => ("newreno", true),
        Flavour::Sack => ("sack", false),
    };
    let payload = u64::from(config.packet_size) - MODERN_HEADERS;
    let note = format!(
        "{kind} is as in ns-2, which the kernel cannot play: its own Reno stands in, {} selective \
         acknowledgements, with the window ({} packets, TCP_WINDOW_CLAMP) and the shortest \
         time-out ({} ms on top of the round trip, tcp_rto_min_us) of the plan. Its threshold falls \
         with the first of several time-outs only, it begins with 10 segments, and its clock has \
         no ticks",
        if no_sack { "without" } else { "with" },
        config.window,
        config.rto.min.as_millis(),
    );
    KernelTcp {
        congestion: "reno",
        stack: Stack {
            min_rto: Some(config.rto.min),
            no_sack,
            ..Stack::default()
        },
        limits: Limits {
            window: (config.window != standard.window)
                .then(|| Bytes(u64::from(config.window) * payload)),
            packet: Some(Bytes(u64::from(config.packet_size))),
        },
        rto_max: (config.rto.max != standard.rto.max).then_some(config.rto.max),
        linear: false,
        paced: false,
        notes: vec![note],
    }
}

/// Of IPv4 and TCP with time stamps.
const MODERN_HEADERS: u64 = 52;

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(tcp: &str) -> Scenario {
        let text = format!(
            "name = \"t\"\nduration = \"5s\"\n[[link]]\nname = \"l\"\n[[flow]]\nname = \"f\"\n\
             path = [\"l\"]\nback = [\"l\"]\ntcp = {{ kind = {tcp} }}\n"
        );
        Scenario::parse("t", &text, &|_| Err(String::new())).unwrap()
    }

    fn of(tcp: &str) -> KernelTcp {
        let scenario = scenario(tcp);
        let MediaPlan::Tcp(plan) = &scenario.flows[0].media else {
            unreachable!("it is TCP");
        };
        KernelTcp::new(plan, false)
    }

    #[test]
    fn what_only_the_model_has_is_refused() {
        let says = |tcp| fits(&scenario(tcp)).unwrap_err().to_string();
        assert!(says("\"bbr\", recovery = \"duplicates\"").starts_with("flow \"f\": recovery"));
        assert!(says("\"cubic\", hystart = false").contains("tcp_cubic.hystart"));
        let same =
            "\"cubic\", hystart = true, recovery = \"rack\", pacing = true, tail_probes = false";
        assert!(fits(&scenario(same)).is_ok());
        let tcp = of(same);
        assert!(tcp.paced && tcp.stack.no_tail_probes);
        // The models of ns-2 are played as models.
        assert!(fits(&scenario("\"sack\", buffer = \"64kB\"")).is_ok());
    }

    #[test]
    fn what_is_not_said_stays_as_the_kernel_has_it() {
        for (kind, name) in [("linux-reno", "reno"), ("cubic", "cubic"), ("bbr", "bbr")] {
            let tcp = of(&format!("\"{kind}\""));
            assert_eq!(tcp.congestion, name);
            assert_eq!((tcp.stack, tcp.limits), Default::default());
            assert_eq!((tcp.rto_max, tcp.notes.len()), (None, 0));
        }
        let tcp = of("\"cubic\", window = \"44 packets\", packet = \"1000B\", min_rto = \"1s\"");
        assert_eq!(tcp.limits.window, Some(Bytes(44 * 948)));
        assert_eq!(tcp.limits.packet, Some(Bytes(1_000)));
        assert_eq!(tcp.stack.min_rto, Some(Duration::from_secs(1)));
        assert_eq!(of("\"bbr\", initial_window = 4").notes.len(), 1);
        assert_eq!(of("\"bbr\", delayed_ack = \"40ms\"").notes.len(), 1);
    }

    #[test]
    fn the_back_off_of_a_video_is_the_models() {
        let of_video = |transport: &str| {
            let text = format!(
                "name = \"t\"\nduration = \"5s\"\n[[link]]\nname = \"l\"\n[[flow]]\nname = \"f\"\n\
                 path = [\"l\"]\nback = [\"l\"]\ndelay_bound = \"2s\"\n\
                 video = {{ size = \"176x120\" }}\ntransport = {{ {transport} }}\n"
            );
            let scenario = Scenario::parse("t", &text, &|_| Err(String::new())).unwrap();
            let video = scenario.flows[0].media.video().unwrap();
            let tcp = KernelTcp::new(&video.stream.as_deref().unwrap().tcp, false);
            (tcp.linear, tcp.rto_max)
        };
        let exact = "tcp = \"cubic\", mode = \"iopt\"";
        assert_eq!(of_video(exact), (true, None));
        let asked = of_video(&format!("{exact}, rto_max = \"3s\""));
        assert_eq!(asked, (false, Some(Duration::from_secs(3))));
        let both = of_video(&format!(
            "{exact}, rto_max = \"3s\", rto_backoff = \"linear\""
        ));
        assert_eq!(both, (true, Some(Duration::from_secs(3))));
        assert_eq!(
            of_video(&format!("{exact}, law = \"paper\"")),
            (false, None)
        );
        // The papers' TCP doubles.
        assert_eq!(
            of_video("tcp = \"newreno\", mode = \"iopt\""),
            (false, None)
        );
    }

    #[test]
    fn what_the_kernel_cannot_play_is_said() {
        let tcp = of("\"reno\", packet = \"1500B\", window = \"44 packets\", min_rto = \"1s\"");
        assert_eq!(tcp.congestion, "reno");
        assert!(tcp.stack.no_sack);
        assert_eq!(tcp.limits.window, Some(Bytes(44 * 1_448)));
        assert!(tcp.notes[0].contains("44 packets") && tcp.notes[0].contains("1000 ms"));
        assert!(!of("\"sack\"").stack.no_sack);
    }
}
