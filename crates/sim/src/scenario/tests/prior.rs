//! What flows know about their path.

use tidegate_core::controller::rap::{RapConfig, StartRule};

use super::super::*;
use super::parse;
use crate::tcp::InitialWindow;

/// A path with one flow of these keys.
fn flow(keys: &str) -> Result<Scenario, ScenarioError> {
    let text = format!(
        "name = \"start\"\nabout = \"one flow\"\nduration = \"10s\"\n[[link]]\nname = \"there\"\nfrom = \
         \"a\"\nto = \"b\"\nrate = \"10Mb/s\"\nqueue = {{ droptail = \"60kB\" }}\n[[link]]\nname = \"back\"\nfrom = \"b\"\nto = \"a\"\nrate = \
         \"10Mb/s\"\nqueue = {{ droptail = \"60kB\" }}\n[[flow]]\nname = \"flow\"\npath = [\"there\"]\nback = [\"back\"]\n{keys}\n"
    );
    parse(&text)
}

/// The cases of Figure 3 of the paper on informed start, for a sender with a window: a twenty-first of
/// 10 Mb/s, correct, 3 times too high and 3 times too low, at the round-trip time of 62 ms.
#[test]
fn a_prior_is_the_window_of_a_tcp_flow() {
    for (rate, window) in [(476_190, 3), (1_428_571, 11), (158_730, 1), (100, 1)] {
        let prior = format!("prior = {{ rate = \"{rate}b/s\", rtt = \"62ms\" }}");
        let tcp = "tcp = { kind = \"reno\", packet = \"1000B\" }";
        let scenario = flow(&format!("{tcp}\n{prior}")).expect("valid");
        let MediaPlan::Tcp(plan) = &scenario.flows[0].media else {
            panic!("no TCP")
        };
        let TcpSender::Classic(sender) = &plan.sender else {
            panic!("no classic TCP")
        };
        assert_eq!(sender.initial_window, InitialWindow::Segments(window));
        // No slow start.
        assert_eq!(sender.initial_ssthresh, Some(window));
        let linux = flow(&format!("tcp = {{ kind = \"cubic\" }}\n{prior}"));
        let message = linux.expect_err("refused").to_string();
        assert!(
            message.contains("the TCP of Linux has no prior"),
            "{message}"
        );
        let twice = "tcp = { kind = \"reno\", initial_window = 4 }";
        let message = flow(&format!("{twice}\n{prior}")).expect_err("refused");
        assert!(message.to_string().contains("an initial window too"));
    }
    let rap = "control = { rap = { start = \"informed-paper\" } }\nbulk = { packet = \"1000B\" }";
    let informed = RapConfig {
        start: StartRule::InformedPaper,
        ..RapConfig::default()
    };
    let control = flow(rap).expect("valid").flows.remove(0).control;
    assert_eq!(control, Some(informed.into()));
}
