//! Maps a scenario's TCP to kernel settings.

use core::time::Duration;

use anyhow::{Result, bail};
use tidegate_core::units::Bytes;
use tidegate_live::tcp::TcpOptions;
use tidegate_live::tcp_sysctls::{ReceiverOptions, TcpSysctls};
use tidegate_sim::scenario::{MediaPlan, Scenario, TcpPlan, TcpSender};
use tidegate_sim::tcp::classic::Flavour;
use tidegate_sim::tcp::modern::{self, CongestionConfig, CubicConfig, Detection};
use tidegate_sim::tcp::{SinkConfig, classic};
use tidegate_sim::traffic::web;

/// Kernel settings of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KernelTcp {
    /// Kernel name of the congestion control.
    pub(super) congestion: &'static str,
    /// Settings of both hosts.
    pub(super) stack: TcpSysctls,
    /// Limits of the receiver.
    pub(super) limits: ReceiverOptions,
    /// Maximum RTO.
    pub(super) rto_max: Option<Duration>,
    /// Whether packets are paced. BBR paces in any case.
    pub(super) paced: bool,
    /// Differences between the plan and the kernel's behaviour.
    pub(super) notes: Vec<String>,
}

impl KernelTcp {
    /// Settings closest to `plan`, with or without ECN.
    pub(super) fn new(plan: &TcpPlan, ecn: bool) -> Self {
        let tcp = match &plan.sender {
            TcpSender::Modern(config) => modern_settings(config),
            TcpSender::Classic(config) => ns2_settings(config),
        };
        tcp.with(&plan.sink, ecn)
    }

    /// Settings closest to those of a web server and its browser, with or without ECN.
    pub(super) fn of_web(config: &web::Config, ecn: bool) -> Self {
        ns2_settings(&config.tcp).with(&config.sink, ecn)
    }

    /// Options of the sockets.
    pub(super) fn options(&self) -> TcpOptions {
        TcpOptions {
            congestion: Some(self.congestion.to_owned()),
            notsent_lowat: None,
            rto_max: self.rto_max,
            paced: self.paced,
        }
    }

    fn with(mut self, sink: &SinkConfig, ecn: bool) -> Self {
        self.stack.ecn = ecn;
        let SinkConfig {
            delay, ack_size, ..
        } = SinkConfig::default();
        if sink.delay != delay || sink.ack_size != ack_size {
            self.notes.push(
                "delayed_ack and ack: the kernel's receiver uses its own delayed ACKs and ACK sizes"
                    .to_owned(),
            );
        }
        self
    }
}

/// Checks that the kernel can run the TCP of all flows.
///
/// # Errors
/// The message names the first flow with an unsupported key, and the key.
pub(super) fn check_kernel_tcp(scenario: &Scenario) -> Result<()> {
    for flow in &scenario.flows_and_baselines() {
        let stream = flow.media.video().and_then(|video| video.stream.as_deref());
        let plan = match &flow.media {
            MediaPlan::Tcp(plan) => Some(plan),
            _ => stream.map(|stream| &stream.tcp),
        };
        // The lab runs models without a kernel counterpart as models.
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
                "flow {:?}: recovery = \"duplicates\" is unsupported by the kernel, which detects \
                 losses by RACK (since Linux 6.17 in no other way): remove it for the lab, or play \
                 the scenario in the simulator (tidegate sim run)",
                flow.name
            );
        }
        if config.timeout.linear {
            bail!(
                "flow {:?}: rto_backoff = \"linear\" is unsupported by the kernel, which doubles \
                 consecutive timeouts: limit them by rto_max = \"1s\" for the lab, or run the \
                 scenario in the simulator (tidegate sim run)",
                flow.name
            );
        }
        if !is_standard {
            bail!(
                "flow {:?}: hystart = false cannot be set for a single flow: the kernel's CUBIC \
                 has one switch for all of the machine (module parameter tcp_cubic.hystart): remove \
                 it for the lab, or run the scenario in the simulator (tidegate sim run)",
                flow.name
            );
        }
    }
    Ok(())
}

fn modern_settings(config: &modern::Config) -> KernelTcp {
    let standard = modern::Config::default();
    let payload = u64::from(config.packet_size.saturating_sub(config.header_size));
    let mut notes = Vec::new();
    if config.initial_window != standard.initial_window {
        notes.push("initial_window: the kernel starts with 10 segments".to_owned());
    }
    let given = |value: Duration, standard| (value != standard).then_some(value);
    KernelTcp {
        congestion: match config.congestion {
            CongestionConfig::Bbr(_) => "bbr",
            CongestionConfig::Cubic(_) => "cubic",
            CongestionConfig::Prague(_) => "prague",
            CongestionConfig::Reno(_) => "reno",
        },
        stack: TcpSysctls {
            min_rto: given(config.timeout.min, standard.timeout.min),
            no_tail_probes: !config.tail_probes,
            ..TcpSysctls::default()
        },
        limits: ReceiverOptions {
            window: (config.window != standard.window)
                .then(|| Bytes(u64::from(config.window) * payload)),
            packet: (config.packet_size != standard.packet_size)
                .then(|| Bytes(u64::from(config.packet_size))),
        },
        rto_max: given(config.timeout.max, standard.timeout.max),
        paced: config.pacing,
        notes,
    }
}

/// The kernel does not implement the algorithms of ns-2. The closest approximation is its Reno with
/// the same window and RTO limits.
fn ns2_settings(config: &classic::Config) -> KernelTcp {
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
        stack: TcpSysctls {
            min_rto: Some(config.rto.min),
            no_sack,
            ..TcpSysctls::default()
        },
        limits: ReceiverOptions {
            window: (config.window != standard.window)
                .then(|| Bytes(u64::from(config.window) * payload)),
            packet: Some(Bytes(u64::from(config.packet_size))),
        },
        rto_max: (config.rto.max != standard.rto.max).then_some(config.rto.max),
        paced: false,
        notes: vec![note],
    }
}

/// Size of the IPv4 and TCP headers with time stamps.
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
            unreachable!("the scenario has a TCP flow");
        };
        KernelTcp::new(plan, false)
    }

    #[test]
    fn options_of_the_model_only_are_rejected() {
        let says = |tcp| check_kernel_tcp(&scenario(tcp)).unwrap_err().to_string();
        assert!(says("\"bbr\", recovery = \"duplicates\"").starts_with("flow \"f\": recovery"));
        assert!(says("\"cubic\", hystart = false").contains("tcp_cubic.hystart"));
        let same =
            "\"cubic\", hystart = true, recovery = \"rack\", pacing = true, tail_probes = false";
        assert!(check_kernel_tcp(&scenario(same)).is_ok());
        let tcp = of(same);
        assert!(tcp.paced && tcp.stack.no_tail_probes);
        // TCP models of ns-2 run as models.
        assert!(check_kernel_tcp(&scenario("\"sack\", buffer = \"64kB\"")).is_ok());
    }

    #[test]
    fn kernel_defaults_apply_without_options() {
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
    fn timeouts_of_a_video_are_those_of_the_plan() {
        let video = |transport: &str| {
            let text = format!(
                "name = \"t\"\nduration = \"5s\"\n[[link]]\nname = \"l\"\n[[flow]]\nname = \"f\"\n\
                 path = [\"l\"]\nback = [\"l\"]\ndelay_bound = \"2s\"\n\
                 video = {{ size = \"176x120\" }}\ntransport = {{ {transport} }}\n"
            );
            Scenario::parse("t", &text, &|_| Err(String::new())).unwrap()
        };
        let rto_max = |transport: &str| {
            let scenario = video(transport);
            let video = scenario.flows[0].media.video().unwrap();
            KernelTcp::new(&video.stream.as_deref().unwrap().tcp, false).rto_max
        };
        let exact = "tcp = \"cubic\", mode = \"iopt\"";
        assert_eq!(rto_max(exact), None);
        let limited = format!("{exact}, rto_max = \"3s\"");
        assert_eq!(rto_max(&limited), Some(Duration::from_secs(3)));
        assert_eq!(rto_max("tcp = \"newreno\", mode = \"iopt\""), None);
        assert!(check_kernel_tcp(&video(&limited)).is_ok());
        let linear = video(&format!("{exact}, rto_backoff = \"linear\""));
        let error = check_kernel_tcp(&linear).unwrap_err().to_string();
        assert!(error.starts_with("flow \"f\": rto_backoff"), "{error}");
    }

    #[test]
    fn differences_from_the_kernel_are_noted() {
        let tcp = of("\"reno\", packet = \"1500B\", window = \"44 packets\", min_rto = \"1s\"");
        assert_eq!(tcp.congestion, "reno");
        assert!(tcp.stack.no_sack);
        assert_eq!(tcp.limits.window, Some(Bytes(44 * 1_448)));
        assert!(tcp.notes[0].contains("44 packets") && tcp.notes[0].contains("1000 ms"));
        assert!(!of("\"sack\"").stack.no_sack);
    }
}
